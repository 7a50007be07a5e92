//! The policy: which class an event belongs to, which payloads are taken, and where they go.
//!
//! It is three files, JSON or YAML, and the payload schemas they name. What is wrong with them is
//! found when they are loaded, all of it at once, each with its file and line; a policy that loads
//! has an answer for every event. Its digest stands on every receipt.
//!
//! Reading files is not done here: whoever loads a policy hands over their bytes, and how they
//! spell the paths is part of the digest.

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
use self::node::Node;
use self::partitioning::Partitioning;
use self::schema_policy::SchemaPolicy;
use super::names;
use super::words::Reason;

pub use defaults::shipped_files;

/// The largest policy file, in bytes.
pub const BYTES_MAX: usize = 4 * 1024 * 1024;

/// The deepest nesting in a policy file.
const DEPTH_MAX: usize = 64;

/// The class of events that the class map does not name.
pub const DEFAULT_CLASS: &str = "traffic";

/// A file, as it is spelt and as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// Its path. For a payload schema: exactly as the schema policy names it, up to the `#`.
    pub path: String,
    /// What is in it.
    pub bytes: Bytes,
}

impl PolicyFile {
    /// A file.
    pub fn new(path: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { path: path.into(), bytes: bytes.into() }
    }
}

/// The files of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFiles {
    /// Event types and their classes, classes and their pins.
    pub class_map: PolicyFile,
    /// Event types and what their payloads must be.
    pub schema_policy: PolicyFile,
    /// Streams and what names a partition.
    pub partitioning: PolicyFile,
    /// The payload schemas; see [`schema_paths`].
    pub schemas: Vec<PolicyFile>,
}

/// One thing that is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// In which file.
    pub path: String,
    /// On which line, from 1 on.
    pub line: usize,
    /// What it is, and what to do about it.
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Everything that is wrong with a policy, one line each.
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

/// A policy that has an answer for every event.
#[derive(Debug)]
pub struct Policy {
    class_map: ClassMap,
    schemas: SchemaPolicy,
    partitioning: Partitioning,
    digest: String,
}

/// The place on the bus that a policy gives an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'p> {
    /// The partitioning profile that decided.
    pub profile_id: &'p str,
    /// The stream.
    pub topic: &'p str,
    /// The partition key, hashed.
    pub partition_key: String,
}

impl Policy {
    /// The policy in these files.
    ///
    /// # Errors
    /// With everything that is wrong with them.
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
        let documents = payload::Documents::read(&files.schemas, &mut errors);
        let schemas = SchemaPolicy::read(
            &files.schema_policy.path,
            &schema_policy,
            &class_map,
            &documents,
            &mut errors,
        );
        let partitioning =
            Partitioning::read(&files.partitioning.path, &partitioning, &class_map, &mut errors);
        if errors.is_empty() {
            alignment::check(files, &class_map, &schemas, &mut errors);
        }
        if !errors.is_empty() {
            return Err(PolicyErrors(errors));
        }
        Ok(Self { class_map, schemas, partitioning, digest })
    }

    /// The policy that is shipped.
    pub fn shipped() -> Self {
        Self::load(&shipped_files()).expect("the shipped policy is tested")
    }

    /// What is in the files, in one hash: `content_digest` and `run_config_digest` of receipts.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// What may be meant otherwise than it is written, for whoever starts a gate.
    pub fn warnings(&self) -> Vec<String> {
        self.partitioning.warnings()
    }

    /// The class of an event type.
    pub fn class_of(&self, event_type: &str) -> &str {
        self.class_map.class_of(event_type)
    }

    /// Every event type that the policy names, each once.
    pub fn event_types(&self) -> BTreeSet<&str> {
        self.class_map.event_types().chain(self.schemas.event_types()).collect()
    }

    /// The pins that a class wants.
    pub fn required_pins(&self, class: &str) -> &[String] {
        self.class_map.required_pins(class)
    }

    /// Every stream that an event of some class can go to, each once.
    pub fn topics(&self) -> Vec<&str> {
        self.partitioning.topics(&self.class_map)
    }

    /// Whether an event of this type may have this version and payload.
    ///
    /// # Errors
    /// With the reason, and what is wrong in words.
    pub fn check_payload(&self, envelope: &Object<'_>) -> Result<(), (Reason, String)> {
        self.schemas.check(envelope)
    }

    /// Where an event of this class belongs.
    ///
    /// # Errors
    /// With the reason, and what is wrong in words.
    pub fn place(&self, class: &str, envelope: &Object<'_>) -> Result<Place<'_>, (Reason, String)> {
        self.partitioning.place(class, envelope)
    }
}

/// The payload schemas that a schema policy names, by path, each once; to be read and handed over
/// as [`PolicyFiles::schemas`].
///
/// # Errors
/// When the file cannot be read as data. Everything else is found by [`Policy::load`].
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

/// Reads a file as data: JSON by its name or its first sign, else YAML.
fn read(file: &PolicyFile) -> Result<Node, PolicyError> {
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
