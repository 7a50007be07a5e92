//! Stream routes: read pages from a cursor, follow with server-sent events, or claim and settle.
//!
//! Reading needs the role `read` or `consume`, claiming `consume`. Readers keep their own cursor. Claiming
//! distributes a stream among consumers: an event is leased to one of them at a time.

use std::sync::Arc;

use admit_contracts::events::{problem, view};
use admit_core::json::{Object, Value};
use admit_core::{Age, Code, Door, Millis, ReceiptId, Seq};
use admit_ledger::port::{
    ClaimRequest, ClaimedEntry, DONE, Lease, LeaseAction, LeaseChange, LeaseResult, Page,
    StreamEntry, read_or_wait,
};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Duration, timeout};

use super::event_stream::stream_events;
use super::query::{BodyBytes, PathParams, QueryParams, StreamQuery, after, invalid, rows};
use super::{ConsumeAccess, EntryReadAccess, ReadAccess, RouteReply};
use crate::gate::Gate;
use crate::http::response;
use crate::stream_ports::StreamPorts;

/// Most bytes of bodies on one page, unless the first event alone is larger.
pub(super) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

const LEASE_SECONDS_DEFAULT: u64 = 60;
const LEASE_SECONDS_MAX: u64 = 3_600;
const CONSUMER_CHARS_MAX: usize = 128;

/// A stream that the reader of a request may see.
pub(super) struct ReadableStream {
    pub(super) gate: Arc<Gate>,
    pub(super) stream_ports: Arc<dyn StreamPorts>,
    pub(super) door: Door,
}

/// `GET /v1/events`
pub(in crate::http) async fn read_default(
    state: State<Arc<Gate>>,
    reader: EntryReadAccess,
    query: QueryParams<StreamQuery>,
    headers: HeaderMap,
) -> Response {
    read(state, reader, PathParams("default".to_owned()), query, headers).await
}

/// `GET /v1/events/{stream}`: a page after a cursor, with an optional long poll; or all events as they
/// arrive, if the client accepts `text/event-stream`.
pub(in crate::http) async fn read(
    State(gate): State<Arc<Gate>>,
    EntryReadAccess(reader): EntryReadAccess,
    PathParams(stream): PathParams<String>,
    QueryParams(query): QueryParams<StreamQuery>,
    headers: HeaderMap,
) -> Response {
    let stream = match open(&gate, &reader, &stream) {
        Ok(stream) => stream,
        Err(refused) => return refused.into_response(),
    };
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let is_event_stream =
        text(header::ACCEPT).is_some_and(|kinds| kinds.contains("text/event-stream"));
    // On reconnect the client repeats its first request and adds the id of the last event.
    let last = text(header::HeaderName::from_static("last-event-id")).filter(|_| is_event_stream);
    let parsed = after(last.or(query.after.as_deref()), gate.ledger.tag())
        .and_then(|after| Ok((after, rows(query.limit)?, wait(&gate, query.wait_ms)?)));
    let (after, rows_max, wait) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return invalid(&gate, &message).into_response(),
    };
    if is_event_stream {
        return stream_events(stream, after, rows_max);
    }
    page(&stream, after, rows_max, wait).await.into_response()
}

fn wait(gate: &Gate, wait_ms: Option<u64>) -> Result<Duration, String> {
    match wait_ms.unwrap_or(0) {
        wait if wait <= gate.limits.wait_ms_max => Ok(Duration::from_millis(wait)),
        _ => Err(format!("wait_ms must be 0 to {}", gate.limits.wait_ms_max)),
    }
}

/// Returns the stream `name`, if the reader may see it.
fn open(gate: &Arc<Gate>, reader: &ReadAccess, name: &str) -> Result<ReadableStream, RouteReply> {
    let door_name = format!("events/{name}");
    let mount = gate.doors.iter().find(|mount| mount.door.as_str() == door_name);
    let (Some(mount), Some(stream_ports)) = (mount, &gate.stream_ports) else {
        return Err(RouteReply::not_found(gate, "unknown stream"));
    };
    let door = mount.door.clone();
    if !reader.may_see(&door) {
        let message = "this principal may not read this door";
        return Err(RouteReply(response::refuse(gate, Code::Forbidden, message)));
    }
    Ok(ReadableStream { gate: Arc::clone(gate), stream_ports: Arc::clone(stream_ports), door })
}

