//! Linking: windows, clocks, midnight, late arrivals, and events that stay unlinked.

use admit_contracts::rounds::Settings;
use serde_json::{Value, json};

use super::world::{
    END, PROXIMITY, PROXIMITY_NAME, READY, RoundsLedger, START, STATS, STATS_NAME, file,
};

fn stats(map: &str, number: i64, date: &str, time: &str) -> Value {
    json!({ "map_name": map, "round_number": number, "round_date": date, "round_time": time })
}

fn lua(map: &str, number: i64, end: i64) -> Value {
    json!({ "map_name": map, "round_number": number, "round_end_unix": end })
}

/// Seconds since the epoch of 22:02:05 on the evening of the reference round.
const FILE_TIME: i64 = 1_770_843_725;

#[test]
fn w16_an_event_before_its_file_is_linked_when_the_file_arrives() {
    let mut ledger = RoundsLedger::new();
    let early = ledger.post("stats_ready", READY);
    assert_eq!(early.get("link_status"), "unlinked");
    assert_eq!(early.get("reason_code"), "no_rows_for_map_round");
    assert_eq!(early.get("state"), "link_failed");
    let stats = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(ledger.link(&early).record_id.as_deref(), Some(stats.get("round_id")));
    assert_eq!(ledger.link(&early).confidence.word(), "medium");
    assert_eq!(ledger.link(&early).diagnostics.best_diff_seconds, Some(3));
    assert_eq!(ledger.entities.len(), 1);
    let again = ledger.post("stats_ready", READY);
    assert_eq!(again.get("disposition"), "replay");
    assert_eq!(again.get("link_status"), "linked_round_id");
    let steps: Vec<(u32, &str, &str)> = ledger
        .history
        .iter()
        .filter(|step| step.seq == early.seq)
        .map(|step| (step.attempt, step.from.word(), step.to.word()))
        .collect();
    assert_eq!(
        steps,
        [
            (1, "seen", "parsed"),
            (1, "parsed", "link_failed"),
            (2, "parsed", "linked_round_id"),
            (2, "linked_round_id", "enriched"),
        ]
    );
}

#[test]
fn another_round_of_the_map_leaves_existing_links_unchanged() {
    let mut ledger = RoundsLedger::new();
    ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let result = ledger.deliver("stats_ready", &lua("supply", 2, FILE_TIME - 3));
    let before = ledger.link(&result).clone();
    for time in ["235900", "195900", "210500"] {
        ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", time));
        assert_eq!(*ledger.link(&result), before, "{time}");
    }
}

#[test]
fn w17_the_window_is_inclusive() {
    for (diff, linked) in [(2700, true), (2701, false), (-2700, true), (-2701, false)] {
        let mut ledger = RoundsLedger::new();
        ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
        let result = ledger.deliver("stats_ready", &lua("supply", 2, FILE_TIME + diff));
        let link = ledger.link(&result);
        assert_eq!(link.record_id.is_some(), linked, "{diff}");
        assert_eq!(link.diagnostics.best_diff_seconds, Some(diff.unsigned_abs()));
        if !linked {
            assert_eq!(link.reason, "all_candidates_outside_window");
        }
    }
}

#[test]
fn the_published_vectors_of_the_linker_hold() {
    let mut ledger = RoundsLedger::new();
    ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let near = ledger.deliver("gametime_fallback", &stats("supply", 2, "2026-02-11", "220206"));
    assert_eq!(near.get("reason_code"), "resolved");
    assert_eq!(ledger.link(&near).diagnostics.best_diff_seconds, Some(1));
    let settings = Settings { match_window_minutes: 5, ..Settings::default() };
    let mut ledger = RoundsLedger::with(settings);
    ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "230000"));
    let outside = ledger.deliver("gametime_fallback", &stats("supply", 2, "2026-02-11", "220205"));
    assert_eq!(outside.get("reason_code"), "all_candidates_outside_window");
    assert_eq!(ledger.link(&outside).diagnostics.best_diff_seconds, Some(3475));
    assert_eq!(ledger.link(&outside).diagnostics.candidates, 1);
}

