//! HTTP responses: the reply of a contract, or the general error object outside of doors.

use admit_contracts::Reply;
use admit_core::Code;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};
use serde::Serialize;

use super::ingest;
use crate::gate::{Gate, add_retry_after};

/// Response of the server: a complete body at doors, or a response of the router.
pub(super) type GateResponse = Response<Either<Full<Bytes>, Body>>;

const JSON: &str = "application/json";

/// The general error object, in the form that the strictest known producer accepts.
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

/// Returns the general error object with `code`, for unknown routes, read routes and unreadable heads.
pub(super) fn general(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    let retryable = code.is_retryable();
    let error = ErrorObject { code: code.as_str(), message, retryable, retry_after_seconds };
    let mut reply = json(code.http_status(), &ErrorBody { error });
    add_retry_after(&mut reply, retry_after_seconds);
    reply
}

/// Returns [`general`] with a retry hint and counts the refusal.
pub(super) fn refuse(gate: &Gate, code: Code, message: &str) -> Reply {
    refuse_after(gate, code, message, 0)
}

/// Same, with a retry hint of at least `wait_seconds`.
pub(super) fn refuse_after(gate: &Gate, code: Code, message: &str, wait_seconds: u32) -> Reply {
    gate.metrics().refusals.of(code).add_one();
    let retry_after = match code.is_retryable() {
        true => gate.limits.retry_after(gate.hint_after(wait_seconds)),
        false => 0,
    };
    general(code, message, retry_after)
}

/// Returns the refusal of a request at `path`: [`refuse`], or in the format of the ingestion gate where its
/// contract defines the errors.
pub(super) fn refuse_at(gate: &Gate, path: &str, code: Code, message: &str) -> Reply {
    refuse_at_after(gate, path, code, message, 0)
}

/// Same, with a retry hint of at least `wait_seconds`.
pub(super) fn refuse_at_after(
    gate: &Gate,
    path: &str,
    code: Code,
    message: &str,
    wait_seconds: u32,
) -> Reply {
    ingest::refuse_at(gate, path, code, message, wait_seconds)
        .unwrap_or_else(|| refuse_after(gate, code, message, wait_seconds))
}

/// Returns `value` as a JSON reply.
pub(super) fn json(status: u16, value: &impl Serialize) -> Reply {
    // Structs of strings and numbers always serialise. The fallback ensures a body.
    let body = serde_json::to_vec(value).unwrap_or_else(|_| UNWRITABLE.as_bytes().to_vec());
    Reply { status, content_type: JSON, headers: Vec::new(), body }
}

/// Sets headers that prevent other origins from embedding a response.
pub(super) fn forbid_embedding(headers: &mut HeaderMap) {
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    let same_origin = HeaderValue::from_static("same-origin");
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), same_origin);
}

const UNWRITABLE: &str = r#"{"error":{"code":"internal_error","message":"cannot serialise the response","retryable":true,"retry_after_seconds":5}}"#;

/// Converts a reply to an HTTP response. An empty or invalid one becomes `internal_error`, because some
/// producers treat an empty body as final.
pub(super) fn from_reply(reply: Reply) -> GateResponse {
    let Reply { status, content_type, headers, body } = reply;
    let (status, body) = match StatusCode::from_u16(status) {
        Ok(status) if !body.is_empty() => (status, Bytes::from(body)),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(UNWRITABLE.as_bytes())),
    };
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_general_error_object_has_every_member() {
        let reply = general(Code::Overloaded, "too much", 7);
        assert_eq!(reply.status, 503);
        assert_eq!(
            String::from_utf8(reply.body).unwrap(),
            r#"{"error":{"code":"overloaded","message":"too much","retryable":true,"retry_after_seconds":7}}"#
        );
        assert_eq!(reply.headers, [("retry-after", "7".to_owned())]);
    }

    #[test]
    fn an_empty_reply_becomes_an_internal_error() {
        let empty =
            Reply { status: 200, content_type: JSON, headers: Vec::new(), body: Vec::new() };
        let response = from_reply(empty);
        assert_eq!(response.status(), 500);
    }
}
