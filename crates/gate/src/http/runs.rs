//! Routes of the scenario runner: submit, re-emit, status. The words are the runner's own.

use std::sync::Arc;

use admit_core::Code;
use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use tokio::time::timeout;

use super::answer;
use super::read::query::{Named, Sent};
use super::read::{Reader, Routed, known};
use crate::auth;
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::ingest::Ingest;
use crate::principals::Role;
use crate::runs::{Actor, ScenarioRunner, Work};

/// Names whoever has something said again.
const ACTOR: HeaderName = HeaderName::from_static("x-sr-actor");

/// Somebody who may act on runs.
pub(super) struct Operator {
    name: String,
}

impl FromRequestParts<Arc<Gate>> for Operator {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        let door = Ingest::door();
        let known = known(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}

fn runner(gate: &Gate) -> Result<&Arc<dyn ScenarioRunner>, Routed> {
    gate.runner.as_ref().ok_or_else(|| Routed::not_found(gate, "this gate has no scenario runner"))
}

/// Whether something may be begun here.
fn may_begin(gate: &Gate, headers: &HeaderMap) -> Result<(), Routed> {
    let refused = |code, message: &str| Routed(answer::refuse(gate, code, message));
    if gate.is_draining() {
        return Err(refused(Code::Draining, "the gate is shutting down"));
    }
    // No page can send this without asking first.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if is_json {
        return Ok(());
    }
    Err(refused(Code::UnsupportedMediaType, "the content type must be application/json"))
}

/// `POST /runs`: asks for a run. Where that takes longer than an answer may, it says how the run
/// stands and goes on.
pub(super) async fn submit(
    State(gate): State<Arc<Gate>>,
    _: Operator,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let begun = may_begin(&gate, &headers).and_then(|()| runner(&gate));
    let runner = match begun {
        Ok(runner) => Arc::clone(runner),
        Err(routed) => return routed,
    };
    let run = runner.run_of(&body);
    let work = Finishing::new(gate.tasks.clone(), Arc::clone(&runner).submit(body));
    match timeout(gate.limits.answer_max() / 2, work).await {
        Ok(Ok(reply)) => Routed(reply),
        Ok(Err(fault)) => Routed::fault(&gate, &fault),
        Err(_) => match run {
            Some(run) => said(&gate, runner.status(run)).await,
            None => {
                Routed(answer::refuse(&gate, Code::LedgerUnavailable, "nobody answered in time"))
            }
        },
    }
}

/// `POST /runs/{run_id}/reemit`: has the run's message said again.
pub(super) async fn reemit(
    State(gate): State<Arc<Gate>>,
    operator: Operator,
    Named(run_id): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let begun = may_begin(&gate, &headers).and_then(|()| runner(&gate));
    let runner = match begun {
        Ok(runner) => Arc::clone(runner),
        Err(routed) => return routed,
    };
    let name = match headers.get(&ACTOR).map(|name| name.to_str()) {
        None => operator.name.clone(),
        Some(Ok(name)) => name.to_owned(),
        Some(Err(_)) => {
            let message = "X-SR-Actor must be plain text";
            return Routed(answer::refuse(&gate, Code::InvalidRequest, message));
        }
    };
    let by = Actor { name, principal: operator.name };
    said(&gate, Box::pin(Finishing::new(gate.tasks.clone(), runner.reemit(run_id, by, body)))).await
}

/// `GET /runs/{run_id}`: how a run stands.
pub(super) async fn status(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(run_id): Named<String>,
) -> Routed {
    if !reader.may_see(&Ingest::door()) {
        return Routed::not_found(&gate, "the ingestion gate is not open here");
    }
    match runner(&gate) {
        Ok(runner) => said(&gate, Arc::clone(runner).status(run_id)).await,
        Err(routed) => routed,
    }
}

async fn said(gate: &Gate, work: Work) -> Routed {
    match work.await {
        Ok(reply) => Routed(reply),
        Err(fault) => Routed::fault(gate, &fault),
    }
}
