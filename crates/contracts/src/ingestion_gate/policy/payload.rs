//! Payload schemas: JSON Schema plus `nullable`.

use admit_core::json::Value;
use serde_json::{Value as Json, json};

use super::{PolicyError, PolicyFile, read};
use crate::schema::{self, EmptyArray, to_serde};

/// URI of a schema document inside the schema that points into it.
const DOCUMENT: &str = "admit:payload-schema";

/// Longest description of the violations of one payload, in characters.
const DESCRIPTION_CHARS_MAX: usize = 1_000;

/// Schema documents by path.
pub(super) struct SchemaDocuments(Vec<(String, Json)>);

/// Compiled schema.
#[derive(Debug)]
pub(super) struct PayloadSchema(schema::CompiledSchema);

/// Splits `path#pointer`.
pub(super) fn split(reference: &str) -> (&str, &str) {
    reference.split_once('#').unwrap_or((reference, ""))
}

impl SchemaDocuments {
    pub(super) fn read(files: &[PolicyFile], errors: &mut Vec<PolicyError>) -> Self {
        let mut documents = Vec::new();
        for file in files {
            match read(file) {
                Ok(node) => {
                    let mut document = to_serde(&node.to_value());
                    apply_nullable(&mut document);
                    documents.push((file.path.clone(), document));
                }
                Err(error) => errors.push(error),
            }
        }
        Self(documents)
    }

    /// Compiles the schema at `path#pointer`.
    pub(super) fn compile(&self, reference: &str) -> Result<PayloadSchema, String> {
        let (path, pointer) = split(reference);
        let Some((_, document)) = self.0.iter().find(|(known, _)| known == path) else {
            return Err(format!("the payload schema {path} is missing"));
        };
        let schema = document.pointer(pointer);
        if !schema.is_some_and(|schema| schema.is_object() || schema.is_boolean()) {
            return Err(format!("{path} has no schema at {pointer:?}"));
        }
        let root = if pointer.is_empty() || !document.is_object() {
            document.clone()
        } else {
            // References inside the document must still resolve against the document.
            let mut document = document.clone();
            document["$id"] = DOCUMENT.into();
            json!({ "$ref": format!("{DOCUMENT}#{pointer}"), "$defs": { "document": document } })
        };
        schema::CompiledSchema::compile(&root, EmptyArray::Array)
            .map(PayloadSchema)
            .map_err(|error| format!("the payload schema {reference} cannot be used: {error}"))
    }
}

impl PayloadSchema {
    pub(super) fn check(&self, payload: &Value<'_>) -> Result<(), String> {
        let Some(violations) = self.0.violations(payload) else { return Ok(()) };
        let mut text = violations.join("; ");
        if let Some((end, _)) = text.char_indices().nth(DESCRIPTION_CHARS_MAX) {
            text.truncate(end);
        }
        Err(text)
    }
}

/// Adds `null` to the types of every schema with `nullable: true`.
fn apply_nullable(schema: &mut Json) {
    match schema {
        Json::Array(schemas) => schemas.iter_mut().for_each(apply_nullable),
        Json::Object(members) => {
            for (key, value) in members.iter_mut() {
                match (key.as_str(), value) {
                    // Data, not schemas.
                    ("enum" | "const" | "default" | "example" | "examples", _) => {}
                    (
                        "properties" | "patternProperties" | "dependentSchemas" | "$defs"
                        | "definitions",
                        Json::Object(schemas),
                    ) => schemas.values_mut().for_each(apply_nullable),
                    (_, value) => apply_nullable(value),
                }
            }
            if members.remove("nullable") != Some(Json::Bool(true)) {
                return;
            }
            let null = || Json::from("null");
            match members.get_mut("type") {
                Some(Json::Array(types)) if !types.contains(&null()) => types.push(null()),
                Some(kind @ Json::String(_)) if *kind != "null" => {
                    *kind = json!([kind.take(), "null"]);
                }
                _ => {}
            }
            if let Some(Json::Array(values)) = members.get_mut("enum") {
                values.push(Json::Null);
            }
            if !members.contains_key("type") && !members.contains_key("enum") {
                let inner = std::mem::take(members);
                *schema = json!({ "anyOf": [Json::Object(inner), { "type": "null" }] });
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(document: &str, pointer: &str) -> Result<PayloadSchema, String> {
        let mut errors = Vec::new();
        let file = PolicyFile::new("s.json", document.to_owned());
        let documents = SchemaDocuments::read(&[file], &mut errors);
        assert_eq!(errors, []);
        documents.compile(&format!("s.json#{pointer}"))
    }

    fn accepts(schema: &PayloadSchema, payload: &str) -> bool {
        let value = admit_core::json::parse(payload.as_bytes(), &Default::default()).unwrap();
        schema.check(&value).is_ok()
    }

    #[test]
    fn nullable_means_type_or_null_at_every_level() {
        let text = r#"{"properties":{
            "a":{"type":"string","nullable":true},
            "b":{"enum":["x"],"nullable":true},
            "c":{"const":1,"nullable":true},
            "nullable":{"type":"boolean"},
            "d":{"const":{"nullable":true}}}}"#;
        let schema = schema(text, "").unwrap();
        for good in [
            r#"{"a":null,"b":null,"c":null}"#,
            r#"{"a":"x","b":"x","c":1}"#,
            r#"{"nullable":true,"d":{"nullable":true}}"#,
        ] {
            assert!(accepts(&schema, good), "{good}");
        }
        for bad in [r#"{"a":1}"#, r#"{"b":"y"}"#, r#"{"nullable":null}"#, r#"{"d":{}}"#] {
            assert!(!accepts(&schema, bad), "{bad}");
        }
    }

    #[test]
    fn a_pointer_finds_its_schema_and_references_stay_in_their_document() {
        let text = r##"{"payloads":{"one":{"properties":{"n":{"$ref":"#/numbers/small"}}}},
                       "numbers":{"small":{"type":"integer","maximum":9}}}"##;
        let schema = schema(text, "/payloads/one").unwrap();
        assert!(accepts(&schema, r#"{"n":9}"#));
        assert!(!accepts(&schema, r#"{"n":10}"#));
    }

    #[test]
    fn an_invalid_schema_is_refused_with_a_reason() {
        assert!(schema(r#"{"a":1}"#, "/b").unwrap_err().contains("has no schema"));
        assert!(schema(r#"{"a":1}"#, "/a").unwrap_err().contains("has no schema"));
        let elsewhere = r#"{"a":{"$ref":"http://127.0.0.1:1/x.json"}}"#;
        assert!(schema(elsewhere, "/a").unwrap_err().contains("cannot be used"));
        assert!(schema(r#"{"type":"objekt"}"#, "").unwrap_err().contains("cannot be used"));
    }
}
