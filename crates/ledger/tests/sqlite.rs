//! The SQLite ledger keeps the port's contract, with either key index.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use admit_core::{Age, Door, Entry, FaultKind, Millis, Seq};
use admit_ledger::port::{Attachments, ClaimRequest, Store, StoreId};
use admit_ledger::sqlite::{
    KeyIndexKind, Options, RefusalQuota, SqliteLedger, SqliteReader, WalWrites, migrate, reattach,
    verify::verifier,
};
use admit_ledger::{Reader, Retention, Streams, WholeLedger};
use admit_sqlite_log::mark;
use admit_testkit::event::{counted, entry, refused, revisable, streamed};
use admit_testkit::ledger_suite::{self, Home, many, one};
use admit_testkit::rng::Rng;
use admit_testkit::{
    attachments_suite, claim_model, claim_suite, closures_suite, commands_suite, effects_suite,
    inbox_suite, issuance_suite, publications_suite, records_suite, retention_guard_suite,
    retention_suite, runs_suite, stream_suite,
};
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
    fn open_retaining(&self, retain: Option<Age>) -> Arc<dyn WholeLedger> {
        let options = Options::new(&self.dir, Millis(1));
        let options = Options { key_index: self.key_index, retain, ..options };
        Arc::new(SqliteLedger::open(options).expect("the ledger opens"))
    }
}

