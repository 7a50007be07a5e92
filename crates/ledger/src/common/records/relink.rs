//! Links events again that are not linked: the same rule, on stored events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admit_core::entity::{EntityInput, Link, LinkStatus, Policy, ProcessingState, Transition};
use admit_core::{Millis, Seq};

use super::candidates::{self, LoadedCandidates};
use super::publications::{PublicationTables, catch_up};
use super::tables::{Drift, HistoryRow, LinkRow, StoredEvent};
use super::{RecordError, ResolutionWrite, link_writes, rows, write_resolution};
use crate::port::RelinkCounts;

/// Events examined per commit.
const SLICE: i64 = 64;

/// One slice of relinking.
#[derive(Clone)]
pub(crate) struct RelinkSlice {
    pub(crate) door: String,
    pub(crate) policy: Arc<Policy>,
    pub(crate) at: Millis,
    pub(crate) is_dry: bool,
    /// Only events after this seq.
    pub(crate) after: Seq,
}

impl RelinkSlice {
    /// Runs the slice. Returns its counts, and where the next one begins.
    pub(crate) fn slice<T: PublicationTables>(
        &self,
        tables: &mut T,
    ) -> Result<(RelinkCounts, Option<Seq>), T::Error> {
        let open = tables.open(&self.door, self.after, SLICE)?;
        tables.mark()?;
        let mut relinked = RelinkCounts::default();
        for seq in &open {
            relinked.scanned += 1;
            match self.relink_event(tables, *seq) {
                Ok(true) => relinked.updated += 1,
                Ok(false) => {}
                Err(RecordError::Store(error)) => return Err(error),
                Err(error @ (RecordError::Unreadable(_) | RecordError::Undecided)) => {
                    tracing::error!(seq = seq.0, %error, "stored event of a record cannot be parsed");
                }
            }
        }
        tables.release(self.is_dry)?;
        Ok((relinked, open.last().copied()))
    }

    /// Resolves one event again; returns whether it changed.
    fn relink_event<T: PublicationTables>(
        &self,
        tables: &mut T,
        seq: Seq,
    ) -> Result<bool, RecordError<T::Error>> {
        let Some(StoredEvent { event, link: before, drift }) = candidates::event_at(tables, seq)?
        else {
            return Ok(false);
        };
        let had_drifted = drift.is_some();
        let rule = EntityInput { policy: Arc::clone(&self.policy), event: event.clone() };
        let mut near = LoadedCandidates::load(tables, &self.door, &rule, &event)?;
        let resolution = near.resolve(tables, &rule, self.at)?;
        let write = ResolutionWrite {
            door: &self.door,
            policy: &self.policy,
            resolution: &resolution,
            new: None,
            at: self.at,
        };
        write_resolution(tables, &mut near, &write)?;
        let after = resolution.link(seq).cloned().unwrap_or_else(|| before.clone());
        let lacks_rows = after.status == LinkStatus::Ambiguous && after.has_rows();
        if had_drifted || lacks_rows {
            self.retry_rows(tables, &mut near, seq, &after)?;
        }
        let is_repaired = had_drifted
            && candidates::event_at(tables, seq)?.is_some_and(|now| now.drift.is_none());
        let is_other = after.status != before.status || after.record_id != before.record_id;
        Ok(is_other || is_repaired)
    }

    /// Retries storing the rows of an event.
    fn retry_rows<T: PublicationTables>(
        &self,
        tables: &mut T,
        near: &mut LoadedCandidates,
        seq: Seq,
        link: &Link,
    ) -> Result<(), RecordError<T::Error>> {
        let shares = rows::load_shares(tables, &self.policy, near, &BTreeSet::from([seq]));
        let shares = shares.map_err(RecordError::Store)?;
        let mut drift = Drift::new();
        let writes = rows::writes(&self.policy, near, &BTreeMap::new(), &shares, &mut drift);
        let messages = tables.write(&[], &writes).map_err(RecordError::Store)?;
        rows::collect_drift(&writes, messages, &mut drift);
        let is_still_missing = drift.get(&seq).is_some_and(Option::is_some);
        let linked = [LinkRow::of(seq, link, None)];
        let is_enriched =
            link.status == LinkStatus::Linked && link.state == ProcessingState::Enriched;
        let enriched = is_enriched.then(|| self.enriched(near, seq, link));
        let steps: Vec<HistoryRow<'_>> =
            enriched.iter().filter_map(|it| HistoryRow::of(it, None)).collect();
        let (linked, steps, ids) = match is_still_missing {
            true => (&linked[..0], &steps[..0], None),
            false => (&linked[..], &steps[..], link.record_id.as_deref()),
        };
        let ids: Vec<&str> = ids.into_iter().collect();
        let caught_up = catch_up(tables, &link_writes(&drift, linked, steps), &ids, self.at);
        caught_up.map_err(RecordError::Store)?;
        Ok(())
    }

    /// History step of an event whose rows could be stored at last.
    fn enriched(&self, near: &LoadedCandidates, seq: Seq, link: &Link) -> Transition {
        let source = near.events.iter().find(|event| event.seq == seq);
        Transition {
            seq,
            attempt: link.attempt,
            from: ProcessingState::Linked,
            to: ProcessingState::Enriched,
            at: self.at,
            source: source.map(|event| event.source.clone()).unwrap_or_default(),
            fingerprint: link.fingerprint().cloned(),
            link_status: link.status,
            confidence: link.confidence,
            reason: Some(link.reason.clone()),
            record_id: link.record_id.clone(),
        }
    }
}
