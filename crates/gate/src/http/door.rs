//! At a door: who and what is checked before a submission goes down the path, cheapest first.
//!
//! Invariant: everything said here goes through the door's contract.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::{Code, Submission};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Answer};
use super::body::{self, BodyError};
use super::connection::{Visit, close_after};
use super::finish::Finishing;
use crate::auth::{self, Denied};
use crate::parts::DoorMount;
use crate::pipeline;
use crate::principals::{Known, Role};

/// Why a request did not get as far as the path.
struct Refusal {
    code: Code,
    message: &'static str,
}

const fn refusal(code: Code, message: &'static str) -> Refusal {
    Refusal { code, message }
}

const TOO_LARGE: Refusal = refusal(Code::BodyTooLarge, "the body is larger than this door takes");

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        refusal(denied.code, denied.message)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => TOO_LARGE,
            BodyError::TooSlow => refusal(Code::RequestTimeout, "the body did not arrive in time"),
            BodyError::Broken => refusal(Code::InvalidRequest, "the body cannot be read"),
        }
    }
}

/// Answers a request at a door's path.
pub(super) async fn knock(
    visit: &Visit,
    door: &Arc<DoorMount>,
    request: Request<Incoming>,
) -> Answer {
    let begun = Instant::now();
    let (head, mut body) = request.into_parts();
    let refusal = match submit(visit, door, &head, &mut body, begun).await {
        Ok(reply) => return answer::from_reply(reply),
        Err(refusal) => refusal,
    };
    let gate = &visit.server.gate;
    let reply = gate.refuse(door, refusal.code, refusal.message, gate.ticket());
    let mut answer = answer::from_reply(reply);
    if refusal.code == Code::MethodNotAllowed {
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
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

/// Takes one submission through the checks and down the path.
async fn submit(
    visit: &Visit,
    door: &Arc<DoorMount>,
    head: &Parts,
    body: &mut Incoming,
    begun: Instant,
) -> Result<Reply, Refusal> {
    let gate = &visit.server.gate;
    let known = check(visit, door, head)?;
    let expected = body::expected_bytes(body, &gate.limits);
    if expected > gate.limits.body_bytes_max {
        return Err(TOO_LARGE);
    }
    let inside = gate
        .room
        .enter(expected)
        .ok_or(refusal(Code::Overloaded, "more events are in work than this gate takes at once"))?;
    let body = body::read(body, &gate.limits, begun).await?;
    let submission = Submission {
        principal: known.principal.clone(),
        received_at: gate.clock.now(),
        body: body.clone(),
        headers: wanted(door, &head.headers),
        nonce: nonce(door)?,
    };
    let work = {
        let (gate, door) = (Arc::clone(gate), Arc::clone(door));
        Finishing::new(visit.server.tasks.clone(), async move {
            let reply = pipeline::admit(&gate, &door, vec![submission]).await.pop();
            drop(inside);
            reply
        })
    };
    match timeout_at(begun + gate.limits.answer_max() + door.outward.patience(), work).await {
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err(refusal(Code::InternalError, "the event got no reply")),
        Err(_) => {
            gate.metrics().answers_late.add_one();
            let seed = pipeline::body_seed(&body);
            let message = "the ledger did not answer in time; a retry finds out";
            Ok(gate.refuse(door, Code::OutcomeUnknown, message, seed))
        }
    }
}

/// Everything that can be said by looking at the head.
fn check<'a>(visit: &'a Visit, door: &DoorMount, head: &Parts) -> Result<&'a Known, Refusal> {
    let gate = &visit.server.gate;
    if head.method != Method::POST {
        return Err(refusal(Code::MethodNotAllowed, "events are sent with POST"));
    }
    if gate.is_draining() {
        return Err(refusal(Code::Draining, "the gate is shutting down"));
    }
    if visit.is_turned_away {
        return Err(refusal(Code::Overloaded, "the gate has as many connections as it takes"));
    }
    let known = auth::identify(&gate.principals, visit.peer, head, &door.api_key_header)?;
    auth::permit(known, Role::Produce, &door.door)?;
    if !gate.rates.allow(known.place, gate.clock.now()) {
        return Err(refusal(Code::RateLimited, "this key is used more often than it may"));
    }
    if !is_json(&head.headers) {
        let message = "the content type must be application/json";
        return Err(refusal(Code::UnsupportedMediaType, message));
    }
    if !is_plain(&head.headers) {
        let message = "a compressed body is not taken: send it without content encoding";
        return Err(refusal(Code::UnsupportedMediaType, message));
    }
    Ok(known)
}

/// Whether the body says that it is JSON: `application/json`, or anything that ends in `+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return false };
    let value = value.as_bytes();
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let media_type = value[..end].trim_ascii();
    let suffix = b"+json";
    media_type.eq_ignore_ascii_case(b"application/json")
        || media_type
            .len()
            .checked_sub(suffix.len())
            .is_some_and(|start| start > 0 && media_type[start..].eq_ignore_ascii_case(suffix))
}

/// Whether the body is sent as it is. What is kept must be what was sent.
fn is_plain(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    codings.all(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

/// Randomness, for a contract that makes up ids.
fn nonce(door: &DoorMount) -> Result<[u8; 16], Refusal> {
    let mut nonce = [0; 16];
    if door.contract.wants_nonce() {
        getrandom::fill(&mut nonce)
            .map_err(|_| refusal(Code::InternalError, "the system has no randomness to give"))?;
    }
    Ok(nonce)
}

/// The headers that the contract reads.
fn wanted(door: &DoorMount, headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name: &&str| {
        let value = headers.get(*name)?.to_str().ok()?;
        Some(((*name).to_owned(), value.to_owned()))
    };
    door.contract.headers().iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(content_type: &'static str) -> HeaderMap {
        [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))].into_iter().collect()
    }

    #[test]
    fn json_is_json_in_all_its_spellings_and_nothing_a_form_can_send() {
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
}
