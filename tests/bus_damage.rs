//! The file bus forgets nothing that it has acknowledged: what is lost or damaged closes the door and
//! blocks closures, and a bus that works again opens the door without a restart.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::disks::SmallDisk;
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::http::Answer;
use crate::support::ingest::{
    RUN, STREAM, decided, document, envelope, gist, impatient, push, topic,
};
use crate::support::intents::admit;
use crate::support::machine::text;
use crate::support::{SOON, sql, until};

/// A gate that looks at its bus every second.
fn watchful(data: &Path) -> Launch {
    impatient(data)
        .variable("ADMIT_DOORS__INGESTION_GATE__HEALTH_PROBE_INTERVAL_SECONDS", "1")
        .variable("ADMIT_DOORS__INGESTION_GATE__CLOSING_WAIT_MS", "300")
}

fn log(data: &Path) -> PathBuf {
    data.join("bus").join(STREAM).join("partition=0.jsonl")
}

fn health(gate: &Gate) -> Value {
    gate.client().get("/v1/ops/health")
}

fn close(gate: &Gate) -> Answer {
    let path = format!("/v1/runs/{RUN}/close");
    gate.client().send("POST", &path, &[], b"").expect("the gate answers")
}

/// The codes of everything that speaks against closing the run.
fn reasons(answer: &Answer) -> Vec<String> {
    let said = answer.json();
    assert_eq!(answer.status, 409, "{said}");
    let codes = said["reasons"].as_array().unwrap().iter();
    codes.map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// The door takes nothing, says why, and nothing that is left of the log is changed.
fn assert_closed(gate: &Gate, n: u64, what: &str) {
    let before = fs::read(log(gate.data())).ok();
    let said = health(gate);
    assert_eq!(said["state"], "RED", "{what}: {said}");
    assert_eq!(said["reasons"], json!(["BUS_UNHEALTHY"]), "{what}");
    let details = said["details"][0].as_str().unwrap();
    assert!(details.contains("docs/bus/file.md"), "{what}: it says what to do: {details}");
    let answer = push(&mut gate.client(), &envelope(77));
    assert_eq!((answer.status, &answer.json()["error"]), (503, &json!("IG_UNHEALTHY")), "{what}");
    let ready = gate.client().send("GET", "/readyz", &[], b"").unwrap();
    let closed =
        json!([{ "door": "ingestion-gate", "state": "RED", "reasons": ["BUS_UNHEALTHY"] }]);
    assert_eq!((ready.status, &ready.json()["closed_doors"]), (200, &closed), "{what}");
    gate.client().say(&match_begin(n, "a")).processed();
    let grounds = reasons(&close(gate));
    assert!(grounds.contains(&"bus_unhealthy".to_owned()), "{what}: {grounds:?}");
    assert_eq!(fs::read(log(gate.data())).ok(), before, "{what}: the log was changed");
}

#[test]
fn a_damaged_or_lost_log_closes_the_door_until_it_is_put_right() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = watchful(data).start();
    for n in 1..=4 {
        assert_eq!(gist(&push(&mut gate.client(), &envelope(n))), "ADMIT");
    }
    gate.stop();
    let (log, whole) = (log(data), fs::read(log(data)).unwrap());
    let beside = ["head.json", "partition=0.index"].map(|name| log.with_file_name(name));
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    type Damage<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let damages: [Damage<'_>; 3] = [
        ("a byte in the middle and no index", {
            Box::new(|| {
                let mut bytes = whole.clone();
                bytes[second + 40] ^= 1;
                fs::write(&log, bytes).unwrap();
                beside.iter().for_each(|file| fs::remove_file(file).unwrap());
            })
        }),
        ("two lines are gone", Box::new(|| fs::write(&log, &whole[..second]).unwrap())),
        ("the topic is gone", Box::new(|| fs::remove_dir_all(log.parent().unwrap()).unwrap())),
    ];
    for ((what, damage), n) in damages.into_iter().zip(1..) {
        damage();
        let gate = watchful(data).start();
        assert_closed(&gate, n, what);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(&log, &whole).unwrap();
        let is_green = || (health(&gate)["state"] == "GREEN").then_some(());
        until("a probe opens the door again", SOON, is_green);
        gate.stop();
        assert_eq!(fs::read(&log).unwrap(), whole, "{what}");
    }
    let gate = watchful(data).start();
    let (_, receipt) = decided(&push(&mut gate.client(), &envelope(5)));
    assert_eq!(receipt["eb_ref"]["offset"], "4", "no offset is given twice");
    assert_eq!(close(&gate).status, 200);
    gate.stop();
}

