//! Routes of the ingestion gate other than its door: lookup, health, reconcile, release.
//!
//! Lookup and health use the format of the contract; the actions of operators use the general format.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_contracts::ingestion_gate::{lookup, state};
use admit_core::Code;
use admit_core::effect::Attribution;
use admit_core::json::{self, Object, Value};
use axum::extract::State;
use http::request::Parts;
use http::{HeaderMap, header};

use super::read::query::{
    AmbiguousQuery, BodyBytes, PathParams, QueryParams, after, invalid, rows,
};
use super::read::{ReadAccess, RouteReply, authorize, bind_principal};
use super::response;
use crate::auth;
use crate::builder::DoorMount;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::ingest::Ingest;
use crate::ingest::reconcile::{OperatorResolution, ReconcileError};
use crate::ingest::release::{ReleaseError, ReleaseMode, not_releasable};
use crate::peer::Peer;
use crate::principals::{KnownPrincipal, Role};
use crate::rate_limit::RateExceeded;
use crate::request_permit::{NotAdmitted, RATE_EXCEEDED};

/// Longest reason of an operator, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// Returns the door of the ingestion gate and its publisher, if they are configured.
fn ingest(gate: &Gate) -> Option<(&Arc<DoorMount>, &Arc<Ingest>)> {
    gate.doors.iter().find_map(|mount| Some((mount, mount.effect_target.ingest.as_ref()?)))
}

/// Whether errors at a path are in the format of the ingestion gate's contract: lookup, health and
/// scenario runs.
fn is_contract_route(path: &str) -> bool {
    matches!(path, "/v1/ops/lookup" | "/v1/ops/health" | "/runs") || path.starts_with("/runs/")
}

/// Returns a refusal in the format of the ingestion gate, if it is configured and defines the errors at
/// this path.
pub(super) fn refuse_at(
    gate: &Gate,
    path: &str,
    code: Code,
    message: &str,
    wait_seconds: u32,
) -> Option<Reply> {
    let (door, _) = ingest(gate).filter(|_| is_contract_route(path))?;
    Some(gate.refuse(door, code, message, gate.hint_after(wait_seconds)))
}

/// Authorizes a lookup or health request; errors are in the format of the contract.
fn authorize_query<'g>(
    gate: &'g Gate,
    head: &Parts,
) -> Result<(&'g Arc<DoorMount>, &'g Arc<Ingest>, &'g KnownPrincipal), RouteReply> {
    let Some((door, ingest)) = ingest(gate) else {
        return Err(RouteReply::not_found(gate, "the ingestion gate is not configured"));
    };
    let Some(peer) = head.extensions.get::<Peer>().copied() else {
        let message = "the address of the peer is missing";
        return Err(RouteReply(gate.refuse(
            door,
            Code::InternalError,
            message,
            gate.next_hint_seed(),
        )));
    };
    let known = super::door::identify(gate, door, peer, head)
        .map(|identified| identified.known)
        .and_then(|known| bind_principal(head, gate, known))
        .and_then(
            |known| if Ingest::may_query(known) { Ok(known) } else { Err(auth::DOOR_FORBIDDEN) },
        );
    match known {
        Ok(known) => match gate.rates.allow(known.index, gate.clock.now()) {
            Ok(()) => Ok((door, ingest, known)),
            Err(RateExceeded { retry_after_seconds }) => {
                let NotAdmitted { code, message, .. } = RATE_EXCEEDED;
                let hint = gate.hint_after(retry_after_seconds);
                Err(RouteReply(gate.refuse(door, code, message, hint)))
            }
        },
        Err(denied) => {
            let mut reply = gate.refuse(door, denied.code, denied.message, gate.next_hint_seed());
            if denied.code == Code::Unauthorized {
                reply.headers.push(("www-authenticate", "Bearer".to_owned()));
            }
            Err(RouteReply(reply))
        }
    }
}

/// `GET /v1/ops/health`: GREEN, AMBER or RED, with reasons. Details name paths of this machine, so
/// only operators get them.
pub(super) async fn health(State(gate): State<Arc<Gate>>, head: Parts) -> RouteReply {
    match authorize_query(&gate, &head) {
        Ok((_, ingest, known)) => {
            let mut health = ingest.health().to_object();
            if known.has(Role::Operate)
                && let Some(error) = ingest.bus_error()
            {
                health.push("details", vec![error]);
            }
            RouteReply::object(200, &health)
        }
        Err(routed) => routed,
    }
}

