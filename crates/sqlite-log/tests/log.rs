//! Databases on the layer, beside the same on SQLite's own.

// Always true for a test; it tells the lints so, also in functions that are not marked as one.
#![cfg(test)]

use std::fs;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

fn open(path: &Path, on_layer: bool) -> Connection {
    let flags = OpenFlags::default();
    let conn = if on_layer {
        admit_sqlite_log::open(path, flags).unwrap()
    } else {
        let conn = Connection::open_with_flags(path, flags).unwrap();
        // As on the layer, so that their logs can be compared.
        conn.pragma_update(None, "cache_spill", false).unwrap();
        conn
    };
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    conn
}

/// Small and large rows, commits that are larger than the cache, one that is rolled back, and a log that
/// starts over.
fn work(conn: &Connection) {
    conn.pragma_update(None, "cache_size", 10).unwrap();
    conn.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, bytes BLOB)").unwrap();
    for round in 0..3 {
        conn.execute_batch("BEGIN").unwrap();
        for n in 0..200 {
            let row = (round * 1000 + n, vec![u8::try_from(n).unwrap(); 10 + n * 13]);
            conn.execute("INSERT INTO t VALUES (?1, ?2)", row).unwrap();
            let read: i64 = conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
            assert_eq!(read, i64::try_from(round * 200 + n + 1).unwrap());
        }
        conn.execute_batch("COMMIT").unwrap();
        conn.execute_batch("BEGIN; DELETE FROM t WHERE n % 3 = 0; ROLLBACK").unwrap();
        if round == 1 {
            conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        }
    }
}

fn content(conn: &Connection) -> Vec<(i64, Vec<u8>)> {
    let mut rows = conn.prepare("SELECT n, bytes FROM t ORDER BY n").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_log_written_in_pieces_holds_what_one_written_page_by_page_holds() {
    let folder = tempfile::tempdir().unwrap();
    let made = [("plain.db", false), ("layer.db", true)].map(|(name, on_layer)| {
        let path = folder.path().join(name);
        let conn = open(&path, on_layer);
        work(&conn);
        let log = fs::read(path.with_extension("db-wal")).unwrap();
        (content(&conn), log, conn)
    });
    assert_eq!(made[0].0, made[1].0);
    // Salts and checksums are drawn anew for each log; how much of it there is says the same.
    let (plain, layer) = (&made[0].1, &made[1].1);
    let (frames, zeros) = layer.split_at(plain.len());
    let last = &plain[plain.len() - 1000..];
    assert!(last.iter().any(|byte| *byte != 0), "zeros would say nothing");
    assert!(frames.ends_with(last), "the last page is the same");
    assert!(zeros.iter().all(|byte| *byte == 0), "behind it is nothing");
    let found: String =
        made[1].2.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

#[test]
fn what_is_committed_is_there_for_others_at_once_whichever_layer_they_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = open(&path, true);
    work(&conn);
    for on_layer in [false, true] {
        let other = open(&path, on_layer);
        assert_eq!(content(&other), content(&conn));
        other.execute("INSERT INTO t VALUES (?1, x'00')", [i64::from(on_layer) + 90_000]).unwrap();
        assert_eq!(content(&conn), content(&other));
    }
}

#[test]
fn a_log_that_grows_has_zeros_behind_it_and_is_read_to_its_last_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = open(&path, true);
    conn.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, bytes BLOB)").unwrap();
    let log = path.with_extension("db-wal");
    for n in 0..200 {
        conn.execute("INSERT INTO t VALUES (?1, randomblob(9000))", [n]).unwrap();
        let copy = folder.path().join("copy.db");
        if n % 20 == 19 {
            fs::copy(&path, &copy).unwrap();
            fs::copy(&log, copy.with_extension("db-wal")).unwrap();
            assert_eq!(content(&open(&copy, false)), content(&conn), "after {n}");
        }
    }
    let length = fs::metadata(&log).unwrap().len();
    assert!(length > 2 << 20 && length.is_multiple_of(1 << 20), "{length} bytes");
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    conn.execute("INSERT INTO t VALUES (1000, x'00')", []).unwrap();
    assert!(fs::metadata(&log).unwrap().len() < 1 << 18, "a short log is as long as it is");
}

/// A copy taken behind the back of the process, as a power cut leaves it: the log holds every commit.
#[test]
fn what_is_committed_is_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = open(&path, true);
    work(&conn);
    let copy = folder.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    fs::copy(path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
    assert_eq!(content(&open(&copy, false)), content(&conn));
}

/// What a transaction had written when it was rolled back must not come after what others committed since.
#[test]
fn nothing_of_a_transaction_that_was_rolled_back_is_ever_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = open(&path, true);
    work(&conn);
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    for n in 50_000..50_100 {
        conn.execute("INSERT INTO t VALUES (?1, randomblob(3000))", [n]).unwrap();
    }
    conn.execute_batch("ROLLBACK").unwrap();
    let other = open(&path, false);
    for n in 0..50 {
        other.execute("INSERT INTO t VALUES (?1, zeroblob(3000))", [n + 90_000]).unwrap();
    }
    let known = content(&other);
    assert_eq!(content(&conn), known);
    drop(conn);
    let copy = folder.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    fs::copy(path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
    assert_eq!(content(&open(&copy, false)), known);
}