#[test]
fn after_a_full_bus_disk_is_freed_the_door_opens_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(256 * 1024) else { return };
    let url = format!("file:{}", text(&disk.path().join("bus")));
    let gate = watchful(folder.path()).variable("ADMIT_BUS__URL", &url).start();
    let mut client = gate.client();
    assert_eq!(gist(&push(&mut client, &envelope(1))), "ADMIT");
    let ballast = disk.fill();
    // What is left of its last page takes a few more.
    let mut n = 1;
    until("the door closes", SOON, || {
        n += 1;
        (push(&mut client, &envelope(n)).status == 503).then_some(())
    });
    assert_eq!(health(&gate)["state"], "RED");
    let ready = gate.client().send("GET", "/readyz", &[], b"").unwrap();
    assert_eq!(
        (ready.status, &ready.json()["closed_doors"][0]["door"]),
        (200, &json!("ingestion-gate"))
    );
    fs::remove_file(ballast).unwrap();
    until("a probe opens the door again", SOON, || {
        (health(&gate)["state"] == "GREEN").then_some(())
    });
    assert_eq!(gist(&push(&mut client, &envelope(100_000))), "ADMIT");
    assert_eq!(client.get("/readyz")["closed_doors"], json!([]));
    gate.stop();
}

#[test]
fn a_message_that_left_the_bus_and_a_receipt_that_was_changed_speak_against_closing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = watchful(data).start();
    let answers: Vec<Answer> = (1..=3).map(|n| push(&mut gate.client(), &envelope(n))).collect();
    let receipt = answers[2].json()["receipt_ref"].as_str().unwrap().to_owned();
    gate.stop();
    // The second message is filled as the documentation says: offsets stay, the event is gone.
    let (log, whole) = (log(data), fs::read_to_string(log(data)).unwrap());
    let lines: Vec<&str> = whole.lines().collect();
    let filler = r#"{"partition_key":"lost","payload":null}"#;
    fs::write(&log, format!("{}\n{filler}\n{}\n", lines[0], lines[2])).unwrap();
    let gate = watchful(data).start();
    assert_eq!(health(&gate)["state"], "GREEN", "what a person has filled is no damage");
    let refused = close(&gate);
    assert_eq!(reasons(&refused), ["message_missing"]);
    let sample = refused.json()["reasons"][0]["sample"][0].as_str().unwrap().to_owned();
    assert!(sample.starts_with(&format!("{STREAM}/0/1 ")), "{sample}");
    gate.stop();
    fs::write(&log, &whole).unwrap();
    let file = data.join("artifacts").join(&receipt);
    let kept = fs::read_to_string(&file).unwrap();
    fs::write(&file, kept.replace("svc:world", "svc:other")).unwrap();
    let gate = watchful(data).start();
    assert_eq!(reasons(&close(&gate)), ["receipt_differs"]);
    // Moved away, it is written again from the ledger.
    fs::remove_file(&file).unwrap();
    assert_eq!(reasons(&close(&gate)), ["receipt_missing"]);
    until("the receipt is written again", SOON, || {
        fs::read_to_string(&file).ok().filter(|text| *text == kept)
    });
    let closure = close(&gate).json();
    assert_eq!(
        closure["bus"],
        json!({ "messages_present": 3, "messages_expired": 0 }),
        "{closure}"
    );
    gate.stop();
}

