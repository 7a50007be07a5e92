//! The inbox: rows that consumers also read with SQL, under the names of their contract.
//!
//! Inserted in the commit of the admission by each ledger, updated in the commits of claims
//! ([`StatusUpdates`]), and read here.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::json::{self, Value};
use admit_core::{Door, Fault, Millis, Seq};

use crate::db::{Call, Columns, Db, Param, ReadBackend, params, row, statements};
use crate::port::{BoxFuture, Inbox, InboxFilter, InboxPage, InboxRow, LeaseAction, inbox_status};

statements! {
    each FORGET "inbox_forget";
    each GET "inbox_get";
    each LIST "inbox_list";
    each LIST_STATUS "inbox_list_status";
    each NAMES "inbox_names";
    each STATUS "inbox_status";
}

/// Rows read at a time; payloads may be large, and a page may hold few of them.
const CHUNK: usize = 128;

impl<B: ReadBackend> Inbox for B {
    fn inbox(&self, filter: InboxFilter) -> BoxFuture<'_, Result<InboxPage, Fault>> {
        self.read(move |db, _| page(db, &filter))
    }

    fn in_inbox(&self, event_id: String) -> BoxFuture<'_, Result<Option<InboxRow>, Fault>> {
        self.read(move |db, _| {
            db.query_opt(&GET, params![&event_id])?.as_ref().map(inbox_row).transpose()
        })
    }
}

fn page<D: Db>(db: &D, filter: &InboxFilter) -> Result<InboxPage, D::Error> {
    let mut page = InboxPage { next: filter.after, ..InboxPage::default() };
    let mut bytes = 0;
    loop {
        // One row more than requested shows whether there is more.
        let left = filter.rows_max.saturating_add(1) - page.rows.len();
        let chunk = left.min(CHUNK);
        let found = match &filter.status {
            None => db.query(&LIST, params![page.next, chunk])?,
            Some(status) => db.query(&LIST_STATUS, params![page.next, chunk, status])?,
        };
        for row in &found {
            let row = inbox_row(row)?;
            bytes += row.payload.len();
            let over = bytes > filter.bytes_max && !page.rows.is_empty();
            if over || page.rows.len() >= filter.rows_max {
                page.more = true;
                return Ok(page);
            }
            page.next = row.place;
            page.rows.push(row);
        }
        if found.len() < chunk {
            return Ok(page);
        }
    }
}

fn inbox_row<R: Columns>(row: &R) -> Result<InboxRow, R::Error> {
    Ok(InboxRow {
        place: row.num("place")?,
        event_id: row.text("event_id")?,
        status: row.text("status")?,
        received_at: row.text("received_at")?,
        last_updated_at: row.text("last_updated_at")?,
        payload: row.text("payload")?,
        principal: row.text_opt("principal")?,
    })
}

/// Status changes by consumers, for doors that have an inbox.
pub(crate) struct StatusUpdates {
    has_inbox: bool,
    at: String,
    statuses: BTreeMap<Seq, String>,
    finished: BTreeSet<Seq>,
}

impl StatusUpdates {
    pub(crate) fn at(door: &Door, now: Millis) -> Self {
        Self {
            has_inbox: door.has_inbox(),
            at: now.to_rfc3339_millis(),
            statuses: BTreeMap::new(),
            finished: BTreeSet::new(),
        }
    }

    /// Sets the status of an event; the last one wins.
    pub(crate) fn status(&mut self, seq: Seq, status: &str) {
        if self.has_inbox {
            self.statuses.insert(seq, status.to_owned());
        }
    }

    pub(crate) fn changed(&mut self, seq: Seq, change: &LeaseAction) {
        match change {
            LeaseAction::Finish { status } => {
                self.status(seq, status);
                if self.has_inbox {
                    self.finished.insert(seq);
                }
            }
            LeaseAction::Release { .. } => self.status(seq, inbox_status::RECEIVED),
            // It is leased by the same consumer as before.
            LeaseAction::Extend { .. } => {}
        }
    }

    /// Looks up the affected rows.
    pub(crate) fn named<D: Db>(self, db: &D) -> Result<NamedUpdates, D::Error> {
        let mut named = NamedUpdates { at: self.at, rows: Vec::new() };
        let seqs: Vec<_> = self.statuses.keys().map(|seq| row![*seq]).collect();
        for row in db.query_all(&[Call::rows(&NAMES, &[], &seqs)])?.iter().flatten() {
            let seq = row.seq("seq")?;
            let event_id = event_id(&row.text("facts")?);
            if let (Some(event_id), Some(status)) = (event_id, self.statuses.get(&seq)) {
                let finished = self.finished.contains(&seq).then_some(seq);
                named.rows.push(NamedUpdate { event_id, status: status.clone(), finished });
            }
        }
        Ok(named)
    }
}

/// Status changes of rows of the inbox.
pub(crate) struct NamedUpdates {
    at: String,
    rows: Vec<NamedUpdate>,
}

struct NamedUpdate {
    event_id: String,
    status: String,
    /// The entry of a row that is not needed any more once its body is gone.
    finished: Option<Seq>,
}

impl NamedUpdates {
    /// The parameters of their statements.
    pub(crate) fn params(&self) -> UpdateParams<'_> {
        let (rows, at) = (self.rows.iter(), [Param::from(&self.at)]);
        UpdateParams {
            at,
            changed: rows.clone().map(|row| row![&row.event_id, &row.status]).collect(),
            finished: rows.filter_map(|row| Some(row![&row.event_id, row.finished?])).collect(),
        }
    }
}

/// Parameters of the statements that apply status changes.
pub(crate) struct UpdateParams<'a> {
    at: [Param<'a>; 1],
    changed: Vec<Vec<Param<'a>>>,
    finished: Vec<Vec<Param<'a>>>,
}

impl UpdateParams<'_> {
    /// The statements that apply them.
    pub(crate) fn calls(&self) -> [Call<'_>; 2] {
        [Call::rows(&STATUS, &self.at, &self.changed), Call::rows(&FORGET, &[], &self.finished)]
    }
}

/// The event id in the facts.
pub(crate) fn event_id(facts: &str) -> Option<String> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let facts = json::parse(facts.as_bytes(), &limits).ok()?;
    facts.get("event_id").and_then(Value::as_str).map(str::to_owned)
}
