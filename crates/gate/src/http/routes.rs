//! The table of routes beside the doors, and what is said where there is none.

use std::sync::Arc;
use std::time::Duration;

use admit_contracts::Reply;
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

use super::answer::{self, Answer};
use super::body::{self, Lent};
use super::connection::{Visit, close_after};
use super::read::{
    Requester, Routed, health, inbox, intents, metrics, pixel, receipts, rounds, streams,
};
use super::{accept, accounts, clock, ingest, openapi, operate, publications, runs};
use crate::gate::{DEFAULT_STREAM_PATH, Gate};

/// Where everything that is not linked is linked again, and how long that may take.
const RELINK: &str = "/v1/rounds/relink";
const RELINK_MAX: Duration = Duration::from_secs(100);

/// What the gate answers itself. Doors are matched before, by their configured paths.
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
        .route("/v1/intents/{receipt_id}/replay", post(operate::replay))
        .route("/v1/ops/lookup", get(ingest::lookup))
        .route("/v1/ops/health", get(ingest::health))
        .route("/v1/ops/confirm-time", post(clock::confirm))
        .route("/v1/reconcile", get(ingest::doubts))
        .route("/v1/reconcile/{key}", post(ingest::reconcile))
        .route("/v1/quarantine/{id}/release", post(ingest::release))
        .route("/runs", post(runs::submit))
        .route("/runs/{run_id}", get(runs::status))
        .route("/runs/{run_id}/reemit", post(runs::reemit))
        .route("/v1/runs", get(accounts::list))
        .route("/v1/runs/{platform_run_id}/report", get(accounts::report))
        .route("/v1/runs/{platform_run_id}/close", post(accounts::close))
        .route("/v1/pixel/servers", get(pixel::servers))
        .route("/v1/pixel/servers/{scope}", get(pixel::servers_of))
        .route("/v1/pixel/servers/{scope}/", get(pixel::server_without_login))
        .route("/v1/pixel/servers/{scope}/{login}", get(pixel::server))
        .route("/v1/rounds", get(rounds::list))
        .route("/v1/rounds/diagnostics", get(rounds::diagnostics))
        .route("/v1/rounds/relink", post(rounds::relink))
        .route("/v1/rounds/accept/{receipt_id}", post(accept::accept))
        .route("/v1/rounds/reconcile", get(publications::doubts))
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

/// Whether a path belongs to the gate, now or by what it has promised to answer one day.
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
    // The doors themselves stand at the roots of these trees.
    let is_below_a_door = path.starts_with("/v1/intents/") || path.starts_with("/v1/rounds/");
    PATHS.contains(&path) || TREES.iter().any(is_in) || is_below_a_door
}

/// Whether a path is one of a stream; its doors are there too.
pub(super) fn is_stream_route(path: &str) -> bool {
    path.strip_prefix(DEFAULT_STREAM_PATH)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request that is at no door. Hardly anybody here reads a body; a producer at a wrong path is
/// sending one all the same, and listens when it has sent it.
pub(super) async fn answer(visit: &Visit, request: Request<Incoming>, begun: Instant) -> Answer {
    if request.body().is_end_stream() {
        return answer_apart(visit, request.map(Body::new)).await;
    }
    let (head, body) = request.into_parts();
    let (headers, is_http1) = (head.headers.clone(), head.version < Version::HTTP_2);
    let body = Lent::new(body);
    let request = Request::from_parts(head, Body::new(body.clone()));
    let mut answer = answer_apart(visit, request).await;
    let limits = &visit.server.limits;
    let is_gone = match body.take_back() {
        Some(body) => body::discard(body, &headers, limits, begun).await,
        None => false,
    };
    if !is_gone {
        visit.traffic.linger();
        if is_http1 {
            close_after(&mut answer);
        }
    }
    answer
}

/// The same apart from what is left of the body.
async fn answer_apart(visit: &Visit, mut request: Request<Body>) -> Answer {
    let gate = &visit.server.gate;
    let is_health = matches!(request.uri().path(), "/livez" | "/readyz" | "/healthz");
    let is_question = ingest::is_question(request.uri().path());
    if let Some(reason) = visit.turned_away().filter(|_| !is_health) {
        let refused = refuse_at(gate, is_question, Code::Overloaded, reason.message());
        return answer::from_reply(refused);
    }
    let is_acting = request.method() == Method::POST;
    let is_account = request.uri().path().starts_with("/v1/runs/");
    // Whoever waits for news says how long, within a limit of its own.
    let may_wait = is_stream_route(request.uri().path());
    let wait_max = if may_wait { gate.limits.wait_max() } else { Duration::ZERO };
    // The bus is asked about each of what is ambiguous, which may take as long as a call.
    let trees = ["/v1/reconcile", "/v1/rounds/reconcile"];
    let asks_the_bus = trees.iter().any(|tree| request.uri().path().starts_with(tree));
    request.extensions_mut().insert(visit.peer);
    request.extensions_mut().insert(Requester::of(visit.standing()));
    let acts = match is_acting {
        true if request.uri().path() == RELINK => RELINK_MAX,
        true => gate.call_max(),
        false if asks_the_bus => gate.call_max(),
        false => Duration::ZERO,
    };
    let routed = visit.server.router.clone().oneshot(request);
    // Whoever asks about a run as a whole has everything of it read.
    let reads = gate.accounts.as_ref().filter(|_| is_account).map(|books| books.patience());
    let patience = gate.limits.answer_max() + wait_max + acts + reads.unwrap_or_default();
    match timeout(patience, routed).await {
        Ok(Ok(response)) => response.map(Either::Right),
        Ok(Err(never)) => match never {},
        Err(_) => {
            let message = "the ledger did not answer in time";
            answer::from_reply(refuse_at(gate, is_question, Code::LedgerUnavailable, message))
        }
    }
}

async fn unknown_route(State(gate): State<Arc<Gate>>) -> Routed {
    Routed(answer::refuse(&gate, Code::NotFound, "there is nothing at this path"))
}

async fn unknown_method(State(gate): State<Arc<Gate>>, uri: Uri) -> Routed {
    let message = "this path does not answer this method";
    Routed(refuse_at(&gate, ingest::is_question(uri.path()), Code::MethodNotAllowed, message))
}

/// A refusal in the general dialect, or in the words of the ingestion gate where a question to it is refused.
fn refuse_at(gate: &Gate, is_question: bool, code: Code, message: &str) -> Reply {
    let own = if is_question { ingest::refuse(gate, code, message) } else { None };
    own.unwrap_or_else(|| answer::refuse(gate, code, message))
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
