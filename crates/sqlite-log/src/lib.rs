//! SQLite VFS that writes the WAL once per commit.
//!
//! SQLite writes every page of a commit to the WAL with two calls, one for a header of 24 bytes and
//! one for the page. This VFS buffers them and writes them when SQLite requests a sync or accesses
//! the file in any other way. When a sync begins, the file is byte for byte what it would be
//! without the VFS, except for zeros at its end: a growing WAL is extended in steps of a megabyte.
//! All other files and calls go to the system VFS.
//!
//! Invariant: buffered bytes belong to a commit that is being written, and that commit ends with a
//! sync. So SQLite makes its frames visible to readers after they are in the file, and a failed
//! write fails the commit. This holds because [`open`] makes SQLite sync every commit and write
//! nothing to the WAL before it: frames that spill in the middle of a transaction could otherwise
//! stay in the buffer after a rollback.
//!
//! The VFS sees each generation of the WAL before any commit of it is durable and records it in
//! [`mark`], so that a lost WAL is detected.
//!
//! This is the only crate with unsafe code (docs/decisions/0036): `vfs` contains the functions that
//! SQLite calls; `write_buffer`, which decides what is buffered, is safe Rust.

pub mod mark;
mod vfs;
mod write_buffer;

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

pub use mark::Mark;

/// Opens a database for writing on the VFS. `synchronous` is `FULL` and must stay so, and so must
/// `cache_spill`, which is off: a transaction is kept in memory until it is committed.
///
/// # Errors
/// Returns errors of SQLite.
pub fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let vfs =
        vfs::register().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let conn = Connection::open_with_flags_and_vfs(path, flags, vfs)?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "cache_spill", false)?;
    Ok(conn)
}

/// Makes a connection of [`open`] mark each WAL generation durably before a commit of it. The
/// database must be in WAL mode.
///
/// # Errors
/// If the connection has no WAL on the VFS.
pub fn mark_generations(conn: &Connection, mark: &Arc<Mark>) -> rusqlite::Result<()> {
    // SQLite opens the WAL with the first read.
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    if vfs::attach(conn, mark) {
        return Ok(());
    }
    let message = "the WAL of the database is not on the VFS that marks it";
    Err(rusqlite::Error::ToSqlConversionFailure(message.into()))
}
