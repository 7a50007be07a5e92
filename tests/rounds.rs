//! Rounds: all events about a round make one round, in any order and with any number of copies.

use std::thread;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::intents::admit;
use crate::support::ledger::{LedgerLock, assert_intact};
use crate::support::rounds::{
    ROUNDS, Round, SOURCES, file, number, post_source, post_source_ok, round, rounds, row_counts,
};
use crate::support::{TIMEOUT, wait_for};

/// All permutations of four.
fn orders() -> Vec<[usize; 4]> {
    let mut found = Vec::new();
    for a in 0..4 {
        for b in 0..4 {
            for c in 0..4 {
                for d in 0..4 {
                    let order = [a, b, c, d];
                    if (0..4).all(|n| order.contains(&n)) {
                        found.push(order);
                    }
                }
            }
        }
    }
    found
}

/// A round without its times of play and of posting.
fn outcome(round: &Value, of: &Round) -> String {
    let mut fields = serde_json::Map::new();
    for (name, field) in round["fields"].as_object().unwrap() {
        if name != "captured_at" {
            let reduced = json!({ "value": field["value"], "source": field["source"] });
            fields.insert(name.clone(), reduced);
        }
    }
    let mut links: Vec<String> = round["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let words = ["source", "state", "link_status", "confidence", "reason_code", "matched"];
            words.map(|word| event[word].as_str().unwrap_or("-").to_owned()).join(" ")
        })
        .collect();
    links.sort();
    let outcome =
        json!({ "fields": fields, "links": links, "fingerprints": round["fingerprints"] });
    let named = [
        ((of.start - 60).to_string(), "WARMUP"),
        (of.start.to_string(), "START"),
        (of.end.to_string(), "END"),
        (of.stamp[..10].to_owned(), "DAY"),
    ];
    named
        .iter()
        .fold(outcome.to_string(), |outcome, (reduced, name)| outcome.replace(reduced, name))
}

#[test]
fn in_all_orders_of_four_sources_the_round_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let mut gists = Vec::new();
    for (n, order) in orders().into_iter().enumerate() {
        // One per day, from the second of the month on.
        let played = Round::reference().later(i64::try_from(n).unwrap() - 9);
        for place in order {
            post_source_ok(&mut client, SOURCES[place], &played.post(SOURCES[place]));
        }
        let list = client.get(&format!("{ROUNDS}?date={}", &played.stamp[..10]));
        let [listed] = list["rounds"].as_array().unwrap().as_slice() else {
            panic!("{order:?}: one round, found {list}")
        };
        let found = round(&mut client, listed["round_id"].as_str().unwrap());
        assert_eq!(found["sources"].as_array().unwrap().len(), 4, "{order:?}: {found}");
        gists.push(outcome(&found, &played));
    }
    assert_eq!(gists.len(), 24);
    for (n, one) in gists.iter().enumerate() {
        assert_eq!(one, &gists[0], "order {n} differs");
    }
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn field_trust_does_not_depend_on_the_order_of_sources() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    let stats = file(reference.stats());
    post_source_ok(&mut client, "filename_trigger", &stats);
    post_source_ok(&mut client, "proximity_file", &reference.post("proximity_file"));
    let reply = post_source_ok(&mut client, "stats_ready", &reference.ready());
    assert_eq!(reply["disposition"], "new");
    assert_eq!(reply["link_status"], "linked_round_id");
    assert_eq!(reply["fingerprint"]["kind"], "start");
    assert_eq!(reply["fingerprint"]["value"], "supply|2|1770843143");
    let id = reply["round_id"].as_str().unwrap().to_owned();
    for again in [false, true] {
        if again {
            assert_eq!(
                post_source_ok(&mut client, "filename_trigger", &stats)["disposition"],
                "replay"
            );
        }
        let found = round(&mut client, &id);
        let field = |name: &str| found["fields"][name].clone();
        assert_eq!(field("winner_team")["value"], 2, "the script knows who won: {found}");
        assert_eq!(field("winner_team")["source"], "stats_ready");
        assert_eq!(field("players")["source"], "filename_trigger");
        assert_eq!(field("players")["value"][0]["kills"], 10);
        assert_eq!(field("engagements")["source"], "proximity_file");
        assert_eq!(field("engagements")["value"].as_array().unwrap().len(), 3);
        let event = field("winner_team")["event"].as_str().unwrap().to_owned();
        assert_eq!(client.get(&format!("/v1/receipts/{event}"))["door"], "rounds");
        assert_eq!(found["state"], "enriched");
        assert_eq!(found["fingerprints"]["start"][0], "supply|2|1770843143");
        assert_eq!(found["fingerprints"]["clock"][0], "supply|2|2026-02-11|220205");
    }
    gate.stop();
}

