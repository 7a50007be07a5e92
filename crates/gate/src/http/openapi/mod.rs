//! `GET /openapi.json`: every route of this gate, its doors at their configured paths.
//!
//! Built from the doors that are mounted, so that what is described is what is there; contracts
//! describe their own wire. A test holds every route of `routes.rs` to this document.

mod accounts;
mod inbox;
mod ingestion;
mod rounds;
mod runs;
mod schemas;
mod table;

use std::sync::Arc;

use admit_contracts::describe::{ResponseDescription, Description};
use admit_core::Code;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::FixedDocument;
use crate::gate::Gate;
use crate::parts::DoorMount;
use crate::principals::Role;
use table::{Access, ROUTES, Route};

const JSON: &str = "application/json";

/// What every route can answer, whatever it is: heads that cannot be read, and defects.
const ALWAYS: &[Code] = &[
    Code::InvalidRequest,
    Code::RequestTimeout,
    Code::Overloaded,
    Code::Draining,
    Code::LedgerUnavailable,
    Code::InternalError,
];

/// What routes for principals can answer besides.
const WITH_KEY: &[Code] = &[Code::Unauthorized, Code::Forbidden, Code::RateLimited];

/// What routes that read a body can answer besides.
const SENT: &[Code] =
    &[Code::NotFound, Code::LeaseLost, Code::UnsupportedMediaType, Code::BodyTooLarge];

/// What routes for operators can answer besides.
const ACTED: &[Code] = &[
    Code::NotFound,
    Code::InWork,
    Code::NotReplayable,
    Code::UnsupportedMediaType,
    Code::BodyTooLarge,
];

/// What routes for operators of the ingestion gate can answer besides.
const JUDGED: &[Code] =
    &[Code::NotFound, Code::NotReconcilable, Code::UnsupportedMediaType, Code::BodyTooLarge];

/// Paths at which `post` without a door says that there is no such stream.
const STREAM_PATHS: [&str; 2] = ["/v1/events", "/v1/events/{stream}"];

/// Below which sources of rounds post; any other name is a round that can be read.
const ROUND_PATH: &str = "/v1/rounds/{round_id}";

/// `GET /openapi.json`, rendered at the first request for it.
pub(super) async fn document(State(gate): State<Arc<Gate>>, headers: HeaderMap) -> Response {
    gate.openapi.get_or_init(|| FixedDocument::json(describe(&gate))).answer(&headers)
}

fn describe(gate: &Gate) -> Vec<u8> {
    described(&gate.doors, gate.principals.is_open(), gate.limits.wait_ms_max)
        .to_string()
        .into_bytes()
}

