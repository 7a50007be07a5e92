//! Merging: source priority per field, effects of a replay, and no growth on replays.

use serde_json::{Value, json};

use super::world::{
    END, GAMETIME, GAMETIME_NAME, PROXIMITY, PROXIMITY_NAME, READY, RoundsLedger, SPAWNS, START,
    STATS, STATS_NAME, file, reference,
};

fn stats(details: Value) -> Value {
    json!({
        "map_name": "supply", "round_number": 2, "round_date": "2026-02-11",
        "round_time": "220205", "details": details,
    })
}

fn lua(details: Value) -> Value {
    json!({
        "map_name": "supply", "round_number": 2, "round_start_unix": START,
        "round_end_unix": END, "details": details,
    })
}

fn whole() -> RoundsLedger {
    let mut ledger = RoundsLedger::new();
    for (source, body) in reference() {
        let result = ledger.post(source, &body);
        assert_eq!(result.get("disposition"), "new", "{source}");
    }
    ledger
}

#[test]
fn five_artifacts_make_one_round_and_every_field_names_its_source() {
    let ledger = whole();
    let field = |name| ledger.field(name);
    assert_eq!(field("winner_team"), (json!(2), "stats_ready".to_owned()));
    assert_eq!(field("end_reason"), (json!("NORMAL"), "stats_ready".to_owned()));
    assert_eq!(field("round_start_unix"), (json!(START), "stats_ready".to_owned()));
    assert_eq!(field("total_pause_seconds"), (json!(30), "stats_ready".to_owned()));
    assert_eq!(field("lua_version"), (json!("1.6.0"), "stats_ready".to_owned()));
    assert_eq!(field("filename"), (json!(STATS_NAME), "filename_trigger".to_owned()));
    assert_eq!(field("server_ip"), (json!("192.0.2.10"), "gametime_fallback".to_owned()));
    assert_eq!(field("server_name").1, "filename_trigger");
    let (players, by) = field("players");
    assert_eq!((players.as_array().unwrap().len(), by.as_str()), (4, "filename_trigger"));
    assert_eq!(players[0]["kills"], 11);
    let (engagements, by) = field("engagements");
    assert_eq!((engagements.as_array().unwrap().len(), by.as_str()), (2, "proximity_file"));
    assert_eq!(field("spawn_stats").0.as_array().unwrap().len(), 4);
    let record = ledger.record_of_all();
    assert_eq!(record.state.word(), "enriched");
    assert_eq!(record.sources.len(), 5);
    let values: Vec<&str> = record.fingerprints.iter().map(|one| one.value.as_str()).collect();
    let published = ["supply|2|1770843143", "supply|2|1770843722", "supply|2|2026-02-11|220205"];
    assert_eq!(values, published);
}

#[test]
fn w15_the_winner_comes_from_the_game_and_the_kills_from_the_file() {
    let bodies = [
        ("filename_trigger", stats(json!({ "winner_team": 1, "kills": 10 }))),
        ("stats_ready", lua(json!({ "winner_team": 2, "kills": 99, "engagements": [1] }))),
    ];
    for order in [[0, 1, 0], [1, 0, 1], [0, 1, 1]] {
        let mut ledger = RoundsLedger::new();
        for at in order {
            ledger.deliver(bodies[at].0, &bodies[at].1);
        }
        assert_eq!(ledger.field("winner_team"), (json!(2), "stats_ready".to_owned()));
        assert_eq!(ledger.field("kills"), (json!(10), "filename_trigger".to_owned()));
        assert_eq!(ledger.record_of_all().field("engagements"), None, "no other source has them");
    }
}

