//! Property tests of derived names.

use admit_contracts::ingestion_gate::enums::ReceiptDecision;
use admit_contracts::ingestion_gate::names::{self, ArtifactName};
use admit_core::json::{self, Limits, Object, Value};
use proptest::prelude::*;

fn name<'a>(class: &'a str, reason: &'a str, payload_hash: &'a str) -> ArtifactName<'a> {
    let decision = ReceiptDecision::Quarantine;
    ArtifactName { decision, event_id: "e", class, reason, payload_hash }
}

#[test]
fn the_first_artifact_has_the_short_id_and_every_other_one_its_own() {
    let first = name("a", "R", "1");
    assert_eq!(first.id(None), first.short());
    assert_eq!(first.id(Some(&first.long())), first.short(), "it is there already");
    for other in [name("b", "R", "1"), name("a", "S", "1"), name("a", "R", "2")] {
        assert_eq!(other.short(), first.short());
        assert_eq!(other.id(Some(&first.long())), other.long());
        assert_ne!(other.long(), first.long());
        assert_eq!(other.long().len(), 32);
    }
}

#[test]
fn a_partition_is_named_by_the_value_as_python_prints_it() {
    let key = |text: &str| {
        names::partition_key(&json::parse(text.as_bytes(), &Limits::default()).unwrap())
    };
    assert_eq!(key("1001"), key(r#""1001""#), "a number and its digits");
    assert_eq!(key("true"), key(r#""True""#));
    assert_eq!(key("1.0"), key(r#""1.0""#));
    assert_ne!(key("1"), key("1.0"));
    assert_eq!(key("[1]"), key("[ 1 ]"));
}

#[test]
fn absent_and_null_hash_the_same_and_pins_do_not_matter() {
    let hash = |text: &str| {
        let value = json::parse(text.as_bytes(), &Limits::default()).unwrap();
        names::payload_hash(value.as_object().unwrap())
    };
    let plain = hash(r#"{"event_type":"t","payload":{"a":1}}"#);
    assert_eq!(plain, hash(r#"{"payload":{"a":1},"event_type":"t","schema_version":null}"#));
    assert_eq!(plain, hash(r#"{"event_type":"t","payload":{"a":1},"ts_utc":"x","seed":9}"#));
    assert_eq!(plain, hash(r#"{"event_type":"t","payload":{"a":2},"payload":{"a":1}}"#));
    for other in [
        r#"{"event_type":"t","payload":{"a":1.0}}"#,
        r#"{"event_type":"t","payload":{"a":1},"schema_version":"v1"}"#,
        r#"{"event_type":"u","payload":{"a":1}}"#,
        r#"{"event_type":"t"}"#,
    ] {
        assert_ne!(plain, hash(other), "{other}");
    }
}

fn any_json() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i128>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((any::<String>(), inner), 0..5)
                .prop_map(|entries| entries.into_iter().collect::<Object<'_>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn the_canonical_form_is_ascii_and_lossless(value in any_json()) {
        let canonical = names::canonical(&value);
        prop_assert!(canonical.iter().all(|byte| (0x20..0x7f).contains(byte)));
        let read = json::parse(&canonical, &Limits::default()).unwrap();
        prop_assert_eq!(names::canonical(&read), canonical);
    }

    #[test]
    fn the_payload_hash_is_that_of_the_three_members(
        event_type in any_json(), payload in any_json(), more in any_json(),
    ) {
        let three = Object::from_iter([
            ("payload", payload.clone()),
            ("schema_version", Value::Null),
            ("event_type", event_type.clone()),
        ]);
        let sent = Object::from_iter([
            ("trace_id", more), ("event_type", event_type), ("payload", payload),
        ]);
        let whole = admit_core::Digest::of(&names::canonical(&three.into()));
        prop_assert_eq!(names::payload_hash(&sent), whole);
    }

    #[test]
    fn the_parts_of_a_dedupe_key_are_joined_by_colons(
        run in "[a-z0-9_]{1,8}", class in "[a-z_]{1,8}", id in "[a-z0-9]{1,8}",
    ) {
        let joined = admit_core::hash::sha256_hex(format!("{run}:{class}:{id}").as_bytes());
        prop_assert_eq!(names::dedupe_key(&run, &class, &id), joined);
    }
}
