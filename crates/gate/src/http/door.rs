//! Submissions over HTTP: the checks before the pipeline, cheapest first.
//!
//! Invariant: every reply, also an error, is in the format of the door's contract.

use std::sync::Arc;

use admit_contracts::{QUERY, Reply, SUBPATH};
use admit_core::{Code, Submission};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::body::{self, BodyError};
use super::connection::{ConnectionContext, TOO_MANY_REQUESTS, close_after};
use super::response::{self, GateResponse};
use super::{trace, websocket};
use crate::auth::{self, AccessDenied};
use crate::builder::DoorMount;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::peer::Peer;
use crate::pipeline;
use crate::pipelined_session::SessionSender;
use crate::principals::KnownPrincipal;
use crate::request_permit::{NotAdmitted, OVERLOADED, RequestPermit};

/// Reason why a request did not reach the pipeline.
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: &'static str,
    /// Seconds for which a retry is certain to fail.
    wait_seconds: u32,
}

pub(super) const fn refusal(code: Code, message: &'static str) -> Refusal {
    Refusal { code, message, wait_seconds: 0 }
}

const TOO_LARGE: Refusal = refusal(Code::BodyTooLarge, "the body exceeds limits.body_bytes_max");

impl From<AccessDenied> for Refusal {
    fn from(denied: AccessDenied) -> Self {
        refusal(denied.code, denied.message)
    }
}

impl From<NotAdmitted> for Refusal {
    fn from(not: NotAdmitted) -> Self {
        Self { code: not.code, message: not.message, wait_seconds: not.wait_seconds }
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => TOO_LARGE,
            BodyError::TooSlow => refusal(
                Code::RequestTimeout,
                "timeout while reading the body (limits.body_read_ms_max)",
            ),
            BodyError::Truncated => refusal(
                Code::RequestTimeout,
                "the connection closed before the end of the body; nothing was stored",
            ),
            BodyError::Malformed => {
                refusal(Code::InvalidRequest, "invalid transfer encoding of the body")
            }
            BodyError::NoMemory => OVERLOADED.into(),
        }
    }
}

