//! The port of records: entities that several sources tell of, as the ledger has put them together.
//!
//! What an event tells is resolved by [`record`](crate::Admissions::record), in the commit of its
//! admission, by the rule in `admit_core::record`. Here is what can be asked afterwards, and the one
//! thing that can be done: linking again what was not linked.

use std::sync::Arc;

use admit_core::record::{Acceptance, Policy};
use admit_core::{Fault, Millis, Seq};

use super::BoxFuture;

/// Answers questions about records. Never blocks a writer.
pub trait RecordReader: Send + Sync {
    /// Records, the newest first.
    fn records(&self, filter: RecordFilter) -> BoxFuture<'_, Result<Vec<RecordLine>, Fault>>;

    /// One record with everything that is known of it.
    fn record_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Option<RecordDetail>, Fault>>;

    /// Events that belong to no record for sure, or whose rows are missing, in ledger order.
    fn open_events(
        &self,
        door: String,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<EventLine>, Fault>>;

    /// How many there are of everything.
    fn record_counts(
        &self,
        door: String,
        asked: CountsAsked,
    ) -> BoxFuture<'_, Result<RecordCounts, Fault>>;
}

/// A ledger that keeps records.
pub trait Records: RecordReader {
    /// Resolves every event again that is not linked, or whose rows are missing, by `policy`. What
    /// differs is committed; with `is_dry` nothing is. Terminates, however many there are.
    fn relink(
        &self,
        door: String,
        policy: Arc<Policy>,
        at: Millis,
        is_dry: bool,
    ) -> BoxFuture<'_, Result<Relinked, Fault>>;

    /// Has what the event at `seq` tells count before what its source told under the same key, in the
    /// commit that keeps whose word that is. Doing it again changes nothing.
    fn accept(
        &self,
        door: String,
        policy: Arc<Policy>,
        seq: Seq,
        word: Acceptance,
    ) -> BoxFuture<'_, Result<Result<Accepted, NotAccepted>, Fault>>;
}

/// What accepting an event came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The record that it counts in.
    pub record_id: String,
    /// Whether it did not count before.
    pub is_new: bool,
}

/// Why an event was not accepted. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// There is no such event.
    Unknown,
    /// It cannot be.
    Unfit(&'static str),
    /// What the ledger keeps of it cannot be read.
    Unreadable,
}

/// Which records to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// Of this door.
    pub door: String,
    /// Only of this group.
    pub group: Option<String>,
    /// Only of this day, by the clock of the source that opened them.
    pub date: Option<String>,
    /// Only in this state.
    pub state: Option<String>,
    /// Only after this one, which was the last of the page before.
    pub after: Option<(i64, String)>,
    /// At most so many.
    pub rows_max: usize,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLine {
    /// Its name.
    pub name: String,
    /// Its value, JSON.
    pub value: String,
    /// Who is believed.
    pub source: String,
    /// The event that told it.
    pub event: Seq,
}

/// A record in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLine {
    /// Its id.
    pub record_id: String,
    /// Its group.
    pub group: String,
    /// Its number.
    pub number: i64,
    /// The day, by the clock of the source that opened it.
    pub date: Option<String>,
    /// The time, by the same clock.
    pub time: Option<String>,
    /// The best time there is, in seconds.
    pub event_time: Option<i64>,
    /// How far it has come.
    pub state: String,
    /// How often what it says has changed.
    pub revision: u64,
    /// When it was opened.
    pub opened_at: Millis,
    /// When it last changed.
    pub changed_at: Millis,
    /// Its fields; in a list only those that are short.
    pub fields: Vec<FieldLine>,
}

/// An event with what was decided about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// Its place.
    pub seq: Seq,
    /// Who told.
    pub source: String,
    /// When it was received.
    pub received_at: Millis,
    /// When it, or a copy of it, was last received.
    pub seen_at: Millis,
    /// How far it has come.
    pub state: String,
    /// How it is linked.
    pub link_status: String,
    /// Why, or why not.
    pub reason_code: String,
    /// How sure that is.
    pub confidence: String,
    /// The record.
    pub record_id: Option<String>,
    /// Why its rows are missing.
    pub drift: Option<String>,
    /// All that names it, JSON.
    pub head: String,
    /// All that was decided, JSON.
    pub link: String,
}

/// One step of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLine {
    /// Whose.
    pub seq: Seq,
    /// When.
    pub at: Millis,
    /// Which attempt at linking.
    pub attempt: u32,
    /// From where.
    pub from: String,
    /// To where.
    pub to: String,
    /// Who told.
    pub source: String,
    /// The fingerprint that was used: its kind and its value.
    pub fingerprint: Option<(String, String)>,
    /// How it is linked.
    pub link_status: String,
    /// How sure that is.
    pub confidence: String,
    /// Why.
    pub reason_code: Option<String>,
    /// The record.
    pub record_id: Option<String>,
}

/// A record with everything that is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordDetail {
    /// What stands in a list, with all fields.
    pub line: RecordLine,
    /// Every fingerprint that leads to it, JSON.
    pub fingerprints: String,
    /// Its events, in ledger order.
    pub events: Vec<EventLine>,
    /// Their steps, in the order they were taken.
    pub steps: Vec<StepLine>,
}

/// What counts are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountsAsked {
    /// From here on an event is recent.
    pub recent_since: Millis,
    /// From here on days are counted one by one.
    pub days_since: Millis,
    /// Records that none of these sources told of are counted apart.
    pub without: Vec<String>,
    /// So many of the newest events are listed.
    pub newest: usize,
}

/// How much one source told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// The source.
    pub source: String,
    /// Its events.
    pub total: u64,
    /// Those that are not linked.
    pub unlinked: u64,
    /// The recent ones.
    pub recent: u64,
    /// Those of them that are not linked.
    pub recent_unlinked: u64,
    /// When the newest came.
    pub latest_at: Option<Millis>,
    /// Those that could not be read.
    pub unread: u64,
    /// Those whose rows are missing.
    pub drifted: u64,
}

/// How many there are of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Source by source.
    pub sources: Vec<SourceCounts>,
    /// Records by state.
    pub states: Vec<(String, u64)>,
    /// Day, source, events, those not linked.
    pub days: Vec<(String, String, u64, u64)>,
    /// Day, records, those that none of the named sources told of.
    pub record_days: Vec<(String, u64, u64)>,
    /// Queried table, its rows, those that belong to no record.
    pub rows: Vec<(String, u64, u64)>,
    /// Day, rows that the script's messages made, those that belong to no record.
    pub row_days: Vec<(String, u64, u64)>,
    /// The newest events.
    pub newest: Vec<EventLine>,
}

/// What linking again came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relinked {
    /// So many events were looked at.
    pub scanned: u64,
    /// For so many of them something has changed.
    pub updated: u64,
}
