//! Validation of a packet: required members and types. Unknown members are stored.

use admit_core::json::{Object, Value};

use super::python_values::{is_blank, trimmed};

/// Maximum number of violations reported.
const VIOLATIONS_MAX: usize = 20;

/// Optional text members.
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

/// Violation of one rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PacketViolation {
    /// Location, as a JSON pointer.
    pub(super) field: &'static str,
    /// Expected value.
    pub(super) message: String,
}

impl PacketViolation {
    pub(super) fn object(self) -> Object<'static> {
        Object::from_iter([("field", self.field.into()), ("message", self.message.into())])
    }
}

/// Member that is present and not `null`.
pub(super) fn present<'o, 'a>(object: &'o Object<'a>, name: &str) -> Option<&'o Value<'a>> {
    object.get(name).filter(|value| !value.is_null())
}

/// Text of a member, unless it is empty or missing.
pub(super) fn text<'o>(object: &'o Object<'_>, name: &str) -> Option<&'o str> {
    present(object, name).and_then(Value::as_str).filter(|text| !trimmed(text).is_empty())
}

/// Version of a packet, if unsupported.
pub(super) fn unknown_version<'o, 'a>(packet: &'o Object<'a>) -> Option<&'o Value<'a>> {
    let version = packet.get("schema_version").filter(|version| !is_blank(version));
    version.filter(|version| version.as_str() != Some("v1"))
}

/// Returns the first violations in `packet`.
pub(super) fn violations(packet: &Object<'_>) -> Vec<PacketViolation> {
    let mut violations = Vec::new();
    let mut require = |field, is_right: bool, expected: &str, found: Option<&Value<'_>>| {
        if !is_right && violations.len() < VIOLATIONS_MAX {
            let found = found.map_or("nothing", Value::kind);
            violations.push(PacketViolation {
                field,
                message: format!("must be {expected}, is {found}"),
            });
        }
    };
    let kind = packet.get("kind");
    require("/kind", kind.and_then(Value::as_str) == Some("intent"), "the text \"intent\"", kind);
    for (name, pointer) in TEXTS.into_iter().zip(POINTERS) {
        let value = present(packet, name);
        require(pointer, value.is_none_or(|value| value.as_str().is_some()), "a text", value);
    }
    let confidence = present(packet, "confidence");
    let may_be_number =
        confidence.is_none_or(|value| value.as_f64().is_some() || value.as_str().is_some());
    require("/confidence", may_be_number, "a number", confidence);
    let fields = present(packet, "fields");
    require("/fields", fields.is_none_or(Value::is_object), "an object", fields);
    // A target that is not an object counts as absent.
    if let Some(target) = present(packet, "target").and_then(Value::as_object) {
        let kind = present(target, "kind");
        let is_text = kind.is_some_and(|kind| kind.as_str().is_some());
        require("/target/kind", is_text, "a text", kind);
        let key = present(target, "key");
        require("/target/key", key.is_none_or(|key| key.as_str().is_some()), "a text", key);
    }
    violations
}

/// JSON pointers of [`TEXTS`], in the same order.
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
        violations(value.as_object().unwrap())
            .into_iter()
            .map(|violation| violation.field)
            .collect()
    }

    #[test]
    fn a_pointer_names_its_member() {
        for (name, pointer) in TEXTS.iter().zip(POINTERS) {
            assert_eq!(format!("/{name}"), pointer);
        }
    }

    #[test]
    fn a_blank_version_counts_as_absent() {
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
    fn every_violation_is_listed_and_unknown_members_are_none() {
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
