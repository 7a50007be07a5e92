//! Reports and closures of runs: counts are complete, and a run is closed only if nothing is open, also
//! while producers are still sending.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::http::HttpResponse;
use crate::support::ingest::{
    RUN, count, document, envelope, launch_fast, outcome, push, read_decision,
};
use crate::support::intents::admit;
use crate::support::machine::text;
use crate::support::{TIMEOUT, sql, wait_for};

/// Artifacts folder of the golden run.
fn run_folder(data: &Path) -> PathBuf {
    data.join("artifacts/fraud-platform").join(RUN)
}

/// A gate with a short wait for missing files on closing.
fn launch_closing(data: &Path) -> Launch {
    launch_fast(data).variable("ADMIT_DOORS__INGESTION_GATE__CLOSING_WAIT_MS", "300")
}

fn close_with(gate: &Gate, body: &str) -> HttpResponse {
    let path = format!("/v1/runs/{RUN}/close");
    let headers = [("content-type", "application/json")];
    gate.client().send("POST", &path, &headers, body.as_bytes()).expect("response from the gate")
}

/// Closes the run, which must be refused; returns the reason codes.
fn reasons(gate: &Gate, body: &str) -> Vec<String> {
    let response = close_with(gate, body);
    let reply = response.json();
    assert_eq!(response.status, 409, "{reply}");
    assert_eq!(reply["error"]["code"], "closure_refused", "{reply}");
    assert_eq!(reply["state"], "open", "a refused closure must reopen the run");
    let codes = reply["reasons"].as_array().unwrap().iter();
    codes.map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the gate has restored a removed file.
fn wait_until_restored(file: &Path, content: &[u8]) {
    let is_restored = || (fs::read(file).ok()? == content).then_some(());
    wait_for("the file is restored from the ledger", TIMEOUT, is_restored);
}

fn report(gate: &Gate) -> Value {
    gate.client().get(&format!("/v1/runs/{RUN}/report"))
}

/// Event number `n` of one of four outputs.
fn of_output(output: usize, n: u64) -> Value {
    let mut event = envelope(n);
    event["event_id"] = format!("event-{output}-{n}").into();
    let payload = event["payload"].as_object_mut().unwrap();
    let is_fraud = output < 2;
    if !is_fraud {
        payload.retain(|name, _| name != "fraud_flag" && name != "campaign_id");
    }
    if output % 2 == 1 {
        payload.retain(|name, _| name != "event_seq" && name != "event_type");
        for name in [
            "arrival_seq",
            "merchant_id",
            "party_id",
            "account_id",
            "instrument_id",
            "device_id",
            "ip_id",
        ] {
            payload.insert(name.to_owned(), n.into());
        }
    }
    event["event_type"] = OUTPUTS[output].into();
    event
}

const OUTPUTS: [&str; 4] = [
    "s3_event_stream_with_fraud_6B",
    "s3_flow_anchor_with_fraud_6B",
    "s2_event_stream_baseline_6B",
    "s2_flow_anchor_baseline_6B",
];

/// An envelope that violates its schema.
fn invalid(n: u64) -> Value {
    let mut invalid = envelope(n);
    invalid["payload"]["amount"] = "much".into();
    invalid
}

/// Dismisses the quarantine that a response reports.
fn dismiss(gate: &Gate, response: &HttpResponse) {
    let id = response.json()["receipt"]["receipt_id"].as_str().unwrap().to_owned();
    let listen = gate.address().to_string();
    let (ok, output) = admit(&[
        "quarantine",
        "release",
        &id,
        "--how",
        "dismissed",
        "--reason",
        "a test",
        "--listen",
        &listen,
    ]);
    assert!(ok, "{output}");
}

#[test]
fn the_report_counts_replayed_events_as_the_contract_does() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_closing(folder.path()).start();
    let mut client = gate.client();
    // Send two of each output; then, as after a lost checkpoint, three of each.
    for count in [2, 3] {
        for output in 0..4 {
            for n in 0..count {
                let decision = outcome(&push(&mut client, &of_output(output, n)));
                let is_new = count == 2 || n == 2;
                assert_eq!(
                    decision,
                    if is_new { "ADMIT" } else { "DUPLICATE DUPLICATE" },
                    "{output} {n}"
                );
            }
        }
    }
    let ready = run_folder(gate.data()).join("wsp/ready_runs");
    fs::create_dir_all(ready.join("markers")).unwrap();
    fs::write(ready.join("markers/x.json"), "{}").unwrap();
    let record = "{\"status\":\"FAILED\",\"emitted\":0}\n{\"status\":\"STREAMED\",\"emitted\":8}\n";
    fs::write(ready.join(format!("{}.jsonl", "a".repeat(64))), record).unwrap();
    let reply = report(&gate);
    assert_eq!(
        reply["ingress"],
        json!({ "sent": 8, "received": 20, "admit": 12, "duplicate": 8, "quarantine": 0,
                "publish_ambiguous": 0, "receipt_write_failed": 0 })
    );
    assert_eq!((&reply["deliveries"], &reply["in_flight"]), (&json!(20), &json!(0)));
    let producer = &reply["producers"]["svc:world_stream_producer"];
    assert_eq!(*producer, json!({ "admit": 12, "duplicate": 8, "quarantine": 0 }));
    for output in OUTPUTS {
        assert_eq!(reply["outputs"][output]["admit"], 3, "{output}");
    }
    assert_eq!(reply["evidence_refs"]["receipt_refs_sample"].as_array().unwrap().len(), 20);
    assert_eq!(
        reply["evidence_refs"]["quarantine_refs_sample"],
        json!([]),
        "duplicates are not in it"
    );
    assert!(reply["basis"]["provenance"]["build_commit"].is_string(), "{reply}");
    assert_eq!(reply["knobs"]["gate"]["closing_wait_ms"], 300);
    let locator = reply["basis"]["ig_admission_locator"].as_str().unwrap();
    let kind = if sql::is_postgres() { "postgres://127.0.0.1:" } else { "sqlite:" };
    assert!(locator.starts_with(kind) && !locator.contains('@'), "{locator}");
    // The file equals the response, except for members that only the response has.
    let reference = reply["artifact_refs"][0].as_str().unwrap();
    let mut file = document(gate.data(), reference);
    file["artifact_refs"] = reply["artifact_refs"].clone();
    assert_eq!(file, reply);
    // A second request changes nothing and adds no governance line.
    report(&gate);
    let log = run_folder(gate.data()).join("obs/governance/events.jsonl");
    let lines = fs::read_to_string(log).unwrap();
    assert_eq!(lines.matches("RUN_REPORT_GENERATED").count(), 1, "{lines}");

    let listen = gate.address().to_string();
    let (ok, table) = admit(&["runs", "report", RUN, "--listen", &listen]);
    assert!(ok && table.contains("svc:world_stream_producer"), "{table}");
    let (ok, closed) = admit(&[
        "runs",
        "close",
        RUN,
        "--listen",
        &listen,
        "--reason",
        "the end",
        "--expect",
        "s3_event_stream_with_fraud_6B=3",
    ]);
    assert!(ok, "{closed}");
    assert_eq!(report(&gate)["state"], "closed");
    gate.stop();
}

