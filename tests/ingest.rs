//! The ingestion gate on the file bus: an admitted event is committed on the bus and has a receipt.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::ingest::{
    PUSH, RUN, STREAM, artifact, count, counters, document, envelope, golden, launch_fast, outcome,
    published, push, push_bytes, read_decision, topic,
};
use crate::support::intents::admit;
use crate::support::machine::text;
use crate::support::sql;

fn lookup(gate: &Gate, query: &str) -> Value {
    gate.client().get(&format!("/v1/ops/lookup?{query}"))
}

/// Asserts that `admit verify` on the data folder succeeds.
fn assert_verified(gate: &Gate) {
    let (verified, output) = admit(&["verify", "--data", text(gate.data())]);
    assert!(verified, "{output}");
}

#[test]
fn the_golden_envelope_is_admitted_with_the_golden_keys_and_ids() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let golden = golden();
    let response = push(&mut gate.client(), &golden["envelope"]);
    let (decision, receipt) = read_decision(&response);
    assert_eq!(decision, "ADMIT");
    for (name, pointer) in [
        ("dedupe_key", "/dedupe_key"),
        ("payload_hash", "/payload_hash/hex"),
        ("partition_key", "/partition_key"),
        ("partitioning_profile_id", "/partitioning_profile_id"),
        ("event_class", "/event_class"),
        ("stream", "/eb_ref/topic"),
    ] {
        assert_eq!(receipt.pointer(pointer), Some(&golden[name]), "{name}");
    }
    assert_eq!(receipt["receipt_id"], golden["receipt_id"]["ADMIT"]);
    assert_eq!(receipt["eb_ref"]["offset"], "0");
    assert_eq!(receipt.get("reason_codes"), None, "an admission has no reason codes");
    let reference = response.json()["receipt_ref"].as_str().unwrap().to_owned();
    assert_eq!(document(gate.data(), &reference), receipt, "the file differs from the receipt");

    let line = topic(gate.data(), STREAM).pop().expect("a message on the bus");
    assert_eq!(line["payload"], golden["envelope"], "the envelope was changed");
    assert_eq!(line["partition_key"], golden["partition_key"]);

    let event_id = golden["event_id"].as_str().unwrap();
    let by_event = lookup(&gate, &format!("event_id={event_id}"));
    assert_eq!(by_event["receipt_ref"], reference.as_str());
    let key = golden["dedupe_key"].as_str().unwrap();
    assert_eq!(lookup(&gate, &format!("dedupe_key={key}")), by_event);
    let id = golden["receipt_id"]["ADMIT"].as_str().unwrap();
    assert_eq!(lookup(&gate, &format!("receipt_id={id}")), by_event);
    assert_eq!(lookup(&gate, "event_id=unknown"), json!({}));
    let mut client = gate.client();
    let of_run = format!("?door=ingestion-gate&run={RUN}");
    let receipt = client.get(&format!("/v1/receipts/{id}{of_run}"));
    assert_eq!(
        (&receipt["verdict"], &receipt["facts"]["dedupe_key"]),
        (&json!("fresh"), &json!(key))
    );
    assert_eq!(client.get(&format!("/v1/receipts/{key}{of_run}")), receipt);
    for id in [id, key] {
        let other = format!("/v1/receipts/{id}?door=ingestion-gate&run=another");
        assert_eq!(client.send("GET", &other, &[], b"").unwrap().status, 404, "{id}");
    }
    let arguments = ["receipts", "get", id, "--door", "ingestion-gate", "--run", RUN, "--json"];
    let (found, output) = admit(&[&arguments[..], &["--data", text(gate.data())]].concat());
    assert!(found, "{output}");
    assert_eq!(serde_json::from_str::<Value>(&output).unwrap(), receipt);
    let query = format!("SELECT state FROM ig_admissions WHERE dedupe_key = '{key}'");
    let state: String = sql::query_one(gate.data(), &query);
    assert_eq!(state, "ADMITTED");
    assert_verified(&gate);
    gate.stop();
}

