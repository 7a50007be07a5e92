//! The way out of a stream: read on from a place, watch, or claim and settle.
//!
//! Reading needs the role `read` or `consume`, claiming `consume`. Reading moves nothing: whoever
//! reads keeps its own place. Claiming shares a stream among consumers, each event under a lease in
//! one pair of hands.

use std::sync::Arc;

use admit_contracts::events::{problem, view};
use admit_core::json::{Object, Value};
use admit_core::{Age, Code, Door, Millis, ReceiptId, Seq};
use admit_ledger::port::{
    LeaseAction, ClaimedEntry, DONE, Lease, LeaseResult, LeaseChange, Page, StreamEntry, ClaimRequest, read_or_wait,
};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Duration, timeout};

use super::query::{Asked, Named, Sent, StreamQuery, after, invalid, rows};
use super::watching::watch;
use super::{Consumer, EntryReader, Reader, Routed};
use crate::gate::Gate;
use crate::http::answer;
use crate::way_out::WayOut;

/// Most bytes of bodies on one page, unless the first event alone is larger.
pub(super) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

const LEASE_SECONDS_DEFAULT: u64 = 60;
const LEASE_SECONDS_MAX: u64 = 3_600;
const CONSUMER_CHARS_MAX: usize = 128;

/// A stream somebody may read.
pub(super) struct Stream {
    pub(super) gate: Arc<Gate>,
    pub(super) way_out: Arc<dyn WayOut>,
    pub(super) door: Door,
}

/// `GET /v1/events`
pub(in crate::http) async fn read_default(
    state: State<Arc<Gate>>,
    reader: EntryReader,
    query: Asked<StreamQuery>,
    headers: HeaderMap,
) -> Response {
    read(state, reader, Named("default".to_owned()), query, headers).await
}

/// `GET /v1/events/{stream}`: a page after a place, at once or when there is something; or every
/// event as it comes, for whoever accepts `text/event-stream`.
pub(in crate::http) async fn read(
    State(gate): State<Arc<Gate>>,
    EntryReader(reader): EntryReader,
    Named(stream): Named<String>,
    Asked(query): Asked<StreamQuery>,
    headers: HeaderMap,
) -> Response {
    let stream = match open(&gate, &reader, &stream) {
        Ok(stream) => stream,
        Err(refused) => return refused.into_response(),
    };
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let is_watching = text(header::ACCEPT).is_some_and(|kinds| kinds.contains("text/event-stream"));
    // A watcher that comes back repeats its first request, and says here how far it got.
    let last = text(header::HeaderName::from_static("last-event-id")).filter(|_| is_watching);
    let asked = after(last.or(query.after.as_deref()), gate.ledger.tag())
        .and_then(|after| Ok((after, rows(query.limit)?, wait(&gate, query.wait_ms)?)));
    let (after, rows_max, wait) = match asked {
        Ok(asked) => asked,
        Err(message) => return invalid(&gate, &message).into_response(),
    };
    if is_watching {
        return watch(stream, after, rows_max);
    }
    page(&stream, after, rows_max, wait).await.into_response()
}

fn wait(gate: &Gate, wait_ms: Option<u64>) -> Result<Duration, String> {
    match wait_ms.unwrap_or(0) {
        wait if wait <= gate.limits.wait_ms_max => Ok(Duration::from_millis(wait)),
        _ => Err(format!("wait_ms must be 0 to {}", gate.limits.wait_ms_max)),
    }
}

/// The stream, if there is one that this reader may see.
fn open(gate: &Arc<Gate>, reader: &Reader, name: &str) -> Result<Stream, Routed> {
    let wanted = format!("events/{name}");
    let mount = gate.doors.iter().find(|mount| mount.door.as_str() == wanted);
    let (Some(mount), Some(way_out)) = (mount, &gate.way_out) else {
        return Err(Routed::not_found(gate, "there is no such stream"));
    };
    let door = mount.door.clone();
    if !reader.may_see(&door) {
        let message = "this key may not read this door";
        return Err(Routed(answer::refuse(gate, Code::Forbidden, message)));
    }
    Ok(Stream { gate: Arc::clone(gate), way_out: Arc::clone(way_out), door })
}

