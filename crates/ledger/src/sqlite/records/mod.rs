//! Records inside the writer's transaction: what an event tells is put together with what others
//! told, and everything that follows is written in the same commit.
//!
//! Invariant: the rule decides, this only reads and writes. Rows of the queried tables are made from
//! events; where an index of somebody else's is in their way, they are left out and the event says
//! so, and nothing else is held up by it.

mod near;
pub(super) mod publications;
pub(super) mod published;
pub(super) mod read;
mod relink;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use admit_core::json::{self, Limits, Object, Value};
use admit_core::record::{
    Link, LinkStatus, NotStored, Policy, Record, RecordRule, Resolution, SourceEvent, State,
    Transition,
};
use admit_core::{Digest, Millis, Seq};
use rusqlite::Connection;

use super::queries;
use near::Near;

pub(super) use relink::Relink;

/// Why an event is linked, but its rows are not in the tables: an index that is none of ours is in
/// their way, or rows of another event have their key.
const SCHEMA_DRIFT: &str = "schema_drift";
const ROW_KEY_TAKEN: &str = "row_key_taken";

/// Why a record could not be put together.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// What the ledger keeps of an event cannot be read.
    #[error(transparent)]
    Unreadable(#[from] NotStored),
    /// The rule said nothing about the event itself.
    #[error("the rule left the event itself undecided")]
    Undecided,
}

/// An event that tells of a record, at its place.
pub(super) struct Arrival<'a> {
    pub(super) door: &'a str,
    pub(super) seq: Seq,
    /// The first admission under its key, when this is a later one.
    pub(super) first: Option<Seq>,
    pub(super) rule: &'a dyn RecordRule,
    pub(super) at: Millis,
}

/// Puts what an event tells together with what others told. Returns how it stands.
pub(super) fn arrive(
    conn: &Connection,
    arrival: &Arrival<'_>,
) -> Result<Object<'static>, RecordError> {
    let Arrival { door, seq, first, rule, at } = *arrival;
    let first = first.map(|first| near::one(conn, first)).transpose()?.flatten();
    let first = first.as_ref().map(|(event, _)| event);
    let tolerance = rule.policy().tolerance_seconds;
    let event = rule.event().clone().admitted(seq, first, tolerance);
    let mut near = Near::load(conn, door, rule, &event)?;
    near.arrives(event.clone());
    let resolution = near.resolve(conn, rule, at)?;
    let link = resolution.link(seq).cloned().ok_or(RecordError::Undecided)?;
    insert(conn, door, &event, &link)?;
    let settled = settle(conn, door, rule.policy(), &mut near, &resolution, at)?;
    let link = match settled.caught_up {
        true => near::one(conn, seq)?.map_or(link, |(_, link)| link),
        false => link,
    };
    Ok(standing(&link, settled.drift.get(&seq).and_then(Option::as_deref)))
}

/// A copy of the event at `seq` came: it tells nothing, but when its source last told it.
pub(super) fn seen(
    conn: &Connection,
    rule: &dyn RecordRule,
    seq: Seq,
    at: Millis,
) -> Result<Option<Object<'static>>, RecordError> {
    let Some((event, link)) = near::one(conn, seq)? else { return Ok(None) };
    conn.prepare_cached(queries::RECORD_EVENT_SEEN)?.execute((seq.0, at.0))?;
    let policy = rule.policy();
    let stamp = policy.source(&event.source).and_then(|source| source.stamp);
    if let (Some(stamp), true) = (stamp, link.status != LinkStatus::Ambiguous) {
        rows::seen(conn, policy, seq, at)?;
        if let Some(record_id) = &link.record_id {
            let value = format!("\"{}\"", at.to_rfc3339_millis());
            conn.prepare_cached(queries::RECORD_FIELD_SEEN)?.execute((
                record_id,
                stamp,
                &event.source,
                value,
            ))?;
        }
    }
    let drift = stored_drift(conn, seq)?;
    Ok(Some(standing(&link, drift.as_deref())))
}

/// Why the rows of an event are not in the tables, as far as it is written down.
fn stored_drift(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(queries::RECORD_EVENT_GET)?.query_row([seq.0], |row| row.get("drift"))
}

/// How an event stands, for whoever replies.
fn standing(link: &Link, drift: Option<&str>) -> Object<'static> {
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

fn insert(conn: &Connection, door: &str, event: &SourceEvent, link: &Link) -> rusqlite::Result<()> {
    conn.prepare_cached(queries::RECORD_TOLD_PUT)?.execute((event.seq.0, event.fields.as_str()))?;
    conn.prepare_cached(queries::RECORD_EVENT_INSERT)?.execute(rusqlite::params![
        event.seq.0,
        door,
        event.source,
        event.group,
        link.number,
        event.event_time,
        event.hard_key,
        event.received_at.0,
        link.state.word(),
        link.status.word(),
        link.reason,
        link.confidence.word(),
        link.record_id,
        event.to_text(),
        link.to_text(),
    ])?;
    Ok(())
}

