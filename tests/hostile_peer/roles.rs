//! Authorization: the permissions of each role, at every route.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::routes::{Access, ROUTES, Route, document, operation, path};
use crate::events::configured;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::http::{Client, HttpResponse};
use crate::support::skyra::{assert_acked, id, text};

const ROLES: [&str; 6] = ["produce", "read", "consume", "metrics", "operate", "forward"];

fn key(role: &str) -> String {
    format!("key-of-{role}-0123456789")
}

/// Config of one principal for each of these roles, with all doors.
fn principals(roles: &[&str]) -> String {
    let principal = |role: &&str| {
        let may_speak_for =
            if *role == "forward" { "may_speak_for = [\"device-1\"]\n" } else { "" };
        let key = key(role);
        format!(
            "[[principals]]\nname = \"with-{role}\"\nkeys = [\"{key}\"]\nrole = \"{role}\"\n{may_speak_for}"
        )
    };
    roles.iter().map(principal).collect()
}

fn client(gate: &Gate, role: &str) -> Client {
    let client = gate.client().with("Authorization", &format!("Bearer {}", key(role)));
    if role == "forward" { client.with("Admit-Principal", "device-1") } else { client }
}

/// Whether a principal with `role` may use a route that requires one of `wanted`.
fn may(role: &str, wanted: &[&str]) -> bool {
    let operate_includes = ["read", "consume", "metrics"];
    let is_included = |wanted: &&str| operate_includes.contains(wanted);
    wanted.contains(&role) || (role == "operate" && wanted.iter().any(is_included))
}

fn call_route(client: &mut Client, route: &Route) -> HttpResponse {
    let path = path(route, &["default", "x"]);
    client.send(route.method, &path, &[], route.body.as_bytes()).expect("response from the gate")
}

#[test]
fn every_route_accepts_exactly_its_roles() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &principals(&ROLES));
    for route in ROUTES {
        let name = format!("{} {}", route.method, route.path);
        for role in ROLES {
            let response = call_route(&mut client(&gate, role), route);
            let text = String::from_utf8_lossy(&response.body).into_owned();
            let may = match route.access {
                Access::Public => true,
                Access::Roles(wanted) => may(role, wanted),
            };
            let is_refused = matches!(response.status, 401 | 403);
            assert_eq!(is_refused, !may, "{name} with {role}: {} {text}", response.status);
        }
        let response = call_route(&mut gate.client(), route);
        let is_public = matches!(route.access, Access::Public);
        assert_eq!(response.status == 401, !is_public, "{name} without a key: {}", response.status);
    }
    assert!(!gate.stderr().contains("ERROR"), "{}", gate.stderr());
    gate.stop();
}

#[test]
fn the_openapi_document_names_the_roles_of_every_route() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &principals(&ROLES));
    let document = document(&gate);
    for route in ROUTES {
        let described = operation(&document, route);
        let security = described["security"].as_array().cloned().unwrap_or_default();
        let names = security.iter().filter_map(Value::as_object).flat_map(|one| one.values());
        let names = names.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        let named: BTreeSet<&str> = names.collect();
        let wanted: BTreeSet<&str> = route.access.roles().iter().copied().collect();
        assert_eq!(named, wanted, "{} {}", route.method, route.path);
        let is_public = matches!(route.access, Access::Public);
        assert_eq!(security.is_empty(), is_public, "{} {}", route.method, route.path);
    }
    gate.stop();
}

/// Claims from the inbox with this role; returns the HTTP status.
fn claim(gate: &Gate, role: &str) -> u16 {
    let body = br#"{"consumer":"taker"}"#;
    client(gate, role).send("POST", "/v1/inbox/claim", &[], body).unwrap().status
}

fn warnings(text: &str) -> usize {
    text.matches("no principal has the role \"consume\"").count()
}

fn check_config(config: &Path) -> String {
    let file = config.to_str().expect("a path of text");
    let output = admit(["config", "check", file]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn without_a_consumer_in_the_config_the_role_read_may_claim_and_a_warning_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &principals(&["produce", "read", "operate"]));
    assert_eq!(claim(&gate, "read"), 200);
    assert_eq!(claim(&gate, "operate"), 200);
    assert_eq!(claim(&gate, "produce"), 403);
    let log = gate.stderr();
    assert_eq!(warnings(&log), 1, "{log}");
    assert!(log.contains("with-read") && !log.contains("with-operate"), "{log}");
    assert_eq!(warnings(&check_config(&folder.path().join("admit.toml"))), 1);
    gate.stop();
}

#[test]
fn with_a_consumer_in_the_config_the_role_read_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &principals(&["produce", "read", "consume", "operate"]));
    let mut producer = client(&gate, "produce");
    let sent = producer.send("POST", "/v1/ingress", &[], text(1).as_bytes()).unwrap();
    assert_acked(&sent.json(), &id(1));
    assert_eq!(claim(&gate, "read"), 403);
    let mut reader = client(&gate, "read");
    assert_eq!(
        reader.get("/v1/inbox")["events"][0]["status"],
        "received",
        "the event must not be claimed"
    );
    let mut consumer = client(&gate, "consume");
    let taken = consumer.send("POST", "/v1/inbox/claim", &[], br#"{"consumer":"c"}"#).unwrap();
    let lease = taken.json()["events"][0]["lease"].clone();
    let done = format!("{{\"status\":\"done\",\"lease\":{lease}}}");
    let path = format!("/v1/inbox/{}", id(1));
    assert_eq!(reader.send("POST", &path, &[], done.as_bytes()).unwrap().status, 403);
    assert_eq!(consumer.send("POST", &path, &[], done.as_bytes()).unwrap().status, 200);
    assert_eq!(
        consumer.get("/v1/inbox")["events"][0]["status"],
        "done",
        "a consumer may read the inbox"
    );
    let refused = consumer.send("GET", "/v1/admissions", &[], b"").unwrap();
    assert_eq!(refused.status, 403, "a consumer may not read admissions");
    assert_eq!(warnings(&gate.stderr()), 0);
    assert_eq!(warnings(&check_config(&folder.path().join("admit.toml"))), 0);
    gate.stop();
}

#[test]
fn claiming_needs_no_key_at_the_unix_socket_or_without_principals() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(folder.path(), &principals(&["produce", "read", "consume"]));
    let sent = client(&gate, "produce").send("POST", "/v1/ingress", &[], text(1).as_bytes());
    assert_acked(&sent.unwrap().json(), &id(1));
    let data = folder.path().join("data");
    let arguments = ["inbox", "claim", "--consumer", "owner", "--json", "--data"];
    let output = admit(arguments.into_iter().chain([data.to_str().unwrap()])).output().unwrap();
    let taken: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(taken["events"][0]["event_id"], id(1));
    gate.stop();

    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path()).start();
    let mut local = gate.client();
    let sent = local.send("POST", "/v1/ingress", &[], text(1).as_bytes()).unwrap();
    assert_acked(&sent.json(), &id(1));
    let taken = local.send("POST", "/v1/inbox/claim", &[], br#"{"consumer":"c"}"#).unwrap();
    assert_eq!(taken.json()["events"][0]["event_id"], id(1));
    assert_eq!(local.send("GET", "/metrics", &[], b"").unwrap().status, 200);
    assert_eq!(warnings(&gate.stderr()), 0);
    gate.stop();
}
