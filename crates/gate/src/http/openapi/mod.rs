//! `GET /openapi.json`: every route of this gate, its doors at their configured paths.
//!
//! Built from the doors that are mounted, so that what is described is what is there; contracts
//! describe their own wire. A test holds every route of `routes.rs` to this document.

mod schemas;

use std::sync::Arc;

use admit_contracts::Reply;
use admit_contracts::describe::{Answer, Description};
use admit_core::Code;
use axum::extract::State;
use serde_json::{Map, Value, json};

use super::answer;
use super::read::Routed;
use crate::exposition;
use crate::gate::Gate;
use crate::parts::DoorMount;

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

/// A route beside the doors.
struct Route {
    path: &'static str,
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    /// Names of [`schemas::parameters`].
    parameters: &'static [&'static str],
    /// A name of [`schemas::schemas`]; empty where nothing is sent.
    body: &'static str,
    /// The media types of the answer, the usual one first.
    content_types: &'static [&'static str],
    /// A name of [`schemas::schemas`]; empty where the answer is text.
    answer: &'static str,
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Whoever asks.
    Everybody,
    /// Readiness: whoever asks, and "not ready" is an answer of its own.
    Ready,
    /// Role `read`.
    Readers,
    /// Role `read`, and what is asked for may not be there.
    ReadersOfOne,
    /// Role `read`, in the body of a request.
    Consumers,
    /// Role `operate`, and what is asked for may fail elsewhere.
    Operators,
}

const fn json(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    answer: &'static str,
    access: Access,
) -> Route {
    let (method, body, content_types) = ("get", "", ONLY_JSON);
    Route { path, method, id, summary, parameters, body, content_types, answer, access }
}

const ONLY_JSON: &[&str] = &[JSON];

/// Where streams are read and consumers settle; `post` of an event is a door's.
const STREAM: &[&str] = &["stream", "after", "limit", "wait_ms"];

const RECEIPTS: &[&str] = &["door", "principal", "verdict", "after", "limit"];

