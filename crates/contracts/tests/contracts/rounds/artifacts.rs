//! Artifacts of each source: complete parsing, and reporting of unreadable content.

use admit_contracts::rounds::{Rounds, Settings};
use admit_contracts::{Contract as _, SUBPATH};
use admit_core::{Code, Door, Entry, RecordedEntry, Verdict};
use serde_json::{Value, json};

use super::world::{
    END, GAMETIME, GAMETIME_NAME, PROXIMITY, PROXIMITY_NAME, READY, RoundsLedger, START, STATS,
    STATS_NAME, file, fixture, reference, submission, vetted,
};

#[test]
fn every_artifact_is_read_whole() {
    for (source, body) in reference() {
        let event = vetted(source, body.as_bytes());
        assert_eq!(event.parse.status.word(), "ok", "{source}: {:?}", event.parse.notes);
        assert_eq!(event.group, "supply");
        assert!(event.enriches, "{source}");
    }
    for (source, body) in [
        ("stats_ready", fixture!("round_event-stats_ready.json")),
        ("filename_trigger", fixture!("round_event-filename_trigger.json")),
    ] {
        let event = vetted(source, body.as_bytes());
        assert_eq!(event.parse.status.word(), "ok", "{source}: {:?}", event.parse.notes);
        assert_eq!(event.number, Some(2));
    }
}

#[test]
fn a_raw_artifact_and_its_normalised_event_have_the_same_key() {
    let raw = vetted("stats_ready", READY.as_bytes());
    let normalised = vetted("stats_ready", fixture!("round_event-stats_ready.json").as_bytes());
    assert_eq!(raw.key, normalised.key);
    let raw = vetted("filename_trigger", file(STATS_NAME, STATS).as_bytes());
    let normalised =
        vetted("filename_trigger", fixture!("round_event-filename_trigger.json").as_bytes());
    assert_eq!(raw.key, normalised.key);
    let posted = vetted("gametime_fallback", GAMETIME.as_bytes());
    let imported = vetted("gametime_fallback", file(GAMETIME_NAME, GAMETIME).as_bytes());
    assert_eq!(posted.key, imported.key);
}

#[test]
fn whitespace_and_gate_assigned_members_do_not_change_the_content() {
    let mut ledger = RoundsLedger::new();
    let body: Value = serde_json::from_str(fixture!("round_event-stats_ready.json")).unwrap();
    assert_eq!(ledger.deliver("stats_ready", &body).get("disposition"), "new");
    let mut assigned = body.clone();
    assigned["received_at"] = json!("2026-02-11T21:02:03Z");
    assigned["parse_status"] = json!("ok");
    assigned["link_status"] = json!("unlinked");
    assigned["confidence"] = json!("high");
    let pretty = serde_json::to_string_pretty(&assigned).unwrap();
    assert_eq!(ledger.post("stats_ready", &pretty).get("disposition"), "replay");
}

#[test]
fn legacy_labels_of_the_message_are_read_too() {
    let fields = [
        ("Map", "Supply"),
        ("Round", "2"),
        ("Start Unix", "1770843143"),
        ("End Unix", "1770843722"),
        ("Duration", "549 sec"),
        ("Time Limit", "20 min"),
        ("Pauses", "1 (30 sec)"),
        ("End Reason", "surrender"),
    ];
    let fields: Vec<Value> =
        fields.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let body = json!({ "content": "STATS_READY", "embeds": [{ "fields": fields }] });
    let event = vetted("stats_ready", body.to_string().as_bytes());
    assert_eq!((event.start, event.end), (Some(START), Some(END)));
    let fields = event.fields.read();
    let field = |name: &str| fields.get(name).map(super::world::read).unwrap();
    assert_eq!(field("end_reason"), "SURRENDER");
    assert_eq!(field("total_pause_seconds"), 30);
    assert_eq!(field("time_limit_minutes"), 20);
}

