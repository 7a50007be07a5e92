//! The ingestion gate on the file bus: admitted means committed on the bus, with a receipt for it.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::ingest::{
    PUSH, RUN, STREAM, artifact, count, counters, decided, document, envelope, gist, golden,
    impatient, published, push, push_bytes, topic,
};
use crate::support::intents::admit;
use crate::support::machine::text;
use crate::support::sql;

fn lookup(gate: &Gate, query: &str) -> Value {
    gate.client().get(&format!("/v1/ops/lookup?{query}"))
}

/// `admit verify` on a folder; it must agree.
fn assert_agrees(gate: &Gate) {
    let (agrees, said) = admit(&["verify", "--data", text(gate.data())]);
    assert!(agrees, "{said}");
}

#[test]
fn the_golden_envelope_is_admitted_with_the_golden_names() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let golden = golden();
    let answer = push(&mut gate.client(), &golden["envelope"]);
    let (decision, receipt) = decided(&answer);
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
    assert_eq!(receipt.get("reason_codes"), None, "an admission needs no reason");
    let reference = answer.json()["receipt_ref"].as_str().unwrap().to_owned();
    assert_eq!(document(gate.data(), &reference), receipt, "the file is the receipt");

    let line = topic(gate.data(), STREAM).pop().expect("it is on the bus");
    assert_eq!(line["payload"], golden["envelope"], "unchanged");
    assert_eq!(line["partition_key"], golden["partition_key"]);

    let event_id = golden["event_id"].as_str().unwrap();
    let by_event = lookup(&gate, &format!("event_id={event_id}"));
    assert_eq!(by_event["receipt_ref"], reference.as_str());
    let key = golden["dedupe_key"].as_str().unwrap();
    assert_eq!(lookup(&gate, &format!("dedupe_key={key}")), by_event);
    let id = golden["receipt_id"]["ADMIT"].as_str().unwrap();
    assert_eq!(lookup(&gate, &format!("receipt_id={id}")), by_event);
    assert_eq!(lookup(&gate, "event_id=nobody"), json!({}));
    let mut client = gate.client();
    let of_run = format!("?door=ingestion-gate&run={RUN}");
    let kept = client.get(&format!("/v1/receipts/{id}{of_run}"));
    assert_eq!((&kept["verdict"], &kept["facts"]["dedupe_key"]), (&json!("fresh"), &json!(key)));
    assert_eq!(client.get(&format!("/v1/receipts/{key}{of_run}")), kept);
    for id in [id, key] {
        let other = format!("/v1/receipts/{id}?door=ingestion-gate&run=another");
        assert_eq!(client.send("GET", &other, &[], b"").unwrap().status, 404, "{id}");
    }
    let words = ["receipts", "get", id, "--door", "ingestion-gate", "--run", RUN, "--json"];
    let (found, said) = admit(&[&words[..], &["--data", text(gate.data())]].concat());
    assert!(found, "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), kept);
    let query = format!("SELECT state FROM ig_admissions WHERE dedupe_key = '{key}'");
    let state: String = sql::one(gate.data(), &query);
    assert_eq!(state, "ADMITTED");
    assert_agrees(&gate);
    gate.stop();
}

#[test]
fn five_replays_give_one_reference_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let golden = golden();
    let (_, first) = decided(&push(&mut gate.client(), &golden["envelope"]));
    for round in 0..5 {
        let (decision, receipt) = decided(&push(&mut gate.client(), &golden["envelope"]));
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
fn a_copy_after_a_restart_is_still_a_duplicate_of_the_same_place() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let (_, first) = decided(&push(&mut gate.client(), &envelope(1)));
    push(&mut gate.client(), &envelope(2));
    gate.stop();
    let gate = Gate::on(folder.path());
    let (decision, again) = decided(&push(&mut gate.client(), &envelope(1)));
    assert_eq!((decision.as_str(), &again["eb_ref"]), ("DUPLICATE", &first["eb_ref"]));
    let (_, third) = decided(&push(&mut gate.client(), &envelope(3)));
    assert_eq!(third["eb_ref"]["offset"], "2", "offsets go on where they were");
    assert_agrees(&gate);
    gate.stop();
}