#[test]
fn w19_an_event_without_a_time_or_a_name_is_stored_with_the_reason() {
    let mut ledger = RoundsLedger::new();
    let untimed = ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "2202"));
    assert_eq!(untimed.get("link_status"), "linked_round_id", "it opens its round all the same");
    let result = ledger.deliver("stats_ready", &lua("supply", 2, END));
    assert_eq!(result.get("reason_code"), "time_parse_failed");
    assert_eq!(ledger.link(&result).diagnostics.candidates, 1);
    assert_eq!(ledger.link(&result).diagnostics.timed_candidates, 0);
    for body in [lua("supply", 0, END), lua("  ", 2, END + 1)] {
        let result = ledger.deliver("stats_ready", &body);
        assert_eq!(
            (result.get("state"), result.get("reason_code")),
            ("link_failed", "invalid_input")
        );
    }
    assert_eq!(ledger.events.len(), 4);
}

#[test]
fn w23_an_event_without_an_end_is_kept_and_seen() {
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    let timeless =
        json!({ "map_name": "supply", "round_number": 2, "details": { "winner_team": 1 } });
    let result = ledger.deliver("stats_ready", &timeless);
    assert_eq!(result.get("link_status"), "unlinked");
    assert_eq!(result.get("reason_code"), "time_parse_failed");
    let mut started = lua("supply", 2, 0);
    started["round_start_unix"] = json!(START);
    let result = ledger.deliver("stats_ready", &started);
    assert_eq!(result.get("link_status"), "linked_round_id");
}

#[test]
fn w06_the_same_map_and_round_at_another_time_is_another_round() {
    let mut ledger = RoundsLedger::new();
    let one = ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let two = ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "224205"));
    assert_ne!(one.get("round_id"), two.get("round_id"));
    // Both are in each other's window: each file gets the nearest message.
    let first = ledger.deliver("stats_ready", &lua("supply", 2, FILE_TIME - 3));
    let second = ledger.deliver("stats_ready", &lua("supply", 2, FILE_TIME + 40 * 60 - 3));
    assert_eq!(first.get("round_id"), one.get("round_id"));
    assert_eq!(second.get("round_id"), two.get("round_id"));
}

#[test]
fn the_same_map_twice_inside_the_window_is_not_linked_to_the_wrong_one() {
    let mut ledger = RoundsLedger::new();
    let file = ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let right = ledger.deliver("stats_ready", &lua("supply", 2, FILE_TIME - 3));
    let other = ledger.deliver("stats_ready", &lua("supply", 2, FILE_TIME + 20 * 60));
    assert_eq!(right.get("round_id"), file.get("round_id"));
    assert_eq!(other.get("link_status"), "ambiguous", "its own file has not come yet");
    let late = ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "222208"));
    assert_eq!(ledger.link(&other).record_id.as_deref(), Some(late.get("round_id")));
    assert_eq!(ledger.link(&right).record_id.as_deref(), Some(file.get("round_id")));
}

#[test]
fn midnight_is_no_border() {
    let mut ledger = RoundsLedger::new();
    let file = ledger.deliver("filename_trigger", &stats("supply", 1, "2026-02-12", "000002"));
    // 23:59:59 on the day before.
    let result = ledger.deliver("stats_ready", &lua("supply", 1, 1_770_850_799));
    assert_eq!(result.get("round_id"), file.get("round_id"));
    let hours_before = ledger.deliver("stats_ready", &lua("supply", 1, 1_770_850_799 - 7200));
    assert_eq!(hours_before.get("reason_code"), "date_filter_excluded_rows");
}

