//! Storage of records, as seen inside the transaction of an arrival.

use std::collections::BTreeMap;
use std::error::Error;

use admit_core::entity::{
    Entity, EventFields, Link, LinkStatus, ProcessingState, Scalar, SourceEvent, StoredTextError,
    Table, Transition,
};
use admit_core::json;
use admit_core::{Digest, Millis, Seq};

use super::{RecordError, code, shown};

/// Why an event is linked but its rows are missing: a foreign index rejects them, or rows of another event
/// have their key.
pub(crate) const SCHEMA_DRIFT: &str = "schema_drift";
pub(crate) const ROW_KEY_TAKEN: &str = "row_key_taken";

/// An event with its link, and why its rows are missing, if they are.
pub(crate) struct StoredEvent {
    pub(crate) event: SourceEvent,
    pub(crate) link: Link,
    pub(crate) drift: Option<String>,
}

/// Why the rows of each event are missing; `None` if they are not.
pub(crate) type Drift = BTreeMap<Seq, Option<String>>;

/// The tables of records inside one transaction.
pub(crate) trait Tables {
    /// Database error.
    type Error: Error + Send + Sync + 'static;

    /// Returns events with their links, per query, without their fields.
    fn events(
        &mut self,
        door: &str,
        queries: &[EventQuery<'_>],
    ) -> Result<Vec<Vec<StoredEvent>>, RecordError<Self::Error>>;

    /// Returns the time and head of the nearest event beyond an edge, per query.
    fn far(&mut self, queries: &[FarQuery<'_>]) -> Result<Vec<Option<(i64, String)>>, Self::Error>;

    /// Returns events of `door` after a seq that are not linked, or whose rows are missing.
    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> Result<Vec<Seq>, Self::Error>;

    /// Returns the fields of events.
    fn fields(&mut self, seqs: &[Seq]) -> Result<Vec<(Seq, EventFields)>, Self::Error>;

    /// Executes writes in order, then those of rows; returns for each row set why it was rejected, if it was.
    fn write(
        &mut self,
        writes: &[Write<'_>],
        rows: &[RowWrite<'_>],
    ) -> Result<Vec<Option<String>>, Self::Error>;

    /// Records a sighting of an event.
    fn seen(&mut self, seq: Seq, at: Millis) -> Result<(), Self::Error>;

    /// Moves the field with the last time a source sent a record forward, never back.
    fn stamp(
        &mut self,
        record_id: &str,
        name: &str,
        source: &str,
        value: &str,
    ) -> Result<(), Self::Error>;

    /// Records a sighting of the event that made rows of this table.
    fn rows_seen(&mut self, table: &Table, seq: Seq, at: Millis) -> Result<(), Self::Error>;

    /// Sets a savepoint for [`Tables::release`].
    fn mark(&mut self) -> Result<(), Self::Error>;

    /// Releases the savepoint; with `take_back`, rolls back to it.
    fn release(&mut self, take_back: bool) -> Result<(), Self::Error>;
}

/// One write. Several are sent at once, because the database may be far away.
pub(crate) enum Write<'a> {
    /// Insert a new event of a door.
    Event(NewEvent<'a>),
    /// Update the head of an event that an operator has accepted.
    Head(Seq, String),
    /// Delete retired records with their fields.
    Retire(&'a [String]),
    /// Upsert a record and its fields, if its content changed.
    Record(NewRecord<'a>),
    /// Update whether the rows of events could be stored.
    Drift(&'a Drift),
    /// Update the links of events.
    Links(&'a [LinkRow<'a>]),
    /// Append history rows; each gets its event's next step number.
    Steps(&'a [HistoryRow<'a>]),
}

/// One write of rows of the queried tables.
pub(crate) enum RowWrite<'a> {
    /// Delete the rows that events made in a table.
    Clear(&'a Table, Vec<Seq>),
    /// Upsert rows: columns they leave out keep their value, and rows of other owners are not touched. All
    /// of them, or none with the reason why.
    Put(RowSet<'a>),
}

/// Selects events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventQuery<'a> {
    /// The event with this seq.
    At(Seq),
    /// Events of a group, before or after a time, nearest first; at most `most`.
    Near { side: Side, group: &'a str, from: i64, to: i64, most: i64 },
    /// Events of a group without a time, newest first.
    Timeless { group: &'a str, most: i64 },
    /// Events without a group but with a hard key, before or after a time, nearest first.
    Groupless { side: Side, from: i64, to: i64, most: i64 },
    /// Events with a hard key, of one group or of none; of any group if it is empty.
    SameKey { hard_key: &'a str, group: &'a str, most: i64 },
}

/// Side of a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

/// Selects the nearest event beyond an edge with this group, number and source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarQuery<'a> {
    pub(crate) side: Side,
    pub(crate) door: &'a str,
    pub(crate) group: &'a str,
    pub(crate) edge: i64,
    pub(crate) number: i64,
    pub(crate) source: &'static str,
}

/// Parses a stored event.
pub(crate) fn stored_event(
    head: &str,
    link: &str,
    seen_at: Millis,
    drift: Option<String>,
) -> Result<StoredEvent, StoredTextError> {
    let mut event = SourceEvent::from_text(head, EventFields::default())?;
    // A copy adds nothing but the last time its source sent the event.
    event.received_at = event.received_at.max(seen_at);
    Ok(StoredEvent { event, link: Link::from_text(link)?, drift })
}

/// A new event with its texts.
pub(crate) struct NewEvent<'a> {
    pub(crate) door: &'a str,
    pub(crate) event: &'a SourceEvent,
    pub(crate) link: &'a Link,
    pub(crate) head: String,
    pub(crate) link_text: String,
}

impl<'a> NewEvent<'a> {
    pub(crate) fn of(door: &'a str, event: &'a SourceEvent, link: &'a Link) -> Self {
        Self { door, event, link, head: event.to_text(), link_text: link.to_text() }
    }
}

/// Link of an event as stored and shown.
pub(crate) struct LinkRow<'a> {
    pub(crate) seq: Seq,
    pub(crate) link: &'a Link,
    pub(crate) state: ProcessingState,
    pub(crate) reason: &'a str,
    pub(crate) text: String,
}

impl<'a> LinkRow<'a> {
    pub(super) fn of(seq: Seq, link: &'a Link, drift: Option<&str>) -> Self {
        let (state, reason) = shown(link, drift);
        Self { seq, link, state, reason, text: link.to_text() }
    }
}

/// History row of an event.
pub(crate) struct HistoryRow<'a> {
    pub(crate) taken: &'a Transition,
    pub(crate) reason: Option<&'a str>,
}

impl<'a> HistoryRow<'a> {
    /// The history row, unless the event has missing rows and would count as enriched.
    pub(super) fn of(taken: &'a Transition, drift: Option<&str>) -> Option<Self> {
        let drift = drift.filter(|_| taken.link_status == LinkStatus::Linked);
        if drift.is_some() && taken.to == ProcessingState::Enriched {
            return None;
        }
        let reason = match drift {
            Some(drift) if taken.to == ProcessingState::Linked => Some(code(drift)),
            _ => taken.reason.as_deref(),
        };
        Some(Self { taken, reason })
    }
}

/// A record to be written.
pub(crate) struct NewRecord<'a> {
    pub(crate) door: &'a str,
    pub(crate) record: &'a Entity,
    pub(crate) at: Millis,
    /// Digest of its content, to detect changes.
    pub(crate) digest: Digest,
    pub(crate) fingerprints: String,
    /// The values of its fields as JSON, in order.
    pub(crate) values: Vec<String>,
}

impl<'a> NewRecord<'a> {
    pub(super) fn of(door: &'a str, record: &'a Entity, at: Millis) -> Self {
        let fingerprints = record.fingerprints_text();
        let content = format!("{}\n{}\n{fingerprints}", record.state.word(), record.fields_text());
        let values = record.fields.iter().map(|field| {
            let mut value = Vec::new();
            json::write(&field.value, &mut value);
            String::from_utf8(value).expect("json is written as utf-8")
        });
        let (digest, values) = (Digest::of(content.as_bytes()), values.collect());
        Self { door, record, at, digest, fingerprints, values }
    }
}

/// The rows of one event in one table.
pub(crate) struct RowSet<'a> {
    pub(crate) table: &'a Table,
    pub(crate) event: &'a SourceEvent,
    pub(crate) link: &'a Link,
    /// Owner name of the events that share these rows.
    pub(crate) owner: &'a str,
    pub(crate) rows: Vec<Vec<Scalar>>,
}

impl RowSet<'_> {
    /// Columns that every table has after its own.
    pub(crate) const COMMON: [&'static str; 4] = ["captured_at", "round_id", "event", "owner"];

    /// The reason if a row of another owner has the key of one of these.
    pub(crate) fn key_taken(&self) -> String {
        format!("{ROW_KEY_TAKEN}: {} ({})", self.table.name, self.table.key.join(", "))
    }
}
