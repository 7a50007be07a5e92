//! The linker: windows, clocks, midnight, what comes late, and everything that stays unlinked.

use admit_contracts::rounds::Settings;
use serde_json::{Value, json};

use super::world::{Book, END, PROXIMITY, PROXIMITY_NAME, READY, START, STATS, STATS_NAME, file};

fn stats(map: &str, number: i64, date: &str, time: &str) -> Value {
    json!({ "map_name": map, "round_number": number, "round_date": date, "round_time": time })
}

fn lua(map: &str, number: i64, end: i64) -> Value {
    json!({ "map_name": map, "round_number": number, "round_end_unix": end })
}

/// Seconds since the epoch of 22:02:05 on the evening of the reference round.
const FILE_TIME: i64 = 1_770_843_725;

#[test]
fn w16_what_comes_before_its_file_is_linked_when_it_comes() {
    let mut book = Book::new();
    let early = book.post("stats_ready", READY);
    assert_eq!(early.get("link_status"), "unlinked");
    assert_eq!(early.get("reason_code"), "no_rows_for_map_round");
    assert_eq!(early.get("state"), "link_failed");
    let stats = book.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(book.link(&early).record_id.as_deref(), Some(stats.get("round_id")));
    assert_eq!(book.link(&early).confidence.word(), "medium");
    assert_eq!(book.link(&early).diagnostics.best_diff_seconds, Some(3));
    assert_eq!(book.records.len(), 1);
    let again = book.post("stats_ready", READY);
    assert_eq!(again.get("disposition"), "replay");
    assert_eq!(again.get("link_status"), "linked_round_id");
    let steps: Vec<(u32, &str, &str)> = book
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
fn another_round_of_the_map_changes_nothing_about_links_that_stand() {
    let mut book = Book::new();
    book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let said = book.tell("stats_ready", &lua("supply", 2, FILE_TIME - 3));
    let before = book.link(&said).clone();
    for time in ["235900", "195900", "210500"] {
        book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", time));
        assert_eq!(*book.link(&said), before, "{time}");
    }
}

#[test]
fn w17_the_window_is_inclusive() {
    for (diff, linked) in [(2700, true), (2701, false), (-2700, true), (-2701, false)] {
        let mut book = Book::new();
        book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
        let said = book.tell("stats_ready", &lua("supply", 2, FILE_TIME + diff));
        let link = book.link(&said);
        assert_eq!(link.record_id.is_some(), linked, "{diff}");
        assert_eq!(link.diagnostics.best_diff_seconds, Some(diff.unsigned_abs()));
        if !linked {
            assert_eq!(link.reason, "all_candidates_outside_window");
        }
    }
}

#[test]
fn the_published_vectors_of_the_linker_hold() {
    let mut book = Book::new();
    book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let near = book.tell("gametime_fallback", &stats("supply", 2, "2026-02-11", "220206"));
    assert_eq!(near.get("reason_code"), "resolved");
    assert_eq!(book.link(&near).diagnostics.best_diff_seconds, Some(1));
    let settings = Settings { match_window_minutes: 5, ..Settings::default() };
    let mut book = Book::with(settings);
    book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "230000"));
    let outside = book.tell("gametime_fallback", &stats("supply", 2, "2026-02-11", "220205"));
    assert_eq!(outside.get("reason_code"), "all_candidates_outside_window");
    assert_eq!(book.link(&outside).diagnostics.best_diff_seconds, Some(3475));
    assert_eq!(book.link(&outside).diagnostics.candidates, 1);
}

#[test]
fn w19_what_has_no_time_or_no_name_is_kept_and_says_why() {
    let mut book = Book::new();
    let untimed = book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "2202"));
    assert_eq!(untimed.get("link_status"), "linked_round_id", "it opens its round all the same");
    let said = book.tell("stats_ready", &lua("supply", 2, END));
    assert_eq!(said.get("reason_code"), "time_parse_failed");
    assert_eq!(book.link(&said).diagnostics.candidates, 1);
    assert_eq!(book.link(&said).diagnostics.timed_candidates, 0);
    for body in [lua("supply", 0, END), lua("  ", 2, END + 1)] {
        let said = book.tell("stats_ready", &body);
        assert_eq!((said.get("state"), said.get("reason_code")), ("link_failed", "invalid_input"));
    }
    assert_eq!(book.events.len(), 4);
}

#[test]
fn w23_an_event_without_an_end_is_kept_and_seen() {
    let mut book = Book::new();
    book.post("filename_trigger", &file(STATS_NAME, STATS));
    let timeless =
        json!({ "map_name": "supply", "round_number": 2, "details": { "winner_team": 1 } });
    let said = book.tell("stats_ready", &timeless);
    assert_eq!(said.get("link_status"), "unlinked");
    assert_eq!(said.get("reason_code"), "time_parse_failed");
    let mut started = lua("supply", 2, 0);
    started["round_start_unix"] = json!(START);
    let said = book.tell("stats_ready", &started);
    assert_eq!(said.get("link_status"), "linked_round_id");
}

