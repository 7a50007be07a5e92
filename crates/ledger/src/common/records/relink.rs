//! Linking again what is not linked: the same rule, on events that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admit_core::record::{Link, LinkStatus, Policy, State, Told, Transition};
use admit_core::{Millis, Seq};

use super::near::{self, Near};
use super::publications::{PublicationTables, catch_up};
use super::tables::{Decided, Drift, Linked, Step};
use super::{RecordError, Settling, rows, settle, stands};
use crate::port::Relinked;

/// So many events are looked at in one commit.
const SLICE: i64 = 64;

/// One slice of the work.
#[derive(Clone)]
pub(crate) struct Relinking {
    pub(crate) door: String,
    pub(crate) policy: Arc<Policy>,
    pub(crate) at: Millis,
    pub(crate) is_dry: bool,
    /// Only events after this place.
    pub(crate) after: Seq,
}

impl Relinking {
    /// What this slice came to, and where the next one begins.
    pub(crate) fn slice<T: PublicationTables>(
        &self,
        tables: &mut T,
    ) -> Result<(Relinked, Option<Seq>), T::Error> {
        let open = tables.open(&self.door, self.after, SLICE)?;
        tables.mark()?;
        let mut relinked = Relinked::default();
        for seq in &open {
            relinked.scanned += 1;
            match self.again(tables, *seq) {
                Ok(true) => relinked.updated += 1,
                Ok(false) => {}
                Err(RecordError::Store(error)) => return Err(error),
                Err(error @ (RecordError::Unreadable(_) | RecordError::Undecided)) => {
                    tracing::error!(seq = seq.0, %error, "an event of a record cannot be read");
                }
            }
        }
        tables.release(self.is_dry)?;
        Ok((relinked, open.last().copied()))
    }

    /// Looks at one event again; whether anything has changed for it.
    fn again<T: PublicationTables>(
        &self,
        tables: &mut T,
        seq: Seq,
    ) -> Result<bool, RecordError<T::Error>> {
        let Some(Decided { event, link: before, drift }) = near::one(tables, seq)? else {
            return Ok(false);
        };
        let had_drifted = drift.is_some();
        let rule = Told { policy: Arc::clone(&self.policy), event: event.clone() };
        let mut near = Near::load(tables, &self.door, &rule, &event)?;
        let resolution = near.resolve(tables, &rule, self.at)?;
        let settling = Settling {
            door: &self.door,
            policy: &self.policy,
            resolution: &resolution,
            new: None,
            at: self.at,
        };
        settle(tables, &mut near, &settling)?;
        let after = resolution.link(seq).cloned().unwrap_or_else(|| before.clone());
        let lacks_rows = after.status == LinkStatus::Ambiguous && after.has_rows();
        if had_drifted || lacks_rows {
            self.rows_again(tables, &mut near, seq, &after)?;
        }
        let is_mended =
            had_drifted && near::one(tables, seq)?.is_some_and(|now| now.drift.is_none());
        let is_other = after.status != before.status || after.record_id != before.record_id;
        Ok(is_other || is_mended)
    }

    /// Tries whether the rows of an event can be kept now.
    fn rows_again<T: PublicationTables>(
        &self,
        tables: &mut T,
        near: &mut Near,
        seq: Seq,
        link: &Link,
    ) -> Result<(), RecordError<T::Error>> {
        let shares = rows::sharing(tables, &self.policy, near, &BTreeSet::from([seq]));
        let shares = shares.map_err(RecordError::Store)?;
        let mut drift = Drift::new();
        let writes = rows::writes(&self.policy, near, &BTreeMap::new(), &shares, &mut drift);
        let said = tables.write(&writes).map_err(RecordError::Store)?;
        rows::note(&writes, said, &mut drift);
        let is_still_missing = drift.get(&seq).is_some_and(Option::is_some);
        let linked = [Linked::of(seq, link, None)];
        let is_enriched = link.status == LinkStatus::Linked && link.state == State::Enriched;
        let enriched = is_enriched.then(|| self.enriched(near, seq, link));
        let steps: Vec<Step<'_>> = enriched.iter().filter_map(|it| Step::of(it, None)).collect();
        let (linked, steps, ids) = match is_still_missing {
            true => (&linked[..0], &steps[..0], None),
            false => (&linked[..], &steps[..], link.record_id.as_deref()),
        };
        let ids: Vec<&str> = ids.into_iter().collect();
        let caught_up = catch_up(tables, &stands(&drift, linked, steps), &ids, self.at);
        caught_up.map_err(RecordError::Store)?;
        Ok(())
    }

    /// The step of an event whose rows could be kept at last.
    fn enriched(&self, near: &Near, seq: Seq, link: &Link) -> Transition {
        let source = near.events.iter().find(|event| event.seq == seq);
        Transition {
            seq,
            attempt: link.attempt,
            from: State::Linked,
            to: State::Enriched,
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
