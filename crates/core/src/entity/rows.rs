//! SQL table rows derived from source events.
//!
//! Tables, row keys and the origin of cells are data of the policy. Rows are regenerated from their
//! events whenever a link changes, so they never contain anything that the events do not.

use super::link::Link;
use super::source_event::SourceEvent;
use crate::json::{self, Object, Value};

/// Table of derived rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Table name.
    pub name: &'static str,
    /// Contributing sources, most trusted first.
    pub sources: &'static [&'static str],
    /// List field with one element per row; `None`: one row per event.
    pub list: Option<&'static str>,
    /// Columns of the unique key.
    pub key: &'static [&'static str],
    /// All columns, including the key.
    pub columns: &'static [(&'static str, Cell)],
}

/// Origin of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Member of the element, under the first of these names that is present.
    Member(&'static [&'static str]),
    /// Text member of the element, truncated to this number of characters.
    Cut(&'static [&'static str], usize),
    /// Whole element.
    Element,
    /// Field of the event.
    Field(&'static str),
    /// Group.
    Group,
    /// Group as part of a key: empty text if the event has none.
    KeyGroup,
    /// Number, corrected for sources with an untrusted number.
    Number,
    /// Start; the best known time if it is unknown, so that rows of different entities never share
    /// a key.
    Start,
    /// Date field of the event; if missing, the date by the sources' clocks.
    Date(&'static str),
}

/// Value of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// NULL.
    Null,
    /// Integer.
    Integer(i64),
    /// Floating-point number.
    Real(f64),
    /// Text; lists and objects as JSON.
    Text(String),
}

impl Table {
    /// Rows of an event with `fields`, one value per column. Rows without a key are omitted.
    pub fn rows(&self, event: &SourceEvent, fields: &Object<'_>, link: &Link) -> Vec<Vec<Scalar>> {
        if !self.sources.contains(&event.source.as_str()) || !event.is_parsed() {
            return Vec::new();
        }
        let row = |element: Option<&Value<'_>>| {
            let cell = |(_, cell): &(_, Cell)| value(*cell, event, link, fields, element);
            self.columns.iter().map(cell).collect::<Vec<Scalar>>()
        };
        let rows: Vec<Vec<Scalar>> = match self.list {
            None => vec![row(None)],
            Some(name) => {
                let list = fields.get(name).and_then(Value::as_array).unwrap_or_default();
                list.iter().map(|element| row(Some(element))).collect()
            }
        };
        rows.into_iter().filter(|row| self.is_named(row)).collect()
    }

    fn is_named(&self, row: &[Scalar]) -> bool {
        let mut cells = self.columns.iter().zip(row);
        cells.all(|((name, from), cell)| {
            let is_empty = *from != Cell::KeyGroup
                && match cell {
                    Scalar::Null => true,
                    Scalar::Text(text) => text.is_empty(),
                    Scalar::Integer(_) | Scalar::Real(_) => false,
                };
            !is_empty || !self.key.contains(name)
        })
    }
}

fn value(
    cell: Cell,
    event: &SourceEvent,
    link: &Link,
    fields: &Object<'_>,
    element: Option<&Value<'_>>,
) -> Scalar {
    let member = |names: &[&str]| {
        let found = names.iter().find_map(|name| element?.get(name).filter(|v| !v.is_null()));
        found.map_or(Scalar::Null, scalar)
    };
    match cell {
        Cell::Member(names) => member(names),
        Cell::Cut(names, chars_max) => match member(names) {
            Scalar::Text(text) => Scalar::Text(text.chars().take(chars_max).collect()),
            other @ (Scalar::Null | Scalar::Integer(_) | Scalar::Real(_)) => other,
        },
        Cell::Element => element.map_or(Scalar::Null, scalar),
        Cell::Field(name) => fields.get(name).map_or(Scalar::Null, scalar),
        Cell::Group if event.group.is_empty() => Scalar::Null,
        Cell::Group | Cell::KeyGroup => Scalar::Text(event.group.clone()),
        Cell::Number => link.number.map_or(Scalar::Null, Scalar::Integer),
        Cell::Start => {
            let start = event.start.filter(|start| *start > 0).or(event.event_time);
            start.map_or(Scalar::Null, Scalar::Integer)
        }
        Cell::Date(name) => {
            let stated = fields.get(name).and_then(Value::as_str).map(str::to_owned);
            let date = stated.or_else(|| event.date.clone()).or_else(|| event.local_date.clone());
            date.map_or(Scalar::Null, Scalar::Text)
        }
    }
}

fn scalar(value: &Value<'_>) -> Scalar {
    match value {
        Value::Null => Scalar::Null,
        Value::Bool(truth) => Scalar::Integer(i64::from(*truth)),
        Value::Int(digits) => {
            value.as_i64().map_or_else(|| Scalar::Text(digits.to_string()), Scalar::Integer)
        }
        Value::Float(real) => Scalar::Real(*real),
        Value::String(text) => Scalar::Text(text.clone().into_owned()),
        Value::Array(_) | Value::Object(_) => Scalar::Text(written(value)),
    }
}

fn written(value: &Value<'_>) -> String {
    let mut text = Vec::new();
    json::write(value, &mut text);
    String::from_utf8(text).unwrap_or_default()
}
