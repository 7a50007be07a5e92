//! The filter and the index behind it, compared with a map.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use admit_core::{Key, Seq};
use admit_testkit::rng::Rng;
use rusqlite::Connection;
use tempfile::TempDir;

use super::filter::{KeyFilter, Layer};
use super::filter_loader::{self, BackgroundLoad, FilterLoader};
use super::merged::MergedIndex;
use super::{KeyIndex, pages};
use crate::sqlite::open;

/// So few that keys are merged all the time.
const WAITING: usize = 20;

/// A key index with its reference map, and the filter loader of its last start.
struct TestIndex {
    _keep: TempDir,
    path: PathBuf,
    conn: Connection,
    keys: KeyIndex,
    known: BTreeMap<Key, Seq>,
    last: Seq,
    loader: Option<(FilterLoader, SyncSender<Layer>)>,
}

impl TestIndex {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("ledger.db");
        let conn = open::recover(&path).unwrap();
        let (keys, loader) = Self::load(&conn, &path);
        let (known, last) = (BTreeMap::new(), Seq(0));
        Self { _keep: keep, path, conn, keys, known, last, loader: Some(loader) }
    }

    /// Starts with a filter loader that has not read anything yet.
    fn load(conn: &Connection, path: &Path) -> (KeyIndex, (FilterLoader, SyncSender<Layer>)) {
        let (done, read) = sync_channel(1);
        let filter = KeyFilter::incomplete(BackgroundLoad::for_test(read));
        let merged = MergedIndex::load(conn, path, filter, WAITING).unwrap();
        (KeyIndex::Merged(Box::new(merged)), (FilterLoader::begin(conn).unwrap(), done))
    }

    fn restart(&mut self) {
        self.conn = open::recover(&self.path).unwrap();
        let (keys, loader) = Self::load(&self.conn, &self.path);
        (self.keys, self.loader) = (keys, Some(loader));
    }

    /// One transaction that claims fresh keys and forgets known ones, or is rolled back.
    fn commit(&mut self, fresh: Vec<Key>, forget: &BTreeSet<Key>, comes_to_nothing: bool) {
        self.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let claims: Vec<_> = (self.last.0 + 1..).map(Seq).zip(fresh).map(|(s, k)| (k, s)).collect();
        self.keys.claim(&self.conn, claims.clone()).unwrap();
        for key in forget {
            assert!(self.keys.forget(&self.conn, key, self.known[key]).unwrap(), "it was known");
        }
        if comes_to_nothing {
            self.keys.rolled_back();
            return self.conn.execute_batch("ROLLBACK").unwrap();
        }
        self.conn.execute_batch("COMMIT").unwrap();
        self.keys.committed();
        self.last = Seq(self.last.0 + claims.len() as u64);
        self.known.extend(claims);
        self.known.retain(|key, _| !forget.contains(key));
    }

    /// Loads a slice into the filter.
    fn load_slice(&mut self) {
        let conn = open::open_reader(&self.path).unwrap();
        if let Some((mut loader, done)) = self.loader.take() {
            if loader.step(&conn, 1).unwrap() {
                done.send(loader.layer).unwrap();
            } else {
                self.loader = Some((loader, done));
            }
        }
    }

    fn check(&self, unknown: &Key) {
        let KeyIndex::Merged(merged) = &self.keys else { panic!("it is the merged one") };
        let merged_key = |key, _| assert!(!merged.excludes(&key), "a merged key is excluded");
        pages::read_all(&self.conn, merged_key).unwrap();
        for (key, seq) in &self.known {
            assert!(!merged.excludes(key), "a claimed key is excluded");
            assert_eq!(self.keys.find(&self.conn, key).unwrap(), Some(*seq));
        }
        assert_eq!(self.keys.find(&self.conn, unknown).unwrap(), None);
    }
}

fn random_key(rng: &mut Rng) -> Key {
    Key::derive("tests", &[&rng.next_u64().to_be_bytes()])
}

/// Merges, forgotten keys, rollbacks and restarts, while the filter of each start is partially loaded.
#[test]
fn no_claimed_key_is_excluded_while_the_filter_is_being_loaded() {
    for seed in 1..=4 {
        println!("seed {seed}");
        let mut rng = Rng::seeded(seed);
        let mut index = TestIndex::new();
        for _ in 0..250 {
            let fresh = (0..rng.below(9)).map(|_| random_key(&mut rng)).collect();
            let known: Vec<Key> = index.known.keys().copied().collect();
            let mut draw = || known.get(rng.below(known.len().max(1) as u64) as usize).copied();
            let forget: BTreeSet<Key> = [draw(), draw()].into_iter().flatten().collect();
            index.commit(fresh, &forget, rng.one_in(9));
            if rng.one_in(3) {
                index.load_slice();
            }
            index.check(&random_key(&mut rng));
            if rng.one_in(60) {
                index.restart();
                index.check(&random_key(&mut rng));
            }
        }
    }
}

/// Loads many slices on the loader's own thread, with a commit that merges meanwhile.
#[test]
fn the_filter_excludes_keys_once_everything_is_loaded() {
    let index = TestIndex::new();
    let merged = |n: u64| Key::derive("merged", &[&n.to_be_bytes()]);
    let mut claims: Vec<_> = (0..20_000).map(|n| (merged(n), Seq(n))).collect();
    claims.sort_unstable();
    pages::merge(&index.conn, &claims, claims.len(), |_| false).unwrap();
    let mut filter = filter_loader::load(&index.conn, &index.path).unwrap();
    let (unknown, late) = (Key::derive("unknown", &[]), Key::derive("late", &[]));
    assert!(!filter.excludes(&unknown), "nothing can be excluded yet");
    filter.add(&late);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !filter.excludes(&unknown) {
        assert!(Instant::now() < deadline, "the filter loader does not end");
        std::thread::yield_now();
        filter.add_loaded();
    }
    assert!((0..20_000).all(|n| !filter.excludes(&merged(n))));
    assert!(!filter.excludes(&late));
}

/// After a start: merged claims are not loaded, and the number of unmerged ones is about the limit.
#[test]
fn a_start_loads_unmerged_claims_and_resumes_merging() {
    let mut rng = Rng::seeded(3);
    let mut index = TestIndex::new();
    index.load_slice();
    let in_memory = |index: &TestIndex| {
        let KeyIndex::Merged(keys) = &index.keys else { panic!("it is the merged one") };
        index.known.keys().filter(|key| keys.recent(key).is_some()).count()
    };
    for _ in 0..300 {
        index.commit((0..10).map(|_| random_key(&mut rng)).collect(), &BTreeSet::new(), false);
    }
    let waiting = in_memory(&index);
    assert!(
        (WAITING / 2..=WAITING).contains(&waiting),
        "{waiting} wait, as many are merged as come"
    );
    let noted: usize = index
        .conn
        .query_row("SELECT sum(length(key) / 32) FROM key_log", [], |row| row.get(0))
        .unwrap();
    assert!(noted < 200, "{noted} are noted, of which most are merged");
    index.restart();
    let waiting = in_memory(&index);
    assert!((WAITING..2 * WAITING).contains(&waiting), "{waiting} wait after a start");
    index.check(&random_key(&mut rng));
}
