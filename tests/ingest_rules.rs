//! Ingestion gate: repeated JSON members, service tokens, unknown runs, and the shape of errors.

use std::fs;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::ingest::{
    RUN, envelope, launch_fast, outcome, push, push_bytes, read_decision,
};
use crate::support::intents::admit;
use crate::support::machine::text;

#[test]
fn a_repeated_json_member_makes_an_envelope_invalid_at_any_depth() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let valid = envelope(1).to_string();
    let repeated = [
        valid.replacen("{", r#"{"event_id":"event-0","#, 1),
        valid.replacen(r#""payload":{"#, r#""payload":{"amount":1,"#, 1),
        valid.replacen(r#""payload":{"#, r#""payload":{"more":[{"a":1,"b":2,"a":1}],"#, 1),
    ];
    for body in repeated {
        assert_ne!(body, valid);
        let response = push_bytes(&mut client, body.as_bytes());
        assert_eq!(outcome(&response), "QUARANTINE ENVELOPE_INVALID", "{body}");
    }
    assert_eq!(outcome(&push_bytes(&mut client, valid.as_bytes())), "ADMIT");
    let (verified, output) = {
        gate.stop();
        admit(&["verify", "--data", text(folder.path())])
    };
    assert!(verified, "{output}");
}

#[test]
fn a_principal_with_service_tokens_needs_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("admit.toml");
    let door = "[doors.ingestion-gate]\nauth_mode = \"service_token\"\n\
                service_token_secrets = [\"a secret of the platform\"]\n";
    let principal = "[[principals]]\nname = \"svc\"\nrole = [\"produce\", \"read\"]\n";
    fs::write(&config, format!("{door}{principal}doors = [\"ingestion-gate\"]\n")).unwrap();
    let gate = Launch::on(&folder.path().join("data")).argument("--config").argument(&config);
    let gate = gate.start();
    let token =
        admit_contracts::ingestion_gate::service_token::sign(b"a secret of the platform", "svc");
    let headers = [("x-ig-api-key", token.as_str())];
    let body = envelope(1).to_string();
    let response =
        gate.client().send("POST", "/v1/ingest/push", &headers, body.as_bytes()).unwrap();
    assert_eq!(read_decision(&response).0, "ADMIT");
    gate.stop();
    // Other doors do not accept service tokens, so a principal needs a key there.
    let (text_of, check) =
        (text(&config).to_owned(), |config: &str| admit(&["config", "check", config]));
    for (config, wrong) in [
        (format!("{door}{principal}doors = [\"pixel-control\"]\n"), "principal svc has no keys"),
        (principal.to_owned(), "principal svc has no keys"),
        ("[doors.ingestion-gate]\nauth_mode = \"magic\"\n".to_owned(), "AUTH_MODE_UNKNOWN"),
    ] {
        fs::write(&text_of, config).unwrap();
        let (ok, output) = check(&text_of);
        assert!(!ok && output.contains(wrong), "{wrong}: {output}");
    }
}

#[test]
fn an_unknown_run_is_an_error_and_not_an_empty_list() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_fast(folder.path()).start();
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    let listen = gate.address().to_string();
    let other = "platform_20990101T000000Z";
    let data = text(folder.path()).to_owned();
    let reconcile = |run: &str| admit(&["reconcile", "--run", run, "--listen", &listen]);
    let list = |run: &str| admit(&["quarantine", "list", "--run", run, "--data", &data]);
    for (ok, output) in [reconcile(other), list(other)] {
        assert!(!ok && output.contains(other), "{output}");
    }
    for (ok, output) in [reconcile(RUN), list(RUN), list("unscoped")] {
        assert!(ok, "{output}");
    }
    let path = format!("/v1/reconcile?run={other}");
    assert_eq!(gate.client().send("GET", &path, &[], b"").unwrap().status, 404);
    gate.stop();
}

#[test]
fn every_error_of_the_door_has_one_shape() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let without_run = json!({ "event_id": "x" }).to_string();
    let large = " ".repeat(2 << 20);
    let mut send = |method: &str, path: &str, body: &str| {
        client.send(method, path, &[], body.as_bytes()).unwrap()
    };
    let push = "/v1/ingest/push";
    for response in [
        send("POST", push, "no json"),
        send("POST", push, "[]"),
        send("POST", push, &without_run),
        send("GET", push, ""),
        send("GET", "/v1/ops/lookup", ""),
        send("POST", push, &large),
    ] {
        let reply: Value = response.json();
        assert!(response.status >= 400, "{reply}");
        let is_text = |name: &str| reply[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("error") && is_text("detail"), "{} {reply}", response.status);
        assert!(reply["retryable"].is_boolean(), "{} {reply}", response.status);
    }
    gate.stop();
}