#[test]
fn w06_the_same_map_and_round_at_another_time_is_another_round() {
    let mut book = Book::new();
    let one = book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let two = book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "224205"));
    assert_ne!(one.get("round_id"), two.get("round_id"));
    // Both in the window of each other: each file gets the message that is nearest to it.
    let first = book.tell("stats_ready", &lua("supply", 2, FILE_TIME - 3));
    let second = book.tell("stats_ready", &lua("supply", 2, FILE_TIME + 40 * 60 - 3));
    assert_eq!(first.get("round_id"), one.get("round_id"));
    assert_eq!(second.get("round_id"), two.get("round_id"));
}

#[test]
fn the_same_map_twice_inside_the_window_is_not_linked_to_the_wrong_one() {
    let mut book = Book::new();
    let file = book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let right = book.tell("stats_ready", &lua("supply", 2, FILE_TIME - 3));
    let other = book.tell("stats_ready", &lua("supply", 2, FILE_TIME + 20 * 60));
    assert_eq!(right.get("round_id"), file.get("round_id"));
    assert_eq!(other.get("link_status"), "ambiguous", "its own file has not come yet");
    let late = book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "222208"));
    assert_eq!(book.link(&other).record_id.as_deref(), Some(late.get("round_id")));
    assert_eq!(book.link(&right).record_id.as_deref(), Some(file.get("round_id")));
}

#[test]
fn midnight_is_no_border() {
    let mut book = Book::new();
    let file = book.tell("filename_trigger", &stats("supply", 1, "2026-02-12", "000002"));
    // 23:59:59 on the day before.
    let said = book.tell("stats_ready", &lua("supply", 1, 1_770_850_799));
    assert_eq!(said.get("round_id"), file.get("round_id"));
    let hours_before = book.tell("stats_ready", &lua("supply", 1, 1_770_850_799 - 7200));
    assert_eq!(hours_before.get("reason_code"), "date_filter_excluded_rows");
}

#[test]
fn rows_far_away_are_told_as_the_reason() {
    let mut book = Book::new();
    book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "010000"));
    let said = book.tell("stats_ready", &lua("supply", 2, END));
    assert_eq!(said.get("reason_code"), "all_candidates_outside_window");
    let other_day = book.tell("stats_ready", &lua("supply", 2, END + 3 * 86_400));
    assert_eq!(other_day.get("reason_code"), "date_filter_excluded_rows");
}

#[test]
fn the_case_of_a_map_does_not_matter_to_the_linker() {
    let mut book = Book::new();
    let file = book.tell("filename_trigger", &stats("Supply", 2, "2026-02-11", "220205"));
    let said = book.tell("stats_ready", &lua("SUPPLY", 2, END));
    assert_eq!(said.get("round_id"), file.get("round_id"));
}

#[test]
fn the_zone_of_the_servers_is_a_setting() {
    let settings = Settings { time_zone: "UTC".to_owned(), ..Settings::default() };
    let mut book = Book::with(settings);
    book.tell("filename_trigger", &stats("supply", 2, "2026-02-11", "220205"));
    let said = book.tell("stats_ready", &lua("supply", 2, END));
    assert_eq!(said.get("reason_code"), "all_candidates_outside_window");
    assert_eq!(book.link(&said).diagnostics.best_diff_seconds, Some(3603));
}

#[test]
fn a_file_in_the_hour_that_comes_twice_is_read_both_ways() {
    for end in [1_792_888_200, 1_792_891_800] {
        let mut book = Book::new();
        let file = book.tell("filename_trigger", &stats("supply", 2, "2026-10-25", "023003"));
        let said = book.tell("stats_ready", &lua("supply", 2, end));
        assert_eq!(said.get("round_id"), file.get("round_id"));
        assert_eq!(book.link(&said).diagnostics.best_diff_seconds, Some(3));
    }
}

#[test]
fn w12_a_tracker_that_says_one_for_the_second_half_is_corrected_by_the_game() {
    let gametime = json!({ "filename": "gametime-supply-R2-1770843722.json", "content": "{}" });
    let proximity = file(PROXIMITY_NAME, PROXIMITY);
    let expected = json!(["gametime", 2]);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut book = Book::new();
        let mut round_id = String::new();
        for step in order {
            match step {
                0 => drop(book.tell("gametime_fallback", &gametime)),
                1 => drop(book.post("proximity_file", &proximity)),
                _ => {
                    let said = book.post("filename_trigger", &file(STATS_NAME, STATS));
                    round_id = said.get("round_id").to_owned();
                }
            }
        }
        let seq = book.events.iter().find(|one| one.source == "proximity_file").unwrap().seq;
        let link = &book.links[&seq];
        assert_eq!(json!([link.number_from, link.number]), expected);
        assert_eq!(link.record_id.as_deref(), Some(round_id.as_str()));
        assert_eq!(link.fingerprints[0].value, "supply|2|1770843143");
    }
}

