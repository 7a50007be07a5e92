//! Contract suite of the attachments port: the first store of a kind belongs to the ledger.

use std::sync::Arc;

use admit_ledger::port::{Attachments, Store, StoreId};
use futures_util::future::join_all;

/// Storage of a ledger across processes.
pub trait AttachmentsHome {
    /// Opens the ledger like a new process.
    fn open(&self) -> Arc<dyn Attachments>;

    /// Replaces a store while no process runs; returns the previous one.
    fn reattach(&self, store: Store, id: StoreId) -> Option<StoreId>;
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn AttachmentsHome>) {
    the_first_store_is_recorded_and_stays(&*home()).await;
    of_concurrent_stores_one_is_recorded(&*home()).await;
    only_an_operator_replaces_a_store(&*home()).await;
    a_gate_that_stopped_leaves_its_bus_to_the_next(&*home()).await;
}

async fn attached(ledger: &dyn Attachments, store: Store) -> Option<StoreId> {
    ledger.attached(store).await.expect("readable")
}

async fn attach(ledger: &dyn Attachments, store: Store, bits: u64) -> StoreId {
    ledger.attach(store, StoreId::from_bits(bits)).await.expect("recorded")
}

async fn the_first_store_is_recorded_and_stays(home: &dyn AttachmentsHome) {
    let ledger = home.open();
    for store in Store::ALL {
        assert_eq!(attached(&*ledger, store).await, None);
    }
    assert_eq!(attach(&*ledger, Store::Bus, 1).await, StoreId::from_bits(1));
    assert_eq!(attached(&*ledger, Store::Artifacts).await, None, "each kind has its own");
    assert_eq!(attach(&*ledger, Store::Artifacts, u64::MAX).await, StoreId::from_bits(u64::MAX));
    drop(ledger);
    let ledger = home.open();
    assert_eq!(attach(&*ledger, Store::Bus, 2).await, StoreId::from_bits(1), "also later");
    assert_eq!(attached(&*ledger, Store::Bus).await, Some(StoreId::from_bits(1)));
    assert_eq!(attached(&*ledger, Store::Artifacts).await, Some(StoreId::from_bits(u64::MAX)));
}

async fn of_concurrent_stores_one_is_recorded(home: &dyn AttachmentsHome) {
    let ledger = home.open();
    let recorded = join_all((1..9).map(|bits| attach(&*ledger, Store::Bus, bits))).await;
    assert!(recorded.iter().all(|id| *id == recorded[0]), "{recorded:?}");
    assert_eq!(attached(&*ledger, Store::Bus).await, Some(recorded[0]));
}

async fn only_an_operator_replaces_a_store(home: &dyn AttachmentsHome) {
    let (old, new) = (StoreId::from_bits(1), StoreId::from_bits(2));
    let ledger = home.open();
    attach(&*ledger, Store::Bus, 1).await;
    drop(ledger);
    assert_eq!(home.reattach(Store::Bus, new), Some(old));
    assert_eq!(home.reattach(Store::Artifacts, old), None);
    let ledger = home.open();
    assert_eq!(attached(&*ledger, Store::Bus).await, Some(new));
    assert_eq!(attach(&*ledger, Store::Artifacts, 9).await, old);
}

async fn a_gate_that_stopped_leaves_its_bus_to_the_next(home: &dyn AttachmentsHome) {
    let bus = StoreId::from_bits(1);
    for _ in 0..2 {
        let ledger = home.open();
        for _ in 0..2 {
            assert_eq!(ledger.hold_bus(bus).await.expect("it answers"), None);
        }
    }
}
