//! Query tables: every event has its rows, with readable names.

use serde_json::{Value, json};

use crate::support::gate::Gate;
use crate::support::rounds::{ROUNDS, Round, file, number, post_source_ok, round, row_counts};
use crate::support::sql;

/// The weapons of the mask in a stats file, in bit order.
const WEAPONS: &str = "WS_KNIFE WS_KNIFE_KBAR WS_LUGER WS_COLT WS_MP40 WS_THOMPSON WS_STEN WS_FG42 \
    WS_PANZERFAUST WS_BAZOOKA WS_FLAMETHROWER WS_GRENADE WS_MORTAR WS_MORTAR2 WS_DYNAMITE WS_AIRSTRIKE \
    WS_ARTILLERY WS_SATCHEL WS_GRENADELAUNCHER WS_LANDMINE WS_MG42 WS_BROWNING WS_CARBINE WS_KAR98 \
    WS_GARAND WS_K43 WS_MP34 WS_SYRINGE";

/// The tables of a proximity file, with the number of rows that [`Round::proximity`] has for each.
const PROXIMITY: [(&str, i64); 5] = [
    ("combat_engagement", 3),
    ("player_track", 2),
    ("proximity_objective_focus", 1),
    ("proximity_kill_heatmap", 1),
    ("proximity_movement_heatmap", 1),
];

fn count(data: &std::path::Path, from: &str) -> i64 {
    number(data, &format!("SELECT count(*) FROM {from}"))
}

#[test]
fn files_of_two_maps_with_the_same_start_second_keep_all_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let one = Round::reference();
    let two = Round { map: "goldrush".to_owned(), ..one.clone() };
    for round in [&one, &two] {
        post_source_ok(&mut client, "filename_trigger", &round.post("filename_trigger"));
        let reply = post_source_ok(&mut client, "proximity_file", &round.post("proximity_file"));
        assert_eq!(reply["state"], "enriched", "{reply}");
    }
    for (table, rows) in PROXIMITY {
        for map in [&one.map, &two.map] {
            assert_eq!(count(data, &format!("{table} WHERE map_name = '{map}'")), rows, "{table}");
        }
    }
    let before = row_counts(data);
    post_source_ok(&mut client, "proximity_file", &two.post("proximity_file"));
    assert_eq!(row_counts(data), before);
    gate.stop();
}

#[test]
fn an_index_that_blocks_one_table_does_not_affect_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    Gate::on(data).stop();
    sql::execute(
        data,
        "CREATE UNIQUE INDEX legacy_track ON player_track \
         (session_date, round_number, player_guid, spawn_time_ms)",
    );
    sql::execute(
        data,
        "CREATE UNIQUE INDEX legacy_focus ON proximity_objective_focus \
         (session_date, round_number, player_guid)",
    );
    let gate = Gate::on(data);
    let mut client = gate.client();
    let one = Round::reference();
    let two = Round { start: one.start + 3_600, end: one.end + 3_600, ..one.clone() };
    post_source_ok(&mut client, "proximity_file", &one.post("proximity_file"));
    post_source_ok(&mut client, "proximity_file", &two.post("proximity_file"));
    for (table, rows) in PROXIMITY {
        let is_drifted = ["player_track", "proximity_objective_focus"].contains(&table);
        assert_eq!(count(data, table), if is_drifted { rows } else { 2 * rows }, "{table}");
    }
    let named = "record_event WHERE drift LIKE '%track%' AND drift LIKE '%focus%'";
    assert_eq!(count(data, named), 1, "each table that lacks rows is named");
    gate.stop();
}

