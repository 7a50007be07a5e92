//! What the pixel door has kept, as anybody with SQL sees it, and the ledger's write lock.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;

use super::events::idempotency_key;
use super::sql;

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

/// Every row of `pixel_receipts`, by the names the contract gives its fields.
pub(crate) fn receipts(data: &Path) -> Vec<ReceiptRow> {
    let rows = sql::rows(
        data,
        "SELECT dedupe_key, dedupe_scope, idempotency_key, event_id, event_name,
                schema_version, first_seen_at, last_seen_at, duplicate_count,
                last_transport_attempt, status
         FROM pixel_receipts",
    );
    let read = |row: &sql::Row| ReceiptRow {
        dedupe_key: row.named("dedupe_key"),
        dedupe_scope: row.named("dedupe_scope"),
        idempotency_key: row.named("idempotency_key"),
        event_id: row.named("event_id"),
        event_name: row.named("event_name"),
        schema_version: row.named("schema_version"),
        first_seen_at: row.named("first_seen_at"),
        last_seen_at: row.named("last_seen_at"),
        duplicate_count: row.named("duplicate_count"),
        last_transport_attempt: row.named("last_transport_attempt"),
        status: row.named("status"),
    };
    rows.iter().map(read).collect()
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

/// The ledger's own opinion of itself; the gate must not be running. A server looks after its pages
/// itself, so there it is asked whether what it holds still adds up.
pub(crate) fn assert_intact(data: &Path) {
    if sql::is_postgres() {
        let last: i64 = sql::one(data, "SELECT last_seq FROM head");
        let kept: i64 = sql::one(data, "SELECT coalesce(max(seq), 0) FROM admission");
        assert!(kept <= last, "{kept} is beyond the last place {last}");
        return;
    }
    let file = sql::open_file(data);
    let found: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok", "the ledger is damaged");
}

/// The write lock of the ledger, taken away from the gate until this is dropped.
pub(crate) enum Held {
    File(Connection),
    Head(sql::Database),
}

impl Held {
    pub(crate) fn take(data: &Path) -> Self {
        if sql::is_postgres() {
            let database = sql::Database::of(data);
            database.rows("BEGIN; SELECT last_seq FROM head FOR UPDATE").unwrap();
            return Self::Head(database);
        }
        let conn = Connection::open(data.join("ledger.db")).unwrap();
        conn.busy_timeout(super::SOON).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self::File(conn)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match self {
            Self::File(conn) => conn.execute_batch("ROLLBACK").unwrap_or_default(),
            Self::Head(database) => drop(database.rows("ROLLBACK")),
        }
    }
}
