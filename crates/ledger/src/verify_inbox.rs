//! Checks the rows of the inbox: whose they are, and whether their status and times are those of their
//! admissions and claims.

use admit_core::{Millis, Seq};

use crate::port::inbox_status::{CLAIMED, RECEIVED};
use crate::verify::{Disagreement, Found};

/// The words by which consumers finish an event of the inbox.
const DONE: &str = "done";
const FAILED: &str = "failed";

/// A row of the inbox with everything that must agree with it.
#[derive(Debug)]
pub(crate) struct InboxRecord {
    pub(crate) place: i64,
    pub(crate) event_id: String,
    pub(crate) status: String,
    pub(crate) received_at: String,
    pub(crate) last_updated_at: String,
    /// What the admission at its place says; none where that is no event of the inbox.
    pub(crate) admission: Option<InboxOrigin>,
    pub(crate) claim: Option<InboxClaim>,
    /// The word other than `done` under which it was finished, and when.
    pub(crate) finished: Option<(String, Millis)>,
    /// Whether its place was ever handed out.
    pub(crate) was_out: bool,
}

/// What an admission says about its row in the inbox.
#[derive(Debug)]
pub(crate) struct InboxOrigin {
    pub(crate) event_id: Option<String>,
    pub(crate) received_at: Millis,
}

/// What is kept of a place that was handed out and is not finished.
#[derive(Debug)]
pub(crate) struct InboxClaim {
    pub(crate) is_held: bool,
    pub(crate) expires_at: Millis,
}

/// What could not be compared, because nothing else in the ledger says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxChecked {
    /// Rows that were looked at.
    pub rows: u64,
    /// Finished ones among them whose `last_updated_at` nothing else says.
    pub untimed: u64,
}

/// Takes one row after the other, or why one cannot be read.
pub(crate) type EachInboxRow<'f> = dyn FnMut(Result<InboxRecord, (Seq, String)>) + 'f;

/// Compares one row.
pub(crate) fn check(row: &InboxRecord, checked: &mut InboxChecked, found: &mut Found<'_>) {
    checked.rows += 1;
    let seq = u64::try_from(row.place).ok().map(Seq);
    let id = &row.event_id;
    let mut wrong = |message: String| {
        found(Disagreement { at: seq, check: "inbox", message });
    };
    let Some(origin) = &row.admission else {
        wrong(format!("the inbox has a row {id:?} that no admission made"));
        return;
    };
    if origin.event_id.as_ref() != Some(id) {
        wrong(format!("the inbox has {id:?} where its admission says another event_id"));
    }
    let received = origin.received_at.to_rfc3339_millis();
    if row.received_at != received {
        let kept = &row.received_at;
        wrong(format!("received_at of {id:?} is {kept:?}, its admission came at {received}"));
    }
    if let Some(message) = status_of(row) {
        wrong(message);
    }
    match updated_at(row, &received) {
        Updated::Right => {}
        Updated::Unknown => checked.untimed += 1,
        Updated::Wrong(expected) => {
            let kept = &row.last_updated_at;
            wrong(format!("last_updated_at of {id:?} is {kept:?}, {expected}"));
        }
    }
}

/// What is wrong with the status.
fn status_of(row: &InboxRecord) -> Option<String> {
    let (id, status) = (&row.event_id, row.status.as_str());
    let stands = match (&row.claim, &row.finished) {
        (Some(claim), _) if claim.is_held => CLAIMED,
        (Some(_), _) => RECEIVED,
        (None, Some((word, _))) => word.as_str(),
        (None, None) if row.was_out => DONE,
        (None, None) => RECEIVED,
    };
    if ![RECEIVED, CLAIMED, DONE, FAILED].contains(&status) && status != stands {
        return Some(format!(
            "the status {status:?} of {id:?} is none of the inbox, it is {stands:?}"
        ));
    }
    (status != stands)
        .then(|| format!("the status of {id:?} is {status:?}, by its claims it is {stands:?}"))
}

enum Updated {
    Right,
    /// It is a time, and nothing else says which.
    Unknown,
    /// What it should be.
    Wrong(String),
}

/// Whether the time of the last change can be what it says.
fn updated_at(row: &InboxRecord, received: &str) -> Updated {
    let kept = row.last_updated_at.as_str();
    let written = Millis::parse_rfc3339(kept).filter(|at| at.to_rfc3339_millis() == kept);
    let Some(at) = written else {
        return Updated::Wrong("which is no time as the gate writes it".to_owned());
    };
    match (&row.claim, &row.finished) {
        (Some(claim), _) if at > claim.expires_at => {
            let until = claim.expires_at;
            Updated::Wrong(format!("which is after the lease of its claim, {until}"))
        }
        (Some(_), _) => Updated::Right,
        (None, Some((_, finished_at))) if at != *finished_at => {
            Updated::Wrong(format!("it was finished at {finished_at}"))
        }
        (None, Some(_)) => Updated::Right,
        (None, None) if row.was_out => Updated::Unknown,
        (None, None) if kept != received => {
            Updated::Wrong(format!("nothing has happened to it since {received}"))
        }
        (None, None) => Updated::Right,
    }
}