/// `GET /v1/ops/lookup?event_id=|receipt_id=|dedupe_key=`: one receipt, or null.
pub(super) async fn lookup(State(gate): State<Arc<Gate>>, head: Parts) -> RouteReply {
    let (door, ingest, _) = match authorize_query(&gate, &head) {
        Ok(found) => found,
        Err(routed) => return routed,
    };
    let Some(lookup) = lookup::parse_query(head.uri.query().unwrap_or_default()) else {
        return RouteReply(ingest.contract.missing_query());
    };
    match ingest.look_up(&lookup).await {
        Ok(found) => RouteReply::object(200, &lookup::response(found.as_ref())),
        Err(fault) => RouteReply(gate.render_refusal(
            door,
            &[],
            fault.code(),
            fault.message,
            gate.next_hint_seed(),
        )),
    }
}

/// `GET /v1/reconcile?run=&after=&limit=`: ambiguous admissions, each with its search result on the bus.
pub(super) async fn list_ambiguous(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    QueryParams(query): QueryParams<AmbiguousQuery>,
) -> RouteReply {
    let Some((_, ingest)) = ingest(&gate).filter(|_| reader.may_see(&Ingest::door())) else {
        return RouteReply::not_found(&gate, "the ingestion gate is not configured");
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
            Ok(None) => return RouteReply::not_found(&gate, "unknown run: no event names it"),
            Err(fault) => return RouteReply::fault(&gate, &fault),
        }
    }
    match ingest.list_ambiguous(query.run.as_deref(), after, limit).await {
        Ok(ambiguous) => {
            let next = ambiguous.last().filter(|_| ambiguous.len() == limit).map(|(a, _)| a.seq.0);
            let listed: Value<'_> = ambiguous
                .iter()
                .map(|(admission, found)| ingest.to_object(admission, found))
                .collect();
            let object = Object::from_iter([("ambiguous", listed), ("next", next.into())]);
            RouteReply::object(200, &object)
        }
        Err(fault) => RouteReply::fault(&gate, &fault),
    }
}

