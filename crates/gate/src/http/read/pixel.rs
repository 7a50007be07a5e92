//! Read models of the pixel-control door: game servers by principal and login.

use std::sync::Arc;

use admit_contracts::pixel_control::{DOOR, read, server_state as model};
use admit_core::json::{Object, Value};
use admit_core::{Code, Door, Fault, FaultKind};
use axum::extract::State;

use super::query::{DocumentsQuery, PathParams, QueryParams, invalid, rows};
use super::{ReadAccess, RouteReply};
use crate::gate::Gate;
use crate::http::response;

/// `GET /v1/pixel/servers`: all servers.
pub(in crate::http) async fn servers(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    QueryParams(query): QueryParams<DocumentsQuery>,
) -> RouteReply {
    list(&gate, &reader, String::new(), query).await
}

/// `GET /v1/pixel/servers/{scope}`: the servers of one principal.
pub(in crate::http) async fn servers_of(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(scope): PathParams<String>,
    QueryParams(query): QueryParams<DocumentsQuery>,
) -> RouteReply {
    list(&gate, &reader, model::scope_prefix(&scope), query).await
}

/// `GET /v1/pixel/servers/{scope}/{login}`: one server.
pub(in crate::http) async fn server(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams((scope, login)): PathParams<(String, String)>,
) -> RouteReply {
    one(&gate, &reader, &scope, &login).await
}

/// `GET /v1/pixel/servers/{scope}/`: events without a server login.
pub(in crate::http) async fn server_without_login(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(scope): PathParams<String>,
) -> RouteReply {
    one(&gate, &reader, &scope, "").await
}

async fn list(
    gate: &Gate,
    reader: &ReadAccess,
    prefix: String,
    query: DocumentsQuery,
) -> RouteReply {
    if let Some(refused) = check_access(gate, reader) {
        return refused;
    }
    let rows_max = match rows(query.limit) {
        Ok(rows_max) => rows_max,
        Err(message) => return invalid(gate, &message),
    };
    let found = gate.ledger.documents(model::PROJECTION, prefix, query.after, rows_max).await;
    let documents = match found {
        Ok(documents) => documents,
        Err(fault) => return RouteReply::fault(gate, &fault),
    };
    let now = gate.clock.now();
    let items: Result<Vec<_>, _> =
        documents.iter().map(|(_, document)| read::list_item(document, now)).collect();
    match items {
        Err(error) => damaged_document(gate, error),
        Ok(items) => {
            let next = documents.last().filter(|_| documents.len() >= rows_max);
            let next = Value::from(next.map(|(entity, _)| entity.as_str()));
            let page = [("servers", Value::from(items)), ("next", next)];
            RouteReply::object(200, &Object::from_iter(page))
        }
    }
}

async fn one(gate: &Gate, reader: &ReadAccess, scope: &str, login: &str) -> RouteReply {
    if let Some(refused) = check_access(gate, reader) {
        return refused;
    }
    match gate.ledger.document(model::document_id(scope, login)).await {
        Err(fault) => RouteReply::fault(gate, &fault),
        Ok(None) => RouteReply::not_found(gate, "unknown server"),
        Ok(Some(document)) => match read::server(&document, gate.clock.now()) {
            Ok(server) => RouteReply::object(200, &server),
            Err(error) => damaged_document(gate, error),
        },
    }
}

fn check_access(gate: &Gate, reader: &ReadAccess) -> Option<RouteReply> {
    let message = "this principal may not read this door";
    let may = reader.may_see(&Door::new(DOOR));
    (!may).then(|| RouteReply(response::refuse(gate, Code::Forbidden, message)))
}

fn damaged_document(gate: &Gate, error: read::DocumentError) -> RouteReply {
    let message = "invalid stored document";
    RouteReply::fault(gate, &Fault::caused_by(FaultKind::Internal, message, error))
}
