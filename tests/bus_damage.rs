//! Damage to the file bus: lost or damaged messages close the door and block closures; the door opens
//! again without a restart once the bus is healthy.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::disks::SmallDisk;
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::http::HttpResponse;
use crate::support::ingest::{
    RUN, STREAM, document, envelope, launch_fast, outcome, push, read_decision, topic,
};
use crate::support::intents::admit;
use crate::support::machine::text;
use crate::support::pack::{golden, request};
use crate::support::rounds::{ROUNDS, Round, post_source_ok};
use crate::support::{TIMEOUT, sql, wait_for};

/// A gate that probes its bus every second.
fn launch_probing(data: &Path) -> Launch {
    launch_fast(data)
        .variable("ADMIT_DOORS__INGESTION_GATE__HEALTH_PROBE_INTERVAL_SECONDS", "1")
        .variable("ADMIT_DOORS__INGESTION_GATE__CLOSING_WAIT_MS", "300")
}

fn log(data: &Path) -> PathBuf {
    data.join("bus").join(STREAM).join("partition=0.jsonl")
}

fn health(gate: &Gate) -> Value {
    gate.client().get("/v1/ops/health")
}

fn close(gate: &Gate) -> HttpResponse {
    let path = format!("/v1/runs/{RUN}/close");
    gate.client().send("POST", &path, &[], b"").expect("response from the gate")
}

/// Returns the reason codes of a refused closure.
fn reasons(response: &HttpResponse) -> Vec<String> {
    let reply = response.json();
    assert_eq!(response.status, 409, "{reply}");
    let codes = reply["reasons"].as_array().unwrap().iter();
    codes.map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// Asserts that the door is closed with a reason, that other doors work, and that the log is unchanged.
fn assert_closed(gate: &Gate, n: u64, damage: &str) {
    let before = fs::read(log(gate.data())).ok();
    let reply = health(gate);
    assert_eq!(reply["state"], "RED", "{damage}: {reply}");
    assert_eq!(reply["reasons"], json!(["BUS_UNHEALTHY"]), "{damage}");
    let details = reply["details"][0].as_str().unwrap();
    assert!(details.contains("docs/bus/file.md"), "{damage}: no remedy in the details: {details}");
    let response = push(&mut gate.client(), &envelope(77));
    assert_eq!(
        (response.status, &response.json()["error"]),
        (503, &json!("IG_UNHEALTHY")),
        "{damage}"
    );
    let ready = gate.client().send("GET", "/readyz", &[], b"").unwrap();
    let closed =
        json!([{ "door": "ingestion-gate", "state": "RED", "reasons": ["BUS_UNHEALTHY"] }]);
    assert_eq!((ready.status, &ready.json()["closed_doors"]), (200, &closed), "{damage}");
    gate.client().submit(&match_begin(n, "a")).processed();
    let codes = reasons(&close(gate));
    assert!(codes.contains(&"bus_unhealthy".to_owned()), "{damage}: {codes:?}");
    assert_eq!(fs::read(log(gate.data())).ok(), before, "{damage}: the log was changed");
}

#[test]
fn a_damaged_or_lost_log_closes_the_door_until_it_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_probing(data).start();
    for n in 1..=4 {
        assert_eq!(outcome(&push(&mut gate.client(), &envelope(n))), "ADMIT");
    }
    gate.stop();
    let (log, whole) = (log(data), fs::read(log(data)).unwrap());
    let index_files = ["head.json", "partition=0.index"].map(|name| log.with_file_name(name));
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    type Damage<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let damages: [Damage<'_>; 3] = [
        ("a byte in the middle and no index", {
            Box::new(|| {
                let mut bytes = whole.clone();
                bytes[second + 40] ^= 1;
                fs::write(&log, bytes).unwrap();
                index_files.iter().for_each(|file| fs::remove_file(file).unwrap());
            })
        }),
        ("two lines are gone", Box::new(|| fs::write(&log, &whole[..second]).unwrap())),
        ("the topic is gone", Box::new(|| fs::remove_dir_all(log.parent().unwrap()).unwrap())),
    ];
    for ((name, damage), n) in damages.into_iter().zip(1..) {
        damage();
        let gate = launch_probing(data).start();
        assert_closed(&gate, n, name);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(&log, &whole).unwrap();
        let is_green = || (health(&gate)["state"] == "GREEN").then_some(());
        wait_for("a probe opens the door again", TIMEOUT, is_green);
        gate.stop();
        assert_eq!(fs::read(&log).unwrap(), whole, "{name}");
    }
    let gate = launch_probing(data).start();
    let (_, receipt) = read_decision(&push(&mut gate.client(), &envelope(5)));
    assert_eq!(receipt["eb_ref"]["offset"], "4", "offsets must not be reused");
    assert_eq!(close(&gate).status, 200);
    gate.stop();
}

