//! Damaged artifacts and modified tables: everything is stored.

use serde_json::{Value, json};

use crate::support::gate::Gate;
use crate::support::ledger::assert_intact;
use crate::support::machine;
use crate::support::rounds::{
    ROUNDS, Round, SOURCES, file, number, post_source, post_source_ok, round, rounds, row_counts,
};
use crate::support::sql;

/// Every incomplete artifact, with its expected outcome.
fn damaged() -> Vec<(&'static str, Value, &'static str)> {
    let stats = |name: &str| json!({ "filename": name, "content": Round::reference().stats().1 });
    let mut cases: Vec<(&'static str, Value, &'static str)> = [
        "2026-02-11-supply-round-2.txt",
        "2019-02-11-220205-supply-round-2.txt",
        "2036-02-11-220205-supply-round-2.txt",
        "2026-13-11-220205-supply-round-2.txt",
        "2026-02-32-220205-supply-round-2.txt",
        "2026-02-11-250205-supply-round-2.txt",
        "2026-02-11-226005-supply-round-2.txt",
        "2026-02-11-220205-supply-round-11.txt",
        "2026-02-11-220205-supply-round-0.txt",
        "2026-02-11-220205-sup ply-round-2.txt",
        "2026-02-11-220205-supply-round-2.csv",
        "../2026-02-11-220205-supply-round-2.txt",
        "2026-02-11-220205-supply-round-2-endstats.txt",
        "",
    ]
    .into_iter()
    .map(|name| ("filename_trigger", stats(name), "parse_failed"))
    .collect();
    let long = format!("2026-02-11-220205-{}-round-2.txt", "m".repeat(51));
    cases.push(("filename_trigger", stats(&long), "parse_failed"));
    let (name, content) = Round::reference().stats();
    let short = content.replacen("\\9:39", "", 1);
    for content in [short.as_str(), "one line", ""] {
        let body = json!({ "filename": name, "content": content });
        cases.push(("filename_trigger", body, "parse_failed"));
    }
    cases.push(("filename_trigger", json!({ "filename": 5 }), "parse_failed"));
    let ready = Round::reference().ready();
    let mut no_embed = ready.clone();
    no_embed["embeds"] = json!([]);
    let mut no_number = ready.clone();
    no_number["embeds"][0]["fields"][1]["value"] = json!("two");
    let mut no_map = ready.clone();
    no_map["embeds"][0]["fields"][0]["value"] = json!("");
    for body in [no_embed, no_number, no_map, json!({ "content": "hello" }), json!([]), json!(7)] {
        cases.push(("stats_ready", body, "parse_failed"));
    }
    cases.push(("gametime_fallback", json!({ "meta": {} }), "parse_failed"));
    cases.push(("gametime_fallback", json!({ "filename": "x", "content": "{" }), "parse_failed"));
    cases.push(("lua_spawn_stats", json!({ "spawn_stats": [] }), "parse_failed"));
    cases.push(("proximity_file", json!({ "filename": "x", "content": "" }), "parse_failed"));
    cases.push(("proximity_file", json!({ "content": "# map=supply" }), "parse_failed"));
    cases
}

#[test]
fn an_unreadable_artifact_is_stored_with_its_reason_and_a_copy_adds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let cases = damaged();
    for (source, body, state) in &cases {
        let reply = post_source_ok(&mut client, source, body);
        assert_eq!(reply["state"], *state, "{source} {body}: {reply}");
        assert_eq!((&reply["disposition"], &reply["round_id"]), (&json!("new"), &Value::Null));
        assert!(!reply["reason_code"].as_str().unwrap().is_empty(), "{reply}");
        let receipt = reply["receipt_id"].as_str().unwrap();
        assert_eq!(client.get(&format!("/v1/receipts/{receipt}"))["verdict"], "fresh");
    }
    for bytes in [&b"{"[..], b"\xff\xfe\x00", b"{\"filename\": \"\xc3\x28\"}"] {
        let path = format!("{ROUNDS}/proximity_file");
        let answer = client.send("POST", &path, &[], bytes).unwrap();
        assert_eq!((answer.status, &answer.json()["state"]), (200, &json!("parse_failed")));
    }
    let before = row_counts(data);
    let all = cases.len() as i64 + 3;
    let kept = "SELECT count(*) FROM record_event WHERE state = 'parse_failed'";
    assert_eq!(number(data, kept), all);
    for (source, body, _) in &cases {
        assert_eq!(
            post_source_ok(&mut client, source, body)["disposition"],
            "replay",
            "{source} {body}"
        );
    }
    assert_eq!(row_counts(data), before);
    assert!(rounds(&mut client).is_empty());
    let found = client.get(&format!("{ROUNDS}/diagnostics"));
    assert_eq!(found["counts"]["parse_failed"], all);
    gate.stop();
}

#[test]
fn the_readable_part_of_an_artifact_counts() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    let mut broken = reference.ready();
    let fields = broken["embeds"][0]["fields"].as_array_mut().unwrap();
    let axis = fields.iter_mut().find(|field| field["name"] == "Axis_JSON").unwrap();
    axis["value"] = json!("[{");
    let (name, tracker) = reference.proximity(2);
    let tracker =
        tracker.replace("AAAA1111;alpha;axis;soldier", "half a line\nAAAA1111;alpha;axis;x");
    post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    for (source, body) in [
        ("stats_ready", broken),
        ("proximity_file", json!({ "filename": name, "content": tracker })),
    ] {
        let reply = post_source_ok(&mut client, source, &body);
        assert_eq!(reply["state"], "enriched", "{source}: {reply}");
        let id = reply["round_id"].as_str().unwrap();
        let found = round(&mut client, id);
        let events = found["sources"].as_array().unwrap();
        let event = events.iter().find(|event| event["source"] == source).unwrap();
        assert_eq!(event["parse_status"], "partial", "{event}");
        assert!(!event["notes"].as_array().unwrap().is_empty());
    }
    assert_eq!(number(folder.path(), "SELECT count(*) FROM player_track"), 2);
    gate.stop();
}