#[test]
fn five_replays_give_one_reference_and_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let golden = golden();
    let (_, first) = read_decision(&push(&mut gate.client(), &golden["envelope"]));
    for round in 0..5 {
        let (decision, receipt) = read_decision(&push(&mut gate.client(), &golden["envelope"]));
        assert_eq!(decision, "DUPLICATE", "round {round}");
        assert_eq!(receipt["eb_ref"], first["eb_ref"]);
        assert_eq!(receipt["admitted_at_utc"], first["admitted_at_utc"]);
        assert_eq!(receipt["receipt_id"], golden["receipt_id"]["DUPLICATE"]);
        assert_eq!(receipt["evidence_refs"][0]["kind"], "receipt_ref");
    }
    assert_eq!(topic(gate.data(), STREAM).len(), 1, "published once");
    assert_eq!(counters(gate.data()), [6, 0, 0, 1, 1, 0], "deliveries are counted, receipts not");
    assert_eq!(count(gate.data(), "SELECT count(*) FROM sighting"), 5);
    gate.stop();
}

#[test]
fn after_a_restart_a_copy_is_still_a_duplicate_with_the_same_offset() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let (_, first) = read_decision(&push(&mut gate.client(), &envelope(1)));
    push(&mut gate.client(), &envelope(2));
    gate.stop();
    let gate = Gate::on(folder.path());
    let (decision, again) = read_decision(&push(&mut gate.client(), &envelope(1)));
    assert_eq!((decision.as_str(), &again["eb_ref"]), ("DUPLICATE", &first["eb_ref"]));
    let (_, third) = read_decision(&push(&mut gate.client(), &envelope(3)));
    assert_eq!(third["eb_ref"]["offset"], "2", "offsets must continue");
    assert_verified(&gate);
    gate.stop();
}

#[test]
fn every_reason_of_the_contract_quarantines_with_a_receipt_and_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let change = |n: u64, change: &dyn Fn(&mut Value)| {
        let mut changed = envelope(n);
        change(&mut changed);
        changed
    };
    push(&mut client, &envelope(1));
    let cases = [
        ("ENVELOPE_INVALID", change(2, &|e| e["ts_utc"] = "yesterday".into())),
        ("PINS_MISSING", change(3, &|e| e["run_id"] = Value::Null)),
        ("SCHEMA_POLICY_MISSING", change(4, &|e| e["event_type"] = "unknown_type".into())),
        ("SCHEMA_FAIL", change(5, &|e| e["payload"]["amount"] = "much".into())),
        ("PAYLOAD_HASH_MISMATCH", change(1, &|e| e["payload"]["amount"] = 99.into())),
        ("ENVELOPE_INVALID", change(6, &|e| e["scenario_id"] = 7.into())),
    ];
    for (reason, envelope) in cases {
        let response = push(&mut client, &envelope);
        if reason == "PINS_MISSING" && response.json()["receipt"]["reason_codes"][0] != reason {
            // `null` breaks the envelope schema first.
            assert_eq!(outcome(&response), "QUARANTINE ENVELOPE_INVALID");
            continue;
        }
        assert_eq!(outcome(&response), format!("QUARANTINE {reason}"));
        let reply = response.json();
        let reference = reply["receipt_ref"].as_str().unwrap();
        assert!(reference.contains(&format!("/{RUN}/ig/receipts/")), "{reference}");
        assert_eq!(document(gate.data(), reference), reply["receipt"]);
        let record = reply["receipt"]["evidence_refs"][0]["ref"].as_str().unwrap();
        let record = document(gate.data(), record);
        assert_eq!(record["reason_codes"], json!([reason]));
        assert_eq!(record["envelope"].get("payload"), None, "a record must not have a payload");
    }
    assert_eq!(topic(gate.data(), STREAM).len(), 1, "a quarantined event was published");
    let log = artifact(gate.data(), &format!("fraud-platform/{RUN}/obs/governance/events.jsonl"));
    let lines = fs::read_to_string(log).unwrap();
    let anomalies = lines.lines().filter(|line| line.contains("CORRIDOR_ANOMALY")).count();
    assert_eq!(anomalies as i64, counters(gate.data())[5], "one line for each quarantine");
    assert_verified(&gate);
    gate.stop();
}

