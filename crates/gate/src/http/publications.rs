//! Routes about published rounds: what is ambiguous, and what a person makes of it.

use std::sync::Arc;

use admit_contracts::rounds::DOOR;
use admit_core::effect::{Attribution, EffectState};
use admit_core::json::{Object, Value};
use admit_core::{Code, Door};
use axum::extract::{FromRequestParts, State};
use http::HeaderMap;
use http::request::Parts;
use serde::Deserialize;

use super::answer;
use super::ingest::said;
use super::read::query::{Asked, Named, Sent, invalid, rows};
use super::read::{Reader, Routed, known};
use crate::auth;
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::ingest::reconcile::Unresolved;
use crate::principals::Role;

const NOT_PUBLISHED: &str = "this gate publishes no rounds";

/// The query of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DoubtsQuery {
    /// The `next` of the page before.
    after: Option<i64>,
    limit: Option<usize>,
}

/// `GET /v1/rounds/reconcile`: ambiguous publications, with what the bus says of each.
pub(super) async fn doubts(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Asked(query): Asked<DoubtsQuery>,
) -> Routed {
    let seen = gate.publisher.as_ref().filter(|_| reader.may_see(&Door::new(DOOR)));
    let Some(publisher) = seen else { return Routed::not_found(&gate, NOT_PUBLISHED) };
    let limit = match rows(query.limit) {
        Ok(limit) => limit,
        Err(message) => return invalid(&gate, &message),
    };
    let Ok(after) = u64::try_from(query.after.unwrap_or(0)) else {
        return invalid(&gate, "after must be the next of a page before");
    };
    match publisher.doubts(after, limit).await {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(doubts) => {
            let next = doubts.last().filter(|_| doubts.len() == limit);
            let next = next.map(|doubt| doubt.publication.n);
            let listed: Value<'_> = doubts.iter().map(|doubt| doubt.listed()).collect();
            Routed::object(200, &Object::from_iter([("ambiguous", listed), ("next", next.into())]))
        }
    }
}

/// `POST /v1/rounds/reconcile/{key}`: a person says what became of an ambiguous publication.
pub(super) async fn reconcile(
    State(gate): State<Arc<Gate>>,
    operator: Operator,
    Named(key): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    let Some(publisher) = &gate.publisher else {
        return Routed::not_found(&gate, NOT_PUBLISHED);
    };
    let asked = match said(&gate, &headers, &body, &["resolution", "reason", "partition", "offset"])
    {
        Ok(asked) => asked,
        Err(routed) => return routed,
    };
    let resolution = match asked.resolution() {
        Ok(resolution) => resolution,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let by = Attribution { who: operator.name, why: Some(asked.reason) };
    let work = {
        let (publisher, key) = (Arc::clone(publisher), key.clone());
        async move { publisher.reconcile(&key, resolution, by).await }
    };
    match Finishing::new(gate.tasks.clone(), work).await {
        Ok(resolved) => {
            let is_out = matches!(resolved.state, EffectState::Done(_));
            let object = Object::from_iter([
                ("dedupe_key", Value::from(key)),
                ("state", if is_out { "published" } else { "released" }.into()),
                ("round_id", resolved.record_id.into()),
                ("revision", resolved.revision.into()),
            ]);
            Routed::object(200, &object)
        }
        Err(Unresolved::NotFound) => Routed::not_found(&gate, "there is no such publication"),
        Err(Unresolved::Refused(message)) => refused(Code::NotReconcilable, &message),
        Err(Unresolved::Fault(fault)) => Routed::fault(&gate, &fault),
    }
}

/// Somebody who may act on what was published.
pub(super) struct Operator {
    pub(super) name: String,
}

impl FromRequestParts<Arc<Gate>> for Operator {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        let door = Door::new(DOOR);
        let known = known(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}
