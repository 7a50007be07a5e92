//! Takes data apart and notes what is not as it should be, with its file and line.

use super::PolicyError;
use super::node::{Data, Member, Node};

/// Reads the data of one file.
pub(super) struct Reader<'e> {
    path: String,
    errors: &'e mut Vec<PolicyError>,
}

impl<'e> Reader<'e> {
    pub(super) fn new(path: &str, errors: &'e mut Vec<PolicyError>) -> Self {
        Self { path: path.to_owned(), errors }
    }

    pub(super) fn complain(&mut self, line: usize, message: impl Into<String>) {
        self.errors.push(PolicyError { path: self.path.clone(), line, message: message.into() });
    }

    /// The entries of a map.
    pub(super) fn map<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Member] {
        if let Data::Map(members) = &node.data {
            return members;
        }
        self.complain(node.line, format!("{what} must be a map, is {}", node.kind()));
        &[]
    }

    /// The entries of a map that has no others than these keys.
    pub(super) fn closed<'n>(&mut self, node: &'n Node, what: &str, keys: &[&str]) -> &'n [Member] {
        let members = self.map(node, what);
        for member in members.iter().filter(|member| !keys.contains(&member.key.as_str())) {
            let message =
                format!("{what} has no key {:?}; it takes {}", member.key, keys.join(", "));
            self.complain(member.line, message);
        }
        members
    }

    /// A value that must be there.
    pub(super) fn required<'n>(
        &mut self,
        members: &'n [Member],
        key: &str,
        owner: &Node,
        what: &str,
    ) -> Option<&'n Node> {
        let found = get(members, key);
        // What is no map at all was told already.
        if found.is_none() && matches!(owner.data, Data::Map(_)) {
            self.complain(owner.line, format!("{what} has no {key}"));
        }
        found
    }

    pub(super) fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        if let Data::List(nodes) = &node.data {
            return nodes;
        }
        self.complain(node.line, format!("{what} must be a list, is {}", node.kind()));
        &[]
    }

    /// A text of 1 to `chars_max` characters.
    pub(super) fn text<'n>(
        &mut self,
        node: &'n Node,
        what: &str,
        chars_max: usize,
    ) -> Option<&'n str> {
        match &node.data {
            Data::Text(text) if (1..=chars_max).contains(&text.chars().count()) => {
                return Some(text);
            }
            Data::Text(_) => {
                self.complain(node.line, format!("{what} must have 1 to {chars_max} characters"));
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::List(_) | Data::Map(_) => {
                self.complain(node.line, format!("{what} must be a text, is {}", node.kind()));
            }
        }
        None
    }

    pub(super) fn flag(&mut self, node: &Node, what: &str) -> bool {
        if let Data::Bool(value) = node.data {
            return value;
        }
        self.complain(node.line, format!("{what} must be true or false, is {}", node.kind()));
        false
    }

    /// Every file says its version; which one is up to its owner.
    pub(super) fn version(&mut self, members: &[Member], owner: &Node, what: &str) {
        if let Some(node) = self.required(members, "version", owner, what)
            && !matches!(node.data, Data::Text(_) | Data::Number(_))
        {
            self.complain(node.line, format!("version must be a text, is {}", node.kind()));
        }
    }
}

/// The value under `key`.
pub(super) fn get<'n>(members: &'n [Member], key: &str) -> Option<&'n Node> {
    members.iter().find(|member| member.key == key).map(|member| &member.value)
}
