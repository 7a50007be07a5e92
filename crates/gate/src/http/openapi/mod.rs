//! `GET /openapi.json`: every route of this gate, its doors at their configured paths.
//!
//! Generated from the mounted doors; contracts describe their own formats. A test compares the routes of
//! `routes.rs` with this document.

mod inbox;
mod ingestion;
mod rounds;
mod run_reports;
mod runs;
mod schemas;
mod table;

use std::sync::Arc;

use admit_contracts::describe::{Description, ResponseDescription};
use admit_core::Code;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::FixedDocument;
use crate::builder::DoorMount;
use crate::gate::Gate;
use crate::principals::Role;
use table::{AccessClass, ROUTES, Route};

const JSON: &str = "application/json";

/// Errors of every route.
const COMMON_CODES: &[Code] = &[
    Code::InvalidRequest,
    Code::RequestTimeout,
    Code::Overloaded,
    Code::Draining,
    Code::LedgerUnavailable,
    Code::InternalError,
];

/// Additional errors of routes that need a key.
const KEY_CODES: &[Code] = &[Code::Unauthorized, Code::Forbidden, Code::RateLimited];

/// Additional errors of routes for consumers.
const CONSUMER_CODES: &[Code] =
    &[Code::NotFound, Code::LeaseLost, Code::UnsupportedMediaType, Code::BodyTooLarge];

/// Additional errors of intent replays.
const REPLAY_CODES: &[Code] = &[
    Code::NotFound,
    Code::InWork,
    Code::NotReplayable,
    Code::UnsupportedMediaType,
    Code::BodyTooLarge,
];

/// Additional errors of reconciling and releasing.
const RECONCILE_CODES: &[Code] =
    &[Code::NotFound, Code::NotReconcilable, Code::UnsupportedMediaType, Code::BodyTooLarge];

/// Stream paths; `post` without a door there replies with `not_found`.
const STREAM_PATHS: [&str; 2] = ["/v1/events", "/v1/events/{stream}"];

/// Path of a round for `get`; `post` with an unknown source replies with `not_found`.
const ROUND_PATH: &str = "/v1/rounds/{round_id}";

/// `GET /openapi.json`, rendered at the first request for it.
pub(super) async fn document(State(gate): State<Arc<Gate>>, headers: HeaderMap) -> Response {
    gate.openapi.get_or_init(|| FixedDocument::json(render(&gate))).to_response(&headers)
}

fn render(gate: &Gate) -> Vec<u8> {
    document_of(&gate.doors, gate.principals.is_open(), gate.limits.wait_ms_max)
        .to_string()
        .into_bytes()
}

fn document_of(doors: &[Arc<DoorMount>], is_open: bool, wait_ms_max: u64) -> Value {
    let mut paths = json!({});
    for route in ROUTES.iter().chain(runs::ROUTES).chain(run_reports::ROUTES) {
        paths[route.path][route.method] = route_operation(route, is_open);
    }
    // Errors at unknown stream names are in the format of the stream contract.
    let stream = doors.iter().find(|mount| mount.door.as_str().starts_with("events/"));
    for path in STREAM_PATHS {
        paths[path]["post"] = stream_operation(path, stream, is_open);
    }
    paths[ROUND_PATH]["post"] = unknown_source_operation();
    for mount in doors {
        for path in mount.paths() {
            paths[&path]["post"] = submission_operation(mount, &path, is_open);
            if mount.contract.takes_messages() {
                paths[&path]["get"] = websocket_operation(mount, &path, is_open);
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Admit",
            "summary": "Ingestion gate for events.",
            "description": "Admits every event exactly once, acknowledges it only after it is \
                            durable, and records a receipt for every decision.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas::schemas(),
            "parameters": schemas::with(&schemas::parameters(wait_ms_max), &runs::parameters()),
            "headers": schemas::headers(),
            "securitySchemes": schemes(doors),
        },
    })
}

