//! JSON Schemas by version: what an event of that version must look like.

use std::fmt;

use admit_core::json::Value;

use crate::schema::{EmptyArray, Schema};
use crate::text::{VIOLATION_CHARS_MAX, bounded};

/// For events that name no version, or one that is not listed.
const ANY: &str = "*";

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
pub(super) struct Schemas(Vec<(String, Schema)>);

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
            let schema = Schema::compile(&schema, EmptyArray::Array).map_err(unusable)?;
            Ok((version.clone(), schema))
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
        let Some((_, schema)) = found else {
            return Err(match version {
                Some(version) => Unfit::UnknownVersion(bounded(version, VIOLATION_CHARS_MAX)),
                None => Unfit::NoVersion,
            });
        };
        schema.told(value).map_or(Ok(()), |told| Err(Unfit::Violations(told)))
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
