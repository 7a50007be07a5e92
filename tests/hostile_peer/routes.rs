//! Table of every route with its access rule and a valid body.
//!
//! A new route must be added here, or two tests fail. Routes in the table are tested with hostile
//! requests and with every role.

use serde_json::Value;

use crate::support::gate::Gate;

/// A route as `/openapi.json` lists it.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) access: Access,
    /// A body of the right shape; empty if the route reads none.
    pub(super) body: &'static str,
}

/// Access rule of a route.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// Every peer, without a key.
    Public,
    /// A principal with one of these roles.
    Roles(&'static [&'static str]),
}

impl Access {
    /// The accepted roles, as in the OpenAPI document.
    pub(super) fn roles(self) -> &'static [&'static str] {
        match self {
            Self::Public => &[],
            Self::Roles(roles) => roles,
        }
    }
}

const READ: Access = Access::Roles(&["read"]);
const READ_ENTRIES: Access = Access::Roles(&["consume", "read"]);
const CONSUME: Access = Access::Roles(&["consume"]);
const OPERATE: Access = Access::Roles(&["operate"]);
const SEND: Access = Access::Roles(&["forward", "produce"]);
const LOOKUP: Access = Access::Roles(&["forward", "operate", "produce", "read"]);
const SEND_ITSELF: Access = Access::Roles(&["produce"]);

const fn get(path: &'static str, access: Access) -> Route {
    Route { method: "GET", path, access, body: "" }
}

const fn post(path: &'static str, access: Access, body: &'static str) -> Route {
    Route { method: "POST", path, access, body }
}

const CLAIM: &str = r#"{"consumer":"hostile"}"#;
const CHANGE: &str = r#"{"status":"done","lease":"00000000000000000000000000000000"}"#;
const RESOLUTION: &str = r#"{"resolution":"found","partition":4294967295,
    "offset":"18446744073709551615","reason":"hostile"}"#;

/// Routes of a gate with every door enabled.
pub(super) const ROUTES: &[Route] = &[
    get("/", Access::Public),
    get("/livez", Access::Public),
    get("/readyz", Access::Public),
    get("/healthz", Access::Public),
    get("/openapi.json", Access::Public),
    get("/metrics", Access::Roles(&["metrics", "read"])),
    get("/v1/receipts/{id}", READ),
    get("/v1/receipts/{id}/document", READ),
    get("/v1/admissions", READ),
    get("/v1/quarantine", READ),
    post("/v1/quarantine/{id}/release", OPERATE, r#"{"how":"dismissed","reason":"hostile"}"#),
    get("/v1/intents/{receipt_id}", READ),
    post("/v1/intents/{receipt_id}/replay", OPERATE, r#"{"reason":"hostile"}"#),
    get("/v1/ops/lookup", LOOKUP),
    get("/v1/ops/health", LOOKUP),
    post("/v1/ops/confirm-time", OPERATE, r#"{"reason":"hostile"}"#),
    get("/v1/reconcile", READ),
    post("/v1/reconcile/{key}", OPERATE, RESOLUTION),
    get("/v1/runs", READ),
    get("/v1/runs/{platform_run_id}/report", READ),
    post("/v1/runs/{platform_run_id}/close", OPERATE, "{}"),
    post("/runs", OPERATE, "{}"),
    get("/runs/{run_id}", READ),
    post("/runs/{run_id}/reemit", OPERATE, "{}"),
    get("/v1/pixel/servers", READ),
    get("/v1/pixel/servers/{scope}", READ),
    get("/v1/pixel/servers/{scope}/", READ),
    get("/v1/pixel/servers/{scope}/{login}", READ),
    get("/v1/rounds", READ),
    get("/v1/rounds/diagnostics", READ),
    post("/v1/rounds/relink", OPERATE, ""),
    post("/v1/rounds/accept/{receipt_id}", OPERATE, r#"{"reason":"hostile"}"#),
    get("/v1/rounds/reconcile", READ),
    post("/v1/rounds/reconcile/{key}", OPERATE, RESOLUTION),
    get("/v1/rounds/{round_id}", READ),
    post("/v1/rounds/{round_id}", Access::Public, "{}"),
    get("/v1/events", READ_ENTRIES),
    get("/v1/events/{stream}", READ_ENTRIES),
    post("/v1/events/{stream}/claim", CONSUME, CLAIM),
    post("/v1/events/{stream}/{receipt_id}", CONSUME, CHANGE),
    get("/v1/inbox", READ_ENTRIES),
    post("/v1/inbox/claim", CONSUME, CLAIM),
    get("/v1/inbox/{event_id}", READ_ENTRIES),
    post("/v1/inbox/{event_id}", CONSUME, CHANGE),
    post("/plugin/events", SEND, "{}"),
    post("/v1/ingress", SEND, "{}"),
    get("/v1/ingress", SEND),
    post("/v1/intents", SEND_ITSELF, "{}"),
    post("/v1/ingest/push", SEND_ITSELF, "{}"),
    post("/v1/rounds/filename_trigger", SEND, "{}"),
    post("/v1/rounds/stats_ready", SEND, "{}"),
    post("/v1/rounds/gametime_fallback", SEND, "{}"),
    post("/v1/rounds/lua_spawn_stats", SEND, "{}"),
    post("/v1/rounds/proximity_file", SEND, "{}"),
    post("/v1/events", SEND, "{}"),
    post("/v1/events/{stream}", SEND, "{}"),
];

/// Returns the gate's OpenAPI document.
pub(super) fn document(gate: &Gate) -> Value {
    gate.client().get("/openapi.json")
}

/// Returns the operation of a route in the document.
pub(super) fn operation<'d>(document: &'d Value, route: &Route) -> &'d Value {
    &document["paths"][route.path][route.method.to_lowercase()]
}

/// Fills the parameters of a route's path with these values; the last one is repeated.
pub(super) fn path(route: &Route, values: &[&str]) -> String {
    let mut values = values.iter().copied();
    let mut last = "x";
    let fill = |segment: &str| match segment.starts_with('{') {
        true => {
            last = values.next().unwrap_or(last);
            last.to_owned()
        }
        false => segment.to_owned(),
    };
    route.path.split('/').map(fill).collect::<Vec<_>>().join("/")
}

#[test]
fn the_route_table_matches_the_openapi_document() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let document = document(&gate);
    let mut described: Vec<String> = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let methods = operations.as_object().expect("methods").keys();
        described.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let mut listed: Vec<String> =
        ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    described.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, described, "tests/hostile_peer/routes.rs must list every route");
    gate.stop();
}
