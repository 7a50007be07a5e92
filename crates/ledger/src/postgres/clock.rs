//! Trusted time on PostgreSQL, shared by all gates of the ledger.

use admit_core::{Age, CLOCK_STEP_MAX, Millis};

use super::conn::{Columns, Conn, Result, big};
use super::nul_escape::escape;
use super::sql;
use super::write_op::{Tx, WriteOp};
use crate::common::clock::{ConfirmTime, NoteTime, TRUSTED_AT};
use crate::port::KnownTime;

/// Initialises trusted time in a ledger with retention: the stored time, or else when the newest event was
/// received. Without retention the stored time is removed, so that no outdated one is left.
pub(super) fn settle_known(conn: &Conn, retain: Option<Age>) -> Result<()> {
    if retain.is_none() {
        conn.execute(sql!("meta_remove"), &[&TRUSTED_AT])?;
        return Ok(());
    }
    if known(conn)?.at.is_some() {
        return Ok(());
    }
    let newest: Option<i64> = conn.query_one(sql!("clock_newest"), &[])?.val(0)?;
    if let Some(newest) = newest {
        conn.execute(sql!("meta_max"), &[&TRUSTED_AT, &newest])?;
    }
    Ok(())
}

pub(super) fn known(conn: &Conn) -> Result<KnownTime> {
    let row = conn.query_one(sql!("clock_known"), &[])?;
    let at: Option<i64> = row.val("trusted_at")?;
    Ok(KnownTime { at: at.map(Millis), confirmations: row.num("confirmations")? })
}

impl WriteOp for NoteTime {
    type Output = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let step_max = big(CLOCK_STEP_MAX.as_millis());
        tx.conn.execute(sql!("meta_follow"), &[&TRUSTED_AT, &self.0.0, &step_max]).map(drop)
    }
}

impl WriteOp for ConfirmTime {
    type Output = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let confirmation = &self.0;
        let (at, before) = (confirmation.confirmed_at.0, confirmation.trusted_at.0);
        let principal = escape(&confirmation.principal);
        let reason = confirmation.reason.as_deref().map(escape);
        tx.conn.execute(sql!("clock_confirm"), &[&at, &before, &principal, &reason])?;
        tx.conn.execute(sql!("meta_put"), &[&TRUSTED_AT, &at]).map(drop)
    }
}
