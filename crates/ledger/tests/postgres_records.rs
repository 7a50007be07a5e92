//! Records, claims and the inbox on PostgreSQL, also with several gates in front of one database.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use admit_core::Age;
use admit_ledger::WholeLedger;
use admit_ledger::postgres::{Options, PostgresLedger};
use admit_testkit::ledger_suite::Home;
use admit_testkit::postgres::{TestDatabase, database};
use admit_testkit::publications_suite::{self, PublishingGates, PublishingHome, PublishingLedger};
use admit_testkit::{claim_model, claim_suite, commands_suite, inbox_suite, records_suite};

/// A database with a ledger in it.
struct Tables(TestDatabase);

impl Tables {
    fn new() -> Self {
        Self(database().expect("there was a server a moment ago"))
    }

    fn gate(&self, owner: &str, retain: Option<Age>) -> Arc<dyn WholeLedger> {
        let options = Options::new(&self.0.url);
        let options = Options { owner: owner.to_owned(), retain, ..options };
        Arc::new(PostgresLedger::open(options).expect("the ledger opens"))
    }

    fn gates<const N: usize>(&self) -> [Arc<dyn WholeLedger>; N] {
        std::array::from_fn(|n| self.gate(&format!("gate {n}"), None))
    }
}

impl Home for Tables {
    fn open_retaining(&self, retain: Option<Age>) -> Arc<dyn WholeLedger> {
        self.gate("gate", retain)
    }
}

/// Whether there is a server; if not, that was printed. It is kept for the whole test.
macro_rules! server_or_return {
    () => {
        let Some(_keep) = database() else { return };
    };
}

#[tokio::test]
async fn records_keep_their_contract() {
    server_or_return!();
    records_suite::all(|| Box::new(Tables::new())).await;
}

impl PublishingHome for Tables {
    fn open(&self) -> Arc<dyn PublishingLedger> {
        PublishingGates::open(self, "gate")
    }
}

impl PublishingGates for Tables {
    fn open(&self, owner: &str) -> Arc<dyn PublishingLedger> {
        let options = Options::new(&self.0.url);
        let options = Options { owner: owner.to_owned(), ..options };
        Arc::new(PostgresLedger::open(options).expect("the ledger opens"))
    }

    fn presume_dead(&self, owner: &str) {
        let over = format!(
            "UPDATE gate SET alive_until = clock_timestamp() - interval '1 second' \
             WHERE owner = '{owner}'"
        );
        self.0.run(&over).expect("the lease ends");
    }
}

#[tokio::test]
async fn publications_keep_their_contract() {
    server_or_return!();
    publications_suite::all(|| Box::new(Tables::new())).await;
}

#[tokio::test]
async fn several_gates_publish_a_revision_once() {
    server_or_return!();
    publications_suite::gates(|| Box::new(Tables::new())).await;
}

#[tokio::test]
async fn claims_keep_their_contract() {
    server_or_return!();
    claim_suite::all(|| Box::new(Tables::new())).await;
}

#[tokio::test]
async fn claims_do_what_the_simplest_model_does() {
    server_or_return!();
    let seed = std::env::var("ADMIT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(1);
    println!("seed {seed} (set ADMIT_TEST_SEED to change it)");
    claim_model::random(&Tables::new(), seed, 300).await;
}

impl commands_suite::RefusingHome for Tables {
    fn refuse_status(&self, status: &str) {
        let refuse = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'refused by a trigger'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON claim_finished FOR EACH ROW
             WHEN (new.status = '{status}') EXECUTE FUNCTION refuse()"
        );
        self.0.run(&refuse).expect("the trigger is made");
    }
}

#[tokio::test]
async fn commands_that_fail_fail_alone() {
    server_or_return!();
    commands_suite::all(|| Box::new(Tables::new())).await;
}

#[tokio::test]
async fn the_inbox_keeps_its_contract() {
    server_or_return!();
    inbox_suite::all(|| Box::new(Tables::new())).await;
}

#[tokio::test]
async fn three_gates_that_get_events_at_once_make_one_record() {
    server_or_return!();
    let tables = Tables::new();
    records_suite::concurrent_gates_merge_one_entity(&tables.gates::<3>()).await;
    let twice = "SELECT count(*) FROM (SELECT grp FROM record GROUP BY grp HAVING count(*) > 1) t";
    assert_eq!(tables.0.run(twice).as_deref(), Ok("0"));
    let waited = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(tables.0.run(waited).as_deref(), Ok("0"));
}

#[tokio::test]
async fn consumers_at_two_gates_never_hold_one_entry() {
    server_or_return!();
    let tables = Tables::new();
    claim_suite::consumers_never_hold_one_entry_at_once(&tables.gates::<2>()).await;
}
