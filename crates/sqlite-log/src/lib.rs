//! A file layer under SQLite that writes its log in one piece for each commit.
//!
//! SQLite writes every page of a commit to its log with two calls, one for a header of 24 bytes and one
//! for the page. Here they are collected, and written when SQLite asks for a sync or looks at the file in
//! any other way; so what is on disk when a sync begins is byte for byte what it would be without us, but
//! for zeros at its end: a log that grows is made longer in steps of a megabyte. Every other file, and every
//! other call, goes to the system's own layer.
//!
//! Invariant: what is collected belongs to a commit that is being written, and that commit ends with a sync.
//! So SQLite makes its frames known to readers after they are in the file, and a failed write fails the
//! commit. It holds because [`open`] has SQLite sync every commit and write nothing to the log before one:
//! frames that spill in the middle of a transaction could otherwise be left here when it is rolled back.
//!
//! The layer sees each generation of the log before any commit of it is durable, and writes it down in
//! [`mark`], so that a log that is lost is noticed.
//!
//! This is the only crate with unsafe code (docs/decisions/0036): `layer` is what SQLite calls, and
//! `piece`, which decides what is collected, is plain Rust.

mod layer;
pub mod mark;
mod piece;

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

pub use mark::Mark;

/// Opens a database on the layer, for whoever commits. `synchronous` is `FULL` and must stay so, and so
/// must `cache_spill`, which is off: a transaction is kept in memory until it is committed.
///
/// # Errors
/// As SQLite says.
pub fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let layer =
        layer::register().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let conn = Connection::open_with_flags_and_vfs(path, flags, layer)?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "cache_spill", false)?;
    Ok(conn)
}

/// Has a connection of [`open`] mark each generation of the log, durably, before a commit of it is. The
/// database must be in WAL mode.
///
/// # Errors
/// When the connection has no log on the layer.
pub fn mark_generations(conn: &Connection, mark: &Arc<Mark>) -> rusqlite::Result<()> {
    // SQLite opens the log with the first read.
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    if layer::attach(conn, mark) {
        return Ok(());
    }
    let message = "the log of the database is not on the file layer that marks it";
    Err(rusqlite::Error::ToSqlConversionFailure(message.into()))
}
