//! Data of earlier versions, opened by this one: nothing is lost, repeated or decided anew.
//!
//! `tests/fixtures/README.md` describes the data and how to make it again.

mod expected;
mod ledger;
mod make;

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use expected::{Copy, holds};
use ledger::{Ledger, pack, unpack};
use make::Workshop;

use crate::support::edge::{drained, ids, outbox};
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::gateway_stub::{GOOD, GatewayStub};
use crate::support::ingest::{PUSH, STREAM, envelope, published};
use crate::support::skyra::{self, inbox};
use crate::support::{SOON, sql, until};

/// Set to a folder, it makes the maker write its archives there.
const INTO: &str = "ADMIT_MAKE_FIXTURES";

#[test]
fn the_maker_of_fixtures_leaves_every_state_behind_on_sqlite() {
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    make::make(folder.path(), &Ledger::Sqlite);
    assert_every_state(folder.path());
    keep(&folder, "sqlite");
}

#[test]
fn the_maker_of_fixtures_leaves_every_state_behind_on_postgres() {
    if sql::is_about_sqlite() {
        return;
    }
    let Some(ledger) = Ledger::postgres() else { return };
    let folder = tempfile::tempdir().unwrap();
    make::make(folder.path(), &ledger);
    assert_every_state(folder.path());
    keep(&folder, "postgres");
}

#[test]
fn the_maker_of_fixtures_leaves_unsent_events_in_every_outbox() {
    let folder = tempfile::tempdir().unwrap();
    make::make_edge(folder.path());
    for (door, count) in [("skyra", 5), ("pixel-control", 3), ("events/default", 1)] {
        let unsent = ids(&outbox(&folder.path().join("edge"), door, "local"));
        assert_eq!(unsent.len(), count, "{door}");
    }
    keep(&folder, "edge");
}

/// Packs what was made, where that is wanted.
fn keep(folder: &TempDir, name: &str) {
    if let Some(into) = std::env::var_os(INTO) {
        pack(folder.path(), &Path::new(&into).join(format!("{name}.tar.gz")));
    }
}

