//! A gate that publishes to a local Kinesis emulator.

use std::net::SocketAddr;

use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::KinesisLocal;
use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch, admit};
use crate::support::ingest::{envelope, outcome, push, read_decision};
use crate::support::intents::admit_with;
use crate::support::machine::text;

const SECRET: &str = "suite-secret-key-that-must-not-be-logged";

fn variables(server: SocketAddr) -> Vec<(&'static str, String)> {
    vec![
        ("ADMIT_BUS__URL", "kinesis://eu-central-1".to_owned()),
        ("ADMIT_BUS__KINESIS__ENDPOINT", format!("http://{server}")),
        ("ADMIT_BUS__KINESIS__CREATE_STREAMS", "true".to_owned()),
        ("ADMIT_BUS__KINESIS__SHARDS", "2".to_owned()),
        ("ADMIT_BUS__KINESIS__REQUEST_TIMEOUT_MS", "4000".to_owned()),
        ("ADMIT_BUS__DELIVERY_TIMEOUT_MS", "500".to_owned()),
        ("AWS_ACCESS_KEY_ID", "suite-access-key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
    ]
}

fn start(data: &std::path::Path, server: SocketAddr) -> Gate {
    let launch = Launch::on(data);
    let launch = variables(server)
        .into_iter()
        .fold(launch, |launch, (name, value)| launch.variable(name, &value));
    launch.start()
}

#[test]
fn a_publish_with_a_lost_response_is_ambiguous_and_found_by_reconciliation() {
    let Some(server) = KinesisLocal::start() else { return };
    let proxy = Proxy::to(server.address(), Faults::default(), 1).unwrap();
    let data = tempfile::tempdir().unwrap();
    let gate = start(data.path(), proxy.address());
    for n in 1..6 {
        let (decision, receipt) = read_decision(&push(&mut gate.client(), &envelope(n)));
        assert_eq!(decision, "ADMIT");
        assert_eq!(receipt["eb_ref"]["offset_kind"], "kinesis_sequence", "{receipt}");
        assert_eq!(receipt["eb_ref"]["topic"], "fp.bus.traffic.fraud.v1", "{receipt}");
    }
    proxy.set_faults(Faults { lose_answers: true, ..Faults::default() });
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(6))), "QUARANTINE PUBLISH_AMBIGUOUS");
    proxy.set_faults(Faults::default());
    proxy.cut_all();
    let listed = gate.client().get("/v1/reconcile");
    let ambiguous = &listed["ambiguous"][0];
    assert_eq!(ambiguous["bus"], "found", "{listed}");
    assert_eq!(ambiguous["eb_refs"].as_array().map(Vec::len), Some(1), "{listed}");
    let path = format!("/v1/reconcile/{}", ambiguous["dedupe_key"].as_str().unwrap());
    let resolution = json!({ "resolution": "found", "reason": "looked" }).to_string();
    let headers = [("content-type", "application/json")];
    let resolved = gate.client().send("POST", &path, &headers, resolution.as_bytes()).unwrap();
    assert_eq!(resolved.status, 200, "{}", resolved.json());
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(6))), "DUPLICATE DUPLICATE");
    let verify = ["verify", "--json", "--data", text(data.path())];
    let (ok, verified) = admit_with(&verify, &variables(server.address()));
    assert!(ok, "{verified}");
    for printed in [gate.stdout(), gate.stderr(), verified] {
        assert!(!printed.contains(SECRET), "{printed}");
    }
    gate.stop();
}

#[test]
fn the_bench_measures_publishing_on_kinesis() {
    let Some(server) = KinesisLocal::start() else { return };
    let arguments = ["bench", "--bus", "kinesis://eu-central-1", "--seconds", "1", "--json"];
    let output = admit(arguments).envs(variables(server.address())).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bus = &measured["publish_bus"];
    assert!(bus["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{measured}");
    assert!(bus["count"].as_u64().is_some_and(|count| count > 0), "{measured}");
}