#[test]
fn a_failed_ready_and_an_output_that_does_not_exist_speak_against_closing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = watchful(data).start();
    assert_eq!(gist(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    let ready = data.join(format!("artifacts/fraud-platform/{RUN}/wsp/ready_runs"));
    fs::create_dir_all(&ready).unwrap();
    let record = ready.join(format!("{}.jsonl", "a".repeat(64)));
    let failed = "{\"status\":\"FAILED\",\"reason\":\"IG_PUSH_REJECTED\",\"emitted\":0}\n";
    fs::write(&record, failed).unwrap();
    let refused = close(&gate);
    assert_eq!(reasons(&refused), ["ready_failed"]);
    let sample = refused.json()["reasons"][0]["sample"][0].as_str().unwrap().to_owned();
    assert!(sample.contains("IG_PUSH_REJECTED"), "{sample}");
    fs::write(&record, format!("{failed}{{\"status\":\"STREAMED\",\"emitted\":1}}\n")).unwrap();
    let listen = gate.address().to_string();
    let close =
        |expect: &str| admit(&["runs", "close", RUN, "--expect", expect, "--listen", &listen]);
    let (ok, said) = close("arival_events_5B=0");
    assert!(
        !ok && said.contains("output_unknown"),
        "a typing error is not counted as zero: {said}"
    );
    let (ok, said) = close("arrival_events_5B=0");
    assert!(ok, "{said}");
    gate.stop();
}

#[test]
fn a_change_of_policy_in_a_run_is_in_its_governance_log_report_and_closure() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = watchful(data).start();
    let (_, before) = decided(&push(&mut gate.client(), &envelope(1)));
    gate.stop();
    let own = folder.path().join("partitioning.yaml");
    let shipped = include_str!(
        "../crates/contracts/src/ingestion_gate/policy/defaults/partitioning_profiles_v0.yaml"
    );
    fs::write(&own, shipped).unwrap();
    let variable = "ADMIT_DOORS__INGESTION_GATE__PARTITIONING";
    let gate = watchful(data).variable(variable, text(&own)).start();
    let (_, after) = decided(&push(&mut gate.client(), &envelope(2)));
    let revision = after["policy_rev"]["revision"].as_str().unwrap();
    assert!(revision.starts_with("custom-"), "own files have a name of their own: {revision}");
    let log = data.join(format!("artifacts/fraud-platform/{RUN}/obs/governance/events.jsonl"));
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.matches("POLICY_REV_CHANGED").count(), 1, "{lines}");
    assert!(lines.contains(revision) && lines.contains("builtin-v0"), "{lines}");
    let report = gate.client().get(&format!("/v1/runs/{RUN}/report"));
    let closure = close(&gate).json();
    for said in [report, closure] {
        let policies = said["policies"].as_array().unwrap();
        let digests: Vec<&Value> = policies.iter().map(|one| &one["content_digest"]).collect();
        for receipt in [&before, &after] {
            assert!(digests.contains(&&receipt["policy_rev"]["content_digest"]), "{said}");
        }
        assert!(said["notes"][0].as_str().unwrap().contains("2 policies decided"), "{said}");
    }
    gate.stop();
}

/// Makes publishes ambiguous as a crash does: what was said after the bus had answered is lost.
fn forget_outcomes(data: &Path, events: &[&str]) {
    let unsynced = match sql::is_postgres() {
        true => "UPDATE gate SET synced_to = 0",
        false => "UPDATE meta SET value = 0 WHERE name = 'artifacts_synced'",
    };
    for event in events {
        let of =
            format!("(SELECT of FROM issued WHERE event_id = '{event}' AND decision = 'ADMIT')");
        let path: String = sql::one(
            data,
            &format!("SELECT path FROM issued WHERE of = {of} AND decision = 'ADMIT'"),
        );
        fs::remove_file(data.join("artifacts").join(path)).unwrap();
        sql::operate(
            data,
            &format!(
                "UPDATE effect SET state = 'in_flight', evidence = NULL, epoch = 1 WHERE seq = {of};
                 DELETE FROM issued WHERE event_id = '{event}' AND decision = 'ADMIT';
                 UPDATE run SET admit = admit - 1, in_flight = in_flight + 1;
                 {unsynced};"
            ),
        );
    }
}