/// Every state of an effect, every verdict and every status of the inbox is in the folder.
fn assert_every_state(folder: &Path) {
    let expected = expected::read(folder);
    for (state, count) in expected["effects"].as_object().unwrap() {
        assert!(count.as_i64().unwrap() > 0, "nothing is {state}");
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
    assert!(in_flight > make::CALLS_MAX as i64, "calls and a publish");
}

#[test]
fn the_data_of_0_1_on_sqlite_goes_on() {
    if sql::is_about_sqlite() {
        return;
    }
    goes_on("sqlite", &Ledger::Sqlite);
}

#[test]
fn the_data_of_0_1_on_postgres_goes_on() {
    if sql::is_about_sqlite() {
        return;
    }
    let Some(ledger) = Ledger::postgres() else { return };
    goes_on("postgres", &ledger);
}

fn goes_on(name: &str, ledger: &Ledger) {
    let folder = tempfile::tempdir().unwrap();
    unpack(name, folder.path());
    ledger.load_from(folder.path());
    let expected = expected::read(folder.path());
    let gateway = GatewayStub::start(GOOD);
    let shop = Workshop { root: folder.path().to_owned(), ledger, gateway };
    let gate = shop.launch("gate.toml").start();
    effects_go_on(&shop, &expected["effects"]);
    let mut client = gate.client();
    for before in expected["receipts"].as_array().unwrap() {
        let now = client.get(&format!("/v1/receipts/{}", before["id"].as_str().unwrap()));
        let mut before = before.clone();
        if before["verdict"] == "conflict" && before["reason"].is_null() {
            // 0.1 showed conflicts without a reason. It is derived, so old ledgers have it too.
            assert_eq!(now["reason"]["code"], "idempotency_key_reused", "{now}");
            before.as_object_mut().expect("a receipt").remove("reason");
        }
        assert!(holds(&now, &before), "a receipt has changed: {before}\n{now}");
    }
    let now = client.get("/v1/inbox?limit=200");
    assert!(holds(&now, &expected["inbox"]), "the inbox was {}\n{now}", expected["inbox"]);
    let run = client.get(&format!("/runs/{}", expected["run"]["run_id"].as_str().unwrap()));
    assert!(holds(&run, &expected["run"]), "the run was {}\n{run}", expected["run"]);
    verifies(&shop);
    assert_copies(&gate, &expected["copies"]);
    resolves_what_is_ambiguous(&shop, &gate, &expected["unresolved"]);
    let fresh = client.send("POST", PUSH, &[], envelope(90).to_string().as_bytes()).unwrap();
    assert_eq!(fresh.json()["decision"], "ADMIT", "{}", fresh.json());
    client.say(&match_begin(90, "a")).processed();
    verifies(&shop);
    gate.stop();
    let gate = shop.launch("principals.toml").start();
    assert_copies(&gate, &expected["scoped"]);
    gate.stop();
    verifies(&shop);
}

/// What was in flight is ambiguous for ever, what was intended is done once, nothing else has moved.
fn effects_go_on(shop: &Workshop<'_>, before: &Value) {
    let was = |state: &str| before[state].as_i64().unwrap();
    until("what was intended is done", SOON, || {
        (shop.effects("intended") + shop.effects("in_flight") == 0).then_some(())
    });
    assert_eq!(shop.effects("ambiguous"), was("ambiguous") + was("in_flight"));
    let calls = shop.gateway.calls();
    assert_eq!(calls.len(), 1, "only what had not begun is called");
    assert_eq!(calls[0].body["payload"]["task"]["title"], "intended");
    assert_eq!(shop.effects("withheld"), was("withheld"));
    assert_eq!(shop.effects("refused"), was("refused"));
    assert_eq!(shop.effects("done"), was("done") + was("intended"));
}

fn assert_copies(gate: &Gate, copies: &Value) {
    let mut client = gate.client();
    let copies = copies.as_array().unwrap();
    let wrong: Vec<String> =
        copies.iter().filter_map(|copy| Copy::check(copy, &mut client).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!copies.is_empty());
}

/// Both publishes that nobody knows the outcome of are on the bus, and are found there.
fn resolves_what_is_ambiguous(shop: &Workshop<'_>, gate: &Gate, unresolved: &Value) {
    let listed = gate.client().get("/v1/reconcile");
    assert_eq!(listed["ambiguous"].as_array().map(Vec::len), Some(2), "{listed}");
    let all = ["reconcile", "--all", "--found", "--absent", "--yes", "--reason", "an upgrade"];
    let (ok, said) = shop.command(&all);
    assert!(ok, "{said}");
    let ids = published(&shop.data(), STREAM);
    for n in unresolved.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()) {
        let times = ids.iter().filter(|id| **id == format!("event-{n}")).count();
        assert_eq!(times, 1, "event-{n}");
        let again = gate.client().send("POST", PUSH, &[], envelope(n).to_string().as_bytes());
        assert_eq!(again.unwrap().json()["decision"], "DUPLICATE");
    }
}

fn verifies(shop: &Workshop<'_>) {
    let (agrees, said) = shop.command(&["verify"]);
    assert!(agrees, "{said}");
}

#[test]
fn an_outbox_of_0_1_is_delivered() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    unpack("edge", folder.path());
    let edge = folder.path().join("edge");
    let gate = Gate::on(data.path());
    let agent = Launch::edge(&edge, gate.address()).start();
    for door in ["skyra", "pixel-control", "events/default"] {
        drained(&outbox(&edge, door, "local"));
    }
    let kept: Vec<String> = inbox(data.path()).into_iter().map(|row| row.event_id).collect();
    assert_eq!(kept, (200..205).map(skyra::id).collect::<Vec<_>>());
    let mut client = gate.client();
    for n in 200..203 {
        client.say(&match_begin(n, "edge")).duplicate();
    }
    let events = client.get("/v1/events/default");
    assert_eq!(events["events"][0]["data"], json!({ "from": "edge" }), "{events}");
    agent.stop();
    gate.stop();
}
