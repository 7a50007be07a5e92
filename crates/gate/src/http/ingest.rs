//! Routes of the ingestion gate beside its door: lookup, health, reconcile, release.
//!
//! Lookup and health speak the words of the contract; what people do to what is kept speaks ours.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_contracts::ingestion_gate::{lookup, state};
use admit_core::Code;
use admit_core::effect::Attribution;
use admit_core::json::{self, Object, Value};
use axum::extract::State;
use http::request::Parts;
use http::{HeaderMap, header};

use super::answer;
use super::read::query::{Asked, DoubtsQuery, Named, Sent, after, invalid, rows};
use super::read::{Reader, Routed, authenticated, known};
use crate::auth;
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::ingest::Ingest;
use crate::ingest::reconcile::{Resolution, Unresolved};
use crate::ingest::release::{Held, How, not_releasable};
use crate::parts::DoorMount;
use crate::peer::Peer;
use crate::principals::Role;
use crate::rate::RateExceeded;
use crate::request_permit::{NotAdmitted, TOO_FAST};

/// Longest reason that is kept, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// The door and what is behind it, where there is one.
fn ingest(gate: &Gate) -> Option<(&Arc<DoorMount>, &Arc<Ingest>)> {
    gate.doors.iter().find_map(|mount| Some((mount, mount.outward.ingest.as_ref()?)))
}

/// Whether a path is a question to the ingestion gate, which is answered in the words of its contract.
pub(super) fn is_question(path: &str) -> bool {
    matches!(path, "/v1/ops/lookup" | "/v1/ops/health")
}

/// A refusal in the words of the ingestion gate, where it is open.
pub(super) fn refuse(gate: &Gate, code: Code, message: &str) -> Option<Reply> {
    ingest(gate).map(|(door, _)| gate.refuse(door, code, message, gate.ticket()))
}

/// The door, if whoever asks may use it; else what is said, in the words of the contract.
fn asked<'g>(
    gate: &'g Gate,
    head: &Parts,
) -> Result<(&'g Arc<DoorMount>, &'g Arc<Ingest>), Routed> {
    let Some((door, ingest)) = ingest(gate) else {
        return Err(Routed::not_found(gate, "the ingestion gate is not open here"));
    };
    let Some(peer) = head.extensions.get::<Peer>().copied() else {
        let message = "the peer of this request is not known";
        return Err(Routed(gate.refuse(door, Code::InternalError, message, gate.ticket())));
    };
    let known = super::door::identify(gate, door, peer, head)
        .map(|identified| identified.known)
        .and_then(|known| authenticated(head, gate, known))
        .and_then(|known| if Ingest::may_ask(known) { Ok(known) } else { Err(auth::NOT_HERE) });
    match known {
        Ok(known) => match gate.rates.allow(known.place, gate.clock.now()) {
            Ok(()) => Ok((door, ingest)),
            Err(RateExceeded { retry_after_seconds }) => {
                let NotAdmitted { code, message, .. } = TOO_FAST;
                let hint = gate.hint_after(retry_after_seconds);
                Err(Routed(gate.refuse(door, code, message, hint)))
            }
        },
        Err(denied) => {
            let mut reply = gate.refuse(door, denied.code, denied.message, gate.ticket());
            if denied.code == Code::Unauthorized {
                reply.headers.push(("www-authenticate", "Bearer".to_owned()));
            }
            Err(Routed(reply))
        }
    }
}

/// `GET /v1/ops/health`: GREEN, AMBER or RED, with reasons.
pub(super) async fn health(State(gate): State<Arc<Gate>>, head: Parts) -> Routed {
    match asked(&gate, &head) {
        Ok((_, ingest)) => {
            let mut health = ingest.health().to_object();
            if let Some(trouble) = ingest.bus_trouble() {
                health.push("details", vec![trouble]);
            }
            Routed::object(200, &health)
        }
        Err(routed) => routed,
    }
}

