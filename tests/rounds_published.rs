//! Published rounds: each revision is published at most once, whatever happens to the gate.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::ingest::topic;
use crate::support::intents::admit;
use crate::support::ledger::assert_intact;
use crate::support::machine::text;
use crate::support::rounds::{
    ROUNDS, Round, SOURCES, number, post_source, post_source_ok, round, rounds,
};
use crate::support::strace::{KillPoint, attach_kill, kill_at};
use crate::support::{TIMEOUT, sql, strace, wait_for};

const TOPIC: &str = "rounds.v1";

/// Gate that publishes rounds after this quiet period.
fn publishing(data: &Path, settle_ms: u32) -> Launch {
    Launch::on(data)
        .variable("ADMIT_BUS__DELIVERY_TIMEOUT_MS", "50")
        .variable("ADMIT_DOORS__ROUNDS__TOPIC", TOPIC)
        .variable("ADMIT_DOORS__ROUNDS__PUBLISH_SETTLE_MS", &settle_ms.to_string())
}

/// Waits until no publication is pending or in flight; returns the diagnostics.
fn at_rest(client: &mut Client) -> Value {
    wait_for("everything was handed to the bus", TIMEOUT, || {
        let counts = client.get(&format!("{ROUNDS}/diagnostics"))["publications"].clone();
        (counts["waiting"] == 0 && counts["in_flight"] == 0).then_some(counts)
    })
}

/// Number of messages on the bus per revision of each round.
fn on_the_bus(data: &Path) -> BTreeMap<(String, u64), u32> {
    let mut found = BTreeMap::new();
    for line in topic(data, TOPIC) {
        let message = &line["payload"];
        let id = message["round_id"].as_str().unwrap().to_owned();
        *found.entry((id, message["revision"].as_u64().unwrap())).or_default() += 1;
    }
    found
}

#[test]
fn a_complete_round_is_published_and_every_view_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = publishing(data, 0).start();
    let mut client = gate.client();
    let reference = Round::reference();
    for source in SOURCES {
        post_source_ok(&mut client, source, &reference.post(source));
        at_rest(&mut client);
    }
    let [listed] = rounds(&mut client).try_into().expect("one round");
    assert_eq!(listed["state"], "published");
    let id = listed["round_id"].as_str().unwrap();
    let found = round(&mut client, id);
    let lines = topic(data, TOPIC);
    let newest = &lines.last().unwrap()["payload"];
    assert_eq!(newest["fields"], found["fields"]);
    assert_eq!(newest["revision"], found["revision"]);
    assert!(on_the_bus(data).values().all(|times| *times == 1));
    for source in found["sources"].as_array().unwrap() {
        assert_eq!(source["state"], "published", "{source}");
    }
    let seen = sql::query_rows(data, "SELECT state, revision, published_revision FROM rounds");
    let [seen] = seen.try_into().expect("one round");
    let (state, revision, published): (String, i64, i64) = (seen.get(0), seen.get(1), seen.get(2));
    assert_eq!((state.as_str(), published), ("published", revision));
    let (went_well, list) =
        admit(&["rounds", "list", "--state", "published", "--data", text(data)]);
    assert!(went_well && list.contains(id), "{list}");
    let (went_well, shown) = admit(&["rounds", "show", id, "--data", text(data)]);
    assert!(
        went_well && shown.contains("enriched > published") && shown.contains(TOPIC),
        "{shown}"
    );
    // A known event gets a duplicate reply and adds nothing.
    let printed = post_source_ok(&mut client, "stats_ready", &reference.ready());
    assert_eq!(
        (&printed["disposition"], &printed["state"]),
        (&json!("replay"), &json!("published"))
    );
    assert_eq!(topic(data, TOPIC).len(), lines.len());
    gate.stop();
    assert_intact(data);
    let (agrees, printed) = admit(&["verify", "--data", text(data)]);
    assert!(agrees, "{printed}");
    std::fs::remove_dir_all(data.join("bus").join(TOPIC)).unwrap();
    let (agrees, printed) = admit(&["verify", "--data", text(data)]);
    assert!(
        !agrees && printed.contains(&format!("revision 1 of {id} missing on the bus")),
        "{printed}"
    );
}

