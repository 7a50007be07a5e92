//! Records of a ledger that is checked: what is kept of their events against the raw bodies, links and
//! merged values against what the rule makes of the events.

use std::sync::Arc;

use admit_core::Seq;
use admit_core::record::{Fields, Link, Policy, SourceEvent};

use crate::common::records::{Checking, EachWrong, columns_differ};
use crate::verify::{Disagreement, Found, Verifier, VerifyError};

/// How much was looked at, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordsChecked {
    /// Events of records.
    pub events: u64,
    /// Of them, those that were made again from their bodies.
    pub retold: u64,
    /// Links that were decided again.
    pub links: u64,
    /// Records that were merged again.
    pub records: u64,
    /// Links that were not decided again: there are too many events around them.
    pub crowded: u64,
    /// Links that were not decided again: the window was another one then.
    pub other_window: u64,
    /// Links that were not decided again: an event around them cannot be read.
    pub undecided: u64,
    /// Records that were not merged again: an event of them cannot be read.
    pub unmerged: u64,
}

/// An event of a record as its row says it.
#[derive(Debug)]
pub(crate) struct TellingRow {
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
}

/// A field of a record as it is kept.
#[derive(Debug)]
pub(crate) struct KeptField {
    pub(crate) name: String,
    /// JSON.
    pub(crate) value: String,
    pub(crate) source: String,
    pub(crate) event: Seq,
}

/// A record as it is kept.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    pub(crate) record_id: String,
    pub(crate) group: String,
    pub(crate) number: i64,
    pub(crate) date: Option<String>,
    pub(crate) time: Option<String>,
    pub(crate) event_time: Option<i64>,
    pub(crate) state: String,
    pub(crate) fingerprints: String,
    pub(crate) fields: Vec<KeptField>,
}

/// What an event is made again from.
#[derive(Debug)]
pub struct Telling<'r> {
    /// The event as it is kept, with what it tells.
    pub event: &'r SourceEvent,
    /// The contract's part of the receipt, as it is stored.
    pub facts: &'r str,
    /// The raw body.
    pub body: &'r [u8],
}

/// Makes an event again from its body; nothing where that cannot be done.
pub type Retell<'f> = dyn FnMut(&Telling<'_>) -> Option<SourceEvent> + 'f;

/// Takes one row after the other, or why one cannot be read.
pub(crate) type EachTelling<'f> = dyn FnMut(Result<TellingRow, (Seq, String)>) + 'f;

impl Verifier {
    /// Checks the records of a door: every event against its body, every link and every record against
    /// what the rule makes of the events.
    pub fn records(
        &self,
        (door, policy): (&str, &Arc<Policy>),
        retell: &mut Retell<'_>,
        found: &mut Found<'_>,
    ) -> Result<RecordsChecked, VerifyError> {
        let mut checked = RecordsChecked::default();
        let checking = Checking { door, policy };
        let mut after = Some(Seq(0));
        while let Some(from) = after {
            let mut seqs = Vec::new();
            after = self.rows.tellings(door, (from, self.last()), &mut |row| match row {
                Ok(row) => {
                    checked.events += 1;
                    seqs.push(row.seq);
                    telling(&row, retell, &mut checked, found);
                }
                Err((seq, why)) => {
                    let message = format!("the event of a record cannot be read: {why}");
                    found(Disagreement::at(seq, "row", message));
                }
            })?;
            self.rows.links(checking, &seqs, &mut checked, &mut wrong(found))?;
        }
        let mut after = Some(String::new());
        while let Some(id) = after {
            after = self.rows.records(checking, &id, &mut checked, &mut wrong(found))?;
        }
        Ok(checked)
    }
}

/// Names what is wrong about records.
fn wrong<'f>(found: &'f mut Found<'_>) -> Box<EachWrong<'f>> {
    Box::new(|at, message| found(Disagreement { at, check: "record", message }))
}

/// Checks one event against its own columns and its body.
fn telling(
    row: &TellingRow,
    retell: &mut Retell<'_>,
    checked: &mut RecordsChecked,
    found: &mut Found<'_>,
) {
    let mut wrong = |message: String| found(Disagreement::at(row.seq, "record", message));
    let told = row.fields.clone().map(Fields::from_stored).unwrap_or_default();
    let (event, link) = match (SourceEvent::from_text(&row.head, told), Link::from_text(&row.link))
    {
        (Ok(event), Ok(link)) => (event, link),
        (Err(error), _) | (_, Err(error)) => {
            return wrong(format!("the event of a record cannot be read: {error}"));
        }
    };
    if let Some(message) = columns_differ(row, &event, &link) {
        wrong(message);
    }
    let (Some(facts), Some(body)) = (&row.facts, &row.body) else { return };
    let Some(again) = retell(&Telling { event: &event, facts, body }) else {
        return wrong("its body does not give the event that is kept".to_owned());
    };
    checked.retold += 1;
    // What the ledger and people have added is not in the body.
    let again = SourceEvent {
        seq: event.seq,
        revision_of: event.revision_of,
        collides: event.collides,
        received_at: event.received_at,
        accepted: event.accepted.clone(),
        ..again
    };
    if again.to_text() != event.to_text() {
        wrong("what names its event is not what the body gives".to_owned());
    }
    if again.fields != event.fields && row.fields.is_some() {
        wrong("what its event tells is not what the body gives".to_owned());
    }
}
