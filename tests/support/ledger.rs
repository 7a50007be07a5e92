//! SQL access to the receipts of the pixel-control door, and the ledger's write lock.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;

use super::events::idempotency_key;
use super::sql;

/// A row of the view `pixel_receipts`, which the contract defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiptRow {
    pub(crate) dedupe_key: Option<String>,
    pub(crate) dedupe_scope: String,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) event_id: Option<String>,
    pub(crate) event_name: Option<String>,
    pub(crate) schema_version: Option<String>,
    pub(crate) first_seen_at: String,
    pub(crate) last_seen_at: String,
    pub(crate) duplicate_count: i64,
    pub(crate) last_transport_attempt: Option<i64>,
    pub(crate) status: String,
}

/// Returns all rows of `pixel_receipts`.
pub(crate) fn receipts(data: &Path) -> Vec<ReceiptRow> {
    let rows = sql::query_rows(
        data,
        "SELECT dedupe_key, dedupe_scope, idempotency_key, event_id, event_name,
                schema_version, first_seen_at, last_seen_at, duplicate_count,
                last_transport_attempt, status
         FROM pixel_receipts",
    );
    let read = |row: &sql::Row| ReceiptRow {
        dedupe_key: row.get_by_name("dedupe_key"),
        dedupe_scope: row.get_by_name("dedupe_scope"),
        idempotency_key: row.get_by_name("idempotency_key"),
        event_id: row.get_by_name("event_id"),
        event_name: row.get_by_name("event_name"),
        schema_version: row.get_by_name("schema_version"),
        first_seen_at: row.get_by_name("first_seen_at"),
        last_seen_at: row.get_by_name("last_seen_at"),
        duplicate_count: row.get_by_name("duplicate_count"),
        last_transport_attempt: row.get_by_name("last_transport_attempt"),
        status: row.get_by_name("status"),
    };
    rows.iter().map(read).collect()
}

/// Receipts of processed events by idempotency key. A key that occurs twice panics.
pub(crate) struct StoredReceipts(BTreeMap<String, ReceiptRow>);

impl StoredReceipts {
    pub(crate) fn read(data: &Path) -> Self {
        let mut stored = BTreeMap::new();
        for row in receipts(data).into_iter().filter(|row| row.status == "processed") {
            let key = row.idempotency_key.clone().expect("a processed event has its key");
            let previous = stored.insert(key, row);
            assert_eq!(previous, None, "an idempotency key was admitted twice");
        }
        Self(stored)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The receipt of event number `n`.
    pub(crate) fn get(&self, n: u64) -> Option<&ReceiptRow> {
        self.0.get(&idempotency_key(n))
    }
}

/// Integrity check of the ledger; the gate must not be running. PostgreSQL checks its pages itself, so
/// there only the last sequence number is compared with the rows.
pub(crate) fn assert_intact(data: &Path) {
    if sql::is_postgres() {
        let last: i64 = sql::query_one(data, "SELECT last_seq FROM head");
        let kept: i64 = sql::query_one(data, "SELECT coalesce(max(seq), 0) FROM admission");
        assert!(kept <= last, "seq {kept} is greater than last_seq {last}");
        return;
    }
    let file = sql::open_file(data);
    let found: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok", "the ledger is damaged");
}

/// Write lock on the ledger: blocks commits of the gate until dropped.
pub(crate) enum LedgerLock {
    File(Connection),
    Head(sql::Database),
}

impl LedgerLock {
    pub(crate) fn acquire(data: &Path) -> Self {
        if sql::is_postgres() {
            let database = sql::Database::of(data);
            database.rows("BEGIN; SELECT last_seq FROM head FOR UPDATE").unwrap();
            return Self::Head(database);
        }
        let conn = Connection::open(data.join("ledger.db")).unwrap();
        conn.busy_timeout(super::TIMEOUT).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self::File(conn)
    }
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        match self {
            Self::File(conn) => conn.execute_batch("ROLLBACK").unwrap_or_default(),
            Self::Head(database) => drop(database.rows("ROLLBACK")),
        }
    }
}
