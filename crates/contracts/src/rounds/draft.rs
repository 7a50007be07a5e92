//! A draft: what a parser found in an artifact, before it is named and given a time.

use std::borrow::Cow;

use admit_core::json::{Object, Value};

/// Most notes that are kept of what was left out.
const NOTES_MAX: usize = 20;

/// Why an artifact could not be read at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// A stable word.
    pub(super) reason: &'static str,
    /// What was wrong, for people.
    pub(super) message: String,
}

impl Unreadable {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What a parser makes of an artifact.
pub(super) type Parsed = Result<Draft, Unreadable>;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Draft {
    /// The map, as it is written.
    pub(super) map: Option<String>,
    /// The number of the round.
    pub(super) number: Option<i64>,
    /// Where the number was read.
    pub(super) number_from: Option<&'static str>,
    /// Start and end, in seconds since the epoch, whatever was written there.
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    /// Date and time of the server's clock, as they are written.
    pub(super) date: Option<String>,
    pub(super) time: Option<String>,
    /// The id that the script gave the match.
    pub(super) match_id: Option<String>,
    /// The name of the file, where there is one.
    pub(super) filename: Option<String>,
    /// The record that the artifact says it belongs to.
    pub(super) claims: Option<String>,
    /// The hash of what it carries.
    pub(super) payload: Option<String>,
    /// What else it tells.
    pub(super) fields: Object<'static>,
    /// What was wrong or left out.
    pub(super) notes: Vec<String>,
}

impl Draft {
    /// Adds a field, unless there is nothing to say.
    pub(super) fn tell(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Value<'static>>,
    ) {
        let value = value.into();
        if !value.is_null() {
            self.fields.push(name, value);
        }
    }

    /// Adds a field that is not there yet.
    pub(super) fn tell_if_missing(&mut self, name: &'static str, value: Option<i64>) {
        if let Some(value) = value
            && !self.fields.contains_key(name)
        {
            self.tell(name, value);
        }
    }

    /// Adds how a round of stopwatch stands, with the time to beat where one was set.
    pub(super) fn tell_stopwatch(&mut self, told: (&'static str, Option<(i64, i64)>)) {
        let (state, to_beat) = told;
        self.tell("round_stopwatch_state", state);
        self.tell("time_to_beat_seconds", to_beat.map(|(seconds, _)| seconds));
        self.tell("next_timelimit_minutes", to_beat.map(|(_, minutes)| minutes));
    }

    /// Writes down what was left out.
    pub(super) fn note(&mut self, message: impl Into<String>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(message.into());
        }
    }
}

/// The text of a member that is there and not empty.
pub(super) fn text(object: &Object<'_>, name: &str) -> Option<String> {
    let value = object.get(name)?;
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Int(digits) => Some(digits.to_string()),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
