//! Verifies the rows of the inbox: their admissions, and whether their status and times match their
//! claims.

use admit_core::{Millis, Seq};

use crate::port::inbox_status::{CLAIMED, RECEIVED};
use crate::verify::{Disagreement, DisagreementSink};

/// Statuses set by consumers.
const DONE: &str = "done";
const FAILED: &str = "failed";

/// A row of the inbox with the rows that must match it.
#[derive(Debug)]
pub(crate) struct InboxRecord {
    pub(crate) place: i64,
    pub(crate) event_id: String,
    pub(crate) status: String,
    pub(crate) received_at: String,
    pub(crate) last_updated_at: String,
    /// Its admission; `None` if that is not an event of the inbox.
    pub(crate) admission: Option<InboxOrigin>,
    pub(crate) claim: Option<InboxClaim>,
    /// The status other than `done` under which it was finished, and when.
    pub(crate) finished: Option<(String, Millis)>,
    /// Whether its entry was ever claimed.
    pub(crate) was_claimed: bool,
}

/// The admission of an inbox row.
#[derive(Debug)]
pub(crate) struct InboxOrigin {
    pub(crate) event_id: Option<String>,
    pub(crate) received_at: Millis,
}

/// The claim of an entry that is not finished.
#[derive(Debug)]
pub(crate) struct InboxClaim {
    pub(crate) is_held: bool,
    pub(crate) expires_at: Millis,
}

/// Counts of the verification of the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxCounts {
    /// Rows checked.
    pub rows: u64,
    /// Finished ones whose `last_updated_at` cannot be verified from other rows.
    pub untimed: u64,
}

/// Callback that receives one row at a time, or why one cannot be read.
pub(crate) type EachInboxRow<'f> = dyn FnMut(Result<InboxRecord, (Seq, String)>) + 'f;

/// Checks one row.
pub(crate) fn check(
    row: &InboxRecord,
    checked: &mut InboxCounts,
    found: &mut DisagreementSink<'_>,
) {
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
        wrong(format!("the inbox has {id:?}, but its admission has another event_id"));
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
        TimeCheck::Right => {}
        TimeCheck::Unknown => checked.untimed += 1,
        TimeCheck::Wrong(expected) => {
            let kept = &row.last_updated_at;
            wrong(format!("last_updated_at of {id:?} is {kept:?}, {expected}"));
        }
    }
}

/// Returns what is wrong with the status.
fn status_of(row: &InboxRecord) -> Option<String> {
    let (id, status) = (&row.event_id, row.status.as_str());
    let expected = match (&row.claim, &row.finished) {
        (Some(claim), _) if claim.is_held => CLAIMED,
        (Some(_), _) => RECEIVED,
        (None, Some((word, _))) => word.as_str(),
        (None, None) if row.was_claimed => DONE,
        (None, None) => RECEIVED,
    };
    if ![RECEIVED, CLAIMED, DONE, FAILED].contains(&status) && status != expected {
        return Some(format!(
            "the status {status:?} of {id:?} is none of the inbox, it is {expected:?}"
        ));
    }
    (status != expected)
        .then(|| format!("the status of {id:?} is {status:?}, by its claims it is {expected:?}"))
}

enum TimeCheck {
    Right,
    /// A valid time that cannot be verified from other rows.
    Unknown,
    /// The expected time.
    Wrong(String),
}

/// Checks the time of the last change.
fn updated_at(row: &InboxRecord, received: &str) -> TimeCheck {
    let kept = row.last_updated_at.as_str();
    let written = Millis::parse_rfc3339(kept).filter(|at| at.to_rfc3339_millis() == kept);
    let Some(at) = written else {
        return TimeCheck::Wrong("which is no time as the gate writes it".to_owned());
    };
    match (&row.claim, &row.finished) {
        (Some(claim), _) if at > claim.expires_at => {
            let until = claim.expires_at;
            TimeCheck::Wrong(format!("which is after the lease of its claim, {until}"))
        }
        (Some(_), _) => TimeCheck::Right,
        (None, Some((_, finished_at))) if at != *finished_at => {
            TimeCheck::Wrong(format!("it was finished at {finished_at}"))
        }
        (None, Some(_)) => TimeCheck::Right,
        (None, None) if row.was_claimed => TimeCheck::Unknown,
        (None, None) if kept != received => {
            TimeCheck::Wrong(format!("it has not changed since {received}"))
        }
        (None, None) => TimeCheck::Right,
    }
}
