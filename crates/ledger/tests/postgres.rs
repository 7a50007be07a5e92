//! The PostgreSQL ledger keeps the port's contract.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use admit_core::Age;
use admit_ledger::WholeLedger;
use admit_ledger::port::{Attachments, Store, StoreId};
use admit_ledger::postgres::{Options, PostgresLedger, reattach};
use admit_testkit::ledger_suite::{self, Home};
use admit_testkit::postgres::{TestDatabase, database};
use admit_testkit::{attachments_suite, retention_guard_suite, retention_suite, stream_suite};

/// A database with a ledger in it.
struct Tables {
    database: TestDatabase,
    /// Small for tests in which partitions are created and dropped all the time.
    partition_places: u64,
}

impl Tables {
    fn new(partition_places: u64) -> Self {
        Self { database: database().expect("there was a server a moment ago"), partition_places }
    }

    fn options(&self) -> Options {
        let partition_places = self.partition_places;
        Options { partition_places, ..Options::new(&self.database.url) }
    }
}

impl Home for Tables {
    fn open_retaining(&self, retain: Option<Age>) -> Arc<dyn WholeLedger> {
        let options = Options { retain, ..self.options() };
        Arc::new(PostgresLedger::open(options).expect("the ledger opens"))
    }
}

/// Partitions as large as the gate makes them.
const LARGE: u64 = 1_000_000;

/// Partitions of which a test fills many.
const SMALL: u64 = 50;

/// Whether there is a server; if not, that was printed. It is kept for the whole test.
macro_rules! server_or_return {
    () => {
        let Some(_keep) = database() else { return };
    };
}

#[tokio::test]
async fn the_ledger_keeps_the_contract() {
    server_or_return!();
    ledger_suite::all(|| Box::new(Tables::new(LARGE))).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_in_small_partitions() {
    server_or_return!();
    ledger_suite::all(|| Box::new(Tables::new(SMALL))).await;
}

#[tokio::test]
async fn streams_keep_their_contract() {
    server_or_return!();
    stream_suite::all(|| Box::new(Tables::new(SMALL))).await;
}

#[tokio::test]
async fn retention_stops_where_the_clock_jumps() {
    server_or_return!();
    retention_guard_suite::all(|| Box::new(Tables::new(SMALL))).await;
}

#[tokio::test]
async fn retention_keeps_its_contract() {
    server_or_return!();
    retention_suite::all(|| Box::new(Tables::new(LARGE))).await;
}

#[tokio::test]
async fn retention_keeps_its_contract_when_whole_partitions_are_dropped() {
    server_or_return!();
    retention_suite::all(|| Box::new(Tables::new(SMALL))).await;
}

#[tokio::test]
async fn nothing_is_admitted_twice_while_keys_are_forgotten() {
    server_or_return!();
    let seed = std::env::var("ADMIT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_115);
    println!("seed {seed} (set ADMIT_TEST_SEED to change it)");
    retention_suite::random(&Tables::new(SMALL), seed, 200).await;
}

impl attachments_suite::AttachmentsHome for Tables {
    fn open(&self) -> Arc<dyn Attachments> {
        Arc::new(PostgresLedger::open(self.options()).expect("the ledger opens"))
    }

    fn reattach(&self, store: Store, id: StoreId) -> Option<StoreId> {
        reattach(&self.options(), store, id).expect("the database is there")
    }
}

#[tokio::test]
async fn attachments_keep_their_contract() {
    server_or_return!();
    attachments_suite::all(|| Box::new(Tables::new(LARGE))).await;
}
