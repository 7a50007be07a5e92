//! Size limit of HTTP/2 request heads.
//!
//! The HTTP library enforces the limit for HTTP/1 itself. For HTTP/2 it would reject a large head without
//! a body, so the library gets a larger limit and the configured one is enforced here.

use admit_core::Code;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::body;
use super::connection::ConnectionContext;
use super::response::{self, GateResponse};
use crate::limits::Limits;

/// Factor between the head limit of the HTTP library and the configured one.
const LIBRARY_FACTOR: usize = 4;

/// Most headers in a head, same as for HTTP/1.
const HEADERS_MAX: usize = 100;

/// Head limit of the HTTP library, in bytes.
pub(super) fn library_head_bytes_max(limits: &Limits) -> u32 {
    u32::try_from(limits.headers_bytes_max.saturating_mul(LIBRARY_FACTOR)).unwrap_or(u32::MAX)
}

/// Whether a head exceeds the limits.
pub(super) fn is_too_large(request: &Request<Incoming>, limits: &Limits) -> bool {
    let address = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    request.headers().len() > HEADERS_MAX
        || address + fields.sum::<usize>() > limits.headers_bytes_max
}

/// Refuses a request with status 431, as for HTTP/1.
pub(super) async fn refuse(
    context: &ConnectionContext,
    request: Request<Incoming>,
) -> GateResponse {
    let begun = Instant::now();
    let message = "the headers exceed limits.headers_bytes_max";
    let reply = response::refuse(&context.server.gate, Code::InvalidRequest, message);
    let mut response = response::from_reply(reply);
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let (head, body) = request.into_parts();
    if !body::discard(body, &head.headers, &context.server.limits, begun).await {
        context.activity.linger();
    }
    response
}