#[test]
fn after_a_full_bus_disk_is_freed_the_door_opens_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(256 * 1024) else { return };
    let url = format!("file:{}", text(&disk.path().join("bus")));
    let gate = launch_probing(folder.path()).variable("ADMIT_BUS__URL", &url).start();
    let mut client = gate.client();
    assert_eq!(outcome(&push(&mut client, &envelope(1))), "ADMIT");
    let ballast = disk.fill();
    // The free rest of the last page takes a few more messages.
    let mut n = 1;
    wait_for("the door closes", TIMEOUT, || {
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
    wait_for("a probe opens the door again", TIMEOUT, || {
        (health(&gate)["state"] == "GREEN").then_some(())
    });
    assert_eq!(outcome(&push(&mut client, &envelope(100_000))), "ADMIT");
    assert_eq!(client.get("/readyz")["closed_doors"], json!([]));
    gate.stop();
}

#[test]
fn a_lost_message_and_a_changed_receipt_block_the_closure() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_probing(data).start();
    let responses: Vec<HttpResponse> =
        (1..=3).map(|n| push(&mut gate.client(), &envelope(n))).collect();
    let receipt = responses[2].json()["receipt_ref"].as_str().unwrap().to_owned();
    gate.stop();
    // Replace the second message by a filler, as documented: offsets stay, the event is gone.
    let (log, whole) = (log(data), fs::read_to_string(log(data)).unwrap());
    let lines: Vec<&str> = whole.lines().collect();
    let filler = r#"{"partition_key":"lost","payload":null}"#;
    fs::write(&log, format!("{}\n{filler}\n{}\n", lines[0], lines[2])).unwrap();
    let gate = launch_probing(data).start();
    assert_eq!(health(&gate)["state"], "GREEN", "a filler is not damage");
    let refused = close(&gate);
    assert_eq!(reasons(&refused), ["message_missing"]);
    let sample = refused.json()["reasons"][0]["sample"][0].as_str().unwrap().to_owned();
    assert!(sample.starts_with(&format!("{STREAM}/0/1 ")), "{sample}");
    gate.stop();
    fs::write(&log, &whole).unwrap();
    let file = data.join("artifacts").join(&receipt);
    let receipt_text = fs::read_to_string(&file).unwrap();
    fs::write(&file, receipt_text.replace("svc:world", "svc:other")).unwrap();
    let gate = launch_probing(data).start();
    assert_eq!(reasons(&close(&gate)), ["receipt_differs"]);
    // A removed receipt is restored from the ledger.
    fs::remove_file(&file).unwrap();
    assert_eq!(reasons(&close(&gate)), ["receipt_missing"]);
    wait_for("the receipt is restored", TIMEOUT, || {
        fs::read_to_string(&file).ok().filter(|text| *text == receipt_text)
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
fn a_failed_ready_message_and_an_unknown_output_block_the_closure() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_probing(data).start();
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "ADMIT");
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
    let (ok, output) = close("arival_events_5B=0");
    assert!(
        !ok && output.contains("output_unknown"),
        "a misspelt output must not count as zero: {output}"
    );
    let (ok, output) = close("arrival_events_5B=0");
    assert!(ok, "{output}");
    gate.stop();
}

#[test]
fn a_policy_change_during_a_run_is_in_its_governance_log_report_and_closure() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_probing(data).start();
    let (_, before) = read_decision(&push(&mut gate.client(), &envelope(1)));
    gate.stop();
    let own = folder.path().join("partitioning.yaml");
    let shipped = include_str!(
        "../crates/contracts/src/ingestion_gate/policy/defaults/partitioning_profiles_v0.yaml"
    );
    fs::write(&own, shipped).unwrap();
    let variable = "ADMIT_DOORS__INGESTION_GATE__PARTITIONING";
    let gate = launch_probing(data).variable(variable, text(&own)).start();
    let (_, after) = read_decision(&push(&mut gate.client(), &envelope(2)));
    let revision = after["policy_rev"]["revision"].as_str().unwrap();
    assert!(
        revision.starts_with("custom-"),
        "a custom policy needs its own revision name: {revision}"
    );
    let log = data.join(format!("artifacts/fraud-platform/{RUN}/obs/governance/events.jsonl"));
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.matches("POLICY_REV_CHANGED").count(), 1, "{lines}");
    assert!(lines.contains(revision) && lines.contains("builtin-v0"), "{lines}");
    let report = gate.client().get(&format!("/v1/runs/{RUN}/report"));
    let closure = close(&gate).json();
    for reply in [report, closure] {
        let policies = reply["policies"].as_array().unwrap();
        let digests: Vec<&Value> = policies.iter().map(|one| &one["content_digest"]).collect();
        for receipt in [&before, &after] {
            assert!(digests.contains(&&receipt["policy_rev"]["content_digest"]), "{reply}");
        }
        assert!(reply["notes"][0].as_str().unwrap().contains("2 policies decided"), "{reply}");
    }
    gate.stop();
}

