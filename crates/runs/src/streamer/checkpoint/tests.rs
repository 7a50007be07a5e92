//! What checkpoints promise, wherever they are kept.

use rusqlite::Connection;

use super::*;

fn cursor(file: &str, row: u64) -> Cursor {
    let counts = Counts { admitted: row, duplicates: 1, quarantined: 2 };
    let last_ts_utc = "2026-01-01T00:00:00.000000Z".to_owned();
    Cursor { last_file: file.to_owned(), last_row_index: row, last_ts_utc, counts }
}

/// Everything that holds for all of them. `open` opens the same ones each time.
fn keeps_its_promises(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    comes_back_and_never_goes_back(open);
    a_run_has_one_streamer_at_a_time(open);
    positions_are_kept_by_partition(open);
}

fn comes_back_and_never_goes_back(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    let checkpoints = open();
    assert_eq!(checkpoints.load("k", "o").expect("read"), None);
    let save = |file: &str, row, occasion| {
        checkpoints.save("k", "o", &cursor(file, row), occasion, Millis(1)).expect("saved");
    };
    save("part-000000.parquet", 9, Occasion::PeriodicFlush);
    save("part-000001.parquet", 3, Occasion::FileComplete);
    save("part-000001.parquet", 2, Occasion::PeriodicFlush);
    save("part-000000.parquet", 99, Occasion::PeriodicFlush);
    drop(checkpoints);
    let again = open();
    assert_eq!(again.load("k", "o").expect("read"), Some(cursor("part-000001.parquet", 3)));
    assert_eq!(again.load("other run", "o").expect("read"), None);
    again.forget("other run", "o").expect("nothing to forget");
    again.forget("k", "o").expect("forgotten");
    assert_eq!(again.load("k", "o").expect("read"), None);
    let anew = cursor("part-000000.parquet", 0);
    again.save("k", "o", &anew, Occasion::MaxEvents, Millis(2)).expect("saved");
    assert_eq!(again.load("k", "o").expect("read"), Some(anew));
}

fn a_run_has_one_streamer_at_a_time(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    let (one, other) = (open(), open());
    let held = one.lock("k").expect("lock").expect("free");
    assert!(other.lock("k").expect("lock").is_none());
    assert!(other.lock("k2").expect("lock").is_some(), "other runs are free");
    drop(held);
    // A session of a database ends a moment after its client is gone.
    let given_up = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while other.lock("k").expect("lock").is_none() {
        assert!(std::time::Instant::now() < given_up, "a lock that was let go is free");
        std::thread::yield_now();
    }
}

fn positions_are_kept_by_partition(open: &dyn Fn() -> Box<dyn Checkpoints>) {
    let checkpoints = open();
    assert_eq!(checkpoints.position("t", 0).expect("read"), "");
    checkpoints.move_to("t", 0, "5").expect("moved");
    checkpoints.move_to("t", 1, "7").expect("moved");
    checkpoints.move_to("t", 0, "6").expect("moved");
    assert_eq!(open().position("t", 0).expect("read"), "6");
}

#[test]
fn checkpoints_in_a_file_keep_their_promises() {
    let folder = tempfile::tempdir().expect("a folder");
    keeps_its_promises(&|| Box::new(FileCheckpoints::open(folder.path()).expect("open")));
    let raw = Connection::open(folder.path().join(FILE)).expect("open");
    let sql = "SELECT count(*) FROM wsp_checkpoint_history";
    let history: i64 = raw.query_row(sql, [], |row| row.get(0)).expect("counted");
    assert_eq!(history, 5, "the history only grows, whatever is forgotten");
}

#[test]
fn streamers_that_start_at_once_make_one_file_together() {
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
fn a_file_of_a_newer_streamer_is_left_alone() {
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
    fn checkpoints_in_the_ledgers_database_keep_their_promises() {
        let Some(database) = database() else { return };
        let options = Options::new(&database.url);
        keeps_its_promises(&|| Box::new(PostgresCheckpoints::open(&options).expect("open")));
        let mut session = Session::open(&options).expect("open");
        let rows = session.query("SELECT count(*) FROM wsp_checkpoint_history", &[]).expect("read");
        assert_eq!(rows[0].get::<_, i64>(0), 5, "the history only grows");
    }

    #[test]
    fn a_database_that_starts_again_is_found_again() {
        let Some(server) = Server::start() else { return };
        let options = Options::new(server.url("postgres"));
        let checkpoints = PostgresCheckpoints::open(&options).expect("open");
        checkpoints.move_to("t", 0, "5").expect("moved");
        server.stop();
        assert!(checkpoints.position("t", 0).is_err(), "nobody is there");
        server.start_again().expect("it starts");
        assert_eq!(checkpoints.position("t", 0).expect("read"), "5");
        checkpoints.move_to("t", 0, "6").expect("moved");
    }

    #[tokio::test]
    async fn a_lock_may_be_let_go_on_any_thread() {
        let Some(database) = database() else { return };
        let options = Options::new(&database.url);
        let locked = tokio::task::spawn_blocking(move || {
            let checkpoints = PostgresCheckpoints::open(&options).expect("open");
            checkpoints.lock("k").expect("lock").expect("free")
        });
        drop(locked.await.expect("locked"));
    }
}
