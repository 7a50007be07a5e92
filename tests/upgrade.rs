//! Data of earlier versions, opened by this one: nothing is lost, repeated or decided again.
//!
//! `tests/fixtures/README.md` describes the data and how to recreate it.

mod expected;
mod ledger;
mod make;

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use expected::{RecordedRequest, contains};
use ledger::{Ledger, pack, unpack};
use make::FixtureBuilder;

use crate::support::edge::{ids, outbox, wait_until_drained};
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::gateway_stub::{GOOD, GatewayStub};
use crate::support::ingest::{PUSH, STREAM, envelope, published};
use crate::support::skyra::{self, inbox};
use crate::support::{TIMEOUT, sql, wait_for};

/// Environment variable with a folder; if set, the fixture archives are written there.
const ARCHIVE_FOLDER: &str = "ADMIT_MAKE_FIXTURES";

#[test]
fn the_fixture_maker_produces_every_state_on_sqlite() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    make::make(folder.path(), &Ledger::Sqlite);
    assert_every_state(folder.path());
    archive(&folder, "sqlite");
}

#[test]
fn the_fixture_maker_produces_every_state_on_postgres() {
    if sql::skip_on_postgres() {
        return;
    }
    let Some(ledger) = Ledger::postgres() else { return };
    let folder = tempfile::tempdir().unwrap();
    make::make(folder.path(), &ledger);
    assert_every_state(folder.path());
    archive(&folder, "postgres");
}

#[test]
fn the_fixture_maker_leaves_unsent_events_in_every_outbox() {
    let folder = tempfile::tempdir().unwrap();
    make::make_edge(folder.path());
    for (door, count) in [("skyra", 5), ("pixel-control", 3), ("events/default", 1)] {
        let unsent = ids(&outbox(&folder.path().join("edge"), door, "local"));
        assert_eq!(unsent.len(), count, "{door}");
    }
    archive(&folder, "edge");
}

/// Packs the folder into an archive if [`ARCHIVE_FOLDER`] is set.
fn archive(folder: &TempDir, name: &str) {
    if let Some(into) = std::env::var_os(ARCHIVE_FOLDER) {
        pack(folder.path(), &Path::new(&into).join(format!("{name}.tar.gz")));
    }
}

/// Asserts that the folder has every effect state, every verdict and every inbox status.
fn assert_every_state(folder: &Path) {
    let expected = expected::read(folder);
    for (state, count) in expected["effects"].as_object().unwrap() {
        assert!(count.as_i64().unwrap() > 0, "no effect is {state}");
    }
    let has = |list: &Value, name: &str, value: &str| {
        assert!(list.as_array().unwrap().iter().any(|one| one[name] == value), "{value}");
    };
    for verdict in ["fresh", "revision", "conflict", "refused"] {
        has(&expected["receipts"], "verdict", verdict);
    }
    for status in ["received", "claimed", "done", "failed"] {
        has(&expected["inbox"]["events"], "status", status);
    }
    assert_eq!(expected["run"]["state"], "READY");
    let in_flight = expected["effects"]["in_flight"].as_i64().unwrap();
    assert!(in_flight > make::CALLS_MAX as i64, "calls and a publish must be in flight");
}

#[test]
fn data_of_0_1_on_sqlite_is_upgraded() {
    if sql::skip_on_postgres() {
        return;
    }
    assert_upgrade("sqlite", &Ledger::Sqlite);
}

#[test]
fn data_of_0_1_on_postgres_is_upgraded() {
    if sql::skip_on_postgres() {
        return;
    }
    let Some(ledger) = Ledger::postgres() else { return };
    assert_upgrade("postgres", &ledger);
}