/// What the writing of rows came to, for each event whose rows were written: none, or why not.
type Drift = BTreeMap<Seq, Option<String>>;

/// What became of a resolution that was written.
struct Written {
    drift: Drift,
    /// Whether events took part in what had become of their record before they came.
    caught_up: bool,
}

/// Writes everything that a resolution says.
fn settle(
    conn: &Connection,
    door: &str,
    policy: &Policy,
    near: &mut Near,
    resolution: &Resolution,
    at: Millis,
) -> Result<Written, RecordError> {
    for id in &resolution.retired {
        conn.prepare_cached(queries::RECORD_FIELD_CLEAR)?.execute([id])?;
        conn.prepare_cached(queries::RECORD_REMOVE)?.execute([id])?;
    }
    for record in &resolution.records {
        put(conn, door, record, at)?;
    }
    // Rows say where their event belongs and nothing else of its link.
    let known: BTreeMap<Seq, &Link> = near.known.iter().map(|k| (k.seq, &k.link)).collect();
    let is_elsewhere = |seq: &Seq, link: &Link| {
        known.get(seq).is_none_or(|before| {
            (before.status, &before.record_id, before.number)
                != (link.status, &link.record_id, link.number)
        })
    };
    let moved = resolution.links.iter().filter(|(seq, link)| is_elsewhere(seq, link));
    let changed: BTreeSet<Seq> = moved.map(|(seq, _)| *seq).collect();
    let links: BTreeMap<Seq, &Link> = resolution.links.iter().map(|(s, link)| (*s, link)).collect();
    let drift = rows::write(conn, policy, near, &links, &changed)?;
    for (seq, link) in &resolution.links {
        let said = match drift.get(seq) {
            Some(said) => said.clone(),
            None => stored_drift(conn, *seq)?,
        };
        relinked(conn, *seq, link, said.as_deref())?;
    }
    for transition in &resolution.transitions {
        step(conn, transition, drift.get(&transition.seq).and_then(Option::as_deref))?;
    }
    let mut caught_up = false;
    for record in &resolution.records {
        caught_up |= publications::catch_up(conn, &record.record_id, at)?;
    }
    Ok(Written { drift, caught_up })
}

fn relinked(conn: &Connection, seq: Seq, link: &Link, drift: Option<&str>) -> rusqlite::Result<()> {
    let (state, reason) = shown(link, drift);
    conn.prepare_cached(queries::RECORD_EVENT_LINK)?.execute((
        seq.0,
        link.number,
        state.word(),
        link.status.word(),
        reason,
        link.confidence.word(),
        &link.record_id,
        link.to_text(),
    ))?;
    Ok(())
}

/// Writes a record and its fields, if what it says has changed.
fn put(conn: &Connection, door: &str, record: &Record, at: Millis) -> rusqlite::Result<()> {
    let fingerprints = record.fingerprints_text();
    let said = format!("{}\n{}\n{fingerprints}", record.state.word(), record.fields_text());
    let written = conn.prepare_cached(queries::RECORD_PUT)?.execute((
        &record.record_id,
        door,
        &record.group,
        record.number,
        &record.date,
        &record.time,
        record.event_time,
        record.state.word(),
        at.0,
        Digest::of(said.as_bytes()).as_bytes(),
        fingerprints,
    ))?;
    if written == 0 {
        return Ok(());
    }
    conn.prepare_cached(queries::RECORD_FIELD_CLEAR)?.execute([&record.record_id])?;
    let mut put = conn.prepare_cached(queries::RECORD_FIELD_PUT)?;
    for field in &record.fields {
        let mut value = Vec::new();
        json::write(&field.value, &mut value);
        let value = String::from_utf8(value).expect("json is written as utf-8");
        put.execute((&record.record_id, &field.name, value, &field.source, field.event.0))?;
    }
    Ok(())
}

/// Adds a step. An event whose rows are missing is linked, and gets no further.
fn step(conn: &Connection, step: &Transition, drift: Option<&str>) -> rusqlite::Result<()> {
    let drift = drift.filter(|_| step.link_status == LinkStatus::Linked);
    if drift.is_some() && step.to == State::Enriched {
        return Ok(());
    }
    let reason = match drift {
        Some(drift) if step.to == State::Linked => Some(code(drift)),
        _ => step.reason.as_deref(),
    };
    conn.prepare_cached(queries::RECORD_HISTORY_ADD)?.execute((
        step.seq.0,
        step.at.0,
        step.attempt,
        step.from.word(),
        step.to.word(),
        &step.source,
        step.fingerprint.as_ref().map(|fingerprint| fingerprint.kind.word()),
        step.fingerprint.as_ref().map(|fingerprint| fingerprint.value.as_str()),
        step.link_status.word(),
        step.confidence.word(),
        reason,
        &step.record_id,
    ))?;
    Ok(())
}
