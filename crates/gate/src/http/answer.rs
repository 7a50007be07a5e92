//! Answers on the wire: a contract's reply, or the general error object where no door is known.

use admit_contracts::Reply;
use admit_core::Code;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};
use serde::Serialize;

use crate::gate::{Gate, add_retry_after};

/// What the server sends: a whole body at doors, whatever the router made elsewhere.
pub(super) type Answer = Response<Either<Full<Bytes>, Body>>;

const JSON: &str = "application/json";

/// The general error object, which is also what the strictest known producer understands.
#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: &'static str,
    message: &'a str,
    retryable: bool,
    retry_after_seconds: u32,
}

/// Says `code` where no contract can: unknown routes, read routes, heads that cannot be read.
pub(super) fn general(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    let retryable = code.is_retryable();
    let error = ErrorObject { code: code.as_str(), message, retryable, retry_after_seconds };
    let mut reply = json(code.http_status(), &ErrorBody { error });
    add_retry_after(&mut reply, retry_after_seconds);
    reply
}

/// [`general`] with a hint, counted.
pub(super) fn refuse(gate: &Gate, code: Code, message: &str) -> Reply {
    refuse_after(gate, code, message, 0)
}

/// The same where a retry fails before `wait_seconds` are over.
pub(super) fn refuse_after(gate: &Gate, code: Code, message: &str, wait_seconds: u32) -> Reply {
    gate.metrics().refusals.of(code).add_one();
    let retry_after = match code.is_retryable() {
        true => gate.limits.retry_after(gate.hint_after(wait_seconds)),
        false => 0,
    };
    general(code, message, retry_after)
}

/// `value` as a JSON answer.
pub(super) fn json(status: u16, value: &impl Serialize) -> Reply {
    // Our own structs of strings and numbers always serialise; if one did not, the answer would
    // still have a body that says so.
    let body = serde_json::to_vec(value).unwrap_or_else(|_| UNWRITABLE.as_bytes().to_vec());
    Reply { status, content_type: JSON, headers: Vec::new(), body }
}

/// Keeps pages of other origins from showing or embedding what a route answers.
pub(super) fn forbid_embedding(headers: &mut HeaderMap) {
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    let same_origin = HeaderValue::from_static("same-origin");
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), same_origin);
}

const UNWRITABLE: &str = r#"{"error":{"code":"internal_error","message":"the answer could not be written","retryable":true,"retry_after_seconds":5}}"#;

/// Puts a reply on the wire. An empty or unsendable one becomes `internal_error`: the producer must
/// always read something.
pub(super) fn from_reply(reply: Reply) -> Answer {
    let Reply { status, content_type, headers, body } = reply;
    let (status, body) = match StatusCode::from_u16(status) {
        Ok(status) if !body.is_empty() => (status, Bytes::from(body)),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(UNWRITABLE.as_bytes())),
    };
    let mut answer = Response::new(Either::Left(Full::new(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::try_from(value)) {
            answer.headers_mut().append(name, value);
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_general_error_is_an_object_with_every_member() {
        let reply = general(Code::Overloaded, "too much", 7);
        assert_eq!(reply.status, 503);
        assert_eq!(
            String::from_utf8(reply.body).unwrap(),
            r#"{"error":{"code":"overloaded","message":"too much","retryable":true,"retry_after_seconds":7}}"#
        );
        assert_eq!(reply.headers, [("retry-after", "7".to_owned())]);
    }

    #[test]
    fn an_empty_reply_never_reaches_the_wire() {
        let empty =
            Reply { status: 200, content_type: JSON, headers: Vec::new(), body: Vec::new() };
        let answer = from_reply(empty);
        assert_eq!(answer.status(), 500);
    }
}
