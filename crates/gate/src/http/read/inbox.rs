//! The inbox: what came in by its own id, claimed and finished by consumers.
//!
//! A consumer needs the role `consume`. The rows are those of the table `event_inbox`, in its words.

use std::sync::Arc;

use admit_contracts::skyra::DOOR;
use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_core::{Code, Door, Key, Millis, Seq};
use admit_ledger::port::{ClaimedEntry, DONE, InboxFilter, InboxRow, LeaseResult, inbox_status};
use axum::extract::State;
use http::HeaderMap;

use super::query::{Asked, InboxQuery, Named, Sent, invalid, rows};
use super::streams::{ChangeBody, ClaimBody, PAGE_BYTES_MAX, said};
use super::{Consumer, EntryReader, Reader, Routed};
use crate::gate::Gate;
use crate::http::answer;
use crate::way_out::WayOut;

/// The words a row can have.
const STATUSES: [&str; 4] = [inbox_status::RECEIVED, inbox_status::CLAIMED, DONE, "failed"];

const NO_SUCH: &str = "there is no such event in the inbox";

/// The inbox, if there is one that this reader may see.
fn open(gate: &Gate, reader: &Reader) -> Result<(Arc<dyn WayOut>, Door), Routed> {
    let mount = gate.doors.iter().find(|mount| mount.door.has_inbox());
    let (Some(mount), Some(way_out)) = (mount, &gate.way_out) else {
        return Err(Routed::not_found(gate, "this gate has no inbox"));
    };
    if !reader.may_see(&mount.door) {
        let message = "this key may not read this door";
        return Err(Routed(answer::refuse(gate, Code::Forbidden, message)));
    }
    Ok((Arc::clone(way_out), mount.door.clone()))
}

/// `GET /v1/inbox`: rows in order of arrival, perhaps of one status.
pub(in crate::http) async fn list(
    State(gate): State<Arc<Gate>>,
    EntryReader(reader): EntryReader,
    Asked(query): Asked<InboxQuery>,
) -> Routed {
    let (way_out, _) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    let rows_max = match rows(query.limit) {
        Ok(rows_max) => rows_max,
        Err(message) => return invalid(&gate, &message),
    };
    if query.status.as_ref().is_some_and(|status| !STATUSES.contains(&status.as_str())) {
        return invalid(&gate, &format!("status must be of {}", STATUSES.join(", ")));
    }
    let Ok(after) = u64::try_from(query.after.unwrap_or(0)) else {
        return invalid(&gate, "after must be the next_after of a page before");
    };
    let filter = InboxFilter { status: query.status, after, rows_max, bytes_max: PAGE_BYTES_MAX };
    match way_out.inbox(filter).await {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(page) => {
            let events: Value<'_> = page.rows.iter().map(seen).collect();
            Routed::object(
                200,
                &Object::from_iter([
                    ("events", events),
                    ("next_after", page.next.into()),
                    ("more", page.more.into()),
                ]),
            )
        }
    }
}

/// `GET /v1/inbox/{event_id}`
pub(in crate::http) async fn one(
    State(gate): State<Arc<Gate>>,
    EntryReader(reader): EntryReader,
    Named(event_id): Named<String>,
) -> Routed {
    let (way_out, _) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    match way_out.in_inbox(event_id).await {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(None) => Routed::not_found(&gate, NO_SUCH),
        Ok(Some(row)) => Routed::object(200, &seen(&row)),
    }
}

/// A row as consumers see it.
fn seen(row: &InboxRow) -> Object<'static> {
    Object::from_iter([
        ("event_id", Value::from(row.event_id.clone())),
        ("status", row.status.clone().into()),
        ("received_at", row.received_at.clone().into()),
        ("last_updated_at", row.last_updated_at.clone().into()),
        ("principal", Value::from(row.principal.as_deref()).into_owned()),
        ("payload", parsed(row.payload.as_bytes())),
    ])
}

fn parsed(payload: &[u8]) -> Value<'static> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    json::parse(payload, &limits).map_or(Value::Null, Value::into_owned)
}

