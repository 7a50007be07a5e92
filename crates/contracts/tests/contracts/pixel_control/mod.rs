//! The pixel-control contract, and the bodies used by its tests.

mod categories;
mod fields;
mod horizon;
mod identity;
mod order;
mod replies;
mod servers;

use admit_contracts::Contract;
use admit_contracts::pixel_control::{PixelControl, SchemaMode, Settings};
use admit_core::json::{Object, Value as Json, write};
use admit_core::{Door, Entry, Event, Millis, Principal, RefusedSubmission, Submission};
use serde_json::{Value, json};

/// Sample request from the contract's own text.
pub(crate) const SAMPLE: &str = r#"{
  "envelope": {
    "event_name": "pixel_control.lifecycle.maniaplanet_beginmatch",
    "schema_version": "2026-02-19.1",
    "event_id": "pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001",
    "event_category": "lifecycle",
    "source_callback": "ManiaPlanet.BeginMatch",
    "source_sequence": 1739980000001,
    "source_time": 1739980000,
    "idempotency_key": "pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65",
    "payload": {},
    "metadata": {}
  },
  "transport": {
    "attempt": 1,
    "max_attempts": 3,
    "retry_backoff_ms": 250,
    "auth_mode": "api_key"
  }
}"#;

/// Arrival time of every submission in these tests: 2026-02-19T18:14:02.123Z.
pub(crate) const RECEIVED_AT: Millis = Millis(1_771_524_842_123);

pub(crate) const V19: &str = "2026-02-19.1";
pub(crate) const V20: &str = "2026-02-20.1";
pub(crate) const CATEGORIES: [&str; 5] = ["connectivity", "lifecycle", "player", "combat", "mode"];

pub(crate) fn sample() -> Value {
    serde_json::from_str(SAMPLE).unwrap()
}

pub(crate) fn submission(scope: &str, body: &str) -> Submission {
    Submission {
        principal: Principal::new(scope),
        received_at: RECEIVED_AT,
        body: body.to_owned().into(),
        headers: Vec::new(),
        nonce: [0; 16],
    }
}

pub(crate) fn vet_as(scope: &str, schema: SchemaMode, body: &str) -> Entry {
    let contract = PixelControl::new(Settings { schema, ..Settings::default() });
    contract.vet(&Door::new("pixel-control"), submission(scope, body))
}

pub(crate) fn vet(body: &str) -> Entry {
    vet_as("arena", SchemaMode::Envelope, body)
}

pub(crate) fn event(body: &str) -> Event {
    match vet(body) {
        Entry::Event(event) => event,
        Entry::Refused(refused) => panic!("refused: {}\n{body}", refused.message),
    }
}

pub(crate) fn refused(body: &str) -> RefusedSubmission {
    match vet(body) {
        Entry::Refused(refused) => refused,
        Entry::Event(event) => panic!("accepted: {:?}\n{body}", event.facts),
    }
}

/// `code: message` of a rejection.
pub(crate) fn reason(body: &str) -> String {
    let refused = refused(body);
    format!("{}: {}", refused.code.as_str(), refused.message)
}

pub(crate) fn text(object: Object<'_>) -> String {
    let mut out = Vec::new();
    write(&object.into(), &mut out);
    String::from_utf8(out).unwrap()
}

/// Warnings on an accepted event.
pub(crate) fn warnings(body: &Value) -> Vec<String> {
    let event = event(&body.to_string());
    let warnings = event.facts.get("warnings").and_then(Json::as_array).unwrap_or_default();
    warnings.iter().filter_map(Json::as_str).map(str::to_owned).collect()
}

pub(crate) fn is_strictly_valid(body: &Value) -> bool {
    matches!(vet_as("arena", SchemaMode::Strict, &body.to_string()), Entry::Event(_))
}

pub(crate) fn summary() -> Value {
    json!({"arguments_count": 1, "arguments": [{"type": "string", "value": "x"}]})
}

pub(crate) fn context() -> Value {
    json!({
        "server": {
            "login": "arena-1",
            "title_id": "SMStormElite@nadeolabs",
            "name": "Arena One",
            "game_mode": "Elite",
            "game_port": 2350,
            "current_map":
                {"uid": "u1", "name": "Plateau", "file": "p.Map.Gbx", "environment": "Storm"}
        },
        "players": {"active": 6, "total": 8, "spectators": 2}
    })
}