async fn page(stream: &ReadableStream, after: Seq, rows_max: usize, wait: Duration) -> RouteReply {
    let ReadableStream { gate, stream_ports, door } = stream;
    let current = stream_ports.read(door.clone(), after, rows_max, PAGE_BYTES_MAX).await;
    let read = match current {
        Ok(page) if page.entries.is_empty() && !wait.is_zero() => {
            let next_page =
                read_or_wait(stream_ports.as_ref(), door, after, rows_max, PAGE_BYTES_MAX);
            tokio::select! {
                read = timeout(wait, next_page) => read.unwrap_or(Ok(page)),
                () = gate.drain.cancelled() => Ok(page),
            }
        }
        read => read,
    };
    match read {
        Err(fault) => RouteReply::fault(gate, &fault),
        Ok(Page { entries, next, more }) => {
            let ledger = gate.ledger.tag();
            let events: Value<'_> =
                entries.iter().map(|entry| event_object(ledger, entry)).collect();
            let next = next.0.max(after.0);
            let page = [("events", events), ("next_after", next.into()), ("more", more.into())];
            RouteReply::object(200, &Object::from_iter(page))
        }
    }
}

/// Returns an event as JSON.
pub(super) fn event_object(ledger: u32, entry: &StreamEntry) -> Object<'static> {
    let id = ReceiptId { ledger, seq: entry.seq };
    let mut event = Object::from_iter([
        ("receipt_id", Value::from(id.to_string())),
        ("seq", entry.seq.0.into()),
        ("key", entry.key.to_string().into()),
        ("received_at", entry.received_at.to_rfc3339_millis().into()),
        ("principal", entry.principal.to_string().into()),
    ]);
    let content = view::content(&entry.facts, entry.body.as_deref());
    event.extend(content);
    event
}

/// Body of a claim request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimBody {
    consumer: String,
    #[serde(default)]
    max: Option<usize>,
    #[serde(default)]
    lease_seconds: Option<u64>,
}

impl ClaimBody {
    /// Validates the body and converts it to a claim request.
    pub(super) fn into_claim(self, door: Door, now: Millis) -> Result<ClaimRequest, String> {
        let length = self.consumer.chars().count();
        if !(1..=CONSUMER_CHARS_MAX).contains(&length) || self.consumer.contains(char::is_control) {
            return Err(format!("consumer must be 1 to {CONSUMER_CHARS_MAX} characters"));
        }
        let rows_max = rows(self.max.or(Some(1))).map_err(|_| "max must be 1 to 1000")?;
        let lease = lease(self.lease_seconds)?;
        Ok(ClaimRequest {
            door,
            consumer: self.consumer,
            rows_max,
            bytes_max: PAGE_BYTES_MAX,
            lease,
            now,
        })
    }
}

/// `POST /v1/events/{stream}/claim`
pub(in crate::http) async fn claim(
    State(gate): State<Arc<Gate>>,
    ConsumeAccess(reader): ConsumeAccess,
    PathParams(stream): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let stream = match open(&gate, &reader, &stream) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let request: ClaimBody = match parse_body(&gate, &headers, &body) {
        Ok(request) => request,
        Err(refused) => return refused,
    };
    let claim = match request.into_claim(stream.door, gate.clock.now()) {
        Ok(claim) => claim,
        Err(message) => return invalid(&gate, &message),
    };
    match stream.stream_ports.claim(claim).await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(claimed) => {
            let ledger = gate.ledger.tag();
            let events: Value<'_> =
                claimed.iter().map(|claimed| claimed_object(ledger, claimed)).collect();
            RouteReply::object(200, &Object::from_iter([("events", events)]))
        }
    }
}

fn claimed_object(ledger: u32, claimed: &ClaimedEntry) -> Object<'static> {
    let mut event = event_object(ledger, &claimed.entry);
    event.push("lease", claimed.lease.to_string());
    event.push("lease_expires_at", claimed.expires_at.to_rfc3339_millis());
    event.push("attempt", claimed.attempt);
    event
}

fn lease(seconds: Option<u64>) -> Result<Age, String> {
    match seconds.unwrap_or(LEASE_SECONDS_DEFAULT) {
        seconds @ 1..=LEASE_SECONDS_MAX => Ok(Age::from_secs(seconds)),
        _ => Err(format!("lease_seconds must be 1 to {LEASE_SECONDS_MAX}")),
    }
}

/// Body of a settle request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeBody {
    pub(super) status: ChangeStatus,
    lease: String,
    #[serde(default)]
    lease_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ChangeStatus {
    Done,
    Failed,
    Released,
    Extended,
}

impl ChangeStatus {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => DONE,
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Extended => "extended",
        }
    }
}

impl ChangeBody {
    /// Validates the body and converts it to a change of the event at `seq`, with the new end of its lease if
    /// it is extended.
    pub(super) fn change(
        &self,
        seq: Seq,
        now: Millis,
    ) -> Result<(LeaseChange, Option<Millis>), String> {
        let lease_id = self.lease.parse::<Lease>().map_err(|error| error.to_string())?;
        let until = lease(self.lease_seconds)?.after(now);
        let change = match self.status {
            status @ (ChangeStatus::Done | ChangeStatus::Failed) => {
                LeaseAction::Finish { status: status.as_str().to_owned() }
            }
            ChangeStatus::Released => LeaseAction::Release { again_at: now },
            ChangeStatus::Extended => LeaseAction::Extend { until },
        };
        let is_extended = matches!(change, LeaseAction::Extend { .. });
        Ok((LeaseChange { seq, lease: lease_id, change }, is_extended.then_some(until)))
    }
}

