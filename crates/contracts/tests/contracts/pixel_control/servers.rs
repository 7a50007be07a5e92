//! Server documents: their updates from events, and the read models.

use admit_contracts::pixel_control::{read, server_state};
use admit_core::{EntityId, Millis};
use serde_json::{Value, json};

use super::{RECEIVED_AT, V19, V20, event, text, valid};

/// Body with this sequence and a time one second later per sequence.
pub(crate) fn at(mut body: Value, sequence: u64) -> Value {
    body["envelope"]["source_sequence"] = sequence.into();
    body["envelope"]["source_time"] = (1_739_980_000 + sequence).into();
    body
}

pub(crate) fn heartbeat(sequence: u64) -> Value {
    at(valid(V19, "connectivity"), sequence)
}

fn lifecycle(sequence: u64, variant: &str) -> Value {
    let mut body = at(valid(V20, "lifecycle"), sequence);
    body["envelope"]["payload"]["variant"] = variant.into();
    body
}

/// Document after these bodies, all of one server.
fn document(bodies: &[Value]) -> (EntityId, String) {
    let mut stored: Option<(EntityId, String)> = None;
    for body in bodies {
        let event = event(&body.to_string());
        let [projection] = &event.projections[..] else { panic!("one projection per event") };
        let entity = projection.entity();
        let before = stored.map(|(known, text)| {
            assert_eq!(known, entity);
            text
        });
        let mut document = projection.load(before.as_deref()).unwrap();
        projection.apply(&mut *document).unwrap();
        stored = Some((entity, document.to_text()));
    }
    stored.unwrap()
}

/// Read model of a server at the time its events arrived.
fn seen(bodies: &[Value]) -> Value {
    let shown = read::server(&document(bodies).1, RECEIVED_AT).unwrap();
    serde_json::from_str(&text(shown)).unwrap()
}