/// `GET /v1/ops/lookup?event_id=|receipt_id=|dedupe_key=`: one receipt, or nothing.
pub(super) async fn lookup(State(gate): State<Arc<Gate>>, head: Parts) -> Routed {
    let (door, ingest) = match asked(&gate, &head) {
        Ok(found) => found,
        Err(routed) => return routed,
    };
    let Some(question) = lookup::parse_query(head.uri.query().unwrap_or_default()) else {
        return Routed(ingest.contract.missing_query());
    };
    match ingest.look_up(&question).await {
        Ok(found) => Routed::object(200, &lookup::response(found.as_ref())),
        Err(fault) => Routed(gate.say_about(door, &[], fault.code(), fault.message, gate.ticket())),
    }
}

/// `GET /v1/reconcile?run=&after=&limit=`: ambiguous admissions, with what the bus says of each.
pub(super) async fn doubts(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Asked(query): Asked<DoubtsQuery>,
) -> Routed {
    let Some((_, ingest)) = ingest(&gate).filter(|_| reader.may_see(&Ingest::door())) else {
        return Routed::not_found(&gate, "the ingestion gate is not open here");
    };
    let parsed = after(query.after.as_deref(), gate.ledger.tag())
        .and_then(|after| Ok((after, rows(query.limit)?)));
    let (after, limit) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return invalid(&gate, &message),
    };
    if let Some(run) = &query.run {
        match ingest.ledger.run(run.clone()).await {
            Ok(Some(_)) => {}
            Ok(None) => return Routed::not_found(&gate, "no event has named this run"),
            Err(fault) => return Routed::fault(&gate, &fault),
        }
    }
    match ingest.doubts(query.run.as_deref(), after, limit).await {
        Ok(doubts) => {
            let next = doubts.last().filter(|_| doubts.len() == limit).map(|(d, _)| d.seq.0);
            let listed: Value<'_> =
                doubts.iter().map(|(doubt, finding)| ingest.listed(doubt, finding)).collect();
            let object = Object::from_iter([("ambiguous", listed), ("next", next.into())]);
            Routed::object(200, &object)
        }
        Err(fault) => Routed::fault(&gate, &fault),
    }
}

