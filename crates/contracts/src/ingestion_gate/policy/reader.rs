//! Typed access to parsed policy data; records violations with their file and line.

use super::PolicyError;
use super::node::{MapEntry, NodeData, PolicyNode};

/// PolicyReader of one file.
pub(super) struct PolicyReader<'e> {
    path: String,
    errors: &'e mut Vec<PolicyError>,
}

impl<'e> PolicyReader<'e> {
    pub(super) fn new(path: &str, errors: &'e mut Vec<PolicyError>) -> Self {
        Self { path: path.to_owned(), errors }
    }

    pub(super) fn report(&mut self, line: usize, message: impl Into<String>) {
        self.errors.push(PolicyError { path: self.path.clone(), line, message: message.into() });
    }

    /// Entries of a map.
    pub(super) fn map<'n>(&mut self, node: &'n PolicyNode, what: &str) -> &'n [MapEntry] {
        if let NodeData::Map(members) = &node.data {
            return members;
        }
        self.report(node.line, format!("{what} must be a map, is {}", node.kind()));
        &[]
    }

    /// Entries of a map that may have only these keys.
    pub(super) fn closed_map<'n>(
        &mut self,
        node: &'n PolicyNode,
        what: &str,
        keys: &[&str],
    ) -> &'n [MapEntry] {
        let members = self.map(node, what);
        for member in members.iter().filter(|member| !keys.contains(&member.key.as_str())) {
            let message =
                format!("{what} has no key {:?}; it takes {}", member.key, keys.join(", "));
            self.report(member.line, message);
        }
        members
    }

    /// Required value.
    pub(super) fn required<'n>(
        &mut self,
        members: &'n [MapEntry],
        key: &str,
        owner: &PolicyNode,
        what: &str,
    ) -> Option<&'n PolicyNode> {
        let found = get(members, key);
        // A node that is not a map was already reported.
        if found.is_none() && matches!(owner.data, NodeData::Map(_)) {
            self.report(owner.line, format!("{what} has no {key}"));
        }
        found
    }

    pub(super) fn list<'n>(&mut self, node: &'n PolicyNode, what: &str) -> &'n [PolicyNode] {
        if let NodeData::List(nodes) = &node.data {
            return nodes;
        }
        self.report(node.line, format!("{what} must be a list, is {}", node.kind()));
        &[]
    }

    /// Text of 1 to `chars_max` characters.
    pub(super) fn text<'n>(
        &mut self,
        node: &'n PolicyNode,
        what: &str,
        chars_max: usize,
    ) -> Option<&'n str> {
        match &node.data {
            NodeData::Text(text) if (1..=chars_max).contains(&text.chars().count()) => {
                return Some(text);
            }
            NodeData::Text(_) => {
                self.report(node.line, format!("{what} must have 1 to {chars_max} characters"));
            }
            NodeData::Null
            | NodeData::Bool(_)
            | NodeData::Number(_)
            | NodeData::List(_)
            | NodeData::Map(_) => {
                self.report(node.line, format!("{what} must be a text, is {}", node.kind()));
            }
        }
        None
    }

    pub(super) fn flag(&mut self, node: &PolicyNode, what: &str) -> bool {
        if let NodeData::Bool(value) = node.data {
            return value;
        }
        self.report(node.line, format!("{what} must be true or false, is {}", node.kind()));
        false
    }

    /// Every file has a version; its value is up to the owner.
    pub(super) fn version(&mut self, members: &[MapEntry], owner: &PolicyNode, what: &str) {
        if let Some(node) = self.required(members, "version", owner, what)
            && !matches!(node.data, NodeData::Text(_) | NodeData::Number(_))
        {
            self.report(node.line, format!("version must be a text, is {}", node.kind()));
        }
    }
}

/// Value under `key`.
pub(super) fn get<'n>(members: &'n [MapEntry], key: &str) -> Option<&'n PolicyNode> {
    members.iter().find(|member| member.key == key).map(|member| &member.value)
}