#[test]
fn a_server_view_contains_all_data_of_its_events() {
    let bodies = [heartbeat(1), lifecycle(2, "match.begin"), lifecycle(3, "pause.start")];
    let (entity, stored) = document(&bodies);
    assert_eq!(entity, server_state::document_id("arena", "arena-1"));
    assert_eq!(entity.entity, "arena/arena-1");
    let one = text(read::server(&stored, RECEIVED_AT).unwrap());
    insta::assert_snapshot!(one.replace(",\"", ",\n\""), @r#"
    {"scope":"arena",
    "login":"arena-1",
    "online":false,
    "name":"Arena One",
    "game_mode":"Elite",
    "title_id":"SMStormElite@nadeolabs",
    "plugin_version":"0.1.0",
    "first_seen_at":"2026-02-19T18:14:02.123Z",
    "last_event_at":"2026-02-19T18:14:02.123Z",
    "last_registration":null,
    "last_heartbeat":{"received_at":"2026-02-19T18:14:02.123Z",
    "source_time":1739980001,
    "sequence":1},
    "queue_depth":3,
    "current_map":{"uid":"u1",
    "name":"Plateau",
    "file":"p.Map.Gbx",
    "environment":"Storm"},
    "players":{"active":6,
    "total":8,
    "spectators":2},
    "match":{"variant":"match.begin",
    "state":"begin",
    "since":"2025-02-19T15:46:42Z",
    "source_time":1739980002,
    "sequence":2},
    "map":null,
    "round":null,
    "warmup":null,
    "pause":{"variant":"pause.start",
    "state":"start",
    "since":"2025-02-19T15:46:43Z",
    "source_time":1739980003,
    "sequence":3},
    "event_counts":{"connectivity":1,
    "lifecycle":2,
    "player":0,
    "combat":0,
    "mode":0}}
    "#);
    let item = text(read::list_item(&stored, RECEIVED_AT).unwrap());
    insta::assert_snapshot!(item.replace(",\"", ",\n\""), @r#"
    {"scope":"arena",
    "login":"arena-1",
    "online":false,
    "name":"Arena One",
    "game_mode":"Elite",
    "title_id":"SMStormElite@nadeolabs",
    "plugin_version":"0.1.0",
    "last_event_at":"2026-02-19T18:14:02.123Z",
    "last_heartbeat_at":"2026-02-19T18:14:02.123Z",
    "current_map":{"uid":"u1",
    "name":"Plateau",
    "file":"p.Map.Gbx",
    "environment":"Storm"},
    "players":{"active":6,
    "total":8,
    "spectators":2}}
    "#);
}

/// Same body with its event time this many seconds before arrival.
fn aged(mut body: Value, seconds: i64) -> Value {
    body["envelope"]["source_time"] = (RECEIVED_AT.0 / 1000 - seconds).into();
    body
}

fn is_online(bodies: &[Value], seconds: i64) -> bool {
    let (_, stored) = document(bodies);
    let now = Millis(RECEIVED_AT.0 + seconds * 1000);
    let item = read::list_item(&stored, now).unwrap();
    item.get("online").and_then(|value| value.as_bool()).unwrap()
}

#[test]
fn a_server_is_online_for_360_seconds_after_its_event() {
    assert_eq!(read::ONLINE_SECONDS_MAX, 360);
    let fresh = [aged(heartbeat(1), 0)];
    for (seconds, expected) in [(0, true), (359, true), (361, false), (-10, true)] {
        assert_eq!(is_online(&fresh, seconds), expected, "{seconds}");
    }
}

#[test]
fn a_late_heartbeat_keeps_its_own_time() {
    for (age, expected) in [(300, true), (361, false), (86_400, false)] {
        assert_eq!(is_online(&[aged(heartbeat(1), age)], 0), expected, "{age}");
    }
    // The newest sequence wins, regardless of the arrival order.
    let [old, new] = [aged(heartbeat(1), 86_400), aged(heartbeat(2), 10)];
    assert!(is_online(&[old.clone(), new.clone()], 0) && is_online(&[new, old], 0));
}

#[test]
fn a_time_that_cannot_be_is_not_the_time_of_the_event() {
    let of = |source_time: Value| {
        let mut body = heartbeat(1);
        body["envelope"]["source_time"] = source_time;
        body
    };
    let no_clock = of(json!(0));
    for future in [aged(heartbeat(1), -86_400), of(json!(u64::MAX)), no_clock] {
        assert!(is_online(std::slice::from_ref(&future), 300), "{future}");
        assert!(!is_online(&[future], 361), "it counts from when it came");
    }
}

#[test]
fn a_registration_makes_a_server_online_and_a_lifecycle_event_does_not() {
    let mut registration = aged(heartbeat(1), 1);
    registration["envelope"]["payload"]["type"] = "plugin_registration".into();
    let shown = seen(&[registration]);
    assert_eq!(shown["online"], true);
    assert_eq!(shown["last_registration"]["sequence"], 1);
    assert_eq!(shown["last_heartbeat"], Value::Null);
    assert_eq!(seen(&[lifecycle(1, "match.begin")])["online"], false);
}

#[test]
fn an_older_event_never_replaces_a_newer_one() {
    let mut old = heartbeat(5);
    for part in ["payload", "metadata"] {
        let context = &mut old["envelope"][part]["context"];
        context["server"]["name"] = "Old Name".into();
        context["server"]["current_map"]["name"] = "Old Map".into();
        context["players"]["total"] = 99.into();
    }
    old["envelope"]["payload"]["queue_depth"] = 99.into();
    let shown = seen(&[heartbeat(9), old]);
    assert_eq!(shown["name"], "Arena One");
    assert_eq!(shown["current_map"]["name"], "Plateau");
    assert_eq!(shown["players"]["total"], 8);
    assert_eq!(shown["queue_depth"], 3);
    assert_eq!(shown["last_heartbeat"]["sequence"], 9);
    assert_eq!(shown["event_counts"]["connectivity"], 2);
}

#[test]
fn a_heartbeat_without_a_map_reports_that_none_is_loaded() {
    let with = |sequence, map: Option<Value>| {
        let mut body = heartbeat(sequence);
        for part in ["payload", "metadata"] {
            let server = &mut body["envelope"][part]["context"]["server"];
            match &map {
                Some(map) => server["current_map"] = map.clone(),
                None => drop(server.as_object_mut().unwrap().remove("current_map")),
            }
        }
        body
    };
    for map in [None, Some(json!(null)), Some(json!([])), Some(json!({})), Some(json!({"uid": ""}))]
    {
        let shown = seen(&[heartbeat(1), with(2, map.clone())]);
        assert_eq!(shown["current_map"], Value::Null, "{map:?}");
        let shown = seen(&[heartbeat(3), with(2, map)]);
        assert_eq!(shown["current_map"]["uid"], "u1");
    }
}

#[test]
fn other_events_without_a_map_leave_it_unchanged() {
    let mut body = lifecycle(2, "map.begin");
    let server = &mut body["envelope"]["metadata"]["context"]["server"];
    server.as_object_mut().unwrap().remove("current_map");
    let shown = seen(&[heartbeat(1), body.clone()]);
    assert_eq!(shown["current_map"]["uid"], "u1");
    body["envelope"]["metadata"]["context"]["server"]["current_map"] = json!([]);
    assert_eq!(seen(&[heartbeat(1), body])["current_map"], Value::Null);
}

#[test]
fn each_phase_keeps_its_newest_state() {
    let shown = seen(&[
        lifecycle(4, "match.end"),
        lifecycle(1, "match.begin"),
        lifecycle(2, "round.begin"),
        lifecycle(3, "warmup.status"),
        lifecycle(5, "lifecycle.unknown"),
        lifecycle(6, "match.nonsense"),
    ]);
    assert_eq!(shown["match"]["variant"], "match.end");
    assert_eq!(shown["match"]["state"], "end");
    assert_eq!(shown["match"]["sequence"], 4);
    assert_eq!(shown["match"]["source_time"], 1_739_980_004);
    assert_eq!(shown["match"]["since"], "2025-02-19T15:46:44Z");
    assert_eq!(shown["round"]["variant"], "round.begin");
    assert_eq!(shown["warmup"]["variant"], "warmup.status");
    assert_eq!(shown["map"], Value::Null);
    assert_eq!(shown["pause"], Value::Null);
}

#[test]
fn a_lifecycle_event_without_a_payload_is_read_by_its_metadata() {
    let mut body = at(valid(V19, "lifecycle"), 1);
    body["envelope"]["payload"] = json!([]);
    body["envelope"]["metadata"]["lifecycle_variant"] = "round.end".into();
    assert_eq!(seen(&[body])["round"]["variant"], "round.end");
}

#[test]
fn newer_plugins_send_their_queue_as_an_object() {
    let mut body = heartbeat(1);
    let payload = body["envelope"]["payload"].as_object_mut().unwrap();
    payload.remove("queue_depth");
    payload.insert("queue".to_owned(), json!({"depth": 17}));
    assert_eq!(seen(&[body])["queue_depth"], 17);
}

#[test]
fn the_login_is_read_from_metadata_then_payload() {
    let entity = |body: &Value| document(std::slice::from_ref(body)).0.entity;
    let mut body = heartbeat(1);
    body["envelope"]["payload"]["context"]["server"]["login"] = "other".into();
    assert_eq!(entity(&body), "arena/arena-1");
    body["envelope"]["metadata"]["context"] = json!([]);
    assert_eq!(entity(&body), "arena/other");
    body["envelope"]["payload"]["context"]["server"]["login"] = "a/b%c".into();
    assert_eq!(entity(&body), "arena/a%2Fb%25c");
}

#[test]
fn events_that_declare_no_login_never_merge_with_a_server() {
    for login in [json!(""), json!(null), json!(7), json!("x".repeat(300))] {
        let mut body = heartbeat(1);
        for part in ["payload", "metadata"] {
            body["envelope"][part]["context"]["server"]["login"] = login.clone();
        }
        let (entity, stored) = document(&[body]);
        assert_eq!(entity.entity, "arena/");
        let item = text(read::list_item(&stored, RECEIVED_AT).unwrap());
        assert!(item.starts_with(r#"{"scope":"arena","login":null,"#), "{item}");
    }
    let shown = seen(&[valid(V19, "player"), valid(V19, "mode"), valid(V20, "combat")]);
    assert_eq!(shown["login"], Value::Null);
    assert_eq!(shown["plugin_version"], "0.1.0");
    assert_eq!(shown["event_counts"]["player"], 1);
    assert_eq!(shown["event_counts"]["mode"], 1);
    assert_eq!(shown["event_counts"]["combat"], 1);
}

#[test]
fn the_sample_of_the_contract_is_counted_and_sets_no_other_field() {
    let shown = seen(&[super::sample()]);
    assert_eq!(shown["event_counts"]["lifecycle"], 1);
    assert_eq!(shown["match"], Value::Null);
    assert_eq!(shown["name"], Value::Null);
}

#[test]
fn absurd_numbers_and_long_texts_do_no_harm() {
    let mut body = heartbeat(1);
    body["envelope"]["source_sequence"] = json!(1e300);
    body["envelope"]["source_time"] = json!(1e300);
    for part in ["payload", "metadata"] {
        body["envelope"][part]["context"]["server"]["name"] = "é".repeat(5000).into();
        body["envelope"][part]["context"]["players"]["total"] = json!(-5);
    }
    let shown = seen(&[body]);
    assert_eq!(shown["last_heartbeat"]["sequence"], u64::MAX);
    assert_eq!(shown["name"].as_str().unwrap().chars().count(), 257);
    assert_eq!(shown["players"], json!({"active": 6, "total": null, "spectators": 2}));
}

#[test]
fn a_damaged_document_is_an_error_not_a_guess() {
    for stored in ["", "{}", "{\"format\":9}"] {
        let error = read::server(stored, RECEIVED_AT).unwrap_err();
        assert!(error.to_string().starts_with("server document cannot be read: "));
    }
}