#[test]
fn every_reason_of_the_sheet_quarantines_with_a_receipt_and_a_record() {
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
        ("SCHEMA_POLICY_MISSING", change(4, &|e| e["event_type"] = "nobody_knows".into())),
        ("SCHEMA_FAIL", change(5, &|e| e["payload"]["amount"] = "much".into())),
        ("PAYLOAD_HASH_MISMATCH", change(1, &|e| e["payload"]["amount"] = 99.into())),
        ("ENVELOPE_INVALID", change(6, &|e| e["scenario_id"] = 7.into())),
    ];
    for (reason, envelope) in cases {
        let answer = push(&mut client, &envelope);
        if reason == "PINS_MISSING" && answer.json()["receipt"]["reason_codes"][0] != reason {
            // `null` breaks the envelope schema first.
            assert_eq!(gist(&answer), "QUARANTINE ENVELOPE_INVALID");
            continue;
        }
        assert_eq!(gist(&answer), format!("QUARANTINE {reason}"));
        let said = answer.json();
        let reference = said["receipt_ref"].as_str().unwrap();
        assert!(reference.contains(&format!("/{RUN}/ig/receipts/")), "{reference}");
        assert_eq!(document(gate.data(), reference), said["receipt"]);
        let record = said["receipt"]["evidence_refs"][0]["ref"].as_str().unwrap();
        let record = document(gate.data(), record);
        assert_eq!(record["reason_codes"], json!([reason]));
        assert_eq!(record["envelope"].get("payload"), None, "records keep no payload");
    }
    assert_eq!(topic(gate.data(), STREAM).len(), 1, "nothing of it was published");
    let log = artifact(gate.data(), &format!("fraud-platform/{RUN}/obs/governance/events.jsonl"));
    let lines = fs::read_to_string(log).unwrap();
    let anomalies = lines.lines().filter(|line| line.contains("CORRIDOR_ANOMALY")).count();
    assert_eq!(anomalies as i64, counters(gate.data())[5], "one line for each quarantine");
    assert_agrees(&gate);
    gate.stop();
}

#[test]
fn an_envelope_without_a_place_for_its_receipt_gets_a_typed_answer_and_is_kept() {
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
        let answer = push_bytes(&mut client, body.as_bytes());
        let said = answer.json();
        assert_eq!(answer.status, status, "{body}: {said}");
        assert!(said["error"].is_string() && said["detail"].is_string(), "{said}");
        let reference = said["quarantine_ref"].as_str().unwrap();
        assert!(reference.contains("unscoped/ig/quarantine/"), "{reference}");
        document(gate.data(), reference);
        let raw = artifact(gate.data(), &reference.replace(".json", ".raw"));
        assert_eq!(fs::read_to_string(raw).unwrap(), body, "byte for byte");
    }
    assert_eq!(topic(gate.data(), STREAM).len(), 0);
    assert_agrees(&gate);
    gate.stop();
}

#[test]
fn receipts_lie_under_the_run_their_own_event_names_and_never_move() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let runs = ["platform_20260101T000000Z", "platform_20260202T000000Z"];
    let mut references = Vec::new();
    for run in [runs[0], runs[1], runs[0]] {
        let mut envelope = envelope(1);
        envelope["platform_run_id"] = run.into();
        let answer = push(&mut client, &envelope);
        let said = answer.json();
        let reference = said["receipt_ref"].as_str().unwrap().to_owned();
        assert!(reference.contains(&format!("/{run}/ig/receipts/")), "{reference}");
        references.push((said["decision"].as_str().unwrap().to_owned(), reference));
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
fn one_event_id_in_two_classes_and_two_reasons_for_one_event_keep_their_own_documents() {
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
    for said in [&first, &second] {
        let reference = said["receipt_ref"].as_str().unwrap();
        assert_eq!(document(gate.data(), reference), said["receipt"]);
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
    assert_eq!(quarantined.len(), 3, "another payload or reason is another document");
    assert_agrees(&gate);
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
                    // One partition for all of them.
                    envelope["payload"]["flow_id"] = 1.into();
                    assert_eq!(gist(&push(&mut client, &envelope)), "ADMIT");
                }
            });
        }
    });
    let id = sql::json_text("facts", &["envelope", "event_id"]);
    let query = format!("SELECT {id} FROM admission WHERE verdict = 'fresh' ORDER BY seq");
    let recorded: Vec<String> = sql::column(gate.data(), &query);
    assert_eq!(recorded.len() as u64, PRODUCERS * EACH);
    assert_eq!(published(gate.data(), STREAM), recorded);
    assert_agrees(&gate);
    gate.stop();
}

