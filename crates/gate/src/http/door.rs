//! At a door: who and what is checked before a submission goes down the path, cheapest first.
//!
//! Invariant: everything said here goes through the door's contract.

use std::sync::Arc;

use admit_contracts::{SUBPATH, QUERY, Reply};
use admit_core::{Code, Submission};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Answer};
use super::body::{self, BodyError};
use super::connection::{TOO_MANY_REQUESTS, Visit, close_after};
use super::{socket, trace};
use crate::auth::{self, Denied};
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::lane::Sender;
use crate::parts::DoorMount;
use crate::peer::Peer;
use crate::pipeline;
use crate::principals::Known;
use crate::request_permit::{FULL, NotAdmitted, RequestPermit};

/// Why a request did not get as far as the path.
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: &'static str,
    /// How long a retry fails for sure.
    wait_seconds: u32,
}

pub(super) const fn refusal(code: Code, message: &'static str) -> Refusal {
    Refusal { code, message, wait_seconds: 0 }
}

const TOO_LARGE: Refusal = refusal(Code::BodyTooLarge, "the body is larger than this door takes");

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
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
            BodyError::TooSlow => refusal(Code::RequestTimeout, "the body did not arrive in time"),
            BodyError::BrokenOff => refusal(
                Code::RequestTimeout,
                "the body broke off before its end, nothing was stored",
            ),
            BodyError::Broken => refusal(Code::InvalidRequest, "the body cannot be read"),
            BodyError::NoRoom => FULL.into(),
        }
    }
}