#[test]
fn rows_outside_the_window_are_reported_as_the_reason() {
    let mut ledger = RoundsLedger::new();
    ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "010000"));
    let result = ledger.deliver("stats_ready", &lua("supply", 2, END));
    assert_eq!(result.get("reason_code"), "all_candidates_outside_window");
    let other_day = ledger.deliver("stats_ready", &lua("supply", 2, END + 3 * 86_400));
    assert_eq!(other_day.get("reason_code"), "date_filter_excluded_rows");
}

#[test]
fn the_case_of_a_map_does_not_matter_to_the_linker() {
    let mut ledger = RoundsLedger::new();
    let file = ledger.deliver("filename_trigger", &stats("Supply", 2, "2026-02-11", "220205"));
    let result = ledger.deliver("stats_ready", &lua("SUPPLY", 2, END));
    assert_eq!(result.get("round_id"), file.get("round_id"));
}

#[test]
fn the_zone_of_the_servers_is_a_setting() {
    let settings = Settings { time_zone: "UTC".to_owned(), ..Settings::default() };
    let mut ledger = RoundsLedger::with(settings);
    ledger.deliver("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let result = ledger.deliver("stats_ready", &lua("supply", 2, END));
    assert_eq!(result.get("reason_code"), "all_candidates_outside_window");
    assert_eq!(ledger.link(&result).diagnostics.best_diff_seconds, Some(3603));
}

#[test]
fn a_file_in_the_repeated_hour_is_read_both_ways() {
    for end in [1_792_888_200, 1_792_891_800] {
        let mut ledger = RoundsLedger::new();
        let file = ledger.deliver("filename_trigger", &stats("supply", 2, "2026-10-25", "023003"));
        let result = ledger.deliver("stats_ready", &lua("supply", 2, end));
        assert_eq!(result.get("round_id"), file.get("round_id"));
        assert_eq!(ledger.link(&result).diagnostics.best_diff_seconds, Some(3));
    }
}

#[test]
fn w12_a_tracker_that_writes_one_for_the_second_half_is_corrected_by_the_game() {
    let gametime = json!({ "filename": "gametime-supply-R2-1770843722.json", "content": "{}" });
    let proximity = file(PROXIMITY_NAME, PROXIMITY);
    let expected = json!(["gametime", 2]);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut ledger = RoundsLedger::new();
        let mut round_id = String::new();
        for step in order {
            match step {
                0 => drop(ledger.deliver("gametime_fallback", &gametime)),
                1 => drop(ledger.post("proximity_file", &proximity)),
                _ => {
                    let result = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
                    round_id = result.get("round_id").to_owned();
                }
            }
        }
        let seq = ledger.events.iter().find(|one| one.source == "proximity_file").unwrap().seq;
        let link = &ledger.links[&seq];
        assert_eq!(json!([link.number_from, link.number]), expected);
        assert_eq!(link.record_id.as_deref(), Some(round_id.as_str()));
        assert_eq!(link.fingerprints[0].value, "supply|2|1770843143");
    }
}

#[test]
fn without_the_game_the_number_of_a_tracker_is_that_of_its_file_then_its_header() {
    let mut ledger = RoundsLedger::new();
    let result = ledger.post("proximity_file", &file(PROXIMITY_NAME, PROXIMITY));
    assert_eq!(ledger.link(&result).number_from.as_deref(), Some("filename"));
    let mut ledger = RoundsLedger::new();
    let result = ledger.post("proximity_file", &file("odd.txt", PROXIMITY));
    assert_eq!(ledger.link(&result).number_from.as_deref(), Some("header"));
    let bare = "# PROXIMITY_TRACKER_V4\n# map=supply\n";
    let result = ledger.post("proximity_file", &file("odd.txt", bare));
    assert_eq!(ledger.link(&result).number_from.as_deref(), Some("default"));
    assert_eq!(ledger.link(&result).number, Some(1));
}

