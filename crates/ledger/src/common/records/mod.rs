//! Records inside the writer's transaction: an event is merged with the others of its entity, and everything
//! that follows is written in the same commit.
//!
//! Invariant: the rule decides, this only reads and writes, through the [`Tables`] of a ledger. Rows of the
//! queried tables are made from events; rows that a foreign index rejects are left out, the event is marked,
//! and nothing else is affected.

mod accept;
pub(crate) mod candidates;
mod check;
pub(crate) mod publications;
mod relink;
mod rows;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::entity::{
    EntityRule, Link, LinkStatus, Policy, ProcessingState, Resolution, SourceEvent, StoredTextError,
};
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Event, Fault, FaultKind, Millis, Seq, Verdict};

use candidates::LoadedCandidates;
use publications::{PublicationTables, catch_up};

pub(crate) use accept::AcceptEvent;
pub(crate) use check::{MismatchSink, RecordCheck, column_mismatch};
pub(crate) use relink::RelinkSlice;
pub(crate) use tables::{
    Drift, EventQuery, FarQuery, HistoryRow, LinkRow, NewEvent, NewRecord, ROW_KEY_TAKEN, RowSet,
    RowWrite, SCHEMA_DRIFT, Side, StoredEvent, Tables, Write, stored_event,
};

/// Why a record could not be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError<E> {
    /// Database error.
    #[error(transparent)]
    Store(E),
    /// A stored event cannot be parsed.
    #[error(transparent)]
    Unreadable(#[from] StoredTextError),
    /// The rule returned no link for the event itself.
    #[error("the rule left the event itself undecided")]
    Undecided,
}

/// Why an event could not be applied to its record.
#[derive(Debug)]
pub(crate) enum RecordApplyError<E> {
    /// Database error.
    Store(E),
    /// The event cannot be recorded; without it the others can.
    Poisoned(Fault),
}

/// Applies an event to its record, by its verdict; `content_seq` is the seq that holds its content. Returns
/// the state of the record for the reply. A failure, even a panic, affects this event only.
pub(crate) fn apply<T: PublicationTables>(
    tables: &mut T,
    event: &Event,
    rule: &dyn EntityRule,
    verdict: &Verdict,
    content_seq: Seq,
) -> Result<Option<Object<'static>>, RecordApplyError<T::Error>> {
    let (door, at) = (event.door.as_str(), event.received_at);
    let outcome = catch_unwind(AssertUnwindSafe(|| match verdict {
        Verdict::Fresh { seq } => arrive(tables, door, (*seq, None), rule, at).map(Some),
        Verdict::Revision { seq, first } => {
            arrive(tables, door, (*seq, Some(first.seq)), rule, at).map(Some)
        }
        Verdict::Duplicate { .. } | Verdict::Conflict { .. } => seen(tables, rule, content_seq, at),
        Verdict::Refused { .. } => Ok(None),
    }));
    let message = "resolving the record of this event failed, nothing was stored";
    match outcome {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(RecordError::Store(error))) => Err(RecordApplyError::Store(error)),
        Ok(Err(error @ (RecordError::Unreadable(_) | RecordError::Undecided))) => {
            Err(RecordApplyError::Poisoned(Fault::caused_by(FaultKind::Internal, message, error)))
        }
        Err(_) => Err(RecordApplyError::Poisoned(Fault::new(FaultKind::Internal, message))),
    }
}

/// Resolves an arrived event; with the first admission under its key if it is a later one.
fn arrive<T: PublicationTables>(
    tables: &mut T,
    door: &str,
    (seq, first): (Seq, Option<Seq>),
    rule: &dyn EntityRule,
    at: Millis,
) -> Result<Object<'static>, RecordError<T::Error>> {
    let first = first.map(|first| candidates::event_at(tables, first)).transpose()?.flatten();
    let first = first.as_ref().map(|first| &first.event);
    let tolerance = rule.policy().tolerance_seconds;
    let event = rule.event().clone().admitted(seq, first, tolerance);
    let mut near = LoadedCandidates::load(tables, door, rule, &event)?;
    near.add_arrival(event.clone());
    let resolution = near.resolve(tables, rule, at)?;
    let link = resolution.link(seq).cloned().ok_or(RecordError::Undecided)?;
    let (policy, resolution, new) = (rule.policy(), &resolution, Some((&event, &link)));
    let write = ResolutionWrite { door, policy, resolution, new, at };
    let settled = write_resolution(tables, &mut near, &write)?;
    let link = match settled.caught_up {
        true => candidates::event_at(tables, seq)?.map_or(link, |now| now.link),
        false => link,
    };
    let is_later = event.revision_of.is_some();
    Ok(reply_state(&link, settled.drift.get(&seq).and_then(Option::as_deref), is_later))
}

/// A copy of the event at `seq` arrived: it changes only the last time its source sent the event.
fn seen<T: Tables>(
    tables: &mut T,
    rule: &dyn EntityRule,
    seq: Seq,
    at: Millis,
) -> Result<Option<Object<'static>>, RecordError<T::Error>> {
    let Some(StoredEvent { event, link, drift }) = candidates::event_at(tables, seq)? else {
        return Ok(None);
    };
    tables.seen(seq, at).map_err(RecordError::Store)?;
    let policy = rule.policy();
    let stamp = policy.source(&event.source).and_then(|source| source.stamp);
    if let (Some(stamp), true) = (stamp, link.has_rows()) {
        for table in policy.tables {
            tables.rows_seen(table, seq, at).map_err(RecordError::Store)?;
        }
        if let Some(record_id) = &link.record_id {
            let value = format!("\"{}\"", at.to_rfc3339_millis());
            let stamped = tables.stamp(record_id, stamp, &event.source, &value);
            stamped.map_err(RecordError::Store)?;
        }
    }
    Ok(Some(reply_state(&link, drift.as_deref(), event.revision_of.is_some())))
}