/// Unreadable bodies with their reason codes.
fn unreadable() -> Vec<(&'static str, String, &'static str)> {
    let message = |fields: Value| {
        json!({ "content": "STATS_READY", "embeds": [{ "fields": fields }] }).to_string()
    };
    let field = |name: &str, value: &str| json!({ "name": name, "value": value });
    let seven = STATS.replacen("\\20:00\\9:39\\579", "\\20:00", 1);
    let header = STATS.lines().next().unwrap();
    vec![
        ("filename_trigger", "{".to_owned(), "invalid_json"),
        ("filename_trigger", "[]".to_owned(), "invalid_body"),
        ("filename_trigger", "{}".to_owned(), "missing_filename"),
        ("filename_trigger", file("round.txt", STATS), "invalid_filename"),
        (
            "filename_trigger",
            file("2026-02-11-220205-a-round-2-endstats.txt", STATS),
            "not_a_round_file",
        ),
        ("filename_trigger", file(STATS_NAME, &seven), "invalid_header"),
        ("filename_trigger", file(STATS_NAME, header), "insufficient_lines"),
        ("filename_trigger", file(STATS_NAME, ""), "invalid_header"),
        (
            "filename_trigger",
            json!({ "filename": STATS_NAME, "content": 7 }).to_string(),
            "invalid_content",
        ),
        ("stats_ready", json!({ "content": "STATS_READY" }).to_string(), "missing_embed"),
        (
            "stats_ready",
            json!({ "content": "STATS_READY", "embeds": [] }).to_string(),
            "missing_embed",
        ),
        (
            "stats_ready",
            json!({ "content": "hello", "embeds": [{}] }).to_string(),
            "not_stats_ready",
        ),
        ("stats_ready", message(json!([field("Round", "2")])), "missing_map"),
        ("stats_ready", message(json!([field("Map", "supply")])), "missing_round"),
        (
            "stats_ready",
            message(json!([field("Map", "supply"), field("Round", "two")])),
            "invalid_round",
        ),
        (
            "stats_ready",
            json!({ "map_name": "supply", "round_number": "x" }).to_string(),
            "invalid_round",
        ),
        ("stats_ready", json!({ "map_name": 7, "round_number": 1 }).to_string(), "invalid_map"),
        ("stats_ready", json!({ "round_number": 1 }).to_string(), "missing_map"),
        (
            "stats_ready",
            json!({ "source": "proximity_file", "map_name": "supply", "round_number": 1 })
                .to_string(),
            "source_mismatch",
        ),
    ]
}

/// Unreadable bodies specific to one source.
fn unreadable_files() -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("gametime_fallback", "{}".to_owned(), "missing_meta"),
        ("gametime_fallback", file("gametime.json", "{"), "invalid_json"),
        ("gametime_fallback", json!({ "meta": {}, "payload": {} }).to_string(), "missing_map"),
        ("proximity_file", file("x.txt", "# ENGAGEMENTS\n"), "invalid_filename"),
        ("proximity_file", json!({ "filename": PROXIMITY_NAME }).to_string(), "invalid_content"),
        (
            "lua_spawn_stats",
            json!({ "match_id": "m", "round_number": 1 }).to_string(),
            "missing_spawn_stats",
        ),
        (
            "lua_spawn_stats",
            json!({ "round_number": 1, "spawn_stats": [] }).to_string(),
            "missing_map",
        ),
    ]
}

#[test]
fn w22_an_unreadable_artifact_is_stored_with_its_reason_and_its_replay_adds_nothing() {
    let mut ledger = RoundsLedger::new();
    let all = || unreadable().into_iter().chain(unreadable_files());
    for (source, body, reason) in all() {
        let result = ledger.post(source, &body);
        assert_eq!(result.get("state"), "parse_failed", "{body}");
        assert_eq!(result.get("reason_code"), reason, "{body}");
        assert_eq!(result.get("link_status"), "unlinked");
        assert_eq!(result.get("disposition"), "new");
        let again = ledger.post(source, &body);
        assert_eq!(again.get("disposition"), "replay", "{body}");
    }
    assert_eq!(ledger.events.len(), all().count());
    assert!(ledger.entities.is_empty());
}