#[test]
fn w28_an_orphan_stays_unlinked_and_visible_after_every_relink() {
    let mut ledger = RoundsLedger::new();
    let orphan = ledger.deliver("stats_ready", &lua("testmap_v130", 1, 1_737_752_480));
    assert_eq!(ledger.relink(), (1, 0));
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(ledger.relink(), (1, 0));
    assert_eq!(ledger.link(&orphan).status.word(), "unlinked");
    assert_eq!(ledger.link(&orphan).attempt, 1);
}

#[test]
fn spawns_without_a_map_find_it_by_their_match() {
    let spawns = json!({
        "match_id": "2026-02-11-220202", "round_number": 2,
        "spawn_stats": [{ "guid": "A", "spawns": 3 }],
    });
    let mut ledger = RoundsLedger::new();
    let early = ledger.deliver("lua_spawn_stats", &spawns);
    assert_eq!(early.get("reason_code"), "no_rows_for_map_round");
    // Another round at the same time is not a candidate.
    ledger.deliver("filename_trigger", &stats("radar", 2, "2026-02-11", "220204"));
    ledger.post("stats_ready", READY);
    let file = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(ledger.link(&early).record_id.as_deref(), Some(file.get("round_id")));
    ledger.deliver("filename_trigger", &stats("radar", 2, "2026-02-11", "221204"));
    assert_eq!(ledger.link(&early).record_id.as_deref(), Some(file.get("round_id")));
    let mut late = RoundsLedger::new();
    late.post("filename_trigger", &super::world::file(STATS_NAME, STATS));
    late.post("stats_ready", READY);
    let result = late.deliver("lua_spawn_stats", &spawns);
    assert_eq!(result.get("round_id"), file.get("round_id"));
}

#[test]
fn a_file_under_another_name_is_no_second_round() {
    let mut ledger = RoundsLedger::new();
    let file_of = |name: &str| file(name, STATS);
    let first = ledger.post("filename_trigger", &file_of(STATS_NAME));
    let copy = ledger.post("filename_trigger", &file_of("2026-02-11-220209-supply-round-2.txt"));
    assert_eq!(copy.get("round_id"), first.get("round_id"));
    assert_eq!(copy.get("reason_code"), "duplicate_payload");
    assert_eq!(ledger.entities.len(), 1);
    assert_eq!(ledger.record_of_all().time.as_deref(), Some("220205"));
}

#[test]
fn an_event_that_names_its_round_is_linked_to_it() {
    let mut ledger = RoundsLedger::new();
    let file = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    let mut body = lua("supply", 2, END + 3000);
    body["round_id"] = json!(file.get("round_id"));
    let result = ledger.deliver("stats_ready", &body);
    assert_eq!(result.get("reason_code"), "resolved_canonical_id_match");
    assert_eq!(result.get("round_id"), file.get("round_id"));
    // W08: a message that no longer names it keeps its link.
    let mut revised = lua("supply", 2, END + 3000);
    revised["details"] = json!({ "winner_team": 1 });
    let result = ledger.deliver("stats_ready", &revised);
    assert_eq!(result.get("disposition"), "updated");
    assert_eq!(result.get("round_id"), file.get("round_id"));
}

#[test]
fn w26_every_step_is_listed_and_carries_its_diagnostics() {
    let mut ledger = RoundsLedger::new();
    ledger.post("stats_ready", "{");
    ledger.post("stats_ready", READY);
    ledger.post("proximity_file", &file(PROXIMITY_NAME, PROXIMITY));
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert!(ledger.history.len() > 8);
    for step in &ledger.history {
        assert!(step.from.leads_to(step.to), "{step:?}");
        assert!(!step.source.is_empty());
        assert!(!step.to.is_failure() || step.reason.is_some(), "{step:?}");
        let diagnostics: Value = serde_json::from_str(&step.diagnostics_text()).unwrap();
        for name in ["source", "round_fingerprint", "link_status", "confidence", "reason_code"] {
            assert!(diagnostics.get(name).is_some(), "{name}");
        }
    }
}
