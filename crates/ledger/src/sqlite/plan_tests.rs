//! Tests of the plans of statements.

use rusqlite::Connection;

use super::{open, queries};
use crate::tables::{claim, stream};

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
        (stream::ENTRIES.sqlite(), "USING INDEX admission_stream (door=? AND rowid>?)"),
        (claim::STANDING.sqlite(), "INDEX admission_stream (door=?)"),
        (claim::SOME.sqlite(), "INDEX admission_stream (door=? AND rowid>?)"),
        (claim::SOME.sqlite(), "INDEX claim_free (door=? AND expires_at>?)"),
        (claim::NEW.sqlite(), "INDEX admission_stream (door=? AND rowid>?)"),
        (claim::FREE.sqlite(), "INDEX claim_free (door=? AND expires_at<?)"),
        (queries::KEY_HOLDS, "USING INDEX admission_again (key=?)"),
    ] {
        let plan = plan(&conn, sql);
        assert!(plan.contains(index), "{sql}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN a"), "{sql}\n{plan}");
    }
}