#[test]
fn concurrent_posts_of_one_file_make_one_round() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let body = Round::reference().post("filename_trigger");
    let dispositions: Vec<String> = thread::scope(|scope| {
        let posts: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| post_source_ok(&mut gate.client(), "filename_trigger", &body)))
            .collect();
        let reply = posts.into_iter().map(|thread| thread.join().unwrap());
        reply.map(|reply| reply["disposition"].as_str().unwrap().to_owned()).collect()
    });
    assert_eq!(dispositions.iter().filter(|word| *word == "new").count(), 1, "{dispositions:?}");
    assert_eq!(dispositions.iter().filter(|word| *word == "replay").count(), 15);
    assert_eq!(rounds(&mut gate.client()).len(), 1);
    let players = "SELECT count(*) FROM player_comprehensive_stats";
    assert_eq!(number(folder.path(), players), 2);
    assert_eq!(number(folder.path(), "SELECT count(*) FROM weapon_comprehensive_stats"), 2);
    gate.stop();
}

#[test]
fn a_repeated_message_with_other_values_updates_one_row_and_keeps_both_events() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    let data = folder.path();
    post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    post_source_ok(&mut client, "stats_ready", &reference.ready_with(2, 1));
    let captured = number(data, "SELECT captured_at FROM lua_round_teams");
    let again = post_source_ok(&mut client, "stats_ready", &reference.ready_with(2, 3));
    assert_eq!(again["disposition"], "updated", "{again}");
    assert_eq!(number(data, "SELECT count(*) FROM lua_round_teams"), 1);
    assert_eq!(number(data, "SELECT pause_count FROM lua_round_teams"), 3);
    assert!(number(data, "SELECT captured_at FROM lua_round_teams") >= captured);
    assert_eq!(number(data, "SELECT count(*) FROM lua_round_teams WHERE round_id IS NOT NULL"), 1);
    let events = "SELECT count(*) FROM record_event WHERE source = 'stats_ready'";
    assert_eq!(number(data, events), 2);
    let id = again["round_id"].as_str().unwrap();
    assert_eq!(round(&mut client, id)["fields"]["pause_count"]["value"], 3);

    let before = row_counts(data);
    let copy = post_source_ok(&mut client, "stats_ready", &reference.ready_with(2, 3));
    assert_eq!((&copy["disposition"], &copy["round_id"]), (&json!("replay"), &again["round_id"]));
    assert_eq!(row_counts(data), before);
    let late = post_source_ok(&mut client, "stats_ready", &reference.ready_with(2, 1));
    assert_eq!(late["disposition"], "replay", "an old version that comes late changes nothing");
    assert_eq!(number(data, "SELECT pause_count FROM lua_round_teams"), 3);
    assert_eq!(row_counts(data), before);
    gate.stop();
}

#[test]
fn the_message_and_the_file_of_a_round_make_one_row_without_duplicate_spawns() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for (n, order) in [["stats_ready", "gametime_fallback"], ["gametime_fallback", "stats_ready"]]
        .into_iter()
        .enumerate()
    {
        let reference = Round {
            map: format!("goldrush_{n}"),
            end: 1_770_843_722 + 86_400 * n as i64,
            start: 1_770_843_143 + 86_400 * n as i64,
            ..Round::reference()
        };
        for source in order {
            let reply = post_source_ok(&mut client, source, &reference.post(source));
            assert_eq!(reply["link_status"], "unlinked", "no file yet: {reply}");
            assert_eq!(reply["reason_code"], "no_rows_for_map_round");
        }
        let count = |table: &str| {
            let map = &reference.map;
            let query = format!("SELECT count(*) FROM {table} WHERE map_name = '{map}'");
            number(folder.path(), &query)
        };
        assert_eq!((count("lua_round_teams"), count("lua_spawn_stats")), (1, 2), "{order:?}");
    }
    let events = "SELECT count(*) FROM record_event";
    assert_eq!(number(folder.path(), events), 4);
    gate.stop();
}

