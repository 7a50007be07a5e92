//! Guarantees of the outbox about its rows, with a manual clock.

use std::path::Path;
use std::time::Duration;

use admit_testkit::clock::ManualClock;
use rusqlite::Connection;

use super::*;
use crate::{Options, Outbox};

const NOW: i64 = 1_771_524_842_123;

struct World {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    outbox: Outbox,
}

fn options(clock: &Arc<ManualClock>, seed: u64) -> Options {
    let backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(5) };
    let clock = Arc::<ManualClock>::clone(clock);
    Options { bytes_max: 1 << 20, backoff, clock, seed: Some(seed) }
}

impl World {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Millis(NOW)));
        let outbox =
            Outbox::open(&folder.path().join("listener_outbox.db"), options(&clock, seed)).unwrap();
        Self { folder, clock, outbox }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("listener_outbox.db")
    }

    fn enqueue(&self, id: &str) -> EnqueueOutcome {
        self.outbox.enqueue(id, &format!("{{\"event_id\":\"{id}\"}}")).unwrap()
    }

    fn take(&self, rows_max: usize) -> DueRows {
        block_on(self.outbox.take(rows_max)).expect("the outbox is open")
    }

    fn settle(&self, row: OutboxRow, outcome: RowOutcome) {
        block_on(self.outbox.settle(vec![SettledRow { row, outcome }]));
    }

    fn fail_attempt(&self, row: OutboxRow) {
        let failed = RowOutcome::Failed {
            error: "no ack".to_owned(),
            not_before: Duration::ZERO,
            is_final: false,
        };
        self.settle(row, failed);
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// `attempt_count`, `last_error`, and time until `next_attempt_at`.
fn row_of(file: &Path, id: &str, now: Millis) -> Option<(u32, Option<String>, i64)> {
    let file = Connection::open(file).unwrap();
    let query =
        "SELECT attempt_count, last_error, next_attempt_at FROM event_outbox WHERE event_id = ?1";
    file.query_row(query, [id], |row| {
        let at: String = row.get(2)?;
        let at = Millis::parse_rfc3339(&at).expect("a time");
        Ok((row.get(0)?, row.get(1)?, at.0 - now.0))
    })
    .ok()
}

#[test]
fn the_file_has_the_listeners_columns_and_is_in_wal_mode() {
    let world = World::new(1);
    world.enqueue("evt_1");
    let file = Connection::open(world.file()).unwrap();
    let mut columns = file.prepare("SELECT name FROM pragma_table_info('event_outbox')").unwrap();
    let columns: Vec<String> =
        columns.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let expected = [
        "event_id",
        "payload_json",
        "created_at",
        "next_attempt_at",
        "attempt_count",
        "last_error",
    ];
    assert_eq!(columns, expected);
    let mode: String = file.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    let key: String = file
        .query_row("SELECT name FROM pragma_table_info('event_outbox') WHERE pk = 1", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(key, "event_id");
    assert_eq!(row_of(&world.file(), "evt_1", Millis(NOW)), Some((0, None, 0)));
}

#[test]
fn a_known_id_is_stored_once_and_a_conflict_changes_nothing() {
    let world = World::new(1);
    let EnqueueOutcome::Stored { rowid } = world.enqueue("evt_1") else { panic!() };
    let created_at = Millis(NOW);
    world.clock.advance(5);
    assert_eq!(world.enqueue("evt_1"), EnqueueOutcome::Duplicate { rowid, created_at });
    let other = world.outbox.enqueue("evt_1", "{}").unwrap();
    let payload_json = "{\"event_id\":\"evt_1\"}".to_owned();
    assert_eq!(other, EnqueueOutcome::Conflict { rowid, created_at, payload_json });
    assert_eq!(world.take(9).rows.len(), 1);
}

#[test]
fn a_refused_row_stays_with_its_error_and_is_delayed() {
    let world = World::new(1);
    world.enqueue("evt_1");
    let row = world.take(1).rows.remove(0);
    let error = "invalid_envelope: invalid envelope: ts".to_owned();
    let refused =
        RowOutcome::Failed { error: error.clone(), not_before: Duration::ZERO, is_final: true };
    world.settle(row, refused);
    let (attempts, last_error, delay) = row_of(&world.file(), "evt_1", Millis(NOW)).unwrap();
    assert_eq!((attempts, last_error), (1, Some(error)));
    assert!(delay >= 2_500, "after a final refusal it waits for most of the cap: {delay}");
}

#[test]
fn delays_double_up_to_the_cap_and_senders_are_not_in_lockstep() {
    let waits = |seed| {
        let world = World::new(seed);
        world.enqueue("evt_1");
        let mut waits = Vec::new();
        for failures in 1..=12 {
            let now = world.clock.now();
            let row = world.take(1).rows.pop().expect("it is due");
            assert_eq!(row.attempt_count, failures - 1);
            world.fail_attempt(row);
            let (attempts, _, delay) = row_of(&world.file(), "evt_1", now).unwrap();
            assert_eq!(attempts, failures);
            let ceiling = (100_i64 << (failures - 1)).min(5_000);
            assert!(delay > 0 && delay <= ceiling, "after {failures}: {delay} of {ceiling} ms");
            waits.push(delay);
            world.clock.advance(delay);
        }
        waits
    };
    let (one, other) = (waits(1), waits(2));
    assert_ne!(one, other);
    assert!(one.iter().chain(&other).any(|wait| *wait > 1_000), "they grow: {one:?} {other:?}");
}

#[test]
fn a_retry_after_hint_is_followed_up_to_the_cap() {
    let world = World::new(1);
    for (id, hint, least, most) in [("a", 3, 3_000, 5_000), ("b", 900, 5_000, 5_000)] {
        world.enqueue(id);
        let row = world.take(1).rows.remove(0);
        let not_before = Duration::from_secs(hint);
        world.settle(
            row,
            RowOutcome::Failed { error: "busy".to_owned(), not_before, is_final: false },
        );
        let (_, _, delay) = row_of(&world.file(), id, Millis(NOW)).unwrap();
        assert!((least..=most).contains(&delay), "{id}: {delay}");
    }
}

#[test]
fn a_row_is_due_exactly_at_its_time() {
    let world = World::new(1);
    world.enqueue("evt_1");
    world.fail_attempt(world.take(1).rows.remove(0));
    let (_, _, delay) = row_of(&world.file(), "evt_1", Millis(NOW)).unwrap();
    world.clock.advance(delay - 1);
    let early = world.take(1);
    assert!(early.rows.is_empty());
    assert_eq!(early.next_due, Some(Millis(NOW + delay)));
    world.clock.advance(1);
    assert_eq!(world.take(1).rows.len(), 1);
}

#[test]
fn a_row_in_flight_is_not_taken_twice_and_an_unsent_row_keeps_its_position() {
    let world = World::new(1);
    for id in ["a", "b", "c"] {
        world.enqueue(id);
    }
    let mut first = world.take(2).rows;
    assert_eq!(first.iter().map(|row| row.event_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let second = world.take(2).rows;
    assert_eq!(second.len(), 1);
    world.settle(first.remove(0), RowOutcome::Unsent);
    let again = world.take(2).rows;
    assert_eq!(again[0].event_id, "a");
    assert_eq!(row_of(&world.file(), "a", Millis(NOW)), Some((0, None, 0)), "nothing is counted");
}

#[test]
fn only_its_own_acknowledgement_removes_a_row() {
    let world = World::new(1);
    for id in ["a", "b"] {
        world.enqueue(id);
    }
    let mut rows = world.take(2).rows;
    let mut b = rows.remove(1);
    b.event_id = "not-b".to_owned();
    world.settle(b, RowOutcome::Acked);
    assert!(row_of(&world.file(), "b", Millis(NOW)).is_some(), "the id must match, not the number");
    world.settle(rows.remove(0), RowOutcome::Acked);
    assert!(row_of(&world.file(), "a", Millis(NOW)).is_none());
}

#[test]
fn rows_survive_a_restart_and_none_is_in_flight() {
    let world = World::new(1);
    for id in ["a", "b"] {
        world.enqueue(id);
    }
    world.take(2);
    let in_use = Outbox::open(&world.file(), options(&world.clock, 1));
    assert!(matches!(in_use, Err(crate::OpenError::InUse { .. })), "one process at a time");
    let World { folder, clock, outbox } = world;
    drop(outbox);
    let file = folder.path().join("listener_outbox.db");
    let outbox = Outbox::open(&file, options(&clock, 1)).unwrap();
    let world = World { folder, clock, outbox };
    assert_eq!(world.take(9).rows.len(), 2);
    assert_eq!(world.outbox.counters().depth.load(Ordering::Relaxed), 2);
}

#[test]
fn after_the_clock_was_set_back_no_row_waits_longer_than_the_cap() {
    let world = World::new(1);
    world.enqueue("evt_1");
    world.clock.advance(-86_400_000);
    assert_eq!(world.take(1).rows.len(), 1, "it would have waited for a day");
}

#[test]
fn a_full_outbox_returns_full_and_accepts_rows_again_when_there_is_space() {
    let world = World::new(1);
    let payload = "x".repeat(20_000);
    let mut stored = 0;
    let full = loop {
        match world.outbox.enqueue(&format!("evt_{stored}"), &payload) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1_000, "there is a budget");
    };
    assert_eq!(full, EnqueueError::Full { bytes_max: 1 << 20 });
    assert!(stored > 30, "{stored} rows of 20 kB in a budget of 1 MiB");
    let bytes = std::fs::metadata(world.file()).unwrap().len();
    assert!(bytes <= (1 << 20) + (64 << 10), "the file has {bytes} bytes");
    assert_eq!(world.outbox.counters().refused_full.load(Ordering::Relaxed), 1);
    for row in world.take(5).rows {
        world.settle(row, RowOutcome::Acked);
    }
    world.outbox.enqueue("evt_more", &payload).expect("there is space again");
}

#[test]
fn the_disk_budget_holds_while_a_reader_prevents_wal_truncation() {
    let world = World::new(1);
    world.enqueue("evt_first");
    let on_disk = || {
        let sizes = ["", "-wal", "-shm"].map(|suffix| {
            let file = format!("{}{suffix}", world.file().display());
            std::fs::metadata(file).map_or(0, |metadata| metadata.len())
        });
        sizes.iter().sum::<u64>()
    };
    let reader = Connection::open(world.file()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM event_outbox").unwrap();
    let payload = "x".repeat(20_000);
    let mut stored = 0;
    let full = loop {
        match world.outbox.enqueue(&format!("evt_{stored}"), &payload) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(on_disk() <= 1 << 20, "{} bytes after {stored} rows", on_disk());
        assert!(stored < 1_000, "there is a budget");
    };
    assert_eq!(full, EnqueueError::Full { bytes_max: 1 << 20 });
    assert_eq!(world.outbox.counters().bytes.load(Ordering::Relaxed), on_disk());
    reader.execute_batch("COMMIT").unwrap();
    world.outbox.enqueue("evt_more", &payload).expect("the WAL was truncated, so there is space");
    assert!(on_disk() <= 1 << 20);
}

#[test]
fn an_emptied_outbox_can_be_filled_to_its_budget_again() {
    let world = World::new(1);
    let fill = |round: u32| {
        let mut stored = 0;
        while world.outbox.enqueue(&format!("{round}_{stored}"), &"x".repeat(5_000)).is_ok() {
            stored += 1;
            assert!(stored < 5_000, "there is a budget");
        }
        stored
    };
    let first = fill(1);
    loop {
        let rows = world.take(500).rows;
        if rows.is_empty() {
            break;
        }
        rows.into_iter().for_each(|row| world.settle(row, RowOutcome::Acked));
    }
    let second = fill(2);
    assert!(second * 10 >= first * 9, "{first} rows at first, {second} then");
}

#[test]
fn invalid_envelopes_are_stored_once_up_to_their_quota() {
    let world = World::new(1);
    let keep_invalid = |payload: &[u8]| {
        let stored = world.outbox.keep_invalid(None, payload.to_vec(), "no envelope".to_owned());
        block_on(stored).unwrap()
    };
    assert!(keep_invalid(b"\xff") && keep_invalid(b"\xff") && keep_invalid(b"{}"));
    let file = crate::InvalidEnvelopes::open(&world.file()).unwrap();
    let seen: Vec<u64> =
        file.list(0, 9).unwrap().iter().map(|envelope| envelope.seen_count).collect();
    assert_eq!(seen, [2, 1]);
    let mut more = 0;
    while keep_invalid(format!("{more:>5}{}", "x".repeat(9_995)).as_bytes()) {
        more += 1;
        assert!(more < 100, "there is a quota");
    }
    assert!(more >= 10, "an eighth of the budget: {more}");
    assert!(keep_invalid(b"{}"), "a known one is counted all the same");
    let counters = world.outbox.counters();
    assert_eq!(counters.invalid_unkept.load(Ordering::Relaxed), 1);
    assert_eq!(counters.invalid.load(Ordering::Relaxed), more + 2);
    assert!(world.take(9).rows.is_empty(), "they are not sent");
    assert!(
        matches!(world.enqueue("evt_1"), EnqueueOutcome::Stored { .. }),
        "and leave room for rows"
    );
}

#[test]
fn envelopes_retried_or_deleted_by_another_process_are_noticed() {
    let world = World::new(1);
    let stored =
        world.outbox.keep_invalid(Some("a".to_owned()), b"{ }".to_vec(), "deep".to_owned());
    assert!(block_on(stored).unwrap());
    let mut file = crate::InvalidEnvelopes::open(&world.file()).unwrap();
    let number = file.list(0, 9).unwrap()[0].number;
    world.outbox.enqueue("a", "other").unwrap();
    let waits = file.retry(number, "a", "{ }", Millis(NOW));
    assert!(matches!(waits, Err(crate::RetryError::IdWaits(_))), "{waits:?}");
    assert!(file.get(number).unwrap().is_some(), "it was not moved");
    assert!(file.retry(number, "b", "{ }", Millis(NOW)).unwrap());
    assert!(!file.retry(number, "b", "{ }", Millis(NOW)).unwrap(), "it no longer exists");
    let ids: Vec<String> = world.take(9).rows.into_iter().map(|row| row.event_id).collect();
    assert_eq!(ids, ["a", "b"]);
    let counters = world.outbox.counters();
    assert_eq!(counters.depth.load(Ordering::Relaxed), 2);
    assert_eq!(counters.invalid.load(Ordering::Relaxed), 0);
}

#[test]
fn rows_stored_by_many_threads_are_all_there() {
    let world = World::new(1);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let world = &world;
            scope.spawn(move || {
                for n in 0..50 {
                    world.enqueue(&format!("evt_{thread}_{n}"));
                }
            });
        }
    });
    let file = Connection::open(world.file()).unwrap();
    let rows: u64 = file.query_row("SELECT count(*) FROM event_outbox", [], |r| r.get(0)).unwrap();
    assert_eq!(rows, 400);
    assert_eq!(world.outbox.counters().depth.load(Ordering::Relaxed), 400);
}

#[test]
fn a_closed_outbox_returns_closed() {
    let world = World::new(1);
    world.outbox.close();
    assert_eq!(world.outbox.enqueue("a", "{}"), Err(EnqueueError::Closed));
}

#[test]
fn while_another_process_writes_nothing_is_stored_and_nothing_is_lost() {
    let world = World::new(1);
    world.enqueue("evt_1");
    let row = world.take(1).rows.remove(0);
    let other = Connection::open(world.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| world.outbox.enqueue("evt_2", "{}"));
        world.settle(row, RowOutcome::Acked);
        let stored = storing.join().unwrap();
        assert!(matches!(stored, Err(EnqueueError::Storage(_))), "{stored:?}");
    });
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(world.take(9).rows.len(), 1, "it is sent again, and was not stored twice");
    world.outbox.enqueue("evt_2", "{}").expect("it is stored when the other is done");
}

