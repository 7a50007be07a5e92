//! Category rules: warnings on the receipt, or rejections in strict mode.

use admit_contracts::pixel_control::SchemaMode;
use admit_core::{Code, Entry};
use serde_json::{Value, json};

use super::{
    CATEGORIES, SAMPLE, V19, V20, combat_payload, event, is_strictly_valid, sample, summary, valid,
    vet_as, warnings,
};

#[test]
fn a_good_event_of_every_category_and_version_has_no_warnings() {
    for version in [V19, V20] {
        for category in CATEGORIES {
            let body = valid(version, category);
            assert_eq!(warnings(&body), [""; 0], "{version} {category}");
            assert!(is_strictly_valid(&body), "{version} {category}");
        }
    }
}

#[test]
fn the_contracts_own_sample_is_admitted_with_warnings() {
    let event = event(SAMPLE);
    let count = event.facts.get("warning_count").and_then(|count| count.as_u64());
    assert_eq!(count, Some(12));
    insta::assert_snapshot!(warnings(&sample()).join("\n"), @r#"
    envelope.metadata.plugin_version is missing
    envelope.metadata.schema_version is missing
    envelope.metadata.mode_family is missing
    envelope.metadata.signal_kind is missing
    envelope.metadata.lifecycle_variant is missing
    envelope.metadata.context is missing
    envelope.payload.variant is missing
    envelope.payload.phase is missing
    envelope.payload.state is missing
    envelope.payload.source_channel is missing
    envelope.payload.raw_source_callback is missing
    envelope.payload.raw_callback_summary is missing
    "#);
}

#[test]
fn the_contracts_own_sample_is_rejected_by_a_strict_door() {
    let Entry::Refused(refused) = vet_as("arena", SchemaMode::Strict, SAMPLE) else {
        panic!("strict must reject the sample");
    };
    assert_eq!(refused.code, Code::InvalidEnvelope);
    assert!(refused.message.ends_with("; and 9 more"), "{}", refused.message);
    assert!(refused.facts.contains_key("dedupe_key"));
    assert_eq!(refused.facts.get("warning_count").and_then(|count| count.as_u64()), Some(12));
}

/// The change violates one rule and gives this warning; a strict door rejects it.
fn breaks(version: &str, category: &str, path: &str, value: Value, warning: &str) {
    let mut body = valid(version, category);
    let (parent, name) = path.rsplit_once('/').unwrap();
    let parent = body["envelope"].pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value == json!("absent") {
        parent.remove(name);
    } else {
        parent.insert(name.to_owned(), value);
    }
    assert_eq!(warnings(&body), [warning], "{version} {category} {path}");
    assert!(!is_strictly_valid(&body));
}

/// The change violates no rule.
fn keeps(version: &str, category: &str, path: &str, value: Value) {
    let mut body = valid(version, category);
    let (parent, name) = path.rsplit_once('/').unwrap();
    let parent = body["envelope"].pointer_mut(parent).unwrap().as_object_mut().unwrap();
    parent.insert(name.to_owned(), value);
    assert_eq!(warnings(&body), [""; 0], "{version} {category} {path}");
    assert!(is_strictly_valid(&body));
}

#[test]
fn names_of_the_real_plugin_are_admitted_with_a_warning() {
    let names = [
        ("player", "maniacontrol_players_player"),
        ("player", "unknown"),
        ("mode", "maniacontrol_callbacks_structures_shootmania_onelitestartturnstructure"),
        ("combat", "maniacontrol_callbacks_structures_shootmania_onshootstructure"),
        ("lifecycle", "maniaplanet_pause_status"),
    ];
    for version in [V19, V20] {
        for (category, name) in names {
            breaks(
                version,
                category,
                "/event_name",
                json!(format!("pixel_control.{category}.{name}")),
                "envelope.event_name is not one of the values this schema version lists",
            );
        }
    }
}

#[test]
fn metadata_is_held_to_its_category() {
    let version_19 = "envelope.metadata.schema_version must be \"2026-02-19.1\"";
    breaks(V19, "mode", "/metadata/schema_version", json!(V20), version_19);
    let version_20 = "envelope.metadata.schema_version must be \"2026-02-20.1\"";
    breaks(V20, "mode", "/metadata/schema_version", json!(V19), version_20);
    for version in [V19, V20] {
        let family = "envelope.metadata.mode_family must be \"multi-mode\"";
        breaks(version, "player", "/metadata/mode_family", json!("x"), family);
        let kind = "envelope.metadata.signal_kind must be \"connectivity\"";
        breaks(version, "connectivity", "/metadata/signal_kind", json!("callback"), kind);
        let missing = "envelope.metadata.plugin_version is missing";
        breaks(version, "combat", "/metadata/plugin_version", json!("absent"), missing);
        let context = "envelope.metadata.context is missing";
        breaks(version, "lifecycle", "/metadata/context", json!("absent"), context);
        let unknown = "envelope.metadata.context has unknown fields: more";
        breaks(version, "connectivity", "/metadata/context/more", json!(1), unknown);
        let count = "envelope.metadata.context.players.total must be at least 0";
        breaks(version, "connectivity", "/metadata/context/players/total", json!(-1), count);
        keeps(version, "mode", "/metadata/anything", json!(1));
    }
    let variant =
        "envelope.metadata.lifecycle_variant is not one of the values this schema version lists";
    breaks(V19, "lifecycle", "/metadata/lifecycle_variant", json!("other"), variant);
    keeps(V20, "lifecycle", "/metadata/lifecycle_variant", json!("other"));
    let login = "envelope.metadata.context.server.login must be of type string";
    breaks(V19, "connectivity", "/metadata/context/server/login", json!(1), login);
    keeps(V20, "connectivity", "/metadata/context/server/login", json!(1));
}

#[test]
fn connectivity_is_a_registration_or_a_heartbeat() {
    for version in [V19, V20] {
        let kind = "envelope.payload.type must be \"plugin_heartbeat\"";
        breaks(version, "connectivity", "/payload/type", json!("other"), kind);
        let depth = "envelope.payload.queue_depth is missing";
        breaks(version, "connectivity", "/payload/queue_depth", json!("absent"), depth);
        keeps(version, "connectivity", "/payload/outage", json!({"active": false}));

        let mut body = valid(version, "connectivity");
        let payload = &mut body["envelope"]["payload"];
        payload["type"] = json!("plugin_registration");
        assert_eq!(
            warnings(&body),
            ["envelope.payload.plugin is missing", "envelope.payload.capabilities is missing"]
        );
        let payload = &mut body["envelope"]["payload"];
        payload["plugin"] = json!({"id": 1, "name": "Pixel Control", "version": "0.1.0"});
        payload["capabilities"] = json!([]);
        assert_eq!(warnings(&body), [""; 0]);
        body["envelope"]["payload"]["plugin"] = json!({"id": 1});
        assert_eq!(warnings(&body).len(), if version == V19 { 2 } else { 0 });
    }
}

#[test]
fn a_lifecycle_variant_fixes_phase_and_state() {
    for version in [V19, V20] {
        let phase = "envelope.payload.phase must be \"match\"";
        breaks(version, "lifecycle", "/payload/phase", json!("map"), phase);
        let state = "envelope.payload.state must be \"begin\"";
        breaks(version, "lifecycle", "/payload/state", json!("end"), state);
        let script = "envelope.payload.script_callback is missing";
        breaks(version, "lifecycle", "/payload/source_channel", json!("script"), script);
        keeps(
            version,
            "lifecycle",
            "/payload/script_callback",
            json!({"name": "x", "payload": []}),
        );
        let name = "envelope.payload.script_callback.name must not be empty";
        let script_callback =
            json!({"name": "", "payload_summary": {"arguments_count": 0, "arguments": []}});
        breaks(version, "lifecycle", "/payload/script_callback", script_callback, name);
    }
    let variants = [
        ("warmup.start", V19),
        ("warmup.status", V19),
        ("map.begin", V19),
        ("round.end", V19),
        ("lifecycle.unknown", V19),
        ("pause.start", V20),
        ("pause.status", V20),
    ];
    for (variant, version) in variants {
        let mut body = valid(version, "lifecycle");
        let (phase, state) = variant.split_once('.').unwrap();
        let payload = &mut body["envelope"]["payload"];
        payload["variant"] = json!(variant);
        payload["phase"] = json!(phase);
        payload["state"] = json!(state);
        assert_eq!(warnings(&body), [""; 0], "{variant}");
    }
    let mut body = valid(V19, "lifecycle");
    let payload = &mut body["envelope"]["payload"];
    payload["variant"] = json!("pause.start");
    payload["phase"] = json!("pause");
    payload["state"] = json!("start");
    assert_eq!(warnings(&body).len(), 2, "the older version knows no pause");
    let mut stats = json!({
        "scope": "round", "counter_scope": "c", "window_state": "w", "player_counters_delta": [],
        "totals": {}, "source_coverage": {}, "win_context": {}, "field_availability": {},
        "missing_fields": []
    });
    keeps(V20, "lifecycle", "/payload/aggregate_stats", stats.clone());
    stats["scope"] = json!("match");
    let scope =
        "envelope.payload.aggregate_stats.scope is not one of the values this schema version lists";
    breaks(V20, "lifecycle", "/payload/aggregate_stats", stats, scope);
    let rotation = "envelope.payload has unknown fields: map_rotation";
    breaks(V19, "lifecycle", "/payload/map_rotation", json!({}), rotation);
}

#[test]
fn an_admin_action_follows_the_amended_text() {
    let mut action = json!({
        "action_name": "warmup.start",
        "action_phase": "start",
        "target": "warmup",
        "source_callback": "x",
        "source_channel": "script",
        "actor": {"type": "unknown", "login": "", "nickname": "", "team_id": -1},
        "context": [],
        "field_availability": {"actor": false},
        "missing_fields": ["actor"]
    });
    keeps(V19, "lifecycle", "/payload/admin_action", action.clone());
    let mut body = valid(V20, "lifecycle");
    body["envelope"]["payload"]["admin_action"] = action.clone();
    assert_eq!(warnings(&body).len(), 5, "the newer version wants five more fields");
    action["action_domain"] = json!("match_flow");
    action["action_type"] = json!("warmup");
    action["target_scope"] = json!("server");
    action["target_id"] = json!("warmup");
    action["initiator_kind"] = json!("script");
    keeps(V20, "lifecycle", "/payload/admin_action", action.clone());
    action["action_name"] = json!("Warmup");
    let mut body = valid(V20, "lifecycle");
    body["envelope"]["payload"]["admin_action"] = action;
    assert_eq!(
        warnings(&body),
        ["envelope.payload.admin_action.action_name: value does not match \
          \"^[a-z0-9]+(?:\\.[a-z0-9]+)*$\""]
    );
}

#[test]
fn combat_of_the_older_version_may_have_either_text() {
    keeps(V19, "combat", "/payload", combat_payload());
    let mut broken = combat_payload();
    broken["player_counters"]["ada"]["accuracy"] = json!(1.5);
    let accuracy = "envelope.payload.player_counters.ada.accuracy: value is greater than the \
                    maximum of 1";
    breaks(V19, "combat", "/payload", broken.clone(), accuracy);
    keeps(V20, "combat", "/payload", broken);
    let mut broken = combat_payload();
    broken["counter_scope"] = json!("match");
    let scope = "envelope.payload.counter_scope must be \"runtime_session\"";
    for version in [V19, V20] {
        breaks(version, "combat", "/payload", broken.clone(), scope);
    }
    let arguments = "envelope.payload.arguments.0.value is missing";
    let payload = json!({"arguments_count": 1, "arguments": [{"type": "x"}]});
    breaks(V19, "combat", "/payload", payload, arguments);
}

#[test]
fn a_player_event_of_the_newer_version_has_a_structure() {
    let kind = "envelope.payload.event_kind is not one of the values this schema version lists";
    breaks(V20, "player", "/payload/event_kind", json!("player.other"), kind);
    let missing = "envelope.payload.state_delta is missing";
    breaks(V20, "player", "/payload/state_delta", json!("absent"), missing);
    let unknown = "envelope.payload has unknown fields: more";
    breaks(V20, "player", "/payload/more", json!(1), unknown);
    keeps(V20, "player", "/payload/side_change", json!({}));
}

#[test]
fn phps_empty_array_is_an_empty_object_at_every_level() {
    keeps(V19, "connectivity", "/metadata/context/server/current_map", json!([]));
    keeps(V19, "connectivity", "/payload/context/server", json!([]));
    keeps(V20, "combat", "/payload/player_counters", json!([]));
    keeps(V20, "combat", "/payload/dimensions", json!([]));
    keeps(V20, "player", "/payload/field_availability", json!([]));
    let map = "envelope.metadata.context.server.current_map must be of type object";
    breaks(V19, "connectivity", "/metadata/context/server/current_map", json!([1]), map);
    let mut rich = combat_payload();
    rich["player_counters"] = json!([]);
    rich["field_availability"] = json!([]);
    keeps(V19, "combat", "/payload", rich);
}

#[test]
fn of_repeated_keys_only_the_last_is_held_to_the_rules() {
    let body = valid(V19, "mode").to_string();
    for name in ["mode_family", "arguments_count", "value"] {
        let before = format!("\"{name}\":");
        assert!(body.contains(&before));
        let last_good = body.replace(&before, &format!("{before}-1,{before}"));
        assert!(!event(&last_good).facts.contains_key("warnings"), "{last_good}");
    }
    let last_bad =
        body.replace("\"arguments_count\":1", "\"arguments_count\":1,\"arguments_count\":-1");
    assert!(event(&last_bad).facts.contains_key("warnings"));
}

#[test]
fn warnings_are_bounded_and_counted() {
    let mut body = valid(V19, "mode");
    body["envelope"]["payload"]["arguments"] = json!(vec![1; 100]);
    assert_eq!(warnings(&body).len(), 20);
    let event = event(&body.to_string());
    assert_eq!(event.facts.get("warning_count").and_then(|count| count.as_u64()), Some(100));
}

#[test]
fn a_very_large_event_is_checked_but_only_its_first_violation_is_listed() {
    let mut body = valid(V19, "mode");
    body["envelope"]["payload"]["arguments"] = json!(vec![1; 20_000]);
    assert_eq!(
        warnings(&body),
        [
            "envelope.payload.arguments.0 must be of type object",
            "envelope is too large to look for more violations"
        ]
    );
    assert!(!is_strictly_valid(&body));
    body["envelope"]["payload"]["arguments"] = json!(vec![json!({"type": "x", "value": 1}); 2_000]);
    assert_eq!(warnings(&body), [""; 0]);
}

#[test]
fn the_rules_of_the_published_schemas_are_complete() {
    let callback = |summary: Value| json!({"name": "x", "payload_summary": summary});
    let place = "/payload/script_callback";
    for version in [V19, V20] {
        keeps(version, "lifecycle", place, callback(summary()));
        let of_type = "envelope.payload.script_callback.payload_summary must be of type object";
        breaks(version, "lifecycle", place, callback(json!(1)), of_type);
        let negative = json!({"arguments_count": -1, "arguments": []});
        let count =
            "envelope.payload.script_callback.payload_summary.arguments_count must be at least 0";
        breaks(version, "lifecycle", place, callback(negative), count);
    }
    let mut combat = combat_payload();
    combat["dimensions"]["shooter_position"]["w"] = json!(1);
    let mut body = valid(V19, "combat");
    body["envelope"]["payload"] = combat;
    assert_eq!(warnings(&body).len(), 1, "{:?}", warnings(&body));
    assert!(!is_strictly_valid(&body));

    for (part, member) in [
        ("state_delta", "is_referee"),
        ("permission_signals", "can_admin_actions"),
        ("roster_snapshot", "spectators"),
    ] {
        let mut body = valid(V20, "player");
        assert!(is_strictly_valid(&body));
        body["envelope"]["payload"][part].as_object_mut().unwrap().remove(member);
        let missing = format!("envelope.payload.{part}.{member} is missing");
        assert_eq!(warnings(&body), [missing]);
        assert!(!is_strictly_valid(&body));
    }
    breaks(
        V20,
        "player",
        "/payload/player",
        json!(5),
        "envelope.payload.player must be of type object",
    );
}