#[test]
fn repeated_spawns_change_names_and_no_counts() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    let data = folder.path();
    post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    post_source_ok(&mut client, "gametime_fallback", &reference.post("gametime_fallback"));
    assert_eq!(number(data, "SELECT count(*) FROM lua_spawn_stats"), 2);
    let spawns = [("AAAA1111", "renamed", 5), ("BBBB2222", "bravo", 6), ("", "unnamed", 1)];
    let reply =
        post_source_ok(&mut client, "gametime_fallback", &file(reference.gametime_with(&spawns)));
    assert_eq!(reply["disposition"], "updated");
    assert_eq!(number(data, "SELECT count(*) FROM lua_spawn_stats"), 2);
    let named = "SELECT count(*) FROM lua_spawn_stats WHERE player_name = 'renamed'";
    assert_eq!(number(data, named), 1);
    let id = reply["round_id"].as_str().unwrap();
    let found = round(&mut client, id);
    let notes = found["sources"].to_string();
    assert!(notes.contains("no guid"), "the empty one is reported: {notes}");

    let own = json!({
        "match_id": "2026-02-11-220202",
        "round_number": 2,
        "spawn_stats": [{ "guid": "AAAA1111", "name": "third", "spawns": 9 }],
    });
    let reply = post_source_ok(&mut client, "lua_spawn_stats", &own);
    assert_eq!(reply["round_id"], found["round_id"], "the match id leads to the map: {reply}");
    assert_eq!(number(data, "SELECT count(*) FROM lua_spawn_stats"), 2);
    let third = "SELECT spawn_count FROM lua_spawn_stats WHERE player_name = 'third'";
    assert_eq!(number(data, third), 9);
    gate.stop();
}

#[test]
fn a_second_half_that_the_tracker_labels_as_first_is_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    let clamped = Round { number: 1, ..reference.clone() };
    let reply = post_source_ok(&mut client, "proximity_file", &file(clamped.proximity(2)));
    assert_eq!(reply["link_status"], "unlinked");
    post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    let reply =
        post_source_ok(&mut client, "gametime_fallback", &reference.post("gametime_fallback"));
    let id = reply["round_id"].as_str().unwrap();
    let found = round(&mut client, id);
    let sources = found["sources"].as_array().unwrap();
    let tracker = sources.iter().find(|event| event["source"] == "proximity_file").unwrap();
    assert_eq!(tracker["round_number"], 2, "{tracker}");
    assert_eq!(tracker["round_num_source"], "gametime");
    assert_eq!(found["fields"]["engagements"]["value"].as_array().unwrap().len(), 2);
    let rows =
        "SELECT count(*) FROM combat_engagement WHERE round_number = 2 AND round_id IS NOT NULL";
    assert_eq!(number(folder.path(), rows), 2, "the rows went along");
    assert_eq!(number(folder.path(), "SELECT count(*) FROM combat_engagement"), 2);
    gate.stop();
}

#[test]
fn an_event_that_arrives_before_its_round_is_linked_later() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    let early = post_source_ok(&mut client, "stats_ready", &reference.ready());
    assert_eq!(early["state"], "link_failed");
    assert_eq!(early["link_status"], "unlinked");
    assert_eq!(early["reason_code"], "no_rows_for_map_round");
    assert_eq!(early["round_id"], Value::Null);
    assert!(rounds(&mut client).is_empty());
    let opened =
        post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    let id = opened["round_id"].as_str().unwrap();
    let found = round(&mut client, id);
    let steps: Vec<String> = found["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|step| step["event"] == early["receipt_id"])
        .map(|step| format!("{} {} {}", step["attempt"], step["from"], step["to"]))
        .map(|step| step.replace('"', ""))
        .collect();
    assert_eq!(
        steps,
        [
            "1 seen parsed",
            "1 parsed link_failed",
            "2 parsed linked_round_id",
            "2 linked_round_id enriched",
        ]
    );
    for step in found["history"].as_array().unwrap() {
        for word in ["source", "round_fingerprint", "link_status", "confidence"] {
            assert!(!step[word].is_null(), "{word}: {step}");
        }
        let is_failure = step["to"].as_str().unwrap().ends_with("_failed");
        assert!(!is_failure || step["reason_code"].is_string(), "{step}");
    }
    assert_eq!(rounds(&mut client).len(), 1, "no second round");
    let linked = "SELECT count(*) FROM lua_round_teams WHERE round_id IS NOT NULL";
    assert_eq!(number(folder.path(), linked), 1);
    gate.stop();
}

