//! Records inside the writer's transaction: what an event tells is put together with what others
//! told, and everything that follows is written in the same commit.
//!
//! Invariant: the rule decides, this only reads and writes, through the [`Tables`] of a ledger. Rows
//! of the queried tables are made from events; where an index of somebody else's is in their way,
//! they are left out and the event says so, and nothing else is held up by it.

mod accept;
mod check;
pub(crate) mod near;
pub(crate) mod publications;
mod relink;
mod rows;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::json::{self, Limits, Object, Value};
use admit_core::record::{
    Link, LinkStatus, NotStored, Policy, RecordRule, Resolution, SourceEvent, State,
};
use admit_core::{Event, Fault, FaultKind, Millis, Seq, Verdict};

use near::Near;
use publications::{PublicationTables, catch_up};

pub(crate) use accept::Accepting;
pub(crate) use check::{Checking, EachWrong, columns_differ};
pub(crate) use relink::Relinking;
pub(crate) use tables::{
    Asked, Decided, Drift, FarAsked, Linked, NewRecord, ROW_KEY_TAKEN, RowSet, SCHEMA_DRIFT, Side,
    Step, Tables, Write, decided,
};

/// Why a record could not be put together.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError<E> {
    /// The database said no.
    #[error(transparent)]
    Store(E),
    /// What the ledger keeps of an event cannot be read.
    #[error(transparent)]
    Unreadable(#[from] NotStored),
    /// The rule said nothing about the event itself.
    #[error("the rule left the event itself undecided")]
    Undecided,
}

/// Why nothing was told.
#[derive(Debug)]
pub(crate) enum NotTold<E> {
    /// The database said no.
    Store(E),
    /// The event cannot be recorded; without it others can.
    Poisoned(Fault),
}

/// Puts what an event tells together with what others told, by the verdict on it; `told_at` is the
/// place that holds what it says. Returns how it stands. A failure, even a panic, is the event's own.
pub(crate) fn tell<T: PublicationTables>(
    tables: &mut T,
    event: &Event,
    rule: &dyn RecordRule,
    verdict: &Verdict,
    told_at: Seq,
) -> Result<Option<Object<'static>>, NotTold<T::Error>> {
    let (door, at) = (event.door.as_str(), event.received_at);
    let told = catch_unwind(AssertUnwindSafe(|| match verdict {
        Verdict::Fresh { seq } => arrive(tables, door, (*seq, None), rule, at).map(Some),
        Verdict::Revision { seq, first } => {
            arrive(tables, door, (*seq, Some(first.seq)), rule, at).map(Some)
        }
        Verdict::Duplicate { .. } | Verdict::Conflict { .. } => seen(tables, rule, told_at, at),
        Verdict::Refused { .. } => Ok(None),
    }));
    let message = "the record that this event tells of failed, nothing was stored";
    match told {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(RecordError::Store(error))) => Err(NotTold::Store(error)),
        Ok(Err(error @ (RecordError::Unreadable(_) | RecordError::Undecided))) => {
            Err(NotTold::Poisoned(Fault::caused_by(FaultKind::Internal, message, error)))
        }
        Err(_) => Err(NotTold::Poisoned(Fault::new(FaultKind::Internal, message))),
    }
}

/// The event that `rule` is about came to its place; with the first admission under its key, when
/// it is a later one.
fn arrive<T: PublicationTables>(
    tables: &mut T,
    door: &str,
    (seq, first): (Seq, Option<Seq>),
    rule: &dyn RecordRule,
    at: Millis,
) -> Result<Object<'static>, RecordError<T::Error>> {
    let first = first.map(|first| near::one(tables, first)).transpose()?.flatten();
    let first = first.as_ref().map(|first| &first.event);
    let tolerance = rule.policy().tolerance_seconds;
    let event = rule.event().clone().admitted(seq, first, tolerance);
    let mut near = Near::load(tables, door, rule, &event)?;
    near.arrives(event.clone());
    let resolution = near.resolve(tables, rule, at)?;
    let link = resolution.link(seq).cloned().ok_or(RecordError::Undecided)?;
    let (policy, resolution, new) = (rule.policy(), &resolution, Some((&event, &link)));
    let settling = Settling { door, policy, resolution, new, at };
    let settled = settle(tables, &mut near, &settling)?;
    let link = match settled.caught_up {
        true => near::one(tables, seq)?.map_or(link, |now| now.link),
        false => link,
    };
    let is_later = event.revision_of.is_some();
    Ok(standing(&link, settled.drift.get(&seq).and_then(Option::as_deref), is_later))
}