/// Handles a request at a door's path: a submission, or a WebSocket upgrade.
pub(super) async fn handle_submission(
    context: &ConnectionContext,
    door: &Arc<DoorMount>,
    mut request: Request<Incoming>,
    begun: Instant,
) -> GateResponse {
    let is_upgrade = request.method() == Method::GET && door.contract.takes_messages();
    let upgrade = is_upgrade.then(|| hyper::upgrade::on(&mut request));
    let (head, mut body) = request.into_parts();
    let done = match upgrade {
        Some(upgrade) => websocket::open(context, door, &head, upgrade),
        None => submit(context, door, &head, &mut body, begun).await.map(response::from_reply),
    };
    let refusal = match done {
        Ok(response) => return response,
        Err(refusal) => refusal,
    };
    let gate = &context.server.gate;
    let refused_body =
        read_refused_body(context, door, refusal.code, &mut body, &head, begun).await;
    let hint = gate.hint_after(refusal.wait_seconds);
    let reply = gate.refuse_about(door, &refused_body, refusal.code, refusal.message, hint);
    let mut response = response::from_reply(reply);
    if refusal.code == Code::MethodNotAllowed {
        let allowed = match door.contract.takes_messages() {
            true => "GET, POST",
            false if door.door.is_stream() => "GET, HEAD, POST",
            false => "POST",
        };
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    if refusal.code == Code::Unauthorized {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if !body::discard(body, &head.headers, &gate.limits, begun).await {
        context.activity.linger();
        if head.version < http::Version::HTTP_2 {
            close_after(&mut response);
        }
    }
    response
}

/// Largest body of a refused request that is read without a free permit, in bytes.
const REFUSED_BODY_BYTES_MAX: usize = 16 * 1024;

/// Returns the body of a refused request if its contract puts event ids into a refusal, as it does on a
/// WebSocket. Empty if the sender is unknown or no memory is free.
async fn read_refused_body(
    context: &ConnectionContext,
    door: &DoorMount,
    code: Code,
    body: &mut Incoming,
    head: &Parts,
    begun: Instant,
) -> Bytes {
    let gate = &context.server.gate;
    let has_event_id = matches!(
        code,
        Code::RateLimited | Code::Overloaded | Code::Draining | Code::UnsupportedMediaType
    );
    // With `Expect: 100-continue` the body has not been sent.
    let is_waiting = head.headers.contains_key(header::EXPECT);
    if !has_event_id || is_waiting || head.method != Method::POST || !door.contract.takes_messages()
    {
        return Bytes::new();
    }
    let declared = body::declared_bytes(body).unwrap_or(0);
    let Ok(sender) = identify(gate, door, context.peer, head) else { return Bytes::new() };
    if declared > gate.limits.body_bytes_max {
        return Bytes::new();
    }
    let mut permit =
        match gate.admission_limiter.try_acquire_announced(sender.known.index, declared) {
            Some(permit) => permit,
            None if declared > REFUSED_BODY_BYTES_MAX => return Bytes::new(),
            None => gate.admission_limiter.acquire_unauthenticated(),
        };
    body::read(body, &gate.limits, begun, &mut permit).await.unwrap_or_default()
}

/// Checks one submission, reads its body and passes it to the pipeline.
async fn submit(
    context: &ConnectionContext,
    door: &Arc<DoorMount>,
    head: &Parts,
    body: &mut Incoming,
    begun: Instant,
) -> Result<Reply, Refusal> {
    let gate = &context.server.gate;
    let (SessionSender { principal, index }, has_key) = check_head(context, door, head)?;
    let declared = body::declared_bytes(body).unwrap_or(0);
    if declared > gate.limits.body_bytes_max {
        return Err(TOO_LARGE);
    }
    let mut permit = match has_key {
        true => gate.admission_limiter.try_acquire_announced(index, declared).ok_or(OVERLOADED)?,
        false => gate.admission_limiter.acquire_unauthenticated(),
    };
    let body = body::read(body, &gate.limits, begun, &mut permit).await?;
    let permit = match has_key {
        true => RequestPermit::with_key(permit, index),
        false => RequestPermit::without_key(permit, index, Arc::clone(context.auth())),
    };
    let submission = Submission {
        principal,
        received_at: gate.clock.now(),
        body: body.clone(),
        headers: contract_headers(door, head),
        nonce: generate_nonce(door)?,
    };
    let work = {
        let (gate, door) = (Arc::clone(gate), Arc::clone(door));
        let work = async move { pipeline::process_request(&gate, &door, submission, permit).await };
        // Another task finishes it if the client disconnects.
        RunToCompletion::new(context.server.tasks.clone(), trace::in_current_scope(work))
    };
    let reply_max = door.answer_max(&gate.limits) + door.effect_target.effect_wait_max();
    match timeout_at(begun + reply_max, work).await {
        Ok(reply) => Ok(reply),
        Err(_) => {
            gate.metrics().answers_late.add_one();
            let seed = pipeline::body_seed(&body);
            let message =
                "timeout waiting for the ledger; the event may be stored, retry to get its outcome";
            Ok(gate.refuse_about(door, &body, Code::OutcomeUnknown, message, seed))
        }
    }
}

/// Checks the head of a submission. Returns the sender, and whether a key identifies it.
fn check_head(
    context: &ConnectionContext,
    door: &DoorMount,
    head: &Parts,
) -> Result<(SessionSender, bool), Refusal> {
    let gate = &context.server.gate;
    if head.method != Method::POST {
        return Err(refusal(Code::MethodNotAllowed, "method not allowed: send events with POST"));
    }
    let (sender, has_key) = identify_with_key(context, door, head)?;
    // Without a key, the rate limit applies after the signature is verified.
    if has_key {
        gate.rates.allow(sender.index, gate.clock.now()).map_err(NotAdmitted::from)?;
    }
    let is_open = gate.principals.is_open();
    if !accepts_content_type(door, &head.headers, is_open)
        || (is_open && is_form_request(&head.headers))
    {
        let message = "unsupported content type: add the header Content-Type: application/json, or another \
                       type of this door";
        return Err(refusal(Code::UnsupportedMediaType, message));
    }
    if !is_uncompressed(&head.headers) {
        let message = "compressed bodies are not supported: send the body without Content-Encoding";
        return Err(refusal(Code::UnsupportedMediaType, message));
    }
    Ok((sender, has_key))
}

/// Identifies the sender of a request, and checks that the gate and the connection accept requests now.
pub(super) fn identify_sender(
    context: &ConnectionContext,
    door: &DoorMount,
    head: &Parts,
) -> Result<SessionSender, Refusal> {
    identify_with_key(context, door, head).map(|(sender, _)| sender)
}

/// Same, and returns whether a key identifies the sender; if not, the contract must verify a signature.
fn identify_with_key(
    context: &ConnectionContext,
    door: &DoorMount,
    head: &Parts,
) -> Result<(SessionSender, bool), Refusal> {
    let gate = &context.server.gate;
    if gate.is_draining() {
        return Err(refusal(Code::Draining, "the gate is shutting down"));
    }
    if let Some(reason) = context.connection_refusal() {
        return Err(refusal(Code::Overloaded, reason.message()));
    }
    let IdentifiedPrincipal { known, has_key } = identify(gate, door, context.peer, head)?;
    if has_key && !context.auth().authenticate(&gate.authenticated, known.index) {
        return Err(auth::TOO_MANY_CONNECTIONS.into());
    }
    if !has_key && context.has_too_many_requests() {
        return Err(refusal(Code::Overloaded, TOO_MANY_REQUESTS));
    }
    let principal = auth::resolve_sender(&gate.principals, known, &head.headers, door)?;
    Ok((SessionSender { principal, index: known.index }, has_key))
}

/// Principal of a request.
pub(super) struct IdentifiedPrincipal<'a> {
    pub(super) known: &'a KnownPrincipal,
    /// Whether a key identifies it; if not, the contract must verify the body's signature.
    pub(super) has_key: bool,
}

/// Identifies the principal of a request by its key, or provisionally by the contract's signatures.
pub(super) fn identify<'a>(
    gate: &'a Gate,
    door: &DoorMount,
    peer: Peer,
    head: &Parts,
) -> Result<IdentifiedPrincipal<'a>, AccessDenied> {
    let principals = &gate.principals;
    let with_key = |known| IdentifiedPrincipal { known, has_key: true };
    let without_key = |known| IdentifiedPrincipal { known, has_key: false };
    let tokens = door.effect_target.ingest.as_ref().and_then(|ingest| ingest.tokens());
    let is_owner = matches!(peer, Peer::Owner)
        && auth::has_no_credentials(&head.headers, &door.api_key_header);
    if let (Some(tokens), false, false) = (tokens, principals.is_open(), is_owner) {
        let token = auth::presented_key(&head.headers, &door.api_key_header)?;
        let token = token.ok_or(auth::MISSING_KEY)?;
        let name = std::str::from_utf8(token).ok().and_then(|token| tokens.verify(token).ok());
        let known = name.and_then(|name| principals.by_name(&name));
        return known.map(with_key).ok_or(auth::UNKNOWN_KEY);
    }
    let signature_principal =
        || door.contract.signature_principal().and_then(|name| principals.by_name(name));
    match auth::identify(principals, peer, head, &door.api_key_header) {
        Err(denied) if denied == auth::MISSING_KEY => {
            signature_principal().map(without_key).ok_or(denied)
        }
        Ok(owner) if is_owner && !principals.is_open() => {
            Ok(signature_principal().map_or_else(|| with_key(owner), without_key))
        }
        identified => identified.map(with_key),
    }
}