fn described(doors: &[Arc<DoorMount>], is_open: bool, wait_ms_max: u64) -> Value {
    let mut paths = json!({});
    for route in ROUTES.iter().chain(runs::ROUTES).chain(accounts::ROUTES) {
        paths[route.path][route.method] = read(route, is_open);
    }
    // Whatever the name of a stream turns out to be, its answers are those of a stream.
    let stream = doors.iter().find(|mount| mount.door.as_str().starts_with("events/"));
    for path in STREAM_PATHS {
        paths[path]["post"] = send(path, stream, is_open);
    }
    paths[ROUND_PATH]["post"] = no_source();
    for mount in doors {
        for path in mount.paths() {
            paths[&path]["post"] = knock(mount, &path, is_open);
            if mount.contract.takes_messages() {
                paths[&path]["get"] = socket(mount, &path, is_open);
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Admit",
            "summary": "The front door for events.",
            "description": "Every event is let in exactly once, nothing is said to be in before \
                            the disk says so, and every decision leaves a receipt.",
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

fn read(route: &Route, is_open: bool) -> Value {
    let schema = match route.answer {
        "" => json!({ "type": "string" }),
        name => schemas::reference("schemas", name),
    };
    let answer = |content_type: &&'static str| ResponseDescription {
        status: 200,
        when: route.summary.to_owned(),
        content_type,
        schema: match *content_type {
            JSON => schema.clone(),
            _ => json!({ "type": "string" }),
        },
    };
    let mut answers: Vec<ResponseDescription> = route.content_types.iter().map(answer).collect();
    let error = schemas::reference("schemas", "Error");
    let (codes, error) = match route.access {
        Access::Everybody => (ALWAYS.to_vec(), error),
        Access::Ready => (ALWAYS.to_vec(), json!({ "anyOf": [schema, error] })),
        Access::Readers => ([ALWAYS, WITH_KEY].concat(), error),
        Access::Scrapers => ([ALWAYS, WITH_KEY].concat(), error),
        Access::ReadersOfOne | Access::EntryReaders => {
            ([ALWAYS, WITH_KEY, &[Code::NotFound]].concat(), error)
        }
        Access::Menders => {
            let codes = [Code::NotFound, Code::UnsupportedMediaType, Code::BodyTooLarge];
            ([ALWAYS, WITH_KEY, &codes].concat(), error)
        }
        Access::Consumers => ([ALWAYS, WITH_KEY, SENT].concat(), error),
        Access::Judges => ([ALWAYS, WITH_KEY, JUDGED].concat(), error),
        Access::Ingestion => {
            let own = schemas::reference("schemas", "IngestionError");
            let codes = [ALWAYS, WITH_KEY, &[Code::NotFound]].concat();
            (codes, json!({ "anyOf": [own, error] }))
        }
        Access::Runner => {
            answers.push(runs::pending(schema));
            let own = schemas::reference("schemas", "IngestionError");
            ([ALWAYS, WITH_KEY, runs::CODES].concat(), json!({ "anyOf": [own, error] }))
        }
        Access::Closers => {
            let refused = schemas::reference("schemas", "ClosureRefused");
            let codes = [ALWAYS, WITH_KEY, accounts::CODES].concat();
            (codes, json!({ "anyOf": [refused, error] }))
        }
        Access::Operators => {
            let when = "the gateway refused it or did not answer".to_owned();
            answers.push(ResponseDescription { status: 502, when, content_type: JSON, schema });
            ([ALWAYS, WITH_KEY, ACTED].concat(), error)
        }
    };
    answers.extend(Description::refusals(&codes, Code::http_status, JSON, &error));
    let parameters: Vec<Value> =
        route.parameters.iter().map(|name| schemas::reference("parameters", name)).collect();
    let is_public = is_open || matches!(route.access, Access::Everybody | Access::Ready);
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(&answers),
        "security": if is_public { json!([]) } else { security("x-api-key", route.access.roles(route.method)) },
    });
    if !route.body.is_empty() {
        let schema = schemas::reference("schemas", route.body);
        let is_required = route.access != Access::Closers;
        operation["requestBody"] =
            json!({ "required": is_required, "content": { JSON: { "schema": schema } } });
    }
    operation
}

/// `POST` where a source of rounds would be, if there was one of that name.
fn no_source() -> Value {
    let codes = [ALWAYS, &[Code::NotFound]].concat();
    let error = schemas::reference("schemas", "Error");
    json!({
        "operationId": "no_such_source",
        "summary": "Tell of a round as a source that does not exist",
        "parameters": [schemas::reference("parameters", "round_id")],
        "responses": responses(&Description::refusals(&codes, Code::http_status, JSON, &error)),
    })
}

/// `POST` at a path of streams where this gate may have none.
fn send(path: &str, stream: Option<&Arc<DoorMount>>, is_open: bool) -> Value {
    let codes = [ALWAYS, &[Code::NotFound]].concat();
    let problem = "application/problem+json";
    let any = json!({ "type": "object" });
    let mut operation = match stream {
        Some(mount) => knock(mount, path, is_open),
        None => json!({
            "summary": "Send events to a stream, of which this gate has none",
            "responses": responses(&Description::refusals(&codes, Code::http_status, problem, &any)),
        }),
    };
    let is_named = path.contains('{');
    operation["operationId"] = json!(if is_named { "send" } else { "send_to_default" });
    if is_named {
        let name = schemas::reference("parameters", "stream");
        match operation.get_mut("parameters").and_then(Value::as_array_mut) {
            Some(parameters) => parameters.push(name),
            None => operation["parameters"] = json!([name]),
        }
    }
    operation
}

fn knock(mount: &DoorMount, path: &str, is_open: bool) -> Value {
    let described = mount.contract.describe();
    let content: Map<String, Value> = described
        .request
        .iter()
        .map(|(media_type, schema)| ((*media_type).to_owned(), json!({ "schema": schema })))
        .collect();
    let header = mount.api_key_header.as_str();
    let senders: &[Role] = match mount.contract.is_forwardable() {
        true => &[Role::Produce, Role::Forward],
        false => &[Role::Produce],
    };
    // The content type is described with the body, and a family of headers has no one name.
    let read = mount.contract.headers().iter();
    let headers: Vec<Value> = read
        .filter(|name| **name != "content-type" && !name.ends_with('*') && !name.starts_with(':'))
        .map(|name| json!({ "name": name, "in": "header", "schema": { "type": "string" } }))
        .collect();
    let name = match mount.below(path) {
        Some(name) => format!("{}_{name}", mount.door),
        None => mount.door.to_string(),
    };
    json!({
        "operationId": format!("knock_{}", name.replace(['-', '/', '.'], "_")),
        "summary": described.summary,
        "tags": [mount.door.as_str()],
        "parameters": headers,
        "requestBody": { "required": true, "content": content },
        "responses": responses(&described.answers),
        "security": if is_open { json!([]) } else { security(header, senders) },
    })
}

/// A WebSocket at a door: whoever opens it sends the same bodies, and reads the same answers.
fn socket(mount: &DoorMount, path: &str, is_open: bool) -> Value {
    let mut operation = knock(mount, path, is_open);
    operation["operationId"] = json!(format!("socket_{}", mount.door.as_str().replace('-', "_")));
    operation["summary"] =
        json!("Open a WebSocket: one body a text frame, one answer a text frame");
    operation["responses"]["101"] = json!({ "description": "the WebSocket is open" });
    if let Some(members) = operation.as_object_mut() {
        members.remove("requestBody");
    }
    operation
}

/// The answers by status. Heads that cannot be read are answered before any route is known.
fn responses(answers: &[ResponseDescription]) -> Map<String, Value> {
    let error = schemas::reference("schemas", "Error");
    let unread = [
        (400, "the head cannot be read"),
        (408, "the head did not arrive in time"),
        (414, "the address is too long"),
        (431, "the headers are too large"),
    ];
    let unread = unread.map(|(status, when)| ResponseDescription {
        status,
        when: when.to_owned(),
        content_type: JSON,
        schema: error.clone(),
    });
    let mut found = Map::new();
    for answer in answers.iter().chain(&unread) {
        let mut headers = json!({ "X-Trace-Id": schemas::reference("headers", "X-Trace-Id") });
        if matches!(answer.status, 429 | 503) {
            headers["Retry-After"] = schemas::reference("headers", "Retry-After");
        }
        let said = json!({
            "description": answer.when,
            "headers": headers,
            "content": {},
        });
        let said = found.entry(answer.status.to_string()).or_insert(said);
        if said["content"].get(answer.content_type).is_none() {
            said["content"][answer.content_type] = json!({ "schema": answer.schema });
        }
    }
    found
}

/// A key may come in either header, of a principal with any one of `roles`; with no role named, of
/// any principal.
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

/// What the role names of a security requirement mean.
const ROLES: &str = "The key of a principal. A requirement names the role that the principal needs: \
    `produce` sends events, `forward` sends in the names of others, `read` reads and changes nothing, \
    `consume` reads, claims and settles entries of streams and of the inbox, `metrics` reads \
    /metrics, `operate` contains `read`, `consume` and `metrics` and acts on what is kept.";

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
    fn every_route_of_the_table_is_described_and_nothing_else() {
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
        let document = described(&[], true, 0);
        let mut described: Vec<String> = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let methods = operations.as_object().unwrap().keys();
            described.extend(methods.map(|method| format!("{method} {path}")));
        }
        routed.sort_unstable();
        described.sort_unstable();
        assert!(routed.len() > 5, "the table could not be read");
        assert_eq!(described, routed, "table.rs and routes.rs must say the same");
    }

    #[test]
    fn every_reference_leads_somewhere() {
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
        let document = described(&[], false, 0);
        let mut references = Vec::new();
        walk(&document, &mut references);
        assert!(!references.is_empty());
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