#[test]
fn an_unknown_run_has_no_report_and_no_closure() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_closing(folder.path()).start();
    let response = gate.client().send("GET", "/v1/runs/unknown/report", &[], b"").unwrap();
    assert_eq!(response.status, 404);
    assert_eq!(close_with(&gate, "").status, 404);
    assert_eq!(close_with(&gate, "[]").status, 400);
    assert_eq!(close_with(&gate, r#"{"manifest":{"a":"x"}}"#).status, 400);
    gate.stop();
}

#[test]
fn closing_is_refused_for_each_reason_and_then_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_closing(data).start();
    let mut client = gate.client();

    let quarantined = push(&mut client, &invalid(1));
    let output = &report(&gate)["outputs"]["s3_event_stream_with_fraud_6B"];
    assert_eq!(*output, json!({ "admit": 0, "duplicate": 0, "quarantine": 1 }));
    assert_eq!(reasons(&gate, ""), ["nothing_admitted", "quarantine_open"]);
    dismiss(&gate, &quarantined);
    assert_eq!(reasons(&gate, "{}"), ["nothing_admitted"]);

    // The run is open again after every refusal.
    for n in 2..6 {
        assert_eq!(outcome(&push(&mut client, &envelope(n))), "ADMIT");
    }
    let quarantined = push(&mut client, &invalid(9));
    assert_eq!(reasons(&gate, ""), ["quarantine_open"]);
    dismiss(&gate, &quarantined);

    let unknown = run_folder(data).join("ig/receipts").join(format!("{}.json", "0".repeat(32)));
    fs::write(&unknown, "{}\n").unwrap();
    assert_eq!(reasons(&gate, ""), ["receipt_unknown"]);
    fs::remove_file(&unknown).unwrap();

    let (_, receipt) = read_decision(&push(&mut client, &envelope(7)));
    let id = receipt["receipt_id"].as_str().unwrap();
    let file = run_folder(data).join("ig/receipts").join(format!("{id}.json"));
    let content = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(reasons(&gate, ""), ["receipt_missing"]);
    wait_until_restored(&file, &content);

    let record =
        quarantined.json()["receipt"]["evidence_refs"][0]["ref"].as_str().unwrap().to_owned();
    let record = data.join("artifacts").join(record);
    let content = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    assert_eq!(reasons(&gate, ""), ["record_missing"]);
    wait_until_restored(&record, &content);

    let manifest =
        |count: u64| json!({ "manifest": { "s3_event_stream_with_fraud_6B": count } }).to_string();
    assert_eq!(reasons(&gate, &manifest(6)), ["manifest_mismatch"]);
    gate.stop();

    assert_inconsistencies_are_refused(data);
    assert_ambiguous_until_reconciled(data);

    let gate = launch_closing(data).start();
    let response = close_with(&gate, &manifest(5));
    let closure = response.json();
    assert_eq!(response.status, 200, "{closure}");
    let ingress = &closure["ingress"];
    assert_eq!((&ingress["admit"], &ingress["quarantine"]), (&json!(5), &json!(3)), "{closure}");
    let output = &closure["outputs"]["s3_event_stream_with_fraud_6B"];
    assert_eq!(output["quarantine"], 3, "released ones count too: {closure}");
    assert_governance_lines(data, &closure);
    let released = &closure["quarantine"]["released"];
    assert_eq!(*released, json!({ "dismissed": 2, "reconciled": 1 }), "{closure}");
    let mut file = document(data, closure["closure_ref"].as_str().unwrap());
    file["closure_ref"] = closure["closure_ref"].clone();
    assert_eq!(file, closure, "the file differs from the response");

    // Closing is final; a second request returns the same closure.
    assert_eq!(close_with(&gate, "").json(), closure);
    let other = close_with(&gate, &manifest(6));
    assert_eq!((other.status, &other.json()["state"]), (409, &json!("closed")));
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(7))), "DUPLICATE DUPLICATE");
    let late = push(&mut gate.client(), &envelope(100));
    assert_eq!((late.status, &late.json()["error"]), (409, &json!("RUN_CLOSED")));
    let (verified, output) = admit(&["verify", "--data", text(data)]);
    assert!(verified, "{output}");
    gate.stop();
}

