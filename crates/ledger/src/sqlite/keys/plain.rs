//! The plain index: every claim goes into the unique index in its own commit.

use admit_core::{Key, Seq};
use rusqlite::Connection;

use super::{ClaimError, Finder, insert_unique};
use crate::sqlite::queries;

/// Keeps nothing in memory: the unique index is the whole truth.
#[derive(Debug)]
pub(in crate::sqlite) struct Plain;

impl Plain {
    /// Takes over a ledger that was kept with the merged index: what waits there is claimed now.
    pub(super) fn load(conn: &Connection) -> Result<Self, ClaimError> {
        let mut waiting = conn.prepare(queries::KEY_LOG_READ)?;
        let claims = waiting
            .query_map([0, i64::MAX], |row| Ok((Key::from_bytes(row.get(1)?), Seq(row.get(0)?))))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let tx = conn.unchecked_transaction()?;
        Self.claim(conn, &claims)?;
        conn.execute(queries::KEY_LOG_TRIM, [i64::MAX])?;
        tx.commit()?;
        Ok(Self)
    }

    pub(super) fn claim(&self, conn: &Connection, claims: &[(Key, Seq)]) -> Result<(), ClaimError> {
        let mut claim = conn.prepare_cached(queries::KEY_CLAIM)?;
        let mut find = Finder::new(conn)?;
        for (key, seq) in claims {
            insert_unique(&mut claim, &mut find, key, *seq)?;
        }
        Ok(())
    }

    pub(super) fn forget(&self, conn: &Connection, key: &Key, seq: Seq) -> rusqlite::Result<bool> {
        let row = (key.as_bytes(), seq.0);
        Ok(conn.prepare_cached(queries::KEY_FORGET)?.execute(row)? == 1)
    }
}