/// State of an event for the reply; `is_later` is whether other content arrived first under its key.
fn reply_state(link: &Link, drift: Option<&str>, is_later: bool) -> Object<'static> {
    let text = link.to_text();
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let mut object = match json::parse(text.as_bytes(), &limits) {
        Ok(Value::Object(object)) => object.into_owned(),
        _ => Object::new(),
    };
    let (state, reason) = shown(link, drift);
    for (name, value) in [("state", state.word()), ("reason_code", reason)] {
        object.remove(name);
        object.push(name, value.to_owned());
    }
    let fingerprint = link.fingerprint().map(|fingerprint| {
        Object::from_iter([
            ("kind", Value::from(fingerprint.kind.word())),
            ("value", fingerprint.value.clone().into()),
        ])
    });
    object.push("fingerprint", fingerprint);
    object.push("is_later", is_later);
    object.push("drift", drift.map(str::to_owned));
    object
}

/// State and reason shown to operators: without its rows an event has enriched nothing. If its record could
/// not be published, that is the reason.
fn shown<'a>(link: &'a Link, drift: Option<&str>) -> (ProcessingState, &'a str) {
    match drift {
        Some(drift) if link.status == LinkStatus::Linked => (ProcessingState::Linked, code(drift)),
        _ => (link.state, link.unsent.as_deref().unwrap_or(&link.reason)),
    }
}

/// Code of a drift message.
fn code(drift: &str) -> &'static str {
    if drift.starts_with(ROW_KEY_TAKEN) { ROW_KEY_TAKEN } else { SCHEMA_DRIFT }
}

/// Result of writing a resolution.
struct WrittenResolution {
    drift: Drift,
    /// Whether events took over a state that their record had reached before they arrived.
    caught_up: bool,
}

/// A resolution to be written.
struct ResolutionWrite<'a> {
    door: &'a str,
    policy: &'a Policy,
    resolution: &'a Resolution,
    /// The new event, with its link.
    new: Option<(&'a SourceEvent, &'a Link)>,
    at: Millis,
}

/// Writes a resolution: first the rows, which may be rejected, then the links and steps, which depend on
/// that.
fn write_resolution<T: PublicationTables>(
    tables: &mut T,
    near: &mut LoadedCandidates,
    write: &ResolutionWrite<'_>,
) -> Result<WrittenResolution, RecordError<T::Error>> {
    let ResolutionWrite { door, policy, resolution, new, at } = *write;
    let links: BTreeMap<Seq, &Link> = resolution.links.iter().map(|(s, link)| (*s, link)).collect();
    let shares = rows::load_shares(tables, policy, near, &relinked(near, resolution));
    let shares = shares.map_err(RecordError::Store)?;
    let mut drift = Drift::new();
    let mut writes: Vec<Write<'_>> = new
        .into_iter()
        .map(|(event, link)| Write::Event(NewEvent::of(door, event, link)))
        .collect();
    if !resolution.retired.is_empty() {
        writes.push(Write::Retire(&resolution.retired));
    }
    let records = resolution.entities.iter();
    writes.extend(records.map(|record| Write::Record(NewRecord::of(door, record, at))));
    let row_writes = rows::writes(policy, near, &links, &shares, &mut drift);
    if !writes.is_empty() || !row_writes.is_empty() {
        let messages = tables.write(&writes, &row_writes).map_err(RecordError::Store)?;
        rows::collect_drift(&row_writes, messages, &mut drift);
    }
    let messages = |seq: &Seq| match drift.get(seq) {
        Some(now) => now.as_deref(),
        None => near.drift.get(seq).map(String::as_str),
    };
    let linked: Vec<LinkRow<'_>> =
        resolution.links.iter().map(|(seq, link)| LinkRow::of(*seq, link, messages(seq))).collect();
    let messages = |seq: Seq| drift.get(&seq).and_then(Option::as_deref);
    let steps: Vec<HistoryRow<'_>> = resolution
        .transitions
        .iter()
        .filter_map(|step| HistoryRow::of(step, messages(step.seq)))
        .collect();
    let ids: Vec<&str> = resolution.entities.iter().map(|it| it.record_id.as_str()).collect();
    let caught_up = catch_up(tables, &link_writes(&drift, &linked, &steps), &ids, at);
    Ok(WrittenResolution { caught_up: caught_up.map_err(RecordError::Store)?, drift })
}

/// Writes for events whose state changed.
fn link_writes<'a>(
    drift: &'a Drift,
    links: &'a [LinkRow<'a>],
    steps: &'a [HistoryRow<'a>],
) -> Vec<Write<'a>> {
    let mut writes = Vec::with_capacity(3);
    if !drift.is_empty() {
        writes.push(Write::Drift(drift));
    }
    if !links.is_empty() {
        writes.push(Write::Links(links));
    }
    if !steps.is_empty() {
        writes.push(Write::Steps(steps));
    }
    writes
}

/// Events whose link changed. Rows contain nothing else of a link.
fn relinked(near: &LoadedCandidates, resolution: &Resolution) -> BTreeSet<Seq> {
    let known: BTreeMap<Seq, &Link> = near.known.iter().map(|k| (k.seq, &k.link)).collect();
    let is_elsewhere = |seq: &Seq, link: &Link| {
        known.get(seq).is_none_or(|before| {
            (before.status, &before.record_id, before.number)
                != (link.status, &link.record_id, link.number)
        })
    };
    let relinked = resolution.links.iter().filter(|(seq, link)| is_elsewhere(seq, link));
    relinked.map(|(seq, _)| *seq).collect()
}