/// A copy of the event at `seq` came: it tells nothing, but when its source last told it.
fn seen<T: Tables>(
    tables: &mut T,
    rule: &dyn RecordRule,
    seq: Seq,
    at: Millis,
) -> Result<Option<Object<'static>>, RecordError<T::Error>> {
    let Some(Decided { event, link, drift }) = near::one(tables, seq)? else { return Ok(None) };
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
    Ok(Some(standing(&link, drift.as_deref(), event.revision_of.is_some())))
}

/// How an event stands, for the reply; `is_later` is whether other content came before it under its key.
fn standing(link: &Link, drift: Option<&str>, is_later: bool) -> Object<'static> {
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

/// The state and the reason that people are shown: without its rows an event has enriched nothing.
/// Where a record could not go out, that is why an event stands where it does.
fn shown<'a>(link: &'a Link, drift: Option<&str>) -> (State, &'a str) {
    match drift {
        Some(drift) if link.status == LinkStatus::Linked => (State::Linked, code(drift)),
        _ => (link.state, link.unsent.as_deref().unwrap_or(&link.reason)),
    }
}

/// The code of what is said about rows that are missing.
fn code(drift: &str) -> &'static str {
    if drift.starts_with(ROW_KEY_TAKEN) { ROW_KEY_TAKEN } else { SCHEMA_DRIFT }
}

/// What became of a resolution that was written.
struct Written {
    drift: Drift,
    /// Whether events took part in what had become of their record before they came.
    caught_up: bool,
}

/// What is settled, and about whom.
struct Settling<'a> {
    door: &'a str,
    policy: &'a Policy,
    resolution: &'a Resolution,
    /// The event that has just come, with its link.
    new: Option<(&'a SourceEvent, &'a Link)>,
    at: Millis,
}

/// Writes everything that a resolution says: first what rows may be in the way of, then what is said
/// of events, which rests on that.
fn settle<T: PublicationTables>(
    tables: &mut T,
    near: &mut Near,
    settling: &Settling<'_>,
) -> Result<Written, RecordError<T::Error>> {
    let Settling { door, policy, resolution, new, at } = *settling;
    let links: BTreeMap<Seq, &Link> = resolution.links.iter().map(|(s, link)| (*s, link)).collect();
    let shares = rows::sharing(tables, policy, near, &moved(near, resolution));
    let shares = shares.map_err(RecordError::Store)?;
    let mut drift = Drift::new();
    let mut writes: Vec<Write<'_>> =
        new.into_iter().map(|(event, link)| Write::Event(door, event, link)).collect();
    if !resolution.retired.is_empty() {
        writes.push(Write::Retire(&resolution.retired));
    }
    let records = resolution.records.iter();
    writes.extend(records.map(|record| Write::Record(NewRecord::of(door, record, at))));
    writes.extend(rows::writes(policy, near, &links, &shares, &mut drift));
    if !writes.is_empty() {
        let said = tables.write(&writes).map_err(RecordError::Store)?;
        rows::note(&writes, said, &mut drift);
    }
    let said = |seq: &Seq| match drift.get(seq) {
        Some(now) => now.as_deref(),
        None => near.drift.get(seq).map(String::as_str),
    };
    let linked: Vec<Linked<'_>> =
        resolution.links.iter().map(|(seq, link)| Linked::of(*seq, link, said(seq))).collect();
    let said = |seq: Seq| drift.get(&seq).and_then(Option::as_deref);
    let steps: Vec<Step<'_>> =
        resolution.transitions.iter().filter_map(|step| Step::of(step, said(step.seq))).collect();
    let ids: Vec<&str> = resolution.records.iter().map(|it| it.record_id.as_str()).collect();
    let caught_up = catch_up(tables, &stands(&drift, &linked, &steps), &ids, at);
    Ok(Written { caught_up: caught_up.map_err(RecordError::Store)?, drift })
}

/// What is written of events that stand elsewhere now.
fn stands<'a>(drift: &'a Drift, links: &'a [Linked<'a>], steps: &'a [Step<'a>]) -> Vec<Write<'a>> {
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

/// The events that belong elsewhere now. Rows say that and nothing else of a link.
fn moved(near: &Near, resolution: &Resolution) -> BTreeSet<Seq> {
    let known: BTreeMap<Seq, &Link> = near.known.iter().map(|k| (k.seq, &k.link)).collect();
    let is_elsewhere = |seq: &Seq, link: &Link| {
        known.get(seq).is_none_or(|before| {
            (before.status, &before.record_id, before.number)
                != (link.status, &link.record_id, link.number)
        })
    };
    let moved = resolution.links.iter().filter(|(seq, link)| is_elsewhere(seq, link));
    moved.map(|(seq, _)| *seq).collect()
}
