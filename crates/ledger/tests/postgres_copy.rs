//! A ledger is copied from SQLite into PostgreSQL: whole, checked, or not at all.
#![cfg(feature = "postgres")]

use std::path::Path;
use std::sync::Arc;

use admit_core::{Entry, Event, Millis};
use admit_ledger::Admissions;
use admit_ledger::copy::{CopiedLedger, CopyError, Progress, copy};
use admit_ledger::postgres::{Options, PostgresLedger, migrate};
use admit_ledger::sqlite::{self, KeyIndexKind, SqliteLedger};
use admit_testkit::event::{counted, entry, event, refused, revisable, streamed};
use admit_testkit::postgres::{TestDatabase, database};
use admit_testkit::publications_suite::{self, SharedLedger};
use tempfile::TempDir;

/// So small that some keys are merged and some only logged when the ledger stops.
const TINY: KeyIndexKind = KeyIndexKind::Merged { unmerged_max: 7 };

/// So small that a copy makes many partitions.
const PLACES: u64 = 20;

fn options(database: &TestDatabase) -> Options {
    Options { partition_places: PLACES, ..Options::new(&database.url) }
}

/// An event of the inbox whose name contains NUL, which PostgreSQL cannot store.
fn odd(id: &str) -> Entry {
    let door = admit_core::Door::new("skyra");
    let facts = admit_core::json::Object::from_iter([("event_id", id.to_owned().into())]);
    Entry::Event(Event { inbox: Some(id.to_owned()), facts, ..streamed(&door, id, "{}") })
}

/// Entries of every kind, the same on each call.
fn events() -> Vec<Entry> {
    let mut events: Vec<Entry> = (0..50).map(|n| entry(&format!("k{n}"), "same")).collect();
    let orders = admit_core::Door::new("events/orders");
    events.extend((0..20).map(|n| Entry::Event(streamed(&orders, &format!("o{n}"), "body"))));
    events.extend([
        entry("k1", "other"),
        revisable("v", "one"),
        revisable("v", "two"),
        refused("broken"),
        counted("c1", "x", "tally"),
        counted("c2", "x", "tally"),
        odd("plain"),
        odd("a\0b\u{f8fe}\\n\t\r\n"),
        Entry::Event(Event { body: (0..=255).collect::<Vec<u8>>().into(), ..event("bytes", "b") }),
    ]);
    events
}

async fn words(ledger: &dyn Admissions) -> Vec<&'static str> {
    let recorded = ledger.record(events()).await;
    recorded.into_iter().map(|one| one.expect("recorded").verdict.word()).collect()
}

/// A folder with a ledger that received every entry twice.
async fn filled() -> (TempDir, Vec<&'static str>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = sqlite::Options::new(folder.path(), Millis(1));
    let options = sqlite::Options { key_index: TINY, ..options };
    let ledger = SqliteLedger::open(options).expect("the ledger opens");
    assert!(words(&ledger).await.contains(&"fresh"));
    let again = words(&ledger).await;
    assert!(!again.contains(&"fresh"));
    (folder, again)
}

