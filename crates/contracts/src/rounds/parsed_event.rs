//! Parser result: what was found in an artifact, before it gets a key and a time.

use std::borrow::Cow;

use admit_core::json::{Object, Value};

/// Maximum number of notes about skipped content.
const NOTES_MAX: usize = 20;

/// Error for an artifact that cannot be parsed at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArtifactError {
    /// Stable reason code.
    pub(super) reason: &'static str,
    /// Human-readable description.
    pub(super) message: String,
}

impl ArtifactError {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Result of a parser.
pub(super) type ParseResult = Result<ParsedEvent, ArtifactError>;

/// Content found in an artifact.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ParsedEvent {
    /// Map name, unmodified.
    pub(super) map: Option<String>,
    /// Round number.
    pub(super) number: Option<i64>,
    /// Where the number was found.
    pub(super) number_from: Option<&'static str>,
    /// Start and end, in seconds since the epoch, not validated.
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    /// Date and time of the server's clock, unmodified.
    pub(super) date: Option<String>,
    pub(super) time: Option<String>,
    /// Match id set by the script.
    pub(super) match_id: Option<String>,
    /// File name, if any.
    pub(super) filename: Option<String>,
    /// Id of the record that the artifact claims to belong to.
    pub(super) claims: Option<String>,
    /// Hash of its payload.
    pub(super) payload: Option<String>,
    /// All other fields.
    pub(super) fields: Object<'static>,
    /// Notes about invalid or skipped content.
    pub(super) notes: Vec<String>,
}

impl ParsedEvent {
    /// Adds a field, unless its value is null.
    pub(super) fn add_field(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Value<'static>>,
    ) {
        let value = value.into();
        if !value.is_null() {
            self.fields.push(name, value);
        }
    }

    /// Adds a field if it is not set yet.
    pub(super) fn add_field_if_missing(&mut self, name: &'static str, value: Option<i64>) {
        if let Some(value) = value
            && !self.fields.contains_key(name)
        {
            self.add_field(name, value);
        }
    }

    /// Adds the stopwatch state of the round, with the time to beat if one was set.
    pub(super) fn add_stopwatch(&mut self, stopwatch: (&'static str, Option<(i64, i64)>)) {
        let (state, to_beat) = stopwatch;
        self.add_field("round_stopwatch_state", state);
        self.add_field("time_to_beat_seconds", to_beat.map(|(seconds, _)| seconds));
        self.add_field("next_timelimit_minutes", to_beat.map(|(_, minutes)| minutes));
    }

    /// Adds a note about skipped content.
    pub(super) fn note(&mut self, message: impl Into<String>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(message.into());
        }
    }
}

/// Text of a member that is present and not empty.
pub(super) fn text(object: &Object<'_>, name: &str) -> Option<String> {
    let value = object.get(name)?;
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Int(digits) => Some(digits.to_string()),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
