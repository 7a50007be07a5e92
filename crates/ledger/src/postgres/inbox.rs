//! The inbox: rows that consumers read with SQL too, under the names their contract gives them.
//!
//! Written in the commit of the admission ([`Arrived`]), moved on in the commits of claims
//! ([`Shown`]); and read.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::json::{self, Value};
use admit_core::{Door, Event, Fault, Millis, Seq};
use tokio_postgres::Row;

use super::conn::{Ask, Columns, Conn, Param, Result, big, rows};
use super::{PostgresLedger, PostgresReader, sql, text};
use crate::port::{BoxFuture, Change, Inbox, InboxFilter, InboxPage, InboxRow, inbox_status};

/// Fresh events that have a place in the inbox, column by column.
#[derive(Default)]
pub(super) struct Arrived {
    event_ids: Vec<String>,
    ats: Vec<String>,
    payloads: Vec<String>,
    places: Vec<i64>,
}

impl Arrived {
    /// Takes a fresh event in, if it has a place there: the number of its admission, which no other
    /// ever gets, so that whoever reads on after a place misses nothing.
    pub(super) fn push(&mut self, seq: Seq, event: &Event) {
        let Some(event_id) = &event.inbox else { return };
        self.event_ids.push(text::kept(event_id).into_owned());
        self.ats.push(event.received_at.to_rfc3339_millis());
        // What was vetted is JSON, so it is text.
        self.payloads.push(text::kept(&String::from_utf8_lossy(&event.body)).into_owned());
        self.places.push(big(seq.0));
    }

    /// What writes them.
    pub(super) fn asks(&self) -> Vec<Ask<'_>> {
        if self.places.is_empty() {
            return Vec::new();
        }
        let Self { event_ids, ats, payloads, places } = self;
        vec![Ask::new(sql!("inbox_puts"), vec![event_ids, ats, payloads, places])]
    }
}

/// What consumers do, to be shown in the inbox of doors that have one.
pub(super) struct Shown {
    has_inbox: bool,
    at: String,
    statuses: BTreeMap<Seq, String>,
    finished: Vec<Seq>,
}

impl Shown {
    pub(super) fn at(door: &Door, now: Millis) -> Self {
        let at = now.to_rfc3339_millis();
        Self { has_inbox: door.has_inbox(), at, statuses: BTreeMap::new(), finished: Vec::new() }
    }

    /// The event at a place stands so; what is said last counts.
    pub(super) fn status(&mut self, seq: Seq, status: &str) {
        if self.has_inbox {
            self.statuses.insert(seq, text::kept(status).into_owned());
        }
    }

    pub(super) fn changed(&mut self, seq: Seq, change: &Change) {
        match change {
            Change::Finish { status } => {
                self.status(seq, status);
                if self.has_inbox {
                    self.finished.push(seq);
                }
            }
            Change::Release { .. } => self.status(seq, inbox_status::RECEIVED),
            // It is in the same hands as before.
            Change::Extend { .. } => {}
        }
    }

    /// Finds out which rows it is about.
    pub(super) fn named(self, conn: &Conn) -> Result<Named> {
        let mut named = Named { at: self.at, ..Named::default() };
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
            let id = text::kept(&id).into_owned();
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

/// What is to be shown in which rows, column by column.
#[derive(Default)]
pub(super) struct Named {
    at: String,
    event_ids: Vec<String>,
    statuses: Vec<String>,
    finished_ids: Vec<String>,
    finished_at: Vec<i64>,
}

impl Named {
    /// What shows it.
    pub(super) fn asks(&self) -> Vec<Ask<'_>> {
        let Self { at, event_ids, statuses, finished_ids, finished_at } = self;
        let mut asks = Vec::new();
        if !event_ids.is_empty() {
            asks.push(Ask::new(sql!("inbox_status"), vec![event_ids, statuses, at]));
        }
        if !finished_ids.is_empty() {
            asks.push(Ask::new(sql!("inbox_forget"), vec![finished_ids, finished_at]));
        }
        asks
    }
}

/// What an event of the inbox is called, from its facts.
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

/// Rows that are read at a time; payloads may be large, and a page may hold few of them.
const CHUNK: usize = 128;

fn page(conn: &Conn, filter: &InboxFilter) -> Result<InboxPage> {
    let mut page = InboxPage { next: filter.after, ..InboxPage::default() };
    let mut bytes = 0;
    loop {
        // One row more than wanted tells whether there is more.
        let left = filter.rows_max.saturating_add(1) - page.rows.len();
        let chunk = left.min(CHUNK);
        let (after, limit) = (big(page.next), rows(chunk));
        let found = match &filter.status {
            None => conn.query(sql!("inbox_list"), &[&after, &limit])?,
            Some(status) => {
                let asked: [Param<'_>; 3] = [&after, &limit, &text::kept(status)];
                conn.query(sql!("inbox_list_status"), &asked)?
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
    let found = conn.query_opt(sql!("inbox_get"), &[&text::kept(event_id)])?;
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
