//! Runs as a whole: the report counts what is there, and a run is closed only if nothing speaks
//! against it, whoever is still sending.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::http::Answer;
use crate::support::ingest::{RUN, count, decided, document, envelope, gist, impatient, push};
use crate::support::intents::admit;
use crate::support::machine::text;
use crate::support::{SOON, sql, until};

/// Where the artifacts of the golden run are.
fn run_folder(data: &Path) -> PathBuf {
    data.join("artifacts/fraud-platform").join(RUN)
}

/// A gate that does not wait long for what is not there.
fn closer(data: &Path) -> Launch {
    impatient(data).variable("ADMIT_DOORS__INGESTION_GATE__CLOSING_WAIT_MS", "300")
}

fn close_with(gate: &Gate, body: &str) -> Answer {
    let path = format!("/v1/runs/{RUN}/close");
    let headers = [("content-type", "application/json")];
    gate.client().send("POST", &path, &headers, body.as_bytes()).expect("the gate answers")
}

/// The codes of everything that speaks against closing the run.
fn reasons(gate: &Gate, body: &str) -> Vec<String> {
    let answer = close_with(gate, body);
    let said = answer.json();
    assert_eq!(answer.status, 409, "{said}");
    assert_eq!(said["error"]["code"], "closure_refused", "{said}");
    assert_eq!(said["state"], "open", "a refused closure opens the run again");
    let codes = said["reasons"].as_array().unwrap().iter();
    codes.map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the gate has written a file again that somebody took away.
fn back(file: &Path, kept: &[u8]) {
    let is_back = || (fs::read(file).ok()? == kept).then_some(());
    until("what is lost is written again from the ledger", SOON, is_back);
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

/// What cannot be admitted.
fn broken(n: u64) -> Value {
    let mut broken = envelope(n);
    broken["payload"]["amount"] = "much".into();
    broken
}

/// Lets the quarantine that an answer tells of go.
fn dismiss(gate: &Gate, answer: &Answer) {
    let id = answer.json()["receipt"]["receipt_id"].as_str().unwrap().to_owned();
    let listen = gate.address().to_string();
    let (ok, said) = admit(&[
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
    assert!(ok, "{said}");
}

#[test]
fn the_report_counts_what_was_replayed_as_the_sheet_does() {
    let folder = tempfile::tempdir().unwrap();
    let gate = closer(folder.path()).start();
    let mut client = gate.client();
    // Two of each output are sent; then the checkpoint is lost, and three of each are.
    for most in [2, 3] {
        for output in 0..4 {
            for n in 0..most {
                let told = gist(&push(&mut client, &of_output(output, n)));
                let is_new = most == 2 || n == 2;
                assert_eq!(
                    told,
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
    let said = report(&gate);
    assert_eq!(
        said["ingress"],
        json!({ "sent": 8, "received": 20, "admit": 12, "duplicate": 8, "quarantine": 0,
                "publish_ambiguous": 0, "receipt_write_failed": 0 })
    );
    assert_eq!((&said["deliveries"], &said["in_flight"]), (&json!(20), &json!(0)));
    let producer = &said["producers"]["svc:world_stream_producer"];
    assert_eq!(*producer, json!({ "admit": 12, "duplicate": 8, "quarantine": 0 }));
    for output in OUTPUTS {
        assert_eq!(said["outputs"][output]["admit"], 3, "{output}");
    }
    assert_eq!(said["evidence_refs"]["receipt_refs_sample"].as_array().unwrap().len(), 20);
    assert_eq!(said["evidence_refs"]["quarantine_refs_sample"], json!([]), "copies are not in it");
    assert!(said["basis"]["provenance"]["build_commit"].is_string(), "{said}");
    assert_eq!(said["knobs"]["gate"]["closing_wait_ms"], 300);
    let locator = said["basis"]["ig_admission_locator"].as_str().unwrap();
    let kind = if sql::is_postgres() { "postgres://127.0.0.1:" } else { "sqlite:" };
    assert!(locator.starts_with(kind) && !locator.contains('@'), "{locator}");
    // The file is the same without what is only in the answer.
    let reference = said["artifact_refs"][0].as_str().unwrap();
    let mut file = document(gate.data(), reference);
    file["artifact_refs"] = said["artifact_refs"].clone();
    assert_eq!(file, said);
    // Asked again nothing is new, and governance hears of it once.
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
fn a_run_that_nobody_has_named_has_no_report_and_no_closure() {
    let folder = tempfile::tempdir().unwrap();
    let gate = closer(folder.path()).start();
    let answer = gate.client().send("GET", "/v1/runs/nobody/report", &[], b"").unwrap();
    assert_eq!(answer.status, 404);
    assert_eq!(close_with(&gate, "").status, 404);
    assert_eq!(close_with(&gate, "[]").status, 400);
    assert_eq!(close_with(&gate, r#"{"manifest":{"a":"x"}}"#).status, 400);
    gate.stop();
}

#[test]
fn a_run_is_refused_for_each_reason_in_turn_and_then_closed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = closer(data).start();
    let mut client = gate.client();

    let quarantined = push(&mut client, &broken(1));
    let output = &report(&gate)["outputs"]["s3_event_stream_with_fraud_6B"];
    assert_eq!(*output, json!({ "admit": 0, "duplicate": 0, "quarantine": 1 }));
    assert_eq!(reasons(&gate, ""), ["nothing_admitted", "quarantine_open"]);
    dismiss(&gate, &quarantined);
    assert_eq!(reasons(&gate, "{}"), ["nothing_admitted"]);

    // The run is open after every refusal.
    for n in 2..6 {
        assert_eq!(gist(&push(&mut client, &envelope(n))), "ADMIT");
    }
    let quarantined = push(&mut client, &broken(9));
    assert_eq!(reasons(&gate, ""), ["quarantine_open"]);
    dismiss(&gate, &quarantined);

    let stray = run_folder(data).join("ig/receipts").join(format!("{}.json", "0".repeat(32)));
    fs::write(&stray, "{}\n").unwrap();
    assert_eq!(reasons(&gate, ""), ["receipt_unknown"]);
    fs::remove_file(&stray).unwrap();

    let (_, receipt) = decided(&push(&mut client, &envelope(7)));
    let id = receipt["receipt_id"].as_str().unwrap();
    let file = run_folder(data).join("ig/receipts").join(format!("{id}.json"));
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(reasons(&gate, ""), ["receipt_missing"]);
    back(&file, &kept);

    let record =
        quarantined.json()["receipt"]["evidence_refs"][0]["ref"].as_str().unwrap().to_owned();
    let record = data.join("artifacts").join(record);
    let kept = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    assert_eq!(reasons(&gate, ""), ["record_missing"]);
    back(&record, &kept);

    let manifest =
        |count: u64| json!({ "manifest": { "s3_event_stream_with_fraud_6B": count } }).to_string();
    assert_eq!(reasons(&gate, &manifest(6)), ["manifest_mismatch"]);
    gate.stop();

    refused_for_what_only_a_defect_does(data);
    ambiguous_until_a_person_has_found_out(data);

    let gate = closer(data).start();
    let answer = close_with(&gate, &manifest(5));
    let closure = answer.json();
    assert_eq!(answer.status, 200, "{closure}");
    let ingress = &closure["ingress"];
    assert_eq!((&ingress["admit"], &ingress["quarantine"]), (&json!(5), &json!(3)), "{closure}");
    let output = &closure["outputs"]["s3_event_stream_with_fraud_6B"];
    assert_eq!(output["quarantine"], 3, "released ones too: {closure}");
    followed_to_its_evidence(data, &closure);
    let released = &closure["quarantine"]["released"];
    assert_eq!(*released, json!({ "dismissed": 2, "reconciled": 1 }), "{closure}");
    let mut file = document(data, closure["closure_ref"].as_str().unwrap());
    file["closure_ref"] = closure["closure_ref"].clone();
    assert_eq!(file, closure, "the file says the same");

    // Closed is for ever, and asking again gives the same.
    assert_eq!(close_with(&gate, "").json(), closure);
    let other = close_with(&gate, &manifest(6));
    assert_eq!((other.status, &other.json()["state"]), (409, &json!("closed")));
    assert_eq!(gist(&push(&mut gate.client(), &envelope(7))), "DUPLICATE DUPLICATE");
    let late = push(&mut gate.client(), &envelope(100));
    assert_eq!((late.status, &late.json()["error"]), (409, &json!("RUN_CLOSED")));
    let (agrees, said) = admit(&["verify", "--data", text(data)]);
    assert!(agrees, "{said}");
    gate.stop();
}

/// Governance has one line about the evidence behind the closure, and one about the end of the run.
fn followed_to_its_evidence(data: &Path, closure: &Value) {
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
        assert_eq!(word("event_id"), id, "the formula of the sheet");
        let marker = fs::read(folder.join("markers").join(format!("{id}.json"))).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&marker).unwrap(), *line);
    }
}

/// Runs a script on the ledger of a gate that does not run.
fn operate(data: &Path, script: &str) {
    sql::operate(data, script);
}

/// Counters, references and places that no gate writes wrong.
fn refused_for_what_only_a_defect_does(data: &Path) {
    const ONE: &str =
        "n = (SELECT min(n) FROM issued WHERE kind = 'receipt' AND decision = 'ADMIT')";
    for (reason, spoil, mend) in [
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
        operate(data, &spoil);
        let gate = closer(data).start();
        // A text that was changed in the ledger is not what its file says either.
        let grounds = reasons(&gate, "");
        let others: Vec<&String> = grounds.iter().filter(|one| *one != "receipt_differs").collect();
        assert_eq!(others, [reason]);
        gate.stop();
        operate(data, &mend);
    }
}

/// An event that was in flight when a gate died: the last one loses what was said after it.
fn ambiguous_until_a_person_has_found_out(data: &Path) {
    const LAST: &str = "(SELECT max(seq) FROM effect)";
    let query = format!("SELECT path FROM issued WHERE of = {LAST}");
    let receipt: String = sql::one(data, &query);
    fs::remove_file(data.join("artifacts").join(receipt)).unwrap();
    let unsynced = match sql::is_postgres() {
        true => "UPDATE gate SET synced_to = 0",
        false => "UPDATE meta SET value = 0 WHERE name = 'artifacts_synced'",
    };
    operate(
        data,
        &format!(
            "DELETE FROM issued WHERE of = {LAST};
             UPDATE effect SET state = 'in_flight', evidence = NULL, epoch = 1 WHERE seq = {LAST};
             UPDATE run SET admit = admit - 1, in_flight = in_flight + 1;
             {unsynced};"
        ),
    );
    let gate = closer(data).start();
    assert_eq!(reasons(&gate, ""), ["ambiguous", "quarantine_open"]);
    let listen = gate.address().to_string();
    let (ok, said) = admit(&[
        "reconcile",
        "--all",
        "--found",
        "--yes",
        "--reason",
        "it is there",
        "--listen",
        &listen,
    ]);
    assert!(ok, "{said}");
    gate.stop();
}

#[test]
fn a_gate_that_dies_while_it_closes_opens_the_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let gate = closer(folder.path()).start();
    assert_eq!(gist(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    gate.stop();
    operate(folder.path(), "UPDATE run SET state = 'closing'");
    let gate = closer(folder.path()).start();
    assert_eq!(report(&gate)["state"], "open");
    assert_eq!(gist(&push(&mut gate.client(), &envelope(2))), "ADMIT");
    assert_eq!(close_with(&gate, "").status, 200);
    gate.stop();
    // A closure that was committed gets its file at the next start.
    let file = run_folder(folder.path()).join("obs/run_closure.json");
    let said = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    operate(folder.path(), "UPDATE run_closure SET is_filed = 0");
    let gate = closer(folder.path()).start();
    assert_eq!(fs::read(&file).unwrap(), said);
    gate.stop();
}

#[test]
fn whoever_is_still_sending_is_in_before_the_closure_or_is_told_so() {
    const PRODUCERS: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    let gate = impatient(folder.path()).start();
    assert_eq!(gist(&push(&mut gate.client(), &envelope(0))), "ADMIT");
    let (is_over, admitted, refused) =
        (AtomicBool::new(false), AtomicU64::new(1), AtomicU64::new(0));
    let closed = thread::scope(|scope| {
        for producer in 1..=PRODUCERS {
            let (gate, is_over, admitted, refused) = (&gate, &is_over, &admitted, &refused);
            scope.spawn(move || {
                let mut client = gate.client();
                for n in 0.. {
                    let has_ended = is_over.load(Ordering::SeqCst);
                    let answer = push(&mut client, &envelope(producer * 1_000_000 + n));
                    let said = answer.json();
                    match (answer.status, said["decision"].as_str()) {
                        (200, Some("ADMIT")) => {
                            assert!(!has_ended, "nothing comes in after the closure: {said}");
                            admitted.fetch_add(1, Ordering::SeqCst);
                        }
                        (409 | 503, _) => {
                            let is_closed = said["error"] == "RUN_CLOSED";
                            assert!(is_closed || said["error"] == "RUN_CLOSING", "{said}");
                            refused.fetch_add(1, Ordering::SeqCst);
                        }
                        other => panic!("{other:?} {said}"),
                    }
                    if has_ended {
                        break;
                    }
                }
            });
        }
        until("some are in", SOON, || (admitted.load(Ordering::SeqCst) > 300).then_some(()));
        let answer = close_with(&gate, "");
        // Whoever begins after this must be refused.
        is_over.store(true, Ordering::SeqCst);
        answer
    });
    let closure = closed.json();
    assert_eq!(closed.status, 200, "{closure}");
    let admitted = admitted.load(Ordering::SeqCst);
    assert_eq!(
        closure["ingress"]["admit"], admitted,
        "every ADMIT that was said is in the closure"
    );
    assert!(refused.load(Ordering::SeqCst) >= PRODUCERS, "everybody heard of it");
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
