//! The PostgreSQL ledger keeps the port's contract.
#![cfg(feature = "postgres")]

use admit_core::{Entry, Millis};
use admit_ledger::Admissions as _;
use admit_ledger::postgres::{Options, PostgresLedger};
use admit_testkit::event::{Fails, counted, entry, poisoned};
use admit_testkit::postgres::database;

#[tokio::test]
async fn a_new_key_is_fresh_and_a_copy_is_a_duplicate() {
    let Some(database) = database() else { return };
    let ledger = PostgresLedger::open(Options::new(&database.url, Millis(1))).expect("it opens");
    let batch: Vec<Entry> = vec![
        entry("a", "1"),
        entry("a", "1"),
        entry("a", "2"),
        poisoned("panic", Fails::WithPanic),
        counted("t", "x", "tally"),
    ];
    let words: Vec<String> = ledger
        .record(batch)
        .await
        .into_iter()
        .map(|one| one.map_or_else(|fault| fault.to_string(), |one| one.verdict.word().to_owned()))
        .collect();
    let panicked = "a side effect of this event panicked, nothing was stored";
    assert_eq!(words, ["fresh", "duplicate", "conflict", panicked, "fresh"]);
    assert_eq!(database.run("SELECT last_seq, keys FROM head").unwrap(), "5|2");
}
