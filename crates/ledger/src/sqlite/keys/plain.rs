//! The plain index: every key is inserted into the unique index with its batch.

use admit_core::{Key, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::{ClaimError, ClaimedTwice, key_log, pages};
use crate::sqlite::queries;

/// Without state in memory: the unique index is the only truth.
#[derive(Debug)]
pub(in crate::sqlite) struct PlainIndex;

impl PlainIndex {
    /// Migrates a ledger that was opened with the merged index.
    pub(super) fn load(conn: &Connection) -> Result<Self, ClaimError> {
        let mut claims = Vec::new();
        pages::read_all(conn, |key, seq| claims.push((key, seq)))?;
        let mut waiting = conn.prepare(queries::KEY_LOG_READ)?;
        let mut rows = waiting.query([0, i64::MAX])?;
        while let Some(row) = rows.next()? {
            claims.extend(key_log::claims(row)?);
        }
        let tx = conn.unchecked_transaction()?;
        Self.claim(conn, &claims)?;
        conn.execute(queries::KEY_LOG_TRIM, [i64::MAX])?;
        conn.execute(queries::KEY_PAGE_CLEAR, [])?;
        tx.commit()?;
        Ok(Self)
    }

    pub(super) fn claim(&self, conn: &Connection, claims: &[(Key, Seq)]) -> Result<(), ClaimError> {
        let mut claim = conn.prepare_cached(queries::KEY_CLAIM)?;
        for (key, seq) in claims {
            if claim.execute((key.as_bytes(), seq.0))? == 1 {
                continue;
            }
            // The same claim again is accepted, another one is not.
            if let Some(first) = find(conn, key)?.filter(|first| first != seq) {
                return Err(ClaimedTwice { key: *key, first, second: *seq }.into());
            }
        }
        Ok(())
    }

    pub(super) fn forget(&self, conn: &Connection, key: &Key, seq: Seq) -> rusqlite::Result<bool> {
        Ok(conn.prepare_cached(queries::KEY_FORGET)?.execute((key.as_bytes(), seq.0))? == 1)
    }
}

/// Returns the seq that claimed `key`, in the plain index.
pub(super) fn find(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    let mut find = conn.prepare_cached(queries::KEY_FIND)?;
    find.query_row([key.as_bytes()], |row| row.get(0).map(Seq)).optional()
}
