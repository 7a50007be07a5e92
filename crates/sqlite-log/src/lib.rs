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
//! write fails the commit. This holds because a [`WalConnection`] syncs every commit and writes
//! nothing to the WAL before it: frames that spill in the middle of a transaction could otherwise
//! stay in the buffer after a rollback. Bytes that are still buffered when the file is closed belong
//! to a failed commit and are discarded.
//!
//! The VFS sees each generation of the WAL before any commit of it is durable and records it in
//! [`mark`], so that a lost WAL is detected.
//!
//! This is the only crate with unsafe code (docs/decisions/0036): `vfs` contains the functions that
//! SQLite calls; `write_buffer`, which decides what is buffered, is safe Rust.

pub mod mark;
mod vfs;
mod write_buffer;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use rusqlite::hooks::{AuthAction, AuthContext, Authorization, Wal};
use rusqlite::{Connection, OpenFlags};

pub use mark::Mark;

/// How a [`WalConnection`] writes the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalWrites {
    /// On the VFS: once per commit, each generation marked.
    Buffered,
    /// On SQLite's own VFS: each page as SQLite writes it, no generation marked.
    Direct,
}

/// Connection of the writer. Syncs every commit and writes nothing to the WAL before a commit.
///
/// Pragmas that would change this (`synchronous`, `cache_spill`, `journal_mode`) fail with
/// `SQLITE_AUTH`, in any SQL that is run on it. It is borrowed immutably only, so the check cannot be removed.
#[derive(Debug)]
pub struct WalConnection(Connection);

impl Deref for WalConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

/// Pragmas on which the VFS relies, with the values that may be set.
const GUARDED_PRAGMAS: [(&str, &[&str]); 3] = [
    ("synchronous", &["full", "2"]),
    ("cache_spill", &["0", "off", "false"]),
    ("journal_mode", &["wal"]),
];

/// Opens a database for writing. The caller switches it to WAL mode.
///
/// # Errors
/// Returns errors of SQLite.
pub fn open(path: &Path, flags: OpenFlags, writes: WalWrites) -> rusqlite::Result<WalConnection> {
    let mut conn = match writes {
        WalWrites::Buffered => {
            let vfs = vfs::register()
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            Connection::open_with_flags_and_vfs(path, flags, vfs)?
        }
        WalWrites::Direct => Connection::open_with_flags(path, flags)?,
    };
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "cache_spill", false)?;
    conn.authorizer(Some(authorize))?;
    Ok(WalConnection(conn))
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    let AuthAction::Pragma { pragma_name, pragma_value: Some(value) } = context.action else {
        return Authorization::Allow;
    };
    let allowed = GUARDED_PRAGMAS.iter().find(|(name, _)| name.eq_ignore_ascii_case(pragma_name));
    match allowed {
        Some((_, values)) if !values.iter().any(|same| same.eq_ignore_ascii_case(value)) => {
            Authorization::Deny
        }
        _ => Authorization::Allow,
    }
}

impl WalConnection {
    /// Calls `hook` after every commit of this connection, with the number of pages in the WAL.
    ///
    /// # Errors
    /// Returns errors of SQLite.
    pub fn on_commit(
        &mut self,
        mut hook: impl FnMut(i32) + Send + 'static,
    ) -> rusqlite::Result<()> {
        self.0.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            hook(pages);
            Ok(())
        }))
    }

    /// Makes a connection with [`WalWrites::Buffered`] mark each WAL generation durably before a
    /// commit of it. The database must be in WAL mode.
    ///
    /// # Errors
    /// If the connection has no WAL on the VFS.
    pub fn mark_generations(&self, mark: &Arc<Mark>) -> rusqlite::Result<()> {
        // SQLite opens the WAL with the first read.
        self.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        if vfs::attach(self, mark) {
            return Ok(());
        }
        let message = "the WAL of the database is not on the VFS that marks it";
        Err(rusqlite::Error::ToSqlConversionFailure(message.into()))
    }
}
