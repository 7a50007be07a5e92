//! What a ledger must be able to read and write for records, inside the transaction of an arrival.

use std::collections::BTreeMap;
use std::error::Error;

use admit_core::json;
use admit_core::record::{
    Fields, Link, LinkStatus, NotStored, Record, Scalar, SourceEvent, State, Table, Transition,
};
use admit_core::{Digest, Millis, Seq};

use super::{RecordError, code, shown};

/// Why an event is linked, but its rows are not in the tables: an index that is none of ours is in
/// their way, or rows of another event have their key.
pub(crate) const SCHEMA_DRIFT: &str = "schema_drift";
pub(crate) const ROW_KEY_TAKEN: &str = "row_key_taken";

/// An event, what was decided about it, and why its rows are missing where they are.
pub(crate) struct Decided {
    pub(crate) event: SourceEvent,
    pub(crate) link: Link,
    pub(crate) drift: Option<String>,
}

/// Why the rows of events are missing, for each of them: nothing, or what is said about it.
pub(crate) type Drift = BTreeMap<Seq, Option<String>>;

/// The tables of records, as they are inside one transaction.
pub(crate) trait Tables {
    /// What the database says when it cannot.
    type Error: Error + Send + Sync + 'static;

    /// Events with what was decided about them, for each question; not what they tell.
    fn events(
        &mut self,
        door: &str,
        asked: &[Asked<'_>],
    ) -> Result<Vec<Vec<Decided>>, RecordError<Self::Error>>;

    /// The time and the head of the nearest event beyond an edge, for each question.
    fn far(&mut self, asked: &[FarAsked<'_>]) -> Result<Vec<Option<(i64, String)>>, Self::Error>;

    /// Events of `door` after a place that belong to no record for sure, or whose rows are missing.
    fn open(&mut self, door: &str, after: Seq, rows_max: i64) -> Result<Vec<Seq>, Self::Error>;

    /// What events tell.
    fn told(&mut self, seqs: &[Seq]) -> Result<Vec<(Seq, Fields)>, Self::Error>;

    /// Does these in their order, and says what was in the way of each set of rows, in that order.
    fn write(&mut self, writes: &[Write<'_>]) -> Result<Vec<Option<String>>, Self::Error>;

    /// A copy of an event came.
    fn seen(&mut self, seq: Seq, at: Millis) -> Result<(), Self::Error>;

    /// Moves the field that says when a source last told of a record, never back.
    fn stamp(
        &mut self,
        record_id: &str,
        name: &str,
        source: &str,
        value: &str,
    ) -> Result<(), Self::Error>;

    /// A copy of the event came that put rows into this table.
    fn rows_seen(&mut self, table: &Table, seq: Seq, at: Millis) -> Result<(), Self::Error>;

    /// Marks where [`Tables::release`] can go back to.
    fn mark(&mut self) -> Result<(), Self::Error>;

    /// Forgets the mark; with `take_back`, everything since then too.
    fn release(&mut self, take_back: bool) -> Result<(), Self::Error>;
}

/// One thing that is written. Several are handed over at once, because a database may be far away.
pub(crate) enum Write<'a> {
    /// An event that has just come, of a door.
    Event(&'a str, &'a SourceEvent, &'a Link),
    /// What names an event, which a person has accepted.
    Head(&'a SourceEvent),
    /// Records that are no more, with their fields, are removed.
    Retire(&'a [String]),
    /// A record and its fields, if what it says has changed.
    Record(NewRecord<'a>),
    /// What events put into a table is removed.
    ClearRows(&'a Table, Vec<Seq>),
    /// Rows, over those with the same key: what they leave out stays, and rows of other owners are
    /// left alone. All of them, or none when something is in their way: then that is said.
    Rows(RowSet<'a>),
    /// Whether the rows of events could be kept.
    Drift(&'a Drift),
    /// Where events belong now.
    Links(&'a [Linked<'a>]),
    /// Steps, each after those its event has.
    Steps(&'a [Step<'a>]),
}

/// Which events are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    /// The one at a place.
    At(Seq),
    /// Those of a group before a time or after it, the nearest first: no more are read than wanted.
    Near { side: Side, group: &'a str, from: i64, to: i64, most: i64 },
    /// Those of a group that have no time, the newest first.
    Timeless { group: &'a str, most: i64 },
    /// Those that do not name their group, but something that leads to it; as with `Near`.
    Groupless { side: Side, from: i64, to: i64, most: i64 },
    /// Those that share a hard key, of one group or of none; of any group where it is empty.
    SameKey { hard_key: &'a str, group: &'a str, most: i64 },
}

/// On which side of a time it is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

/// The nearest event beyond an edge that is of this group, number and source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarAsked<'a> {
    pub(crate) side: Side,
    pub(crate) door: &'a str,
    pub(crate) group: &'a str,
    pub(crate) edge: i64,
    pub(crate) number: i64,
    pub(crate) source: &'static str,
}

/// Makes an event from what is kept of it.
pub(crate) fn decided(
    head: &str,
    link: &str,
    seen_at: Millis,
    drift: Option<String>,
) -> Result<Decided, NotStored> {
    let mut event = SourceEvent::from_text(head, Fields::default())?;
    // A copy tells nothing new but when its source last told it.
    event.received_at = event.received_at.max(seen_at);
    Ok(Decided { event, link: Link::from_text(link)?, drift })
}

/// Where an event belongs, as it is written down and shown.
pub(crate) struct Linked<'a> {
    pub(crate) seq: Seq,
    pub(crate) link: &'a Link,
    pub(crate) state: State,
    pub(crate) reason: &'a str,
    pub(crate) text: String,
}

impl<'a> Linked<'a> {
    pub(super) fn of(seq: Seq, link: &'a Link, drift: Option<&str>) -> Self {
        let (state, reason) = shown(link, drift);
        Self { seq, link, state, reason, text: link.to_text() }
    }
}

/// A step of an event, as it is written down.
pub(crate) struct Step<'a> {
    pub(crate) taken: &'a Transition,
    pub(crate) reason: Option<&'a str>,
}

impl<'a> Step<'a> {
    /// An event whose rows are missing is linked, and gets no further.
    pub(super) fn of(taken: &'a Transition, drift: Option<&str>) -> Option<Self> {
        let drift = drift.filter(|_| taken.link_status == LinkStatus::Linked);
        if drift.is_some() && taken.to == State::Enriched {
            return None;
        }
        let reason = match drift {
            Some(drift) if taken.to == State::Linked => Some(code(drift)),
            _ => taken.reason.as_deref(),
        };
        Some(Self { taken, reason })
    }
}

/// A record as it is written down.
pub(crate) struct NewRecord<'a> {
    pub(crate) door: &'a str,
    pub(crate) record: &'a Record,
    pub(crate) at: Millis,
    /// Of what it says, to tell a change from none.
    pub(crate) digest: Digest,
    pub(crate) fingerprints: String,
}

impl<'a> NewRecord<'a> {
    pub(super) fn of(door: &'a str, record: &'a Record, at: Millis) -> Self {
        let fingerprints = record.fingerprints_text();
        let said = format!("{}\n{}\n{fingerprints}", record.state.word(), record.fields_text());
        Self { door, record, at, digest: Digest::of(said.as_bytes()), fingerprints }
    }

    /// The values of its fields, JSON, in their order.
    pub(crate) fn values(&self) -> impl Iterator<Item = String> {
        self.record.fields.iter().map(|field| {
            let mut value = Vec::new();
            json::write(&field.value, &mut value);
            String::from_utf8(value).expect("json is written as utf-8")
        })
    }
}

/// The rows of one event for one table.
pub(crate) struct RowSet<'a> {
    pub(crate) table: &'a Table,
    pub(crate) event: &'a SourceEvent,
    pub(crate) link: &'a Link,
    /// What names the events that share these rows.
    pub(crate) owner: &'a str,
    pub(crate) rows: Vec<Vec<Scalar>>,
}

impl RowSet<'_> {
    /// Columns that every table has, after its own.
    pub(crate) const COMMON: [&'static str; 4] = ["captured_at", "round_id", "event", "owner"];

    /// What is said when a row of somebody else has the key of one of these.
    pub(crate) fn key_taken(&self) -> String {
        format!("{ROW_KEY_TAKEN}: {} ({})", self.table.name, self.table.key.join(", "))
    }
}
