//! Source event: identifiers for linking, and fields for merging.

use super::fingerprint::EntityIdentifiers;
use crate::hash::Key;
use crate::json::{self, Limits, Object, Value};
use crate::receipt::Seq;
use crate::time::Millis;

/// Parse status of an artifact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParseStatus {
    /// Parsed completely.
    #[default]
    Ok,
    /// Identifiers parsed, some fields omitted; the notes list them.
    Partial,
    /// Identifiers could not be parsed. Kept as received.
    Failed,
}

impl ParseStatus {
    /// All statuses.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Partial, Self::Failed];

    /// Name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// Result of parsing an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParseReport {
    /// Status.
    pub status: ParseStatus,
    /// Stable reason of a failure.
    pub reason: Option<String>,
    /// Human-readable notes on errors and omissions.
    pub notes: Vec<String>,
}

/// Fields of an event as JSON text. Parsed only when an entity is merged: most candidates are
/// needed for their identifiers only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFields(String);

impl EventFields {
    /// Serialises fields.
    pub fn of(object: &Object<'_>) -> Self {
        let mut text = Vec::new();
        json::write_object(object, &mut text);
        Self(String::from_utf8(text).unwrap_or_else(|_| "{}".to_owned()))
    }

    /// Wraps stored fields.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the fields. Text that is not an object has none.
    pub fn read(&self) -> Object<'_> {
        let limits = Limits { bytes_max: usize::MAX, depth_max: json::DEPTH_CEILING };
        match json::parse(self.0.as_bytes(), &limits) {
            Ok(Value::Object(object)) => object,
            _ => Object::new(),
        }
    }
}

impl Default for EventFields {
    fn default() -> Self {
        Self("{}".to_owned())
    }
}

/// Operator decision that the fields of an event take precedence over earlier ones of its source
/// under the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// Operator.
    pub by: String,
    /// Reason.
    pub reason: String,
    /// Time. Of several under one key the latest wins.
    pub at: Millis,
}

/// Source event as stored with its admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceEvent {
    /// Ledger position; 0 before the commit.
    pub seq: Seq,
    /// Key of the admission.
    pub key: Key,
    /// Source name.
    pub source: String,
    /// Id among the events of its source, if it has one.
    pub hard_key: Option<String>,
    /// Group. Empty if the artifact names none; then it is inferred from the hard key.
    pub group: String,
    /// Number within the group, as sent by the source.
    pub number: Option<i64>,
    /// Origin of the number, for sources with an untrusted number.
    pub number_from: Option<String>,
    /// Start, seconds since the epoch.
    pub start: Option<i64>,
    /// End, seconds since the epoch.
    pub end: Option<i64>,
    /// Date by the source's own clock, `2026-02-11`.
    pub date: Option<String>,
    /// Time by the source's own clock, `220205`.
    pub time: Option<String>,
    /// Best known time: end, else start, else clock. Ranges use it.
    pub event_time: Option<i64>,
    /// Alternative reading of a local time in the hour repeated at a change of the clocks.
    pub event_time_late: Option<i64>,
    /// Date of `event_time` in the time zone of the sources.
    pub local_date: Option<String>,
    /// Time of receipt.
    pub received_at: Millis,
    /// First admission under its key, for a later one.
    pub revision_of: Option<Seq>,
    /// Whether it contradicts the first admission under its key.
    pub collides: bool,
    /// Whether the sender requests changes, for sources whose replays change nothing.
    pub updates: bool,
    /// Operator acceptance, for sources whose replays change nothing.
    pub accepted: Option<Acceptance>,
    /// Entity id named by the event.
    pub claims: Option<String>,
    /// Payload hash, independent of the id. Copies under another id share it.
    pub payload: Option<String>,
    /// Whether it has fields beyond its identifiers.
    pub enriches: bool,
    /// Parse result.
    pub parse: ParseReport,
    /// Fields.
    pub fields: EventFields,
}

impl SourceEvent {
    /// Creates an empty event of `source`.
    pub fn new(source: &str, key: Key, received_at: Millis) -> Self {
        Self {
            seq: Seq(0),
            key,
            source: source.to_owned(),
            hard_key: None,
            group: String::new(),
            number: None,
            number_from: None,
            start: None,
            end: None,
            date: None,
            time: None,
            event_time: None,
            event_time_late: None,
            local_date: None,
            received_at,
            revision_of: None,
            collides: false,
            updates: false,
            accepted: None,
            claims: None,
            payload: None,
            enriches: false,
            parse: ParseReport::default(),
            fields: EventFields::default(),
        }
    }

    /// Sets the ledger position. `first` is the first admission under the same key: contradiction
    /// is decided here, once, because ledger order never changes.
    #[must_use]
    pub fn admitted(mut self, seq: Seq, first: Option<&Self>, tolerance_seconds: i64) -> Self {
        self.seq = seq;
        self.revision_of = first.map(|first| first.seq);
        self.collides = first.is_some_and(|first| {
            let is_elsewhere =
                self.group != first.group && !(self.group.is_empty() || first.group.is_empty());
            is_elsewhere
                || EntityIdentifiers::of(first)
                    .contradicts(&EntityIdentifiers::of(&self), tolerance_seconds)
        });
        self
    }

    /// Whether it was parsed well enough to be linked.
    pub fn is_parsed(&self) -> bool {
        self.parse.status != ParseStatus::Failed
    }
}
