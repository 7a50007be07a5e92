//! Verification of records: events against their raw bodies, links and merged values against the rule.

use std::sync::Arc;

use admit_core::Seq;
use admit_core::entity::{EventFields, Link, Policy, SourceEvent};

use crate::common::records::{MismatchSink, RecordCheck, column_mismatch};
use crate::verify::{Disagreement, DisagreementSink, Verifier, VerifyError};

/// Counts of what was checked and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordsChecked {
    /// Events of records.
    pub events: u64,
    /// Events rebuilt from their bodies.
    pub rebuilt: u64,
    /// Number of recomputed links.
    pub links: u64,
    /// Records merged rebuilt.
    pub records: u64,
    /// Links left out: too many candidates.
    pub crowded: u64,
    /// Links left out: they were resolved with another match window.
    pub other_window: u64,
    /// Links left out: a candidate is unreadable.
    pub undecided: u64,
    /// Records left out: an event of them is unreadable.
    pub unmerged: u64,
    /// Events whose fields were left out: an earlier version read them from the body.
    pub older_fields: u64,
    /// Records whose differences were left out: an earlier version merged them by its own rule.
    pub older_merges: u64,
}

/// Row of an event of a record.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub(crate) seq: Seq,
    pub(crate) source: String,
    pub(crate) group: String,
    pub(crate) number: Option<i64>,
    pub(crate) event_time: Option<i64>,
    pub(crate) hard_key: Option<String>,
    pub(crate) state: String,
    pub(crate) link_status: String,
    pub(crate) reason: String,
    pub(crate) confidence: String,
    pub(crate) record_id: Option<String>,
    pub(crate) drift: Option<String>,
    pub(crate) head: String,
    pub(crate) link: String,
    pub(crate) fields: Option<String>,
    pub(crate) facts: Option<String>,
    pub(crate) body: Option<Vec<u8>>,
    /// Its fields were read from the body by an earlier version, which read others.
    pub(crate) has_older_fields: bool,
}

/// A stored field of a record.
#[derive(Debug)]
pub(crate) struct StoredRecordField {
    pub(crate) name: String,
    /// JSON.
    pub(crate) value: String,
    pub(crate) source: String,
    pub(crate) event: Seq,
}

/// A stored record.
#[derive(Debug)]
pub(crate) struct StoredRecord {
    pub(crate) record_id: String,
    pub(crate) group: String,
    pub(crate) number: i64,
    pub(crate) date: Option<String>,
    pub(crate) time: Option<String>,
    pub(crate) event_time: Option<i64>,
    pub(crate) state: String,
    pub(crate) fingerprints: String,
    pub(crate) fields: Vec<StoredRecordField>,
}

/// Input to rebuild an event.
#[derive(Debug)]
pub struct RebuildInput<'r> {
    /// The stored event with its fields.
    pub event: &'r SourceEvent,
    /// The contract's facts, as stored.
    pub facts: &'r str,
    /// The raw body.
    pub body: &'r [u8],
}

/// Rebuilds an event from its body; `None` if the body does not yield one.
pub type RebuildEvent<'f> = dyn FnMut(&RebuildInput<'_>) -> Option<SourceEvent> + 'f;

/// Receives each row, or the seq of an unreadable one with the reason.
pub(crate) type EventRowSink<'f> = dyn FnMut(Result<EventRow, (Seq, String)>) + 'f;

impl Verifier {
    /// Verifies the records of a door: every event against its body, every link and record against the rule.
    pub fn records(
        &self,
        (door, policy): (&str, &Arc<Policy>),
        rebuild: &mut RebuildEvent<'_>,
        found: &mut DisagreementSink<'_>,
    ) -> Result<RecordsChecked, VerifyError> {
        let mut checked = RecordsChecked::default();
        let mut check = RecordCheck { door, policy, older_until: Seq(0) };
        let mut after = Some(Seq(0));
        while let Some(from) = after {
            let mut seqs = Vec::new();
            after = self.rows.event_rows(door, (from, self.last()), &mut |row| match row {
                Ok(row) => {
                    checked.events += 1;
                    seqs.push(row.seq);
                    if row.has_older_fields {
                        check.older_until = row.seq;
                    }
                    event_row(&row, rebuild, &mut checked, found);
                }
                Err((seq, why)) => {
                    let message = format!("unreadable event of a record: {why}");
                    found(Disagreement::at(seq, "row", message));
                }
            })?;
            self.rows.links(check, &seqs, &mut checked, &mut wrong(found))?;
        }
        let mut after = Some(String::new());
        while let Some(id) = after {
            let next = self.rows.records(check, &id, &mut checked, &mut wrong(found))?;
            // An id with replaced characters sorts before the id itself.
            after = next.filter(|next| *next > id);
        }
        Ok(checked)
    }
}

/// Reports mismatches of records.
fn wrong<'f>(found: &'f mut DisagreementSink<'_>) -> Box<MismatchSink<'f>> {
    Box::new(|at, message| found(Disagreement { at, check: "record", message }))
}

/// Checks one event against its own columns and its body.
fn event_row(
    row: &EventRow,
    rebuild: &mut RebuildEvent<'_>,
    checked: &mut RecordsChecked,
    found: &mut DisagreementSink<'_>,
) {
    let mut wrong = |message: String| found(Disagreement::at(row.seq, "record", message));
    let fields = row.fields.clone().map(EventFields::from_stored).unwrap_or_default();
    let (event, link) =
        match (SourceEvent::from_text(&row.head, fields), Link::from_text(&row.link)) {
            (Ok(event), Ok(link)) => (event, link),
            (Err(error), _) | (_, Err(error)) => {
                return wrong(format!("unreadable event of a record: {error}"));
            }
        };
    if let Some(message) = column_mismatch(row, &event, &link) {
        wrong(message);
    }
    let (Some(facts), Some(body)) = (&row.facts, &row.body) else { return };
    let Some(rebuilt) = rebuild(&RebuildInput { event: &event, facts, body }) else {
        return wrong("its body does not yield the stored event".to_owned());
    };
    checked.rebuilt += 1;
    // Not in the body: added by the ledger and by operators.
    let rebuilt = SourceEvent {
        seq: event.seq,
        revision_of: event.revision_of,
        collides: event.collides,
        received_at: event.received_at,
        accepted: event.accepted.clone(),
        ..rebuilt
    };
    if rebuilt.to_text() != event.to_text() {
        wrong("the identifiers of its event differ from its body".to_owned());
    }
    if row.has_older_fields {
        checked.older_fields += 1;
    } else if rebuilt.fields != event.fields && row.fields.is_some() {
        wrong("the fields of its event differ from its body".to_owned());
    }
}