/// `POST /v1/reconcile/{key}`: an operator resolves an ambiguous publish.
pub(super) async fn reconcile(
    State(gate): State<Arc<Gate>>,
    operator: IngestOperator,
    PathParams(key): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let refused = |code, message: &str| RouteReply(response::refuse(&gate, code, message));
    let Some((_, ingest)) = ingest(&gate) else {
        return RouteReply::not_found(&gate, "the ingestion gate is not configured");
    };
    let request = match parse_operator_request(
        &gate,
        &headers,
        &body,
        &["resolution", "reason", "partition", "offset"],
    ) {
        Ok(request) => request,
        Err(routed) => return routed,
    };
    let resolution = match request.resolution() {
        Ok(resolution) => resolution,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let by = Attribution { who: operator.name, why: Some(request.reason) };
    let work = {
        let (ingest, key) = (Arc::clone(ingest), key.clone());
        async move { ingest.reconcile(&key, resolution, by).await }
    };
    match RunToCompletion::new(gate.tasks.clone(), work).await {
        Ok(resolved) => {
            let receipt = resolved.filed.first().map(|filed| filed.document.path.as_str());
            let object = Object::from_iter([
                ("dedupe_key", Value::from(key.as_str())),
                ("state", state(&resolved.state).into()),
                ("receipt_ref", receipt.into()),
            ]);
            RouteReply::object(200, &object)
        }
        Err(ReconcileError::NotFound) => RouteReply::not_found(&gate, "unknown admission"),
        Err(ReconcileError::Refused(message)) => refused(Code::NotReconcilable, &message),
        Err(ReconcileError::Fault(fault)) => RouteReply::fault(&gate, &fault),
    }
}

/// `POST /v1/quarantine/{id}/release`: an operator releases a quarantined event.
pub(super) async fn release(
    State(gate): State<Arc<Gate>>,
    operator: IngestOperator,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let refused = |code, message: &str| RouteReply(response::refuse(&gate, code, message));
    let Some((_, ingest)) = ingest(&gate) else {
        return match id.parse() {
            Ok(id) => refused(Code::NotReconcilable, &not_releasable(id)),
            Err(_) => RouteReply::not_found(&gate, "the ingestion gate is not configured"),
        };
    };
    let request = match parse_operator_request(&gate, &headers, &body, &["how", "reason", "run"]) {
        Ok(request) => request,
        Err(routed) => return routed,
    };
    let is_run = |run: &Value<'_>| run.is_null() || run.as_str().is_some();
    if !request.members.get("run").is_none_or(is_run) {
        return refused(Code::InvalidRequest, "run must be a string");
    }
    let Some(how) = request.text("how").and_then(|word| ReleaseMode::parse(&word)) else {
        return refused(Code::InvalidRequest, "how must be dismissed or resubmitted");
    };
    let by = Attribution { who: operator.name, why: Some(request.reason.clone()) };
    let work = {
        let (ingest, id, run) = (Arc::clone(ingest), id.clone(), request.text("run"));
        async move { ingest.release(&id, run.as_deref(), how, by).await }
    };
    match RunToCompletion::new(gate.tasks.clone(), work).await {
        Ok((filed, issued)) => {
            let receipt = issued.first().map(|filed| filed.document.path.as_str());
            let object = Object::from_iter([
                ("quarantine_id", Value::from(filed.document.id.as_str())),
                ("platform_run_id", filed.document.run.as_deref().into()),
                ("released", how.as_str().into()),
                ("receipt_ref", receipt.into()),
            ]);
            RouteReply::object(200, &object)
        }
        Err(ReleaseError::NotFound) => RouteReply::not_found(&gate, "unknown quarantine"),
        Err(ReleaseError::Refused(message)) => refused(Code::NotReconcilable, &message),
        Err(ReleaseError::Fault(fault)) => RouteReply::fault(&gate, &fault),
    }
}

/// A principal with the role `operate` at the ingestion gate.
pub(super) struct IngestOperator {
    pub(super) name: String,
}

impl axum::extract::FromRequestParts<Arc<Gate>> for IngestOperator {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        let door = Ingest::door();
        let known = authorize(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}

/// Body of an operator's request. The reason is mandatory.
pub(super) struct OperatorRequest {
    pub(super) reason: String,
    members: Object<'static>,
}

impl OperatorRequest {
    fn text(&self, name: &str) -> Option<String> {
        self.members.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    pub(super) fn resolution(&self) -> Result<OperatorResolution, &'static str> {
        match self.text("resolution").as_deref() {
            Some("absent") => Ok(OperatorResolution::Absent),
            Some("found") => {
                let partition = self.members.get("partition").and_then(Value::as_u64);
                let partition = partition.and_then(|partition| u32::try_from(partition).ok());
                let has = |name| self.members.contains_key(name);
                match (partition, self.text("offset")) {
                    (None, None) if !has("partition") && !has("offset") => {
                        Ok(OperatorResolution::Found(None))
                    }
                    (Some(partition), Some(offset)) => {
                        Ok(OperatorResolution::Found(Some((partition, offset))))
                    }
                    _ => Err("partition (a number) and offset (a string) must be given together"),
                }
            }
            _ => Err("resolution must be found or absent"),
        }
    }
}

/// Parses the body of an operator's request.
pub(super) fn parse_operator_request(
    gate: &Gate,
    headers: &HeaderMap,
    body: &[u8],
    allowed: &[&str],
) -> Result<OperatorRequest, RouteReply> {
    let refused = |code, message: &str| RouteReply(response::refuse(gate, code, message));
    if gate.is_draining() {
        return Err(refused(Code::Draining, "the gate is shutting down"));
    }
    // Browsers send this content type to another origin only after a CORS preflight.
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
        let message = format!("unknown member {name:?}; expected {}", allowed.join(", "));
        return Err(refused(Code::InvalidRequest, &message));
    }
    let reason = members.get("reason").and_then(Value::as_str).unwrap_or_default().trim();
    if reason.is_empty() || reason.chars().count() > REASON_CHARS_MAX {
        let message = "reason is required, with at most 1000 characters";
        return Err(refused(Code::InvalidRequest, message));
    }
    Ok(OperatorRequest { reason: reason.to_owned(), members: members.into_owned() })
}