#[test]
fn an_envelope_without_a_run_gets_a_typed_error_and_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let without = |name: &str| {
        let mut envelope = envelope(1);
        envelope.as_object_mut().unwrap().remove(name);
        envelope.to_string()
    };
    let bodies = [
        ("{}".to_owned(), 422),
        ("[]".to_owned(), 422),
        (without("platform_run_id"), 422),
        (without("manifest_fingerprint"), 422),
        (without("event_id"), 422),
        (without("ts_utc"), 422),
        ("not json".to_owned(), 400),
    ];
    for (body, status) in bodies {
        let response = push_bytes(&mut client, body.as_bytes());
        let reply = response.json();
        assert_eq!(response.status, status, "{body}: {reply}");
        assert!(reply["error"].is_string() && reply["detail"].is_string(), "{reply}");
        let reference = reply["quarantine_ref"].as_str().unwrap();
        assert!(reference.contains("unscoped/ig/quarantine/"), "{reference}");
        document(gate.data(), reference);
        let raw = artifact(gate.data(), &reference.replace(".json", ".raw"));
        assert_eq!(fs::read_to_string(raw).unwrap(), body, "byte for byte");
    }
    assert_eq!(topic(gate.data(), STREAM).len(), 0);
    assert_verified(&gate);
    gate.stop();
}

#[test]
fn receipts_are_stored_under_the_run_of_their_event_and_never_move() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let runs = ["platform_20260101T000000Z", "platform_20260202T000000Z"];
    let mut references = Vec::new();
    for run in [runs[0], runs[1], runs[0]] {
        let mut envelope = envelope(1);
        envelope["platform_run_id"] = run.into();
        let response = push(&mut client, &envelope);
        let reply = response.json();
        let reference = reply["receipt_ref"].as_str().unwrap().to_owned();
        assert!(reference.contains(&format!("/{run}/ig/receipts/")), "{reference}");
        references.push((reply["decision"].as_str().unwrap().to_owned(), reference));
    }
    let decisions: Vec<&str> = references.iter().map(|(decision, _)| decision.as_str()).collect();
    assert_eq!(decisions, ["ADMIT", "ADMIT", "DUPLICATE"], "two runs, two events");
    let before: Vec<Value> = references.iter().map(|(_, r)| document(gate.data(), r)).collect();
    gate.stop();
    let gate = Gate::on(folder.path());
    let after: Vec<Value> = references.iter().map(|(_, r)| document(gate.data(), r)).collect();
    assert_eq!(before, after);
    assert_eq!(topic(gate.data(), STREAM).len(), 2);
    gate.stop();
}

#[test]
fn one_event_id_has_separate_documents_per_event_class_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let golden = golden();
    let first = push(&mut client, &golden["envelope"]).json();
    let mut other = golden["envelope"].clone();
    other["event_type"] = "s2_event_stream_baseline_6B".into();
    let payload = other["payload"].as_object_mut().unwrap();
    payload.remove("fraud_flag");
    payload.remove("campaign_id");
    let second = push(&mut client, &other).json();
    assert_eq!(second["decision"], "ADMIT", "{second}");
    assert_ne!(first["receipt_ref"], second["receipt_ref"]);
    for reply in [&first, &second] {
        let reference = reply["receipt_ref"].as_str().unwrap();
        assert_eq!(document(gate.data(), reference), reply["receipt"]);
    }
    let mut quarantined = Vec::new();
    for (name, value) in [("amount", json!("much")), ("flow_id", json!("x"))] {
        let mut bad = envelope(9);
        bad["payload"][name] = value;
        quarantined.push(push(&mut client, &bad).json()["receipt_ref"].clone());
    }
    let mut bad = envelope(9);
    bad["ts_utc"] = "yesterday".into();
    quarantined.push(push(&mut client, &bad).json()["receipt_ref"].clone());
    quarantined.sort_by_key(Value::to_string);
    quarantined.dedup();
    assert_eq!(quarantined.len(), 3, "each payload and reason needs its own document");
    assert_verified(&gate);
    gate.stop();
}

#[test]
fn the_order_of_the_ledger_is_the_order_on_the_bus() {
    const PRODUCERS: u64 = 8;
    const EACH: u64 = 25;
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let mut client = gate.client();
            scope.spawn(move || {
                for n in 0..EACH {
                    let mut envelope = envelope(producer * EACH + n);
                    // One partition for all events.
                    envelope["payload"]["flow_id"] = 1.into();
                    assert_eq!(outcome(&push(&mut client, &envelope)), "ADMIT");
                }
            });
        }
    });
    let id = sql::json_text("facts", &["envelope", "event_id"]);
    let query = format!("SELECT {id} FROM admission WHERE verdict = 'fresh' ORDER BY seq");
    let recorded: Vec<String> = sql::query_column(gate.data(), &query);
    assert_eq!(recorded.len() as u64, PRODUCERS * EACH);
    assert_eq!(published(gate.data(), STREAM), recorded);
    assert_verified(&gate);
    gate.stop();
}