/// A normalised event of the script; it would end with a file name.
fn event(map: &str, end: i64) -> Value {
    json!({ "map_name": map, "round_number": 1, "round_end_unix": end })
}

#[test]
fn events_are_linked_up_to_forty_five_minutes_apart() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for (map, offset, link, reason) in [
        ("near", 45 * 60, "linked_round_id", "resolved"),
        ("apart", 45 * 60 + 1, "unlinked", "all_candidates_outside_window"),
    ] {
        let name = format!("2026-02-11-220205-{map}-round-1.txt");
        post_source_ok(&mut client, "filename_trigger", &json!({ "filename": name }));
        // 22:02:05 in Ljubljana.
        let reply = post_source_ok(&mut client, "stats_ready", &event(map, 1_770_843_725 + offset));
        assert_eq!((&reply["link_status"], &reply["reason_code"]), (&json!(link), &json!(reason)));
    }
    let open = client.get(&format!("{ROUNDS}/diagnostics"))["unlinked"].clone();
    assert_eq!(open[0]["diagnostics"]["best_diff_seconds"], 2701, "{open}");
    gate.stop();
}

#[test]
fn contradicting_events_are_both_stored_and_overwrite_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    post_source_ok(&mut client, "stats_ready", &reference.ready());
    // The same end, so the same hard key, but another start.
    let other = Round { start: reference.start + 7, ..reference.clone() };
    let reply = post_source_ok(&mut client, "stats_ready", &other.ready_with(1, 9));
    assert_eq!(reply["link_status"], "ambiguous", "{reply}");
    assert_eq!(reply["reason_code"], "hard_key_collision");
    assert_eq!(reply["state"], "link_failed");
    let [listed] = rounds(&mut client).try_into().expect("one round");
    let found = round(&mut client, listed["round_id"].as_str().unwrap());
    assert_eq!(found["fields"]["winner_team"]["value"], 2);
    assert_eq!(found["fields"]["round_start_unix"]["value"], reference.start);
    assert_eq!(number(folder.path(), "SELECT pause_count FROM lua_round_teams"), 1);
    // Another source with another clock is ambiguous too, and listed.
    let drifted = Round { start: reference.start + 1, ..reference };
    let reply =
        post_source_ok(&mut client, "gametime_fallback", &drifted.post("gametime_fallback"));
    assert_eq!(reply["link_status"], "ambiguous", "{reply}");
    let open = client.get(&format!("{ROUNDS}/diagnostics"))["unlinked"].clone();
    assert_eq!(open.as_array().unwrap().len(), 2, "{open}");
    gate.stop();
}

#[test]
fn a_known_file_name_changes_its_round_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let reference = Round::reference();
    let first =
        post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    let id = first["round_id"].as_str().unwrap().to_owned();
    let players = [("AAAA1111", "alpha", 99)];
    let other = file(reference.stats_with(2, &players));
    let reply = post_source_ok(&mut client, "filename_trigger", &other);
    assert_eq!((&reply["disposition"], &reply["round_id"]), (&json!("replay"), &first["round_id"]));
    assert_eq!(round(&mut client, &id)["fields"]["winner_team"]["value"], 1, "it stays");
    let reply = post_source_ok(&mut client, "filename_trigger?update=metadata", &other);
    assert_eq!(
        (&reply["disposition"], &reply["round_id"]),
        (&json!("updated"), &first["round_id"])
    );
    let found = round(&mut client, &id);
    assert_eq!(found["fields"]["winner_team"]["value"], 2, "it was requested");
    assert_eq!(found["fields"]["players"]["value"][0]["kills"], 10, "totals never change: {found}");
    assert_eq!(rounds(&mut client).len(), 1);
    gate.stop();
}

