//! Partitioning: `{version, profiles: {id: {stream, key_precedence, hash_algo}}}`.
//!
//! The profiles of the platform's own classes are fixed. A file may map further classes under
//! `classes`; any other class uses the default profile.

use std::collections::BTreeMap;

use admit_core::json::{Object, Value};

use super::class_map::ClassMap;
use super::node::PolicyNode;
use super::reader::{PolicyReader, get};
use super::{BusPlacement, PolicyError};
use crate::ingestion_gate::enums::Reason;
use crate::ingestion_gate::envelope::is_field;
use crate::ingestion_gate::names;

/// Prefix of all profile ids.
const PROFILES: &str = "ig.partitioning.v0.";

/// Only supported hash.
const SHA256: &str = "sha256";

/// Longest stream name, in characters, that every bus accepts.
const STREAM_CHARS_MAX: usize = 200;

/// Profiles of the platform's classes.
const OF_CLASS: [(&str, &str); 13] = [
    ("traffic", "traffic"),
    ("traffic_baseline", "traffic.baseline"),
    ("traffic_fraud", "traffic.fraud"),
    ("control", "control"),
    ("audit", "audit"),
    ("context_arrival", "context.arrival_events"),
    ("context_arrival_entities", "context.arrival_entities"),
    ("context_flow_baseline", "context.flow_anchor.baseline"),
    ("context_flow_fraud", "context.flow_anchor.fraud"),
    ("rtdl_decision", "rtdl.decision"),
    ("rtdl_action_intent", "rtdl.action_intent"),
    ("rtdl_action_outcome", "rtdl.action_outcome"),
    ("case_trigger", "case.trigger"),
];

#[derive(Debug, Default)]
pub(super) struct PartitioningFile {
    profiles: BTreeMap<String, Profile>,
    of_class: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Profile {
    stream: String,
    precedence: Vec<Vec<String>>,
    hash_algo: String,
}

impl PartitioningFile {
    pub(super) fn read(
        path: &str,
        node: &PolicyNode,
        classes: &ClassMap,
        errors: &mut Vec<PolicyError>,
    ) -> Self {
        let mut reader = PolicyReader::new(path, errors);
        let what = "the partitioning";
        let members = reader.closed_map(node, what, &["version", "profiles", "classes"]);
        reader.version(members, node, what);
        let mut read = Self::default();
        let Some(profiles) = reader.required(members, "profiles", node, what) else { return read };
        for member in reader.map(profiles, "profiles") {
            let profile = Profile::read(&mut reader, &member.key, &member.value);
            read.profiles.insert(member.key.clone(), profile);
        }
        let own = get(members, "classes");
        for member in own.map_or(&[][..], |node| reader.map(node, "classes")) {
            if !classes.has(&member.key) {
                reader.report(member.line, format!("class {} does not exist", member.key));
            }
            if let Some(id) = reader.text(&member.value, "a profile", 256) {
                read.of_class.insert(member.key.clone(), id.to_owned());
            }
        }
        for class in classes.classes() {
            let id = read.profile_id(class);
            if !read.profiles.contains_key(&id) {
                let message = format!("there is no profile {id}, which class {class} requires");
                reader.report(profiles.line, message);
            }
        }
        read
    }

    fn profile_id(&self, class: &str) -> String {
        if let Some(id) = self.of_class.get(class) {
            return id.clone();
        }
        let known = OF_CLASS.iter().find(|(name, _)| *name == class);
        format!("{PROFILES}{}", known.unwrap_or(&OF_CLASS[0]).1)
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let odd = self.profiles.iter().filter(|(_, profile)| profile.hash_algo != SHA256);
        odd.map(|(id, profile)| {
            format!(
                "profile {id} wants hash_algo {:?}, which is not supported; its events go to \
                 quarantine with UNSUPPORTED_HASH_ALGO",
                profile.hash_algo
            )
        })
        .collect()
    }

    pub(super) fn topics(&self, classes: &ClassMap) -> Vec<&str> {
        let ids = classes.classes().map(|class| self.profile_id(class));
        let found = ids.filter_map(|id| self.profiles.get(&id).map(|one| one.stream.as_str()));
        let mut topics: Vec<&str> = found.collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    pub(super) fn place(
        &self,
        class: &str,
        envelope: &Object<'_>,
    ) -> Result<BusPlacement<'_>, (Reason, String)> {
        let id = self.profile_id(class);
        let Some((profile_id, profile)) = self.profiles.get_key_value(&id) else {
            return Err((Reason::InternalError, format!("there is no profile {id}")));
        };
        let mut found = profile.precedence.iter().filter_map(|path| value_at(envelope, path));
        let Some(value) = found.next() else {
            let message = format!("none of the fields of profile {id} is present");
            return Err((Reason::PartitionKeyMissing, message));
        };
        if profile.hash_algo != SHA256 {
            let message = format!("profile {id} wants hash_algo {:?}", profile.hash_algo);
            return Err((Reason::UnsupportedHashAlgo, message));
        }
        let partition_key = names::partition_key(value);
        Ok(BusPlacement { profile_id, topic: &profile.stream, partition_key })
    }
}

impl Profile {
    fn read(reader: &mut PolicyReader<'_>, id: &str, node: &PolicyNode) -> Self {
        let what = format!("profile {id}");
        let members = reader.closed_map(node, &what, &["stream", "key_precedence", "hash_algo"]);
        let mut profile = Self { hash_algo: SHA256.to_owned(), ..Self::default() };
        if let Some(stream) = reader.required(members, "stream", node, &what)
            && let Some(text) = reader.text(stream, "stream", STREAM_CHARS_MAX)
        {
            if !is_stream(text) {
                let message = "a stream has letters, digits, dots, underscores and dashes, and \
                               begins with a letter or a digit";
                reader.report(stream.line, message);
            }
            profile.stream = text.to_owned();
        }
        if let Some(list) = reader.required(members, "key_precedence", node, &what) {
            for item in reader.list(list, "key_precedence") {
                if let Some(text) = reader.text(item, "a field", 256) {
                    let path: Vec<String> = text.split('.').map(str::to_owned).collect();
                    let is_known = if path.len() == 1 {
                        is_field(text) && text != "payload"
                    } else {
                        path[0] == "payload" && path.iter().all(|step| !step.is_empty())
                    };
                    if !is_known {
                        let message =
                            format!("{text} is neither a field of an envelope nor payload.<field>");
                        reader.report(item.line, message);
                    }
                    profile.precedence.push(path);
                }
            }
            if profile.precedence.is_empty() {
                reader.report(list.line, "key_precedence must name a field");
            }
        }
        if let Some(algo) = get(members, "hash_algo")
            && let Some(text) = reader.text(algo, "hash_algo", 64)
        {
            profile.hash_algo = text.to_owned();
        }
        profile
    }
}

/// A stream is a folder on one bus and a topic on another, so the name must be valid for both.
fn is_stream(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(is_plain)
}

/// Value at a path, unless it is empty. Zero and false are not empty.
fn value_at<'o, 'a>(envelope: &'o Object<'a>, path: &[String]) -> Option<&'o Value<'a>> {
    let (first, rest) = path.split_first()?;
    let value = rest.iter().try_fold(envelope.get(first)?, |value, step| value.get(step))?;
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => Some(value),
    }
}
