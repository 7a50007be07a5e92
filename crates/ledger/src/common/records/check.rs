//! Verifies stored links and records against the result of the rule for the same events. Read-only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admit_core::entity::{
    Entity, EntityInput, Link, LinkStatus, Policy, ProcessingState, SourceEvent, merge_entity,
};
use admit_core::{Millis, Seq};

use super::candidates::{self, LoadedCandidates};
use super::tables::{EventQuery, StoredEvent, Tables};
use super::{RecordError, shown};
use crate::verify_records::{EventRow, RecordsChecked, StoredRecord, StoredRecordField};

/// Receives inconsistencies: the event, if any, and a message.
pub(crate) type MismatchSink<'f> = dyn FnMut(Option<Seq>, String) + 'f;

/// The rule, and the door of its events.
#[derive(Clone, Copy)]
pub(crate) struct RecordCheck<'a> {
    pub(crate) door: &'a str,
    pub(crate) policy: &'a Arc<Policy>,
    /// Last event whose fields an earlier version read from its body. It merged them by its own rule.
    pub(crate) older_until: Seq,
}

impl RecordCheck<'_> {
    /// Resolves the links of these events again, as an arrival would.
    pub(crate) fn links<T: Tables>(
        &self,
        tables: &mut T,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<(), RecordError<T::Error>> {
        let mut left: BTreeSet<Seq> = seqs.iter().copied().collect();
        while let Some(seq) = left.pop_first() {
            match self.load(tables, seq) {
                Ok(Some(mut loaded)) => {
                    self.compare_links(tables, &mut loaded, (seq, &mut left), checked, wrong)?;
                }
                Ok(None) => {}
                // The scan of the rows reports the unreadable one; its neighbours cannot be resolved without it.
                Err(RecordError::Unreadable(_) | RecordError::Undecided) => checked.undecided += 1,
                Err(error @ RecordError::Store(_)) => return Err(error),
            }
        }
        Ok(())
    }

    fn load<T: Tables>(
        &self,
        tables: &mut T,
        seq: Seq,
    ) -> Result<Option<(EntityInput, LoadedCandidates)>, RecordError<T::Error>> {
        let Some(StoredEvent { event, .. }) = candidates::event_at(tables, seq)? else {
            return Ok(None);
        };
        let rule = EntityInput { policy: Arc::clone(self.policy), event };
        let near = LoadedCandidates::load(tables, self.door, &rule, &rule.event)?;
        Ok(Some((rule, near)))
    }

    /// Compares the links that are decided by the candidates of one event, of those in `left`.
    fn compare_links<T: Tables>(
        &self,
        tables: &mut T,
        (rule, near): &mut (EntityInput, LoadedCandidates),
        (seq, left): (Seq, &mut BTreeSet<Seq>),
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<(), RecordError<T::Error>> {
        let window = self.policy.window_seconds;
        if near.known.iter().any(|known| known.link.diagnostics.window_seconds != window) {
            checked.other_window += 1;
            return Ok(());
        }
        if near.covered.is_some() {
            checked.crowded += 1;
            return Ok(());
        }
        let resolution = near.resolve(tables, rule, Millis(0))?;
        let events: BTreeMap<Seq, &SourceEvent> =
            near.events.iter().map(|event| (event.seq, event)).collect();
        for known in &near.known {
            let event = events.get(&known.seq);
            let is_decided = event.is_some_and(|event| self.is_decided(&rule.event, event));
            if known.seq != seq && !(is_decided && left.remove(&known.seq)) {
                continue;
            }
            checked.links += 1;
            let expected = resolution.link(known.seq);
            let mismatch = expected.and_then(|expected| link_mismatch(&known.link, expected));
            if let Some(message) = mismatch {
                wrong(Some(known.seq), message);
            }
        }
        Ok(())
    }

    /// Whether the range of `middle` contains everything that the link of `event` depends on.
    fn is_decided(&self, middle: &SourceEvent, event: &SourceEvent) -> bool {
        let reach = self.policy.reach().unsigned_abs();
        let is_near = |(one, other): (i64, i64)| one.abs_diff(other) <= reach;
        let times = middle.event_time.zip(event.event_time);
        !event.group.is_empty() && event.group == middle.group && times.is_some_and(is_near)
    }

    /// Merges a record again from its events and compares.
    pub(crate) fn record<T: Tables>(
        &self,
        tables: &mut T,
        stored: &StoredRecord,
        members: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut MismatchSink<'_>,
    ) -> Result<(), RecordError<T::Error>> {
        let queries: Vec<EventQuery<'_>> = members.iter().copied().map(EventQuery::At).collect();
        let found = match tables.events(self.door, &queries) {
            Ok(found) => found,
            Err(RecordError::Unreadable(_) | RecordError::Undecided) => {
                checked.unmerged += 1;
                return Ok(());
            }
            Err(error @ RecordError::Store(_)) => return Err(error),
        };
        let fields = tables.fields(members).map_err(RecordError::Store)?;
        let mut fields: BTreeMap<_, _> = fields.into_iter().collect();
        let mut linked: Vec<StoredEvent> = found.into_iter().flatten().collect();
        for stored in &mut linked {
            stored.event.fields = fields.remove(&stored.event.seq).unwrap_or_default();
        }
        let events: Vec<&SourceEvent> = linked.iter().map(|stored| &stored.event).collect();
        let id = &stored.record_id;
        checked.records += 1;
        let Some((record, applied)) = merge_entity(self.policy, id, &events) else {
            wrong(None, format!("no event opens the record {id}"));
            return Ok(());
        };
        for StoredEvent { event, link, .. } in &linked {
            if link.is_applied != applied.contains(&event.seq) {
                let message = "its link has another `is_applied` than the rule computes";
                wrong(Some(event.seq), message.to_owned());
            }
        }
        let stamps: Vec<&str> =
            self.policy.sources.iter().filter_map(|source| source.stamp).collect();
        let mismatches = record_mismatches(stored, &record, &stamps);
        if members.iter().all(|seq| *seq <= self.older_until) {
            checked.older_merges += u64::from(!mismatches.is_empty());
            return Ok(());
        }
        for what in mismatches {
            wrong(None, format!("{what} of the record {id} differs from the merge of its events"));
        }
        Ok(())
    }
}

/// How a link differs from the one the rule computes for the same events. Candidate counts and attempts
/// are those of that time; the reason of a missing link depends on the range of that time. None is compared.
fn link_mismatch(stored: &Link, expected: &Link) -> Option<String> {
    let is_linked = expected.status != LinkStatus::Unlinked;
    let parts = [
        ("status", stored.status != expected.status),
        ("record", stored.record_id != expected.record_id),
        ("match", stored.matched != expected.matched),
        ("confidence", stored.confidence != expected.confidence),
        (
            "number",
            (stored.number, &stored.number_from) != (expected.number, &expected.number_from),
        ),
        ("fingerprints", stored.fingerprints != expected.fingerprints),
        ("reason", is_linked && stored.reason != expected.reason),
        ("state", stored.state != expected.state),
    ];
    joined(&parts)
        .map(|names| format!("its link has another {names} than the rule computes for its events"))
}

/// The parts of a record that differ from the merge of its events.
fn record_mismatches(stored: &StoredRecord, record: &Entity, stamps: &[&str]) -> Vec<String> {
    let is_fresh = [ProcessingState::Linked, ProcessingState::Enriched]
        .iter()
        .any(|it| it.word() == stored.state);
    let parts = [
        ("the group", stored.group != record.group),
        ("the number", stored.number != record.number),
        ("the date", stored.date != record.date),
        ("the time", stored.time != record.time),
        ("the event time", stored.event_time != record.event_time),
        ("the state", is_fresh && stored.state != record.state.word()),
        ("the list of fingerprints", stored.fingerprints != record.fingerprints_text()),
    ];
    let wrong = parts.iter().filter(|(_, differs)| *differs);
    let mut wrong: Vec<String> = wrong.map(|(name, _)| (*name).to_owned()).collect();
    let fields: BTreeMap<&str, &StoredRecordField> =
        stored.fields.iter().map(|field| (field.name.as_str(), field)).collect();
    for field in &record.fields {
        let mut value = Vec::new();
        admit_core::json::write(&field.value, &mut value);
        // A copy moves the stamp and not its event.
        let is_stamp = stamps.contains(&field.name.as_str());
        let is_right = fields.get(field.name.as_str()).is_some_and(|stored| {
            stored.value.as_bytes() == value
                && stored.source == field.source
                && (is_stamp || stored.event == field.event)
        });
        if !is_right {
            wrong.push(format!("the field {}", field.name));
        }
    }
    let is_known = |name: &str| record.field(name).is_some();
    let strange = stored.fields.iter().filter(|field| !is_known(&field.name));
    wrong.extend(strange.map(|field| format!("the field {}", field.name)));
    wrong
}

/// The columns of an event that differ from its stored texts.
pub(crate) fn column_mismatch(row: &EventRow, event: &SourceEvent, link: &Link) -> Option<String> {
    let (state, reason) = shown(link, row.drift.as_deref());
    let parts = [
        ("source", row.source != event.source),
        ("grp", row.group != event.group),
        ("number", row.number != link.number),
        ("event_time", row.event_time != event.event_time),
        ("hard_key", row.hard_key != event.hard_key),
        ("state", row.state != state.word()),
        ("link_status", row.link_status != link.status.word()),
        ("reason_code", row.reason != reason),
        ("confidence", row.confidence != link.confidence.word()),
        ("record_id", row.record_id != link.record_id),
    ];
    joined(&parts).map(|names| format!("columns of its event differ from its stored text: {names}"))
}

fn joined(parts: &[(&str, bool)]) -> Option<String> {
    let wrong = parts.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name);
    let wrong: Vec<&str> = wrong.collect();
    (!wrong.is_empty()).then(|| wrong.join(", "))
}
