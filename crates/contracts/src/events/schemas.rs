//! JSON Schemas by version: what an event of that version must look like.

use std::fmt;

use admit_core::json::Value;
use jsonschema::Validator;

/// For events that name no version, or one that is not listed.
const ANY: &str = "*";

/// How many violations are told.
const TOLD_MAX: usize = 20;

/// Longest text of one violation, in characters.
const TEXT_CHARS_MAX: usize = 240;

/// A schema that is not one.
#[derive(Debug, thiserror::Error)]
#[error("the schema of version {version:?} cannot be used: {message}")]
pub struct SchemaError {
    /// Whose schema.
    pub version: String,
    /// Why not.
    pub message: String,
}

/// The compiled schemas of a stream.
pub(super) struct Schemas(Vec<(String, Validator)>);

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(version, _)| version)).finish()
    }
}

/// What is wrong with an event, as far as schemas can tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It names a version that is not listed.
    UnknownVersion(String),
    /// It names none, and there is no schema for such events.
    NoVersion,
    /// It breaks the rules of its version: the first few in words.
    Violations(Vec<String>),
}

impl Schemas {
    pub(super) fn compile(schemas: &[(String, String)]) -> Result<Self, SchemaError> {
        let compiled = schemas.iter().map(|(version, text)| {
            let unusable = |message: String| SchemaError { version: version.clone(), message };
            let schema: serde_json::Value =
                serde_json::from_str(text).map_err(|error| unusable(error.to_string()))?;
            let validator =
                jsonschema::validator_for(&schema).map_err(|error| unusable(error.to_string()))?;
            Ok((version.clone(), validator))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks `value` against the schema of `version`.
    pub(super) fn check(&self, version: Option<&str>, value: &Value<'_>) -> Result<(), Unfit> {
        let of = |version: &str| self.0.iter().find(|(known, _)| known == version);
        let found = version.and_then(of).or_else(|| of(ANY));
        let Some((_, validator)) = found else {
            return Err(match version {
                Some(version) => Unfit::UnknownVersion(bounded(version)),
                None => Unfit::NoVersion,
            });
        };
        let value = to_serde(value);
        if validator.is_valid(&value) {
            return Ok(());
        }
        let told = validator.iter_errors(&value).take(TOLD_MAX).map(|error| {
            let path = error.instance_path().as_str();
            // Values are the sender's own; a message that repeats them may be logged.
            bounded(&format!("{}: {}", if path.is_empty() { "/" } else { path }, error.masked()))
        });
        Err(Unfit::Violations(told.collect()))
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A copy for the validator. Numbers it cannot hold become the nearest it can.
fn to_serde(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(_) | Value::Float(_) => {
            let exact = value.as_u64().map(Into::into).or_else(|| value.as_i64().map(Into::into));
            let near = || {
                let number = value.as_f64().unwrap_or_default().clamp(f64::MIN, f64::MAX);
                serde_json::Number::from_f64(number).unwrap_or_else(|| 0.into())
            };
            serde_json::Value::Number(exact.unwrap_or_else(near))
        }
        Value::String(text) => text.as_ref().into(),
        Value::Array(elements) => elements.iter().map(to_serde).collect(),
        Value::Object(object) => object.iter().map(|(key, value)| (key, to_serde(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};

    use super::*;

    fn check(version: Option<&str>, body: &str, schemas: &[(&str, &str)]) -> Result<(), Unfit> {
        let owned: Vec<_> =
            schemas.iter().map(|(v, text)| ((*v).to_owned(), (*text).to_owned())).collect();
        let schemas = Schemas::compile(&owned).unwrap();
        schemas.check(version, &parse(body.as_bytes(), &Limits::default()).unwrap())
    }

    const ONE: (&str, &str) =
        ("1", r#"{"type":"object","required":["id"],"properties":{"id":{"type":"integer"}}}"#);

    #[test]
    fn an_event_keeps_the_rules_of_its_version() {
        assert_eq!(check(Some("1"), r#"{"id":99999999999999999999}"#, &[ONE]), Ok(()));
        let Err(Unfit::Violations(told)) = check(Some("1"), r#"{"id":"hush"}"#, &[ONE]) else {
            panic!("a violation was expected")
        };
        assert_eq!(told, [r#"/id: value is not of type "integer""#]);
    }

    #[test]
    fn an_unlisted_version_is_refused_unless_there_is_a_schema_for_the_rest() {
        assert_eq!(check(Some("2"), "{}", &[ONE]), Err(Unfit::UnknownVersion("2".to_owned())));
        assert_eq!(check(None, "{}", &[ONE]), Err(Unfit::NoVersion));
        assert_eq!(check(Some("2"), "{}", &[ONE, ("*", "{}")]), Ok(()));
        assert_eq!(check(None, "{}", &[("*", "{}")]), Ok(()));
    }

    #[test]
    fn a_schema_that_is_not_one_is_named() {
        for text in ["{", r#"{"type":"objekt"}"#, r#"{"$ref":"http://127.0.0.1:1/x.json"}"#] {
            let error = Schemas::compile(&[("7".to_owned(), text.to_owned())]).unwrap_err();
            assert!(error.to_string().starts_with("the schema of version \"7\""), "{error}");
        }
    }
}