#[test]
fn rounds_are_listed_by_map_day_and_state_with_pagination() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for (map, time) in [("supply", "210000"), ("Supply", "230000"), ("adlernest", "220000")] {
        let name = format!("2026-02-11-{time}-{map}-round-1.txt");
        post_source_ok(&mut client, "filename_trigger", &json!({ "filename": name }));
    }
    let name = "2026-02-12-000500-supply-round-1.txt";
    post_source_ok(&mut client, "filename_trigger", &json!({ "filename": name }));
    let times = |client: &mut Client, query: &str| -> Vec<String> {
        let list = client.get(&format!("{ROUNDS}{query}"));
        let list = list["rounds"].as_array().unwrap();
        list.iter().map(|round| round["round_time"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(times(&mut client, ""), ["000500", "230000", "220000", "210000"]);
    assert_eq!(times(&mut client, "?map_name=SUPPLY"), ["000500", "230000", "210000"]);
    assert_eq!(times(&mut client, "?date=2026-02-11"), ["230000", "220000", "210000"]);
    assert_eq!(times(&mut client, "?map_name=supply&date=2026-02-12"), ["000500"]);
    assert_eq!(times(&mut client, "?state=linked_round_id").len(), 4, "a name alone links little");
    assert!(times(&mut client, "?state=enriched").is_empty());
    let first = client.get(&format!("{ROUNDS}?limit=3"));
    let next = first["next"].as_str().unwrap();
    assert_eq!(times(&mut client, &format!("?limit=3&after={next}")), ["210000"]);
    for wrong in ["?state=lost", "?after=5", "?limit=0", "?color=red"] {
        let answer = client.send("GET", &format!("{ROUNDS}{wrong}"), &[], b"").unwrap();
        assert_eq!(answer.status, 400, "{wrong}");
        assert_eq!(answer.json()["error"]["code"], "invalid_request");
    }
    gate.stop();
}

#[test]
fn an_unknown_source_and_an_unknown_round_are_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let answer = post_source(&mut client, "crystal_ball", &json!({}));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("not_found")));
    let answer = client.send("GET", &format!("{ROUNDS}/rnd-0"), &[], b"").unwrap();
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("not_found")));
    let answer = client.send("POST", ROUNDS, &[], b"{}").unwrap();
    assert_eq!(answer.status, 405);
    let answer = post_source(&mut client, "stats_ready?update=everything", &json!({}));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("invalid_request")));
    assert_eq!(number(folder.path(), "SELECT count(*) FROM record_event"), 0);
    gate.stop();
}

#[test]
fn an_orphan_stays_listed_until_a_relink_with_a_wider_window_links_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Launch::on(data).variable("ADMIT_DOORS__ROUNDS__MATCH_WINDOW_MINUTES", "5").start();
    let mut client = gate.client();
    post_source_ok(&mut client, "stats_ready", &event("testmap_v130", 1_737_752_480));
    let relink = |gate: &Gate, dry: bool| {
        let listen = gate.address().to_string();
        let place = ["--listen", &listen, "--data", data.to_str().unwrap(), "--json"];
        let mut words = vec!["rounds", "relink"];
        words.extend(place);
        words.extend(dry.then_some("--dry-run"));
        let (went_well, printed) = admit(&words);
        assert!(went_well, "{printed}");
        serde_json::from_str::<Value>(&printed).unwrap()
    };
    let printed = relink(&gate, false);
    assert_eq!((&printed["scanned"], &printed["updated"]), (&json!(1), &json!(0)));
    let name = "2026-02-11-220205-supply-round-1.txt";
    post_source_ok(&mut client, "filename_trigger", &json!({ "filename": name }));
    let late = post_source_ok(&mut client, "stats_ready", &event("supply", 1_770_843_725 + 600));
    assert_eq!(late["reason_code"], "all_candidates_outside_window");
    gate.stop();

    let gate = Gate::on(data);
    let mut client = gate.client();
    let before = row_counts(data);
    let printed = relink(&gate, true);
    assert_eq!((&printed["scanned"], &printed["updated"]), (&json!(2), &json!(1)), "{printed}");
    assert_eq!(row_counts(data), before, "a dry run writes nothing");
    let printed = relink(&gate, false);
    assert_eq!((&printed["scanned"], &printed["updated"]), (&json!(2), &json!(1)), "{printed}");
    let printed = relink(&gate, false);
    assert_eq!((&printed["scanned"], &printed["updated"]), (&json!(1), &json!(0)), "{printed}");
    let found = client.get(&format!("{ROUNDS}/diagnostics"));
    assert_eq!(found["counts"]["total"], 3);
    assert_eq!(found["counts"]["unlinked_total"], 1);
    assert_eq!(found["unlinked"][0]["map_name"], "testmap_v130");
    let sources = found["sources"].as_array().unwrap();
    let script = sources.iter().find(|source| source["source"] == "stats_ready").unwrap();
    assert_eq!((&script["total"], &script["last_24h"]), (&json!(2), &json!(2)));
    assert!(script["latest"].is_string());
    assert!(found["trends"]["events_by_day"].as_array().is_some_and(|days| days.len() == 1));
    let data = data.to_str().unwrap();
    let (went_well, printed) = admit(&["rounds", "unlinked", "--data", data]);
    assert!(
        went_well && printed.contains("testmap_v130") && !printed.contains("supply"),
        "{printed}"
    );
    gate.stop();
}

