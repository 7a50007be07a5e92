//! Rows: what an event tells as lines of tables, for people who ask in SQL.
//!
//! Which tables there are, what names a row and where its cells come from is data, like the rest of
//! the policy. Rows are made again from their events whenever a link changes, so they never say
//! anything that the events do not.

use super::event::SourceEvent;
use super::link::Link;
use crate::json::{self, Object, Value};

/// A table that rows of events are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The events it is made of, the most trusted source first.
    pub sources: &'static [&'static str],
    /// The field with a list that has one element a row; without one the event itself is a row.
    pub list: Option<&'static str>,
    /// What names a row: the columns of its unique key.
    pub key: &'static [&'static str],
    /// The columns, those of the key among them.
    pub columns: &'static [(&'static str, Cell)],
}

/// Where a cell comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A member of the element, under the first of these names that is there.
    Member(&'static [&'static str]),
    /// The text member of the element, cut to so many characters.
    Cut(&'static [&'static str], usize),
    /// The whole element.
    Element,
    /// A field of the event.
    Field(&'static str),
    /// The group.
    Group,
    /// The group as part of a key: the empty text where the event has none.
    KeyGroup,
    /// The number, corrected where the source is not to be trusted with it.
    Number,
    /// The start; where nobody knows it, the best time there is, so that rows of different entities
    /// never share a key for want of one.
    Start,
    /// The field of the event with its day; where it has none, the day by the sources' clocks.
    Date(&'static str),
}

/// What stands in a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// A text; lists and objects are written as JSON.
    Text(String),
}

impl Table {
    /// The rows of an event that tells `fields`, a value for each column. Those without a name are
    /// left out.
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
            let told = fields.get(name).and_then(Value::as_str).map(str::to_owned);
            let date = told.or_else(|| event.date.clone()).or_else(|| event.local_date.clone());
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
