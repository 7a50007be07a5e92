//! Error messages for operators: what failed, why, and what to do.

use std::process::Output;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};
use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::events::{match_begin, sample};
use crate::support::gate::{Gate, admit};
use crate::support::grpc::GrpcClient;
use crate::support::ledger::LedgerLock;
use crate::support::{TIMEOUT, wait_for};

fn run(words: &[&str]) -> Output {
    admit(words).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_unknown_door_is_an_error_that_lists_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    gate.client().submit(&sample()).processed();
    let data = folder.path().to_str().expect("a path of text");
    for words in [
        &["receipts", "list", "--door", "pixel-contol"][..],
        &["receipts", "get", "x", "--door", "events/nowhere"],
        &["quarantine", "list", "--door", "events"],
    ] {
        let output = run(&[words, &["--data", data]].concat());
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {printed}");
        assert!(printed.contains("no door") && printed.contains("pixel-control"), "{printed}");
    }
    let output = run(&["receipts", "list", "--door", "skyra", "--data", data]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "nothing found\n"));
    gate.stop();
}

#[test]
fn reconcile_without_ambiguities_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let data = folder.path().to_str().expect("a path of text");
    let all = ["reconcile", "--all", "--found", "--absent", "--reason", "routine", "--data", data];
    let output = run(&all);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("nothing to resolve"), "{output:?}");
    let output = run(&[&all[..], &["--json"]].concat());
    let printed: Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!((output.status.code(), printed), (Some(0), json!({ "resolved": [] })));
    gate.stop();
}

#[test]
fn config_show_prints_no_credentials_in_urls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admit.toml");
    let config = r#"
        [ledger]
        url = "postgres://me:hunter2@127.0.0.1/db?password=hunter2"
        [bus]
        url = "nats://me:hunter2@127.0.0.1"
        [bus.kinesis]
        endpoint = "http://me:hunter2@127.0.0.1:4566"
        [artifacts]
        url = "s3://me:hunter2@bucket"
        [artifacts.s3]
        endpoint = "http://me:hunter2@127.0.0.1:9000"
        [doors.intents]
        gateway_base_url = "http://me:hunter2@127.0.0.1:9"
        [stream]
        gate = "http://me:hunter2@127.0.0.1:9"
        [edge]
        gate = "http://me:hunter2@127.0.0.1:9"
    "#;
    std::fs::write(&file, config).unwrap();
    let file = file.to_str().expect("a path of text");
    for words in [&[][..], &["--json"]] {
        let output = run(&[&["config", "show", "--effective", "--config", file], words].concat());
        let shown = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("(hidden)@127.0.0.1:9000"), "the rest is shown: {shown}");
    }
}

#[test]
fn names_that_escape_their_path_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admit.toml");
    for name in [".", ".."] {
        for config in [
            format!("[[principals]]\nname = \"{name}\"\nkeys = [\"0123456789abcdef\"]\n"),
            format!("[[doors.events]]\nname = \"{name}\"\n"),
            format!(
                "[[principals]]\nname = \"agent\"\nkeys = [\"0123456789abcdef\"]\n\
                 role = \"forward\"\nmay_speak_for = [\"{name}\"]\n"
            ),
            format!("[edge]\nspeaks_for = \"{name}\"\n"),
        ] {
            std::fs::write(&file, &config).unwrap();
            let output = run(&["config", "check", file.to_str().expect("a path of text")]);
            assert_eq!(output.status.code(), Some(2), "{config}: {}", stdout(&output));
        }
    }
    let gate = Gate::on(&folder.path().join("data"));
    let body = format!("{{\"envelope\":{},\"x\":1}}", json!({ "platform_run_id": ".." }));
    let answer = gate.client().send("POST", "/v1/ingest/push", &[], body.as_bytes()).unwrap();
    assert!((400..500).contains(&answer.status), "a run cannot be called so: {}", answer.json());
    gate.stop();
}

#[test]
fn an_unknown_host_header_is_refused_with_the_setting_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    for path in ["/v1/admissions", "/metrics"] {
        let answer = gate.client().send("GET", path, &[("Host", "gate.example")], b"").unwrap();
        let reply = answer.json();
        assert_eq!((answer.status, &reply["error"]["code"]), (403, &json!("forbidden")), "{reply}");
        let message = reply["error"]["message"].as_str().expect("a message");
        assert!(message.contains("[[principals]]") && message.contains("localhost"), "{message}");
    }
    gate.stop();
}

#[test]
fn a_grpc_client_reads_the_readiness_of_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut caller = GrpcClient::to(gate.address());
    for service in ["", "admit.v1.Ingress"] {
        assert_eq!(caller.health(service).unwrap(), ServingStatus::Serving, "{service:?}");
    }
    let unknown = caller.health("admit.v1.Egress").unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let mut watcher = GrpcClient::to(gate.address());
    let (seen, watched) = mpsc::sync_channel(3);
    let watching =
        thread::spawn(move || watcher.watch_health(3, |status| seen.send(status).unwrap()));
    assert_eq!(
        watched.recv_timeout(TIMEOUT),
        Ok(ServingStatus::Serving),
        "the status of now at once"
    );
    let held = LedgerLock::acquire(folder.path());
    let mut client = gate.client();
    wait_for("an event cannot be stored", TIMEOUT, || {
        let sent = client.post(&match_begin(1, "locked out")).ok();
        (sent.is_some() && caller.health("").unwrap() == ServingStatus::NotServing).then_some(())
    });
    assert!(!gate.is_ready(), "as /readyz says");
    assert_eq!(watched.recv_timeout(TIMEOUT), Ok(ServingStatus::NotServing), "and each change");
    drop(held);
    wait_for("the ledger is writable again", TIMEOUT, || {
        (caller.health("").unwrap() == ServingStatus::Serving).then_some(())
    });
    assert_eq!(watched.recv_timeout(TIMEOUT), Ok(ServingStatus::Serving));
    watching.join().unwrap();
    drop(caller);
    gate.stop();
}