/// Makes publishes ambiguous, as after a crash between publish and commit.
fn forget_outcomes(data: &Path, events: &[&str]) {
    let unsynced = match sql::is_postgres() {
        true => "UPDATE gate SET synced_to = 0",
        false => "UPDATE meta SET value = 0 WHERE name = 'artifacts_synced'",
    };
    for event in events {
        let of =
            format!("(SELECT of FROM issued WHERE event_id = '{event}' AND decision = 'ADMIT')");
        let path: String = sql::query_one(
            data,
            &format!("SELECT path FROM issued WHERE of = {of} AND decision = 'ADMIT'"),
        );
        fs::remove_file(data.join("artifacts").join(path)).unwrap();
        sql::execute(
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
fn a_closure_reports_the_resolution_of_ambiguous_publishes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = launch_probing(data).start();
    for n in 1..=4 {
        assert_eq!(outcome(&push(&mut gate.client(), &envelope(n))), "ADMIT");
    }
    gate.stop();
    forget_outcomes(data, &["event-2", "event-3", "event-4"]);
    // Two of the three never reached the bus.
    let log = log(data);
    let lines = fs::read_to_string(&log).unwrap();
    let two: Vec<&str> = lines.lines().take(2).collect();
    let filler = r#"{"partition_key":"lost","payload":null}"#;
    fs::write(&log, format!("{}\n{filler}\n{filler}\n", two.join("\n"))).unwrap();
    let gate = launch_probing(data).start();
    let listen = gate.address().to_string();
    let reconcile = |resolution: &str| {
        let (ok, output) = admit(&[
            "reconcile",
            "--all",
            resolution,
            "--yes",
            "--reason",
            "looked",
            "--run",
            RUN,
            "--listen",
            &listen,
        ]);
        ok.then_some(()).ok_or(output)
    };
    reconcile("--found").unwrap();
    wait_for("late publishes are excluded", TIMEOUT, || reconcile("--absent").ok());
    assert_eq!(
        outcome(&push(&mut gate.client(), &envelope(3))),
        "ADMIT",
        "a retry of an absent event is admitted"
    );
    let closure = close(&gate).json();
    let expected = json!({ "found": 1, "absent": 2, "absent_never_arrived": 1 });
    assert_eq!(closure["ambiguities"], expected, "{closure}");
    let report = gate.client().get(&format!("/v1/runs/{RUN}/report"));
    assert_eq!(report["ambiguities"], expected, "{report}");
    assert_eq!(document(data, closure["closure_ref"].as_str().unwrap())["ambiguities"], expected);
    assert_eq!(topic(data, STREAM).len(), 5, "two fillers and one event published again");
    gate.stop();
}

#[test]
fn events_refused_during_a_failed_closing_are_counted_and_accepted_on_retry() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate =
        launch_fast(data).variable("ADMIT_DOORS__INGESTION_GATE__CLOSING_WAIT_MS", "2000").start();
    let first = push(&mut gate.client(), &envelope(1)).json();
    // Closing waits for a missing receipt, which leaves time to send events meanwhile.
    fs::remove_file(data.join("artifacts").join(first["receipt_ref"].as_str().unwrap())).unwrap();
    let mut n = 1;
    let refused = std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&gate));
        let refused = wait_for("the run is closing", TIMEOUT, || {
            n += 1;
            let response = push(&mut gate.client(), &envelope(n));
            (response.status != 200).then_some(response)
        });
        assert_eq!(reasons(&closing.join().unwrap()), ["receipt_missing"]);
        refused
    });
    let reply = refused.json();
    assert_eq!((refused.status, &reply["error"]), (503, &json!("RUN_CLOSING")), "{reply}");
    assert_eq!((&reply["retryable"], refused.header("retry-after")), (&json!(true), Some("10")));
    let listed = &gate.client().get("/v1/quarantine")["quarantine"][0];
    let codes = (&listed["reason"]["code"], &listed["reason"]["reply_code"]);
    assert_eq!(codes, (&json!("run_closing"), &json!("RUN_CLOSING")), "{listed}");
    let record = gate.client().get(&format!("/v1/receipts/{}", listed["id"].as_str().unwrap()));
    assert_eq!(record["quarantine"]["reason"], "RUN_CLOSING", "{record}");
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(n))), "ADMIT", "the retry is admitted");
    let closure = wait_for("the receipt is restored", TIMEOUT, || {
        let response = close(&gate);
        (response.status == 200).then(|| response.json())
    });
    assert_eq!(closure["refused_while_closing"], 1, "{closure}");
    let late = push(&mut gate.client(), &envelope(n + 1));
    assert_eq!((late.status, &late.json()["error"]), (409, &json!("RUN_CLOSED")));
    assert_eq!(late.json()["retryable"], false);
    gate.stop();
}

