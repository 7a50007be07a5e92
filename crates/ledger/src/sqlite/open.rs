//! Opening the file: pragmas, recovery, and migrations.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admit_sqlite_log::mark::CommitPosition;
use admit_sqlite_log::{Mark, WalConnection, WalWrites};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::keys::ClaimError;
use super::wal_check::{self, Damage};
use super::{identity, mark_check, queries};

/// The ledger's file in the data folder.
pub(super) const FILE: &str = "ledger.db";

/// Marks the file as ours (`ADMT`), so that a foreign database is never migrated.
const APPLICATION_ID: i32 = 0x4144_4d54;

/// Page size of a new file, twice SQLite's default. A commit writes every page it touches with two
/// calls, and an event's rows fill a default page within a few events (decision 0029).
const PAGE_BYTES: u32 = 8192;

/// Page cache of a connection. Events are appended and keys are merged in order, so a written page is
/// hardly needed again, and the system's cache has those that are. A larger cache takes longer to grow:
/// each page is touched a first time, for which the host of a virtual machine has to find memory.
const CACHE_KIB: i32 = 8 << 10;

/// Page cache of connections that may rewrite the whole file.
const MAINTENANCE_CACHE_KIB: i32 = 64 << 10;

/// Lock timeout of every connection.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(5000);

/// Maximum size of the WAL file after a reset. Under load it is reset at about half of this, so only a
/// WAL that a reader has held back is truncated.
pub(super) const LOG_FILE_BYTES_MAX: u64 = 64 << 20;

/// Migrations in order; `user_version` is the number of applied ones.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_ledger.sql"),
    include_str!("migrations/0002_streams.sql"),
    include_str!("migrations/0003_effects.sql"),
    include_str!("migrations/0004_inbox.sql"),
    include_str!("migrations/0005_issued.sql"),
    include_str!("migrations/0006_records.sql"),
    include_str!("migrations/0007_runner.sql"),
    include_str!("migrations/0008_closure.sql"),
    include_str!("migrations/0009_publications.sql"),
    include_str!("migrations/0010_key_pages.sql"),
    include_str!("migrations/0011_receipt.sql"),
    include_str!("migrations/0012_clock.sql"),
    include_str!("migrations/0013_rounds.sql"),
    include_str!("migrations/0014_round_fields.sql"),
];