async fn page(stream: &Stream, after: Seq, rows_max: usize, wait: Duration) -> Routed {
    let Stream { gate, way_out, door } = stream;
    let now = way_out.read(door.clone(), after, rows_max, PAGE_BYTES_MAX).await;
    let read = match now {
        Ok(page) if page.entries.is_empty() && !wait.is_zero() => {
            let news = read_or_wait(way_out.as_ref(), door, after, rows_max, PAGE_BYTES_MAX);
            tokio::select! {
                read = timeout(wait, news) => read.unwrap_or(Ok(page)),
                () = gate.drain.cancelled() => Ok(page),
            }
        }
        read => read,
    };
    match read {
        Err(fault) => Routed::fault(gate, &fault),
        Ok(Page { entries, next, more }) => {
            let ledger = gate.ledger.tag();
            let events: Value<'_> = entries.iter().map(|entry| seen(ledger, entry)).collect();
            let next = next.0.max(after.0);
            let page = [("events", events), ("next_after", next.into()), ("more", more.into())];
            Routed::object(200, &Object::from_iter(page))
        }
    }
}

/// An event as its consumers see it.
pub(super) fn seen(ledger: u32, entry: &StreamEntry) -> Object<'static> {
    let id = ReceiptId { ledger, seq: entry.seq };
    let mut seen = Object::from_iter([
        ("receipt_id", Value::from(id.to_string())),
        ("seq", entry.seq.0.into()),
        ("key", entry.key.to_string().into()),
        ("received_at", entry.received_at.to_rfc3339_millis().into()),
        ("principal", entry.principal.to_string().into()),
    ]);
    let content = view::content(&entry.facts, entry.body.as_deref());
    seen.extend(content);
    seen
}

/// What a consumer says when it claims.
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
    /// What is wanted, or what is wrong with the wish.
    pub(super) fn wanted(self, door: Door, now: Millis) -> Result<ClaimRequest, String> {
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
    Consumer(reader): Consumer,
    Named(stream): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let stream = match open(&gate, &reader, &stream) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let asked: ClaimBody = match said(&gate, &headers, &body) {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let wanted = match asked.wanted(stream.door, gate.clock.now()) {
        Ok(wanted) => wanted,
        Err(message) => return invalid(&gate, &message),
    };
    match stream.way_out.claim(wanted).await {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(claimed) => {
            let ledger = gate.ledger.tag();
            let events: Value<'_> = claimed.iter().map(|claimed| held(ledger, claimed)).collect();
            Routed::object(200, &Object::from_iter([("events", events)]))
        }
    }
}

fn held(ledger: u32, claimed: &ClaimedEntry) -> Object<'static> {
    let mut held = seen(ledger, &claimed.entry);
    held.push("lease", claimed.lease.to_string());
    held.push("lease_expires_at", claimed.expires_at.to_rfc3339_millis());
    held.push("attempt", claimed.attempt);
    held
}

fn lease(seconds: Option<u64>) -> Result<Age, String> {
    match seconds.unwrap_or(LEASE_SECONDS_DEFAULT) {
        seconds @ 1..=LEASE_SECONDS_MAX => Ok(Age::from_secs(seconds)),
        _ => Err(format!("lease_seconds must be 1 to {LEASE_SECONDS_MAX}")),
    }
}

/// What a consumer says became of an event.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeBody {
    pub(super) status: ChangeWord,
    lease: String,
    #[serde(default)]
    lease_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ChangeWord {
    Done,
    Failed,
    Released,
    Extended,
}

impl ChangeWord {
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
    /// The change of the event at `seq`, and until when it is held then; or what is wrong with it.
    pub(super) fn change(
        &self,
        seq: Seq,
        now: Millis,
    ) -> Result<(LeaseChange, Option<Millis>), String> {
        let held = self.lease.parse::<Lease>().map_err(|error| error.to_string())?;
        let until = lease(self.lease_seconds)?.after(now);
        let change = match self.status {
            word @ (ChangeWord::Done | ChangeWord::Failed) => {
                LeaseAction::Finish { status: word.as_str().to_owned() }
            }
            ChangeWord::Released => LeaseAction::Release { again_at: now },
            ChangeWord::Extended => LeaseAction::Extend { until },
        };
        let is_extended = matches!(change, LeaseAction::Extend { .. });
        Ok((LeaseChange { seq, lease: held, change }, is_extended.then_some(until)))
    }
}