#[test]
fn w22_a_partly_readable_artifact_is_read_in_part() {
    let broken_list = READY.replace("[{\\\"guid\\\": \\\"0A26D447\\\"", "[{oops");
    assert_ne!(broken_list, READY);
    let other_map = STATS.replacen("\\supply\\", "\\radar\\", 1);
    let bad_player =
        STATS.replacen("5D989160\\olz\\2\\2\\1056 52", "5D989160\\olz\\2\\2\\1056 x", 1);
    let bad_track = PROXIMITY.replacen("5D989160;olz;ALLIES;ENGINEER;2000;0", "5D989160;olz", 1);
    let unnamed = json!({ "map_name": "supply", "round_number": 1, "details": 7 }).to_string();
    for (source, body, note) in [
        ("stats_ready", broken_list, "axis_json is not a list"),
        ("filename_trigger", file(STATS_NAME, &other_map), "the header names the map"),
        ("filename_trigger", file(STATS_NAME, &bad_player), "line 4 describes no player"),
        (
            "proximity_file",
            file(PROXIMITY_NAME, &bad_track),
            "is not a valid line of PLAYER_TRACKS",
        ),
        ("gametime_fallback", file(GAMETIME_NAME, "{oops"), "invalid_json"),
        ("gametime_fallback", file("gametime-oops.json", GAMETIME), "the file name is not"),
        ("stats_ready", unnamed, "details must be an object"),
    ] {
        let event = vetted(source, body.as_bytes());
        assert_eq!(event.parse.status.word(), "partial", "{note}");
        assert!(event.parse.notes.iter().any(|text| text.contains(note)), "{:?}", event.parse);
        assert_eq!(event.group, "supply");
    }
}

#[test]
fn meta_is_used_only_where_the_message_has_no_value() {
    let mut body: Value = serde_json::from_str(GAMETIME).unwrap();
    body["meta"]["map"] = json!("radar");
    body["meta"]["round"] = json!(1);
    let event = vetted("gametime_fallback", body.to_string().as_bytes());
    assert_eq!((event.group.as_str(), event.number), ("supply", Some(2)));
    body["payload"] = json!(null);
    body["meta"]["spawn_stats"] = json!("[{\"guid\":\"A\",\"spawns\":1}]");
    let event = vetted("gametime_fallback", body.to_string().as_bytes());
    assert_eq!((event.group.as_str(), event.number), ("radar", Some(1)));
    assert!(event.fields.read().contains_key("spawn_stats"));
}

#[test]
fn an_unknown_source_is_rejected() {
    let rounds = Rounds::new(Settings::default()).unwrap();
    for (below, query, code) in
        [("no_such", "", Code::NotFound), ("stats_ready", "update=all", Code::InvalidRequest)]
    {
        let entry = rounds.vet(&Door::new("rounds"), submission(below, query, "{}", 1));
        let Entry::Refused(refused) = &entry else { panic!("accepted") };
        assert_eq!(refused.code, code);
        let verdict = Verdict::Refused { seq: None };
        let reply = rounds.reply(&RecordedEntry { entry, verdict, ledger: 1, outcome: None });
        assert_eq!(reply.status, code.http_status());
    }
    assert!(rounds.headers().contains(&SUBPATH));
    assert_eq!(rounds.subpaths().len(), 5);
}

#[test]
fn the_day_of_a_trackers_rows_is_that_of_its_file_also_in_a_normalised_event() {
    let body = json!({
        "map_name": "supply", "round_number": 2, "round_start_unix": START, "round_end_unix": END,
        "filename": "2026-02-10-235900-supply-round-2_engagements.txt",
    });
    let event = vetted("proximity_file", body.to_string().as_bytes());
    let fields: Value = serde_json::from_str(event.fields.as_str()).unwrap();
    assert_eq!(fields["session_date"], "2026-02-10");
}
