//! Trusted time in the embedded ledger.

use admit_core::{Age, Millis};
use rusqlite::Connection;

use super::queries;
use super::task::{Tx, Work};
use crate::common::clock::{ConfirmTime, NoteTime, TRUSTED_AT};
use crate::port::KnownTime;

/// Sees to it that a ledger with retention knows a time it trusts: what was noted before, or else when
/// the newest event was received. Without retention nothing is noted, so nothing old may be left.
pub(super) fn settle_known(conn: &Connection, retain: Option<Age>) -> rusqlite::Result<()> {
    if retain.is_none() {
        conn.execute(queries::META_REMOVE, [TRUSTED_AT])?;
        return Ok(());
    }
    if known(conn)?.at.is_some() {
        return Ok(());
    }
    let newest: Option<i64> = conn.query_row(queries::CLOCK_NEWEST, [], |row| row.get(0))?;
    if let Some(newest) = newest {
        conn.execute(queries::META_PUT, (TRUSTED_AT, newest))?;
    }
    Ok(())
}

pub(super) fn known(conn: &Connection) -> rusqlite::Result<KnownTime> {
    conn.query_row(queries::CLOCK_KNOWN, [], |row| {
        let at: Option<i64> = row.get(0)?;
        Ok(KnownTime { at: at.map(Millis), confirmations: row.get(1)? })
    })
}

impl Work for NoteTime {
    type Answer = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        // One gate writes, so also backwards: a clock that is put right takes what it said before with it.
        tx.conn.prepare_cached(queries::META_PUT)?.execute((TRUSTED_AT, self.0.0)).map(drop)
    }
}

impl Work for ConfirmTime {
    type Answer = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        let confirmation = &self.0;
        let row = (
            confirmation.confirmed_at.0,
            confirmation.trusted_at.0,
            &confirmation.principal,
            &confirmation.reason,
        );
        tx.conn.execute(queries::CLOCK_CONFIRM, row)?;
        tx.conn.execute(queries::META_PUT, (TRUSTED_AT, confirmation.confirmed_at.0)).map(drop)
    }
}