fn route_operation(route: &Route, is_open: bool) -> Value {
    let schema = match route.schema {
        "" => json!({ "type": "string" }),
        name => schemas::reference("schemas", name),
    };
    let response = |content_type: &&'static str| ResponseDescription {
        status: 200,
        when: route.summary.to_owned(),
        content_type,
        schema: match *content_type {
            JSON => schema.clone(),
            _ => json!({ "type": "string" }),
        },
    };
    let mut replies: Vec<ResponseDescription> = route.content_types.iter().map(response).collect();
    let error = schemas::reference("schemas", "Error");
    let (codes, error) = match route.access {
        AccessClass::Public => (COMMON_CODES.to_vec(), error),
        AccessClass::Readiness => (COMMON_CODES.to_vec(), json!({ "anyOf": [schema, error] })),
        AccessClass::Read => ([COMMON_CODES, KEY_CODES].concat(), error),
        AccessClass::Metrics => ([COMMON_CODES, KEY_CODES].concat(), error),
        AccessClass::ReadItem | AccessClass::ReadEntries => {
            ([COMMON_CODES, KEY_CODES, &[Code::NotFound]].concat(), error)
        }
        AccessClass::Maintain => {
            let codes = [Code::NotFound, Code::UnsupportedMediaType, Code::BodyTooLarge];
            ([COMMON_CODES, KEY_CODES, &codes].concat(), error)
        }
        AccessClass::Consume => ([COMMON_CODES, KEY_CODES, CONSUMER_CODES].concat(), error),
        AccessClass::Reconcile => ([COMMON_CODES, KEY_CODES, RECONCILE_CODES].concat(), error),
        AccessClass::Ingestion => {
            let own = schemas::reference("schemas", "IngestionError");
            let codes = [COMMON_CODES, KEY_CODES, &[Code::NotFound]].concat();
            (codes, json!({ "anyOf": [own, error] }))
        }
        AccessClass::Runner => {
            replies.push(runs::pending(schema));
            let own = schemas::reference("schemas", "IngestionError");
            ([COMMON_CODES, KEY_CODES, runs::CODES].concat(), json!({ "anyOf": [own, error] }))
        }
        AccessClass::Close => {
            let refused = schemas::reference("schemas", "ClosureRefused");
            let codes = [COMMON_CODES, KEY_CODES, run_reports::CODES].concat();
            (codes, json!({ "anyOf": [refused, error] }))
        }
        AccessClass::Replay => {
            let when = "the gateway refused the request or did not reply".to_owned();
            replies.push(ResponseDescription { status: 502, when, content_type: JSON, schema });
            ([COMMON_CODES, KEY_CODES, REPLAY_CODES].concat(), error)
        }
    };
    replies.extend(Description::refusals(&codes, Code::http_status, JSON, &error));
    let parameters: Vec<Value> =
        route.parameters.iter().map(|name| schemas::reference("parameters", name)).collect();
    let is_public = is_open || matches!(route.access, AccessClass::Public | AccessClass::Readiness);
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(&replies),
        "security": if is_public { json!([]) } else { security("x-api-key", route.access.roles(route.method)) },
    });
    if !route.body.is_empty() {
        let schema = schemas::reference("schemas", route.body);
        let is_required = route.access != AccessClass::Close;
        operation["requestBody"] =
            json!({ "required": is_required, "content": { JSON: { "schema": schema } } });
    }
    operation
}

/// `POST` with an unknown source of rounds.
fn unknown_source_operation() -> Value {
    let codes = [COMMON_CODES, &[Code::NotFound]].concat();
    let error = schemas::reference("schemas", "Error");
    json!({
        "operationId": "no_such_source",
        "summary": "Send a round event as an unknown source",
        "parameters": [schemas::reference("parameters", "round_id")],
        "responses": responses(&Description::refusals(&codes, Code::http_status, JSON, &error)),
    })
}

/// `POST` at a stream path, which may have no door.
fn stream_operation(path: &str, stream: Option<&Arc<DoorMount>>, is_open: bool) -> Value {
    let codes = [COMMON_CODES, &[Code::NotFound]].concat();
    let problem = "application/problem+json";
    let any = json!({ "type": "object" });
    let mut operation = match stream {
        Some(mount) => submission_operation(mount, path, is_open),
        None => json!({
            "summary": "Send events to a stream (no streams are configured)",
            "responses": responses(&Description::refusals(&codes, Code::http_status, problem, &any)),
        }),
    };
    let has_name = path.contains('{');
    operation["operationId"] = json!(if has_name { "send" } else { "send_to_default" });
    if has_name {
        let name = schemas::reference("parameters", "stream");
        match operation.get_mut("parameters").and_then(Value::as_array_mut) {
            Some(parameters) => parameters.push(name),
            None => operation["parameters"] = json!([name]),
        }
    }
    operation
}

fn submission_operation(mount: &DoorMount, path: &str, is_open: bool) -> Value {
    let described = mount.contract.describe();
    let content: Map<String, Value> = described
        .request
        .iter()
        .map(|(media_type, schema)| ((*media_type).to_owned(), json!({ "schema": schema })))
        .collect();
    let header = mount.api_key_header.as_str();
    let roles: &[Role] = match mount.contract.is_forwardable() {
        true => &[Role::Produce, Role::Forward],
        false => &[Role::Produce],
    };
    // The content type is described with the body; header families and pseudo headers have no single name.
    let names = mount.contract.headers().iter();
    let headers: Vec<Value> = names
        .filter(|name| **name != "content-type" && !name.ends_with('*') && !name.starts_with(':'))
        .map(|name| json!({ "name": name, "in": "header", "schema": { "type": "string" } }))
        .collect();
    let name = match mount.below(path) {
        Some(name) => format!("{}_{name}", mount.door),
        None => mount.door.to_string(),
    };
    json!({
        "operationId": format!("submit_to_{}", name.replace(['-', '/', '.'], "_")),
        "summary": described.summary,
        "tags": [mount.door.as_str()],
        "parameters": headers,
        "requestBody": { "required": true, "content": content },
        "responses": responses(&described.answers),
        "security": if is_open { json!([]) } else { security(header, roles) },
    })
}

