//! What one source told once: the head that linking reads, and the fields that merging reads.

use super::fingerprint::Named;
use crate::hash::Key;
use crate::json::{self, Limits, Object, Value};
use crate::receipt::Seq;
use crate::time::Millis;

/// How well an artifact could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParseStatus {
    /// All of it.
    #[default]
    Ok,
    /// What names it, but not everything it says; the notes tell what was left out.
    Partial,
    /// Not even what names it. It is kept as it came.
    Failed,
}

impl ParseStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Partial, Self::Failed];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// What reading an artifact came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parse {
    /// How well it went.
    pub status: ParseStatus,
    /// Why it failed, as a stable word.
    pub reason: Option<String>,
    /// What was wrong or left out, for people.
    pub notes: Vec<String>,
}

/// The fields an event tells, as the text of a JSON object. They are read only when a record is
/// made of them: most events around an arrival are looked at for their names only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields(String);

impl Fields {
    /// The text of these fields.
    pub fn of(object: &Object<'_>) -> Self {
        let mut text = Vec::new();
        json::write_object(object, &mut text);
        Self(String::from_utf8(text).unwrap_or_else(|_| "{}".to_owned()))
    }

    /// Fields as they came out of a ledger.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The fields. A text that is no object has none.
    pub fn read(&self) -> Object<'_> {
        let limits = Limits { bytes_max: usize::MAX, depth_max: json::DEPTH_CEILING };
        match json::parse(self.0.as_bytes(), &limits) {
            Ok(Value::Object(object)) => object,
            _ => Object::new(),
        }
    }
}

impl Default for Fields {
    fn default() -> Self {
        Self("{}".to_owned())
    }
}

/// A person's word that what an event tells counts before what its source told under the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When. Of several under one key the latest counts most.
    pub at: Millis,
}

/// One source event, as the ledger keeps it beside its admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceEvent {
    /// Its place in the ledger; 0 until it has one.
    pub seq: Seq,
    /// Its identity as an admission.
    pub key: Key,
    /// Who tells.
    pub source: String,
    /// What names it among the events of its source, where there is such a thing.
    pub hard_key: Option<String>,
    /// The neighbourhood it belongs to. Empty when the artifact does not say: then its hard key
    /// leads to it.
    pub group: String,
    /// Which of the entities of its group, as the source says.
    pub number: Option<i64>,
    /// Where that number was read, for sources that are not to be trusted with it.
    pub number_from: Option<String>,
    /// When it started, seconds since the epoch.
    pub start: Option<i64>,
    /// When it ended.
    pub end: Option<i64>,
    /// The day by the source's own clock, `2026-02-11`.
    pub date: Option<String>,
    /// The time by the source's own clock, `220205`.
    pub time: Option<String>,
    /// The best time there is: end, else start, else the clock. Ranges are over it.
    pub event_time: Option<i64>,
    /// The other reading of a clock time in the hour that a zone goes through twice.
    pub event_time_late: Option<i64>,
    /// The day of `event_time` in the zone of the sources.
    pub local_date: Option<String>,
    /// When it was received.
    pub received_at: Millis,
    /// The first admission under its key, when this is a later one.
    pub revision_of: Option<Seq>,
    /// Whether it cannot be the same thing as the first admission under its key.
    pub collides: bool,
    /// Whether its sender asks for what is known to be changed, where a replay changes nothing.
    pub updates: bool,
    /// Who has said that what it tells counts, where a replay changes nothing.
    pub accepted: Option<Acceptance>,
    /// The record that it says it belongs to.
    pub claims: Option<String>,
    /// The hash of what it carries, whatever it is called. Copies under another name share it.
    pub payload: Option<String>,
    /// Whether it tells more than what names it.
    pub enriches: bool,
    /// How well it could be read.
    pub parse: Parse,
    /// What it tells.
    pub fields: Fields,
}

impl SourceEvent {
    /// An event of `source` that says nothing yet.
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
            parse: Parse::default(),
            fields: Fields::default(),
        }
    }

    /// The event at its place. `first` is what was admitted first under the same key: whether the
    /// two can be one thing is settled here, once, because ledger order never changes.
    #[must_use]
    pub fn admitted(mut self, seq: Seq, first: Option<&Self>, tolerance_seconds: i64) -> Self {
        self.seq = seq;
        self.revision_of = first.map(|first| first.seq);
        self.collides = first.is_some_and(|first| {
            let is_elsewhere =
                self.group != first.group && !(self.group.is_empty() || first.group.is_empty());
            is_elsewhere || Named::of(first).contradicts(&Named::of(&self), tolerance_seconds)
        });
        self
    }

    /// Whether enough of it could be read to link it.
    pub fn is_parsed(&self) -> bool {
        self.parse.status != ParseStatus::Failed
    }
}
