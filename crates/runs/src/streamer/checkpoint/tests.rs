//! Contract tests of checkpoint stores.

use rusqlite::Connection;

use super::*;

fn cursor(file: &str, row: u64) -> Cursor {
    let counts = Counts { admitted: row, duplicates: 1, quarantined: 2 };
    let last_ts_utc = "2026-01-01T00:00:00.000000Z".to_owned();
    Cursor { last_file: file.to_owned(), last_row_index: row, last_ts_utc, counts }
}

/// Runs all contract tests. `open` opens the same store each time.
fn check_contract(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    checkpoints_survive_and_never_go_back(open);
    a_run_is_locked_by_one_streamer(open);
    positions_are_saved_by_partition(open);
}

fn checkpoints_survive_and_never_go_back(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    let checkpoints = open();
    assert_eq!(checkpoints.load("k", "o").expect("read"), None);
    let save = |file: &str, row, reason| {
        checkpoints.save("k", "o", &cursor(file, row), reason, Millis(1)).expect("saved");
    };
    save("part-000000.parquet", 9, CheckpointReason::PeriodicFlush);
    save("part-000001.parquet", 3, CheckpointReason::FileComplete);
    save("part-000001.parquet", 2, CheckpointReason::PeriodicFlush);
    save("part-000000.parquet", 99, CheckpointReason::PeriodicFlush);
    drop(checkpoints);
    let again = open();
    assert_eq!(again.load("k", "o").expect("read"), Some(cursor("part-000001.parquet", 3)));
    assert_eq!(again.load("other run", "o").expect("read"), None);
    again.forget("other run", "o").expect("nothing to forget");
    again.forget("k", "o").expect("forgotten");
    assert_eq!(again.load("k", "o").expect("read"), None);
    let restarted = cursor("part-000000.parquet", 0);
    again.save("k", "o", &restarted, CheckpointReason::MaxEvents, Millis(2)).expect("saved");
    assert_eq!(again.load("k", "o").expect("read"), Some(restarted));
}

fn a_run_is_locked_by_one_streamer(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    let (one, other) = (open(), open());
    let held = one.lock("k").expect("lock").expect("free");
    assert!(other.lock("k").expect("lock").is_none());
    assert!(other.lock("k2").expect("lock").is_some(), "other runs are free");
    drop(held);
    // A database session ends shortly after its client has disconnected.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while other.lock("k").expect("lock").is_none() {
        assert!(std::time::Instant::now() < deadline, "the lock was not released");
        std::thread::yield_now();
    }
}

fn positions_are_saved_by_partition(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    let checkpoints = open();
    assert_eq!(checkpoints.position("t", 0).expect("read"), "");
    checkpoints.move_to("t", 0, "5").expect("moved");
    checkpoints.move_to("t", 1, "7").expect("moved");
    checkpoints.move_to("t", 0, "6").expect("moved");
    assert_eq!(open().position("t", 0).expect("read"), "6");
}

#[test]
fn file_checkpoints_pass_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    check_contract(&|| Box::new(FileCheckpoints::open(folder.path()).expect("open")));
    let raw = Connection::open(folder.path().join(FILE)).expect("open");
    let sql = "SELECT count(*) FROM wsp_checkpoint_history";
    let history: i64 = raw.query_row(sql, [], |row| row.get(0)).expect("counted");
    assert_eq!(history, 5, "the history is append-only");
}

#[test]
fn concurrent_streamers_can_create_the_file() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().expect("a folder");
        std::thread::scope(|scope| {
            let open = || FileCheckpoints::open(folder.path()).map(drop);
            let started: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            for started in started {
                started.join().expect("no panic").expect("it opens");
            }
        });
    }
}

#[test]
fn a_file_of_a_newer_version_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(FileCheckpoints::open(folder.path()).expect("open"));
    let raw = Connection::open(folder.path().join(FILE)).expect("open");
    raw.pragma_update(None, "user_version", 99).expect("set");
    let error = FileCheckpoints::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("version 99"), "{error}");
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use admit_ledger::postgres::{Options, Session};
    use admit_testkit::postgres::{Server, database};

    use super::*;

    #[test]
    fn database_checkpoints_pass_the_contract() {
        let Some(database) = database() else { return };
        let options = Options::new(&database.url);
        check_contract(&|| Box::new(PostgresCheckpoints::open(&options).expect("open")));
        let mut session = Session::open(&options).expect("open");
        let rows = session.query("SELECT count(*) FROM wsp_checkpoint_history", &[]).expect("read");
        assert_eq!(rows[0].get::<_, i64>(0), 5, "the history is append-only");
    }

    #[test]
    fn a_restarted_database_is_reconnected() {
        let Some(server) = Server::start() else { return };
        let options = Options::new(server.url("postgres"));
        let checkpoints = PostgresCheckpoints::open(&options).expect("open");
        checkpoints.move_to("t", 0, "5").expect("moved");
        server.stop();
        assert!(checkpoints.position("t", 0).is_err(), "the database is down");
        server.start_again().expect("it starts");
        assert_eq!(checkpoints.position("t", 0).expect("read"), "5");
        checkpoints.move_to("t", 0, "6").expect("moved");
    }

    #[tokio::test]
    async fn a_lock_can_be_released_on_any_thread() {
        let Some(database) = database() else { return };
        let options = Options::new(&database.url);
        let locked = tokio::task::spawn_blocking(move || {
            let checkpoints = PostgresCheckpoints::open(&options).expect("open");
            checkpoints.lock("k").expect("lock").expect("free")
        });
        drop(locked.await.expect("locked"));
    }
}