#[test]
fn a_disk_that_takes_no_receipts_is_red_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_DOORS__INGESTION_GATE__HEALTH_PROBE_INTERVAL_SECONDS", "1")
        .start();
    assert_eq!(gate.client().get("/v1/ops/health"), json!({ "state": "GREEN", "reasons": [] }));
    // A file where the folder of the probe belongs: nobody, not even root, can write there.
    let probed = artifact(gate.data(), "fraud-platform/unscoped/ig/health");
    fs::remove_dir_all(&probed).unwrap();
    fs::write(&probed, "in the way").unwrap();
    let red = crate::support::until("the probe notices", crate::support::SOON, || {
        let health = gate.client().get("/v1/ops/health");
        (health["state"] == "RED").then_some(health)
    });
    assert_eq!(red["reasons"], json!(["OBJECT_STORE_UNHEALTHY"]));
    let before = count(gate.data(), "SELECT count(*) FROM admission");
    let answer = push(&mut gate.client(), &envelope(1));
    assert_eq!((answer.status, &answer.json()["error"]), (503, &json!("IG_UNHEALTHY")));
    assert!(answer.header("retry-after").is_some(), "with a retry hint");
    assert_eq!(count(gate.data(), "SELECT count(*) FROM admission"), before);
    fs::remove_file(&probed).unwrap();
    crate::support::until("the probe notices again", crate::support::SOON, || {
        (gate.client().get("/v1/ops/health")["state"] == "GREEN").then_some(())
    });
    assert_eq!(gist(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    gate.stop();
}

#[test]
fn keys_and_service_tokens_open_the_door_and_its_questions() {
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
    for question in ["/v1/ops/health", "/v1/ops/lookup?event_id=event-1"] {
        let asked = gate.client().send("GET", question, &[], b"").unwrap();
        assert_eq!((asked.status, asked.header("www-authenticate")), (401, Some("Bearer")));
    }
    let keyed = || gate.client().with("X-IG-Api-Key", "local-parity-wsp-key");
    let (decision, receipt) = decided(&push(&mut keyed(), &envelope(1)));
    assert_eq!(decision, "ADMIT");
    assert_eq!(receipt["actor"]["actor_id"], "SYSTEM::wsp");
    assert_eq!(keyed().get("/v1/ops/health")["state"], "GREEN");
    let empty = keyed().send("POST", PUSH, &[], b"{}").unwrap();
    assert_eq!(empty.status, 422, "anything but 401");
    gate.stop();

    let tokens = "[doors.ingestion-gate]\nauth_mode = \"service_token\"\n\
                  service_token_secrets = [\"a secret of the platform\"]\n";
    fs::write(&config, format!("{tokens}{principals}")).unwrap();
    let gate = Launch::on(&data).argument("--config").argument(&config).start();
    let token = admit_contracts::ingestion_gate::service_token::sign;
    let good = token(b"a secret of the platform", "wsp");
    let (_, receipt) = decided(&push(&mut gate.client().with("X-IG-Api-Key", &good), &envelope(2)));
    assert_eq!(receipt["actor"]["auth_mode"], "service_token");
    for bad in [
        token(b"another secret", "wsp"),
        token(b"a secret of the platform", "nobody"),
        "local-parity-wsp-key".to_owned(),
    ] {
        let answer = push(&mut gate.client().with("X-IG-Api-Key", &bad), &envelope(3));
        assert_eq!(answer.status, 401, "{}", answer.json());
    }
    gate.stop();
}

#[test]
fn a_change_of_policy_is_written_down_once() {
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
        let (_, receipt) = decided(&push(&mut gate.client(), &envelope(1)));
        assert_eq!(receipt["policy_rev"]["policy_id"], "ig_policy");
        gate.stop();
        assert_eq!(changes(folder.path()), expected);
    }
    let activations = topic(folder.path(), "fp.bus.audit.v1");
    assert_eq!(activations.len(), 2);
    assert_eq!(activations[0]["payload"]["event_type"], "ig.policy.activation");
}

#[test]
fn many_quarantines_at_once_are_told_on_the_bus_once() {
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
    crate::support::until("the spike is told", crate::support::SOON, || {
        (spikes() == 1).then_some(())
    });
    assert_agrees(&gate);
    gate.stop();
}

