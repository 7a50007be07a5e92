//! Hard rules, field by field; the hand-written checks are compared with the published schema.

use std::sync::LazyLock;

use admit_core::{Code, Entry};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{CATEGORIES, event, reason, refused, sample, vet};

/// Rejection of a body whose part `path` is replaced by `value`, or removed if `None`.
fn reason_with(path: &str, value: Option<Value>) -> String {
    let mut body = sample();
    let (parent, name) = path.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => parent.insert(name.to_owned(), value),
        None => parent.remove(name),
    };
    reason(&body.to_string())
}

fn accepts(path: &str, value: Value) {
    let mut body = sample();
    *body.pointer_mut(path).unwrap() = value;
    event(&body.to_string());
}

const EVENT_NAME: &str = "a string that matches ^pixel_control\\.(connectivity|lifecycle|player|combat|mode)\\.[a-z0-9]+(?:_[a-z0-9]+)*$";
const EVENT_ID: &str = "a string that matches ^pc-evt-(connectivity|lifecycle|player|combat|mode)-[a-z0-9]+(?:_[a-z0-9]+)*-[1-9][0-9]*$";
const IDEMPOTENCY_KEY: &str = "a string that matches ^pc-idem-[a-f0-9]{40}$";

/// Field, its rule, and values that violate it; `null` and absence are tried for all.
type Rule = (&'static str, &'static str, Vec<Value>);

fn texts(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| json!(text)).chain([json!(1), json!({}), json!(true)]).collect()
}

fn text_rules() -> Vec<Rule> {
    let names = [
        "",
        "pixel_control.lifecycle",
        "pixel_control.lifecycle.",
        "pixel_control.batch.x",
        "pixel_control.lifecycle.BeginMatch",
        "pixel_control.lifecycle.a__b",
        "pixel_control.lifecycle.a.b",
        "pixel_control.lifecycle.a\n",
        " pixel_control.lifecycle.a",
        "other.lifecycle.a",
    ];
    let ids = [
        "pc-evt-lifecycle-a",
        "pc-evt-lifecycle-a-",
        "pc-evt-lifecycle-a-0",
        "pc-evt-lifecycle-a-01",
        "pc-evt-lifecycle-a-1x",
        "pc-evt-lifecycle--1",
        "pc-evt-lifecycle-a-b-1",
        "pc-evt-batch-a-1",
        "evt-lifecycle-a-1",
    ];
    let keys = [("a", 39), ("a", 41), ("A", 40), ("g", 40), ("", 0)]
        .map(|(digit, count)| format!("pc-idem-{}", digit.repeat(count)));
    let categories = "one of connectivity, lifecycle, player, combat, mode";
    let modes = "one of none, bearer, api_key";
    vec![
        ("envelope.event_name", EVENT_NAME, texts(&names)),
        ("envelope.event_id", EVENT_ID, texts(&ids)),
        ("envelope.event_category", categories, texts(&["batch", "Mode", ""])),
        ("envelope.source_callback", "a string that is not empty", texts(&[""])),
        ("envelope.idempotency_key", IDEMPOTENCY_KEY, texts(&keys.each_ref().map(String::as_str))),
        ("transport.auth_mode", modes, texts(&["basic", "", "None"])),
    ]
}

fn other_rules() -> Vec<Rule> {
    let at_least_1 = || vec![json!(0), json!(-1), json!(1.5), json!("1"), json!(true), json!([])];
    let at_least_0 = || vec![json!(-1), json!(-1.0), json!(0.5), json!("0"), json!({})];
    let not_object = || vec![json!("{}"), json!([1]), json!([[]]), json!(0), json!(false)];
    vec![
        ("envelope.source_sequence", "an integer of at least 1", at_least_1()),
        ("envelope.source_time", "an integer of at least 0", at_least_0()),
        ("envelope.payload", "an object", not_object()),
        ("envelope.metadata", "an object", not_object()),
        ("transport.attempt", "an integer of at least 1", at_least_1()),
        ("transport.max_attempts", "an integer of at least 1", at_least_1()),
        ("transport.retry_backoff_ms", "an integer of at least 0", at_least_0()),
        ("body.envelope", "an object", not_object()),
        ("body.transport", "an object", not_object()),
    ]
}