#[test]
fn rows_of_a_contradicting_event_are_stored_without_a_round() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let reference = Round::reference();
    post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    post_source_ok(&mut client, "stats_ready", &reference.ready());
    // The tracker's clock is a second ahead: another start, the same end.
    let ahead = Round { start: reference.start + 1, ..reference.clone() };
    let reply = post_source_ok(&mut client, "proximity_file", &file(ahead.proximity(3)));
    assert_eq!(reply["reason_code"], "fingerprint_mismatch", "{reply}");
    for (table, rows) in PROXIMITY {
        let own = format!("round_start_unix = {} AND round_id IS NULL", ahead.start);
        assert_eq!(count(data, table), rows, "{table}");
        assert_eq!(count(data, &format!("{table} WHERE {own}")), rows, "{table}");
    }
    let before = row_counts(data);
    post_source_ok(&mut client, "proximity_file", &file(ahead.proximity(3)));
    assert_eq!(row_counts(data), before, "a copy adds nothing");
    // The same hard key, another start: it has no key of its own, so it has no rows.
    let other = Round { start: reference.start + 7, ..reference.clone() };
    let reply = post_source_ok(&mut client, "stats_ready", &other.ready_with(1, 9));
    assert_eq!(reply["reason_code"], "hard_key_collision");
    assert_eq!(count(data, "lua_round_teams"), 1);
    assert_eq!(number(data, "SELECT pause_count FROM lua_round_teams"), 1);
    gate.stop();
}

#[test]
fn rows_missing_from_an_older_version_are_added_by_a_relink() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let reference = Round::reference();
    post_source_ok(&mut client, "filename_trigger", &reference.post("filename_trigger"));
    post_source_ok(&mut client, "stats_ready", &reference.ready());
    let ahead = Round { start: reference.start + 1, ..reference };
    post_source_ok(&mut client, "proximity_file", &file(ahead.proximity(3)));
    gate.stop();
    sql::execute(data, "DELETE FROM combat_engagement");
    let gate = Gate::on(data);
    let path = format!("{ROUNDS}/relink");
    let answer = gate.client().send("POST", &path, &[], b"").unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(count(data, "combat_engagement WHERE round_id IS NULL"), 3);
    gate.stop();
}

#[test]
fn weapons_have_names_and_player_names_have_no_colour_codes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let reference = Round::reference();
    let (name, _) = reference.stats();
    let names: Vec<&str> = WEAPONS.split_whitespace().collect();
    // All weapons, and an unknown bit.
    let numbers: Vec<String> = (0..29).map(|bit| format!("{bit} 100 1 0 0")).collect();
    let mask = (1_u32 << 29) - 1;
    let text = format!(
        "server\\supply\\legacy3\\1\\1\\1\\20:00\\9:39\nAAAA1111\\^1Al^xpha\\1\\1\\{mask} {}\t1\t2\n",
        numbers.join(" ")
    );
    let body = json!({ "filename": name, "content": text });
    let reply = post_source_ok(&mut client, "filename_trigger", &body);
    let found = round(&mut client, reply["round_id"].as_str().unwrap());
    let player = &found["fields"]["players"]["value"][0];
    assert_eq!((&player["name"], &player["raw_name"]), (&json!("Alpha"), &json!("^1Al^xpha")));
    let weapons = player["weapons"].as_array().unwrap();
    assert_eq!(weapons.len(), 29);
    for (bit, name) in names.iter().enumerate() {
        let weapon = &weapons[bit];
        assert_eq!((&weapon["weapon"], &weapon["name"]), (&json!(bit), &json!(name)));
        let shown =
            format!("weapon_comprehensive_stats WHERE weapon_name = '{name}' AND hits = {bit}");
        assert_eq!(count(data, &shown), 1, "{name}");
    }
    assert_eq!(weapons[28]["name"], "28");
    assert_eq!(count(data, "weapon_comprehensive_stats WHERE weapon_name = '28'"), 1);
    let shown = "player_comprehensive_stats WHERE player_name = 'Alpha' AND raw_name = '^1Al^xpha'";
    assert_eq!(count(data, shown), 1);

    let spawns = [("AAAA1111", "^1Al^xpha", 5)];
    post_source_ok(&mut client, "gametime_fallback", &file(reference.gametime_with(&spawns)));
    assert_eq!(count(data, "lua_spawn_stats WHERE player_name = 'Alpha'"), 1);
    let (name, tracker) = reference.proximity(1);
    let tracker = tracker.replace("AAAA1111;alpha;axis;soldier", "AAAA1111;^1Al^xpha;axis;soldier");
    post_source_ok(&mut client, "proximity_file", &file((name, tracker)));
    assert_eq!(count(data, "player_track WHERE player_name = 'Alpha'"), 1);
    gate.stop();
}