#[test]
fn publications_pending_at_a_stop_are_published_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    // Without a configured topic, nothing is published.
    let gate = Gate::on(data);
    post_source_ok(&mut gate.client(), "filename_trigger", &Round::nth(0).post("filename_trigger"));
    assert_eq!(rounds(&mut gate.client())[0]["state"], "enriched");
    gate.stop();
    let gate = publishing(data, 3_600_000).start();
    let mut client = gate.client();
    post_source_ok(&mut client, "filename_trigger", &Round::nth(1).post("filename_trigger"));
    post_source_ok(&mut client, "stats_ready", &Round::nth(1).ready());
    let counts = client.get(&format!("{ROUNDS}/diagnostics"))["publications"].clone();
    assert_eq!((&counts["waiting"], &counts["published"]), (&json!(2), &json!(0)), "{counts}");
    gate.kill();
    let gate = publishing(data, 0).start();
    let counts = at_rest(&mut gate.client());
    assert_eq!((&counts["published"], &counts["ambiguous"]), (&json!(2), &json!(0)), "{counts}");
    assert_eq!(on_the_bus(data).len(), 2, "each once, as it stands");
    gate.stop();
}

/// From the first byte of the record to the last byte of the outcome. A commit is one or two writes.
const POINTS: [KillPoint; 12] = [
    kill_at("pwrite64", "ledger.db-wal", 1),
    kill_at("pwrite64", "ledger.db-wal", 2),
    kill_at("fdatasync", "ledger.db-wal", 1),
    kill_at("pwrite64", "ledger.db-wal", 3),
    kill_at("pwrite64", "ledger.db-wal", 4),
    kill_at("fdatasync", "ledger.db-wal", 2),
    kill_at("write,pwrite64,writev,pwritev", "partition=0.jsonl", 1),
    kill_at("fdatasync,fsync", "partition=0.jsonl", 1),
    kill_at("pwrite64", "ledger.db-wal", 5),
    kill_at("pwrite64", "ledger.db-wal", 6),
    kill_at("fdatasync", "ledger.db-wal", 3),
    kill_at("fdatasync", "ledger.db-wal", 4),
];

/// Resolves ambiguous publications as an operator would; returns whether there were any.
fn reconciled(gate: &Gate) -> bool {
    let listen = gate.address().to_string();
    let (went_well, listed) = admit(&["reconcile", "--listen", &listen]);
    assert!(went_well, "{listed}");
    if listed.contains("nothing is ambiguous") {
        return false;
    }
    assert!(listed.contains("rnd-") && listed.contains("revision"), "{listed}");
    wait_for("it is resolved", TIMEOUT, || {
        let all = ["reconcile", "--all", "--found", "--absent", "--yes", "--listen", &listen];
        let (went_well, _) = admit(&[&all[..], &["--reason", "the gate was killed"]].concat());
        went_well.then_some(())
    });
    true
}

