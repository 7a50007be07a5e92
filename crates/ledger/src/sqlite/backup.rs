//! Online backup: a copy of the ledger at one moment, made beside a running gate.
//!
//! One read transaction spans the whole copy, so commits of the gate do not restart it. The WAL cannot be
//! reset meanwhile, and grows by what is committed.

use std::fs::File;
use std::path::{Path, PathBuf};

use admit_core::Seq;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OptionalExtension};

use super::{OpenError, create_private, identity, open, queries};

/// Pages copied between two progress reports.
const STEP_PAGES: i32 = 1024;

/// Snapshot of the ledger of a folder.
pub struct Snapshot {
    conn: Connection,
    path: PathBuf,
    tag: u32,
    last_seq: Seq,
}

impl Snapshot {
    /// Takes a snapshot, which holds everything acknowledged before.
    pub fn take(dir: &Path) -> Result<Self, OpenError> {
        let (path, conn) = open::open_folder_read_only(dir)?;
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

    /// Random tag of the ledger.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Last seq of the ledger.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Writes the ledger into an empty folder, synced, with the file that identifies the ledger. Reports pages copied,
    /// and total pages. Returns its size in bytes.
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
                // The copy has no other users, and the original is held by the transaction.
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
