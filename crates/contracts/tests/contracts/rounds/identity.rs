//! Normalisation, fingerprints, hard keys, and collisions between them.

use serde_json::{Value, json};

use super::world::{END, RoundsLedger, START, STATS, STATS_NAME, file, vetted};

fn round_body(start: Value, end: Value) -> Value {
    json!({
        "map_name": "supply", "round_number": 2,
        "round_start_unix": start, "round_end_unix": end,
    })
}

#[test]
fn w01_spelling_does_not_make_another_round() {
    let canonical = json!({
        "map_name": "supply", "round_number": 2, "round_start_unix": START,
        "round_end_unix": END, "round_date": "2026-02-11", "round_time": "220205",
    });
    let spelt = json!({
        "map_name": " Supply ", "round_number": "2", "round_start_unix": 1_770_843_143.7,
        "round_end_unix": "1770843722.2", "round_date": "2026-02-11", "round_time": "22:02:05",
    });
    let fingerprints = |body: &Value| {
        let mut ledger = RoundsLedger::new();
        let result = ledger.deliver("gametime_fallback", body);
        ledger.link(&result).fingerprints.clone()
    };
    assert_eq!(fingerprints(&canonical), fingerprints(&spelt));
    let values: Vec<String> = fingerprints(&spelt).into_iter().map(|one| one.value).collect();
    let published = ["supply|2|1770843143", "supply|2|1770843722", "supply|2|2026-02-11|220205"];
    assert_eq!(values, published);
}

