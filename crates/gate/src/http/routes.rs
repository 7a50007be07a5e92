//! Table of all routes other than the doors, with the errors of unknown paths and methods.

use std::sync::Arc;
use std::time::Duration;

use admit_core::Code;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use http::{Method, Request, Uri, Version};
use http_body_util::Either;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout};
use tower::ServiceExt as _;

use super::body::{self, SharedBody};
use super::connection::{ConnectionContext, close_after};
use super::read::{
    Requester, RouteReply, health, inbox, intents, metrics, pixel, receipts, rounds, streams,
};
use super::response::{self, GateResponse};
use super::{
    confirm_time, ingest, intent_replay, openapi, publications, round_acceptance, run_reports, runs,
};
use crate::gate::{DEFAULT_STREAM_PATH, Gate};

/// Route that relinks all unlinked events, and its timeout.
const RELINK: &str = "/v1/rounds/relink";
const RELINK_MAX: Duration = Duration::from_secs(100);

/// Router of the gate's own routes. Doors are matched before, by their configured paths.
pub(super) fn router(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/", get(health::doors))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/healthz", get(health::healthz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/v1/receipts/{id}", get(receipts::one))
        .route("/v1/receipts/{id}/document", get(receipts::document))
        .route("/v1/admissions", get(receipts::admissions))
        .route("/v1/quarantine", get(receipts::quarantine))
        .route("/v1/intents/{receipt_id}", get(intents::one))
        .route("/v1/intents/{receipt_id}/replay", post(intent_replay::replay))
        .route("/v1/ops/lookup", get(ingest::lookup))
        .route("/v1/ops/health", get(ingest::health))
        .route("/v1/ops/confirm-time", post(confirm_time::confirm))
        .route("/v1/reconcile", get(ingest::list_ambiguous))
        .route("/v1/reconcile/{key}", post(ingest::reconcile))
        .route("/v1/quarantine/{id}/release", post(ingest::release))
        .route("/runs", post(runs::submit))
        .route("/runs/{run_id}", get(runs::status))
        .route("/runs/{run_id}/reemit", post(runs::reemit))
        .route("/v1/runs", get(run_reports::list))
        .route("/v1/runs/{platform_run_id}/report", get(run_reports::report))
        .route("/v1/runs/{platform_run_id}/close", post(run_reports::close))
        .route("/v1/pixel/servers", get(pixel::servers))
        .route("/v1/pixel/servers/{scope}", get(pixel::servers_of))
        .route("/v1/pixel/servers/{scope}/", get(pixel::server_without_login))
        .route("/v1/pixel/servers/{scope}/{login}", get(pixel::server))
        .route("/v1/rounds", get(rounds::list))
        .route("/v1/rounds/diagnostics", get(rounds::diagnostics))
        .route("/v1/rounds/relink", post(rounds::relink))
        .route("/v1/rounds/accept/{receipt_id}", post(round_acceptance::accept))
        .route("/v1/rounds/reconcile", get(publications::list_ambiguous))
        .route("/v1/rounds/reconcile/{key}", post(publications::reconcile))
        .route("/v1/rounds/{round_id}", get(rounds::one).post(rounds::unknown))
        .route("/v1/events", get(streams::read_default).post(streams::unknown))
        .route("/v1/events/{stream}", get(streams::read).post(streams::unknown))
        .route("/v1/events/{stream}/claim", post(streams::claim))
        .route("/v1/events/{stream}/{receipt_id}", post(streams::change))
        .route("/v1/inbox", get(inbox::list))
        .route("/v1/inbox/claim", post(inbox::claim))
        .route("/v1/inbox/{event_id}", get(inbox::one).post(inbox::change))
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .with_state(gate)
}

/// Whether a path is reserved for the gate; doors may not use it.
pub(crate) fn is_own_route(path: &str) -> bool {
    const PATHS: [&str; 6] = ["/", "/livez", "/readyz", "/healthz", "/metrics", "/openapi.json"];
    const TREES: [&str; 9] = [
        "/runs",
        "/v1/receipts",
        "/v1/admissions",
        "/v1/quarantine",
        "/v1/pixel",
        "/v1/inbox",
        "/v1/ops",
        "/v1/reconcile",
        "/v1/runs",
    ];
    let is_in = |tree: &&str| {
        path.strip_prefix(*tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // The roots of these trees are paths of doors.
    let is_below_a_door = path.starts_with("/v1/intents/") || path.starts_with("/v1/rounds/");
    PATHS.contains(&path) || TREES.iter().any(is_in) || is_below_a_door
}

/// Whether a path is a stream path, where doors are mounted too.
pub(super) fn is_stream_route(path: &str) -> bool {
    path.strip_prefix(DEFAULT_STREAM_PATH)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Handles a request outside of the doors. The rest of its body is read and discarded, because a producer
/// with a wrong path reads the response only after it has sent the body.
pub(super) async fn handle_request(
    context: &ConnectionContext,
    request: Request<Incoming>,
    begun: Instant,
) -> GateResponse {
    if request.body().is_end_stream() {
        return route_request(context, request.map(Body::new)).await;
    }
    let (head, body) = request.into_parts();
    let (headers, is_http1) = (head.headers.clone(), head.version < Version::HTTP_2);
    let body = SharedBody::new(body);
    let request = Request::from_parts(head, Body::new(body.clone()));
    let mut response = route_request(context, request).await;
    let limits = &context.server.limits;
    let is_discarded = match body.into_inner() {
        Some(body) => body::discard(body, &headers, limits, begun).await,
        None => false,
    };
    if !is_discarded {
        context.activity.linger();
        if is_http1 {
            close_after(&mut response);
        }
    }
    response
}

/// Routes a request, with a timeout that depends on the route.
async fn route_request(context: &ConnectionContext, mut request: Request<Body>) -> GateResponse {
    let gate = &context.server.gate;
    let is_health = matches!(request.uri().path(), "/livez" | "/readyz" | "/healthz");
    let uri = request.uri().clone();
    if let Some(reason) = context.connection_refusal().filter(|_| !is_health) {
        let refused = response::refuse_at(gate, uri.path(), Code::Overloaded, reason.message());
        return response::from_reply(refused);
    }
    let is_post = request.method() == Method::POST;
    let is_run_report = request.uri().path().starts_with("/v1/runs/");
    // A long poll on a stream has its own limit.
    let may_wait = is_stream_route(request.uri().path());
    let wait_max = if may_wait { gate.limits.wait_max() } else { Duration::ZERO };
    // Listing ambiguous publishes queries the bus, which may take as long as a call.
    let trees = ["/v1/reconcile", "/v1/rounds/reconcile"];
    let queries_bus = trees.iter().any(|tree| request.uri().path().starts_with(tree));
    request.extensions_mut().insert(context.peer);
    request.extensions_mut().insert(Requester::new(context.auth()));
    let action_max = match is_post {
        true if request.uri().path() == RELINK => RELINK_MAX,
        true => gate.call_max(),
        false if queries_bus => gate.call_max(),
        false => Duration::ZERO,
    };
    let response = context.server.router.clone().oneshot(request);
    // A run report reads all events of the run.
    let report_max =
        gate.run_reports.as_ref().filter(|_| is_run_report).map(|reports| reports.duration_max());
    let reply_max =
        gate.limits.answer_max() + wait_max + action_max + report_max.unwrap_or_default();
    match timeout(reply_max, response).await {
        Ok(Ok(response)) => response.map(Either::Right),
        Ok(Err(never)) => match never {},
        Err(_) => {
            let message = "timeout waiting for the ledger";
            let code = Code::LedgerUnavailable;
            response::from_reply(response::refuse_at(gate, uri.path(), code, message))
        }
    }
}

async fn unknown_route(State(gate): State<Arc<Gate>>, uri: Uri) -> RouteReply {
    let message = "no route at this path";
    RouteReply(response::refuse_at(&gate, uri.path(), Code::NotFound, message))
}

async fn unknown_method(State(gate): State<Arc<Gate>>, uri: Uri) -> RouteReply {
    let message = "method not allowed at this path";
    RouteReply(response::refuse_at(&gate, uri.path(), Code::MethodNotAllowed, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_cannot_take_a_path_of_the_gate() {
        for own in ["/", "/livez", "/metrics", "/v1/receipts", "/v1/receipts/x", "/v1/intents/x"] {
            assert!(is_own_route(own), "{own}");
        }
        for free in ["/plugin/events", "/v1/receiptsx", "/v1/events", "/v1", "/v1/intents"] {
            assert!(!is_own_route(free), "{free}");
        }
    }
}
