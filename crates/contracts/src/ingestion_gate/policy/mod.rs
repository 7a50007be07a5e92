//! Policy: maps events to classes, validates payloads, and assigns streams and partition keys.
//!
//! It consists of three files, JSON or YAML, and the payload schemas they reference. All errors are
//! found at load time and reported together, each with its file and line; a policy that loads
//! covers every event. Its digest is on every receipt.
//!
//! This module does not read files: the caller passes their bytes, and the spelling of the paths is
//! part of the digest.

mod alignment;
mod class_map;
mod defaults;
mod json_text;
mod node;
mod partitioning;
mod payload;
mod reader;
mod schema_policy;
mod yaml;

use std::collections::BTreeSet;
use std::fmt;

use admit_core::json::{Object, Value};
use bytes::Bytes;

use self::class_map::ClassMap;
use self::node::PolicyNode;
use self::partitioning::PartitioningFile;
use self::schema_policy::SchemaPolicy;
use super::enums::Reason;
use super::names;

pub use defaults::shipped_files;

/// Largest policy file, in bytes.
pub const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Deepest nesting in a policy file.
const DEPTH_MAX: usize = 64;

/// Class of event types that the class map does not list.
pub const DEFAULT_CLASS: &str = "traffic";

/// Policy file with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// Path. For a payload schema: exactly as in the schema policy, up to the `#`.
    pub path: String,
    /// Content.
    pub bytes: Bytes,
}

impl PolicyFile {
    /// Creates a file.
    pub fn new(path: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { path: path.into(), bytes: bytes.into() }
    }
}

/// Files of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFiles {
    /// Event types and their classes, classes and their pins.
    pub class_map: PolicyFile,
    /// Event types and their allowed versions and payloads.
    pub schema_policy: PolicyFile,
    /// Streams and partition keys.
    pub partitioning: PolicyFile,
    /// Payload schemas; see [`schema_paths`].
    pub schemas: Vec<PolicyFile>,
}

/// One error in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// File.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and how to fix it.
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// All errors of a policy, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyErrors(pub Vec<PolicyError>);

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.0.iter().enumerate() {
            let before = if place == 0 { "" } else { "\n" };
            write!(f, "{before}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyErrors {}

/// Valid policy, which covers every event.
#[derive(Debug)]
pub struct IngestionPolicy {
    class_map: ClassMap,
    schemas: SchemaPolicy,
    partitioning: PartitioningFile,
    digest: String,
}

/// Placement of an event on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusPlacement<'p> {
    /// Partitioning profile that decided.
    pub profile_id: &'p str,
    /// Stream.
    pub topic: &'p str,
    /// Partition key, hashed.
    pub partition_key: String,
}

impl IngestionPolicy {
    /// Loads the policy from these files.
    ///
    /// # Errors
    /// All errors found in them.
    pub fn load(files: &PolicyFiles) -> Result<Self, PolicyErrors> {
        let mut errors = Vec::new();
        let mut data = |file: &PolicyFile| match read(file) {
            Ok(node) => Some(node),
            Err(error) => {
                errors.push(error);
                None
            }
        };
        let nodes = (data(&files.class_map), data(&files.schema_policy), data(&files.partitioning));
        let (Some(class_map), Some(schema_policy), Some(partitioning)) = nodes else {
            return Err(PolicyErrors(errors));
        };
        let digest = names::policy_digest([
            (files.class_map.path.as_str(), &class_map.to_value()),
            (files.schema_policy.path.as_str(), &schema_policy.to_value()),
            (files.partitioning.path.as_str(), &partitioning.to_value()),
        ]);
        let class_map = ClassMap::read(&files.class_map.path, &class_map, &mut errors);
        let documents = payload::SchemaDocuments::read(&files.schemas, &mut errors);
        let schemas = SchemaPolicy::read(
            &files.schema_policy.path,
            &schema_policy,
            &class_map,
            &documents,
            &mut errors,
        );
        let partitioning = PartitioningFile::read(
            &files.partitioning.path,
            &partitioning,
            &class_map,
            &mut errors,
        );
        if errors.is_empty() {
            alignment::check(files, &class_map, &schemas, &mut errors);
        }
        if !errors.is_empty() {
            return Err(PolicyErrors(errors));
        }
        Ok(Self { class_map, schemas, partitioning, digest })
    }

    /// Shipped policy.
    pub fn shipped() -> Self {
        Self::load(&shipped_files()).expect("the shipped policy is tested")
    }

    /// Digest of the files: `content_digest` and `run_config_digest` of receipts.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Entries that are valid but probably not intended, reported at start-up.
    pub fn warnings(&self) -> Vec<String> {
        self.partitioning.warnings()
    }

    /// Class of an event type.
    pub fn class_of(&self, event_type: &str) -> &str {
        self.class_map.class_of(event_type)
    }

    /// All event types that the policy names, each once.
    pub fn event_types(&self) -> BTreeSet<&str> {
        self.class_map.event_types().chain(self.schemas.event_types()).collect()
    }

    /// Pins that a class requires.
    pub fn required_pins(&self, class: &str) -> &[String] {
        self.class_map.required_pins(class)
    }

    /// All streams that events of any class can go to, each once.
    pub fn topics(&self) -> Vec<&str> {
        self.partitioning.topics(&self.class_map)
    }

    /// Checks schema version and payload of an event against its type.
    ///
    /// # Errors
    /// The reason and a description of the violation.
    pub fn check_payload(&self, envelope: &Object<'_>) -> Result<(), (Reason, String)> {
        self.schemas.check(envelope)
    }

    /// Returns the placement of an event of this class.
    ///
    /// # Errors
    /// The reason and a description of the violation.
    pub fn place(
        &self,
        class: &str,
        envelope: &Object<'_>,
    ) -> Result<BusPlacement<'_>, (Reason, String)> {
        self.partitioning.place(class, envelope)
    }
}

/// Returns the paths of the payload schemas that a schema policy references, each once; the caller
/// reads them and passes them as [`PolicyFiles::schemas`].
///
/// # Errors
/// If the file cannot be parsed. All other errors are found by [`IngestionPolicy::load`].
pub fn schema_paths(schema_policy: &PolicyFile) -> Result<Vec<String>, PolicyErrors> {
    let node = read(schema_policy).map_err(|error| PolicyErrors(vec![error]))?;
    let mut paths = Vec::new();
    let value = node.to_value();
    let entries = value.get("policies").and_then(Value::as_array).unwrap_or_default();
    for entry in entries {
        let reference = entry.get("payload_schema_ref").and_then(Value::as_str);
        let path = reference.map(|reference| payload::split(reference).0.to_owned());
        if let Some(path) = path.filter(|path| !path.is_empty() && !paths.contains(path)) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Parses a file: JSON by its extension or its first character, else YAML.
fn read(file: &PolicyFile) -> Result<PolicyNode, PolicyError> {
    let error = |line, message| PolicyError { path: file.path.clone(), line, message };
    if file.bytes.len() > BYTES_MAX {
        return Err(error(1, format!("the file has more than {BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(&file.bytes).map_err(|broken| {
        let before = &file.bytes[..broken.valid_up_to()];
        error(1 + before.iter().filter(|byte| **byte == b'\n').count(), "not utf-8".to_owned())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let name = file.path.to_ascii_lowercase();
    let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
    let is_json = name.ends_with(".json") || (!is_yaml && text.trim_start().starts_with('{'));
    let node = if is_json { json_text::read(text) } else { yaml::read(text) };
    node.map_err(|unreadable| error(unreadable.line, unreadable.message))
}
