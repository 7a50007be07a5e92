//! The inbox: rows that consumers also read with SQL, under the names of their contract.
//!
//! Inserted in the commit of the admission ([`NewInboxRows`]), updated in the commits of claims ([`StatusUpdates`]); and
//! read.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::json::{self, Value};
use admit_core::{Door, Event, Fault, Millis, Seq};
use tokio_postgres::Row;

use super::conn::{Columns, Conn, OwnedParam, OwnedQuery, Param, Query, Result, big, rows};
use super::{PostgresLedger, PostgresReader, nul_escape, sql};
use crate::port::{BoxFuture, Inbox, InboxFilter, InboxPage, InboxRow, LeaseAction, inbox_status};

/// Fresh events of the inbox, column by column.
#[derive(Default)]
pub(super) struct NewInboxRows {
    event_ids: Vec<String>,
    ats: Vec<String>,
    payloads: Vec<String>,
    places: Vec<i64>,
}

impl NewInboxRows {
    /// Adds a fresh event if its door has an inbox. Its row number is the number of its admission, which is
    /// never reused, so that a reader with a cursor misses nothing.
    pub(super) fn push(&mut self, seq: Seq, event: &Event) {
        let Some(event_id) = &event.inbox else { return };
        self.event_ids.push(nul_escape::escape(event_id).into_owned());
        self.ats.push(event.received_at.to_rfc3339_millis());
        // The body was vetted as JSON, so it is text.
        self.payloads.push(nul_escape::escape(&String::from_utf8_lossy(&event.body)).into_owned());
        self.places.push(big(seq.0));
    }

    /// The statement that inserts them.
    pub(super) fn writes(&self) -> Option<OwnedQuery<'_>> {
        let Self { event_ids, ats, payloads, places } = self;
        let columns: Vec<OwnedParam<'_>> =
            vec![Box::new(event_ids), Box::new(ats), Box::new(payloads), Box::new(places)];
        (!places.is_empty()).then(|| OwnedQuery::new(sql!("inbox_puts"), columns))
    }
}

/// Status changes by consumers, for doors that have an inbox.
pub(super) struct StatusUpdates {
    has_inbox: bool,
    at: String,
    statuses: BTreeMap<Seq, String>,
    finished: Vec<Seq>,
}

impl StatusUpdates {
    pub(super) fn at(door: &Door, now: Millis) -> Self {
        let at = now.to_rfc3339_millis();
        Self { has_inbox: door.has_inbox(), at, statuses: BTreeMap::new(), finished: Vec::new() }
    }

    /// Sets the status of an event; the last one wins.
    pub(super) fn status(&mut self, seq: Seq, status: &str) {
        if self.has_inbox {
            self.statuses.insert(seq, nul_escape::escape(status).into_owned());
        }
    }

    pub(super) fn changed(&mut self, seq: Seq, change: &LeaseAction) {
        match change {
            LeaseAction::Finish { status } => {
                self.status(seq, status);
                if self.has_inbox {
                    self.finished.push(seq);
                }
            }
            LeaseAction::Release { .. } => self.status(seq, inbox_status::RECEIVED),
            // It is leased by the same consumer as before.
            LeaseAction::Extend { .. } => {}
        }
    }

    /// Looks up the affected rows.
    pub(super) fn named(self, conn: &Conn) -> Result<StatusColumns> {
        let mut named = StatusColumns { at: self.at, ..StatusColumns::default() };
        let seqs: Vec<i64> = self.statuses.keys().map(|seq| big(seq.0)).collect();
        if seqs.is_empty() {
            return Ok(named);
        }
        let finished: BTreeSet<Seq> = self.finished.into_iter().collect();
        let mut statuses = self.statuses;
        for row in conn.query(sql!("inbox_names"), &[&seqs])? {
            let seq = row.seq("seq")?;
            let (Some(id), Some(status)) = (event_id(&row.text("facts")?), statuses.remove(&seq))
            else {
                continue;
            };
            let id = nul_escape::escape(&id).into_owned();
            if finished.contains(&seq) {
                named.finished_ids.push(id.clone());
                named.finished_at.push(big(seq.0));
            }
            named.event_ids.push(id);
            named.statuses.push(status);
        }
        Ok(named)
    }
}

/// Status changes by row, column by column.
#[derive(Default)]
pub(super) struct StatusColumns {
    at: String,
    event_ids: Vec<String>,
    statuses: Vec<String>,
    finished_ids: Vec<String>,
    finished_at: Vec<i64>,
}

impl StatusColumns {
    /// The statement that applies them.
    pub(super) fn queries(&self) -> Vec<Query<'_>> {
        let Self { at, event_ids, statuses, finished_ids, finished_at } = self;
        let mut queries = Vec::new();
        if !event_ids.is_empty() {
            queries.push(Query::new(sql!("inbox_status"), vec![event_ids, statuses, at]));
        }
        if !finished_ids.is_empty() {
            queries.push(Query::new(sql!("inbox_forget"), vec![finished_ids, finished_at]));
        }
        queries
    }
}

/// The event id in the facts.
pub(super) fn event_id(facts: &str) -> Option<String> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let facts = json::parse(facts.as_bytes(), &limits).ok()?;
    facts.get("event_id").and_then(Value::as_str).map(str::to_owned)
}

macro_rules! answer_about_the_inbox {
    ($($ledger:ty),+) => {$(
        impl Inbox for $ledger {
            fn inbox(
                &self,
                filter: InboxFilter,
            ) -> BoxFuture<'_, std::result::Result<InboxPage, Fault>> {
                Box::pin(self.readers.read(move |conn, _| page(conn, &filter)))
            }

            fn in_inbox(
                &self,
                event_id: String,
            ) -> BoxFuture<'_, std::result::Result<Option<InboxRow>, Fault>> {
                Box::pin(self.readers.read(move |conn, _| get(conn, &event_id)))
            }
        }
    )+};
}

answer_about_the_inbox!(PostgresLedger, PostgresReader);

/// Rows read at a time; payloads may be large, and a page may hold few of them.
const CHUNK: usize = 128;

fn page(conn: &Conn, filter: &InboxFilter) -> Result<InboxPage> {
    let mut page = InboxPage { next: filter.after, ..InboxPage::default() };
    let mut bytes = 0;
    loop {
        // One row more than requested shows whether there is more.
        let left = filter.rows_max.saturating_add(1) - page.rows.len();
        let chunk = left.min(CHUNK);
        let (after, limit) = (big(page.next), rows(chunk));
        let found = match &filter.status {
            None => conn.query(sql!("inbox_list"), &[&after, &limit])?,
            Some(status) => {
                let params: [Param<'_>; 3] = [&after, &limit, &nul_escape::escape(status)];
                conn.query(sql!("inbox_list_status"), &params)?
            }
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

fn get(conn: &Conn, event_id: &str) -> Result<Option<InboxRow>> {
    let found = conn.query_opt(sql!("inbox_get"), &[&nul_escape::escape(event_id)])?;
    found.as_ref().map(inbox_row).transpose()
}

fn inbox_row(row: &Row) -> Result<InboxRow> {
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