/// The stopwatch fields of a round, with their sources.
fn stopwatch(found: &Value) -> [(Value, Value); 3] {
    ["round_stopwatch_state", "time_to_beat_seconds", "next_timelimit_minutes"].map(|name| {
        let field = &found["fields"][name];
        (field["value"].clone(), field["source"].clone())
    })
}

#[test]
fn the_stopwatch_fields_come_from_the_stats_file_until_the_script_sends_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let from_file = |value: Value| (value, json!("filename_trigger"));
    let nothing = || (Value::Null, Value::Null);
    // A first half that took 9:39 of 20:00, a second half, and one in which the defenders held.
    let first = Round { number: 1, ..Round::reference() };
    let (_, content) = first.stats();
    let cases = [
        (first.clone(), content.clone(), "TIME_SET", Some((579, 10))),
        (first.later(1), content.replace("9:39", "19:31"), "FULL_HOLD", None),
        (Round { number: 2, ..first.later(2) }, content.clone(), "TIME_SET", None),
    ];
    for (played, content, state, to_beat) in cases {
        let body = json!({ "filename": played.stats().0, "content": content });
        let reply = post_source_ok(&mut client, "filename_trigger", &body);
        let found = round(&mut client, reply["round_id"].as_str().unwrap());
        let (seconds, minutes) = match to_beat {
            Some((seconds, minutes)) => (from_file(json!(seconds)), from_file(json!(minutes))),
            None => (nothing(), nothing()),
        };
        assert_eq!(stopwatch(&found), [from_file(json!(state)), seconds, minutes], "{state}");
        assert_eq!(found["fields"]["score_confidence"]["value"], "verified_header");
    }
    // The script reports a hold, which contradicts the time to beat of the file.
    let mut held = first.ready();
    for field in held["embeds"][0]["fields"].as_array_mut().unwrap() {
        if field["name"] == "Lua_Playtime" {
            field["value"] = json!("1200 sec");
        }
    }
    let reply = post_source_ok(&mut client, "stats_ready", &held);
    let found = round(&mut client, reply["round_id"].as_str().unwrap());
    let from_script = (json!("FULL_HOLD"), json!("stats_ready"));
    assert_eq!(stopwatch(&found), [from_script, nothing(), nothing()]);
    // A correction by the script replaces all fields.
    let reply = post_source_ok(&mut client, "stats_ready", &first.ready());
    let found = round(&mut client, reply["round_id"].as_str().unwrap());
    assert_eq!(stopwatch(&found)[1], (json!(579), json!("stats_ready")));
    assert_eq!(post_source_ok(&mut client, "stats_ready", &held)["disposition"], "replay");
    gate.stop();
}

#[test]
fn the_diagnostics_match_a_direct_count() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let mut client = gate.client();
    let (one, two) = (Round::reference(), Round::reference().later(1));
    for source in ["filename_trigger", "stats_ready", "gametime_fallback", "proximity_file"] {
        post_source_ok(&mut client, source, &one.post(source));
    }
    for source in ["stats_ready", "gametime_fallback", "proximity_file"] {
        post_source_ok(&mut client, source, &two.post(source));
    }
    let found = client.get(&format!("{ROUNDS}/diagnostics"));
    let counts = &found["counts"];
    assert_eq!(counts["total"], count(data, "record_event"));
    let unlinked = count(data, "record_event WHERE link_status <> 'linked_round_id'");
    assert_eq!((&counts["unlinked_total"], unlinked), (&json!(unlinked), 3));
    assert_eq!(counts["rounds"], count(data, "rounds"));
    let rows = counts["rows"].as_object().unwrap();
    assert_eq!(rows.len(), 7, "{rows:?}");
    for (table, reply) in rows {
        let open = count(data, &format!("{table} WHERE round_id IS NULL"));
        let direct = json!({ "total": count(data, table), "unlinked": open });
        assert_eq!(*reply, direct, "{table}");
        assert!(open > 0, "{table}");
    }
    // Message and file of a round share one row.
    let [day] = found["trends"]["lua_rows_by_day"].as_array().unwrap().as_slice() else {
        panic!("{found}")
    };
    assert_eq!((&day["lua_rows"], &day["unlinked_rows"]), (&json!(2), &json!(1)), "{day}");
    gate.stop();
}
