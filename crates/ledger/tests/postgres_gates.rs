//! Effects, documents and runs on PostgreSQL: the contracts of their ports, and several gates at once.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use admit_core::Age;
use admit_ledger::port::{Attachments as _, Store, StoreId};
use admit_ledger::postgres::{Options, PostgresLedger};
use admit_ledger::scenario_runs::ScenarioRuns;
use admit_ledger::{Ledger as _, Reader as _, WholeLedger};
use admit_testkit::closures_suite::{self, ClosingHome, ClosingLedger};
use admit_testkit::effects_suite;
use admit_testkit::gates_suite::{self, GatesHome};
use admit_testkit::issuance_suite::{self, IssuingHome, IssuingLedger};
use admit_testkit::ledger_suite::Home;
use admit_testkit::postgres::{TestDatabase, database};
use admit_testkit::runs_suite::{self, RunsHome};

/// A database of its own.
struct Base(TestDatabase);

/// A database with the lease of a dead gate, written while the clock of the database was wrong.
struct WrongClock(Base);

impl GatesHome for WrongClock {
    fn open(&self, owner: &str) -> Arc<dyn ClosingLedger> {
        GatesHome::open(&self.0, owner)
    }

    fn presume_dead(&self, owner: &str) {
        let far = format!(
            "UPDATE gate SET alive_until = clock_timestamp() + interval '21 days' WHERE owner = '{owner}'"
        );
        self.0.0.run(&far).expect("the lease is far ahead");
    }
}

impl Base {
    fn gate(&self, owner: &str) -> PostgresLedger {
        let options = Options { owner: owner.to_owned(), ..Options::new(&self.0.url) };
        PostgresLedger::open(options).expect("the ledger opens")
    }
}

fn base() -> Box<Base> {
    Box::new(Base(database().expect("there was a server a moment ago")))
}

impl Home for Base {
    fn open_retaining(&self, retain: Option<Age>) -> Arc<dyn WholeLedger> {
        let options = Options { retain, ..Options::new(&self.0.url) };
        Arc::new(PostgresLedger::open(options).expect("the ledger opens"))
    }
}

impl IssuingHome for Base {
    fn open(&self) -> Arc<dyn IssuingLedger> {
        Arc::new(self.gate("gate"))
    }
}

impl ClosingHome for Base {
    fn open(&self) -> Arc<dyn ClosingLedger> {
        Arc::new(self.gate("gate"))
    }
}

impl RunsHome for Base {
    fn open(&self) -> Arc<dyn ScenarioRuns> {
        Arc::new(self.gate("gate"))
    }

    fn is_for_one_process(&self) -> bool {
        false
    }
}

impl GatesHome for Base {
    fn open(&self, owner: &str) -> Arc<dyn ClosingLedger> {
        Arc::new(self.gate(owner))
    }

    fn presume_dead(&self, owner: &str) {
        let over = format!(
            "UPDATE gate SET alive_until = clock_timestamp() - interval '1 second' WHERE owner = '{owner}'"
        );
        self.0.run(&over).expect("the lease ends");
    }
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_scenario_runs() {
    let Some(_kept_running) = database() else { return };
    runs_suite::all(|| base()).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_effects() {
    let Some(_kept_running) = database() else { return };
    effects_suite::all(|| base()).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_documents_and_runs() {
    let Some(_kept_running) = database() else { return };
    issuance_suite::all(|| base()).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_run_reports_and_closures() {
    let Some(_kept_running) = database() else { return };
    closures_suite::all(|| base()).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_several_gates() {
    let Some(_kept_running) = database() else { return };
    gates_suite::all(|| base()).await;
}

#[tokio::test]
async fn a_lease_far_ahead_of_the_database_clock_blocks_nothing() {
    let Some(_kept_running) = database() else { return };
    gates_suite::all(|| Box::new(WrongClock(*base()))).await;
    let home = WrongClock(*base());
    let (a, b) = (home.0.gate("a"), home.0.gate("b"));
    let bus = StoreId::from_bits(7);
    assert_eq!(a.hold_bus(bus).await.expect("the ledger replies"), None);
    home.presume_dead("a");
    assert_eq!(b.hold_bus(bus).await.expect("the ledger replies"), None, "the lease of a is over");
    let gates = b.status().await.expect("readable").gates;
    let alive: Vec<_> = gates.iter().filter(|gate| gate.is_alive).collect();
    assert_eq!(alive.len(), 1, "{gates:?}");
}

#[tokio::test]
async fn setting_the_clock_back_by_less_than_a_lease_ends_no_lease() {
    let Some(_kept_running) = database() else { return };
    let base = base();
    let (a, b) = (base.gate("a"), base.gate("b"));
    let bus = StoreId::from_bits(7);
    assert_eq!(a.hold_bus(bus).await.expect("the ledger replies"), None);
    let back = "UPDATE gate SET alive_until = clock_timestamp() + interval '25 seconds'";
    base.0.run(back).expect("the clock is set back");
    let holder = b.hold_bus(bus).await.expect("the ledger replies").expect("the lease holds");
    assert_eq!(holder.gate, "a");
}

#[tokio::test]
async fn a_bus_is_held_by_one_live_gate_and_one_that_lost_it_stops() {
    let Some(_kept_running) = database() else { return };
    let base = base();
    let (bus, other) = (StoreId::from_bits(7), StoreId::from_bits(8));
    let (a, b) = (base.gate("a"), base.gate("b"));
    let held = async |gate: &PostgresLedger, bus| {
        gate.hold_bus(bus).await.expect("the ledger answers").map(|holder| holder.gate)
    };
    assert_eq!(held(&a, bus).await, None);
    assert_eq!(held(&a, bus).await, None, "it has it already");
    assert_eq!(held(&b, bus).await.as_deref(), Some("a"));
    assert_eq!(held(&b, other).await, None);
    // A gate whose lease ran out takes its bus again with the next lease.
    base.presume_dead("a");
    a.attach(Store::Artifacts, other).await.expect("a new lease");
    assert_eq!(held(&b, bus).await.as_deref(), Some("a"));
    // Unless another gate has taken it first, even if that one is gone again.
    base.presume_dead("a");
    assert_eq!(held(&b, bus).await, None, "a dead gate holds nothing");
    drop(b);
    a.attach(Store::Artifacts, other).await.expect_err("the bus is another gate's");
    assert!(a.must_stop().await.to_string().contains("has taken its bus"));
}
