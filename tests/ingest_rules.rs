//! Rules of the ingestion gate that a producer or an operator meets first: keys that repeat, tokens,
//! names of runs that do not exist, and one shape for every error.

use std::fs;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::ingest::{RUN, decided, envelope, gist, impatient, push, push_bytes};
use crate::support::intents::admit;
use crate::support::machine::text;

#[test]
fn a_key_that_appears_twice_makes_an_envelope_invalid_at_any_depth() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let sound = envelope(1).to_string();
    let repeated = [
        sound.replacen("{", r#"{"event_id":"event-0","#, 1),
        sound.replacen(r#""payload":{"#, r#""payload":{"amount":1,"#, 1),
        sound.replacen(r#""payload":{"#, r#""payload":{"more":[{"a":1,"b":2,"a":1}],"#, 1),
    ];
    for body in repeated {
        assert_ne!(body, sound);
        let answer = push_bytes(&mut client, body.as_bytes());
        assert_eq!(gist(&answer), "QUARANTINE ENVELOPE_INVALID", "{body}");
    }
    assert_eq!(gist(&push_bytes(&mut client, sound.as_bytes())), "ADMIT");
    let (agrees, said) = {
        gate.stop();
        admit(&["verify", "--data", text(folder.path())])
    };
    assert!(agrees, "{said}");
}

#[test]
fn a_principal_that_shows_service_tokens_needs_no_key() {
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
    let answer = gate.client().send("POST", "/v1/ingest/push", &headers, body.as_bytes()).unwrap();
    assert_eq!(decided(&answer).0, "ADMIT");
    gate.stop();
    // Elsewhere nobody could be a principal without a key.
    let (text_of, check) =
        (text(&config).to_owned(), |config: &str| admit(&["config", "check", config]));
    for (config, wrong) in [
        (format!("{door}{principal}doors = [\"pixel-control\"]\n"), "principal svc has no keys"),
        (principal.to_owned(), "principal svc has no keys"),
        ("[doors.ingestion-gate]\nauth_mode = \"magic\"\n".to_owned(), "AUTH_MODE_UNKNOWN"),
    ] {
        fs::write(&text_of, config).unwrap();
        let (ok, said) = check(&text_of);
        assert!(!ok && said.contains(wrong), "{wrong}: {said}");
    }
}

#[test]
fn a_run_that_does_not_exist_is_an_error_and_no_empty_list() {
    let folder = tempfile::tempdir().unwrap();
    let gate = impatient(folder.path()).start();
    assert_eq!(gist(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    let listen = gate.address().to_string();
    let other = "platform_20990101T000000Z";
    let data = text(folder.path()).to_owned();
    let reconcile = |run: &str| admit(&["reconcile", "--run", run, "--listen", &listen]);
    let list = |run: &str| admit(&["quarantine", "list", "--run", run, "--data", &data]);
    for (ok, said) in [reconcile(other), list(other)] {
        assert!(!ok && said.contains(other), "{said}");
    }
    for (ok, said) in [reconcile(RUN), list(RUN), list("unscoped")] {
        assert!(ok, "{said}");
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
    let unreceiptable = json!({ "event_id": "x" }).to_string();
    let large = " ".repeat(2 << 20);
    let mut send = |method: &str, path: &str, body: &str| {
        client.send(method, path, &[], body.as_bytes()).unwrap()
    };
    let push = "/v1/ingest/push";
    for answer in [
        send("POST", push, "no json"),
        send("POST", push, "[]"),
        send("POST", push, &unreceiptable),
        send("GET", push, ""),
        send("GET", "/v1/ops/lookup", ""),
        send("POST", push, &large),
    ] {
        let said: Value = answer.json();
        assert!(answer.status >= 400, "{said}");
        let is_text = |name: &str| said[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("error") && is_text("detail"), "{} {said}", answer.status);
        assert!(said["retryable"].is_boolean(), "{} {said}", answer.status);
    }
    gate.stop();
}