#[test]
fn without_writable_artifacts_health_is_red_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_DOORS__INGESTION_GATE__HEALTH_PROBE_INTERVAL_SECONDS", "1")
        .start();
    assert_eq!(gate.client().get("/v1/ops/health"), json!({ "state": "GREEN", "reasons": [] }));
    // A file in place of the probe's folder: not even root can write there.
    let probed = artifact(gate.data(), "fraud-platform/unscoped/ig/health");
    fs::remove_dir_all(&probed).unwrap();
    fs::write(&probed, "in the way").unwrap();
    let red = crate::support::wait_for("the probe fails", crate::support::TIMEOUT, || {
        let health = gate.client().get("/v1/ops/health");
        (health["state"] == "RED").then_some(health)
    });
    assert_eq!(red["reasons"], json!(["OBJECT_STORE_UNHEALTHY"]));
    let before = count(gate.data(), "SELECT count(*) FROM admission");
    let response = push(&mut gate.client(), &envelope(1));
    assert_eq!((response.status, &response.json()["error"]), (503, &json!("IG_UNHEALTHY")));
    assert!(response.header("retry-after").is_some(), "with a retry hint");
    assert_eq!(count(gate.data(), "SELECT count(*) FROM admission"), before);
    fs::remove_file(&probed).unwrap();
    crate::support::wait_for("the probe succeeds", crate::support::TIMEOUT, || {
        (gate.client().get("/v1/ops/health")["state"] == "GREEN").then_some(())
    });
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    gate.stop();
}

#[test]
fn keys_and_service_tokens_authenticate_submissions_and_lookups() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("admit.toml");
    let principals = "[[principals]]\nname = \"wsp\"\nkeys = [\"local-parity-wsp-key\"]\n\
                      doors = [\"ingestion-gate\"]\n";
    fs::write(&config, principals).unwrap();
    let data = folder.path().join("data");
    let gate = Launch::on(&data).argument("--config").argument(&config).start();
    let body = envelope(1).to_string();
    let none = gate.client().send("POST", PUSH, &[], body.as_bytes()).unwrap();
    assert_eq!((none.status, &none.json()["error"]), (401, &json!("UNAUTHORIZED")));
    for path in ["/v1/ops/health", "/v1/ops/lookup?event_id=event-1"] {
        let response = gate.client().send("GET", path, &[], b"").unwrap();
        assert_eq!((response.status, response.header("www-authenticate")), (401, Some("Bearer")));
    }
    let keyed = || gate.client().with("X-IG-Api-Key", "local-parity-wsp-key");
    let (decision, receipt) = read_decision(&push(&mut keyed(), &envelope(1)));
    assert_eq!(decision, "ADMIT");
    assert_eq!(receipt["actor"]["actor_id"], "SYSTEM::wsp");
    assert_eq!(keyed().get("/v1/ops/health")["state"], "GREEN");
    let empty = keyed().send("POST", PUSH, &[], b"{}").unwrap();
    assert_eq!(empty.status, 422, "authenticated, but invalid");
    gate.stop();

    let tokens = "[doors.ingestion-gate]\nauth_mode = \"service_token\"\n\
                  service_token_secrets = [\"a secret of the platform\"]\n";
    fs::write(&config, format!("{tokens}{principals}")).unwrap();
    let gate = Launch::on(&data).argument("--config").argument(&config).start();
    let token = admit_contracts::ingestion_gate::service_token::sign;
    let good = token(b"a secret of the platform", "wsp");
    let (_, receipt) =
        read_decision(&push(&mut gate.client().with("X-IG-Api-Key", &good), &envelope(2)));
    assert_eq!(receipt["actor"]["auth_mode"], "service_token");
    for bad in [
        token(b"another secret", "wsp"),
        token(b"a secret of the platform", "unknown"),
        "local-parity-wsp-key".to_owned(),
    ] {
        let response = push(&mut gate.client().with("X-IG-Api-Key", &bad), &envelope(3));
        assert_eq!(response.status, 401, "{}", response.json());
    }
    gate.stop();
}