#[test]
fn w02_the_kind_of_a_fingerprint_is_the_strongest_known_time() {
    let kind = |start: Value, end: Value| {
        let mut body = round_body(start, end);
        body["round_date"] = json!("2026-02-11");
        body["round_time"] = json!("220205");
        let result = RoundsLedger::new().deliver("gametime_fallback", &body);
        result.body["fingerprint"]["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(json!(START), json!(END)), "start");
    for missing in [json!(0), json!(null), json!(-5)] {
        assert_eq!(kind(missing.clone(), json!(END)), "end");
        assert_eq!(kind(missing, json!(0)), "clock");
    }
}

#[test]
fn w03_the_same_start_is_the_same_round_for_any_end() {
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    let one = ledger.deliver("stats_ready", &round_body(json!(START), json!(END)));
    let two = ledger.deliver("gametime_fallback", &round_body(json!(START), json!(END + 90)));
    assert_eq!(one.get("link_status"), "linked_round_id");
    assert_eq!(two.get("round_id"), one.get("round_id"));
    assert_eq!(two.get("confidence"), "high");
    assert_eq!(ledger.field("round_end_unix"), (json!(END), "stats_ready".to_owned()));
}

#[test]
fn w03_another_start_is_ambiguous_also_with_the_same_end_and_both_are_kept() {
    for with_file in [true, false] {
        let mut ledger = RoundsLedger::new();
        if with_file {
            ledger.post("filename_trigger", &file(STATS_NAME, STATS));
        }
        let one = ledger.deliver("stats_ready", &round_body(json!(START), json!(END)));
        let two = ledger.deliver("proximity_file", &round_body(json!(START + 1), json!(END)));
        assert_eq!(two.get("link_status"), "ambiguous");
        assert_eq!(two.get("state"), "link_failed");
        assert_eq!(two.get("confidence"), "low");
        assert_eq!(two.get("reason_code"), "fingerprint_mismatch");
        assert_eq!(two.body["round_id"], Value::Null);
        let expected = if with_file { "linked_round_id" } else { "unlinked" };
        assert_eq!(ledger.link(&one).status.word(), expected, "the more trusted source wins");
        assert_eq!(ledger.events.len(), 2 + usize::from(with_file));
    }
}

#[test]
fn w04_events_are_compared_on_the_strongest_level_both_have() {
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    ledger.deliver("stats_ready", &round_body(json!(START), json!(END)));
    let by_end = ledger.deliver("gametime_fallback", &round_body(json!(0), json!(END)));
    assert_eq!(by_end.get("link_status"), "linked_round_id");
    assert_eq!(ledger.link(&by_end).matched.map(|matched| matched.word()), Some("end"));
    let mut ledger = RoundsLedger::new();
    ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    let mut clock = round_body(json!(null), json!(null));
    clock["round_date"] = json!("2026-02-11");
    clock["round_time"] = json!("22:02:05");
    let by_clock = ledger.deliver("gametime_fallback", &clock);
    assert_eq!(ledger.link(&by_clock).matched.map(|matched| matched.word()), Some("clock"));
    assert_eq!(by_clock.get("confidence"), "low");
}

#[test]
fn two_ends_in_the_repeated_hour_share_a_key_and_nothing_is_overwritten() {
    let mut ledger = RoundsLedger::new();
    let first = ledger.deliver("stats_ready", &round_body(json!(0), json!(1_792_888_200)));
    let second = ledger.deliver("stats_ready", &round_body(json!(0), json!(1_792_891_800)));
    assert_eq!(ledger.events[0].hard_key.as_deref(), Some("2026-10-25-023000|2"));
    assert_eq!(ledger.events[0].key, ledger.events[1].key);
    assert_eq!(second.get("disposition"), "replay", "kept, and not applied");
    assert_eq!(second.get("link_status"), "ambiguous");
    assert_eq!(second.get("reason_code"), "hard_key_collision");
    assert_eq!(ledger.link(&first).reason, "no_rows_for_map_round");
}

#[test]
fn a_hard_key_on_another_map_is_a_collision() {
    let mut ledger = RoundsLedger::new();
    ledger.deliver("stats_ready", &round_body(json!(START), json!(END)));
    let other = json!({
        "map_name": "radar", "round_number": 2, "round_start_unix": START, "round_end_unix": END,
    });
    let result = ledger.deliver("stats_ready", &other);
    assert_eq!(result.get("reason_code"), "hard_key_collision");
    assert_eq!(result.get("link_status"), "ambiguous");
}

#[test]
fn the_match_id_is_the_local_time_of_the_end_regardless_of_other_ids() {
    let key = |body: Value| vetted("gametime_fallback", body.to_string().as_bytes()).hard_key;
    let mut body = round_body(json!(START), json!(END));
    assert_eq!(key(body.clone()).as_deref(), Some("2026-02-11-220202|2"));
    body["match_id"] = json!("1770843722");
    assert_eq!(key(body.clone()).as_deref(), Some("2026-02-11-220202|2"));
    body["match_id"] = json!("2026-02-11-220202");
    assert_eq!(key(body.clone()).as_deref(), Some("2026-02-11-220202|2"));
    assert_eq!(key(round_body(json!(START), json!(0))), None);
}

#[test]
fn rounds_without_a_start_do_not_collide() {
    let keys: Vec<_> = [
        "2026-02-11-220202-supply-round-1_engagements.txt",
        "2026-02-11-220202-radar-round-1_engagements.txt",
        "2026-02-11-230202-supply-round-1_engagements.txt",
    ]
    .iter()
    .map(|name| {
        let content = "# PROXIMITY_TRACKER_V4\n# round=1\n# round_start_unix=0\n# ENGAGEMENTS\n";
        vetted("proximity_file", file(name, content).as_bytes()).key
    })
    .collect();
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
}

#[test]
fn the_id_of_a_round_never_changes() {
    let mut ledger = RoundsLedger::new();
    let result = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(result.get("round_id"), "rnd-338a11a7fb9371b9");
    let again = ledger.post("filename_trigger", &file(STATS_NAME, STATS));
    assert_eq!(again.get("round_id"), result.get("round_id"));
    assert_eq!(again.get("disposition"), "replay");
    let mut other = RoundsLedger::new();
    other.deliver("stats_ready", &round_body(json!(START), json!(END)));
    let named = json!({
        "map_name": "SUPPLY", "round_number": "2", "round_date": "2026-02-11",
        "round_time": "22:02:05",
    });
    assert_eq!(other.deliver("filename_trigger", &named).get("round_id"), result.get("round_id"));
}
