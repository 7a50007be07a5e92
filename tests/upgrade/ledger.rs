//! The two ledgers that fixtures exist for, and how each is asked, held, packed and unpacked.

use std::path::{Path, PathBuf};

use admit_testkit::postgres::{TestDatabase, database};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::support::SOON;
use crate::support::gate::Launch;
use crate::support::machine::{command, run, text};
use crate::support::sql::Database;

/// The schema of the dumped ledger.
const SCHEMA: &str = "admit";

/// The file of the dump in its archive.
const DUMP: &str = "dump.sql";

/// Where the ledger of a fixture is.
pub(super) enum Ledger {
    /// In the data folder.
    Sqlite,
    /// In a database of its own.
    Postgres(TestDatabase),
}

/// A write lock on a ledger, released when it is dropped.
pub(super) enum WriteLock {
    File(Connection),
    Head(Database),
}

impl Ledger {
    /// An empty ledger on PostgreSQL; `None` where there is no server, which has been reported.
    pub(super) fn postgres() -> Option<Self> {
        database().map(Self::Postgres)
    }

    /// Points a gate or a command at this ledger.
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

    /// The same for a gate about to be started.
    pub(super) fn launch(&self, launch: Launch) -> Launch {
        let variables = self.variables();
        variables.iter().fold(launch, |launch, (name, value)| launch.variable(name, value))
    }

    /// The first value of a query, as text.
    pub(super) fn first(&self, data: &Path, query: &str) -> Option<String> {
        match self {
            Self::Sqlite => {
                let conn = beside(data);
                let mut query = conn.prepare(query).unwrap();
                let mut rows = query.query([]).unwrap();
                rows.next().unwrap().map(|row| row.get(0).unwrap())
            }
            Self::Postgres(database) => {
                let rows = connected(database).rows(query).unwrap();
                rows.first().map(|row| row.get(0))
            }
        }
    }

    /// Takes the write lock away from the gate.
    pub(super) fn lock(&self, data: &Path) -> WriteLock {
        match self {
            Self::Sqlite => {
                let conn = beside(data);
                conn.execute_batch("BEGIN IMMEDIATE").unwrap();
                WriteLock::File(conn)
            }
            Self::Postgres(database) => {
                let database = connected(database);
                database.rows("BEGIN; SELECT last_seq FROM head FOR UPDATE").unwrap();
                WriteLock::Head(database)
            }
        }
    }

    /// Writes what is outside the folder into it, so that the folder is everything.
    pub(super) fn dump_into(&self, folder: &Path) {
        let Self::Postgres(database) = self else { return };
        let file = folder.join(DUMP);
        let mut dump = command("pg_dump");
        dump.args(["--no-owner", "--no-privileges", "--schema", SCHEMA, "--dbname"]);
        let output = dump.arg(&database.url).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "pg_dump: {complaint}");
        let dumped = String::from_utf8(output.stdout).unwrap();
        // What only the newest servers and clients understand.
        let is_portable = |line: &&str| {
            let alien = ["\\restrict", "\\unrestrict", "SET transaction_timeout", "-- Dumped"];
            !alien.iter().any(|start| line.starts_with(start))
        };
        let kept: Vec<&str> = dumped.lines().filter(is_portable).collect();
        std::fs::write(file, kept.join("\n") + "\n").unwrap();
    }

    /// Loads the dump of a fixture into an empty database.
    pub(super) fn load_from(&self, folder: &Path) {
        let Self::Postgres(database) = self else { return };
        let file = folder.join(DUMP);
        let stop = "ON_ERROR_STOP=1";
        run("psql", ["-X", "-q", "-v", stop, "-d", &database.url, "-f", text(&file)]).unwrap();
    }
}

/// A connection that leaves the log where it is, also when it is the last one to close.
fn beside(data: &Path) -> Connection {
    let conn = Connection::open(data.join("ledger.db")).unwrap();
    conn.busy_timeout(SOON).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    conn
}

fn connected(database: &TestDatabase) -> Database {
    let connected = Database::at(&database.url);
    connected.rows(&format!("SET search_path TO {SCHEMA}")).unwrap();
    connected
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        match self {
            Self::File(conn) => conn.execute_batch("ROLLBACK").unwrap_or_default(),
            Self::Head(database) => drop(database.rows("ROLLBACK")),
        }
    }
}

/// The archives of the version that made them.
pub(super) fn archive(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/v0.1");
    root.join(format!("{name}.tar.gz"))
}

/// Unpacks an archive into a folder.
pub(super) fn unpack(name: &str, folder: &Path) {
    run("tar", ["-xzf", text(&archive(name)), "-C", text(folder)]).unwrap();
}

/// Packs a folder so that nothing of this machine is in the archive.
pub(super) fn pack(folder: &Path, archive: &Path) {
    let (folder, archive) = (text(folder), text(archive));
    // In a pipe a failure of tar would go unnoticed.
    let script = format!(
        "tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@1771459200 --format=gnu \
         -C '{folder}' -cf '{archive}.tar' . && gzip -9n < '{archive}.tar' > '{archive}' \
         && rm '{archive}.tar'"
    );
    run("sh", ["-c", &script]).unwrap();
}
