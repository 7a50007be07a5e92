//! Port of records: entities merged from several sources.
//!
//! An event is resolved by [`record`](crate::Admissions::record), in the commit of its admission, by the
//! rule in `admit_core::entity`. This port reads the result, links events again that were not linked, and
//! accepts events that do not count by themselves.

use std::sync::Arc;

use admit_core::entity::{Acceptance, Policy};
use admit_core::{Fault, Millis, Seq};

use super::BoxFuture;

/// Reads records. Never blocks the writer.
pub trait RecordReader: Send + Sync {
    /// Lists records, newest first.
    fn records(&self, filter: RecordFilter) -> BoxFuture<'_, Result<Vec<RecordLine>, Fault>>;

    /// Returns one record with its events and their steps.
    fn record_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Option<RecordDetail>, Fault>>;

    /// Returns events that are not linked, or whose rows are missing, in ledger order.
    fn open_events(
        &self,
        door: String,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<EventLine>, Fault>>;

    /// Counts records, events and rows.
    fn record_counts(
        &self,
        door: String,
        filter: CountsFilter,
    ) -> BoxFuture<'_, Result<RecordCounts, Fault>>;
}

/// A ledger that keeps records.
pub trait Records: RecordReader {
    /// Resolves every event again that is not linked, or whose rows are missing, by `policy`, and commits
    /// the differences. With `is_dry`, commits nothing. Terminates regardless of their number.
    fn relink(
        &self,
        door: String,
        policy: Arc<Policy>,
        at: Millis,
        is_dry: bool,
    ) -> BoxFuture<'_, Result<RelinkCounts, Fault>>;

    /// Lets the event at `seq` replace what its source sent under the same key, and stores the acceptance
    /// in the same commit. Idempotent.
    fn accept(
        &self,
        door: String,
        policy: Arc<Policy>,
        seq: Seq,
        word: Acceptance,
    ) -> BoxFuture<'_, Result<Result<AcceptedEvent, AcceptError>, Fault>>;
}

/// Result of accepting an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// The record it counts in.
    pub record_id: String,
    /// `false` if it was accepted before.
    pub is_new: bool,
}

/// Why an event was not accepted. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// No such event.
    Unknown,
    /// The event cannot be accepted, with the reason.
    Unfit(&'static str),
    /// The stored event cannot be read.
    Unreadable,
}

/// Which records to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// Only of this door.
    pub door: String,
    /// Only of this group.
    pub group: Option<String>,
    /// Only of this day, by the clock of the source that opened them.
    pub date: Option<String>,
    /// Only in this state.
    pub state: Option<String>,
    /// Only after this one, the last of the previous page.
    pub after: Option<(i64, String)>,
    /// Maximum number of rows.
    pub rows_max: usize,
}

/// Field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLine {
    /// Its name.
    pub name: String,
    /// Its value, JSON.
    pub value: String,
    /// Source whose value was taken.
    pub source: String,
    /// Event that contained it.
    pub event: Seq,
}

/// Record in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLine {
    /// Its id.
    pub record_id: String,
    /// Its group.
    pub group: String,
    /// Its number.
    pub number: i64,
    /// Date, by the clock of the source that opened it.
    pub date: Option<String>,
    /// Time, by the same clock.
    pub time: Option<String>,
    /// Best known event time, in seconds.
    pub event_time: Option<i64>,
    /// Processing state.
    pub state: String,
    /// Number of content changes.
    pub revision: u64,
    /// When it was opened.
    pub opened_at: Millis,
    /// When it last changed.
    pub changed_at: Millis,
    /// Its fields; in a list only the short ones.
    pub fields: Vec<FieldLine>,
}

/// Event with its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// Seq of the event.
    pub seq: Seq,
    /// Source.
    pub source: String,
    /// When it was received.
    pub received_at: Millis,
    /// When it, or a copy of it, was last received.
    pub seen_at: Millis,
    /// Processing state.
    pub state: String,
    /// Link status.
    pub link_status: String,
    /// Reason code.
    pub reason_code: String,
    /// Confidence of the link.
    pub confidence: String,
    /// Record id.
    pub record_id: Option<String>,
    /// Why its rows are missing.
    pub drift: Option<String>,
    /// Identifying attributes, JSON.
    pub head: String,
    /// Link, JSON.
    pub link: String,
}

/// History entry of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLine {
    /// Seq of the event.
    pub seq: Seq,
    /// Time.
    pub at: Millis,
    /// Linking attempt.
    pub attempt: u32,
    /// State before.
    pub from: String,
    /// State after.
    pub to: String,
    /// Source.
    pub source: String,
    /// Kind and value of the fingerprint that was used.
    pub fingerprint: Option<(String, String)>,
    /// Link status.
    pub link_status: String,
    /// Confidence of the link.
    pub confidence: String,
    /// Reason code.
    pub reason_code: Option<String>,
    /// Record id.
    pub record_id: Option<String>,
}

/// Record with its events and their steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordDetail {
    /// The record with all fields.
    pub line: RecordLine,
    /// All its fingerprints, JSON.
    pub fingerprints: String,
    /// Its events, in ledger order.
    pub events: Vec<EventLine>,
    /// Their steps, oldest first.
    pub steps: Vec<StepLine>,
}

/// Parameters of the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountsFilter {
    /// An event is recent from this time on.
    pub recent_since: Millis,
    /// Days are counted one by one from this time on.
    pub days_since: Millis,
    /// Records without an event of these sources are counted separately.
    pub without: Vec<String>,
    /// Number of newest events to list.
    pub newest: usize,
}

/// Counters of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// The source.
    pub source: String,
    /// Events.
    pub total: u64,
    /// Events that are not linked.
    pub unlinked: u64,
    /// Recent events.
    pub recent: u64,
    /// Recent events that are not linked.
    pub recent_unlinked: u64,
    /// Arrival of the newest event.
    pub latest_at: Option<Millis>,
    /// Events that could not be parsed.
    pub unread: u64,
    /// Events whose rows are missing.
    pub drifted: u64,
}

/// Counters of records, events and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// By source.
    pub sources: Vec<SourceCounts>,
    /// Records by state.
    pub states: Vec<(String, u64)>,
    /// Day, source, events, events that are not linked.
    pub days: Vec<(String, String, u64, u64)>,
    /// Day, records, records without an event of the named sources.
    pub record_days: Vec<(String, u64, u64)>,
    /// Table, rows, rows without a record.
    pub rows: Vec<(String, u64, u64)>,
    /// Day, rows made from the script's messages, rows without a record.
    pub row_days: Vec<(String, u64, u64)>,
    /// The newest events.
    pub newest: Vec<EventLine>,
}

/// Result of linking again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelinkCounts {
    /// Events examined.
    pub scanned: u64,
    /// Events changed.
    pub updated: u64,
}
