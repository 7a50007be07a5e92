//! The merge: who is believed about what, what a replay changes, and that nothing ever grows.

use serde_json::{Value, json};

use super::world::{
    Book, END, GAMETIME, GAMETIME_NAME, PROXIMITY, PROXIMITY_NAME, READY, SPAWNS, START, STATS,
    STATS_NAME, file, reference,
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

fn whole() -> Book {
    let mut book = Book::new();
    for (source, body) in reference() {
        let said = book.post(source, &body);
        assert_eq!(said.get("disposition"), "new", "{source}");
    }
    book
}

#[test]
fn five_artifacts_make_one_round_and_every_field_says_who_told_it() {
    let book = whole();
    let told = |name| book.field(name);
    assert_eq!(told("winner_team"), (json!(2), "stats_ready".to_owned()));
    assert_eq!(told("end_reason"), (json!("NORMAL"), "stats_ready".to_owned()));
    assert_eq!(told("round_start_unix"), (json!(START), "stats_ready".to_owned()));
    assert_eq!(told("total_pause_seconds"), (json!(30), "stats_ready".to_owned()));
    assert_eq!(told("lua_version"), (json!("1.6.0"), "stats_ready".to_owned()));
    assert_eq!(told("filename"), (json!(STATS_NAME), "filename_trigger".to_owned()));
    assert_eq!(told("server_ip"), (json!("192.0.2.10"), "gametime_fallback".to_owned()));
    assert_eq!(told("server_name").1, "filename_trigger");
    let (players, by) = told("players");
    assert_eq!((players.as_array().unwrap().len(), by.as_str()), (4, "filename_trigger"));
    assert_eq!(players[0]["kills"], 11);
    let (engagements, by) = told("engagements");
    assert_eq!((engagements.as_array().unwrap().len(), by.as_str()), (2, "proximity_file"));
    assert_eq!(told("spawn_stats").0.as_array().unwrap().len(), 4);
    let record = book.record_of_all();
    assert_eq!(record.state.word(), "enriched");
    assert_eq!(record.sources.len(), 5);
    let values: Vec<&str> = record.fingerprints.iter().map(|one| one.value.as_str()).collect();
    let published = ["supply|2|1770843143", "supply|2|1770843722", "supply|2|2026-02-11|220205"];
    assert_eq!(values, published);
}

#[test]
fn w15_the_game_knows_who_won_and_the_file_knows_who_killed() {
    let bodies = [
        ("filename_trigger", stats(json!({ "winner_team": 1, "kills": 10 }))),
        ("stats_ready", lua(json!({ "winner_team": 2, "kills": 99, "engagements": [1] }))),
    ];
    for order in [[0, 1, 0], [1, 0, 1], [0, 1, 1]] {
        let mut book = Book::new();
        for at in order {
            book.tell(bodies[at].0, &bodies[at].1);
        }
        assert_eq!(book.field("winner_team"), (json!(2), "stats_ready".to_owned()));
        assert_eq!(book.field("kills"), (json!(10), "filename_trigger".to_owned()));
        assert_eq!(book.record_of_all().field("engagements"), None, "nobody else tells of them");
    }
}

#[test]
fn what_only_one_source_knows_is_taken_from_it() {
    let mut book = Book::new();
    book.tell("filename_trigger", &stats(json!({ "winner_team": 1 })));
    assert_eq!(book.field("winner_team"), (json!(1), "filename_trigger".to_owned()));
    book.tell("gametime_fallback", &lua(json!({ "winner_team": 0, "weather": "rain" })));
    assert_eq!(book.field("winner_team"), (json!(0), "gametime_fallback".to_owned()));
    book.tell("stats_ready", &lua(json!({ "weather": "sun", "nothing": null })));
    assert_eq!(book.field("winner_team"), (json!(0), "gametime_fallback".to_owned()));
    assert_eq!(book.field("weather"), (json!("sun"), "stats_ready".to_owned()));
    assert_eq!(book.record_of_all().field("nothing"), None);
}

#[test]
fn w05_a_file_twice_is_one_round_and_a_changed_one_changes_nothing() {
    let mut book = Book::new();
    book.post("filename_trigger", &file(STATS_NAME, STATS));
    let before = book.summary();
    let again = book.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(again.get("disposition"), "replay");
    assert_eq!(book.summary(), before);
    let changed = STATS.replace("45 132 8", "45 132 80").replace("legacy3", "legacy6");
    let said = book.post("filename_trigger", &file(STATS_NAME, &changed));
    assert_eq!(said.get("disposition"), "replay", "kept, not applied");
    assert_eq!(book.events.len(), 2);
    assert_eq!(book.field("config_name").0, json!("legacy3"));
    assert_eq!(book.field("players").0[0]["kills"], 11);
}

#[test]
fn a_metadata_update_that_is_asked_for_changes_everything_but_totals() {
    let mut book = Book::new();
    book.post("filename_trigger", &file(STATS_NAME, STATS));
    let changed = STATS.replace("45 132 8", "45 132 80").replace("legacy3", "legacy6");
    let body = file(STATS_NAME, &changed);
    book.post("filename_trigger", &body);
    let said = book.post_at("filename_trigger", "update=metadata", &body, book.now + 1);
    assert_eq!(said.get("disposition"), "updated");
    assert_eq!(book.field("config_name").0, json!("legacy6"));
    assert_eq!(book.field("players").0[0]["kills"], 11);
}

#[test]
fn the_name_of_a_file_may_come_before_the_file() {
    let mut book = Book::new();
    let message = json!({ "username": "ET:Legacy Stats", "content": format!("`{STATS_NAME}`") });
    let named = book.tell("filename_trigger", &message);
    assert_eq!(named.get("state"), "linked_round_id", "there is nothing to enrich it with yet");
    let whole = book.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(whole.get("round_id"), named.get("round_id"));
    assert_eq!((whole.get("disposition"), whole.get("state")), ("updated", "enriched"));
    assert_eq!(book.field("players").0.as_array().unwrap().len(), 4);
}

#[test]
fn w07_a_message_again_with_other_pauses_is_one_row_with_the_new_ones() {
    let mut book = Book::new();
    book.post("filename_trigger", &file(STATS_NAME, STATS));
    book.post("stats_ready", READY);
    let captured = book.field("captured_at").0;
    let changed = READY.replace("1 (30 sec)", "2 (75 sec)").replace("\"Allies\"", "\"Axis\"");
    let said = book.post("stats_ready", &changed);
    assert_eq!(said.get("disposition"), "updated");
    assert_eq!(book.field("total_pause_seconds").0, json!(75));
    assert_eq!(book.field("pause_count").0, json!(2));
    assert_eq!(book.field("winner_team").0, json!(1));
    assert!(book.field("captured_at").0.as_str() > captured.as_str());
    let of_lua = book.events.iter().filter(|event| event.source == "stats_ready").count();
    assert_eq!(of_lua, 2, "both are kept");
    // The older version once more is a late copy and changes nothing back.
    assert_eq!(book.post("stats_ready", READY).get("disposition"), "replay");
    assert_eq!(book.field("total_pause_seconds").0, json!(75));
}

#[test]
fn a_start_is_filled_where_it_was_missing_and_never_replaced() {
    let mut book = Book::new();
    book.tell("filename_trigger", &stats(json!({})));
    let body = |start: Value| {
        json!({
            "map_name": "supply", "round_number": 2, "round_start_unix": start,
            "round_end_unix": END,
        })
    };
    book.tell("stats_ready", &body(json!(0)));
    assert_eq!(book.record_of_all().field("round_start_unix"), None);
    book.tell("stats_ready", &body(json!(START)));
    assert_eq!(book.field("round_start_unix").0, json!(START));
    let other = book.tell("stats_ready", &body(json!(START + 60)));
    assert_eq!(other.get("reason_code"), "hard_key_collision");
    assert_eq!(book.field("round_start_unix").0, json!(START));
}

#[test]
fn w09_message_and_file_of_the_game_are_one_row_with_each_player_once() {
    let gametime = file(GAMETIME_NAME, GAMETIME);
    for order in [["stats_ready", "gametime_fallback"], ["gametime_fallback", "stats_ready"]] {
        let mut book = Book::new();
        book.post("filename_trigger", &file(STATS_NAME, STATS));
        for source in order {
            let body = if source == "stats_ready" { READY } else { gametime.as_str() };
            assert_eq!(book.post(source, body).get("link_status"), "linked_round_id");
        }
        assert_eq!(book.events[1].hard_key, book.events[2].hard_key);
        assert_eq!(book.field("spawn_stats").0.as_array().unwrap().len(), 4);
        assert_eq!(book.field("winner_team").1, "stats_ready");
    }
}

#[test]
fn w10_spawns_again_rename_a_player_and_leave_out_who_has_no_guid() {
    let mut book = Book::new();
    book.post("filename_trigger", &file(STATS_NAME, STATS));
    book.post("lua_spawn_stats", SPAWNS);
    let mut changed: Value = serde_json::from_str(SPAWNS).unwrap();
    let rows = changed["spawn_stats"].as_array_mut().unwrap();
    rows.truncate(2);
    rows[0]["name"] = json!("vid2");
    rows[1]["guid"] = json!("");
    let said = book.tell("lua_spawn_stats", &changed);
    assert_eq!(said.get("disposition"), "updated");
    let (rows, by) = book.field("spawn_stats");
    assert_eq!((rows.as_array().unwrap().len(), by.as_str()), (4, "lua_spawn_stats"));
    assert_eq!(rows[0]["name"], "vid2");
    assert_eq!(rows[1]["name"], "SuperBoyy");
    let event = book.events.last().unwrap();
    assert_eq!(event.parse.status.word(), "partial");
    assert!(event.parse.notes[0].contains("no guid"), "{:?}", event.parse.notes);
}

#[test]
fn w11_a_proximity_file_again_grows_neither_rows_nor_counters() {
    let mut book = whole();
    let before = book.summary();
    for _ in 0..3 {
        let said = book.post("proximity_file", &file(PROXIMITY_NAME, PROXIMITY));
        assert_eq!(said.get("disposition"), "replay");
    }
    assert_eq!(book.summary(), before);
    // The same file with another byte is a revision: its numbers replace, they are not added.
    let said = book.post("proximity_file", &file(PROXIMITY_NAME, &(PROXIMITY.to_owned() + "\n")));
    assert_eq!(said.get("disposition"), "updated");
    assert_eq!(book.field("kill_heatmap").0.as_array().unwrap().len(), 2);
    assert_eq!(book.field("kill_heatmap").0[1]["axis_kills"], 2);
}

#[test]
fn everything_again_and_again_grows_nothing() {
    let mut book = whole();
    let (before, events, steps) = (book.summary(), book.events.len(), book.history.len());
    for _ in 0..2 {
        for (source, body) in reference() {
            assert_eq!(book.post(source, &body).get("disposition"), "replay");
        }
    }
    assert_eq!(book.summary(), before);
    assert_eq!((book.events.len(), book.history.len()), (events, steps));
}
