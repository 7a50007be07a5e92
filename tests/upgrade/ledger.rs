//! The two ledgers with fixtures: queries, write lock, dump, and archives.

use std::path::{Path, PathBuf};

use admit_testkit::postgres::{TestDatabase, database};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::support::TIMEOUT;
use crate::support::gate::Launch;
use crate::support::machine::{command, run, text};
use crate::support::sql::Database;

/// Schema of the dumped ledger.
const SCHEMA: &str = "admit";

/// File name of the dump in its archive.
const DUMP: &str = "dump.sql";

/// Ledger of a fixture.
pub(super) enum Ledger {
    /// SQLite, in the data folder.
    Sqlite,
    /// PostgreSQL, in a database of its own.
    Postgres(TestDatabase),
}

/// A write lock on a ledger, released when it is dropped.
pub(super) enum FixtureLock {
    File(Connection),
    Head(Database),
}

impl Ledger {
    /// An empty ledger on PostgreSQL; `None` (reported as skipped) where PostgreSQL is not installed.
    pub(super) fn postgres() -> Option<Self> {
        database().map(Self::Postgres)
    }

    /// Environment variables with the config of this ledger.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Sqlite => Vec::new(),
            Self::Postgres(database) => vec![
                ("ADMIT_LEDGER__URL", database.url.clone()),
                ("ADMIT_LEDGER__SCHEMA", SCHEMA.to_owned()),
                // The next start of the same gate recovers at once, without waiting for a lease.
                ("ADMIT_LEDGER__GATE_ID", "fixture".to_owned()),
            ],
        }
    }

    /// Adds [`Self::variables`] to a gate process.
    pub(super) fn launch(&self, launch: Launch) -> Launch {
        let variables = self.variables();
        variables.iter().fold(launch, |launch, (name, value)| launch.variable(name, value))
    }

    /// Returns the first value of a query, as text.
    pub(super) fn first(&self, data: &Path, query: &str) -> Option<String> {
        match self {
            Self::Sqlite => {
                let conn = open_without_checkpoint(data);
                let mut query = conn.prepare(query).unwrap();
                let mut rows = query.query([]).unwrap();
                rows.next().unwrap().map(|row| row.get(0).unwrap())
            }
            Self::Postgres(database) => {
                let rows = connect(database).rows(query).unwrap();
                rows.first().map(|row| row.get(0))
            }
        }
    }

    /// Acquires the write lock, which blocks commits of the gate.
    pub(super) fn lock(&self, data: &Path) -> FixtureLock {
        match self {
            Self::Sqlite => {
                let conn = open_without_checkpoint(data);
                conn.execute_batch("BEGIN IMMEDIATE").unwrap();
                FixtureLock::File(conn)
            }
            Self::Postgres(database) => {
                let database = connect(database);
                database.rows("BEGIN; SELECT last_seq FROM head FOR UPDATE").unwrap();
                FixtureLock::Head(database)
            }
        }
    }

    /// Dumps the PostgreSQL ledger into the folder, so that the folder is complete.
    pub(super) fn dump_into(&self, folder: &Path) {
        let Self::Postgres(database) = self else { return };
        let file = folder.join(DUMP);
        let mut dump = command("pg_dump");
        dump.args(["--no-owner", "--no-privileges", "--schema", SCHEMA, "--dbname"]);
        let output = dump.arg(&database.url).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "pg_dump: {stderr}");
        let dumped = String::from_utf8(output.stdout).unwrap();
        // Remove lines that only the newest servers and clients understand.
        let is_portable = |line: &&str| {
            let unportable = ["\\restrict", "\\unrestrict", "SET transaction_timeout", "-- Dumped"];
            !unportable.iter().any(|start| line.starts_with(start))
        };
        let portable: Vec<&str> = dumped.lines().filter(is_portable).collect();
        std::fs::write(file, portable.join("\n") + "\n").unwrap();
    }

    /// Loads the dump of a fixture into an empty database.
    pub(super) fn load_from(&self, folder: &Path) {
        let Self::Postgres(database) = self else { return };
        let file = folder.join(DUMP);
        let stop = "ON_ERROR_STOP=1";
        run("psql", ["-X", "-q", "-v", stop, "-d", &database.url, "-f", text(&file)]).unwrap();
    }
}

/// Opens the SQLite file without a checkpoint on close, so that the WAL stays even after the last close.
fn open_without_checkpoint(data: &Path) -> Connection {
    let conn = Connection::open(data.join("ledger.db")).unwrap();
    conn.busy_timeout(TIMEOUT).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    conn
}

fn connect(database: &TestDatabase) -> Database {
    let connection = Database::at(&database.url);
    connection.rows(&format!("SET search_path TO {SCHEMA}")).unwrap();
    connection
}

impl Drop for FixtureLock {
    fn drop(&mut self) {
        match self {
            Self::File(conn) => conn.execute_batch("ROLLBACK").unwrap_or_default(),
            Self::Head(database) => drop(database.rows("ROLLBACK")),
        }
    }
}

/// Path of a fixture archive.
pub(super) fn archive(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/v0.1");
    root.join(format!("{name}.tar.gz"))
}

/// Unpacks an archive into a folder.
pub(super) fn unpack(name: &str, folder: &Path) {
    run("tar", ["-xzf", text(&archive(name)), "-C", text(folder)]).unwrap();
}

/// Packs a folder reproducibly: no owners, times or order of this machine.
pub(super) fn pack(folder: &Path, archive: &Path) {
    let (folder, archive) = (text(folder), text(archive));
    // No pipe: a failure of tar would go unnoticed.
    let script = format!(
        "tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@1771459200 --format=gnu \
         -C '{folder}' -cf '{archive}.tar' . && gzip -9n < '{archive}.tar' > '{archive}' \
         && rm '{archive}.tar'"
    );
    run("sh", ["-c", &script]).unwrap();
}