/// `POST /v1/inbox/claim`
pub(in crate::http) async fn claim(
    State(gate): State<Arc<Gate>>,
    Consumer(reader): Consumer,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let (way_out, door) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    let asked: ClaimBody = match said(&gate, &headers, &body) {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let now = gate.clock.now();
    let wanted = match asked.wanted(door, now) {
        Ok(wanted) => wanted,
        Err(message) => return invalid(&gate, &message),
    };
    let claimed = match way_out.claim(wanted).await {
        Ok(claimed) => claimed,
        Err(fault) => return Routed::fault(&gate, &fault),
    };
    let mut events: Vec<Object<'static>> = Vec::with_capacity(claimed.len());
    for claimed in &claimed {
        match held(way_out.as_ref(), claimed, now).await {
            Ok(held) => events.push(held),
            Err(fault) => return Routed::fault(&gate, &fault),
        }
    }
    let events: Value<'_> = events.into_iter().collect();
    Routed::object(200, &Object::from_iter([("events", events)]))
}

/// A claimed event. Its payload is the raw body; once that is too old to be kept, it is still in the
/// inbox.
async fn held(
    way_out: &dyn WayOut,
    claimed: &ClaimedEntry,
    now: Millis,
) -> Result<Object<'static>, admit_core::Fault> {
    let entry = &claimed.entry;
    let facts = parsed(&entry.facts);
    let event_id = facts.get("event_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let payload = match &entry.body {
        Some(body) => parsed(body),
        None => {
            let row = way_out.in_inbox(event_id.clone()).await?;
            row.map_or(Value::Null, |row| parsed(row.payload.as_bytes()))
        }
    };
    Ok(Object::from_iter([
        ("event_id", Value::from(event_id)),
        ("status", inbox_status::CLAIMED.into()),
        ("received_at", entry.received_at.to_rfc3339_millis().into()),
        ("last_updated_at", now.to_rfc3339_millis().into()),
        ("principal", entry.principal.as_str().to_owned().into()),
        ("payload", payload),
        ("lease", claimed.lease.to_string().into()),
        ("lease_expires_at", claimed.expires_at.to_rfc3339_millis().into()),
        ("attempt", claimed.attempt.into()),
    ]))
}

/// `POST /v1/inbox/{event_id}`
pub(in crate::http) async fn change(
    State(gate): State<Arc<Gate>>,
    Consumer(reader): Consumer,
    Named(event_id): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let (way_out, door) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    let asked: ChangeBody = match said(&gate, &headers, &body) {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let key = Key::derive(DOOR, &[event_id.as_bytes()]);
    let seq = match gate.ledger.find(key).await {
        Ok(Some(receipt)) => receipt.id.seq,
        Ok(None) => return Routed::not_found(&gate, NO_SUCH),
        Err(fault) => return Routed::fault(&gate, &fault),
    };
    let now = gate.clock.now();
    let (change, until) = match asked.change(seq, now) {
        Ok(change) => change,
        Err(message) => return invalid(&gate, &message),
    };
    let answers = match way_out.change(door.clone(), vec![change], now).await {
        Ok(answers) => answers,
        Err(fault) => return Routed::fault(&gate, &fault),
    };
    match answers.first() {
        Some(LeaseResult::Done) => changed(&event_id, asked.status.as_str(), false, until),
        Some(LeaseResult::AlreadyDone) => {
            let before = Seq(seq.0.saturating_sub(1));
            match way_out.finished(door, before, 1).await {
                Err(fault) => Routed::fault(&gate, &fault),
                Ok(kept) => {
                    let kept = kept.into_iter().find(|kept| kept.seq == seq);
                    let kept = kept.map_or_else(|| DONE.to_owned(), |kept| kept.status);
                    finished(&gate, &event_id, &kept, asked.status.as_str())
                }
            }
        }
        Some(LeaseResult::StaleLease) => {
            let message = "the lease no longer holds this event";
            Routed(answer::refuse(&gate, Code::LeaseLost, message))
        }
        Some(LeaseResult::UnknownPlace) | None => Routed::not_found(&gate, NO_SUCH),
    }
}

fn changed(event_id: &str, status: &str, finished_before: bool, until: Option<Millis>) -> Routed {
    let mut said = Object::from_iter([
        ("event_id", Value::from(event_id.to_owned())),
        ("status", status.to_owned().into()),
        ("finished_before", finished_before.into()),
    ]);
    if let Some(until) = until {
        said.push("lease_expires_at", until.to_rfc3339_millis());
    }
    Routed::object(200, &said)
}

/// The answer about an event that was finished before: whoever says again what is kept may take it
/// for their own answer that was lost.
fn finished(gate: &Gate, event_id: &str, kept: &str, asked: &str) -> Routed {
    if kept == asked {
        return changed(event_id, kept, true, None);
    }
    let message = format!("the event was finished before as {kept}");
    Routed(answer::refuse(gate, Code::LeaseLost, &message))
}