/// Why the ledger could not be opened. The messages address the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data folder or a file in it cannot be used.
    #[error("cannot use {}: {source}\n  check that the folder exists on a writable disk and that this user owns it", path.display())]
    Folder {
        /// What could not be used.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Another gate holds the folder.
    #[error("another gate (process {holder}) already serves {}\n  stop it first, or give this one its own folder with --data", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// Process id of the holder, as written in its lock file.
        holder: String,
    },
    /// The file is damaged.
    #[error("the ledger {} is damaged: {source}\n  nothing was changed; keep a copy of the folder, then restore a backup or rescue what is readable with: sqlite3 {0} .recover", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite error.
        source: rusqlite::Error,
    },
    /// The WAL is damaged.
    #[error("the WAL {} is damaged: {what}, and acknowledged events are lost with it\n  nothing was changed; keep a copy of the folder, then restore a backup. To go on without those events: sqlite3 {} 'PRAGMA wal_checkpoint(TRUNCATE)', then remove {} if it is there", log.display(), path.display(), mark_check::mark_of(path).display())]
    LogDamaged {
        /// The file.
        path: PathBuf,
        /// Its WAL.
        log: PathBuf,
        /// Extent of the damage.
        what: String,
    },
    /// Acknowledged events are missing, or may be.
    #[error("acknowledged events {what}\n  the ledger is {}; nothing was changed. If the log {} was moved away, put it back; or restore a backup into an empty folder. To accept what is missing and go on with what is left, remove {}", path.display(), log.display(), mark.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// What is missing, and why.
        what: String,
        /// Its WAL.
        log: PathBuf,
        /// The mark, which holds how much was acknowledged.
        mark: PathBuf,
    },
    /// The folder had a ledger, which is missing.
    #[error("the ledger of this folder is gone: {} is {missing}, and {} shows that there was one\n  nothing was changed; put it back, or restore a backup. A new ledger would admit every event a second time; if that is what you want, remove {1}", path.display(), id.display())]
    Gone {
        /// The file.
        path: PathBuf,
        /// What is missing of it.
        missing: &'static str,
        /// The file that identifies the ledger of this folder.
        id: PathBuf,
    },
    /// The file is another application's.
    #[error("{} is a SQLite file, but not a ledger of Admit\n  nothing was changed; choose another folder with --data", path.display())]
    NotALedger {
        /// The file.
        path: PathBuf,
    },
    /// The file comes from a newer version.
    #[error("the ledger {} has schema version {found}, this build knows {known}\n  nothing was changed; use the newer admit that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: i64,
        /// The newest version known to this build.
        known: usize,
    },
    /// Recovery could not bring everything safely to disk, so no door may open.
    #[error("the ledger {} could not be brought safely to disk: {reason}\n  no door was opened; free space or repair the disk, then start again", path.display())]
    NotDurable {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Two seqs have claimed one key.
    #[error("the ledger {} is inconsistent: {reason}\n  no door was opened; keep a copy of the data folder, then check it with: admit verify", path.display())]
    ClaimedTwice {
        /// The file.
        path: PathBuf,
        /// The key, and the seqs that claimed it.
        reason: String,
    },
    /// Another program holds a read transaction on the file, or writes to it.
    #[error("another program holds the ledger {}, so its WAL cannot be checkpointed\n  no door was opened; close that program (an open sqlite3 shell, a backup), then start again", path.display())]
    HeldByOthers {
        /// The file.
        path: PathBuf,
    },
    /// Any other SQLite error.
    #[error("the ledger {} cannot be opened: {source}\n  no door was opened; check that the disk has room and that this user may write the file and its folder", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The SQLite error.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// Error of migrating claimed keys.
    pub(super) fn from_claims(path: &Path, error: ClaimError) -> Self {
        match error {
            ClaimError::Sqlite(source) => Self::from_sqlite(path, source),
            ClaimError::ClaimedTwice(error) => {
                Self::ClaimedTwice { path: path.to_owned(), reason: error.to_string() }
            }
        }
    }

    /// Maps a SQLite error to what an operator can do about it.
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path, source }
            }
            // An invalid header has no error code of its own.
            Some(_) if source.to_string().contains("unsupported file format") => {
                Self::Damaged { path, source }
            }
            _ => Self::Sqlite { path, source },
        }
    }
}

/// Opens the connection that commits events: WAL, a sync before every commit returns, a bounded wait for
/// locks, and by default a WAL that is written in one piece per commit (decision 0036).
pub(super) fn open_writer(path: &Path, writes: WalWrites) -> rusqlite::Result<WalConnection> {
    let conn = admit_sqlite_log::open(path, flags(), writes)?;
    set_pragmas(&conn)?;
    // Truncates a WAL that a reader had made grow, once it is reset.
    conn.pragma_update(None, "journal_size_limit", LOG_FILE_BYTES_MAX)?;
    Ok(conn)
}

/// Opens a connection for other changes to the file, such as migrations, which may not fit into memory.
pub(super) fn open_maintenance(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, flags())?;
    set_pragmas(&conn)?;
    conn.pragma_update(None, "cache_size", -MAINTENANCE_CACHE_KIB)?;
    Ok(conn)
}

/// Opens a read-only connection of the process that writes.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, flags())?;
    set_pragmas(&conn)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

/// Opens a read-only connection that leaves the file and its WAL as they are: normally the last closer of a
/// file checkpoints the WAL as far as it is readable, and removes it with the rest.
pub(super) fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let has_log = std::fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0);
    let conn = Connection::open_with_flags(path, flags() - OpenFlags::SQLITE_OPEN_CREATE)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    // Without a WAL nothing can be lost, and SQLite may remove the files beside the ledger.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
    conn.pragma_update(None, "query_only", true)?;
    set_common_pragmas(&conn)?;
    Ok(conn)
}

fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn set_pragmas(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    // Takes effect only while the file is still empty.
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "full")?;
    // Checkpoints happen outside the commit path (see checkpoint.rs).
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    set_common_pragmas(conn)
}

