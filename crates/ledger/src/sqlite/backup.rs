//! A copy of the ledger as it stands at one moment, made beside a running gate.
//!
//! One read transaction is held from the beginning to the end, so the copy ends whatever the gate
//! commits meanwhile. The log cannot be emptied for as long, and grows by what is committed.

use std::fs::File;
use std::path::{Path, PathBuf};

use admit_core::Seq;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OptionalExtension};

use super::{OpenError, create_private, identity, open, queries};

/// Pages that are copied between two reports of progress.
const STEP_PAGES: i32 = 1024;

/// The ledger of a folder as it stood when this was made.
pub struct Snapshot {
    conn: Connection,
    path: PathBuf,
    tag: u32,
    last_seq: Seq,
}

impl Snapshot {
    /// Takes it. Whatever was acknowledged before is in it.
    pub fn take(dir: &Path) -> Result<Self, OpenError> {
        let (path, conn) = open::beside(dir)?;
        let fail = |source| OpenError::from_sqlite(&path, source);
        let value = |name: &str| {
            conn.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0)).optional()
        };
        conn.execute_batch("BEGIN").map_err(fail)?;
        let tag = value("tag").map_err(fail)?.and_then(|tag| u32::try_from(tag).ok());
        let tag = tag.ok_or_else(|| OpenError::NotALedger { path: path.clone() })?;
        let last_seq = Seq(value("last_seq").map_err(fail)?.unwrap_or(0));
        Ok(Self { conn, path, tag, last_seq })
    }

    /// The number that names the ledger.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The last place in it.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Writes it into an empty folder, synced, with the file that says which ledger it is. Reports
    /// pages copied, and pages in all. Returns its size in bytes.
    pub fn copy_into(
        self,
        dir: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, OpenError> {
        let path = dir.join(open::FILE);
        let folder = |source| OpenError::Folder { path: path.clone(), source };
        create_private(dir).map_err(folder)?;
        let from = |source| OpenError::from_sqlite(&self.path, source);
        {
            let fail = |source| OpenError::from_sqlite(&path, source);
            let mut to = Connection::open(&path).map_err(fail)?;
            let backup = Backup::new(&self.conn, &mut to).map_err(fail)?;
            loop {
                let step = backup.step(STEP_PAGES).map_err(from)?;
                let done = backup.progress();
                let count = |pages| u64::try_from(pages).unwrap_or(0);
                progress(count(done.pagecount - done.remaining), count(done.pagecount));
                if step == StepResult::Done {
                    break;
                }
                // No other program knows of the copy, and the original is held by the transaction.
                if step != StepResult::More {
                    return Err(OpenError::HeldByOthers { path: self.path.clone() });
                }
            }
        }
        let file = File::open(&path).map_err(folder)?;
        file.sync_all().map_err(folder)?;
        identity::note(dir, self.tag).map_err(folder)?;
        file.metadata().map(|facts| facts.len()).map_err(folder)
    }
}
