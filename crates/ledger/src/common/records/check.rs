//! Checks what is kept of records against what the rule makes of the same events. It only reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admit_core::record::{Link, LinkStatus, Policy, Record, SourceEvent, State, Told, merged};
use admit_core::{Millis, Seq};

use super::near::{self, Near};
use super::tables::{Asked, Decided, Tables};
use super::{RecordError, shown};
use crate::verify_records::{KeptField, KeptRecord, RecordsChecked, TellingRow};

/// Takes what is wrong: the event it is about, where there is one, and how.
pub(crate) type EachWrong<'f> = dyn FnMut(Option<Seq>, String) + 'f;

/// The rule, and the door whose events it is for.
#[derive(Clone, Copy)]
pub(crate) struct Checking<'a> {
    pub(crate) door: &'a str,
    pub(crate) policy: &'a Arc<Policy>,
}

impl Checking<'_> {
    /// Decides the links of these events again, as an arrival would.
    pub(crate) fn links<T: Tables>(
        &self,
        tables: &mut T,
        seqs: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut EachWrong<'_>,
    ) -> Result<(), RecordError<T::Error>> {
        let mut left: BTreeSet<Seq> = seqs.iter().copied().collect();
        while let Some(seq) = left.pop_first() {
            match self.around(tables, seq) {
                Ok(Some(mut around)) => {
                    self.decide(tables, &mut around, (seq, &mut left), checked, wrong)?;
                }
                Ok(None) => {}
                // The row itself is named where it is read; its neighbours cannot be decided without it.
                Err(RecordError::Unreadable(_) | RecordError::Undecided) => checked.undecided += 1,
                Err(error @ RecordError::Store(_)) => return Err(error),
            }
        }
        Ok(())
    }

    fn around<T: Tables>(
        &self,
        tables: &mut T,
        seq: Seq,
    ) -> Result<Option<(Told, Near)>, RecordError<T::Error>> {
        let Some(Decided { event, .. }) = near::one(tables, seq)? else { return Ok(None) };
        let rule = Told { policy: Arc::clone(self.policy), event };
        let near = Near::load(tables, self.door, &rule, &rule.event)?;
        Ok(Some((rule, near)))
    }

    /// The links that are decided around one event, of those that are left.
    fn decide<T: Tables>(
        &self,
        tables: &mut T,
        (rule, near): &mut (Told, Near),
        (seq, left): (Seq, &mut BTreeSet<Seq>),
        checked: &mut RecordsChecked,
        wrong: &mut EachWrong<'_>,
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
            let again = resolution.link(known.seq);
            if let Some(how) = again.and_then(|again| link_differs(&known.link, again)) {
                wrong(Some(known.seq), how);
            }
        }
        Ok(())
    }

    /// Whether the range of `middle` holds everything that the link of `event` depends on.
    fn is_decided(&self, middle: &SourceEvent, event: &SourceEvent) -> bool {
        let reach = self.policy.reach().unsigned_abs();
        let is_near = |(one, other): (i64, i64)| one.abs_diff(other) <= reach;
        let times = middle.event_time.zip(event.event_time);
        !event.group.is_empty() && event.group == middle.group && times.is_some_and(is_near)
    }

    /// Merges a record again from its events.
    pub(crate) fn record<T: Tables>(
        &self,
        tables: &mut T,
        kept: &KeptRecord,
        members: &[Seq],
        checked: &mut RecordsChecked,
        wrong: &mut EachWrong<'_>,
    ) -> Result<(), RecordError<T::Error>> {
        let asked: Vec<Asked<'_>> = members.iter().copied().map(Asked::At).collect();
        let found = match tables.events(self.door, &asked) {
            Ok(found) => found,
            Err(RecordError::Unreadable(_) | RecordError::Undecided) => {
                checked.unmerged += 1;
                return Ok(());
            }
            Err(error @ RecordError::Store(_)) => return Err(error),
        };
        let told = tables.told(members).map_err(RecordError::Store)?;
        let mut told: BTreeMap<_, _> = told.into_iter().collect();
        let mut decided: Vec<Decided> = found.into_iter().flatten().collect();
        for one in &mut decided {
            one.event.fields = told.remove(&one.event.seq).unwrap_or_default();
        }
        let events: Vec<&SourceEvent> = decided.iter().map(|one| &one.event).collect();
        let id = &kept.record_id;
        checked.records += 1;
        let Some((record, applied)) = merged(self.policy, id, &events) else {
            wrong(None, format!("no event opens the record {id}"));
            return Ok(());
        };
        for one in &decided {
            if one.link.is_applied != applied.contains(&one.event.seq) {
                let message = "whether it counts in its record is not what the rule makes of it";
                wrong(Some(one.event.seq), message.to_owned());
            }
        }
        let stamps: Vec<&str> =
            self.policy.sources.iter().filter_map(|source| source.stamp).collect();
        for what in record_differs(kept, &record, &stamps) {
            wrong(None, format!("{what} of the record {id} is not what its events make it"));
        }
        Ok(())
    }
}

