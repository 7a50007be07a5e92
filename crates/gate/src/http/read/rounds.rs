//! Rounds: the list, one of them, how it goes with all of them, and linking again.

use std::sync::Arc;

use admit_contracts::rounds::DOOR;
use admit_core::json::{Object, Value};
use admit_core::entity::{Policy, ProcessingState as RoundState};
use admit_core::{Code, Door, Seq};
use admit_ledger::port::{RecordFilter, Records};
use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use http::{HeaderMap, header};
use serde::Deserialize;

use super::query::{Asked, Named, invalid, rows};
use super::{Reader, Routed, known};
use crate::auth;
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::http::answer;
use crate::principals::Role;
use crate::rounds as told;

/// So many events that are not linked are shown by the diagnostics.
const UNLINKED_MAX: usize = 50;

/// The query of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct RoundsQuery {
    map_name: Option<String>,
    /// The day, by the servers' own clock.
    date: Option<String>,
    state: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    limit: Option<usize>,
}

/// The query of linking again.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct RelinkQuery {
    dry_run: Option<bool>,
}

/// `GET /v1/rounds`
pub(in crate::http) async fn list(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Asked(query): Asked<RoundsQuery>,
) -> Routed {
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
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(lines) => {
            let next = lines.last().filter(|_| lines.len() >= rows_max).map(told::next);
            let rounds: Value<'_> = lines.iter().map(told::line).collect();
            Routed::object(200, &Object::from_iter([("rounds", rounds), ("next", next.into())]))
        }
    }
}

fn filter(query: RoundsQuery) -> Result<RecordFilter, String> {
    let wanted = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let state = wanted(query.state);
    if let Some(state) = state.as_deref().filter(|word| RoundState::parse(word).is_none()) {
        let states: Vec<&str> = RoundState::ALL.into_iter().map(RoundState::word).collect();
        return Err(format!("there is no state {state:?}, it must be of {}", states.join(", ")));
    }
    let after = match wanted(query.after) {
        None => None,
        Some(text) => Some(told::after(&text).ok_or("after must be the next of a page before")?),
    };
    Ok(RecordFilter {
        door: DOOR.to_owned(),
        group: wanted(query.map_name).map(|map| map.trim().to_lowercase()),
        date: wanted(query.date),
        state,
        after,
        rows_max: rows(query.limit)?,
    })
}

/// `GET /v1/rounds/{round_id}`
pub(in crate::http) async fn one(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(id): Named<String>,
) -> Routed {
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
        Ok(detail.map(|detail| told::detail(&detail, &published, gate.ledger.tag())))
    };
    match found.await {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(None) => Routed::not_found(&gate, "there is no such round"),
        Ok(Some(round)) => Routed::object(200, &round),
    }
}

/// `GET /v1/rounds/diagnostics`
pub(in crate::http) async fn diagnostics(State(gate): State<Arc<Gate>>, reader: Reader) -> Routed {
    let records = match records(&gate, &reader) {
        Ok(records) => records,
        Err(routed) => return routed,
    };
    let asked = told::asked(gate.clock.now());
    let found = async {
        let counts = records.record_counts(DOOR.to_owned(), asked).await?;
        let unlinked = records.open_events(DOOR.to_owned(), Seq(0), UNLINKED_MAX).await?;
        // Where nothing is published, nothing waits for it.
        let published = match &gate.publisher {
            Some(publisher) => Some(publisher.counts().await?),
            None => None,
        };
        let tag = gate.ledger.tag();
        Ok(told::diagnostics(&counts, published.as_ref(), &unlinked, tag))
    };
    match found.await {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(diagnostics) => Routed::object(200, &diagnostics),
    }
}

/// `POST /v1/rounds/{round_id}` where that is no source: sources are doors, and matched before.
pub(in crate::http) async fn unknown(State(gate): State<Arc<Gate>>) -> Routed {
    Routed::not_found(&gate, "there is no such source")
}

/// Somebody who may link again.
pub(in crate::http) struct Operator;

impl FromRequestParts<Arc<Gate>> for Operator {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        let door = Door::new(DOOR);
        known(head, gate, |known| auth::permit(known, Role::Operate, &door)).map(|_| Self)
    }
}

/// `POST /v1/rounds/relink`
pub(in crate::http) async fn relink(
    State(gate): State<Arc<Gate>>,
    _operator: Operator,
    Asked(query): Asked<RelinkQuery>,
    headers: HeaderMap,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    if gate.is_draining() {
        return refused(Code::Draining, "the gate is shutting down");
    }
    // No page can send this without asking first.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !is_json {
        return refused(Code::UnsupportedMediaType, "the content type must be application/json");
    }
    let Some((records, policy)) = opened(&gate) else {
        return Routed::not_found(&gate, "this gate has no rounds");
    };
    let is_dry = query.dry_run.unwrap_or(false);
    let at = gate.clock.now();
    let work = async move { records.relink(DOOR.to_owned(), policy, at, is_dry).await };
    let relinked = Finishing::new(gate.tasks.clone(), work).await;
    if let Some(publisher) = &gate.publisher {
        publisher.wake();
    }
    match relinked {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(relinked) => Routed::object(
            200,
            &Object::from_iter([
                ("scanned", Value::from(relinked.scanned)),
                ("updated", relinked.updated.into()),
                ("dry_run", is_dry.into()),
            ]),
        ),
    }
}

/// The records, and the table by which they are put together, where this gate has the door.
pub(in crate::http) fn opened(gate: &Gate) -> Option<(Arc<dyn Records>, Arc<Policy>)> {
    let mount = gate.doors.iter().find(|mount| mount.door.as_str() == DOOR)?;
    Some((Arc::clone(gate.records.as_ref()?), Arc::clone(mount.contract.record_policy()?)))
}

/// The records, for somebody who may read them.
fn records<'g>(gate: &'g Gate, reader: &Reader) -> Result<&'g Arc<dyn Records>, Routed> {
    if !reader.may_see(&Door::new(DOOR)) {
        let message = "this key may not read this door";
        return Err(Routed(answer::refuse(gate, Code::Forbidden, message)));
    }
    gate.records.as_ref().ok_or_else(|| Routed::not_found(gate, "this gate has no rounds"))
}