/// Answers a request at a door's path.
pub(super) async fn knock(
    visit: &Visit,
    door: &Arc<DoorMount>,
    mut request: Request<Incoming>,
    begun: Instant,
) -> Answer {
    let is_socket = request.method() == Method::GET && door.contract.takes_messages();
    let upgrade = is_socket.then(|| hyper::upgrade::on(&mut request));
    let (head, mut body) = request.into_parts();
    let done = match upgrade {
        Some(upgrade) => socket::open(visit, door, &head, upgrade),
        None => submit(visit, door, &head, &mut body, begun).await.map(answer::from_reply),
    };
    let refusal = match done {
        Ok(answer) => return answer,
        Err(refusal) => refusal,
    };
    let gate = &visit.server.gate;
    let named = read_to_name(visit, door, refusal.code, &mut body, &head, begun).await;
    let hint = gate.hint_after(refusal.wait_seconds);
    let reply = gate.refuse_about(door, &named, refusal.code, refusal.message, hint);
    let mut answer = answer::from_reply(reply);
    if refusal.code == Code::MethodNotAllowed {
        let allowed = match door.contract.takes_messages() {
            true => "GET, POST",
            false if door.door.is_stream() => "GET, HEAD, POST",
            false => "POST",
        };
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    if refusal.code == Code::Unauthorized {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if !body::discard(body, &head.headers, &gate.limits, begun).await {
        visit.traffic.linger();
        if head.version < http::Version::HTTP_2 {
            close_after(&mut answer);
        }
    }
    answer
}

/// Largest body that is read to name its event while there is no room for events, in bytes.
const NAMED_BYTES_MAX: usize = 16 * 1024;

/// Body of a refused request, where its contract names the event in a refusal as it would over a
/// connection; empty where the sender is not known, or there is no room to read it.
async fn read_to_name(
    visit: &Visit,
    door: &DoorMount,
    code: Code,
    body: &mut Incoming,
    head: &Parts,
    begun: Instant,
) -> Bytes {
    let gate = &visit.server.gate;
    let is_named = matches!(
        code,
        Code::RateLimited | Code::Overloaded | Code::Draining | Code::UnsupportedMediaType
    );
    // A peer that waits to be asked for its body has not sent any.
    let is_asking = head.headers.contains_key(header::EXPECT);
    if !is_named || is_asking || head.method != Method::POST || !door.contract.takes_messages() {
        return Bytes::new();
    }
    let announced = body::announced_bytes(body).unwrap_or(0);
    let Ok(sender) = identify(gate, door, visit.peer, head) else { return Bytes::new() };
    if announced > gate.limits.body_bytes_max {
        return Bytes::new();
    }
    let mut inside = match gate.room.enter_announced(sender.known.place, announced) {
        Some(inside) => inside,
        None if announced > NAMED_BYTES_MAX => return Bytes::new(),
        None => gate.room.enter_unauthenticated(),
    };
    body::read(body, &gate.limits, begun, &mut inside).await.unwrap_or_default()
}

/// Takes one submission through the checks and down the path.
async fn submit(
    visit: &Visit,
    door: &Arc<DoorMount>,
    head: &Parts,
    body: &mut Incoming,
    begun: Instant,
) -> Result<Reply, Refusal> {
    let gate = &visit.server.gate;
    let (Sender { principal, place }, has_key) = check(visit, door, head)?;
    let announced = body::announced_bytes(body).unwrap_or(0);
    if announced > gate.limits.body_bytes_max {
        return Err(TOO_LARGE);
    }
    let mut inside = match has_key {
        true => gate.room.enter_announced(place, announced).ok_or(FULL)?,
        false => gate.room.enter_unauthenticated(),
    };
    let body = body::read(body, &gate.limits, begun, &mut inside).await?;
    let permit = match has_key {
        true => RequestPermit::with_key(inside, place),
        false => RequestPermit::without_key(inside, place, Arc::clone(visit.standing())),
    };
    let submission = Submission {
        principal,
        received_at: gate.clock.now(),
        body: body.clone(),
        headers: wanted(door, head),
        nonce: nonce(door)?,
    };
    let work = {
        let (gate, door) = (Arc::clone(gate), Arc::clone(door));
        let work = async move { pipeline::answer(&gate, &door, submission, permit).await };
        // It may be finished by another task than the one it was begun in.
        Finishing::new(visit.server.tasks.clone(), trace::kept(work))
    };
    let patience = door.answer_max(&gate.limits) + door.outward.patience();
    match timeout_at(begun + patience, work).await {
        Ok(reply) => Ok(reply),
        Err(_) => {
            gate.metrics().answers_late.add_one();
            let seed = pipeline::body_seed(&body);
            let message = "the ledger did not answer in time; a retry finds out";
            Ok(gate.refuse_about(door, &body, Code::OutcomeUnknown, message, seed))
        }
    }
}

/// Everything that can be said by looking at the head: who sends, and whether a key says so.
fn check(visit: &Visit, door: &DoorMount, head: &Parts) -> Result<(Sender, bool), Refusal> {
    let gate = &visit.server.gate;
    if head.method != Method::POST {
        return Err(refusal(Code::MethodNotAllowed, "events are sent with POST"));
    }
    let (sender, has_key) = identified_sender(visit, door, head)?;
    // What has no key counts once its signature is verified.
    if has_key {
        gate.rates.allow(sender.place, gate.clock.now()).map_err(NotAdmitted::from)?;
    }
    let is_open = gate.principals.is_open();
    if !is_taken(door, &head.headers, is_open) || (is_open && is_form(&head.headers)) {
        let message = "the content type is not one that this door takes: add the header \
                       Content-Type: application/json, or another of its types";
        return Err(refusal(Code::UnsupportedMediaType, message));
    }
    if !is_plain(&head.headers) {
        let message = "a compressed body is not taken: send it as it is";
        return Err(refusal(Code::UnsupportedMediaType, message));
    }
    Ok((sender, has_key))
}

/// Who sends, if anybody may at all just now.
pub(super) fn sender(visit: &Visit, door: &DoorMount, head: &Parts) -> Result<Sender, Refusal> {
    identified_sender(visit, door, head).map(|(sender, _)| sender)
}

/// The same, and whether a key says so. If none does, the contract has to verify it.
fn identified_sender(
    visit: &Visit,
    door: &DoorMount,
    head: &Parts,
) -> Result<(Sender, bool), Refusal> {
    let gate = &visit.server.gate;
    if gate.is_draining() {
        return Err(refusal(Code::Draining, "the gate is shutting down"));
    }
    if let Some(reason) = visit.turned_away() {
        return Err(refusal(Code::Overloaded, reason.message()));
    }
    let Identified { known, has_key } = identify(gate, door, visit.peer, head)?;
    if has_key && !visit.standing().authenticate(&gate.authenticated, known.place) {
        return Err(auth::TOO_MANY_CONNECTIONS.into());
    }
    if !has_key && visit.has_too_many_requests() {
        return Err(refusal(Code::Overloaded, TOO_MANY_REQUESTS));
    }
    let principal = auth::speaker(&gate.principals, known, &head.headers, door)?;
    Ok((Sender { principal, place: known.place }, has_key))
}

/// Who a request is from.
pub(super) struct Identified<'a> {
    pub(super) known: &'a Known,
    /// Whether it is known for sure; if not, the contract verifies it from the body.
    pub(super) has_key: bool,
}

/// Who is knocking: by a key, or without one where the contract proves it from the request itself.
pub(super) fn identify<'a>(
    gate: &'a Gate,
    door: &DoorMount,
    peer: Peer,
    head: &Parts,
) -> Result<Identified<'a>, Denied> {
    let principals = &gate.principals;
    let with_key = |known| Identified { known, has_key: true };
    let without_key = |known| Identified { known, has_key: false };
    let tokens = door.outward.ingest.as_ref().and_then(|ingest| ingest.tokens());
    let is_owner =
        matches!(peer, Peer::Owner) && auth::shows_nothing(&head.headers, &door.api_key_header);
    if let (Some(tokens), false, false) = (tokens, principals.is_open(), is_owner) {
        let token = auth::presented_key(&head.headers, &door.api_key_header)?;
        let token = token.ok_or(auth::NO_KEY)?;
        let name = std::str::from_utf8(token).ok().and_then(|token| tokens.verify(token).ok());
        let known = name.and_then(|name| principals.by_name(&name));
        return known.map(with_key).ok_or(auth::NOT_KNOWN);
    }
    let vouched = || door.contract.signature_principal().and_then(|name| principals.by_name(name));
    match auth::identify(principals, peer, head, &door.api_key_header) {
        Err(denied) if denied == auth::NO_KEY => vouched().map(without_key).ok_or(denied),
        Ok(owner) if is_owner && !principals.is_open() => {
            Ok(vouched().map_or_else(|| with_key(owner), without_key))
        }
        identified => identified.map(with_key),
    }
}