#[test]
fn killed_between_any_two_steps_a_round_is_on_the_bus_exactly_once() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    // The topic exists, so that its file can be watched.
    let gate = publishing(data, 0).start();
    post_source_ok(&mut gate.client(), "filename_trigger", &Round::nth(0).post("filename_trigger"));
    at_rest(&mut gate.client());
    gate.stop();
    let mut ends = Vec::new();
    for (n, at) in (1..).zip(POINTS) {
        let played = Round::nth(n);
        let mut gate = publishing(data, 0).start();
        let mut strace = attach_kill(&gate, at, TOPIC);
        let mut client = gate.client();
        let body = played.post("filename_trigger").to_string();
        let path = format!("{ROUNDS}/filename_trigger");
        let has_reply = client.send("POST", &path, &[], body.as_bytes()).is_ok();
        wait_for("it is published, or the gate is dead", TIMEOUT, || {
            let is_out = || number(data, "SELECT count(*) FROM record WHERE state = 'published'");
            (!gate.is_running() || (has_reply && is_out() == i64::from(n) + 1)).then_some(())
        });
        let was_killed = !gate.is_running();
        drop(gate);
        strace.wait().unwrap();
        let gate = publishing(data, 0).start();
        let mut client = gate.client();
        // An event without a reply is sent again.
        post_source_ok(&mut client, "filename_trigger", &played.post("filename_trigger"));
        let counts = at_rest(&mut client);
        let was_ambiguous = reconciled(&gate);
        assert_eq!(counts["ambiguous"], i64::from(was_ambiguous), "{at:?}");
        at_rest(&mut client);
        ends.push(format!("{at:?} killed {was_killed}, ambiguous {was_ambiguous}"));
        let bus = on_the_bus(data);
        assert_eq!(bus.len(), n as usize + 1, "{ends:#?}");
        assert!(bus.values().all(|times| *times == 1), "{ends:#?}: {bus:?}");
        let states = rounds(&mut client);
        assert!(states.iter().all(|round| round["state"] == "published"), "{ends:#?}: {states:?}");
        gate.stop();
    }
    assert_intact(data);
    let count = |words: &str| ends.iter().filter(|end| end.contains(words)).count();
    assert!(count("killed true") >= 8, "too few points were reached: {ends:#?}");
    assert!(count("ambiguous true") >= 2, "{ends:#?}");
    assert!(count("killed true, ambiguous false") >= 2, "{ends:#?}");
}

#[test]
fn the_roles_for_listing_and_resolving_ambiguities_are_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let principals = r#"[{ name = "server", keys = ["server-key-long-enough"], doors = ["rounds"] },
        { name = "eyes", keys = ["eyes-key-long-enough"], role = "read" },
        { name = "ops", keys = ["ops-key-long-enough"], role = "operate" }]"#;
    let gate = publishing(folder.path(), 0).variable("ADMIT_PRINCIPALS", principals).start();
    let key = "0".repeat(64);
    let body = json!({ "resolution": "absent", "reason": "looked" }).to_string();
    for (who, listed, ended) in [
        ("server-key-long-enough", 403, 403),
        ("eyes-key-long-enough", 200, 403),
        ("ops-key-long-enough", 200, 404),
        ("nobodys-key-long-enough", 401, 401),
    ] {
        let mut client = gate.client().with("X-API-Key", who);
        let list = format!("{ROUNDS}/reconcile");
        let got = client.send("GET", &list, &[], b"").unwrap().status;
        let path = format!("{list}/{key}");
        let did = client.send("POST", &path, &[], body.as_bytes()).unwrap().status;
        assert_eq!((got, did), (listed, ended), "{who}");
    }
    gate.stop();
    // A gate that publishes no rounds has nothing to list.
    let gate = Gate::on(folder.path().join("other").as_path());
    let answer = gate.client().send("GET", &format!("{ROUNDS}/reconcile"), &[], b"").unwrap();
    assert_eq!(answer.status, 404);
    gate.stop();
}

#[test]
fn a_round_without_a_file_gets_the_match_id_that_its_file_would_have() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let named = json!({ "filename": "2026-02-11-210205-supply-round-1.txt" });
    post_source_ok(&mut client, "filename_trigger", &named);
    let unnamed = json!({
        "map_name": "Supply", "round_number": 2, "round_date": "2026-02-11",
        "round_time": "22:02:05",
    });
    assert_eq!(post_source(&mut client, "filename_trigger", &unnamed).status, 200);
    let query = "SELECT match_id FROM rounds ORDER BY round_number";
    let ids: Vec<Option<String>> = sql::query_column(folder.path(), query);
    let expected = ["2026-02-11-210205-supply-round-1", "2026-02-11-220205-supply-round-2"];
    assert_eq!(ids, expected.map(|id| Some(id.to_owned())));
    gate.stop();
}