fn copied(from: &Path, database: &TestDatabase) -> Result<CopiedLedger, CopyError> {
    copy(from, &options(database), &mut |_| {})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_ledger_gives_the_same_verdicts() {
    let Some(database) = database() else { return };
    let (folder, again) = filled().await;
    let copied = tokio::task::block_in_place(|| copied(folder.path(), &database)).expect("copied");
    let rows = |name: &str| {
        let found = copied.tables.iter().find(|table| table.name == name).expect("a table");
        found.rows
    };
    let run = |sql: &str| database.run(sql).expect("readable");
    for table in ["admission", "body", "sighting", "key_index", "document", "event_inbox", "gate"] {
        assert!(rows(table) > 0, "{table}");
        assert_eq!(run(&format!("SELECT count(*) FROM {table}")), rows(table).to_string());
    }
    assert_eq!(rows("key_index").to_string(), run("SELECT keys FROM head"));
    let dense = "SELECT last_seq = admissions + sightings AND last_seq = (SELECT max(seq) FROM \
                 (SELECT seq FROM admission UNION ALL SELECT seq FROM sighting) t) FROM head";
    assert_eq!(run(dense), "t");
    assert!(run("SELECT count(*) FROM growth").parse::<u64>().expect("a number") > 4);

    let ledger = PostgresLedger::open(options(&database)).expect("the ledger opens");
    assert_eq!(words(&ledger).await, again);
    let fresh = ledger.record(vec![entry("new", "x")]).await.remove(0).expect("recorded");
    assert_eq!(fresh.ledger, copied.tag, "receipt ids go on");
    assert!(fresh.verdict.seq().expect("a place") > copied.last_seq);
    drop(ledger);
    let epochs = "SELECT count(*) = 2 AND max(epoch) = 2 FROM gate";
    assert_eq!(run(epochs), "t", "the next start is the next epoch");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_leaves_nothing_and_can_be_restarted() {
    let Some(database) = database() else { return };
    let (folder, _) = filled().await;
    tokio::task::block_in_place(|| {
        let cut = |now: Progress<'_>| {
            if now.table == "sighting" && !now.is_checking {
                let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE datname = current_database() AND pid <> pg_backend_pid()";
                database.run(cut).expect("the connection is cut");
            }
        };
        let mut cut = cut;
        let error = copy(folder.path(), &options(&database), &mut cut).expect_err("it was cut off");
        assert!(error.to_string().contains("everything was rolled back"), "{error}");
        assert_eq!(database.run("SELECT count(*) FROM admission").as_deref(), Ok("0"));
        copied(folder.path(), &database).expect("the second time it is copied");
        let error = copied(folder.path(), &database).expect_err("it is there");
        assert!(matches!(error, CopyError::AlreadyThere { .. }), "{error}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_changes_during_the_copy_is_detected_and_rolled_back() {
    let Some(database) = database() else { return };
    let (folder, _) = filled().await;
    tokio::task::block_in_place(|| {
        migrate(&options(&database)).expect("the tables are made");
        let twist = "CREATE FUNCTION twist() RETURNS trigger LANGUAGE plpgsql AS
                     $$ BEGIN NEW.text := NEW.text || ' '; RETURN NEW; END $$;
                     CREATE TRIGGER twist BEFORE INSERT ON document
                     FOR EACH ROW EXECUTE FUNCTION twist()";
        database.run(twist).expect("the trigger is made");
        let error = copied(folder.path(), &database).expect_err("it is found");
        let CopyError::Differs { table, copied: rows, found, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*table, rows), ("document", found), "as many rows, but others");
        assert_eq!(database.run("SELECT count(*) FROM admission").as_deref(), Ok("0"));
        database.run("DROP TRIGGER twist ON document").expect("dropped");
        copied(folder.path(), &database).expect("copied");
        let other = tempfile::tempdir().expect("a folder");
        drop(SqliteLedger::open(sqlite::Options::new(other.path(), Millis(1))).expect("made"));
        let error = self::copied(other.path(), &database).expect_err("it is not empty");
        assert!(matches!(error, CopyError::NotEmpty { .. }), "{error}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_are_copied_with_their_records() {
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = sqlite::Options::new(folder.path(), Millis(1));
    let ledger: SharedLedger = Arc::new(SqliteLedger::open(options).expect("the ledger opens"));
    let id = publications_suite::leave_on_the_way(&ledger).await;
    drop(ledger);
    tokio::task::block_in_place(|| copied(folder.path(), &database)).expect("copied");
    let opened = PostgresLedger::open(self::options(&database)).expect("the ledger opens");
    let ledger: SharedLedger = Arc::new(opened);
    publications_suite::recover_what_was_left(&ledger, &id).await;
}
