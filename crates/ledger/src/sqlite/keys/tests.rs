//! The filter and the index behind it, against a map that remembers everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use admit_core::{Key, Seq};
use admit_testkit::rng::Rng;
use rusqlite::Connection;
use tempfile::TempDir;

use super::filter::{Filter, Layer};
use super::merged::Merged;
use super::walk::{self, Earlier, Walk};
use super::{Finder, KeyIndex};
use crate::sqlite::{open, queries};

/// So few that generations are sealed and merged all the time.
const GENERATION: usize = 20;

/// A key index with the map it is held against, and the walk of its last start.
struct Kept {
    _keep: TempDir,
    path: PathBuf,
    conn: Connection,
    keys: KeyIndex,
    known: BTreeMap<Key, Seq>,
    last: Seq,
    walk: Option<(Walk, SyncSender<Layer>)>,
}

impl Kept {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("ledger.db");
        let conn = open::recover(&path).unwrap();
        let (keys, walk) = Self::load(&conn, &path);
        let (known, last) = (BTreeMap::new(), Seq(0));
        Self { _keep: keep, path, conn, keys, known, last, walk: Some(walk) }
    }

    /// A start whose walk has not read anything yet.
    fn load(conn: &Connection, path: &Path) -> (KeyIndex, (Walk, SyncSender<Layer>)) {
        let (done, read) = sync_channel(1);
        let filter = Filter::incomplete(Earlier::by_hand(read));
        let merged = Merged::load(conn, path, filter, GENERATION).unwrap();
        (KeyIndex::Merged(Box::new(merged)), (Walk::begin(conn).unwrap(), done))
    }

    fn restart(&mut self) {
        self.conn = open::recover(&self.path).unwrap();
        let (keys, walk) = Self::load(&self.conn, &self.path);
        (self.keys, self.walk) = (keys, Some(walk));
    }

    /// One transaction that claims fresh keys and forgets known ones, or comes to nothing.
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

    /// Goes on with the walk by a slice.
    fn walk(&mut self) {
        let beside = open::reading(&self.path).unwrap();
        if let Some((mut walk, done)) = self.walk.take() {
            if walk.step(&beside, 7).unwrap() {
                done.send(walk.layer).unwrap();
            } else {
                self.walk = Some((walk, done));
            }
        }
    }

    fn check(&self, unknown: &Key) {
        let KeyIndex::Merged(merged) = &self.keys else { panic!("it is the merged one") };
        let mut rows = self.conn.prepare(queries::KEY_INDEX_READ).unwrap();
        let rows = rows.query_map((Vec::new(), i64::MAX), |row| row.get(0).map(Key::from_bytes));
        for key in rows.unwrap() {
            assert!(!merged.excludes(&key.unwrap()), "a merged key is excluded");
        }
        let mut find = Finder::new(&self.conn).unwrap();
        for (key, seq) in &self.known {
            assert!(!merged.excludes(key), "a claimed key is excluded");
            assert_eq!(self.keys.find(&mut find, key).unwrap(), Some(*seq));
        }
        assert_eq!(self.keys.find(&mut find, unknown).unwrap(), None);
    }
}

fn random_key(rng: &mut Rng) -> Key {
    Key::derive("tests", &[&rng.next_u64().to_be_bytes()])
}

/// Merges, forgotten keys, commits that come to nothing and restarts, while the walk of each start
/// is somewhere on its way.
#[test]
fn no_claimed_key_is_excluded_whatever_happens_while_the_filter_is_read() {
    for seed in 1..=4 {
        println!("seed {seed}");
        let mut rng = Rng::seeded(seed);
        let mut kept = Kept::new();
        for _ in 0..250 {
            let fresh = (0..rng.below(9)).map(|_| random_key(&mut rng)).collect();
            let known: Vec<Key> = kept.known.keys().copied().collect();
            let mut draw = || known.get(rng.below(known.len().max(1) as u64) as usize).copied();
            let forget: BTreeSet<Key> = [draw(), draw()].into_iter().flatten().collect();
            kept.commit(fresh, &forget, rng.one_in(9));
            if rng.one_in(3) {
                kept.walk();
            }
            kept.check(&random_key(&mut rng));
            if rng.one_in(60) {
                kept.restart();
                kept.check(&random_key(&mut rng));
            }
        }
    }
}

/// A walk of many slices on its own thread, with a commit that merges meanwhile.
#[test]
fn the_filter_answers_once_everything_is_read() {
    let kept = Kept::new();
    let merged = |n: u64| Key::derive("merged", &[&n.to_be_bytes()]);
    kept.conn.execute_batch("BEGIN").unwrap();
    for n in 0..20_000 {
        kept.conn.execute(queries::KEY_CLAIM, (merged(n).as_bytes(), n)).unwrap();
    }
    kept.conn.execute_batch("COMMIT").unwrap();
    let mut filter = walk::load(&kept.conn, &kept.path).unwrap();
    let (unknown, late) = (Key::derive("unknown", &[]), Key::derive("late", &[]));
    assert!(!filter.excludes(&unknown), "nothing can be excluded yet");
    filter.add(&late);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !filter.excludes(&unknown) {
        assert!(Instant::now() < deadline, "the walk does not end");
        std::thread::yield_now();
        filter.take_in_earlier();
    }
    assert!((0..20_000).all(|n| !filter.excludes(&merged(n))));
    assert!(!filter.excludes(&late));
}

#[test]
fn a_start_goes_on_with_a_half_merged_generation_where_it_was() {
    let mut rng = Rng::seeded(3);
    let mut kept = Kept::new();
    kept.walk();
    kept.commit((0..GENERATION).map(|_| random_key(&mut rng)).collect(), &BTreeSet::new(), false);
    let in_index = |kept: &Kept| -> usize {
        kept.conn.query_row("SELECT count(*) FROM key_index", [], |row| row.get(0)).unwrap()
    };
    // The order comes from a thread of its own; the first slice follows it.
    let deadline = Instant::now() + Duration::from_secs(30);
    while in_index(&kept) == 0 {
        assert!(Instant::now() < deadline, "nothing is merged");
        kept.commit(Vec::new(), &BTreeSet::new(), false);
    }
    let merged = in_index(&kept);
    assert!(merged < GENERATION, "one slice is not all of it");
    kept.restart();
    let KeyIndex::Merged(keys) = &kept.keys else { panic!("it is the merged one") };
    let waiting = kept.known.keys().filter(|key| keys.recent(key).is_some()).count();
    assert_eq!(waiting, GENERATION - merged, "what is merged need not be known twice");
    kept.check(&random_key(&mut rng));
}
