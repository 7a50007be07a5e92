//! The inbox: rows that consumers also read with SQL, under the names of their contract.
//!
//! Inserted in the commit of the admission (`batch`), updated in the commits of claims (`claims`); this file
//! holds the statements of both, and reads.

use admit_core::{Door, Event, Fault, Millis, Seq};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};

use super::{SqliteLedger, SqliteReader, queries};
use crate::port::{BoxFuture, Inbox, InboxFilter, InboxPage, InboxRow, LeaseAction, inbox_status};

/// Inserts a fresh event if its door has an inbox. The row number is the number of its admission, which is
/// never reused. SQLite's own rowid would start over when the last rows are deleted, and a reader with a
/// cursor would miss events.
pub(super) fn put(conn: &Connection, seq: Seq, event: &Event) -> rusqlite::Result<()> {
    let Some(event_id) = &event.inbox else { return Ok(()) };
    let at = event.received_at.to_rfc3339_millis();
    // The body was vetted as JSON, so it is text.
    let payload = String::from_utf8_lossy(&event.body);
    conn.prepare_cached(queries::INBOX_PUT)?.execute((event_id, at, payload, seq.0))?;
    Ok(())
}

/// Updates the status shown in the inbox, for doors that have one.
pub(super) struct StatusUpdates<'c> {
    conn: &'c Connection,
    update: Option<CachedStatement<'c>>,
    at: String,
}

impl<'c> StatusUpdates<'c> {
    pub(super) fn at(conn: &'c Connection, door: &Door, now: Millis) -> rusqlite::Result<Self> {
        let has = door.has_inbox();
        let update = has.then(|| conn.prepare_cached(queries::INBOX_STATUS)).transpose()?;
        Ok(Self { conn, update, at: now.to_rfc3339_millis() })
    }

    pub(super) fn claimed(&mut self, seq: Seq) -> rusqlite::Result<()> {
        self.status(seq, inbox_status::CLAIMED)
    }

    pub(super) fn changed(&mut self, seq: Seq, change: &LeaseAction) -> rusqlite::Result<()> {
        match change {
            LeaseAction::Finish { status } => {
                self.status(seq, status)?;
                if self.update.is_some() {
                    self.conn.prepare_cached(queries::INBOX_FORGET)?.execute([seq.0])?;
                }
                Ok(())
            }
            LeaseAction::Release { .. } => self.status(seq, inbox_status::RECEIVED),
            // It is leased by the same consumer as before.
            LeaseAction::Extend { .. } => Ok(()),
        }
    }

    fn status(&mut self, seq: Seq, status: &str) -> rusqlite::Result<()> {
        if let Some(update) = &mut self.update {
            update.execute((seq.0, status, &self.at))?;
        }
        Ok(())
    }
}

macro_rules! answer_about_the_inbox {
    ($($ledger:ty),+) => {$(
        impl Inbox for $ledger {
            fn inbox(&self, filter: InboxFilter) -> BoxFuture<'_, Result<InboxPage, Fault>> {
                Box::pin(self.readers.read(move |conn, _| page(conn, &filter)))
            }

            fn in_inbox(
                &self,
                event_id: String,
            ) -> BoxFuture<'_, Result<Option<InboxRow>, Fault>> {
                Box::pin(self.readers.read(move |conn, _| get(conn, &event_id)))
            }
        }
    )+};
}

answer_about_the_inbox!(SqliteLedger, SqliteReader);

fn page(conn: &Connection, filter: &InboxFilter) -> rusqlite::Result<InboxPage> {
    let mut page = InboxPage { next: filter.after, ..InboxPage::default() };
    // One row more than requested shows whether there is more.
    let limit = i64::try_from(filter.rows_max).unwrap_or(i64::MAX).saturating_add(1);
    let mut statement;
    let mut rows = match &filter.status {
        None => {
            statement = conn.prepare_cached(queries::INBOX_LIST)?;
            statement.query((filter.after, limit))?
        }
        Some(status) => {
            statement = conn.prepare_cached(queries::INBOX_LIST_STATUS)?;
            statement.query((filter.after, limit, status))?
        }
    };
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let row = inbox_row(row)?;
        bytes += row.payload.len();
        let over = bytes > filter.bytes_max && !page.rows.is_empty();
        if over || page.rows.len() >= filter.rows_max {
            page.more = true;
            break;
        }
        page.next = row.place;
        page.rows.push(row);
    }
    Ok(page)
}

fn get(conn: &Connection, event_id: &str) -> rusqlite::Result<Option<InboxRow>> {
    conn.prepare_cached(queries::INBOX_GET)?.query_row([event_id], inbox_row).optional()
}

fn inbox_row(row: &Row<'_>) -> rusqlite::Result<InboxRow> {
    Ok(InboxRow {
        place: row.get(0)?,
        event_id: row.get(1)?,
        status: row.get(2)?,
        received_at: row.get(3)?,
        last_updated_at: row.get(4)?,
        payload: row.get(5)?,
        principal: row.get(6)?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rusqlite::Connection;

    use crate::sqlite::{WalWrites, open};

    /// The columns and constraints of the contract, as SQLite reports them.
    fn schema(conn: &Connection) -> BTreeMap<String, String> {
        let sql =
            "SELECT name, coalesce(sql, '') FROM sqlite_schema WHERE tbl_name = 'event_inbox'";
        let mut found = conn.prepare(sql).unwrap();
        let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn the_ddl_of_the_inbox_can_be_applied_again_and_has_the_names_of_its_contract() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(open::FILE);
        let conn = open::recover(&path).unwrap();
        let born = schema(&conn);
        conn.execute_batch(include_str!("migrations/0004_inbox.sql")).unwrap();
        assert_eq!(schema(&conn), born, "a second time changes nothing");
        for index in ["idx_event_inbox_status", "idx_event_inbox_received_at"] {
            assert!(born.contains_key(index), "{born:?}");
        }
        let columns: Vec<(String, String, bool, bool)> = conn
            .prepare("SELECT name, type, \"notnull\", pk FROM pragma_table_info('event_inbox')")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap();
        let text = |name: &str, notnull, pk| (name.to_owned(), "TEXT".to_owned(), notnull, pk);
        assert_eq!(
            columns,
            [
                text("event_id", false, true),
                text("status", true, false),
                text("received_at", true, false),
                text("last_updated_at", true, false),
                text("payload", true, false),
            ]
        );
    }

    #[test]
    fn every_connection_has_the_pragmas_of_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(open::FILE);
        drop(open::recover(&path).unwrap());
        let has_pragmas = |conn: &Connection| {
            let number = |name: &str| {
                conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap()
            };
            let mode: String =
                conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            assert_eq!(
                (mode.as_str(), number("synchronous"), number("busy_timeout")),
                ("wal", 2, 5000)
            );
        };
        for writes in [WalWrites::Buffered, WalWrites::Direct] {
            has_pragmas(&open::open_writer(&path, writes).unwrap());
        }
        has_pragmas(&open::open_reader(&path).unwrap());
    }
}
