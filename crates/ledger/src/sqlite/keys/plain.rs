//! The plain index: every key goes into the unique index with its batch.

use admit_core::{Key, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::{ClaimError, ClaimedTwice, noted, pages};
use crate::sqlite::queries;

/// Keeps nothing in memory: the unique index is the whole truth.
#[derive(Debug)]
pub(in crate::sqlite) struct Plain;

impl Plain {
    /// Takes over a ledger that was kept with the merged index: what is there is claimed now.
    pub(super) fn load(conn: &Connection) -> Result<Self, ClaimError> {
        let mut claims = Vec::new();
        pages::read_all(conn, |key, seq| claims.push((key, seq)))?;
        let mut waiting = conn.prepare(queries::KEY_LOG_READ)?;
        let mut rows = waiting.query([0, i64::MAX])?;
        while let Some(row) = rows.next()? {
            claims.extend(noted::claims(row)?);
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
            // The same claim again is fine, another one is not.
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

/// Who claimed `key`, in the plain index.
pub(super) fn find(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    let mut find = conn.prepare_cached(queries::KEY_FIND)?;
    find.query_row([key.as_bytes()], |row| row.get(0).map(Seq)).optional()
}
