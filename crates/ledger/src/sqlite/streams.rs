//! Reads streams over the index of their order.

use admit_core::{Door, Fault, Key, Millis, Principal, Seq};
use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};
use tokio::sync::watch;

use super::{SqliteLedger, SqliteReader, queries};
use crate::common::receipts::PageBuilder;
use crate::port::{BoxFuture, Page, StreamEntry, StreamNotifier, Streams};

impl Streams for SqliteLedger {
    fn read(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Page, Fault>> {
        Box::pin(self.readers.read(move |conn, _| page(conn, &door, after, rows_max, bytes_max)))
    }
}

impl Streams for SqliteReader {
    fn read(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Page, Fault>> {
        Box::pin(self.readers.read(move |conn, _| page(conn, &door, after, rows_max, bytes_max)))
    }
}

impl StreamNotifier for SqliteLedger {
    fn subscribe(&self, door: &Door) -> watch::Receiver<Seq> {
        self.notifier.subscribe(door)
    }
}

fn page(
    conn: &Connection,
    door: &Door,
    after: Seq,
    rows_max: usize,
    bytes_max: usize,
) -> rusqlite::Result<Page> {
    let mut builder = PageBuilder::after(after, rows_max, bytes_max);
    let mut statement = conn.prepare_cached(queries::STREAM)?;
    // One row more than requested shows whether there is more.
    let limit = i64::try_from(rows_max).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = statement.query((door.as_str(), after.0, limit))?;
    while let Some(row) = rows.next()? {
        if !builder.take(entry(row)?) {
            break;
        }
    }
    Ok(builder.done())
}

/// Returns the entry at a seq; `None` if it is gone.
pub(super) fn entry_at(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<StreamEntry>> {
    conn.prepare_cached(queries::STREAM_ENTRY)?.query_row([seq.0], entry).optional()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<StreamEntry> {
    let verdict = match row.get_ref(2)?.as_str()? {
        "fresh" => "fresh",
        "revision" => "revision",
        other => {
            let unknown = format!("verdict {other:?} is not of a stream").into();
            return Err(rusqlite::Error::FromSqlConversionFailure(2, Type::Text, unknown));
        }
    };
    Ok(StreamEntry {
        seq: Seq(row.get(0)?),
        key: Key::from_bytes(row.get(1)?),
        verdict,
        principal: Principal::new(row.get_ref(3)?.as_str()?),
        received_at: Millis(row.get(4)?),
        facts: Bytes::from(row.get::<_, String>(5)?),
        body: row.get::<_, Option<Vec<u8>>>(6)?.map(Bytes::from),
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use crate::sqlite::{open, queries};

    /// SQLite's plan of a statement.
    fn plan(conn: &Connection, sql: &str) -> String {
        let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = explain.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan.push_str(&row.get::<_, String>(3).unwrap());
            plan.push('\n');
        }
        plan
    }

    /// The cost of a page is independent of the size of the ledger because of these plans.
    #[test]
    fn streams_and_claims_are_walked_over_their_indexes_without_sorting() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open::recover(&dir.path().join(open::FILE)).unwrap();
        for (sql, index) in [
            (queries::STREAM, "USING INDEX admission_stream (door=? AND rowid>?)"),
            (queries::STREAM_NEWEST, "INDEX admission_stream (door=?)"),
            (queries::CLAIM_NEW, "INDEX admission_stream (door=? AND rowid>?)"),
            (queries::CLAIM_FREE, "INDEX claim_free (door=? AND expires_at<?)"),
            (queries::KEY_HOLDS, "USING INDEX admission_again (key=?)"),
        ] {
            let plan = plan(&conn, sql);
            assert!(plan.contains(index), "{sql}\n{plan}");
            assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN a"), "{sql}\n{plan}");
        }
    }
}