/// `POST /v1/reconcile/{key}`: a person says what became of an ambiguous publish.
pub(super) async fn reconcile(
    State(gate): State<Arc<Gate>>,
    operator: Operator,
    Named(key): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    let Some((_, ingest)) = ingest(&gate) else {
        return Routed::not_found(&gate, "the ingestion gate is not open here");
    };
    let asked = match said(&gate, &headers, &body, &["resolution", "reason", "partition", "offset"])
    {
        Ok(asked) => asked,
        Err(routed) => return routed,
    };
    let resolution = match asked.resolution() {
        Ok(resolution) => resolution,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let by = Attribution { who: operator.name, why: Some(asked.reason) };
    let work = {
        let (ingest, key) = (Arc::clone(ingest), key.clone());
        async move { ingest.reconcile(&key, resolution, by).await }
    };
    match Finishing::new(gate.tasks.clone(), work).await {
        Ok(resolved) => {
            let receipt = resolved.filed.first().map(|filed| filed.document.path.as_str());
            let object = Object::from_iter([
                ("dedupe_key", Value::from(key.as_str())),
                ("state", state(&resolved.state).into()),
                ("receipt_ref", receipt.into()),
            ]);
            Routed::object(200, &object)
        }
        Err(Unresolved::NotFound) => Routed::not_found(&gate, "there is no such admission"),
        Err(Unresolved::Refused(message)) => refused(Code::NotReconcilable, &message),
        Err(Unresolved::Fault(fault)) => Routed::fault(&gate, &fault),
    }
}

/// `POST /v1/quarantine/{id}/release`: a person lets a quarantine go.
pub(super) async fn release(
    State(gate): State<Arc<Gate>>,
    operator: Operator,
    Named(id): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    let Some((_, ingest)) = ingest(&gate) else {
        return match id.parse() {
            Ok(id) => refused(Code::NotReconcilable, &not_releasable(id)),
            Err(_) => Routed::not_found(&gate, "the ingestion gate is not open here"),
        };
    };
    let asked = match said(&gate, &headers, &body, &["how", "reason", "run"]) {
        Ok(asked) => asked,
        Err(routed) => return routed,
    };
    let is_run = |run: &Value<'_>| run.is_null() || run.as_str().is_some();
    if !asked.members.get("run").is_none_or(is_run) {
        return refused(Code::InvalidRequest, "run must be a text");
    }
    let Some(how) = asked.text("how").and_then(|word| How::parse(&word)) else {
        return refused(Code::InvalidRequest, "how must be dismissed or resubmitted");
    };
    let by = Attribution { who: operator.name, why: Some(asked.reason.clone()) };
    let work = {
        let (ingest, id, run) = (Arc::clone(ingest), id.clone(), asked.text("run"));
        async move { ingest.release(&id, run.as_deref(), how, by).await }
    };
    match Finishing::new(gate.tasks.clone(), work).await {
        Ok((filed, said)) => {
            let receipt = said.first().map(|filed| filed.document.path.as_str());
            let object = Object::from_iter([
                ("quarantine_id", Value::from(filed.document.id.as_str())),
                ("platform_run_id", filed.document.run.as_deref().into()),
                ("released", how.as_str().into()),
                ("receipt_ref", receipt.into()),
            ]);
            Routed::object(200, &object)
        }
        Err(Held::NotFound) => Routed::not_found(&gate, "there is no such quarantine"),
        Err(Held::Refused(message)) => refused(Code::NotReconcilable, &message),
        Err(Held::Fault(fault)) => Routed::fault(&gate, &fault),
    }
}

/// Somebody who may act on what the ingestion gate keeps.
pub(super) struct Operator {
    pub(super) name: String,
}

impl axum::extract::FromRequestParts<Arc<Gate>> for Operator {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        let door = Ingest::door();
        let known = known(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}

/// What a person asks for, with a reason.
pub(super) struct Wish {
    pub(super) reason: String,
    members: Object<'static>,
}

impl Wish {
    fn text(&self, name: &str) -> Option<String> {
        self.members.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    pub(super) fn resolution(&self) -> Result<Resolution, &'static str> {
        match self.text("resolution").as_deref() {
            Some("absent") => Ok(Resolution::Absent),
            Some("found") => {
                let partition = self.members.get("partition").and_then(Value::as_u64);
                let partition = partition.and_then(|partition| u32::try_from(partition).ok());
                let is_said = |name| self.members.contains_key(name);
                match (partition, self.text("offset")) {
                    (None, None) if !is_said("partition") && !is_said("offset") => {
                        Ok(Resolution::Found(None))
                    }
                    (Some(partition), Some(offset)) => {
                        Ok(Resolution::Found(Some((partition, offset))))
                    }
                    _ => Err("partition (a number) and offset (a text) go together"),
                }
            }
            _ => Err("resolution must be found or absent"),
        }
    }
}

/// Reads what a person asks for. Nothing is done to what is kept without a reason.
pub(super) fn said(
    gate: &Gate,
    headers: &HeaderMap,
    body: &[u8],
    allowed: &[&str],
) -> Result<Wish, Routed> {
    let refused = |code, message: &str| Routed(answer::refuse(gate, code, message));
    if gate.is_draining() {
        return Err(refused(Code::Draining, "the gate is shutting down"));
    }
    // No page can send this without asking first.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !is_json {
        let message = "the content type must be application/json";
        return Err(refused(Code::UnsupportedMediaType, message));
    }
    let parsed = json::parse(body, &json::Limits::default());
    let Ok(Value::Object(members)) = parsed else {
        return Err(refused(Code::InvalidRequest, "the body must be a JSON object"));
    };
    if let Some((name, _)) = members.iter().find(|(name, _)| !allowed.contains(name)) {
        let message = format!("{name:?} is none of {}", allowed.join(", "));
        return Err(refused(Code::InvalidRequest, &message));
    }
    let reason = members.get("reason").and_then(Value::as_str).unwrap_or_default().trim();
    if reason.is_empty() || reason.chars().count() > REASON_CHARS_MAX {
        let message = "a reason of at most 1000 characters is needed";
        return Err(refused(Code::InvalidRequest, message));
    }
    Ok(Wish { reason: reason.to_owned(), members: members.into_owned() })
}