#[test]
fn a_field_known_to_one_source_is_taken_from_it() {
    let mut ledger = RoundsLedger::new();
    ledger.deliver("filename_trigger", &stats(json!({ "winner_team": 1 })));
    assert_eq!(ledger.field("winner_team"), (json!(1), "filename_trigger".to_owned()));
    ledger.deliver("gametime_fallback", &lua(json!({ "winner_team": 0, "weather": "rain" })));
    assert_eq!(ledger.field("winner_team"), (json!(0), "gametime_fallback".to_owned()));
    ledger.deliver("stats_ready", &lua(json!({ "weather": "sun", "nothing": null })));
    assert_eq!(ledger.field("winner_team"), (json!(0), "gametime_fallback".to_owned()));
    assert_eq!(ledger.field("weather"), (json!("sun"), "stats_ready".to_owned()));
    assert_eq!(ledger.record_of_all().field("nothing"), None);
}

#[test]
fn w05_a_file_twice_is_one_round_and_a_changed_one_changes_nothing() {
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    let before = ledger.summary();
    let again = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(again.get("disposition"), "replay");
    assert_eq!(ledger.summary(), before);
    let changed = STATS.replace("45 132 8", "45 132 80").replace("legacy3", "legacy6");
    let result = ledger.post("filename_trigger", &file(STATS_NAME, &changed));
    assert_eq!(result.get("disposition"), "replay", "kept, not applied");
    assert_eq!(ledger.events.len(), 2);
    assert_eq!(ledger.field("config_name").0, json!("legacy3"));
    assert_eq!(ledger.field("players").0[0]["kills"], 11);
}

#[test]
fn a_requested_metadata_update_changes_everything_but_totals() {
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    let changed = STATS.replace("45 132 8", "45 132 80").replace("legacy3", "legacy6");
    let body = file(STATS_NAME, &changed);
    ledger.post("filename_trigger", &body);
    let result = ledger.post_at("filename_trigger", "update=metadata", &body, ledger.now + 1);
    assert_eq!(result.get("disposition"), "updated");
    assert_eq!(ledger.field("config_name").0, json!("legacy6"));
    assert_eq!(ledger.field("players").0[0]["kills"], 11);
}

#[test]
fn the_name_of_a_file_may_come_before_the_file() {
    let mut ledger = RoundsLedger::new();
    let message = json!({ "username": "ET:Legacy Stats", "content": format!("`{STATS_NAME}`") });
    let named = ledger.deliver("filename_trigger", &message);
    assert_eq!(named.get("state"), "linked_round_id", "there is nothing to enrich it with yet");
    let whole = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(whole.get("round_id"), named.get("round_id"));
    assert_eq!((whole.get("disposition"), whole.get("state")), ("updated", "enriched"));
    assert_eq!(ledger.field("players").0.as_array().unwrap().len(), 4);
}

#[test]
fn w07_a_message_again_with_other_pauses_is_one_row_with_the_new_ones() {
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    ledger.post("stats_ready", READY);
    let captured = ledger.field("captured_at").0;
    let changed = READY.replace("1 (30 sec)", "2 (75 sec)").replace("\"Allies\"", "\"Axis\"");
    let result = ledger.post("stats_ready", &changed);
    assert_eq!(result.get("disposition"), "updated");
    assert_eq!(ledger.field("total_pause_seconds").0, json!(75));
    assert_eq!(ledger.field("pause_count").0, json!(2));
    assert_eq!(ledger.field("winner_team").0, json!(1));
    assert!(ledger.field("captured_at").0.as_str() > captured.as_str());
    let of_lua = ledger.events.iter().filter(|event| event.source == "stats_ready").count();
    assert_eq!(of_lua, 2, "both are kept");
    // A replay of the older version is a late copy and reverts nothing.
    assert_eq!(ledger.post("stats_ready", READY).get("disposition"), "replay");
    assert_eq!(ledger.field("total_pause_seconds").0, json!(75));
}

