//! The read models of the pixel-control door: game servers, by who sent their events.

use std::sync::Arc;

use admit_contracts::pixel_control::{DOOR, read, server_state as model};
use admit_core::json::{Object, Value};
use admit_core::{Code, Door, Fault, FaultKind};
use axum::extract::State;

use super::query::{Asked, DocumentsQuery, Named, invalid, rows};
use super::{Reader, Routed};
use crate::gate::Gate;
use crate::http::answer;

/// `GET /v1/pixel/servers`: all servers.
pub(in crate::http) async fn servers(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Asked(query): Asked<DocumentsQuery>,
) -> Routed {
    list(&gate, &reader, String::new(), query).await
}

/// `GET /v1/pixel/servers/{scope}`: the servers of one principal.
pub(in crate::http) async fn servers_of(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(scope): Named<String>,
    Asked(query): Asked<DocumentsQuery>,
) -> Routed {
    list(&gate, &reader, model::scope_prefix(&scope), query).await
}

/// `GET /v1/pixel/servers/{scope}/{login}`: one server.
pub(in crate::http) async fn server(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named((scope, login)): Named<(String, String)>,
) -> Routed {
    one(&gate, &reader, &scope, &login).await
}

/// `GET /v1/pixel/servers/{scope}/`: what was said by servers that did not name themselves.
pub(in crate::http) async fn server_without_login(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(scope): Named<String>,
) -> Routed {
    one(&gate, &reader, &scope, "").await
}

async fn list(gate: &Gate, reader: &Reader, prefix: String, query: DocumentsQuery) -> Routed {
    if let Some(refused) = refused(gate, reader) {
        return refused;
    }
    let rows_max = match rows(query.limit) {
        Ok(rows_max) => rows_max,
        Err(message) => return invalid(gate, &message),
    };
    let found = gate.ledger.documents(model::PROJECTION, prefix, query.after, rows_max).await;
    let documents = match found {
        Ok(documents) => documents,
        Err(fault) => return Routed::fault(gate, &fault),
    };
    let now = gate.clock.now();
    let items: Result<Vec<_>, _> =
        documents.iter().map(|(_, document)| read::list_item(document, now)).collect();
    match items {
        Err(error) => damaged(gate, error),
        Ok(items) => {
            let next = documents.last().filter(|_| documents.len() >= rows_max);
            let next = Value::from(next.map(|(entity, _)| entity.as_str()));
            let page = [("servers", Value::from(items)), ("next", next)];
            Routed::object(200, &Object::from_iter(page))
        }
    }
}

async fn one(gate: &Gate, reader: &Reader, scope: &str, login: &str) -> Routed {
    if let Some(refused) = refused(gate, reader) {
        return refused;
    }
    match gate.ledger.document(model::document_id(scope, login)).await {
        Err(fault) => Routed::fault(gate, &fault),
        Ok(None) => Routed::not_found(gate, "nothing is known of such a server"),
        Ok(Some(document)) => match read::server(&document, gate.clock.now()) {
            Ok(server) => Routed::object(200, &server),
            Err(error) => damaged(gate, error),
        },
    }
}

fn refused(gate: &Gate, reader: &Reader) -> Option<Routed> {
    let message = "this key may not read this door";
    let may = reader.may_see(&Door::new(DOOR));
    (!may).then(|| Routed(answer::refuse(gate, Code::Forbidden, message)))
}

fn damaged(gate: &Gate, error: read::DocumentError) -> Routed {
    let message = "a stored document cannot be read";
    Routed::fault(gate, &Fault::caused_by(FaultKind::Internal, message, error))
}