/// Everything of `routes.rs`, in its order.
const ROUTES: &[Route] = &[
    json("/", "doors", "The doors of this gate", &[], "Doors", Access::Everybody),
    json("/livez", "livez", "Whether the process answers", &[], "Alive", Access::Everybody),
    json("/readyz", "readyz", "Whether events can be sent", &[], "Ready", Access::Ready),
    json(
        "/healthz",
        "healthz",
        "Readiness, with what it was judged by",
        &["verbose"],
        "Health",
        Access::Ready,
    ),
    Route {
        path: "/metrics",
        method: "get",
        id: "metrics",
        summary: "What the gate counts, for Prometheus",
        parameters: &[],
        body: "",
        content_types: &[exposition::CONTENT_TYPE],
        answer: "",
        access: Access::Readers,
    },
    json("/openapi.json", "openapi", "This document", &[], "OpenApi", Access::Everybody),
    json(
        "/v1/receipts/{id}",
        "receipt",
        "One receipt",
        &["receipt_id"],
        "Receipt",
        Access::ReadersOfOne,
    ),
    json(
        "/v1/admissions",
        "admissions",
        "What was decided, in ledger order",
        RECEIPTS,
        "Admissions",
        Access::Readers,
    ),
    json(
        "/v1/quarantine",
        "quarantine",
        "What was kept but not applied, in ledger order",
        &["door", "principal", "quarantine_verdict", "after", "limit"],
        "Quarantine",
        Access::Readers,
    ),
    json(
        "/v1/intents/{receipt_id}",
        "intent",
        "One intent, with its history",
        &["intent_receipt_id"],
        "Intent",
        Access::ReadersOfOne,
    ),
    Route {
        method: "post",
        body: "Replay",
        ..json(
            "/v1/intents/{receipt_id}/replay",
            "replay",
            "Make one more attempt at what an intent causes",
            &["intent_receipt_id"],
            "IntentEnvelope",
            Access::Operators,
        )
    },
    json(
        "/v1/pixel/servers",
        "pixel_servers",
        "Game servers, as their events tell of them",
        &["after_entity", "limit"],
        "PixelServers",
        Access::Readers,
    ),
    json(
        "/v1/pixel/servers/{scope}",
        "pixel_servers_of",
        "The game servers of one principal",
        &["scope", "after_entity", "limit"],
        "PixelServers",
        Access::Readers,
    ),
    json(
        "/v1/pixel/servers/{scope}/",
        "pixel_server_without_login",
        "What was said by servers that did not name themselves",
        &["scope"],
        "PixelServer",
        Access::ReadersOfOne,
    ),
    json(
        "/v1/pixel/servers/{scope}/{login}",
        "pixel_server",
        "One game server",
        &["scope", "login"],
        "PixelServer",
        Access::ReadersOfOne,
    ),
    Route {
        content_types: &[JSON, "text/event-stream"],
        ..json(
            "/v1/events",
            "read_default_stream",
            "The default stream, in ledger order; or every event as it comes",
            &["after", "limit", "wait_ms"],
            "StreamPage",
            Access::ReadersOfOne,
        )
    },
    Route {
        content_types: &[JSON, "text/event-stream"],
        ..json(
            "/v1/events/{stream}",
            "read_stream",
            "A stream, in ledger order; or every event as it comes",
            STREAM,
            "StreamPage",
            Access::ReadersOfOne,
        )
    },
    Route {
        method: "post",
        body: "Claim",
        ..json(
            "/v1/events/{stream}/claim",
            "claim",
            "Claim events of a stream under a lease",
            &["stream"],
            "Claimed",
            Access::Consumers,
        )
    },
    Route {
        method: "post",
        body: "Change",
        ..json(
            "/v1/events/{stream}/{receipt_id}",
            "settle",
            "Say what became of a claimed event",
            &["stream", "claimed_id"],
            "Changed",
            Access::Consumers,
        )
    },
    json(
        "/v1/inbox",
        "inbox",
        "What came into the inbox, in order of arrival",
        &["inbox_status", "after_row", "limit"],
        "InboxPage",
        Access::ReadersOfOne,
    ),
    Route {
        method: "post",
        body: "Claim",
        ..json(
            "/v1/inbox/claim",
            "inbox_claim",
            "Claim events of the inbox under a lease",
            &[],
            "InboxClaimed",
            Access::Consumers,
        )
    },
    json(
        "/v1/inbox/{event_id}",
        "inbox_event",
        "One event of the inbox",
        &["event_id"],
        "InboxEvent",
        Access::ReadersOfOne,
    ),
    Route {
        method: "post",
        body: "Change",
        ..json(
            "/v1/inbox/{event_id}",
            "inbox_settle",
            "Say what became of a claimed event of the inbox",
            &["event_id"],
            "InboxChanged",
            Access::Consumers,
        )
    },
];

/// Paths at which `post` without a door says that there is no such stream.
const STREAM_PATHS: [&str; 2] = ["/v1/events", "/v1/events/{stream}"];

/// `GET /openapi.json`
pub(super) async fn document(State(gate): State<Arc<Gate>>) -> Routed {
    let body = match serde_json::to_vec(&describe(&gate)) {
        Ok(body) => body,
        Err(_) => {
            let message = "the document could not be written";
            return Routed(answer::refuse(&gate, Code::InternalError, message));
        }
    };
    Routed(Reply { status: 200, content_type: JSON, headers: Vec::new(), body })
}

fn describe(gate: &Gate) -> Value {
    described(&gate.doors, gate.principals.is_open(), gate.limits.wait_ms_max)
}