#[test]
fn a_closure_says_what_became_of_ambiguous_publishes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = watchful(data).start();
    for n in 1..=4 {
        assert_eq!(gist(&push(&mut gate.client(), &envelope(n))), "ADMIT");
    }
    gate.stop();
    forget_outcomes(data, &["event-2", "event-3", "event-4"]);
    // Two of them never reached the bus.
    let log = log(data);
    let lines = fs::read_to_string(&log).unwrap();
    let two: Vec<&str> = lines.lines().take(2).collect();
    let filler = r#"{"partition_key":"lost","payload":null}"#;
    fs::write(&log, format!("{}\n{filler}\n{filler}\n", two.join("\n"))).unwrap();
    let gate = watchful(data).start();
    let listen = gate.address().to_string();
    let reconcile = |which: &str| {
        let (ok, said) = admit(&[
            "reconcile",
            "--all",
            which,
            "--yes",
            "--reason",
            "looked",
            "--run",
            RUN,
            "--listen",
            &listen,
        ]);
        ok.then_some(()).ok_or(said)
    };
    reconcile("--found").unwrap();
    until("nothing can land any more", SOON, || reconcile("--absent").ok());
    assert_eq!(gist(&push(&mut gate.client(), &envelope(3))), "ADMIT", "its copy came again");
    let closure = close(&gate).json();
    let expected = json!({ "found": 1, "absent": 2, "absent_never_arrived": 1 });
    assert_eq!(closure["ambiguities"], expected, "{closure}");
    let report = gate.client().get(&format!("/v1/runs/{RUN}/report"));
    assert_eq!(report["ambiguities"], expected, "{report}");
    assert_eq!(document(data, closure["closure_ref"].as_str().unwrap())["ambiguities"], expected);
    assert_eq!(topic(data, STREAM).len(), 5, "the lost lines were filled, one event came again");
    gate.stop();
}

#[test]
fn what_a_failed_closing_has_refused_is_told_so_counted_and_taken_later() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate =
        impatient(data).variable("ADMIT_DOORS__INGESTION_GATE__CLOSING_WAIT_MS", "2000").start();
    let first = push(&mut gate.client(), &envelope(1)).json();
    // A receipt that is missing is waited for, so there is time to send while the run is closing.
    fs::remove_file(data.join("artifacts").join(first["receipt_ref"].as_str().unwrap())).unwrap();
    let mut n = 1;
    let refused = std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&gate));
        let refused = until("the run is closing", SOON, || {
            n += 1;
            let answer = push(&mut gate.client(), &envelope(n));
            (answer.status != 200).then_some(answer)
        });
        assert_eq!(reasons(&closing.join().unwrap()), ["receipt_missing"]);
        refused
    });
    let said = refused.json();
    assert_eq!((refused.status, &said["error"]), (503, &json!("RUN_CLOSING")), "{said}");
    assert_eq!((&said["retryable"], refused.header("retry-after")), (&json!(true), Some("10")));
    assert_eq!(gist(&push(&mut gate.client(), &envelope(n))), "ADMIT", "the retry comes in");
    let closure = until("the receipt is written again", SOON, || {
        let answer = close(&gate);
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(closure["refused_while_closing"], 1, "{closure}");
    let late = push(&mut gate.client(), &envelope(n + 1));
    assert_eq!((late.status, &late.json()["error"]), (409, &json!("RUN_CLOSED")));
    assert_eq!(late.json()["retryable"], false);
    gate.stop();
}
