//! The SQLite ledger keeps the port's contract, with either key index.

use std::path::PathBuf;
use std::sync::Arc;

use admit_core::Millis;
use admit_ledger::Ledger;
use admit_ledger::sqlite::{KeyIndexKind, Options, SqliteLedger};
use admit_testkit::effects_suite;
use admit_testkit::event::{entry, refused, revisable};
use admit_testkit::ledger_suite::{self, Home, many};
use admit_testkit::rng::Rng;
use tempfile::TempDir;

/// A folder with a ledger in it.
struct Folder {
    _keep: TempDir,
    dir: PathBuf,
    key_index: KeyIndexKind,
}

impl Folder {
    fn new(key_index: KeyIndexKind) -> Self {
        let keep = tempfile::tempdir().expect("a temporary folder");
        Self { dir: keep.path().join("data"), _keep: keep, key_index }
    }
}

impl Home for Folder {
    fn open(&self) -> Arc<dyn Ledger> {
        let options = Options { key_index: self.key_index, ..Options::new(&self.dir, Millis(1)) };
        Arc::new(SqliteLedger::open(options).expect("the ledger opens"))
    }
}

/// So small that every test seals and merges many generations.
const TINY: KeyIndexKind = KeyIndexKind::Merged { generation_max: 7 };

#[tokio::test]
async fn the_plain_key_index_keeps_the_contract() {
    ledger_suite::all(|| Box::new(Folder::new(KeyIndexKind::Plain))).await;
}

#[tokio::test]
async fn the_merged_key_index_keeps_the_contract() {
    ledger_suite::all(|| Box::new(Folder::new(KeyIndexKind::default()))).await;
}

#[tokio::test]
async fn the_merged_key_index_keeps_the_contract_while_it_merges() {
    ledger_suite::all(|| Box::new(Folder::new(TINY))).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_effects() {
    effects_suite::all(|| Box::new(Folder::new(TINY))).await;
}

/// Random batches with repeats, conflicts, revisions, refusals and restarts, fed to both.
#[tokio::test]
async fn merged_and_plain_key_indexes_give_the_same_verdicts() {
    let seed =
        std::env::var("ADMIT_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_115);
    println!("seed {seed} (set ADMIT_TEST_SEED to change it)");
    let mut rng = Rng::seeded(seed);
    let (plain, merged) = (Folder::new(KeyIndexKind::Plain), Folder::new(TINY));
    let (mut a, mut b) = (plain.open(), merged.open());
    for round in 0..400 {
        let batch: Vec<_> = (0..=rng.below(12))
            .map(|_| {
                let (name, content) = (format!("k{}", rng.below(900)), rng.below(3).to_string());
                match rng.below(20) {
                    0 => refused(&name),
                    1..4 => revisable(&format!("r{name}"), &content),
                    4..7 => entry(&name, &content),
                    _ => entry(&name, "0"),
                }
            })
            .collect();
        assert_eq!(many(&*a, batch.clone()).await, many(&*b, batch).await, "round {round}");
        if rng.one_in(40) {
            drop((a, b));
            (a, b) = (plain.open(), merged.open());
        }
    }
    assert_eq!(a.status().await.unwrap().admissions, b.status().await.unwrap().admissions);
}

#[tokio::test]
async fn a_ledger_kept_with_one_key_index_opens_with_the_other() {
    let mut folder = Folder::new(TINY);
    let names: Vec<_> = (0..100).map(|n| format!("k{n}")).collect();
    let batch = |content| names.iter().map(|name| entry(name, content)).collect::<Vec<_>>();
    let before = folder.open();
    many(&*before, batch("a")).await;
    drop(before);
    for key_index in [KeyIndexKind::Plain, TINY, KeyIndexKind::default()] {
        folder.key_index = key_index;
        let ledger = folder.open();
        for verdict in many(&*ledger, batch("a")).await {
            assert_eq!(verdict.word(), "duplicate", "{key_index:?}");
        }
    }
}