fn described(doors: &[Arc<DoorMount>], is_open: bool, wait_ms_max: u64) -> Value {
    let mut paths = json!({});
    for route in ROUTES {
        paths[route.path][route.method] = read(route, is_open);
    }
    // Whatever the name of a stream turns out to be, its answers are those of a stream.
    let stream = doors.iter().find(|mount| mount.door.as_str().starts_with("events/"));
    for path in STREAM_PATHS {
        paths[path]["post"] = send(path, stream, is_open);
    }
    for mount in doors {
        paths[&mount.path]["post"] = knock(mount, is_open);
        if mount.contract.takes_messages() {
            paths[&mount.path]["get"] = socket(mount, is_open);
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
            "parameters": schemas::parameters(wait_ms_max),
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
    let answer = |content_type: &&'static str| Answer {
        status: 200,
        when: route.summary.to_owned(),
        content_type,
        schema: match *content_type {
            JSON => schema.clone(),
            _ => json!({ "type": "string" }),
        },
    };
    let mut answers: Vec<Answer> = route.content_types.iter().map(answer).collect();
    let error = schemas::reference("schemas", "Error");
    let (codes, error) = match route.access {
        Access::Everybody => (ALWAYS.to_vec(), error),
        Access::Ready => (ALWAYS.to_vec(), json!({ "anyOf": [schema, error] })),
        Access::Readers => ([ALWAYS, WITH_KEY].concat(), error),
        Access::ReadersOfOne => ([ALWAYS, WITH_KEY, &[Code::NotFound]].concat(), error),
        Access::Consumers => ([ALWAYS, WITH_KEY, SENT].concat(), error),
        Access::Operators => {
            let when = "the gateway refused it or did not answer".to_owned();
            answers.push(Answer { status: 502, when, content_type: JSON, schema });
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
        "security": if is_public { json!([]) } else { security("x-api-key") },
    });
    if !route.body.is_empty() {
        let schema = schemas::reference("schemas", route.body);
        operation["requestBody"] =
            json!({ "required": true, "content": { JSON: { "schema": schema } } });
    }
    operation
}

/// `POST` at a path of streams where this gate may have none.
fn send(path: &str, stream: Option<&Arc<DoorMount>>, is_open: bool) -> Value {
    let codes = [ALWAYS, &[Code::NotFound]].concat();
    let problem = "application/problem+json";
    let any = json!({ "type": "object" });
    let mut operation = match stream {
        Some(mount) => knock(mount, is_open),
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

fn knock(mount: &DoorMount, is_open: bool) -> Value {
    let described = mount.contract.describe();
    let content: Map<String, Value> = described
        .request
        .iter()
        .map(|(media_type, schema)| ((*media_type).to_owned(), json!({ "schema": schema })))
        .collect();
    let header = mount.api_key_header.as_str();
    // The content type is described with the body, and a family of headers has no one name.
    let read = mount.contract.headers().iter();
    let headers: Vec<Value> = read
        .filter(|name| **name != "content-type" && !name.ends_with('*'))
        .map(|name| json!({ "name": name, "in": "header", "schema": { "type": "string" } }))
        .collect();
    json!({
        "operationId": format!("knock_{}", mount.door.as_str().replace(['-', '/', '.'], "_")),
        "summary": described.summary,
        "tags": [mount.door.as_str()],
        "parameters": headers,
        "requestBody": { "required": true, "content": content },
        "responses": responses(&described.answers),
        "security": if is_open { json!([]) } else { security(header) },
    })
}

/// A WebSocket at a door: whoever opens it sends the same bodies, and reads the same answers.
fn socket(mount: &DoorMount, is_open: bool) -> Value {
    let mut operation = knock(mount, is_open);
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
fn responses(answers: &[Answer]) -> Map<String, Value> {
    let error = schemas::reference("schemas", "Error");
    let unread = [
        (400, "the head cannot be read"),
        (408, "the head did not arrive in time"),
        (414, "the address is too long"),
        (431, "the headers are too large"),
    ];
    let unread = unread.map(|(status, when)| Answer {
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

/// A key may come in either header.
fn security(header: &str) -> Value {
    json!([{ "bearer": [] }, { header: [] }])
}

fn schemes(doors: &[Arc<DoorMount>]) -> Map<String, Value> {
    let mut schemes = Map::new();
    schemes.insert("bearer".to_owned(), json!({ "type": "http", "scheme": "bearer" }));
    let headers = doors.iter().map(|mount| mount.api_key_header.as_str());
    for header in headers.chain(["x-api-key"]) {
        let scheme = json!({ "type": "apiKey", "in": "header", "name": header });
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
        assert_eq!(described, routed, "ROUTES and routes.rs must say the same");
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
