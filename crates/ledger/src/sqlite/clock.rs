//! Trusted time in the embedded ledger.

use admit_core::{Age, Millis};
use rusqlite::Connection;

use super::queries;
use super::write_op::{Tx, WriteOp};
use crate::common::clock::{ConfirmTime, NoteTime, TRUSTED_AT};
use crate::port::KnownTime;

/// Initialises trusted time in a ledger with retention: the stored time, or else when the newest event was
/// received. Without retention the stored time is removed, so that no outdated one is left.
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

impl WriteOp for NoteTime {
    type Output = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        // A single gate writes, so the time may move backwards: a corrected clock replaces what it stored before.
        tx.conn.prepare_cached(queries::META_PUT)?.execute((TRUSTED_AT, self.0.0)).map(drop)
    }
}

impl WriteOp for ConfirmTime {
    type Output = ();

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
