//! Inserts rows of the inbox, in the commit of their admissions.

use admit_core::{Event, Seq};
use rusqlite::Connection;

use super::queries;

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