/// Sets the pragmas of every connection.
fn set_common_pragmas(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    conn.set_prepared_statement_cache_capacity(256);
    // Plans depend on the statement alone: otherwise SQLite also inspects the values, and prepares a
    // conditional statement again whenever they change, which is at every event.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Returns the page size of the file.
pub(super) fn page_bytes(conn: &Connection) -> rusqlite::Result<u64> {
    conn.pragma_query_value(None, "page_size", |row| row.get(0))
}

/// Returns the number of applied migrations, zero if there is no file. Refuses a file that is not ours, is
/// newer, or has a damaged WAL, before anything is written to it.
pub(super) fn version(path: &Path) -> Result<usize, OpenError> {
    // Before SQLite reads the WAL and silently drops what it cannot read.
    check_log(path)?;
    if !path.try_exists().map_err(|source| OpenError::Folder { path: path.to_owned(), source })? {
        return Ok(0);
    }
    let fail = |source| OpenError::from_sqlite(path, source);
    mark_check::check(path)?;
    let conn = open_read_only(path).map_err(fail)?;
    check_owner(&conn, path)?;
    identity::check_tag(path, &conn)?;
    let found = conn.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    Ok(usize::try_from(found.map_err(fail)?).unwrap_or(0))
}

/// Opens the ledger in the data folder `dir` read-only, beside a gate or without one. Changes nothing in the
/// folder.
pub(super) fn open_folder_read_only(dir: &Path) -> Result<(PathBuf, Connection), OpenError> {
    let path = dir.join(FILE);
    identity::check(dir, &path)?;
    std::fs::metadata(&path).map_err(|source| OpenError::Folder { path: path.clone(), source })?;
    // The WAL of a running gate changes while it is checked, and the gate has checked it before it opened
    // the file. A gate may have been started in the meantime.
    let index = index_of(&path);
    let is_in_use = || {
        wal_check::is_in_use(&index)
            .map_err(|source| OpenError::Folder { path: index.clone(), source })
    };
    if !is_in_use()?
        && let Err(damaged) = check_log(&path).and_then(|()| mark_check::check(&path))
        && !is_in_use()?
    {
        return Err(damaged);
    }
    let conn = open_read_only(&path).map_err(|source| OpenError::from_sqlite(&path, source))?;
    check_owner(&conn, &path)?;
    identity::check_tag(&path, &conn)?;
    Ok((path, conn))
}

/// Opens the file for a gate: recovers, syncs, migrates. No door may open before it returns.
pub(super) fn recover_for_gate(path: &Path, writes: WalWrites) -> Result<WalConnection, OpenError> {
    recover_with(path, || open_writer(path, writes))
}

/// The same for a command that changes a ledger without a gate.
pub(super) fn recover(path: &Path) -> Result<Connection, OpenError> {
    recover_with(path, || open_maintenance(path))
}

fn recover_with<C>(
    path: &Path,
    open: impl FnOnce() -> rusqlite::Result<C>,
) -> Result<C, OpenError> {
    let fail = |source| OpenError::from_sqlite(path, source);
    version(path)?;
    let mut conn = open_maintenance(path).map_err(fail)?;
    clear_mark(&conn, path)?;
    checkpoint_all(&conn, path)?;
    migrate(&mut conn).map_err(fail)?;
    checkpoint_all(&conn, path)?;
    check_pages(&conn).map_err(fail)?;
    // Before the other one is closed: the last closer of a file removes its WAL.
    open().map_err(fail)
}

/// Clears the mark once everything acknowledged is in the file, and before the WAL is emptied: a crash in
/// between would leave a mark without its WAL.
fn clear_mark(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let mark = mark_check::mark_of(path);
    Mark::begin_copy_at(&mark).map_err(|source| no_mark(path, &source))?;
    let copied = conn.query_row(queries::CHECKPOINT_PASSIVE, [], |row| {
        Ok(row.get::<_, i64>(0)? == 0 && row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
    });
    if !copied.map_err(|source| not_durable(path, source))? {
        // A reader is in the way; it may end until the WAL is emptied, or the start fails.
        checkpoint_all(conn, path)?;
    }
    Mark::clear_at(&mark).map_err(|source| no_mark(path, &source))
}

/// Opens the mark of a recovered ledger that is about to be written to.
pub(super) fn mark(path: &Path, reach: CommitPosition) -> Result<Arc<Mark>, OpenError> {
    let mark = Mark::open(&mark_check::mark_of(path), reach);
    mark.map(Arc::new).map_err(|source| no_mark(path, &source))
}

/// Makes the writer's connection mark each WAL generation. With [`WalWrites::Direct`] none is marked: the
/// mark then holds the position of the newest commit only.
pub(super) fn mark_generations(
    conn: &WalConnection,
    writes: WalWrites,
    mark: &Arc<Mark>,
) -> rusqlite::Result<()> {
    match writes {
        WalWrites::Buffered => conn.mark_generations(mark),
        WalWrites::Direct => Ok(()),
    }
}

fn no_mark(path: &Path, source: &std::io::Error) -> OpenError {
    let reason = format!("{} cannot be written: {source}", admit_sqlite_log::mark::NAME);
    OpenError::NotDurable { path: path.to_owned(), reason }
}

/// Path of the WAL.
pub(super) fn log_of(path: &Path) -> PathBuf {
    with_suffix(path, "-wal")
}

/// Path of the WAL index.
fn index_of(path: &Path) -> PathBuf {
    with_suffix(path, "-shm")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Checks whether SQLite would silently drop what was once durable.
fn check_log(path: &Path) -> Result<(), OpenError> {
    let log = log_of(path);
    let damage = wal_check::damage(&log, &index_of(path))
        .map_err(|source| OpenError::Folder { path: log.clone(), source })?;
    let what = match damage {
        None => return Ok(()),
        Some(Damage::Header) => "none of it can be read".to_owned(),
        Some(Damage::Frame(number)) => format!("it cannot be read from frame {number} on"),
    };
    Err(OpenError::LogDamaged { path: path.to_owned(), log, what })
}

/// Up to this size every page is checked at start, which takes a fraction of a second.
const CHECK_BYTES_MAX: u64 = 64 << 20;

/// Checks for damage before any door opens: everywhere in a small file, at both ends of every table
/// in a large one. `admit verify` checks everything regardless of the size.
fn check_pages(conn: &Connection) -> rusqlite::Result<()> {
    let pages: u64 = conn.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages.saturating_mul(page_bytes(conn)?) <= CHECK_BYTES_MAX {
        let found: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found == "ok" {
            return Ok(());
        }
        let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(corrupt, Some(found)));
    }
    let mut tables = conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let names = tables.query_map([], |row| row.get::<_, String>(0))?;
    for name in names {
        let name = name?;
        for order in ["ASC", "DESC"] {
            let query = format!("SELECT * FROM \"{name}\" ORDER BY 1 {order} LIMIT 1");
            conn.prepare(&query)?.query([])?.next()?;
        }
    }
    Ok(())
}

/// Refuses foreign files before anything is written to them.
fn check_owner(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let fail = |source| OpenError::from_sqlite(path, source);
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let application = pragma("application_id").map_err(fail)?;
    let version = pragma("user_version").map_err(fail)?;
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fail)?;
    if application != i64::from(APPLICATION_ID) && (application != 0 || tables > 0) {
        return Err(OpenError::NotALedger { path: path.to_owned() });
    }
    if usize::try_from(version).map_or(true, |version| version > MIGRATIONS.len()) {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found: version,
            known: MIGRATIONS.len(),
        });
    }
    Ok(())
}

