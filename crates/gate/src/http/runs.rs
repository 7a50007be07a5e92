//! Routes of the scenario runner: submit, re-emit, status. Replies are in the runner's format.

use std::sync::Arc;

use admit_core::Code;
use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use tokio::time::timeout;

use super::read::query::{BodyBytes, PathParams};
use super::read::{ReadAccess, RouteReply, authorize};
use super::response;
use crate::auth;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::ingest::Ingest;
use crate::principals::Role;
use crate::scenario_runner::{Actor, RunnerFuture, ScenarioRunner};

/// Request header with the name of the person who re-emits a message.
const ACTOR: HeaderName = HeaderName::from_static("x-sr-actor");

/// A principal with the role `operate` for runs.
pub(super) struct RunOperator {
    name: String,
}

impl FromRequestParts<Arc<Gate>> for RunOperator {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        let door = Ingest::door();
        let known = authorize(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}

/// Path of these routes, whose errors are in the format of the ingestion gate.
const RUNS: &str = "/runs";

fn refused(gate: &Gate, code: Code, message: &str) -> RouteReply {
    RouteReply(response::refuse_at(gate, RUNS, code, message))
}

fn runner(gate: &Gate) -> Result<&Arc<dyn ScenarioRunner>, RouteReply> {
    let message = "the scenario runner is not configured";
    gate.runner.as_ref().ok_or_else(|| refused(gate, Code::NotFound, message))
}

/// Checks that the gate is not draining and that the content type is JSON.
fn check_request(gate: &Gate, headers: &HeaderMap) -> Result<(), RouteReply> {
    if gate.is_draining() {
        return Err(refused(gate, Code::Draining, "the gate is shutting down"));
    }
    // Browsers send this content type to another origin only after a CORS preflight.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if is_json {
        return Ok(());
    }
    Err(refused(gate, Code::UnsupportedMediaType, "the content type must be application/json"))
}

/// `POST /runs`: submits a run. If that takes longer than a reply may, the reply is the status of the run,
/// and the submission continues.
pub(super) async fn submit(
    State(gate): State<Arc<Gate>>,
    _: RunOperator,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let runner = check_request(&gate, &headers).and_then(|()| runner(&gate));
    let runner = match runner {
        Ok(runner) => Arc::clone(runner),
        Err(routed) => return routed,
    };
    let run = runner.run_of(&body);
    let work = RunToCompletion::new(gate.tasks.clone(), Arc::clone(&runner).submit(body));
    match timeout(gate.limits.answer_max() / 2, work).await {
        Ok(Ok(reply)) => RouteReply(reply),
        Ok(Err(fault)) => RouteReply::fault_at(&gate, RUNS, &fault),
        Err(_) => match run {
            Some(run) => reply(&gate, runner.status(run)).await,
            None => {
                let message = "timeout waiting for the scenario runner";
                refused(&gate, Code::LedgerUnavailable, message)
            }
        },
    }
}

/// `POST /runs/{run_id}/reemit`: publishes the message of a run again.
pub(super) async fn reemit(
    State(gate): State<Arc<Gate>>,
    operator: RunOperator,
    PathParams(run_id): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let runner = check_request(&gate, &headers).and_then(|()| runner(&gate));
    let runner = match runner {
        Ok(runner) => Arc::clone(runner),
        Err(routed) => return routed,
    };
    let name = match headers.get(&ACTOR).map(|name| name.to_str()) {
        None => operator.name.clone(),
        Some(Ok(name)) => name.to_owned(),
        Some(Err(_)) => {
            let message = "X-SR-Actor must be visible ASCII";
            return refused(&gate, Code::InvalidRequest, message);
        }
    };
    let by = Actor { name, principal: operator.name };
    reply(
        &gate,
        Box::pin(RunToCompletion::new(gate.tasks.clone(), runner.reemit(run_id, by, body))),
    )
    .await
}

/// `GET /runs/{run_id}`: status of a run.
pub(super) async fn status(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(run_id): PathParams<String>,
) -> RouteReply {
    if !reader.may_see(&Ingest::door()) {
        return refused(&gate, Code::NotFound, "the ingestion gate is not configured");
    }
    match runner(&gate) {
        Ok(runner) => reply(&gate, Arc::clone(runner).status(run_id)).await,
        Err(routed) => routed,
    }
}

async fn reply(gate: &Gate, work: RunnerFuture) -> RouteReply {
    match work.await {
        Ok(reply) => RouteReply(reply),
        Err(fault) => RouteReply::fault_at(gate, RUNS, &fault),
    }
}