/// Whether the contract takes bodies of this type. One that cannot be read is none.
fn is_taken(door: &DoorMount, headers: &HeaderMap, is_open: bool) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let content_type = value.map(|value| value.to_str().unwrap_or_default());
    match is_open {
        true => door.contract.accepts_unkeyed(content_type),
        false => door.contract.accepts(content_type),
    }
}

/// Whether a page could have a browser send this without asking us first: a body of a type that
/// forms have, and no header that forms cannot set.
fn is_form(headers: &HeaderMap) -> bool {
    const FORMS: [&[u8]; 3] =
        [b"text/plain", b"multipart/form-data", b"application/x-www-form-urlencoded"];
    let value = headers.get(header::CONTENT_TYPE).map_or(FORMS[0], HeaderValue::as_bytes);
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let media_type = value[..end].trim_ascii();
    let could = FORMS.iter().any(|form| media_type.eq_ignore_ascii_case(form));
    could && !headers.keys().any(|name| name.as_str().starts_with("ce-"))
}

/// Whether the body is sent as it is. What is kept must be what was sent.
fn is_plain(headers: &HeaderMap) -> bool {
    let is_only = |name, coding: &[u8]| {
        let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
        values.all(|value| value.trim_ascii().eq_ignore_ascii_case(coding))
    };
    is_only(header::CONTENT_ENCODING, b"identity") && is_only(header::TRANSFER_ENCODING, b"chunked")
}

/// Randomness, for a contract that makes up ids.
fn nonce(door: &DoorMount) -> Result<[u8; 16], Refusal> {
    let mut nonce = [0; 16];
    if door.contract.needs_nonce() {
        getrandom::fill(&mut nonce)
            .map_err(|_| refusal(Code::InternalError, "the system has no randomness to give"))?;
    }
    Ok(nonce)
}

/// The headers that the contract reads, repeated ones as often as they are there. A byte that is
/// not text becomes a sign that no contract takes for anything else.
fn wanted(door: &DoorMount, head: &Parts) -> Vec<(String, String)> {
    let names = door.contract.headers();
    if names.is_empty() {
        return Vec::new();
    }
    let below = || door.below(head.uri.path());
    let said =
        [(SUBPATH, below().unwrap_or_default()), (QUERY, head.uri.query().unwrap_or_default())];
    let said = said.into_iter().filter(|(name, value)| names.contains(name) && !value.is_empty());
    let is_wanted = |name: &str| {
        names.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *wanted == name,
        })
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let sent = head.headers.iter().filter(|(name, _)| is_wanted(name.as_str()));
    said.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .chain(sent.map(|(name, value)| (name.as_str().to_owned(), text(value))))
        .collect()
}

#[cfg(test)]
mod tests {
    use admit_contracts::pixel_control::{PixelControl, Settings};
    use admit_core::Door;
    use http::HeaderName;

    use super::*;
    use crate::gateway::Outward;

    fn typed(content_type: &'static str) -> HeaderMap {
        [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))].into_iter().collect()
    }

    #[test]
    fn json_is_json_in_all_its_spellings_and_nothing_a_form_can_send() {
        let door = DoorMount {
            door: Door::new("test"),
            path: "/door".to_owned(),
            api_key_header: HeaderName::from_static("x-api-key"),
            contract: Arc::new(PixelControl::new(Settings::default())),
            outward: Outward::default(),
        };
        let is_json = |headers: &HeaderMap| is_taken(&door, headers, false);
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
    fn what_a_page_can_send_unasked_is_known_for_that() {
        for form in ["text/plain;charset=UTF-8", "Multipart/Form-Data; boundary=x", "text/plain"] {
            assert!(is_form(&typed(form)), "{form}");
        }
        assert!(is_form(&HeaderMap::new()), "no type at all needs no leave either");
        for safe in ["application/json", "text/xml", "application/octet-stream"] {
            assert!(!is_form(&typed(safe)), "{safe}");
        }
        let mut cloud = typed("text/plain");
        cloud.insert("ce-id", HeaderValue::from_static("1"));
        assert!(!is_form(&cloud), "a header of its own is asked about first");
    }
}