/// So small that keys are merged all the time.
const TINY: KeyIndexKind = KeyIndexKind::Merged { unmerged_max: 7 };

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
async fn the_ledger_keeps_the_contract_of_the_inbox() {
    inbox_suite::all(|| Box::new(Folder::new(TINY))).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_effects() {
    effects_suite::all(|| Box::new(Folder::new(TINY))).await;
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_records() {
    records_suite::all(|| Box::new(Folder::new(TINY))).await;
}

impl publications_suite::PublishingHome for Folder {
    fn open(&self) -> Arc<dyn publications_suite::PublishingLedger> {
        let options = Options { key_index: self.key_index, ..Options::new(&self.dir, Millis(1)) };
        Arc::new(SqliteLedger::open(options).expect("the ledger opens"))
    }
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_publications() {
    publications_suite::all(|| Box::new(Folder::new(TINY))).await;
}

impl issuance_suite::IssuingHome for Folder {
    fn open(&self) -> Arc<dyn issuance_suite::IssuingLedger> {
        let options = Options { key_index: self.key_index, ..Options::new(&self.dir, Millis(1)) };
        Arc::new(SqliteLedger::open(options).expect("the ledger opens"))
    }
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_documents_and_runs() {
    issuance_suite::all(|| Box::new(Folder::new(TINY))).await;
}

impl runs_suite::RunsHome for Folder {
    fn open(&self) -> Arc<dyn admit_ledger::scenario_runs::ScenarioRuns> {
        let options = Options { key_index: self.key_index, ..Options::new(&self.dir, Millis(1)) };
        Arc::new(SqliteLedger::open(options).expect("the ledger opens"))
    }

    fn is_for_one_process(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_scenario_runs() {
    runs_suite::all(|| Box::new(Folder::new(TINY))).await;
}

impl attachments_suite::AttachmentsHome for Folder {
    fn open(&self) -> Arc<dyn Attachments> {
        let options = Options { key_index: self.key_index, ..Options::new(&self.dir, Millis(1)) };
        Arc::new(SqliteLedger::open(options).expect("the ledger opens"))
    }

    fn reattach(&self, store: Store, id: StoreId) -> Option<StoreId> {
        reattach(&self.dir, store, id).expect("the folder is free")
    }
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_attachments() {
    attachments_suite::all(|| Box::new(Folder::new(TINY))).await;
}

impl closures_suite::ClosingHome for Folder {
    fn open(&self) -> Arc<dyn closures_suite::ClosingLedger> {
        let options = Options { key_index: self.key_index, ..Options::new(&self.dir, Millis(1)) };
        Arc::new(SqliteLedger::open(options).expect("the ledger opens"))
    }
}

#[tokio::test]
async fn the_ledger_keeps_the_contract_of_run_reports_and_closures() {
    closures_suite::all(|| Box::new(Folder::new(TINY))).await;
}

impl commands_suite::RefusingHome for Folder {
    fn refuse_status(&self, status: &str) {
        let refuse = format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON claim_finished WHEN new.status = '{status}'
             BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END"
        );
        let file = rusqlite::Connection::open(self.dir.join("ledger.db")).expect("the file opens");
        file.execute_batch(&refuse).expect("the trigger is made");
    }
}

#[tokio::test]
async fn commands_that_fail_fail_alone() {
    commands_suite::all(|| Box::new(Folder::new(KeyIndexKind::Plain))).await;
    commands_suite::all(|| Box::new(Folder::new(TINY))).await;
}

/// Streams and claims do not depend on how keys are kept.
#[tokio::test]
async fn streams_keep_their_contract() {
    stream_suite::all(|| Box::new(Folder::new(KeyIndexKind::Plain))).await;
    stream_suite::all(|| Box::new(Folder::new(TINY))).await;
}

#[tokio::test]
async fn claims_keep_their_contract() {
    claim_suite::all(|| Box::new(Folder::new(KeyIndexKind::Plain))).await;
    claim_suite::all(|| Box::new(Folder::new(TINY))).await;
}

#[tokio::test]
async fn claims_do_what_the_simplest_model_does() {
    let seed = seed();
    println!("seed {seed} (set ADMIT_TEST_SEED to change it)");
    claim_model::random(&Folder::new(TINY), seed, 600).await;
}

#[tokio::test]
async fn retention_stops_where_the_clock_jumps() {
    retention_guard_suite::all(|| Box::new(Folder::new(KeyIndexKind::default()))).await;
}

#[tokio::test]
async fn retention_keeps_its_contract_with_the_plain_key_index() {
    retention_suite::all(|| Box::new(Folder::new(KeyIndexKind::Plain))).await;
}

#[tokio::test]
async fn retention_keeps_its_contract_with_the_merged_key_index() {
    retention_suite::all(|| Box::new(Folder::new(KeyIndexKind::default()))).await;
}

#[tokio::test]
async fn retention_keeps_its_contract_while_keys_are_merged() {
    retention_suite::all(|| Box::new(Folder::new(TINY))).await;
    // Large enough that keys are forgotten before, while and after they are merged.
    let half_merged = KeyIndexKind::Merged { unmerged_max: 50 };
    retention_suite::all(|| Box::new(Folder::new(half_merged))).await;
}

#[tokio::test]
async fn nothing_is_admitted_twice_while_keys_are_forgotten() {
    let seed = seed();
    println!("seed {seed} (set ADMIT_TEST_SEED to change it)");
    for key_index in [KeyIndexKind::Plain, TINY, KeyIndexKind::Merged { unmerged_max: 100 }] {
        retention_suite::random(&Folder::new(key_index), seed, 400).await;
    }
}

/// As with `record`: a failed write has no effect, and the next one succeeds.
#[tokio::test]
async fn a_claim_that_fails_to_write_leases_nothing() {
    let folder = Folder::new(TINY);
    let ledger = folder.open();
    let door = Door::new("events/orders");
    many(&*ledger, vec![Entry::Event(streamed(&door, "k", "a"))]).await;
    let wanted = ClaimRequest {
        door: door.clone(),
        consumer: "tests".to_owned(),
        rows_max: 1,
        bytes_max: 1_000,
        lease: Age::from_secs(60),
        now: Millis(0),
    };
    let other = rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
    let trigger = "CREATE TRIGGER no BEFORE INSERT ON claim BEGIN SELECT RAISE(FAIL, 'no'); END";
    other.execute_batch(trigger).unwrap();
    let (claimed, recorded) =
        tokio::join!(ledger.claim(wanted.clone()), ledger.record(vec![entry("n", "a")]));
    let fault = claimed.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Internal);
    assert_eq!(fault.message, "the database rejected this content, nothing of it was stored");
    // They may have shared a commit or not; either way the event is stored.
    let found = ledger.find(admit_testkit::event::key("n")).await.unwrap();
    assert!(recorded[0].is_ok() && found.is_some(), "{recorded:?}");
    other.execute_batch("DROP TRIGGER no").unwrap();
    let claimed = ledger.claim(wanted).await.unwrap();
    assert_eq!((claimed.len(), claimed[0].attempt), (1, 1));
}

#[tokio::test]
async fn a_refusal_without_its_body_frees_quota_for_another() {
    let folder = Folder::new(TINY);
    let cost = {
        let folder = Folder::new(TINY);
        let ledger = folder.open();
        many(&*ledger, vec![refused("12345678")]).await;
        ledger.status().await.unwrap().refusal_bytes
    };
    let quota = RefusalQuota { rows_max: 10, bytes_max: 2 * cost - 8 };
    let retain = Some(Age::from_secs(1));
    let options = Options { refusal_quota: quota, retain, ..Options::new(&folder.dir, Millis(1)) };
    let ledger = SqliteLedger::open(options).unwrap();
    let keeps = async |body| many(&ledger, vec![refused(body)]).await[0].seq().is_some();
    assert!(keeps("12345678").await);
    assert!(!keeps("abcdefgh").await, "the quota is used up");
    ledger.sweep(Millis(1_000_000)).await.unwrap();
    assert!(keeps("ABCDEFGH").await);
    assert!(!keeps("abcdefgh").await);
}

/// A foreign database, which is not in WAL mode.
#[test]
fn a_foreign_file_is_refused_and_not_changed() {
    let folder = Folder::new(KeyIndexKind::default());
    std::fs::create_dir_all(&folder.dir).unwrap();
    let file = folder.dir.join("ledger.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    let before = std::fs::read(&file).unwrap();
    let refusals = [
        SqliteLedger::open(Options::new(&folder.dir, Millis(1))).err(),
        SqliteReader::open(&folder.dir).err(),
        verifier(&folder.dir, false).err(),
        migrate(&folder.dir).err(),
    ];
    for (n, refusal) in refusals.into_iter().enumerate() {
        let refusal = refusal.map(|error| error.to_string()).unwrap_or_default();
        assert!(refusal.contains("not a ledger of Admit"), "{n}: {refusal}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "{n}: it was changed");
    }
}

#[tokio::test]
async fn a_damaged_document_fails_only_its_own_events() {
    let folder = Folder::new(KeyIndexKind::default());
    let ledger = folder.open();
    for (name, about) in [("a1", "a"), ("b1", "b")] {
        assert_eq!(one(&*ledger, counted(name, "x", about)).await.word(), "fresh");
    }
    let other = rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
    let damage = "UPDATE document SET text = CAST(x'7bfffe7d' AS TEXT) WHERE entity = 'a'";
    assert_eq!(other.execute(damage, []).unwrap(), 1);
    let batch = ["a", "b", "a", "b"].iter().enumerate();
    let batch = batch.map(|(n, about)| counted(&format!("{about}{n}-2"), "x", about)).collect();
    let words = ledger.record(batch).await.into_iter().map(|one| match one {
        Ok(recorded) => recorded.verdict.word(),
        Err(fault) => fault.code().as_str(),
    });
    let words: Vec<_> = words.collect();
    assert_eq!(words, ["internal_error", "fresh", "internal_error", "fresh"]);
    assert!(ledger.is_healthy());
}

/// Commits small events until the WAL is reset, or for so long that it will not be.
async fn wal_is_reset(ledger: &dyn WholeLedger, prefix: &str) -> bool {
    for n in 0..200 {
        assert_eq!(one(ledger, entry(&format!("{prefix}{n}"), "a")).await.word(), "fresh");
        if ledger.gauges().expect("it has some").log_bytes() < 1 << 20 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test]
async fn the_wal_is_reset_except_while_a_reader_holds_an_old_snapshot() {
    let folder = Folder::new(KeyIndexKind::default());
    let ledger = folder.open();
    let body = "x".repeat(1 << 20);
    let fill = async |name: &str| {
        for n in 0..40 {
            many(&*ledger, vec![entry(&format!("{name}{n}"), &body)]).await;
        }
    };
    fill("first").await;
    assert!(wal_is_reset(&*ledger, "after-first").await, "40 MiB are more than it keeps");
    let other = rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM admission").unwrap();
    fill("second").await;
    assert!(!wal_is_reset(&*ledger, "held").await, "the snapshot would be gone");
    assert!(ledger.is_healthy(), "and commits are not delayed");
    other.execute_batch("COMMIT").unwrap();
    assert!(wal_is_reset(&*ledger, "let-go").await);
}

/// The frames that the ledger appends then are of a generation whose header it did not write.
#[tokio::test]
async fn a_wal_generation_begun_by_another_program_is_marked_before_it_is_acknowledged() {
    let folder = Folder::new(KeyIndexKind::default());
    let ledger = folder.open();
    let salts = || std::fs::read(folder.dir.join("ledger.db-wal")).unwrap()[16..24].to_vec();
    let marked = || match mark::read(&folder.dir.join(mark::NAME)).unwrap() {
        mark::MarkStatus::InUse(in_use) => in_use,
        found @ (mark::MarkStatus::Missing
        | mark::MarkStatus::Clear(_)
        | mark::MarkStatus::Unreadable) => {
            panic!("{found:?}")
        }
    };
    one(&*ledger, entry("a", "a")).await;
    let first = salts();
    assert_eq!((marked().salts[0].to_vec(), marked().reach.last_seq), (first.clone(), 1));
    let other = rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
    other.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
    let version: i64 = other.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    other.pragma_update(None, "user_version", version).unwrap();
    assert_ne!(salts(), first, "the other program has begun a generation");
    assert_eq!(marked().salts[0].to_vec(), first, "nothing of it is acknowledged");
    one(&*ledger, entry("b", "b")).await;
    assert_eq!((marked().salts[0].to_vec(), marked().reach.last_seq), (salts(), 2));
    drop(other);
    drop(ledger);
    let reach = mark::CommitPosition { last_seq: 2, tasks: 0 };
    assert_eq!(mark::read(&folder.dir.join(mark::NAME)).unwrap(), mark::MarkStatus::Clear(reach));
}

/// Without the layer that writes the WAL in one piece, the mark holds the newest position only.
#[tokio::test]
async fn without_the_wal_buffer_a_ledger_keeps_its_events_and_notices_a_lost_wal() {
    let folder = Folder::new(KeyIndexKind::default());
    let open = |wal_writes| {
        let options = Options { wal_writes, ..Options::new(&folder.dir, Millis(1)) };
        SqliteLedger::open(options)
    };
    one(&open(WalWrites::Buffered).unwrap(), entry("before", "a")).await;
    let ledger = open(WalWrites::Direct).unwrap();
    one(&ledger, entry("a", "a")).await;
    let reach = mark::CommitPosition { last_seq: 2, tasks: 0 };
    let marked = mark::read(&folder.dir.join(mark::NAME)).unwrap();
    assert_eq!(marked, mark::MarkStatus::Clear(reach), "no generation is marked");
    // The files as a kill leaves them, with and without the WAL.
    let copies = [true, false].map(|has_wal| {
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(&folder.dir).unwrap().map(Result::unwrap) {
            let is_kept = has_wal || file.file_name() != "ledger.db-wal";
            if is_kept && file.file_name() != "ledger.db-shm" {
                std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
            }
        }
        copy
    });
    let reopen = |copy: &TempDir| SqliteLedger::open(Options::new(copy.path(), Millis(2)));
    let found = one(&reopen(&copies[0]).unwrap(), entry("a", "a")).await;
    assert!(matches!(found, admit_core::Verdict::Duplicate { .. }), "{found:?}");
    let error = reopen(&copies[1]).err().expect("acknowledged events are missing").to_string();
    assert!(error.contains("seqs up to 2"), "{error}");
    drop(ledger);
    open(WalWrites::Buffered).unwrap();
}

/// After a power cut, an empty WAL would count as lost.
#[tokio::test]
async fn an_idle_ledger_notices_a_wal_emptied_by_another_program() {
    let folder = Folder::new(KeyIndexKind::default());
    let ledger = folder.open();
    let marked = || mark::read(&folder.dir.join(mark::NAME)).unwrap();
    one(&*ledger, entry("a", "a")).await;
    assert!(matches!(marked(), mark::MarkStatus::InUse(_)));
    let other = rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let cleared = mark::MarkStatus::Clear(mark::CommitPosition { last_seq: 1, tasks: 0 });
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while marked() != cleared {
        assert!(std::time::Instant::now() < deadline, "{:?}", marked());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    one(&*ledger, entry("b", "b")).await;
    assert!(matches!(marked(), mark::MarkStatus::InUse(found) if found.reach.last_seq == 2));
}

/// A ledger as the first version wrote it, with one event in a stream and its key not merged yet.
#[tokio::test]
async fn an_older_ledger_gains_streams_and_counters_when_it_is_opened() {
    let folder = Folder::new(KeyIndexKind::default());
    std::fs::create_dir_all(&folder.dir).unwrap();
    let old = rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
    old.execute_batch(include_str!("../src/sqlite/migrations/0001_ledger.sql")).unwrap();
    old.execute_batch(
        "PRAGMA application_id = 0x41444d54; PRAGMA user_version = 1; PRAGMA journal_mode = wal;
         INSERT INTO meta VALUES ('tag', 7), ('last_seq', 1), ('admissions', 1), ('sightings', 0);
         INSERT INTO key_log VALUES (1, zeroblob(32));
         INSERT INTO body VALUES (1, x'61');
         INSERT INTO admission VALUES
           (1, 1, 'events/orders', 'p', 'fresh', zeroblob(32), zeroblob(32), 5, 1, NULL, NULL,
            NULL, '{}');",
    )
    .unwrap();
    drop(old);
    let other = SqliteReader::open(&folder.dir).unwrap();
    assert_eq!(other.status().await.unwrap().keys, None, "not counted yet");
    let door = Door::new("events/orders");
    let before = other.read(door.clone(), Seq(0), 10, 10).await.unwrap();
    let ledger = folder.open();
    let page = ledger.read(door, Seq(0), 10, 10).await.unwrap();
    assert_eq!((page.entries.len(), &page), (1, &before), "before and after");
    let status = ledger.status().await.unwrap();
    assert_eq!((status.keys, status.oldest_body_at), (Some(1), Some(Millis(5))));
}

/// A ledger of the version before keys were in pages: some keys are merged, up to a watermark, and some of
/// those are still in the log too; the others are only in the log, a row each.
#[tokio::test]
async fn the_keys_of_an_older_ledger_are_known_when_it_is_opened() {
    let names: Vec<_> = (1..=60).map(|n| format!("k{n}")).collect();
    let batch = || names.iter().map(|name| entry(name, "a")).collect::<Vec<_>>();
    for key_index in [TINY, KeyIndexKind::default(), KeyIndexKind::Plain] {
        let folder = Folder { key_index: KeyIndexKind::default(), ..Folder::new(TINY) };
        many(&*folder.open(), batch()).await;
        let old = rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
        old.execute_batch(
            "CREATE TABLE known AS SELECT key, seq FROM claimed_key;
             DELETE FROM key_log;
             INSERT INTO key_index SELECT key, seq FROM known WHERE seq <= 40;
             INSERT INTO key_log SELECT seq, key FROM known WHERE seq > 30;
             DROP TABLE known; DROP VIEW claimed_key; DROP TABLE key_page; DROP TABLE key_region;
             DROP TABLE clock_confirmation;
             INSERT INTO meta VALUES ('key_watermark', 40);
             PRAGMA user_version = 9;",
        )
        .unwrap();
        drop(old);
        let other = SqliteReader::open(&folder.dir).unwrap();
        for name in ["k7", "k35", "k50"] {
            let found = other.find(admit_testkit::event::key(name)).await.unwrap();
            assert!(found.is_some(), "{name} is known before a start as well");
        }
        drop(other);
        let verifier = verifier(&folder.dir, false).unwrap();
        let claims = verifier.keys(&mut |found| panic!("{found:?}")).unwrap();
        assert_eq!(claims, 70, "of sixty keys ten are noted and merged");
        drop(verifier);
        let folder = Folder { key_index, ..folder };
        for _ in 0..2 {
            let ledger = folder.open();
            for verdict in many(&*ledger, batch()).await {
                assert_eq!(verdict.word(), "duplicate", "{key_index:?}");
            }
            assert!(ledger.find(admit_testkit::event::key("k7")).await.unwrap().is_some());
        }
    }
}

/// The page size is fixed when the file is created; older ledgers have SQLite's default.
#[tokio::test]
async fn a_ledger_keeps_the_page_size_it_was_created_with() {
    for (made_with, kept) in [(None, 8192), (Some(4096), 4096)] {
        let folder = Folder::new(TINY);
        std::fs::create_dir_all(&folder.dir).unwrap();
        let file = || rusqlite::Connection::open(folder.dir.join("ledger.db")).unwrap();
        if let Some(bytes) = made_with {
            let pragmas = format!("PRAGMA page_size = {bytes}; PRAGMA journal_mode = wal;");
            file().execute_batch(&pragmas).unwrap();
        }
        for first in [0, 100] {
            let ledger = folder.open();
            let keys: Vec<String> = (first..first + 100).map(|n| format!("k{n}")).collect();
            let batch = keys.iter().map(|key| entry(key, "x")).collect();
            assert!(ledger.record(batch).await.iter().all(Result::is_ok));
            assert_eq!(ledger.status().await.unwrap().keys, Some(first + 100));
        }
        let found = file().pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0));
        assert_eq!(found.unwrap(), kept);
    }
}

/// Seed of the random tests; each prints it, so that a run can be repeated.
fn seed() -> u64 {
    let given = std::env::var("ADMIT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or(20_261_115)
}

/// Random batches with repeats, conflicts, revisions, refusals and restarts, fed to both.
#[tokio::test]
async fn merged_and_plain_key_indexes_give_the_same_verdicts() {
    let seed = seed();
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
async fn a_ledger_with_one_key_index_opens_with_the_other() {
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