/// Asserts one governance line about the evidence of the closure, and one about the end of the run.
fn assert_governance_lines(data: &Path, closure: &Value) {
    let folder = run_folder(data).join("obs/governance");
    let log = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |family: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["event_family"] == family).collect()
    };
    let (resolved, ended) = (of("EVIDENCE_REF_RESOLVED"), of("RUN_ENDED"));
    assert_eq!((resolved.len(), ended.len()), (1, 1), "{log}");
    let present = |name: &str| closure[name].as_u64().unwrap();
    let count = present("receipts_present") + present("quarantine_records_present");
    assert!(count > 0, "{closure}");
    assert_eq!(
        resolved[0]["details"],
        json!({ "closure_ref": closure["closure_ref"], "attempted": count, "resolved": count,
                "denied": 0 })
    );
    assert_eq!(ended[0]["details"]["closure_ref"], closure["closure_ref"]);
    for line in [resolved[0], ended[0]] {
        let word = |name: &str| line[name].as_str().unwrap();
        let named = format!(
            "{}|{RUN}||{}|{}",
            word("event_family"),
            word("source_component"),
            word("dedupe_key")
        );
        let id = admit_core::hash::sha256_hex(named.as_bytes());
        assert_eq!(word("event_id"), id, "the id formula of the contract");
        let marker = fs::read(folder.join("markers").join(format!("{id}.json"))).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&marker).unwrap(), *line);
    }
}

/// Runs a script on the ledger of a stopped gate.
fn execute(data: &Path, script: &str) {
    sql::execute(data, script);
}

/// Asserts that wrong counters, references and paths, which only a defect could write, are refused.
fn assert_inconsistencies_are_refused(data: &Path) {
    const ONE: &str =
        "n = (SELECT min(n) FROM issued WHERE kind = 'receipt' AND decision = 'ADMIT')";
    for (reason, damage, repair) in [
        (
            "miscounted",
            "UPDATE run SET admit = admit + 1".to_owned(),
            "UPDATE run SET admit = admit - 1".to_owned(),
        ),
        (
            "reference_missing",
            format!(
                "UPDATE issued SET text = replace(text, '\"eb_ref\"', '\"eb_rex\"') WHERE {ONE}"
            ),
            format!(
                "UPDATE issued SET text = replace(text, '\"eb_rex\"', '\"eb_ref\"') WHERE {ONE}"
            ),
        ),
        (
            "receipt_misplaced",
            format!("UPDATE issued SET path = 'x' || path WHERE {ONE}"),
            format!("UPDATE issued SET path = substr(path, 2) WHERE {ONE}"),
        ),
    ] {
        execute(data, &damage);
        let gate = launch_closing(data).start();
        // A receipt text changed in the ledger also differs from its file.
        let codes = reasons(&gate, "");
        let others: Vec<&String> = codes.iter().filter(|code| *code != "receipt_differs").collect();
        assert_eq!(others, [reason]);
        gate.stop();
        execute(data, &repair);
    }
}

