//! Inbox routes: list, claim and finish events by their own ids.
//!
//! Claiming needs the role `consume`. The rows have the columns and statuses of the table `event_inbox`.

use std::sync::Arc;

use admit_contracts::skyra::DOOR;
use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_core::{Code, Door, Key, Millis, Seq};
use admit_ledger::port::{ClaimedEntry, DONE, InboxFilter, InboxRow, LeaseResult, inbox_status};
use axum::extract::State;
use http::HeaderMap;

use super::query::{BodyBytes, InboxQuery, PathParams, QueryParams, invalid, rows};
use super::streams::{ChangeBody, ClaimBody, PAGE_BYTES_MAX, parse_body};
use super::{ConsumeAccess, EntryReadAccess, ReadAccess, RouteReply};
use crate::gate::Gate;
use crate::http::response;
use crate::stream_ports::StreamPorts;

/// Statuses of a row.
const STATUSES: [&str; 4] = [inbox_status::RECEIVED, inbox_status::CLAIMED, DONE, "failed"];

const UNKNOWN_EVENT: &str = "unknown inbox event";

/// Returns the inbox and its door, if the reader may see it.
fn open(gate: &Gate, reader: &ReadAccess) -> Result<(Arc<dyn StreamPorts>, Door), RouteReply> {
    let mount = gate.doors.iter().find(|mount| mount.door.has_inbox());
    let (Some(mount), Some(stream_ports)) = (mount, &gate.stream_ports) else {
        return Err(RouteReply::not_found(gate, "the inbox is not configured"));
    };
    if !reader.may_see(&mount.door) {
        let message = "this principal may not read this door";
        return Err(RouteReply(response::refuse(gate, Code::Forbidden, message)));
    }
    Ok((Arc::clone(stream_ports), mount.door.clone()))
}

/// `GET /v1/inbox`: rows in order of arrival, optionally of one status.
pub(in crate::http) async fn list(
    State(gate): State<Arc<Gate>>,
    EntryReadAccess(reader): EntryReadAccess,
    QueryParams(query): QueryParams<InboxQuery>,
) -> RouteReply {
    let (stream_ports, _) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    let rows_max = match rows(query.limit) {
        Ok(rows_max) => rows_max,
        Err(message) => return invalid(&gate, &message),
    };
    if query.status.as_ref().is_some_and(|status| !STATUSES.contains(&status.as_str())) {
        return invalid(&gate, &format!("status must be one of {}", STATUSES.join(", ")));
    }
    let Ok(after) = u64::try_from(query.after.unwrap_or(0)) else {
        return invalid(&gate, "after must be the next_after value of the previous page");
    };
    let filter = InboxFilter { status: query.status, after, rows_max, bytes_max: PAGE_BYTES_MAX };
    match stream_ports.inbox(filter).await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(page) => {
            let events: Value<'_> = page.rows.iter().map(row_object).collect();
            RouteReply::object(
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
    EntryReadAccess(reader): EntryReadAccess,
    PathParams(event_id): PathParams<String>,
) -> RouteReply {
    let (stream_ports, _) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    match stream_ports.in_inbox(event_id).await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(None) => RouteReply::not_found(&gate, UNKNOWN_EVENT),
        Ok(Some(row)) => RouteReply::object(200, &row_object(&row)),
    }
}

/// Returns a row as JSON.
fn row_object(row: &InboxRow) -> Object<'static> {
    Object::from_iter([
        ("event_id", Value::from(row.event_id.clone())),
        ("status", row.status.clone().into()),
        ("received_at", row.received_at.clone().into()),
        ("last_updated_at", row.last_updated_at.clone().into()),
        ("principal", Value::from(row.principal.as_deref()).into_owned()),
        ("payload", parse_payload(row.payload.as_bytes())),
    ])
}

fn parse_payload(payload: &[u8]) -> Value<'static> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    json::parse(payload, &limits).map_or(Value::Null, Value::into_owned)
}

