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
use super::{KeyIndex, pages};
use crate::sqlite::open;

/// So few that keys are merged all the time.
const WAITING: usize = 20;

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
        let merged = Merged::load(conn, path, filter, WAITING).unwrap();
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
            if walk.step(&beside, 1).unwrap() {
                done.send(walk.layer).unwrap();
            } else {
                self.walk = Some((walk, done));
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
    let mut claims: Vec<_> = (0..20_000).map(|n| (merged(n), Seq(n))).collect();
    claims.sort_unstable();
    pages::merge(&kept.conn, &claims, claims.len(), |_| false).unwrap();
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

/// Where merging is after a start: nothing that is merged for certain is read back, and what waits is what
/// may wait and hardly more.
#[test]
fn a_start_reads_back_what_is_not_merged_and_goes_on_where_it_was() {
    let mut rng = Rng::seeded(3);
    let mut kept = Kept::new();
    kept.walk();
    let in_memory = |kept: &Kept| {
        let KeyIndex::Merged(keys) = &kept.keys else { panic!("it is the merged one") };
        kept.known.keys().filter(|key| keys.recent(key).is_some()).count()
    };
    for _ in 0..300 {
        kept.commit((0..10).map(|_| random_key(&mut rng)).collect(), &BTreeSet::new(), false);
    }
    let waiting = in_memory(&kept);
    assert!(
        (WAITING / 2..=WAITING).contains(&waiting),
        "{waiting} wait, as many are merged as come"
    );
    let noted: usize = kept
        .conn
        .query_row("SELECT sum(length(key) / 32) FROM key_log", [], |row| row.get(0))
        .unwrap();
    assert!(noted < 200, "{noted} are noted, of which most are merged");
    kept.restart();
    let waiting = in_memory(&kept);
    assert!((WAITING..2 * WAITING).contains(&waiting), "{waiting} wait after a start");
    kept.check(&random_key(&mut rng));
}
