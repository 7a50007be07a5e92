//! The ledger's file as anybody with SQLite sees it, beside the running gate.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::events::idempotency_key;

/// A row of the contract's own view of receipts.
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

/// Opens `ledger.db` for reading only.
pub(crate) fn open(data: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(data.join("ledger.db"), flags).unwrap()
}

/// Every row of `pixel_receipts`, by the names the contract gives its fields.
pub(crate) fn receipts(data: &Path) -> Vec<ReceiptRow> {
    let conn = open(data);
    let mut query = conn
        .prepare(
            "SELECT dedupe_key, dedupe_scope, idempotency_key, event_id, event_name,
                    schema_version, first_seen_at, last_seen_at, duplicate_count,
                    last_transport_attempt, status
             FROM pixel_receipts",
        )
        .unwrap();
    let rows = query.query_map([], |row| {
        Ok(ReceiptRow {
            dedupe_key: row.get("dedupe_key")?,
            dedupe_scope: row.get("dedupe_scope")?,
            idempotency_key: row.get("idempotency_key")?,
            event_id: row.get("event_id")?,
            event_name: row.get("event_name")?,
            schema_version: row.get("schema_version")?,
            first_seen_at: row.get("first_seen_at")?,
            last_seen_at: row.get("last_seen_at")?,
            duplicate_count: row.get("duplicate_count")?,
            last_transport_attempt: row.get("last_transport_attempt")?,
            status: row.get("status")?,
        })
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// What is processed, by idempotency key. Fails when one key is there twice.
pub(crate) struct Stored(BTreeMap<String, ReceiptRow>);

impl Stored {
    pub(crate) fn read(data: &Path) -> Self {
        let mut stored = BTreeMap::new();
        for row in receipts(data).into_iter().filter(|row| row.status == "processed") {
            let key = row.idempotency_key.clone().expect("a processed event has its key");
            let twice = stored.insert(key, row);
            assert_eq!(twice, None, "one key, one admission");
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

/// SQLite's own opinion of the file; the gate must not be running.
pub(crate) fn assert_intact(data: &Path) {
    let found: String =
        open(data).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok", "the ledger is damaged");
}

/// The write lock of the ledger, taken away from the gate until this is dropped.
pub(crate) struct Held(Connection);

impl Held {
    pub(crate) fn take(data: &Path) -> Self {
        let conn = Connection::open(data.join("ledger.db")).unwrap();
        conn.busy_timeout(super::SOON).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(conn)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.execute_batch("ROLLBACK").unwrap_or_default();
    }
}