/// What a link says otherwise than the rule makes of the same events. How many others there were and
/// which attempt it was are told as of then. Why something is not linked depends on how far was looked.
fn link_differs(kept: &Link, again: &Link) -> Option<String> {
    let is_linked = again.status != LinkStatus::Unlinked;
    let parts = [
        ("status", kept.status != again.status),
        ("record", kept.record_id != again.record_id),
        ("match", kept.matched != again.matched),
        ("confidence", kept.confidence != again.confidence),
        ("number", (kept.number, &kept.number_from) != (again.number, &again.number_from)),
        ("fingerprints", kept.fingerprints != again.fingerprints),
        ("reason", is_linked && kept.reason != again.reason),
        ("state", kept.state != again.state),
    ];
    named(&parts)
        .map(|names| format!("its link has another {names} than the rule makes of its events"))
}

/// The parts of a record that are not what its events make them.
fn record_differs(kept: &KeptRecord, record: &Record, stamps: &[&str]) -> Vec<String> {
    let is_fresh = [State::Linked, State::Enriched].iter().any(|it| it.word() == kept.state);
    let parts = [
        ("the group", kept.group != record.group),
        ("the number", kept.number != record.number),
        ("the date", kept.date != record.date),
        ("the time", kept.time != record.time),
        ("the event time", kept.event_time != record.event_time),
        ("the state", is_fresh && kept.state != record.state.word()),
        ("the list of fingerprints", kept.fingerprints != record.fingerprints_text()),
    ];
    let wrong = parts.iter().filter(|(_, differs)| *differs);
    let mut wrong: Vec<String> = wrong.map(|(name, _)| (*name).to_owned()).collect();
    let fields: BTreeMap<&str, &KeptField> =
        kept.fields.iter().map(|field| (field.name.as_str(), field)).collect();
    for field in &record.fields {
        let mut value = Vec::new();
        admit_core::json::write(&field.value, &mut value);
        // A copy moves the stamp and not the event that it stands for.
        let is_stamp = stamps.contains(&field.name.as_str());
        let is_right = fields.get(field.name.as_str()).is_some_and(|kept| {
            kept.value.as_bytes() == value
                && kept.source == field.source
                && (is_stamp || kept.event == field.event)
        });
        if !is_right {
            wrong.push(format!("the field {}", field.name));
        }
    }
    let is_known = |name: &str| record.field(name).is_some();
    let strange = kept.fields.iter().filter(|field| !is_known(&field.name));
    wrong.extend(strange.map(|field| format!("the field {}", field.name)));
    wrong
}

/// The columns of an event that are not what its texts say.
pub(crate) fn columns_differ(row: &TellingRow, event: &SourceEvent, link: &Link) -> Option<String> {
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
    named(&parts)
        .map(|names| format!("the columns of its event say otherwise than its texts: {names}"))
}

fn named(parts: &[(&str, bool)]) -> Option<String> {
    let wrong = parts.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name);
    let wrong: Vec<&str> = wrong.collect();
    (!wrong.is_empty()).then(|| wrong.join(", "))
}
