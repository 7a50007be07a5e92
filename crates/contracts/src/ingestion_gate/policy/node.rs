//! Data read from a policy file, with the line each part stands on.

use admit_core::json::{Object, Value};

/// A value and its line, from 1 on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) data: Data,
}

/// What it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Null,
    Bool(bool),
    /// An integer or a float.
    Number(Value<'static>),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Member>),
}

/// One entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Node,
}

/// Why a text is no data, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) line: usize,
    pub(super) message: String,
}

impl Unreadable {
    pub(super) fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

impl Node {
    /// What kind of value it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.data {
            Data::Null => "nothing",
            Data::Bool(_) => "true or false",
            Data::Number(_) => "a number",
            Data::Text(_) => "a text",
            Data::List(_) => "a list",
            Data::Map(_) => "a map",
        }
    }

    /// The value without its lines: what the digest is taken over.
    pub(super) fn to_value(&self) -> Value<'static> {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number(number) => number.clone(),
            Data::Text(text) => text.clone().into(),
            Data::List(nodes) => nodes.iter().map(Self::to_value).collect(),
            Data::Map(members) => members
                .iter()
                .map(|member| (member.key.clone(), member.value.to_value()))
                .collect::<Object<'_>>()
                .into(),
        }
    }
}

/// Refuses a map that has a key twice: readers differ in which of the two they take.
pub(super) fn unrepeated(members: Vec<Member>) -> Result<Data, Unreadable> {
    let mut seen = std::collections::BTreeSet::new();
    for member in &members {
        if !seen.insert(member.key.as_str()) {
            return Err(Unreadable::new(member.line, format!("{:?} is there twice", member.key)));
        }
    }
    Ok(Data::Map(members))
}
