//! Databases on the VFS, compared with SQLite's default VFS.

// Always true for a test; informs the lints, also in functions that are not marked as tests.
#![cfg(test)]

use std::fs;
use std::path::Path;

use admit_sqlite_log::{WalConnection, WalWrites};
use rusqlite::{Connection, ErrorCode, OpenFlags};

fn open(path: &Path, on_vfs: bool) -> WalConnection {
    let writes = if on_vfs { WalWrites::Buffered } else { WalWrites::Direct };
    let conn = admit_sqlite_log::open(path, OpenFlags::default(), writes).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    conn
}

/// Small and large rows, commits larger than the cache, a rollback and a WAL restart.
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
fn a_buffered_wal_has_the_same_content_as_a_direct_one() {
    let folder = tempfile::tempdir().unwrap();
    let made = [("plain.db", false), ("vfs.db", true)].map(|(name, on_vfs)| {
        let path = folder.path().join(name);
        let conn = open(&path, on_vfs);
        work(&conn);
        let log = fs::read(path.with_extension("db-wal")).unwrap();
        (content(&conn), log, conn)
    });
    assert_eq!(made[0].0, made[1].0);
    // Salts and checksums differ per WAL; its length must not.
    let (plain, buffered) = (&made[0].1, &made[1].1);
    let (frames, zeros) = buffered.split_at(plain.len());
    let last = &plain[plain.len() - 1000..];
    assert!(last.iter().any(|byte| *byte != 0), "zeros would prove nothing");
    assert!(frames.ends_with(last), "the last page is the same");
    assert!(zeros.iter().all(|byte| *byte == 0), "behind it is nothing");
    let found: String =
        made[1].2.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

#[test]
fn commits_are_visible_at_once_on_either_vfs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = open(&path, true);
    work(&conn);
    for on_vfs in [false, true] {
        let other = open(&path, on_vfs);
        assert_eq!(content(&other), content(&conn));
        other.execute("INSERT INTO t VALUES (?1, x'00')", [i64::from(on_vfs) + 90_000]).unwrap();
        assert_eq!(content(&conn), content(&other));
    }
}

#[test]
fn a_preallocated_wal_is_read_to_its_last_commit() {
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

/// A copy of the files, as after a power cut: the WAL contains every commit.
#[test]
fn commits_are_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let conn = open(&path, true);
    work(&conn);
    let copy = folder.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    fs::copy(path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
    assert_eq!(content(&open(&copy, false)), content(&conn));
}

/// Pages of a rolled-back transaction must not be written after later commits of other connections.
#[test]
fn pages_of_a_rolled_back_transaction_are_never_written() {
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

#[test]
fn pragmas_that_the_buffer_relies_on_cannot_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, on_vfs) in [("vfs.db", true), ("plain.db", false)] {
        let conn = open(&folder.path().join(name), on_vfs);
        for (pragma, changed, kept) in [
            ("synchronous", "normal", "full"),
            ("synchronous", "1", "2"),
            ("cache_spill", "on", "off"),
            ("cache_spill", "100", "0"),
            ("journal_mode", "delete", "wal"),
        ] {
            for sql in [
                format!("PRAGMA {pragma} = {changed}"),
                format!("PRAGMA main.{}({changed})", pragma.to_uppercase()),
            ] {
                let error = conn.execute_batch(&sql).unwrap_err();
                let code = error.sqlite_error_code();
                assert_eq!(
                    code,
                    Some(ErrorCode::AuthorizationForStatementDenied),
                    "{sql}: {error}"
                );
            }
            conn.pragma_update(None, pragma, kept).unwrap();
        }
        let set =
            |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((set("synchronous"), set("cache_spill")), (2, 0));
        conn.pragma_update(None, "cache_size", 100).unwrap();
    }
}