#[test]
fn a_quarantine_is_released_by_a_named_person_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let gate = impatient(folder.path()).start();
    let mut bad = envelope(1);
    bad["ts_utc"] = "yesterday".into();
    let (_, receipt) = decided(&push(&mut gate.client(), &bad));
    let id = receipt["receipt_id"].as_str().unwrap();
    let listen = gate.address().to_string();
    let data = text(gate.data());
    let run = |arguments: &[&str]| admit(arguments);
    let (ok, listed) = run(&["quarantine", "list", "--run", RUN, "--open", "--data", data]);
    assert!(ok && listed.contains(id) && listed.contains("ENVELOPE_INVALID"), "{listed}");
    let release = |how: &str| {
        let words = ["quarantine", "release", id, "--how", how, "--reason", "looked at it"];
        run(&[&words[..], &["--listen", &listen]].concat())
    };
    let (ok, said) = release("resubmitted");
    assert!(!ok && said.contains("did not pass again"), "{said}");
    let (ok, said) = release("dismissed");
    assert!(ok, "{said}");
    let (ok, said) = release("dismissed");
    assert!(!ok && said.contains("not open any more"), "{said}");
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
    assert_agrees(&gate);
    gate.stop();
    let verify = || admit(&["verify", "--data", text(folder.path())]);
    let path = |n: usize| artifact(folder.path(), &references[n]);
    fs::remove_file(path(0)).unwrap();
    fs::write(path(1), "{}\n").unwrap();
    fs::copy(path(2), path(2).with_file_name(format!("{}.json", "ab".repeat(16)))).unwrap();
    let log = folder.path().join("bus").join(STREAM).join("partition=0.jsonl");
    let lines = fs::read_to_string(&log).unwrap();
    let last = lines.lines().last().unwrap();
    // The last message twice.
    fs::write(&log, format!("{lines}{last}\n")).unwrap();
    let (agrees, said) = verify();
    assert!(!agrees, "{said}");
    for named in
        ["is missing", "is not what the ledger says", "is not in the ledger", "second message"]
    {
        assert!(said.contains(named), "{named}: {said}");
    }
    // And without it.
    let short: Vec<&str> = lines.lines().take(3).collect();
    fs::write(&log, format!("{}\n", short.join("\n"))).unwrap();
    let (agrees, said) = verify();
    assert!(!agrees && said.contains("does not have its message"), "{said}");
}

/// Changes one text of the ledger, as somebody with a file editor would.
fn tamper(data: &std::path::Path, change: &str) {
    sql::operate(data, change);
}

#[test]
fn verify_makes_facts_and_documents_again_from_the_raw_bodies() {
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
    assert_agrees(&gate);
    gate.stop();
    let names = |named: &str| {
        let (agrees, said) = admit(&["verify", "--data", text(data)]);
        assert!(!agrees && said.contains(named), "{named}: {said}");
    };
    // A receipt and its file, changed together: only the body can tell.
    let path = artifact(data, admitted["receipt_ref"].as_str().unwrap());
    let (before, set) = (fs::read_to_string(&path).unwrap(), "UPDATE issued SET text = replace");
    let swap = |from: &str, to: &str| {
        let receipt = "WHERE decision = 'ADMIT' AND event_id = 'event-1'";
        tamper(data, &format!("{set}(text, '{from}', '{to}') {receipt}"));
    };
    fs::write(&path, before.replace("svc:world", "svc:other")).unwrap();
    swap("svc:world", "svc:other");
    names("is not what its body and its outcome give");
    fs::write(&path, &before).unwrap();
    swap("svc:other", "svc:world");
    let facts = |from: &str, to: &str| {
        let first = "WHERE seq = (SELECT min(seq) FROM admission)";
        let change = format!("UPDATE admission SET facts = replace(facts, '{from}', '{to}')");
        tamper(data, &format!("{change} {first}"));
    };
    facts("svc:world", "svc:other");
    names("the body gives others than are kept: envelope");
    facts("svc:other", "svc:world");
    // The bytes of what has no run.
    let unscoped = data.join("artifacts/fraud-platform/unscoped/ig/quarantine");
    let is_raw = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "raw");
    let mut files = fs::read_dir(unscoped).unwrap().map(|file| file.unwrap().path());
    let raw = files.find(is_raw).unwrap();
    let bytes = fs::read(&raw).unwrap();
    fs::write(&raw, "other").unwrap();
    names("is not the body that came");
    fs::write(&raw, bytes).unwrap();
    // What the documents add up to, and the lines about them.
    tamper(data, "UPDATE run SET admit = admit + 1");
    names("are not what its documents add up to");
    tamper(data, "UPDATE run SET admit = admit - 1");
    let lines = data.join(format!("artifacts/fraud-platform/{RUN}/obs/governance/events.jsonl"));
    let written = fs::read_to_string(&lines).unwrap();
    fs::write(&lines, written.replacen("CORRIDOR_ANOMALY", "NOTHING", 1)).unwrap();
    names("does not have its line");
    fs::write(&lines, written).unwrap();
    // What a message is ordered by.
    let log = data.join("bus").join(STREAM).join("partition=0.jsonl");
    let lines = fs::read_to_string(&log).unwrap();
    let key = admitted["receipt"]["partition_key"].as_str().unwrap();
    let changed = lines.replace(key, &"0".repeat(64));
    fs::write(&log, &changed).unwrap();
    names("checksum");
    // As an earlier version wrote it, without a checksum.
    let plain = changed.lines().map(|line| line.split_once(",\"crc32\":\"").unwrap().0);
    fs::write(&log, plain.map(|line| format!("{line}}}\n")).collect::<String>()).unwrap();
    names("another partition key");
    fs::write(&log, lines).unwrap();
    let (agrees, said) = admit(&["verify", "--data", text(data)]);
    assert!(agrees, "{said}");
}
