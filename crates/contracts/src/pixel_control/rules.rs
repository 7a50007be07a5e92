//! Category rules: name, payload and metadata of an event, by category.
//!
//! They are JSON Schema files, compiled once. A setting decides whether a violation rejects the
//! event or is only recorded on its receipt; the real producer violates these rules every day.

use std::sync::LazyLock;

use admit_core::json::Value;
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};

use super::enums::{Category, SchemaVersion};
use super::violations::Violations;
use crate::schema::{CompiledSchema, EmptyArray};

/// Canonical size of an envelope, in bytes, above which only the first violation is reported: a
/// hostile envelope could contain a violation in every other byte, and each costs memory.
pub(super) const ALL_VIOLATIONS_BYTES_MAX: usize = 16 * 1024;

/// Compiled rules.
pub(super) struct CategoryRules {
    /// One schema per version and category, in the order of their `ALL`.
    schemas: Vec<(SchemaVersion, Category, CompiledSchema)>,
}

static RULES: LazyLock<CategoryRules> = LazyLock::new(CategoryRules::compile);

impl CategoryRules {
    /// Returns the rules, compiled on the first call.
    pub(super) fn get() -> &'static Self {
        &RULES
    }

    fn compile() -> Self {
        let pairs = SchemaVersion::ALL.into_iter().flat_map(|version| {
            let document = document(version);
            Category::ALL.map(|category| (version, category, compile(&document, category)))
        });
        Self { schemas: pairs.collect() }
    }

    /// Returns the violations of `envelope` against the rules of its version and category.
    ///
    /// The ten fields themselves have been checked before. `bytes` is its approximate size.
    pub(super) fn violations(
        &self,
        version: SchemaVersion,
        category: Category,
        envelope: &Value<'_>,
        bytes: usize,
    ) -> Violations {
        let mut violations = Violations::default();
        let of_this = |(v, c, _): &&(SchemaVersion, Category, _)| *v == version && *c == category;
        let Some((_, _, schema)) = self.schemas.iter().find(of_this) else { return violations };
        let checked = schema.when_invalid(envelope, |validator, envelope| {
            if bytes <= ALL_VIOLATIONS_BYTES_MAX {
                for error in validator.iter_errors(envelope) {
                    violations.add(|| describe_violation(&error));
                }
            } else if let Err(error) = validator.validate(envelope) {
                violations.add(|| describe_violation(&error));
                violations.add(|| "envelope is too large to look for more violations".to_owned());
            }
        });
        if let Err(stopped) = checked {
            violations.add(|| format!("envelope {}", stopped.message()));
        }
        violations
    }
}

/// Schema document of one version.
fn document(version: SchemaVersion) -> serde_json::Value {
    let text = match version {
        SchemaVersion::V2026_02_19_1 => {
            include_str!("../../schemas/pixel-control/2026-02-19.1.json")
        }
        SchemaVersion::V2026_02_20_1 => {
            include_str!("../../schemas/pixel-control/2026-02-20.1.json")
        }
    };
    serde_json::from_str(text).expect("the schema files are part of the build and tested")
}

fn compile(document: &serde_json::Value, category: Category) -> CompiledSchema {
    let mut schema = document.clone();
    schema["$ref"] = format!("#/$defs/{}", category.as_str()).into();
    CompiledSchema::compile(&schema, EmptyArray::ArrayOrObject)
        .expect("the schema files are part of the build and tested")
}

/// Renders one violation for this contract's replies: path first, then the rule.
fn describe_violation(error: &ValidationError<'_>) -> String {
    let path = format!("envelope{}", error.instance_path().as_str().replace('/', "."));
    let kind = error.kind();
    if let ValidationErrorKind::Required { property } = kind {
        let property = property.as_str().unwrap_or_default();
        format!("{path}.{property} is missing")
    } else if let ValidationErrorKind::AdditionalProperties { unexpected } = kind {
        format!("{path} has unknown fields: {}", unexpected.join(", "))
    } else if let ValidationErrorKind::Constant { expected_value } = kind {
        format!("{path} must be {expected_value}")
    } else if let ValidationErrorKind::Enum { .. } = kind {
        format!("{path} is not one of the values this schema version lists")
    } else if let ValidationErrorKind::Type { kind: TypeKind::Single(expected) } = kind {
        format!("{path} must be of type {expected}")
    } else if let ValidationErrorKind::Minimum { limit } = kind {
        format!("{path} must be at least {limit}")
    } else if let ValidationErrorKind::MinLength { .. } = kind {
        format!("{path} must not be empty")
    } else {
        format!("{path}: {}", error.masked())
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};

    use super::*;

    #[test]
    fn every_version_and_category_has_its_rules() {
        for version in SchemaVersion::ALL {
            for category in Category::ALL {
                let envelope = parse(br#"{"event_name":"x"}"#, &Limits::default()).unwrap();
                let violations = CategoryRules::get().violations(version, category, &envelope, 0);
                assert_eq!(
                    violations.message(),
                    "envelope.event_name is not one of the values this schema version lists"
                );
            }
        }
    }

    #[test]
    fn the_catalog_of_either_version_has_41_names() {
        for version in SchemaVersion::ALL {
            let document = document(version);
            let names = Category::ALL.map(|category| {
                let list =
                    &document["$defs"][category.as_str()]["properties"]["event_name"]["enum"];
                let names = list.as_array().unwrap();
                let prefix = format!("pixel_control.{}.", category.as_str());
                assert!(names.iter().all(|name| name.as_str().unwrap().starts_with(&prefix)));
                names.len()
            });
            assert_eq!(names, [2, 21, 4, 6, 8]);
        }
    }

    /// An empty array is accepted as an object only where `type` is a single name.
    #[test]
    fn no_type_list_names_object() {
        fn check(value: &serde_json::Value) {
            if let Some(types) = value["type"].as_array() {
                assert!(types.iter().all(|word| word != "object"), "{value}");
            }
            value.as_array().into_iter().flatten().for_each(check);
            value.as_object().into_iter().flat_map(serde_json::Map::values).for_each(check);
        }
        SchemaVersion::ALL.map(document).iter().for_each(check);
    }
}