#[test]
fn a_start_is_filled_where_it_was_missing_and_never_replaced() {
    let mut ledger = RoundsLedger::new();
    ledger.deliver("filename_trigger", &stats(json!({})));
    let body = |start: Value| {
        json!({
            "map_name": "supply", "round_number": 2, "round_start_unix": start,
            "round_end_unix": END,
        })
    };
    ledger.deliver("stats_ready", &body(json!(0)));
    assert_eq!(ledger.record_of_all().field("round_start_unix"), None);
    ledger.deliver("stats_ready", &body(json!(START)));
    assert_eq!(ledger.field("round_start_unix").0, json!(START));
    let other = ledger.deliver("stats_ready", &body(json!(START + 60)));
    assert_eq!(other.get("reason_code"), "hard_key_collision");
    assert_eq!(ledger.field("round_start_unix").0, json!(START));
}

#[test]
fn w09_message_and_file_of_the_game_are_one_row_with_each_player_once() {
    let gametime = file(GAMETIME_NAME, GAMETIME);
    for order in [["stats_ready", "gametime_fallback"], ["gametime_fallback", "stats_ready"]] {
        let mut ledger = RoundsLedger::new();
        ledger.post("filename_trigger", &file(STATS_NAME, STATS));
        for source in order {
            let body = if source == "stats_ready" { READY } else { gametime.as_str() };
            assert_eq!(ledger.post(source, body).get("link_status"), "linked_round_id");
        }
        assert_eq!(ledger.events[1].hard_key, ledger.events[2].hard_key);
        assert_eq!(ledger.field("spawn_stats").0.as_array().unwrap().len(), 4);
        assert_eq!(ledger.field("winner_team").1, "stats_ready");
    }
}

#[test]
fn w10_replayed_spawns_rename_a_player_and_skip_rows_without_a_guid() {
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    ledger.post("lua_spawn_stats", SPAWNS);
    let mut changed: Value = serde_json::from_str(SPAWNS).unwrap();
    let rows = changed["spawn_stats"].as_array_mut().unwrap();
    rows.truncate(2);
    rows[0]["name"] = json!("vid2");
    rows[1]["guid"] = json!("");
    let result = ledger.deliver("lua_spawn_stats", &changed);
    assert_eq!(result.get("disposition"), "updated");
    let (rows, by) = ledger.field("spawn_stats");
    assert_eq!((rows.as_array().unwrap().len(), by.as_str()), (4, "lua_spawn_stats"));
    assert_eq!(rows[0]["name"], "vid2");
    assert_eq!(rows[1]["name"], "SuperBoyy");
    let event = ledger.events.last().unwrap();
    assert_eq!(event.parse.status.word(), "partial");
    assert!(event.parse.notes[0].contains("no guid"), "{:?}", event.parse.notes);
}

#[test]
fn w11_a_replayed_proximity_file_adds_neither_rows_nor_counters() {
    let mut ledger = whole();
    let before = ledger.summary();
    for _ in 0..3 {
        let result = ledger.post("proximity_file", &file(PROXIMITY_NAME, PROXIMITY));
        assert_eq!(result.get("disposition"), "replay");
    }
    assert_eq!(ledger.summary(), before);
    // The same file with one more byte is a revision: its numbers replace the old ones, they are
    // not added.
    let result =
        ledger.post("proximity_file", &file(PROXIMITY_NAME, &(PROXIMITY.to_owned() + "\n")));
    assert_eq!(result.get("disposition"), "updated");
    assert_eq!(ledger.field("kill_heatmap").0.as_array().unwrap().len(), 2);
    assert_eq!(ledger.field("kill_heatmap").0[1]["axis_kills"], 2);
}

#[test]
fn replaying_everything_adds_nothing() {
    let mut ledger = whole();
    let (before, events, steps) = (ledger.summary(), ledger.events.len(), ledger.history.len());
    for _ in 0..2 {
        for (source, body) in reference() {
            assert_eq!(ledger.post(source, &body).get("disposition"), "replay");
        }
    }
    assert_eq!(ledger.summary(), before);
    assert_eq!((ledger.events.len(), ledger.history.len()), (events, steps));
}