fn migrate(conn: &mut Connection) -> rusqlite::Result<()> {
    let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(usize::try_from(version).unwrap_or(0)) {
        let tx = conn.transaction()?;
        tx.execute_batch(sql)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", index + 1)?;
        tx.commit()?;
    }
    Ok(())
}

/// Checkpoints the whole WAL with a confirmed sync.
///
/// After a failed sync the page cache may claim more than the disk holds; copying the WAL into the
/// file and syncing that file is what makes it durable.
fn checkpoint_all(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let copy = |query| conn.query_row(query, [], |row| row.get::<_, i64>(0));
    // Emptying the WAL needs exclusive access. A reader of the newest state, such as an open sqlite3
    // shell, keeps it from being emptied but not from being copied and synced.
    let busy = copy(queries::CHECKPOINT_TRUNCATE).and_then(|busy| match busy {
        0 => Ok(0),
        _ => copy(queries::CHECKPOINT_FULL),
    });
    match busy {
        Ok(0) => Ok(()),
        Ok(_) => Err(OpenError::HeldByOthers { path: path.to_owned() }),
        Err(source) => Err(not_durable(path, source)),
    }
}

fn not_durable(path: &Path, source: rusqlite::Error) -> OpenError {
    let error = OpenError::from_sqlite(path, source);
    if let OpenError::Sqlite { path, source } = error {
        return OpenError::NotDurable { path, reason: source.to_string() };
    }
    error
}
