//! A ledger filled through several doors on SQLite, copied into PostgreSQL while the gate is stopped, and
//! served from there with the same replies.

use std::path::Path;
use std::process::Output;

use admit_testkit::postgres::{TestDatabase, database};
use serde_json::{Value, json};

use crate::support::events::match_begin;
use crate::support::gate::{self, Gate, Launch};
use crate::support::http::Client;
use crate::support::machine::text;
use crate::support::rounds::{self, Round, SOURCES};
use crate::support::{ingest, skyra};

/// Gate on the embedded ledger, independent of the ledger of the other tests.
fn embedded(data: &Path) -> Gate {
    Launch::on(data).variable("ADMIT_LEDGER__URL", "sqlite:").start()
}

/// Gate on the same folder, with its ledger in a database.
fn moved(data: &Path, database: &TestDatabase) -> Gate {
    Launch::on(data)
        .variable("ADMIT_LEDGER__URL", &database.url)
        .variable("ADMIT_LEDGER__SCHEMA", "public")
        .start()
}

fn admit(words: &[&str]) -> Output {
    let mut command = gate::admit(words);
    for name in ["ADMIT_LEDGER__URL", "ADMIT_LEDGER__SCHEMA", "ADMIT_LEDGER__GATE_ID"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn copy(from: &Path, database: &TestDatabase) -> Output {
    let from = format!("sqlite:{}", text(from));
    admit(&["ledger", "copy", "--json", "--from", &from, "--to", &database.url])
}

/// Output of a command that must succeed.
fn printed(output: &Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Error output of a command that must fail.
fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const EVENTS: u64 = 40;

/// Submits to every door, and returns the replies without their times.
fn post_to_all_doors(client: &mut Client) -> Vec<Value> {
    let mut replies = Vec::new();
    for n in 0..EVENTS {
        let answer = client.submit(&match_begin(n, "a"));
        assert!(answer.is_accepted());
        replies.push(json!(answer.is_duplicate()));
    }
    for n in 0..EVENTS {
        let answer = client.send("POST", skyra::DOOR, &[], skyra::text(n).as_bytes()).unwrap();
        replies.push(json!([answer.status, answer.json()["status"], answer.json()["event_id"]]));
    }
    for n in 0..EVENTS {
        let answer = ingest::push(client, &ingest::envelope(n));
        let (decision, receipt) = ingest::read_decision(&answer);
        replies.push(json!([decision, receipt["dedupe_key"], receipt["eb_ref"]]));
    }
    for source in SOURCES {
        let mut reply = rounds::post_source_ok(client, source, &Round::reference().post(source));
        let reply = reply.as_object_mut().expect("an object");
        reply.retain(|name, _| !name.contains("receipt") && !name.ends_with("_at"));
        replies.push(json!(reply));
    }
    replies
}

/// All rounds, without the update times, which a copy changes.
fn all_rounds(client: &mut Client) -> Vec<Value> {
    let lines = rounds::rounds(client);
    let one = |line: &Value| {
        let mut round = rounds::round(client, line["round_id"].as_str().expect("an id"));
        forget_times(&mut round);
        round
    };
    lines.iter().map(one).collect()
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(forget_times),
        Value::Object(members) => {
            members.retain(|name, _| !name.ends_with("_at"));
            members.values_mut().for_each(forget_times);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn post(client: &mut Client, path: &str, body: &Value) -> Value {
    let answer = client.send("POST", path, &[], body.to_string().as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()
}

fn claim(client: &mut Client, max: u64) -> Vec<Value> {
    let request = json!({ "consumer": "c", "max": max, "lease_seconds": 3600 });
    let claimed = post(client, "/v1/inbox/claim", &request);
    claimed["events"].as_array().expect("events").clone()
}

/// Number of copied rows of a table.
fn rows(copied: &Value, table: &str) -> u64 {
    let tables = copied["tables"].as_array().expect("tables");
    let found = tables.iter().find(|one| one["table"] == table).expect("the table is copied");
    found["rows"].as_u64().expect("a number")
}

#[test]
fn a_ledger_is_copied_into_postgresql_and_every_copy_is_known_there() {
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = embedded(data);
    let mut client = gate.client();
    post_to_all_doors(&mut client);
    // Replies to copies before and after the move.
    let before = post_to_all_doors(&mut client);
    let held = claim(&mut client, 3);
    let rounds_before = all_rounds(&mut client);
    assert_eq!(rounds_before.len(), 1);

    let refused = complaint(&copy(data, &database));
    assert!(refused.contains("already serves"), "{refused}");
    gate.stop();

    let copied = printed(&copy(data, &database));
    assert_eq!(rows(&copied, "event_inbox"), EVENTS);
    assert_eq!(rows(&copied, "key_index"), 3 * EVENTS + SOURCES.len() as u64);
    assert_eq!(rows(&copied, "claim"), 3);
    assert_eq!(rows(&copied, "record"), 1);
    assert!(rows(&copied, "combat_engagement") > 0 && rows(&copied, "issued") > 0);
    let again = complaint(&copy(data, &database));
    assert!(again.contains("already contains this ledger"), "{again}");

    let gate = moved(data, &database);
    let mut client = gate.client();
    assert_eq!(post_to_all_doors(&mut client), before, "every copy is answered as before");
    assert_eq!(all_rounds(&mut client), rounds_before);
    let fresh = match_begin(EVENTS + 1, "a");
    client.submit(&fresh).processed();
    // Leases survive the move; no other consumer gets their events.
    let others = claim(&mut client, EVENTS);
    assert_eq!(others.len() as u64, EVENTS - 3);
    let lease = json!({ "lease": held[0]["lease"], "status": "done" });
    post(&mut client, &format!("/v1/inbox/{}", held[0]["event_id"].as_str().unwrap()), &lease);
    let ledger = ["--ledger", &database.url, "--data", text(data)];
    let verified = printed(&admit(&[&["verify", "--json"], &ledger[..]].concat()));
    assert_eq!(verified["agrees"], true, "{verified}");
    let status = printed(&admit(&[&["ledger", "status", "--json"], &ledger[..]].concat()));
    assert_eq!(status["tag"], copied["tag"], "receipt ids stay valid");
    gate.stop();
}

#[test]
fn a_ledger_is_only_copied_into_an_empty_one() {
    let Some(database) = database() else { return };
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&first, &second] {
        let gate = embedded(folder.path());
        gate.client().submit(&match_begin(1, "a")).processed();
        gate.stop();
    }
    printed(&copy(first.path(), &database));
    let refused = complaint(&copy(second.path(), &database));
    assert!(
        refused.contains("is not empty") && refused.contains("nothing was changed"),
        "{refused}"
    );
    let nowhere = complaint(&copy(&first.path().join("nowhere"), &database));
    assert!(nowhere.contains("nowhere"), "{nowhere}");
    let ledger = ["--ledger", &database.url];
    let migrated = printed(&admit(&[&["ledger", "migrate", "--json"], &ledger[..]].concat()));
    assert_eq!(migrated["changed"], false, "{migrated}");
}