#[test]
fn a_policy_change_is_logged_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = "fraud-platform/unscoped/obs/governance/events.jsonl";
    let changes = |data: &std::path::Path| {
        let text = fs::read_to_string(artifact(data, log)).unwrap();
        text.lines().filter(|line| line.contains("POLICY_REV_CHANGED")).count()
    };
    for (revision, expected) in [("v1", 1), ("v1", 1), ("v2", 2), ("v2", 2)] {
        let gate = Launch::on(folder.path())
            .variable("ADMIT_DOORS__INGESTION_GATE__POLICY_REVISION", revision)
            .start();
        let (_, receipt) = read_decision(&push(&mut gate.client(), &envelope(1)));
        assert_eq!(receipt["policy_rev"]["policy_id"], "ig_policy");
        gate.stop();
        assert_eq!(changes(folder.path()), expected);
    }
    let activations = topic(folder.path(), "fp.bus.audit.v1");
    assert_eq!(activations.len(), 2);
    assert_eq!(activations[0]["payload"]["event_type"], "ig.policy.activation");
}

#[test]
fn a_quarantine_spike_is_published_once() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for n in 0..40 {
        let mut bad = envelope(n);
        bad["ts_utc"] = "yesterday".into();
        push(&mut client, &bad);
    }
    let spikes = || {
        let audit = topic(gate.data(), "fp.bus.audit.v1");
        audit.iter().filter(|line| line["payload"]["event_type"] == "ig.quarantine.spike").count()
    };
    crate::support::wait_for("the spike is published", crate::support::TIMEOUT, || {
        (spikes() == 1).then_some(())
    });
    assert_verified(&gate);
    gate.stop();
}

#[test]
fn a_quarantine_release_records_principal_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_fast(folder.path()).start();
    let mut bad = envelope(1);
    bad["ts_utc"] = "yesterday".into();
    let (_, receipt) = read_decision(&push(&mut gate.client(), &bad));
    let id = receipt["receipt_id"].as_str().unwrap();
    let listen = gate.address().to_string();
    let data = text(gate.data());
    let run = |arguments: &[&str]| admit(arguments);
    let (ok, listed) = run(&["quarantine", "list", "--run", RUN, "--open", "--data", data]);
    assert!(ok && listed.contains(id) && listed.contains("ENVELOPE_INVALID"), "{listed}");
    let release = |how: &str| {
        let arguments = ["quarantine", "release", id, "--how", how, "--reason", "looked at it"];
        run(&[&arguments[..], &["--listen", &listen]].concat())
    };
    let (ok, output) = release("resubmitted");
    assert!(!ok && output.contains("resubmission was not admitted"), "{output}");
    let (ok, output) = release("dismissed");
    assert!(ok, "{output}");
    let (ok, output) = release("dismissed");
    assert!(!ok && output.contains("not open any more"), "{output}");
    let (ok, shown) = run(&["quarantine", "show", id, "--data", data, "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(ok && shown["stands"] == "dismissed", "{shown}");
    assert_eq!(shown["released"]["by"], "local");
    assert_eq!(shown["released"]["reason"], "looked at it");
    let (_, open) = run(&["quarantine", "list", "--run", RUN, "--open", "--data", data]);
    assert!(open.contains("nothing found"), "{open}");
    gate.stop();
}

#[test]
fn verify_names_every_disagreement_between_ledger_artifacts_and_bus() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let references: Vec<String> = (1..=4)
        .map(|n| push(&mut client, &envelope(n)).json()["receipt_ref"].as_str().unwrap().to_owned())
        .collect();
    assert_verified(&gate);
    gate.stop();
    let verify = || admit(&["verify", "--data", text(folder.path())]);
    let path = |n: usize| artifact(folder.path(), &references[n]);
    fs::remove_file(path(0)).unwrap();
    fs::write(path(1), "{}\n").unwrap();
    fs::copy(path(2), path(2).with_file_name(format!("{}.json", "ab".repeat(16)))).unwrap();
    let log = folder.path().join("bus").join(STREAM).join("partition=0.jsonl");
    let lines = fs::read_to_string(&log).unwrap();
    let last = lines.lines().last().unwrap();
    // Append the last message again.
    fs::write(&log, format!("{lines}{last}\n")).unwrap();
    let (verified, output) = verify();
    assert!(!verified, "{output}");
    for finding in
        ["is missing", "differs from the ledger", "is not in the ledger", "second message"]
    {
        assert!(output.contains(finding), "{finding}: {output}");
    }
    // Remove the last message.
    let short: Vec<&str> = lines.lines().take(3).collect();
    fs::write(&log, format!("{}\n", short.join("\n"))).unwrap();
    let (verified, output) = verify();
    assert!(!verified && output.contains("message missing on the bus"), "{output}");
}