#[test]
fn every_field_is_held_to_its_rule_and_the_message_names_both() {
    for (field, rule, values) in text_rules().into_iter().chain(other_rules()) {
        let path = format!("/{}", field.trim_start_matches("body.").replace('.', "/"));
        let missing = reason_with(&path, None);
        assert_eq!(missing, format!("invalid_envelope: {field} is missing"));
        for value in values.into_iter().chain([Value::Null]) {
            let reason = reason_with(&path, Some(value.clone()));
            assert_eq!(reason, format!("invalid_envelope: {field} must be {rule}"), "{value}");
        }
    }
}

#[test]
fn an_unreadable_schema_version_is_an_ordinary_violation() {
    let path = "/envelope/schema_version";
    assert_eq!(reason_with(path, None), "invalid_envelope: envelope.schema_version is missing");
    for value in [json!(null), json!(20_260_219), json!(["2026-02-19.1"])] {
        assert_eq!(
            reason_with(path, Some(value)),
            "invalid_envelope: envelope.schema_version must be a known version"
        );
    }
}

#[test]
fn an_unknown_version_has_the_contracts_message() {
    assert_eq!(
        reason_with("/envelope/schema_version", Some(json!("2026-02-19.2"))),
        "schema_version_unsupported: schema_version 2026-02-19.2 is not supported"
    );
    assert_eq!(
        reason_with("/envelope/schema_version", Some(json!(""))),
        "schema_version_unsupported: an empty schema_version is not supported"
    );
}

#[test]
fn an_unknown_version_wins_over_everything_else_about_the_envelope() {
    let mut body = sample();
    body["envelope"] = json!({"schema_version": "2027-01-01.1", "event_id": 7, "new": true});
    assert_eq!(
        reason(&body.to_string()),
        "schema_version_unsupported: schema_version 2027-01-01.1 is not supported"
    );
}

#[test]
fn the_request_fields_are_checked_before_the_version() {
    let mut body = sample();
    body["envelope"]["schema_version"] = json!("2027-01-01.1");
    body["transport"]["attempt"] = json!(0);
    assert_eq!(
        reason(&body.to_string()),
        "invalid_envelope: transport.attempt must be an integer of at least 1"
    );
}

#[test]
fn closed_objects_take_no_further_fields() {
    for path in ["", "/envelope", "/transport"] {
        let name = if path.is_empty() { "body" } else { &path[1..] };
        assert_eq!(
            reason_with(&format!("{path}/extra"), Some(json!(1))),
            format!("invalid_envelope: {name} has an unknown field \"extra\"")
        );
    }
}

#[test]
fn unknown_fields_are_listed_and_then_counted() {
    let mut body = sample();
    for number in 0..5 {
        body["envelope"][format!("k{number}")] = json!(number);
    }
    let named = [0, 1, 2].map(|number| format!("envelope has an unknown field \"k{number}\""));
    let expected = format!("invalid_envelope: {}; and 2 more", named.join("; "));
    assert_eq!(reason(&body.to_string()), expected);
    // A repeated field counts once.
    let again = body.to_string().replace("\"k1\":1", "\"k1\":1,\"k1\":2");
    assert_eq!(reason(&again), expected);
}

#[test]
fn all_violations_are_counted_in_one_reply() {
    let mut body = sample();
    body["envelope"] = json!({"schema_version": "2026-02-19.1"});
    assert_eq!(
        reason(&body.to_string()),
        "invalid_envelope: envelope.event_name is missing; envelope.event_id is missing; \
         envelope.event_category is missing; and 6 more"
    );
}

#[test]
fn an_empty_array_is_an_empty_object() {
    accepts("/envelope/payload", json!([]));
    accepts("/envelope/metadata", json!([]));
    assert_eq!(
        reason_with("/transport", Some(json!([]))),
        "invalid_envelope: transport.attempt is missing; transport.max_attempts is missing; \
         transport.retry_backoff_ms is missing; and 1 more"
    );
    assert_eq!(
        reason("[]"),
        "invalid_envelope: body.envelope is missing; body.transport is missing"
    );
}

#[test]
fn json_other_than_an_object_is_an_invalid_envelope() {
    for body in ["null", "1", "\"{}\"", "[1]", "true"] {
        assert_eq!(reason(body), "invalid_envelope: body must be an object");
    }
}