#[test]
fn without_the_game_the_number_of_a_tracker_is_that_of_its_file_then_its_header() {
    let mut book = Book::new();
    let said = book.post("proximity_file", &file(PROXIMITY_NAME, PROXIMITY));
    assert_eq!(book.link(&said).number_from.as_deref(), Some("filename"));
    let mut book = Book::new();
    let said = book.post("proximity_file", &file("odd.txt", PROXIMITY));
    assert_eq!(book.link(&said).number_from.as_deref(), Some("header"));
    let bare = "# PROXIMITY_TRACKER_V4\n# map=supply\n";
    let said = book.post("proximity_file", &file("odd.txt", bare));
    assert_eq!(book.link(&said).number_from.as_deref(), Some("default"));
    assert_eq!(book.link(&said).number, Some(1));
}

#[test]
fn w28_an_orphan_stays_unlinked_and_visible_after_every_relink() {
    let mut book = Book::new();
    let orphan = book.tell("stats_ready", &lua("testmap_v130", 1, 1_737_752_480));
    assert_eq!(book.relink(), (1, 0));
    book.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(book.relink(), (1, 0));
    assert_eq!(book.link(&orphan).status.word(), "unlinked");
    assert_eq!(book.link(&orphan).attempt, 1);
}

#[test]
fn spawns_without_a_map_find_it_by_their_match() {
    let spawns = json!({
        "match_id": "2026-02-11-220202", "round_number": 2,
        "spawn_stats": [{ "guid": "A", "spawns": 3 }],
    });
    let mut book = Book::new();
    let early = book.tell("lua_spawn_stats", &spawns);
    assert_eq!(early.get("reason_code"), "no_rows_for_map_round");
    // Somebody else's round at the same time is none of its business.
    book.tell("filename_trigger", &stats("radar", 2, "2026-02-11", "220204"));
    book.post("stats_ready", READY);
    let file = book.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(book.link(&early).record_id.as_deref(), Some(file.get("round_id")));
    book.tell("filename_trigger", &stats("radar", 2, "2026-02-11", "221204"));
    assert_eq!(book.link(&early).record_id.as_deref(), Some(file.get("round_id")));
    let mut late = Book::new();
    late.post("filename_trigger", &super::world::file(STATS_NAME, STATS));
    late.post("stats_ready", READY);
    let said = late.tell("lua_spawn_stats", &spawns);
    assert_eq!(said.get("round_id"), file.get("round_id"));
}

#[test]
fn a_file_under_another_name_is_no_second_round() {
    let mut book = Book::new();
    let file_of = |name: &str| file(name, STATS);
    let first = book.post("filename_trigger", &file_of(STATS_NAME));
    let copy = book.post("filename_trigger", &file_of("2026-02-11-220209-supply-round-2.txt"));
    assert_eq!(copy.get("round_id"), first.get("round_id"));
    assert_eq!(copy.get("reason_code"), "duplicate_payload");
    assert_eq!(book.records.len(), 1);
    assert_eq!(book.record_of_all().time.as_deref(), Some("220205"));
}

#[test]
fn an_event_that_names_its_round_is_linked_to_it() {
    let mut book = Book::new();
    let file = book.post("filename_trigger", &file(STATS_NAME, STATS));
    let mut body = lua("supply", 2, END + 3000);
    body["round_id"] = json!(file.get("round_id"));
    let said = book.tell("stats_ready", &body);
    assert_eq!(said.get("reason_code"), "resolved_canonical_id_match");
    assert_eq!(said.get("round_id"), file.get("round_id"));
    // W08: what does not name it any more keeps it.
    let mut revised = lua("supply", 2, END + 3000);
    revised["details"] = json!({ "winner_team": 1 });
    let said = book.tell("stats_ready", &revised);
    assert_eq!(said.get("disposition"), "updated");
    assert_eq!(said.get("round_id"), file.get("round_id"));
}

#[test]
fn w26_every_step_is_listed_and_carries_its_diagnostics() {
    let mut book = Book::new();
    book.post("stats_ready", "{");
    book.post("stats_ready", READY);
    book.post("proximity_file", &file(PROXIMITY_NAME, PROXIMITY));
    book.post("filename_trigger", &file(STATS_NAME, STATS));
    assert!(book.history.len() > 8);
    for step in &book.history {
        assert!(step.from.leads_to(step.to), "{step:?}");
        assert!(!step.source.is_empty());
        assert!(!step.to.is_failure() || step.reason.is_some(), "{step:?}");
        let told: Value = serde_json::from_str(&step.diagnostics_text()).unwrap();
        for name in ["source", "round_fingerprint", "link_status", "confidence", "reason_code"] {
            assert!(told.get(name).is_some(), "{name}");
        }
    }
}
