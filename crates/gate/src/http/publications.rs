//! Routes about ambiguous publications of rounds: list and reconcile.

use std::sync::Arc;

use admit_contracts::rounds::DOOR;
use admit_core::effect::{Attribution, EffectState};
use admit_core::json::{Object, Value};
use admit_core::{Code, Door};
use axum::extract::{FromRequestParts, State};
use http::HeaderMap;
use http::request::Parts;
use serde::Deserialize;

use super::ingest::parse_operator_request;
use super::read::query::{BodyBytes, PathParams, QueryParams, invalid, rows};
use super::read::{ReadAccess, RouteReply, authorize};
use super::response;
use crate::auth;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::ingest::reconcile::ReconcileError;
use crate::principals::Role;

const NO_PUBLISHER: &str = "publication of rounds is not configured";

/// Query of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AmbiguousRoundsQuery {
    /// The `next` value of the previous page.
    after: Option<i64>,
    limit: Option<usize>,
}

/// `GET /v1/rounds/reconcile`: ambiguous publications, each with its search result on the bus.
pub(super) async fn list_ambiguous(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    QueryParams(query): QueryParams<AmbiguousRoundsQuery>,
) -> RouteReply {
    let publisher = gate.publisher.as_ref().filter(|_| reader.may_see(&Door::new(DOOR)));
    let Some(publisher) = publisher else { return RouteReply::not_found(&gate, NO_PUBLISHER) };
    let limit = match rows(query.limit) {
        Ok(limit) => limit,
        Err(message) => return invalid(&gate, &message),
    };
    let Ok(after) = u64::try_from(query.after.unwrap_or(0)) else {
        return invalid(&gate, "after must be the next value of the previous page");
    };
    match publisher.list_ambiguous(after, limit).await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(ambiguous) => {
            let next = ambiguous.last().filter(|_| ambiguous.len() == limit);
            let next = next.map(|item| item.publication.n);
            let listed: Value<'_> = ambiguous.iter().map(|item| item.to_object()).collect();
            RouteReply::object(
                200,
                &Object::from_iter([("ambiguous", listed), ("next", next.into())]),
            )
        }
    }
}

/// `POST /v1/rounds/reconcile/{key}`: an operator resolves an ambiguous publication.
pub(super) async fn reconcile(
    State(gate): State<Arc<Gate>>,
    operator: RoundOperator,
    PathParams(key): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let refused = |code, message: &str| RouteReply(response::refuse(&gate, code, message));
    let Some(publisher) = &gate.publisher else {
        return RouteReply::not_found(&gate, NO_PUBLISHER);
    };
    let request = match parse_operator_request(
        &gate,
        &headers,
        &body,
        &["resolution", "reason", "partition", "offset"],
    ) {
        Ok(request) => request,
        Err(routed) => return routed,
    };
    let resolution = match request.resolution() {
        Ok(resolution) => resolution,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let by = Attribution { who: operator.name, why: Some(request.reason) };
    let work = {
        let (publisher, key) = (Arc::clone(publisher), key.clone());
        async move { publisher.reconcile(&key, resolution, by).await }
    };
    match RunToCompletion::new(gate.tasks.clone(), work).await {
        Ok(resolved) => {
            let is_published = matches!(resolved.state, EffectState::Done(_));
            let object = Object::from_iter([
                ("dedupe_key", Value::from(key)),
                ("state", if is_published { "published" } else { "released" }.into()),
                ("round_id", resolved.record_id.into()),
                ("revision", resolved.revision.into()),
            ]);
            RouteReply::object(200, &object)
        }
        Err(ReconcileError::NotFound) => RouteReply::not_found(&gate, "unknown publication"),
        Err(ReconcileError::Refused(message)) => refused(Code::NotReconcilable, &message),
        Err(ReconcileError::Fault(fault)) => RouteReply::fault(&gate, &fault),
    }
}

/// A principal with the role `operate` at the rounds door.
pub(super) struct RoundOperator {
    pub(super) name: String,
}

impl FromRequestParts<Arc<Gate>> for RoundOperator {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        let door = Door::new(DOOR);
        let known = authorize(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}
