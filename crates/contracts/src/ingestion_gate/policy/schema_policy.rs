//! Schema policy: allowed schema versions and payloads of each event type.

use std::collections::BTreeMap;

use admit_core::json::{Object, Value};

use super::PolicyError;
use super::class_map::ClassMap;
use super::node::PolicyNode;
use super::payload::{PayloadSchema, SchemaDocuments};
use super::reader::{PolicyReader, get};
use crate::ingestion_gate::enums::Reason;

/// Keys of an entry.
const ENTRY: [&str; 5] = [
    "event_type",
    "class",
    "schema_version_required",
    "allowed_schema_versions",
    "payload_schema_ref",
];

#[derive(Debug, Default)]
pub(super) struct SchemaPolicy {
    entries: BTreeMap<String, SchemaPolicyEntry>,
}

/// Rules of one event type.
#[derive(Debug)]
pub(super) struct SchemaPolicyEntry {
    pub(super) class: String,
    pub(super) version_required: bool,
    /// `None` allows any version.
    pub(super) allowed: Option<Vec<String>>,
    pub(super) line: usize,
    schema: Option<PayloadSchema>,
}

impl SchemaPolicy {
    pub(super) fn read(
        path: &str,
        node: &PolicyNode,
        classes: &ClassMap,
        documents: &SchemaDocuments,
        errors: &mut Vec<PolicyError>,
    ) -> Self {
        let mut reader = PolicyReader::new(path, errors);
        let what = "the schema policy";
        let members = reader.closed_map(node, what, &["version", "default_action", "policies"]);
        reader.version(members, node, what);
        if let Some(action) = get(members, "default_action")
            && reader.text(action, "default_action", 64).is_some_and(|text| text != "quarantine")
        {
            let message = "default_action must be quarantine: event types without a policy are never admitted";
            reader.report(action.line, message);
        }
        let mut read = Self::default();
        let Some(policies) = reader.required(members, "policies", node, what) else { return read };
        for entry in reader.list(policies, "policies") {
            if let Some((event_type, entry)) =
                SchemaPolicyEntry::read(&mut reader, entry, classes, documents)
            {
                let line = entry.line;
                if read.entries.insert(event_type.clone(), entry).is_some() {
                    reader.report(line, format!("{event_type} has two policies"));
                }
            }
        }
        read
    }

    /// All event types with an entry.
    pub(super) fn event_types(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub(super) fn entry(&self, event_type: &str) -> Option<&SchemaPolicyEntry> {
        self.entries.get(event_type)
    }

    pub(super) fn check(&self, envelope: &Object<'_>) -> Result<(), (Reason, String)> {
        let text = |name| envelope.get(name).and_then(Value::as_str);
        let event_type = text("event_type").unwrap_or_default();
        let Some(entry) = self.entries.get(event_type) else {
            let message = "the schema policy has no entry for this event type".to_owned();
            return Err((Reason::SchemaPolicyMissing, message));
        };
        match (text("schema_version").filter(|version| !version.is_empty()), &entry.allowed) {
            (None, _) if entry.version_required => {
                let message = "this event type requires a schema_version".to_owned();
                return Err((Reason::SchemaVersionRequired, message));
            }
            (Some(version), Some(allowed)) if !allowed.iter().any(|one| one == version) => {
                let message = format!("this schema_version is not among {}", allowed.join(", "));
                return Err((Reason::SchemaVersionNotAllowed, message));
            }
            _ => {}
        }
        let Some(schema) = &entry.schema else { return Ok(()) };
        let nothing = Value::Object(Object::new());
        schema
            .check(envelope.get("payload").unwrap_or(&nothing))
            .map_err(|violations| (Reason::SchemaFail, violations))
    }
}

impl SchemaPolicyEntry {
    fn read(
        reader: &mut PolicyReader<'_>,
        node: &PolicyNode,
        classes: &ClassMap,
        documents: &SchemaDocuments,
    ) -> Option<(String, Self)> {
        let what = "a policy";
        let members = reader.closed_map(node, what, &ENTRY);
        let event_type = reader.required(members, "event_type", node, what);
        let event_type = event_type.and_then(|node| reader.text(node, "event_type", 256));
        let class_node = reader.required(members, "class", node, what);
        let class = class_node.and_then(|node| reader.text(node, "class", 128));
        let version_required = match get(members, "schema_version_required") {
            Some(node) => reader.flag(node, "schema_version_required"),
            None => false,
        };
        let allowed = get(members, "allowed_schema_versions").map(|node| {
            let nodes = reader.list(node, "allowed_schema_versions");
            let texts = nodes.iter().filter_map(|one| reader.text(one, "a schema version", 64));
            texts.map(str::to_owned).collect()
        });
        let schema = get(members, "payload_schema_ref").and_then(|node| {
            let reference = reader.text(node, "payload_schema_ref", 1_024)?;
            documents.compile(reference).map_err(|why| reader.report(node.line, why)).ok()
        });
        let (event_type, class, class_node) = (event_type?, class?, class_node?);
        if !classes.has(class) {
            reader.report(class_node.line, format!("class {class} is not in the class map"));
        }
        if classes.class_of(event_type) != class {
            let message = format!(
                "the class map maps {event_type} to class {}, not {class}",
                classes.class_of(event_type)
            );
            reader.report(class_node.line, message);
        }
        let line = node.line;
        let entry = Self { class: class.to_owned(), version_required, allowed, line, schema };
        Some((event_type.to_owned(), entry))
    }
}