/// `POST /v1/events/{stream}/{receipt_id}`
pub(in crate::http) async fn change(
    State(gate): State<Arc<Gate>>,
    ConsumeAccess(reader): ConsumeAccess,
    PathParams((stream, id)): PathParams<(String, String)>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let stream = match open(&gate, &reader, &stream) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let request: ChangeBody = match parse_body(&gate, &headers, &body) {
        Ok(request) => request,
        Err(refused) => return refused,
    };
    let Some(id) = id.parse::<ReceiptId>().ok().filter(|id| id.ledger == gate.ledger.tag()) else {
        return RouteReply::not_found(&gate, "unknown event in this stream");
    };
    let now = gate.clock.now();
    let (change, until) = match request.change(id.seq, now) {
        Ok(change) => change,
        Err(message) => return invalid(&gate, &message),
    };
    let changes = vec![change];
    let results = match stream.stream_ports.change(stream.door.clone(), changes, now).await {
        Ok(results) => results,
        Err(fault) => return RouteReply::fault(&gate, &fault),
    };
    match results.first() {
        Some(LeaseResult::Done) => change_reply(id, request.status.as_str(), false, until),
        Some(LeaseResult::AlreadyDone) => finished_reply(&stream, id, request.status).await,
        Some(LeaseResult::StaleLease) => {
            let message = "the lease of this event has expired or was released";
            RouteReply(response::refuse(&gate, Code::LeaseLost, message))
        }
        Some(LeaseResult::UnknownPlace) | None => {
            RouteReply::not_found(&gate, "unknown event in this stream")
        }
    }
}

fn change_reply(
    id: ReceiptId,
    status: &str,
    finished_before: bool,
    until: Option<Millis>,
) -> RouteReply {
    let mut reply = Object::from_iter([
        ("receipt_id", Value::from(id.to_string())),
        ("status", status.to_owned().into()),
        ("finished_before", finished_before.into()),
    ]);
    if let Some(until) = until {
        reply.push("lease_expires_at", until.to_rfc3339_millis());
    }
    RouteReply::object(200, &reply)
}

/// Returns the reply for an event that was finished before. Its lease is gone, so the consumer cannot be
/// checked: the same status again counts as a retry and succeeds, another status is refused.
async fn finished_reply(
    stream: &ReadableStream,
    id: ReceiptId,
    requested: ChangeStatus,
) -> RouteReply {
    let ReadableStream { gate, stream_ports, door } = stream;
    let before = Seq(id.seq.0.saturating_sub(1));
    let entry = match stream_ports.finished(door.clone(), before, 1).await {
        Ok(entries) => entries.into_iter().find(|entry| entry.seq == id.seq),
        Err(fault) => return RouteReply::fault(gate, &fault),
    };
    let status = entry.map_or_else(|| DONE.to_owned(), |entry| entry.status);
    if status == requested.as_str() {
        return change_reply(id, &status, true, None);
    }
    let message = format!("the event was finished before as {status}");
    RouteReply(response::refuse(gate, Code::LeaseLost, &message))
}

/// A body type with a description for error messages.
pub(super) trait DescribedBody {
    const SHAPE: &'static str;
}

impl DescribedBody for ClaimBody {
    const SHAPE: &'static str = "a claim is a JSON object with consumer (a string), and optionally max \
                                 (1 to 1000) and lease_seconds (1 to 3600)";
}

impl DescribedBody for ChangeBody {
    const SHAPE: &'static str = "expected a JSON object with status (done, failed, released or \
                                 extended), lease (a string), and optionally lease_seconds (1 \
                                 to 3600)";
}

/// Parses the JSON object that a consumer sent.
pub(super) fn parse_body<T: DeserializeOwned + DescribedBody>(
    gate: &Gate,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<T, RouteReply> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !admit_contracts::is_json(kind.trim()) {
        let message = "the content type must be application/json";
        return Err(RouteReply(response::refuse(gate, Code::UnsupportedMediaType, message)));
    }
    // serde would also accept an array with the values in order.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let read = serde_json::from_slice(body).ok().filter(|_| is_object);
    read.ok_or_else(|| invalid(gate, &format!("invalid body: {}", T::SHAPE)))
}

/// `POST` to an unknown stream, refused in the format of the stream contract.
pub(in crate::http) async fn unknown(State(gate): State<Arc<Gate>>) -> RouteReply {
    gate.metrics().refusals.of(Code::NotFound).add_one();
    RouteReply(problem(Code::NotFound, "unknown stream", 0))
}