/// `POST /v1/events/{stream}/{receipt_id}`
pub(in crate::http) async fn change(
    State(gate): State<Arc<Gate>>,
    Consumer(reader): Consumer,
    Named((stream, id)): Named<(String, String)>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let stream = match open(&gate, &reader, &stream) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let asked: ChangeBody = match said(&gate, &headers, &body) {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let Some(id) = id.parse::<ReceiptId>().ok().filter(|id| id.ledger == gate.ledger.tag()) else {
        return Routed::not_found(&gate, "there is no such event in this stream");
    };
    let now = gate.clock.now();
    let (change, until) = match asked.change(id.seq, now) {
        Ok(change) => change,
        Err(message) => return invalid(&gate, &message),
    };
    let changes = vec![change];
    let answers = match stream.way_out.change(stream.door.clone(), changes, now).await {
        Ok(answers) => answers,
        Err(fault) => return Routed::fault(&gate, &fault),
    };
    match answers.first() {
        Some(LeaseResult::Done) => changed(id, asked.status.as_str(), false, until),
        Some(LeaseResult::AlreadyDone) => finished(&stream, id, asked.status).await,
        Some(LeaseResult::StaleLease) => {
            let message = "the lease no longer holds this event";
            Routed(answer::refuse(&gate, Code::LeaseLost, message))
        }
        Some(LeaseResult::UnknownPlace) | None => {
            Routed::not_found(&gate, "there is no such event in this stream")
        }
    }
}

fn changed(id: ReceiptId, status: &str, finished_before: bool, until: Option<Millis>) -> Routed {
    let mut said = Object::from_iter([
        ("receipt_id", Value::from(id.to_string())),
        ("status", status.to_owned().into()),
        ("finished_before", finished_before.into()),
    ]);
    if let Some(until) = until {
        said.push("lease_expires_at", until.to_rfc3339_millis());
    }
    Routed::object(200, &said)
}

/// The answer about an event that was finished before. Its lease went with its claim, so nobody can
/// tell who asks; only whoever says again what is kept may take it for their own answer that was
/// lost.
async fn finished(stream: &Stream, id: ReceiptId, asked: ChangeWord) -> Routed {
    let Stream { gate, way_out, door } = stream;
    let before = Seq(id.seq.0.saturating_sub(1));
    let kept = match way_out.finished(door.clone(), before, 1).await {
        Ok(kept) => kept.into_iter().find(|kept| kept.seq == id.seq),
        Err(fault) => return Routed::fault(gate, &fault),
    };
    let status = kept.map_or_else(|| DONE.to_owned(), |kept| kept.status);
    if status == asked.as_str() {
        return changed(id, &status, true, None);
    }
    let message = format!("the event was finished before as {status}");
    Routed(answer::refuse(gate, Code::LeaseLost, &message))
}

/// A body whose shape is described where it cannot be read.
pub(super) trait Spoken {
    const SHAPE: &'static str;
}

impl Spoken for ClaimBody {
    const SHAPE: &'static str = "a claim is a JSON object with consumer (a text), and if needed max \
                                 (1 to 1000) and lease_seconds (1 to 3600), nothing else";
}

impl Spoken for ChangeBody {
    const SHAPE: &'static str = "it is a JSON object with status (done, failed, released or \
                                 extended), lease (a text), and if needed lease_seconds (1 to \
                                 3600), nothing else";
}

/// The JSON object that a consumer sent.
pub(super) fn said<T: DeserializeOwned + Spoken>(
    gate: &Gate,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<T, Routed> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !admit_contracts::is_json(kind.trim()) {
        let message = "the content type must be application/json";
        return Err(Routed(answer::refuse(gate, Code::UnsupportedMediaType, message)));
    }
    // An array of the values in their order would be read as well.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let read = serde_json::from_slice(body).ok().filter(|_| is_object);
    read.ok_or_else(|| invalid(gate, &format!("the body cannot be read, {}", T::SHAPE)))
}

/// `POST` to a stream that is not there, in the words that producers of streams know.
pub(in crate::http) async fn unknown(State(gate): State<Arc<Gate>>) -> Routed {
    gate.metrics().refusals.of(Code::NotFound).add_one();
    Routed(problem(Code::NotFound, "there is no such stream", 0))
}
