//! Heads of HTTP/2 requests that are larger than the gate takes.
//!
//! The HTTP library measures heads of HTTP/1 while it reads them. With HTTP/2 it would answer a large one
//! on its own and without a word, so it is told a larger limit and the real one is held here.

use admit_core::Code;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::answer::{self, Answer};
use super::body;
use super::connection::Visit;
use crate::limits::Limits;

/// The HTTP library takes heads so many times as large as the gate, so that there is one to answer.
const ROOM: usize = 4;

/// Most headers in a head, as with HTTP/1.
const HEADERS_MAX: usize = 100;

/// What the HTTP library is told.
pub(super) fn bytes_max(limits: &Limits) -> u32 {
    u32::try_from(limits.headers_bytes_max.saturating_mul(ROOM)).unwrap_or(u32::MAX)
}

/// Whether a head is larger than the gate takes.
pub(super) fn is_too_large(request: &Request<Incoming>, limits: &Limits) -> bool {
    let address = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    request.headers().len() > HEADERS_MAX
        || address + fields.sum::<usize>() > limits.headers_bytes_max
}

/// Answers it like one of HTTP/1.
pub(super) async fn refuse(visit: &Visit, request: Request<Incoming>) -> Answer {
    let begun = Instant::now();
    let message = "the headers are larger than this gate takes";
    let reply = answer::refuse(&visit.server.gate, Code::InvalidRequest, message);
    let mut answer = answer::from_reply(reply);
    *answer.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let (head, body) = request.into_parts();
    if !body::discard(body, &head.headers, &visit.server.limits, begun).await {
        visit.traffic.linger();
    }
    answer
}
