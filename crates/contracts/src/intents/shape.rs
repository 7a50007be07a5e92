//! The shape of a packet: what must be there and of which type. Unknown members are kept.

use admit_core::json::{Object, Value};

use super::loose::is_blank;

/// Most broken rules that are told.
const TOLD_MAX: usize = 20;

/// Optional members that are texts.
const TEXTS: [&str; 9] = [
    "intent_type",
    "intent_id",
    "correlation_id",
    "conversation_id",
    "message_id",
    "natural_language",
    "source",
    "timestamp",
    "actor_id",
];

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// Where, as a JSON pointer.
    pub(super) field: &'static str,
    /// What is wanted there.
    pub(super) message: String,
}

impl Broken {
    pub(super) fn object(self) -> Object<'static> {
        Object::from_iter([("field", self.field.into()), ("message", self.message.into())])
    }
}

/// A member that is there; `null` is as good as nothing.
pub(super) fn given<'o, 'a>(object: &'o Object<'a>, name: &str) -> Option<&'o Value<'a>> {
    object.get(name).filter(|value| !value.is_null())
}

/// The text of a member, unless it is empty or missing.
pub(super) fn text<'o>(object: &'o Object<'_>, name: &str) -> Option<&'o str> {
    given(object, name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

/// The version a packet has, if it is not one we speak.
pub(super) fn unknown_version<'o, 'a>(packet: &'o Object<'a>) -> Option<&'o Value<'a>> {
    let version = packet.get("schema_version").filter(|version| !is_blank(version));
    version.filter(|version| version.as_str() != Some("v1"))
}

/// Every rule that `packet` breaks, the first few of them.
pub(super) fn broken(packet: &Object<'_>) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut want = |field, is_right: bool, wanted: &str, found: Option<&Value<'_>>| {
        if !is_right && broken.len() < TOLD_MAX {
            let found = found.map_or("nothing", Value::kind);
            broken.push(Broken { field, message: format!("must be {wanted}, is {found}") });
        }
    };
    let kind = packet.get("kind");
    want("/kind", kind.and_then(Value::as_str) == Some("intent"), "the text \"intent\"", kind);
    for (name, pointer) in TEXTS.into_iter().zip(POINTERS) {
        let value = given(packet, name);
        want(pointer, value.is_none_or(|value| value.as_str().is_some()), "a text", value);
    }
    let confidence = given(packet, "confidence");
    let may_be_number =
        confidence.is_none_or(|value| value.as_f64().is_some() || value.as_str().is_some());
    want("/confidence", may_be_number, "a number", confidence);
    let fields = given(packet, "fields");
    want("/fields", fields.is_none_or(Value::is_object), "an object", fields);
    // A target that is no object counts as absent.
    if let Some(target) = given(packet, "target").and_then(Value::as_object) {
        let kind = given(target, "kind");
        let is_text = kind.is_some_and(|kind| kind.as_str().is_some());
        want("/target/kind", is_text, "a text", kind);
        let key = given(target, "key");
        want("/target/key", key.is_none_or(|key| key.as_str().is_some()), "a text", key);
    }
    broken
}

/// The pointers of [`TEXTS`], in the same order.
const POINTERS: [&str; 9] = [
    "/intent_type",
    "/intent_id",
    "/correlation_id",
    "/conversation_id",
    "/message_id",
    "/natural_language",
    "/source",
    "/timestamp",
    "/actor_id",
];

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};

    use super::*;

    fn fields(packet: &str) -> Vec<&'static str> {
        let value = parse(packet.as_bytes(), &Limits::default()).unwrap();
        broken(value.as_object().unwrap()).into_iter().map(|broken| broken.field).collect()
    }

    #[test]
    fn a_pointer_names_its_member() {
        for (name, pointer) in TEXTS.iter().zip(POINTERS) {
            assert_eq!(format!("/{name}"), pointer);
        }
    }

    #[test]
    fn a_version_of_nothing_is_none() {
        for (text, is_unknown) in [
            (r#"{"schema_version":""}"#, false),
            (r#"{"schema_version":0}"#, false),
            (r#"{"schema_version":false}"#, false),
            (r#"{"schema_version":null}"#, false),
            (r#"{"schema_version":"v1"}"#, false),
            (r#"{"schema_version":1}"#, true),
            (r#"{"schema_version":" "}"#, true),
            (r#"{"schema_version":[]}"#, true),
        ] {
            let value = parse(text.as_bytes(), &Limits::default()).unwrap();
            let found = unknown_version(value.as_object().unwrap()).is_some();
            assert_eq!(found, is_unknown, "{text}");
        }
    }

    #[test]
    fn every_broken_rule_is_told_and_unknown_members_are_none() {
        assert_eq!(fields(r#"{"kind":"intent","x":[1],"fields":null}"#), [""; 0]);
        assert_eq!(fields("{}"), ["/kind"]);
        assert_eq!(
            fields(r#"{"kind":"x","source":1,"confidence":[],"fields":[],"target":{"key":2}}"#),
            ["/kind", "/source", "/confidence", "/fields", "/target/kind", "/target/key"]
        );
        assert_eq!(fields(r#"{"kind":"intent","confidence":true}"#), ["/confidence"]);
        let loose = r#"{"kind":"intent","confidence":"high","target":"list","request_id":[1]}"#;
        assert_eq!(fields(loose), [""; 0]);
    }
}