fn assert_upgrade(name: &str, ledger: &Ledger) {
    let folder = tempfile::tempdir().unwrap();
    unpack(name, folder.path());
    ledger.load_from(folder.path());
    let expected = expected::read(folder.path());
    let gateway = GatewayStub::start(GOOD);
    let workshop = FixtureBuilder { root: folder.path().to_owned(), ledger, gateway };
    let gate = workshop.launch("gate.toml").start();
    assert_effects(&workshop, &expected["effects"]);
    let mut client = gate.client();
    for before in expected["receipts"].as_array().unwrap() {
        let now = client.get(&format!("/v1/receipts/{}", before["id"].as_str().unwrap()));
        let mut before = before.clone();
        if before["verdict"] == "conflict" && before["reason"].is_null() {
            // 0.1 returned conflicts without a reason. It is derived, so old ledgers have it too.
            assert_eq!(now["reason"]["code"], "idempotency_key_reused", "{now}");
            before.as_object_mut().expect("a receipt").remove("reason");
        }
        assert!(contains(&now, &before), "a receipt has changed: {before}\n{now}");
    }
    let now = client.get("/v1/inbox?limit=200");
    assert!(contains(&now, &expected["inbox"]), "the inbox was {}\n{now}", expected["inbox"]);
    let run = client.get(&format!("/runs/{}", expected["run"]["run_id"].as_str().unwrap()));
    assert!(contains(&run, &expected["run"]), "the run was {}\n{run}", expected["run"]);
    assert_verified(&workshop);
    assert_copies(&gate, &expected["copies"]);
    reconcile_ambiguous(&workshop, &gate, &expected["unresolved"]);
    let fresh = client.send("POST", PUSH, &[], envelope(90).to_string().as_bytes()).unwrap();
    assert_eq!(fresh.json()["decision"], "ADMIT", "{}", fresh.json());
    client.submit(&match_begin(90, "a")).processed();
    assert_verified(&workshop);
    gate.stop();
    let gate = workshop.launch("principals.toml").start();
    assert_copies(&gate, &expected["scoped"]);
    gate.stop();
    assert_verified(&workshop);
}

/// Effects in flight became ambiguous, intended ones were done once, all others are unchanged.
fn assert_effects(workshop: &FixtureBuilder<'_>, before: &Value) {
    let was = |state: &str| before[state].as_i64().unwrap();
    wait_for("intended effects are done", TIMEOUT, || {
        (workshop.effects("intended") + workshop.effects("in_flight") == 0).then_some(())
    });
    assert_eq!(workshop.effects("ambiguous"), was("ambiguous") + was("in_flight"));
    let calls = workshop.gateway.calls();
    assert_eq!(calls.len(), 1, "only the effect that had not begun is called");
    assert_eq!(calls[0].body["payload"]["task"]["title"], "intended");
    assert_eq!(workshop.effects("withheld"), was("withheld"));
    assert_eq!(workshop.effects("refused"), was("refused"));
    assert_eq!(workshop.effects("done"), was("done") + was("intended"));
}

fn assert_copies(gate: &Gate, copies: &Value) {
    let mut client = gate.client();
    let copies = copies.as_array().unwrap();
    let wrong: Vec<String> =
        copies.iter().filter_map(|copy| RecordedRequest::check(copy, &mut client).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!copies.is_empty());
}

/// Reconciles the two ambiguous publishes: both messages are found on the bus.
fn reconcile_ambiguous(workshop: &FixtureBuilder<'_>, gate: &Gate, unresolved: &Value) {
    let listed = gate.client().get("/v1/reconcile");
    assert_eq!(listed["ambiguous"].as_array().map(Vec::len), Some(2), "{listed}");
    let all = ["reconcile", "--all", "--found", "--absent", "--yes", "--reason", "an upgrade"];
    let (ok, output) = workshop.command(&all);
    assert!(ok, "{output}");
    let ids = published(&workshop.data(), STREAM);
    for n in unresolved.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()) {
        let times = ids.iter().filter(|id| **id == format!("event-{n}")).count();
        assert_eq!(times, 1, "event-{n}");
        let again = gate.client().send("POST", PUSH, &[], envelope(n).to_string().as_bytes());
        assert_eq!(again.unwrap().json()["decision"], "DUPLICATE");
    }
}

fn assert_verified(workshop: &FixtureBuilder<'_>) {
    let (verified, output) = workshop.command(&["verify"]);
    assert!(verified, "{output}");
}

#[test]
fn an_outbox_of_0_1_is_delivered() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    unpack("edge", folder.path());
    let edge = folder.path().join("edge");
    let gate = Gate::on(data.path());
    let agent = Launch::edge(&edge, gate.address()).start();
    for door in ["skyra", "pixel-control", "events/default"] {
        wait_until_drained(&outbox(&edge, door, "local"));
    }
    let delivered: Vec<String> = inbox(data.path()).into_iter().map(|row| row.event_id).collect();
    assert_eq!(delivered, (200..205).map(skyra::id).collect::<Vec<_>>());
    let mut client = gate.client();
    for n in 200..203 {
        client.submit(&match_begin(n, "edge")).duplicate();
    }
    let events = client.get("/v1/events/default");
    assert_eq!(events["events"][0]["data"], json!({ "from": "edge" }), "{events}");
    agent.stop();
    gate.stop();
}