/// `POST /v1/inbox/claim`
pub(in crate::http) async fn claim(
    State(gate): State<Arc<Gate>>,
    ConsumeAccess(reader): ConsumeAccess,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let (stream_ports, door) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    let request: ClaimBody = match parse_body(&gate, &headers, &body) {
        Ok(request) => request,
        Err(refused) => return refused,
    };
    let now = gate.clock.now();
    let claim = match request.into_claim(door, now) {
        Ok(claim) => claim,
        Err(message) => return invalid(&gate, &message),
    };
    let claimed = match stream_ports.claim(claim).await {
        Ok(claimed) => claimed,
        Err(fault) => return RouteReply::fault(&gate, &fault),
    };
    let mut events: Vec<Object<'static>> = Vec::with_capacity(claimed.len());
    for claimed in &claimed {
        match claimed_object(stream_ports.as_ref(), claimed, now).await {
            Ok(event) => events.push(event),
            Err(fault) => return RouteReply::fault(&gate, &fault),
        }
    }
    let events: Value<'_> = events.into_iter().collect();
    RouteReply::object(200, &Object::from_iter([("events", events)]))
}

/// Returns a claimed event as JSON. Once retention has removed its body, the payload is that of the inbox row.
async fn claimed_object(
    stream_ports: &dyn StreamPorts,
    claimed: &ClaimedEntry,
    now: Millis,
) -> Result<Object<'static>, admit_core::Fault> {
    let entry = &claimed.entry;
    let facts = parse_payload(&entry.facts);
    let event_id = facts.get("event_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let payload = match &entry.body {
        Some(body) => parse_payload(body),
        None => {
            let row = stream_ports.in_inbox(event_id.clone()).await?;
            row.map_or(Value::Null, |row| parse_payload(row.payload.as_bytes()))
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
    ConsumeAccess(reader): ConsumeAccess,
    PathParams(event_id): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let (stream_ports, door) = match open(&gate, &reader) {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    let request: ChangeBody = match parse_body(&gate, &headers, &body) {
        Ok(request) => request,
        Err(refused) => return refused,
    };
    let key = Key::derive(DOOR, &[event_id.as_bytes()]);
    let seq = match gate.ledger.find(key).await {
        Ok(Some(receipt)) => receipt.id.seq,
        Ok(None) => return RouteReply::not_found(&gate, UNKNOWN_EVENT),
        Err(fault) => return RouteReply::fault(&gate, &fault),
    };
    let now = gate.clock.now();
    let (change, until) = match request.change(seq, now) {
        Ok(change) => change,
        Err(message) => return invalid(&gate, &message),
    };
    let results = match stream_ports.change(door.clone(), vec![change], now).await {
        Ok(results) => results,
        Err(fault) => return RouteReply::fault(&gate, &fault),
    };
    match results.first() {
        Some(LeaseResult::Done) => change_reply(&event_id, request.status.as_str(), false, until),
        Some(LeaseResult::AlreadyDone) => {
            let before = Seq(seq.0.saturating_sub(1));
            match stream_ports.finished(door, before, 1).await {
                Err(fault) => RouteReply::fault(&gate, &fault),
                Ok(entries) => {
                    let entry = entries.into_iter().find(|entry| entry.seq == seq);
                    let stored = entry.map_or_else(|| DONE.to_owned(), |entry| entry.status);
                    finished_reply(&gate, &event_id, &stored, request.status.as_str())
                }
            }
        }
        Some(LeaseResult::StaleLease) => {
            let message = "the lease of this event has expired or was released";
            RouteReply(response::refuse(&gate, Code::LeaseLost, message))
        }
        Some(LeaseResult::UnknownPlace) | None => RouteReply::not_found(&gate, UNKNOWN_EVENT),
    }
}

fn change_reply(
    event_id: &str,
    status: &str,
    finished_before: bool,
    until: Option<Millis>,
) -> RouteReply {
    let mut reply = Object::from_iter([
        ("event_id", Value::from(event_id.to_owned())),
        ("status", status.to_owned().into()),
        ("finished_before", finished_before.into()),
    ]);
    if let Some(until) = until {
        reply.push("lease_expires_at", until.to_rfc3339_millis());
    }
    RouteReply::object(200, &reply)
}

/// Returns the reply for an event that was finished before. The same status again is a retry and succeeds.
fn finished_reply(gate: &Gate, event_id: &str, stored: &str, requested: &str) -> RouteReply {
    if stored == requested {
        return change_reply(event_id, stored, true, None);
    }
    let message = format!("the event was finished before as {stored}");
    RouteReply(response::refuse(gate, Code::LeaseLost, &message))
}