#[test]
fn lost_ready_messages_and_lost_rounds_are_missed_by_the_ledger() {
    const CONTROL: &str = "fp.bus.control.v1";
    const RECORDS: &str = "rounds.v1";
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let launch = || {
        launch_probing(data)
            .variable("PLATFORM_RUN_ID", RUN)
            .variable("ADMIT_DOORS__ROUNDS__TOPIC", RECORDS)
            .variable("ADMIT_DOORS__ROUNDS__PUBLISH_SETTLE_MS", "0")
    };
    let post_round = |gate: &Gate, n| {
        let round = Round::nth(n);
        post_source_ok(&mut gate.client(), "filename_trigger", &round.post("filename_trigger"));
    };
    let published = |gate: &Gate, n: u64| {
        wait_for("the rounds are published", TIMEOUT, || {
            let counts = gate.client().get(&format!("{ROUNDS}/diagnostics"));
            (counts["publications"]["published"] == n).then_some(())
        });
    };
    let gate = launch().start();
    let body = request(text(&golden())).to_string();
    let ready = gate.client().send("POST", "/runs", &[], body.as_bytes()).unwrap().json();
    assert_eq!(ready["state"], "READY", "{ready}");
    post_round(&gate, 0);
    published(&gate, 1);
    gate.stop();
    let (bus, kept) = (data.join("bus"), data.join("kept"));
    fs::create_dir(&kept).unwrap();
    let move_topics = |from: &Path, to: &Path| {
        for topic in [CONTROL, RECORDS] {
            fs::rename(from.join(topic), to.join(topic)).unwrap();
        }
    };
    move_topics(&bus, &kept);
    let gate = launch().start();
    post_round(&gate, 1);
    let path = format!("/runs/{}/reemit", ready["run_id"].as_str().unwrap());
    let reemit = || gate.client().send("POST", &path, &[], b"{}").unwrap().json();
    let reply = reemit();
    assert_ne!(reply["outcome"], "published", "{reply}");
    assert!(!bus.join(CONTROL).exists(), "an offset was given out again: {reply}");
    let codes = reasons(&close(&gate));
    assert!(codes.contains(&"bus_unhealthy".to_owned()), "{codes:?}");
    move_topics(&kept, &bus);
    published(&gate, 2);
    assert_eq!(topic(data, RECORDS).len(), 2);
    let reply = wait_for("the topic is open again", TIMEOUT, || {
        let reply = reemit();
        (topic(data, CONTROL).len() == 2).then_some(reply)
    });
    assert_eq!(reply["message_id"], ready["message_id"]);
    gate.stop();
}

#[test]
fn only_operators_are_shown_where_the_bus_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = folder.path().join("gate.toml");
    let principal = |name: &str, role: &str| {
        format!(
            "[[principals]]\nname = \"{name}\"\nkeys = [\"key-of-{name}-1234\"]\n\
             role = [\"{role}\"]\ndoors = [\"ingestion-gate\"]\n"
        )
    };
    fs::write(&config, principal("wsp", "produce") + &principal("ann", "operate")).unwrap();
    let launch = || launch_probing(&data).argument("--config").argument(&config);
    let gate = launch().start();
    let keyed = |gate: &Gate, name: &str| {
        gate.client().with("X-IG-Api-Key", &format!("key-of-{name}-1234"))
    };
    assert_eq!(outcome(&push(&mut keyed(&gate, "wsp"), &envelope(1))), "ADMIT");
    gate.stop();
    fs::write(log(&data), "").unwrap();
    let gate = launch().start();
    let to_producers = keyed(&gate, "wsp").get("/v1/ops/health");
    assert_eq!(to_producers, json!({ "state": "RED", "reasons": ["BUS_UNHEALTHY"] }));
    let to_operators = keyed(&gate, "ann").get("/v1/ops/health");
    let details = to_operators["details"][0].as_str().unwrap();
    assert!(details.contains("partition=0.jsonl"), "{details}");
    let pushed = push(&mut keyed(&gate, "wsp"), &envelope(2));
    let reply = String::from_utf8_lossy(&pushed.body).into_owned();
    assert!(pushed.status == 503 && !reply.contains("partition=0"), "{reply}");
    gate.stop();
}
