//! Trusted time, shared by all gates of the ledger.

use admit_core::{Age, CLOCK_STEP_MAX, Millis};

use super::meta;
use crate::db::{Columns, Db, Operation, Transaction, params, statements};
use crate::port::{ClockConfirmation, KnownTime};

statements! {
    shared CONFIRM "clock_confirm";
    shared FOLLOW "meta_follow";
    shared KNOWN "clock_known";
    shared NEWEST "clock_newest";
}

/// Name of the stored trusted time.
const TRUSTED_AT: &str = "trusted_at";

/// Stores a trusted time.
pub(crate) struct NoteTime(pub(crate) Millis);

/// Records a confirmation and the trusted time it sets.
pub(crate) struct ConfirmTime(pub(crate) ClockConfirmation);

/// Initialises trusted time in a ledger with retention: the stored time, or else when the newest event was
/// received. Without retention the stored time is removed, so that no outdated one is left.
pub(crate) fn settle_known<D: Db>(db: &D, retain: Option<Age>) -> Result<(), D::Error> {
    if retain.is_none() {
        return meta::remove(db, TRUSTED_AT);
    }
    if known(db)?.at.is_some() {
        return Ok(());
    }
    match db.query_one(&NEWEST, &[])?.millis_opt("newest_at")? {
        Some(newest) => meta::raise(db, TRUSTED_AT, newest),
        None => Ok(()),
    }
}

pub(crate) fn known<D: Db>(db: &D) -> Result<KnownTime, D::Error> {
    let row = db.query_one(&KNOWN, &[])?;
    Ok(KnownTime { at: row.millis_opt("trusted_at")?, confirmations: row.num("confirmations")? })
}

impl<D: Db> Operation<D> for NoteTime {
    type Output = ();

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<(), D::Error> {
        // A corrected clock replaces what it stored before. A difference between the clocks of two gates is
        // smaller than that.
        let step_max = if tx.is_shared { CLOCK_STEP_MAX } else { Age::from_millis(0) };
        tx.db.execute(&FOLLOW, params![TRUSTED_AT, self.0, step_max.as_millis()]).map(drop)
    }
}

impl<D: Db> Operation<D> for ConfirmTime {
    type Output = ();

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<(), D::Error> {
        let ClockConfirmation { confirmed_at, trusted_at, principal, reason } = &self.0;
        tx.db.execute(&CONFIRM, params![*confirmed_at, *trusted_at, principal, reason])?;
        meta::put(tx.db, TRUSTED_AT, *confirmed_at)
    }
}