/// Valid body of the given version and category.
pub(crate) fn valid(version: &str, category: &str) -> Value {
    let tail = match category {
        "connectivity" => "plugin_heartbeat",
        "lifecycle" => "maniaplanet_beginmatch",
        "player" => "playermanagercallback_playerconnect",
        "combat" => "shootmania_event_onshoot",
        _ => "shootmania_elite_startturn",
    };
    let payload = match (category, version) {
        ("connectivity", _) => json!({
            "type": "plugin_heartbeat",
            "queue_depth": 3,
            "context": context(),
            "timestamp": 1_739_980_000
        }),
        ("lifecycle", _) => json!({
            "variant": "match.begin",
            "phase": "match",
            "state": "begin",
            "source_channel": "maniaplanet",
            "raw_source_callback": "ManiaPlanet.BeginMatch",
            "raw_callback_summary": summary()
        }),
        ("player", V20) => player_payload(),
        ("combat", V20) => combat_payload(),
        _ => summary(),
    };
    let mut metadata = json!({
        "plugin_version": "0.1.0",
        "schema_version": version,
        "mode_family": "multi-mode",
        "signal_kind": if category == "connectivity" { "connectivity" } else { "callback" }
    });
    if matches!(category, "connectivity" | "lifecycle") {
        metadata["context"] = context();
    }
    if category == "lifecycle" {
        metadata["lifecycle_variant"] = "match.begin".into();
    }
    let mut body = sample();
    body["envelope"]["event_name"] = format!("pixel_control.{category}.{tail}").into();
    body["envelope"]["schema_version"] = version.into();
    body["envelope"]["event_id"] = format!("pc-evt-{category}-{tail}-1739980000001").into();
    body["envelope"]["event_category"] = category.into();
    body["envelope"]["payload"] = payload;
    body["envelope"]["metadata"] = metadata;
    body
}

/// Full combat payload: the amended text of 2026-02-19.1, and valid in 2026-02-20.1.
pub(crate) fn combat_payload() -> Value {
    json!({
        "event_kind": "shootmania_event_onshoot",
        "counter_scope": "runtime_session",
        "player_counters": {"ada": {
            "kills": 0, "deaths": 0, "hits": 1, "shots": 2, "misses": 1, "rockets": 0, "lasers": 2,
            "accuracy": 0.5
        }},
        "tracked_player_count": 1,
        "dimensions": {
            "weapon_id": 1,
            "damage": null,
            "distance": 12.5,
            "event_time": null,
            "shooter": {"login": "ada", "nickname": "Ada", "team_id": 0, "is_spectator": false},
            "victim": null,
            "shooter_position": {"x": 1, "y": 2.5, "z": -3},
            "victim_position": null
        },
        "field_availability": {"damage": false},
        "missing_dimensions": ["damage"],
        "raw_callback_summary": summary()
    })
}

pub(crate) fn player_payload() -> Value {
    json!({
        "event_kind": "player.connect",
        "transition_kind": "connectivity",
        "source_callback": "PlayerManagerCallback.PlayerConnect",
        "player": null,
        "previous_player": null,
        "state_delta": state_delta(),
        "permission_signals": {
            "auth_level": 0, "auth_name": "Player", "auth_role": "player", "is_referee": false,
            "has_player_slot": null, "can_admin_actions": false, "auth_level_changed": false,
            "role_changed": false
        },
        "roster_snapshot": {"active": 1, "total": 1, "spectators": 0},
        "tracked_player_cache_size": 1,
        "field_availability": {},
        "missing_fields": [],
        "raw_callback_summary": summary()
    })
}

/// State delta without changes.
fn state_delta() -> Value {
    let names = [
        "connectivity",
        "spectator",
        "team_id",
        "auth_level",
        "auth_role",
        "is_referee",
        "has_player_slot",
    ];
    let same = json!({"before": null, "after": null, "changed": false});
    names
        .into_iter()
        .map(|name| (name.to_owned(), same.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