/// Whether the contract accepts the content type. One that is not text counts as empty.
fn accepts_content_type(door: &DoorMount, headers: &HeaderMap, is_open: bool) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let content_type = value.map(|value| value.to_str().unwrap_or_default());
    match is_open {
        true => door.contract.accepts_unkeyed(content_type),
        false => door.contract.accepts(content_type),
    }
}

/// Whether a web page can cause this request without a CORS preflight: it has a content type of HTML forms
/// and no header that forms cannot set.
fn is_form_request(headers: &HeaderMap) -> bool {
    const FORMS: [&[u8]; 3] =
        [b"text/plain", b"multipart/form-data", b"application/x-www-form-urlencoded"];
    let value = headers.get(header::CONTENT_TYPE).map_or(FORMS[0], HeaderValue::as_bytes);
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let media_type = value[..end].trim_ascii();
    let is_form_type = FORMS.iter().any(|form| media_type.eq_ignore_ascii_case(form));
    is_form_type && !headers.keys().any(|name| name.as_str().starts_with("ce-"))
}

/// Whether the body has no content coding. The ledger stores exactly the bytes that were sent.
fn is_uncompressed(headers: &HeaderMap) -> bool {
    let is_only = |name, coding: &[u8]| {
        let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
        values.all(|value| value.trim_ascii().eq_ignore_ascii_case(coding))
    };
    is_only(header::CONTENT_ENCODING, b"identity") && is_only(header::TRANSFER_ENCODING, b"chunked")
}