#[test]
fn after_a_disk_full_inside_a_batch_the_depth_is_correct() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("listener_outbox.db");
    let store = OutboxFile::open(&file, 1 << 30).unwrap();
    let backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(5) };
    let clock = Arc::new(ManualClock::at(Millis(NOW)));
    let counters = Arc::new(OutboxCounters::default());
    let mut writer =
        OutboxWriter::new(store, backoff, clock, Jitter::seeded(1), Arc::clone(&counters)).unwrap();
    let rows_stored = Notify::new();
    let write = |writer: &mut OutboxWriter, sizes: &[usize]| {
        let mut responses = Vec::new();
        let store = |bytes: &usize| {
            let (reply, response) = tokio::sync::oneshot::channel();
            responses.push(response);
            let event_id = format!("evt_{bytes}");
            OutboxCommand::Store { event_id, payload_json: "x".repeat(*bytes), reply }
        };
        let commands = sizes.iter().map(store).collect();
        writer.write(commands, &rows_stored).expect("a full disk is no reason to stop");
        let mut responses = responses.into_iter();
        responses
            .by_ref()
            .filter_map(|mut response| response.try_recv().ok())
            .filter(Result::is_ok)
            .count()
    };
    let depth = || counters.depth.load(Ordering::Relaxed);
    assert_eq!(write(&mut writer, &[10, 11]), 2);
    assert_eq!(depth(), 2);
    writer.store.limit_pages(40);
    // The second row does not fit; the rows after it would, and must not be committed without it.
    assert_eq!(write(&mut writer, &[100, 2_000_000, 101, 102]), 0, "the batch is one");
    let rows = |file: &Path| -> u64 {
        let file = Connection::open(file).unwrap();
        file.query_row("SELECT count(*) FROM event_outbox", [], |row| row.get(0)).unwrap()
    };
    assert_eq!((rows(&file), depth()), (2, 2));
    writer.store.limit_pages(4_000_000);
    assert_eq!(write(&mut writer, &[100, 101]), 2);
    assert_eq!((rows(&file), depth()), (4, 4));
}

#[test]
fn an_acknowledgement_with_another_id_does_not_count() {
    let world = World::new(1);
    for id in ["a", "b"] {
        world.enqueue(id);
    }
    let mut other = world.take(2).rows.remove(0);
    other.event_id = "not-a".to_owned();
    world.settle(other, RowOutcome::Acked);
    assert_eq!(world.outbox.counters().depth.load(Ordering::Relaxed), 2);
}

/// Works once, when the outbox is opened; then panics.
#[derive(Debug, Default)]
struct BrokenClock(std::sync::atomic::AtomicBool);

impl Clock for BrokenClock {
    fn now(&self) -> Millis {
        assert!(!self.0.swap(true, Ordering::SeqCst), "on purpose");
        Millis(NOW)
    }
}

#[test]
fn a_panic_of_the_writer_stops_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { clock: Arc::<BrokenClock>::default(), ..Options::default() };
    let outbox = Outbox::open(&folder.path().join("a.db"), options).unwrap();
    outbox.enqueue("one", "{}").unwrap_err();
    assert!(block_on(outbox.must_stop()).contains("ended by a panic"));
}
