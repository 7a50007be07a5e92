//! The class map: `{version, classes: {name: {required_pins}}, event_types: {type: class}}`.

use std::collections::BTreeMap;

use super::node::PolicyNode;
use super::reader::{PolicyReader, get};
use super::{DEFAULT_CLASS, PolicyError};
use crate::ingestion_gate::envelope::PINS;

/// Longest class name, in characters; receipts accept no longer one.
const CLASS_CHARS_MAX: usize = 128;

#[derive(Debug, Default)]
pub(super) struct ClassMap {
    classes: BTreeMap<String, ClassEntry>,
    event_types: BTreeMap<String, EventTypeMapping>,
}

#[derive(Debug)]
struct ClassEntry {
    pins: Vec<String>,
    line: usize,
}

#[derive(Debug)]
struct EventTypeMapping {
    class: String,
    line: usize,
}

impl ClassMap {
    pub(super) fn read(path: &str, node: &PolicyNode, errors: &mut Vec<PolicyError>) -> Self {
        let mut reader = PolicyReader::new(path, errors);
        let what = "the class map";
        let members = reader.closed_map(node, what, &["version", "classes", "event_types"]);
        reader.version(members, node, what);
        let mut map = Self::default();
        if let Some(classes) = reader.required(members, "classes", node, what) {
            for member in reader.map(classes, "classes") {
                let name = &member.key;
                if !(1..=CLASS_CHARS_MAX).contains(&name.chars().count()) {
                    let message = format!("a class has 1 to {CLASS_CHARS_MAX} characters");
                    reader.report(member.line, message);
                }
                let what = format!("class {name}");
                let parts = reader.closed_map(&member.value, &what, &["required_pins"]);
                let mut pins = Vec::new();
                if let Some(list) = reader.required(parts, "required_pins", &member.value, &what) {
                    for pin in reader.list(list, "required_pins") {
                        match reader.text(pin, "a pin", 64) {
                            Some(text) if PINS.contains(&text) => pins.push(text.to_owned()),
                            Some(text) => {
                                let message =
                                    format!("{text} is not a pin; pins are {}", PINS.join(", "));
                                reader.report(pin.line, message);
                            }
                            None => {}
                        }
                    }
                }
                map.classes.insert(name.clone(), ClassEntry { pins, line: member.line });
            }
            if !map.classes.contains_key(DEFAULT_CLASS) {
                let message = format!(
                    "there is no class {DEFAULT_CLASS}, which events of unmapped types belong to"
                );
                reader.report(classes.line, message);
            }
        }
        let event_types = get(members, "event_types");
        for member in event_types.map_or(&[][..], |node| reader.map(node, "event_types")) {
            let Some(class) = reader.text(&member.value, "a class", CLASS_CHARS_MAX) else {
                continue;
            };
            if !map.classes.contains_key(class) {
                let message =
                    format!("{} is mapped to class {class}, which does not exist", member.key);
                reader.report(member.line, message);
            }
            let mapped = EventTypeMapping { class: class.to_owned(), line: member.line };
            map.event_types.insert(member.key.clone(), mapped);
        }
        map
    }

    pub(super) fn class_of(&self, event_type: &str) -> &str {
        self.event_types.get(event_type).map_or(DEFAULT_CLASS, |mapped| &mapped.class)
    }

    /// Class that an event type is explicitly mapped to, with its line.
    pub(super) fn mapped(&self, event_type: &str) -> Option<(&str, usize)> {
        self.event_types.get(event_type).map(|mapped| (mapped.class.as_str(), mapped.line))
    }

    /// All explicitly mapped event types.
    pub(super) fn event_types(&self) -> impl Iterator<Item = &str> {
        self.event_types.keys().map(String::as_str)
    }

    pub(super) fn required_pins(&self, class: &str) -> &[String] {
        self.classes.get(class).map_or(&[], |class| &class.pins)
    }

    pub(super) fn line_of(&self, class: &str) -> Option<usize> {
        self.classes.get(class).map(|class| class.line)
    }

    pub(super) fn has(&self, class: &str) -> bool {
        self.classes.contains_key(class)
    }

    /// All classes.
    pub(super) fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }
}