/// Changes a row of the ledger.
fn tamper(data: &std::path::Path, change: &str) {
    sql::execute(data, change);
}

#[test]
fn verify_derives_facts_and_documents_again_from_the_raw_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let mut other = envelope(1);
    other["payload"]["amount"] = 99.into();
    let mut pinless = envelope(2);
    pinless["run_id"] = serde_json::Value::Null;
    let admitted = push(&mut client, &envelope(1)).json();
    for sent in [envelope(1), other, pinless, envelope(3)] {
        push(&mut client, &sent);
    }
    push_bytes(&mut client, b"no json");
    push_bytes(&mut client, b"{}");
    assert_verified(&gate);
    gate.stop();
    let assert_finding = |finding: &str| {
        let (verified, output) = admit(&["verify", "--data", text(data)]);
        assert!(!verified && output.contains(finding), "{finding}: {output}");
    };
    // A receipt changed in ledger and file alike: only the body proves it.
    let path = artifact(data, admitted["receipt_ref"].as_str().unwrap());
    let (before, set) = (fs::read_to_string(&path).unwrap(), "UPDATE issued SET text = replace");
    let swap = |from: &str, to: &str| {
        let receipt = "WHERE decision = 'ADMIT' AND event_id = 'event-1'";
        tamper(data, &format!("{set}(text, '{from}', '{to}') {receipt}"));
    };
    fs::write(&path, before.replace("svc:world", "svc:other")).unwrap();
    swap("svc:world", "svc:other");
    assert_finding("does not match its body and outcome");
    fs::write(&path, &before).unwrap();
    swap("svc:other", "svc:world");
    let facts = |from: &str, to: &str| {
        let first = "WHERE seq = (SELECT min(seq) FROM admission)";
        let change = format!("UPDATE admission SET facts = replace(facts, '{from}', '{to}')");
        tamper(data, &format!("{change} {first}"));
    };
    facts("svc:world", "svc:other");
    assert_finding("facts differ from those in the body: envelope");
    facts("svc:other", "svc:world");
    // The raw body of a delivery without a run.
    let unscoped = data.join("artifacts/fraud-platform/unscoped/ig/quarantine");
    let is_raw = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "raw");
    let mut files = fs::read_dir(unscoped).unwrap().map(|file| file.unwrap().path());
    let raw = files.find(is_raw).unwrap();
    let bytes = fs::read(&raw).unwrap();
    fs::write(&raw, "other").unwrap();
    assert_finding("differs from the body in the ledger");
    fs::write(&raw, bytes).unwrap();
    // Counters of the run, and its governance lines.
    tamper(data, "UPDATE run SET admit = admit + 1");
    assert_finding("do not match its documents");
    tamper(data, "UPDATE run SET admit = admit - 1");
    let lines = data.join(format!("artifacts/fraud-platform/{RUN}/obs/governance/events.jsonl"));
    let original = fs::read_to_string(&lines).unwrap();
    fs::write(&lines, original.replacen("CORRIDOR_ANOMALY", "NOTHING", 1)).unwrap();
    assert_finding("lacks the line of this document");
    fs::write(&lines, original).unwrap();
    // The partition key of a message.
    let log = data.join("bus").join(STREAM).join("partition=0.jsonl");
    let lines = fs::read_to_string(&log).unwrap();
    let key = admitted["receipt"]["partition_key"].as_str().unwrap();
    let changed = lines.replace(key, &"0".repeat(64));
    fs::write(&log, &changed).unwrap();
    assert_finding("checksum");
    // Lines of earlier versions have no checksum.
    let plain = changed.lines().map(|line| line.split_once(",\"crc32\":\"").unwrap().0);
    fs::write(&log, plain.map(|line| format!("{line}}}\n")).collect::<String>()).unwrap();
    assert_finding("a partition key that differs");
    fs::write(&log, lines).unwrap();
    let (verified, output) = admit(&["verify", "--data", text(data)]);
    assert!(verified, "{output}");
}