/// WebSocket at a door, with the same bodies and replies as `POST`.
fn websocket_operation(mount: &DoorMount, path: &str, is_open: bool) -> Value {
    let mut operation = submission_operation(mount, path, is_open);
    operation["operationId"] = json!(format!("socket_{}", mount.door.as_str().replace('-', "_")));
    operation["summary"] =
        json!("Open a WebSocket: one body per text frame, one reply per text frame");
    operation["responses"]["101"] = json!({ "description": "the WebSocket is open" });
    if let Some(members) = operation.as_object_mut() {
        members.remove("requestBody");
    }
    operation
}

/// Responses by status. Errors of the request head are added to every route.
fn responses(replies: &[ResponseDescription]) -> Map<String, Value> {
    let error = schemas::reference("schemas", "Error");
    let head_errors = [
        (400, "malformed request head"),
        (408, "timeout while reading the request head"),
        (414, "the request target is too long"),
        (431, "the headers are too large"),
    ];
    let head_errors = head_errors.map(|(status, when)| ResponseDescription {
        status,
        when: when.to_owned(),
        content_type: JSON,
        schema: error.clone(),
    });
    let mut found = Map::new();
    for reply in replies.iter().chain(&head_errors) {
        let mut headers = json!({ "X-Trace-Id": schemas::reference("headers", "X-Trace-Id") });
        if matches!(reply.status, 429 | 503) {
            headers["Retry-After"] = schemas::reference("headers", "Retry-After");
        }
        let response = json!({
            "description": reply.when,
            "headers": headers,
            "content": {},
        });
        let response = found.entry(reply.status.to_string()).or_insert(response);
        if response["content"].get(reply.content_type).is_none() {
            response["content"][reply.content_type] = json!({ "schema": reply.schema });
        }
    }
    found
}

/// Security requirement: a key in either header, of a principal with one of `roles`. An empty list stands
/// for any principal.
fn security(header: &str, roles: &[Role]) -> Value {
    if roles.is_empty() {
        return json!([{ "bearer": [] }, { header: [] }]);
    }
    let with = |role: &Role| {
        let role = role.as_str();
        [json!({ "bearer": [role] }), json!({ header: [role] })]
    };
    roles.iter().flat_map(with).collect()
}

/// Description of the roles in security requirements.
const ROLES: &str = "The key of a principal. A requirement names the role that the principal needs: \
    `produce` sends events; `forward` sends events on behalf of other principals; `read` has read-only \
    access; `consume` reads, claims and settles entries of streams and of the inbox; `metrics` reads \
    /metrics; `operate` includes `read`, `consume` and `metrics`, and may replay, reconcile, release, \
    relink and close.";

fn schemes(doors: &[Arc<DoorMount>]) -> Map<String, Value> {
    let mut schemes = Map::new();
    schemes.insert(
        "bearer".to_owned(),
        json!({ "type": "http", "scheme": "bearer", "description": ROLES }),
    );
    let headers = doors.iter().map(|mount| mount.api_key_header.as_str());
    for header in headers.chain(["x-api-key"]) {
        let scheme =
            json!({ "type": "apiKey", "in": "header", "name": header, "description": ROLES });
        schemes.insert(header.to_owned(), scheme);
    }
    schemes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_describes_exactly_the_routes_of_the_router() {
        let table = include_str!("../routes.rs");
        let table = table.split(".fallback(").next().unwrap_or_default();
        let mut routed: Vec<String> = Vec::new();
        for rest in table.split(".route(").skip(1) {
            let path = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            let path = path.expect("a route is a literal");
            for method in ["get", "post"] {
                if rest.contains(&format!("{method}(")) {
                    routed.push(format!("{method} {path}"));
                }
            }
        }
        let document = document_of(&[], true, 0);
        let mut described: Vec<String> = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let methods = operations.as_object().unwrap().keys();
            described.extend(methods.map(|method| format!("{method} {path}")));
        }
        routed.sort_unstable();
        described.sort_unstable();
        assert!(routed.len() > 5, "the table could not be read");
        assert_eq!(described, routed, "openapi/table.rs and routes.rs must list the same routes");
    }

    #[test]
    fn every_reference_has_a_target() {
        fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str));
                    members.values().for_each(|value| walk(value, found));
                }
                Value::Array(elements) => elements.iter().for_each(|value| walk(value, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document = document_of(&[], false, 0);
        let mut references = Vec::new();
        walk(&document, &mut references);
        assert!(!references.is_empty());
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