#[test]
fn an_unwritable_ledger_is_a_retryable_error_and_the_retry_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let held = LedgerLock::acquire(folder.path());
    let answer = post_source(&mut client, "stats_ready", &Round::reference().ready());
    let reply = answer.json();
    assert_eq!((answer.status, &reply["error"]["retryable"]), (503, &json!(true)), "{reply}");
    assert!(answer.header("retry-after").is_some());
    drop(held);
    wait_for("the gate heals", TIMEOUT, || gate.is_ready().then_some(()));
    let reply = post_source_ok(&mut client, "stats_ready", &Round::reference().ready());
    assert_eq!(reply["link_status"], "unlinked");
    assert_eq!(number(folder.path(), "SELECT count(*) FROM lua_round_teams"), 1);
    gate.stop();
}

#[test]
fn each_role_has_only_its_own_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let principals = r#"[{ name = "server", keys = ["server-key-long-enough"], doors = ["rounds"] },
        { name = "eyes", keys = ["eyes-key-long-enough"], role = "read" },
        { name = "ops", keys = ["ops-key-long-enough"], role = "operate" }]"#;
    let gate = Launch::on(folder.path()).variable("ADMIT_PRINCIPALS", principals).start();
    let status = |key: &str, method: &str, path: &str| {
        let mut client = gate.client().with("X-API-Key", key);
        client.send(method, path, &[], b"{}").unwrap().status
    };
    let (post, list) = (format!("{ROUNDS}/stats_ready"), ROUNDS.to_owned());
    let relink = format!("{ROUNDS}/relink");
    for (key, posted, listed, relinked) in [
        ("server-key-long-enough", 200, 403, 403),
        ("eyes-key-long-enough", 403, 200, 403),
        ("ops-key-long-enough", 403, 200, 200),
        ("nobodys-key-long-enough", 401, 401, 401),
    ] {
        let found =
            (status(key, "POST", &post), status(key, "GET", &list), status(key, "POST", &relink));
        assert_eq!(found, (posted, listed, relinked), "{key}");
    }
    gate.stop();
}

#[test]
fn rounds_are_the_same_after_a_kill_and_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let reference = Round::reference();
    for (n, source) in SOURCES.iter().enumerate() {
        let gate = Gate::on(data);
        let mut client = gate.client();
        for earlier in &SOURCES[..n] {
            let reply = post_source_ok(&mut client, earlier, &reference.post(earlier));
            assert_eq!(reply["disposition"], "replay", "{earlier}");
        }
        assert_eq!(
            post_source_ok(&mut client, source, &reference.post(source))["disposition"],
            "new"
        );
        gate.kill();
    }
    let gate = Gate::on(data);
    let before = row_counts(data);
    let mut client = gate.client();
    for source in SOURCES {
        post_source_ok(&mut client, source, &reference.post(source));
    }
    assert_eq!(row_counts(data), before);
    let [listed] = rounds(&mut client).try_into().expect("one round");
    let id = listed["round_id"].as_str().unwrap();
    let data_dir = data.to_str().unwrap();
    let (went_well, shown) = admit(&["rounds", "show", id, "--data", data_dir]);
    assert!(went_well && shown.contains("winner_team") && shown.contains("proximity_file"));
    let (went_well, list) = admit(&["rounds", "list", "--map", "supply", "--data", data_dir]);
    assert!(went_well && list.contains(id), "{list}");
    let (went_well, verified) = admit(&["verify", "--data", data_dir]);
    assert!(went_well, "{verified}");
    gate.stop();
    assert_intact(data);
}