/// Sets the last publish back to in flight, as after a crash; asserts that it is ambiguous until
/// reconciled.
fn assert_ambiguous_until_reconciled(data: &Path) {
    const LAST: &str = "(SELECT max(seq) FROM effect)";
    let query = format!("SELECT path FROM issued WHERE of = {LAST}");
    let receipt: String = sql::query_one(data, &query);
    fs::remove_file(data.join("artifacts").join(receipt)).unwrap();
    let unsynced = match sql::is_postgres() {
        true => "UPDATE gate SET synced_to = 0",
        false => "UPDATE meta SET value = 0 WHERE name = 'artifacts_synced'",
    };
    execute(
        data,
        &format!(
            "DELETE FROM issued WHERE of = {LAST};
             UPDATE effect SET state = 'in_flight', evidence = NULL, epoch = 1 WHERE seq = {LAST};
             UPDATE run SET admit = admit - 1, in_flight = in_flight + 1;
             {unsynced};"
        ),
    );
    let gate = launch_closing(data).start();
    assert_eq!(reasons(&gate, ""), ["ambiguous", "quarantine_open"]);
    let listen = gate.address().to_string();
    let (ok, output) = admit(&[
        "reconcile",
        "--all",
        "--found",
        "--yes",
        "--reason",
        "it is there",
        "--listen",
        &listen,
    ]);
    assert!(ok, "{output}");
    gate.stop();
}

#[test]
fn a_gate_killed_while_closing_reopens_the_run_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_closing(folder.path()).start();
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    gate.stop();
    execute(folder.path(), "UPDATE run SET state = 'closing'");
    let gate = launch_closing(folder.path()).start();
    assert_eq!(report(&gate)["state"], "open");
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(2))), "ADMIT");
    assert_eq!(close_with(&gate, "").status, 200);
    gate.stop();
    // The file of a committed closure is restored at the next start.
    let file = run_folder(folder.path()).join("obs/run_closure.json");
    let written = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    execute(folder.path(), "UPDATE run_closure SET is_filed = 0");
    let gate = launch_closing(folder.path()).start();
    assert_eq!(fs::read(&file).unwrap(), written);
    gate.stop();
}

#[test]
fn concurrent_events_are_in_the_closure_or_refused() {
    const PRODUCERS: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_fast(folder.path()).start();
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(0))), "ADMIT");
    let (is_closed_now, admitted, refused) =
        (AtomicBool::new(false), AtomicU64::new(1), AtomicU64::new(0));
    let closed = thread::scope(|scope| {
        for producer in 1..=PRODUCERS {
            let (gate, is_closed_now, admitted, refused) =
                (&gate, &is_closed_now, &admitted, &refused);
            scope.spawn(move || {
                let mut client = gate.client();
                for n in 0.. {
                    let is_late = is_closed_now.load(Ordering::SeqCst);
                    let response = push(&mut client, &envelope(producer * 1_000_000 + n));
                    let reply = response.json();
                    match (response.status, reply["decision"].as_str()) {
                        (200, Some("ADMIT")) => {
                            assert!(!is_late, "admitted after the closure: {reply}");
                            admitted.fetch_add(1, Ordering::SeqCst);
                        }
                        (409 | 503, _) => {
                            let is_closed = reply["error"] == "RUN_CLOSED";
                            assert!(is_closed || reply["error"] == "RUN_CLOSING", "{reply}");
                            refused.fetch_add(1, Ordering::SeqCst);
                        }
                        other => panic!("{other:?} {reply}"),
                    }
                    if is_late {
                        break;
                    }
                }
            });
        }
        wait_for("300 admitted events", TIMEOUT, || {
            (admitted.load(Ordering::SeqCst) > 300).then_some(())
        });
        let response = close_with(&gate, "");
        // Every request begun after this must be refused.
        is_closed_now.store(true, Ordering::SeqCst);
        response
    });
    let closure = closed.json();
    assert_eq!(closed.status, 200, "{closure}");
    let admitted = admitted.load(Ordering::SeqCst);
    assert_eq!(closure["ingress"]["admit"], admitted, "every ADMIT reply must be in the closure");
    assert!(refused.load(Ordering::SeqCst) >= PRODUCERS, "each producer must get a refusal");
    let data = gate.data();
    let receipts = format!(
        "SELECT count(*) FROM ig_receipts WHERE decision = 'ADMIT' AND platform_run_id = '{RUN}'"
    );
    assert_eq!(count(data, &receipts), i64::try_from(admitted).unwrap());
    assert_eq!(
        fs::read_dir(run_folder(data).join("ig/receipts")).unwrap().count() as u64,
        admitted
    );
    assert_eq!(report(&gate)["ingress"], closure["ingress"]);
    gate.stop();
}
