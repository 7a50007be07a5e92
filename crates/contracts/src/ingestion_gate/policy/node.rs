//! Data parsed from a policy file, with the line of each value.

use admit_core::json::{Object, Value};

/// Value and its line, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PolicyNode {
    pub(super) line: usize,
    pub(super) data: NodeData,
}

/// Value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeData {
    Null,
    Bool(bool),
    /// An integer or a float.
    Number(Value<'static>),
    Text(String),
    List(Vec<PolicyNode>),
    Map(Vec<MapEntry>),
}

/// One entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MapEntry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: PolicyNode,
}

/// Parse error with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicySyntaxError {
    pub(super) line: usize,
    pub(super) message: String,
}

impl PolicySyntaxError {
    pub(super) fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

impl PolicyNode {
    /// Kind of the value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.data {
            NodeData::Null => "nothing",
            NodeData::Bool(_) => "true or false",
            NodeData::Number(_) => "a number",
            NodeData::Text(_) => "a text",
            NodeData::List(_) => "a list",
            NodeData::Map(_) => "a map",
        }
    }

    /// Value without its lines; the digest covers this form.
    pub(super) fn to_value(&self) -> Value<'static> {
        match &self.data {
            NodeData::Null => Value::Null,
            NodeData::Bool(value) => Value::Bool(*value),
            NodeData::Number(number) => number.clone(),
            NodeData::Text(text) => text.clone().into(),
            NodeData::List(nodes) => nodes.iter().map(Self::to_value).collect(),
            NodeData::Map(members) => members
                .iter()
                .map(|member| (member.key.clone(), member.value.to_value()))
                .collect::<Object<'_>>()
                .into(),
        }
    }
}

/// Rejects a map with a repeated key: readers differ on which of the two wins.
pub(super) fn unique_keys(members: Vec<MapEntry>) -> Result<NodeData, PolicySyntaxError> {
    let mut seen = std::collections::BTreeSet::new();
    for member in &members {
        if !seen.insert(member.key.as_str()) {
            return Err(PolicySyntaxError::new(
                member.line,
                format!("{:?} appears twice", member.key),
            ));
        }
    }
    Ok(NodeData::Map(members))
}