#[test]
fn artifacts_without_an_end_or_a_valid_round_are_stored_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    post_source_ok(&mut client, "filename_trigger", &Round::reference().post("filename_trigger"));
    for (body, reason) in [
        (json!({ "map_name": "supply", "round_number": 2 }), None),
        (
            json!({ "map_name": "supply", "round_number": 0, "round_end_unix": 5 }),
            Some("invalid_input"),
        ),
        (json!({ "map_name": " ", "round_number": 2, "round_end_unix": 5 }), None),
    ] {
        let reply = post_source_ok(&mut client, "stats_ready", &body);
        assert_ne!(reply["link_status"], "linked_round_id", "{body}: {reply}");
        assert!(reason.is_none_or(|reason| reply["reason_code"] == reason), "{body}: {reply}");
    }
    let found = client.get(&format!("{ROUNDS}/diagnostics"));
    assert_eq!(found["counts"]["unlinked_total"], 3, "{found}");
    gate.stop();
}

#[test]
fn a_legacy_index_causes_drift_only_of_the_events_it_affects() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    Gate::on(data).stop();
    sql::execute(
        data,
        "CREATE UNIQUE INDEX legacy_track ON player_track \
         (session_date, round_number, player_guid, spawn_time_ms)",
    );
    let gate = Gate::on(data);
    let mut client = gate.client();
    let one = Round::reference();
    // The same day, players and half, but another start: the old key treats them as equal.
    let two = Round {
        map: "goldrush".to_owned(),
        start: one.start + 3_600,
        end: one.end + 3_600,
        stamp: "2026-02-11-230205".to_owned(),
        ..one.clone()
    };
    for round in [&one, &two] {
        post_source_ok(&mut client, "filename_trigger", &round.post("filename_trigger"));
    }
    assert_eq!(
        post_source_ok(&mut client, "proximity_file", &file(one.proximity(3)))["state"],
        "enriched"
    );
    let drifted = post_source_ok(&mut client, "proximity_file", &file(two.proximity(3)));
    assert_eq!(drifted["reason_code"], "schema_drift", "{drifted}");
    assert_eq!(drifted["state"], "linked_round_id");
    assert_eq!(drifted["disposition"], "new");
    assert_eq!(rounds(&mut client).len(), 2, "no new round");
    assert_eq!(number(data, "SELECT count(*) FROM player_track"), 2, "the rows of the first");
    let receipt = drifted["receipt_id"].as_str().unwrap();
    assert_eq!(client.get(&format!("/v1/receipts/{receipt}"))["verdict"], "fresh", "it is kept");
    let reply = post_source_ok(&mut client, "stats_ready", &two.ready());
    assert_eq!(reply["state"], "enriched", "others go on: {reply}");
    let copy = post_source_ok(&mut client, "proximity_file", &file(two.proximity(3)));
    assert_eq!(
        (&copy["disposition"], &copy["reason_code"]),
        (&json!("replay"), &json!("schema_drift"))
    );
    let found = client.get(&format!("{ROUNDS}/diagnostics"));
    assert_eq!((&found["status"], &found["counts"]["schema_drift"]), (&json!("error"), &json!(1)));

    sql::execute(data, "DROP INDEX legacy_track");
    let answer = client.send("POST", &format!("{ROUNDS}/relink"), &[], b"").unwrap();
    let reply = answer.json();
    assert_eq!((answer.status, &reply["scanned"], &reply["updated"]), (200, &json!(1), &json!(1)));
    assert_eq!(number(data, "SELECT count(*) FROM player_track"), 4, "the rows came back");
    let id = drifted["round_id"].as_str().unwrap();
    let events = round(&mut client, id)["sources"].clone();
    let tracker = events.as_array().unwrap().iter().find(|e| e["source"] == "proximity_file");
    assert_eq!(tracker.unwrap()["state"], "enriched");
    gate.stop();
    assert_intact(data);
}

#[test]
fn randomly_changed_bytes_never_break_the_door() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let mut rng = machine::rng();
    let mut kept = 0;
    for n in 0..200_u64 {
        let source = SOURCES[usize::try_from(n).unwrap() % SOURCES.len()];
        let mut bytes = Round::reference().post(source).to_string().into_bytes();
        for _ in 0..=rng.below(6) {
            let place = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            match rng.below(3) {
                0 => bytes[place] = u8::try_from(rng.below(256)).unwrap(),
                1 => bytes.truncate(place.max(1)),
                _ => drop(bytes.remove(place)),
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        let path = format!("{ROUNDS}/{source}");
        let answer = client.send("POST", &path, &[], &bytes).unwrap();
        let reply = answer.json();
        assert_eq!(answer.status, 200, "{reply}: {}", String::from_utf8_lossy(&bytes));
        kept += i64::from(reply["disposition"] != "replay");
        assert!(reply["receipt_id"].is_string());
    }
    let rows = number(folder.path(), "SELECT count(*) FROM record_event");
    assert!(rows >= kept, "{rows} rows for {kept} new events");
    assert_eq!(post_source(&mut client, "stats_ready", &Round::reference().ready()).status, 200);
    gate.stop();
    assert_intact(folder.path());
}
