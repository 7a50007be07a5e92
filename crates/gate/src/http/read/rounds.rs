//! Routes about rounds: list, detail, diagnostics and relink.

use std::sync::Arc;

use admit_contracts::rounds::DOOR;
use admit_core::entity::{Policy, ProcessingState as RoundState};
use admit_core::json::{Object, Value};
use admit_core::{Code, Door, Seq};
use admit_ledger::port::{RecordFilter, Records};
use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use http::{HeaderMap, header};
use serde::Deserialize;

use super::query::{PathParams, QueryParams, invalid, rows};
use super::{ReadAccess, RouteReply, authorize};
use crate::auth;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::http::response;
use crate::principals::Role;
use crate::rounds as render;

/// Most unlinked events in the diagnostics.
const UNLINKED_MAX: usize = 50;

/// Query of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct RoundsQuery {
    map_name: Option<String>,
    /// Day, by the clock of the game servers.
    date: Option<String>,
    state: Option<String>,
    /// The `next` value of the previous page.
    after: Option<String>,
    limit: Option<usize>,
}

/// Query of a relink.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct RelinkQuery {
    dry_run: Option<bool>,
}

/// `GET /v1/rounds`
pub(in crate::http) async fn list(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    QueryParams(query): QueryParams<RoundsQuery>,
) -> RouteReply {
    let records = match records(&gate, &reader) {
        Ok(records) => records,
        Err(routed) => return routed,
    };
    let filter = match filter(query) {
        Ok(filter) => filter,
        Err(message) => return invalid(&gate, &message),
    };
    let rows_max = filter.rows_max;
    match records.records(filter).await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(lines) => {
            let next = lines.last().filter(|_| lines.len() >= rows_max).map(render::page_cursor);
            let rounds: Value<'_> = lines.iter().map(render::line).collect();
            RouteReply::object(200, &Object::from_iter([("rounds", rounds), ("next", next.into())]))
        }
    }
}

fn filter(query: RoundsQuery) -> Result<RecordFilter, String> {
    let not_blank = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let state = not_blank(query.state);
    if let Some(state) = state.as_deref().filter(|word| RoundState::parse(word).is_none()) {
        let states: Vec<&str> = RoundState::ALL.into_iter().map(RoundState::word).collect();
        return Err(format!("unknown state {state:?}; use one of {}", states.join(", ")));
    }
    let after = match not_blank(query.after) {
        None => None,
        Some(text) => Some(
            render::parse_cursor(&text)
                .ok_or("after must be the next value of the previous page")?,
        ),
    };
    Ok(RecordFilter {
        door: DOOR.to_owned(),
        group: not_blank(query.map_name).map(|map| map.trim().to_lowercase()),
        date: not_blank(query.date),
        state,
        after,
        rows_max: rows(query.limit)?,
    })
}

/// `GET /v1/rounds/{round_id}`
pub(in crate::http) async fn one(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(id): PathParams<String>,
) -> RouteReply {
    let records = match records(&gate, &reader) {
        Ok(records) => records,
        Err(routed) => return routed,
    };
    let found = async {
        let detail = records.record_of(DOOR.to_owned(), id.clone()).await?;
        let published = match &gate.publications {
            Some(publications) => publications.publications_of(DOOR.to_owned(), id).await?,
            None => Vec::new(),
        };
        Ok(detail.map(|detail| render::detail(&detail, &published, gate.ledger.tag())))
    };
    match found.await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(None) => RouteReply::not_found(&gate, "unknown round"),
        Ok(Some(round)) => RouteReply::object(200, &round),
    }
}

/// `GET /v1/rounds/diagnostics`
pub(in crate::http) async fn diagnostics(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
) -> RouteReply {
    let records = match records(&gate, &reader) {
        Ok(records) => records,
        Err(routed) => return routed,
    };
    let filter = render::diagnostics_filter(gate.clock.now());
    let found = async {
        let counts = records.record_counts(DOOR.to_owned(), filter).await?;
        let unlinked = records.open_events(DOOR.to_owned(), Seq(0), UNLINKED_MAX).await?;
        // Without a publisher there are no pending publications.
        let published = match &gate.publisher {
            Some(publisher) => Some(publisher.counts().await?),
            None => None,
        };
        let tag = gate.ledger.tag();
        Ok(render::diagnostics(&counts, published.as_ref(), &unlinked, tag))
    };
    match found.await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(diagnostics) => RouteReply::object(200, &diagnostics),
    }
}

/// `POST /v1/rounds/{round_id}` with an unknown source. Known sources are doors and are matched before.
pub(in crate::http) async fn unknown(State(gate): State<Arc<Gate>>) -> RouteReply {
    RouteReply::not_found(&gate, "unknown source of rounds")
}

/// A principal with the role `operate` at the rounds door.
pub(in crate::http) struct RelinkOperator;

impl FromRequestParts<Arc<Gate>> for RelinkOperator {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        let door = Door::new(DOOR);
        authorize(head, gate, |known| auth::permit(known, Role::Operate, &door)).map(|_| Self)
    }
}

/// `POST /v1/rounds/relink`
pub(in crate::http) async fn relink(
    State(gate): State<Arc<Gate>>,
    _operator: RelinkOperator,
    QueryParams(query): QueryParams<RelinkQuery>,
    headers: HeaderMap,
) -> RouteReply {
    let refused = |code, message: &str| RouteReply(response::refuse(&gate, code, message));
    if gate.is_draining() {
        return refused(Code::Draining, "the gate is shutting down");
    }
    // Browsers send this content type to another origin only after a CORS preflight.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !is_json {
        return refused(Code::UnsupportedMediaType, "the content type must be application/json");
    }
    let Some((records, policy)) = records_and_policy(&gate) else {
        return RouteReply::not_found(&gate, "the rounds door is not configured");
    };
    let is_dry = query.dry_run.unwrap_or(false);
    let at = gate.clock.now();
    let work = async move { records.relink(DOOR.to_owned(), policy, at, is_dry).await };
    let relinked = RunToCompletion::new(gate.tasks.clone(), work).await;
    if let Some(publisher) = &gate.publisher {
        publisher.wake();
    }
    match relinked {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(relinked) => RouteReply::object(
            200,
            &Object::from_iter([
                ("scanned", Value::from(relinked.scanned)),
                ("updated", relinked.updated.into()),
                ("dry_run", is_dry.into()),
            ]),
        ),
    }
}

/// Returns the records and their merge policy, if the rounds door is configured.
pub(in crate::http) fn records_and_policy(gate: &Gate) -> Option<(Arc<dyn Records>, Arc<Policy>)> {
    let mount = gate.doors.iter().find(|mount| mount.door.as_str() == DOOR)?;
    Some((Arc::clone(gate.records.as_ref()?), Arc::clone(mount.contract.record_policy()?)))
}

/// Returns the records, if the reader may see the rounds door.
fn records<'g>(gate: &'g Gate, reader: &ReadAccess) -> Result<&'g Arc<dyn Records>, RouteReply> {
    if !reader.may_see(&Door::new(DOOR)) {
        let message = "this principal may not read this door";
        return Err(RouteReply(response::refuse(gate, Code::Forbidden, message)));
    }
    gate.records
        .as_ref()
        .ok_or_else(|| RouteReply::not_found(gate, "the rounds door is not configured"))
}