#[test]
fn malformed_json_is_invalid_json() {
    for body in ["", "{", "{]", "nope", "{\"envelope\":NaN}", "{} {}", "\u{feff}{}", "{'a':1}"] {
        let refused = refused(body);
        assert_eq!(refused.code, Code::InvalidJson, "{body}");
        assert!(refused.message.starts_with("body is not json: "), "{}", refused.message);
        assert!(refused.facts.is_empty());
        assert_eq!(refused.attempt, None);
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert_eq!(refused(&deep).code, Code::InvalidJson);
}

#[test]
fn an_integer_may_be_written_as_a_float_or_be_very_large() {
    for path in ["/envelope/source_sequence", "/envelope/source_time", "/transport/max_attempts"] {
        accepts(path, json!(1.0));
        accepts(path, json!(1e300));
    }
    let huge = super::SAMPLE.replace("1739980000001,", "123456789012345678901234567890,");
    let event = event(&huge);
    assert_eq!(
        event.facts.get("source_sequence"),
        Some(&admit_core::json::Value::Int("123456789012345678901234567890".into()))
    );
}

#[test]
fn nothing_ties_the_fields_to_each_other() {
    accepts("/envelope/event_category", json!("mode"));
    accepts("/envelope/event_id", json!("pc-evt-combat-other-7"));
    accepts("/envelope/idempotency_key", json!(format!("pc-idem-{}", "0".repeat(40))));
    accepts("/transport/attempt", json!(9));
}

#[test]
fn of_repeated_keys_the_last_counts() {
    let twice = super::SAMPLE.replace(
        "\"event_category\": \"lifecycle\"",
        "\"event_category\": 7, \"event_category\": \"lifecycle\"",
    );
    assert_eq!(event(&twice).digest, event(super::SAMPLE).digest);
    let twice = super::SAMPLE.replace(
        "\"event_category\": \"lifecycle\"",
        "\"event_category\": \"lifecycle\", \"event_category\": 7",
    );
    assert!(reason(&twice).contains("envelope.event_category must be one of"));
}

/// Values near the limits of the rules.
fn any_value() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        prop::sample::select(CATEGORIES.to_vec()).prop_map(str::to_owned),
        "(pixel_control|other)\\.(mode|player|batch)\\.[a-z0-9_]{0,6}(\\.|-|\n)?",
        "pc-evt-(mode|player|batch)-[a-z0-9_]{0,4}-[0-9]{0,3}(-1|x)?",
        "pc-idem-[a-f0-9]{39,41}",
        "pc-idem-[a-g0-9]{40}",
        "2026-02-(19|20)\\.[12]",
        prop::sample::select(vec!["none", "bearer", "api_key", ""]).prop_map(str::to_owned),
    ];
    prop_oneof![
        8 => word.prop_map(Value::String),
        2 => prop::sample::select(vec![
            json!(null), json!(0), json!(1), json!(-1), json!(1.0), json!(0.0), json!(1.5),
            json!(u64::MAX), json!(true), json!({}), json!({"a": []}), json!([1]),
        ]),
    ]
}

static PUBLISHED: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let schema = include_str!("../../../schemas/pixel-control/request.json");
    jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
});

/// Every field of the sample, and an unknown one in each closed object.
static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut paths = vec!["/extra".to_owned()];
    for part in ["/envelope", "/transport"] {
        let body = sample();
        let fields = body.pointer(part).unwrap().as_object().unwrap();
        paths.extend(fields.keys().map(|name| format!("{part}/{name}")));
        paths.push(format!("{part}/extra"));
    }
    paths
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// `request.json` is the published form of the hard rules; the code must agree with it.
    #[test]
    fn the_code_matches_the_request_schema(
        changes in prop::collection::vec((0usize..17, any_value(), any::<bool>()), 1..3),
    ) {
        let mut body = sample();
        for (at, value, keep) in changes {
            let path = &PATHS[at];
            let (parent, name) = path.rsplit_once('/').unwrap();
            let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            if keep {
                parent.insert(name.to_owned(), value);
            } else {
                parent.remove(name);
            }
        }
        let accepted = matches!(vet(&body.to_string()), Entry::Event(_));
        prop_assert_eq!(accepted, PUBLISHED.is_valid(&body), "{}", body);
    }
}
