//! JSON Schemas of a stream, by schema version.

use std::fmt;

use admit_core::json::Value;

use crate::schema::{CompiledSchema, EmptyArray};
use crate::text::{VIOLATION_CHARS_MAX, bounded};

/// Version key for events without a version, or with one that is not listed.
const ANY: &str = "*";

/// Schema that does not compile.
#[derive(Debug, thiserror::Error)]
#[error("the schema of version {version:?} cannot be used: {message}")]
pub struct SchemaError {
    /// Version of the schema.
    pub version: String,
    /// Compile error.
    pub message: String,
}

/// Compiled schemas of a stream.
pub(super) struct Schemas(Vec<(String, CompiledSchema)>);

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(version, _)| version)).finish()
    }
}

/// Schema validation error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SchemaMismatch {
    /// The event's version is not listed.
    UnknownVersion(String),
    /// The event has no version, and no schema covers such events.
    NoVersion,
    /// The event violates the schema of its version: the first few violations.
    Violations(Vec<String>),
}

impl Schemas {
    pub(super) fn compile(schemas: &[(String, String)]) -> Result<Self, SchemaError> {
        let compiled = schemas.iter().map(|(version, text)| {
            let unusable = |message: String| SchemaError { version: version.clone(), message };
            let schema: serde_json::Value =
                serde_json::from_str(text).map_err(|error| unusable(error.to_string()))?;
            let schema = CompiledSchema::compile(&schema, EmptyArray::Array).map_err(unusable)?;
            Ok((version.clone(), schema))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks `value` against the schema of `version`.
    pub(super) fn check(
        &self,
        version: Option<&str>,
        value: &Value<'_>,
    ) -> Result<(), SchemaMismatch> {
        let of = |version: &str| self.0.iter().find(|(known, _)| known == version);
        let found = version.and_then(of).or_else(|| of(ANY));
        let Some((_, schema)) = found else {
            return Err(match version {
                Some(version) => {
                    SchemaMismatch::UnknownVersion(bounded(version, VIOLATION_CHARS_MAX))
                }
                None => SchemaMismatch::NoVersion,
            });
        };
        schema
            .violations(value)
            .map_or(Ok(()), |violations| Err(SchemaMismatch::Violations(violations)))
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};

    use super::*;

    fn check(
        version: Option<&str>,
        body: &str,
        schemas: &[(&str, &str)],
    ) -> Result<(), SchemaMismatch> {
        let owned: Vec<_> =
            schemas.iter().map(|(v, text)| ((*v).to_owned(), (*text).to_owned())).collect();
        let schemas = Schemas::compile(&owned).unwrap();
        schemas.check(version, &parse(body.as_bytes(), &Limits::default()).unwrap())
    }

    const ONE: (&str, &str) =
        ("1", r#"{"type":"object","required":["id"],"properties":{"id":{"type":"integer"}}}"#);

    #[test]
    fn an_event_must_satisfy_the_schema_of_its_version() {
        assert_eq!(check(Some("1"), r#"{"id":99999999999999999999}"#, &[ONE]), Ok(()));
        let Err(SchemaMismatch::Violations(violations)) =
            check(Some("1"), r#"{"id":"hush"}"#, &[ONE])
        else {
            panic!("a violation was expected")
        };
        assert_eq!(violations, [r#"/id: value is not of type "integer""#]);
    }

    #[test]
    fn an_unlisted_version_is_refused_unless_there_is_a_schema_for_the_rest() {
        assert_eq!(
            check(Some("2"), "{}", &[ONE]),
            Err(SchemaMismatch::UnknownVersion("2".to_owned()))
        );
        assert_eq!(check(None, "{}", &[ONE]), Err(SchemaMismatch::NoVersion));
        assert_eq!(check(Some("2"), "{}", &[ONE, ("*", "{}")]), Ok(()));
        assert_eq!(check(None, "{}", &[("*", "{}")]), Ok(()));
    }

    #[test]
    fn an_invalid_schema_is_named_in_the_error() {
        for text in ["{", r#"{"type":"objekt"}"#, r#"{"$ref":"http://127.0.0.1:1/x.json"}"#] {
            let error = Schemas::compile(&[("7".to_owned(), text.to_owned())]).unwrap_err();
            assert!(error.to_string().starts_with("the schema of version \"7\""), "{error}");
        }
    }
}