/// Returns random bytes, for a contract that generates ids.
fn generate_nonce(door: &DoorMount) -> Result<[u8; 16], Refusal> {
    let mut nonce = [0; 16];
    if door.contract.needs_nonce() {
        getrandom::fill(&mut nonce).map_err(|_| {
            refusal(Code::InternalError, "the system random number generator failed")
        })?;
    }
    Ok(nonce)
}

/// Returns the headers that the contract reads, with repeated ones repeated. Bytes that are not UTF-8
/// become U+FFFD, which no contract accepts.
fn contract_headers(door: &DoorMount, head: &Parts) -> Vec<(String, String)> {
    let names = door.contract.headers();
    if names.is_empty() {
        return Vec::new();
    }
    let below = || door.below(head.uri.path());
    let pseudo =
        [(SUBPATH, below().unwrap_or_default()), (QUERY, head.uri.query().unwrap_or_default())];
    let pseudo =
        pseudo.into_iter().filter(|(name, value)| names.contains(name) && !value.is_empty());
    let is_declared = |name: &str| {
        names.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *pattern == name,
        })
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let sent = head.headers.iter().filter(|(name, _)| is_declared(name.as_str()));
    pseudo
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .chain(sent.map(|(name, value)| (name.as_str().to_owned(), text(value))))
        .collect()
}

#[cfg(test)]
mod tests {
    use admit_contracts::pixel_control::{PixelControl, Settings};
    use admit_core::Door;
    use http::HeaderName;

    use super::*;
    use crate::gateway::EffectTarget;

    fn typed(content_type: &'static str) -> HeaderMap {
        [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))].into_iter().collect()
    }

    #[test]
    fn every_spelling_of_the_json_type_is_accepted_and_no_form_type() {
        let door = DoorMount {
            door: Door::new("test"),
            path: "/door".to_owned(),
            api_key_header: HeaderName::from_static("x-api-key"),
            contract: Arc::new(PixelControl::new(Settings::default())),
            effect_target: EffectTarget::default(),
        };
        let is_json = |headers: &HeaderMap| accepts_content_type(&door, headers, false);
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json;charset=utf-8",
            "application/cloudevents+json",
        ] {
            assert!(is_json(&typed(json)), "{json}");
        }
        for other in
            ["text/plain", "application/x-www-form-urlencoded", "", "+json", "text/json", "json"]
        {
            assert!(!is_json(&typed(other)), "{other}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn requests_that_need_no_cors_preflight_are_detected() {
        for form in ["text/plain;charset=UTF-8", "Multipart/Form-Data; boundary=x", "text/plain"] {
            assert!(is_form_request(&typed(form)), "{form}");
        }
        assert!(is_form_request(&HeaderMap::new()), "a missing content type needs no preflight");
        for safe in ["application/json", "text/xml", "application/octet-stream"] {
            assert!(!is_form_request(&typed(safe)), "{safe}");
        }
        let mut cloud = typed("text/plain");
        cloud.insert("ce-id", HeaderValue::from_static("1"));
        assert!(!is_form_request(&cloud), "a custom header needs a preflight");
    }
}
