//! Rules of closing runs, inside a transaction.

use admit_core::effect::Attribution;
use admit_core::{Millis, RunState};

use crate::closures::{ClosingEnd, ClosingStart};
use crate::db::{Db, InvalidValue, Transaction};
use crate::tables::{closure as rows, run};

/// Stops a run from accepting new events.
pub(crate) fn begin_closing<D: Db>(
    tx: &Transaction<'_, D>,
    id: &str,
    by: &Attribution,
    at: Millis,
) -> Result<ClosingStart, D::Error> {
    match run::get(tx.db, id)?.map(|run| run.state) {
        None => return Ok(ClosingStart::Unknown),
        Some(RunState::Closed) => {
            let missing = || InvalidValue::new("a closed run without a closure");
            let closure = rows::get(tx.db, id)?.ok_or_else(missing)?;
            return Ok(ClosingStart::Closed(closure));
        }
        Some(RunState::Open) => {
            run::set_state(tx.db, id, RunState::Open, RunState::Closing, at)?;
        }
        Some(RunState::Closing) => {}
    }
    Ok(ClosingStart::Closing { attempt: rows::begin(tx, id, by, at)? })
}

/// Ends an attempt. Returns `false` if a later one superseded it.
pub(crate) fn end_closing<D: Db>(
    db: &D,
    id: &str,
    attempt: u64,
    ending: &ClosingEnd,
    at: Millis,
) -> Result<bool, D::Error> {
    if rows::attempt(db, id)? != Some(attempt) {
        return Ok(false);
    }
    let to = match ending {
        ClosingEnd::Reopened => RunState::Open,
        ClosingEnd::Closed { path, text } => {
            rows::put(db, id, attempt, path, text, at)?;
            RunState::Closed
        }
    };
    run::set_state(db, id, RunState::Closing, to, at)
}

/// Reopens runs whose closing was lost with its process, and returns them.
pub(crate) fn reopen_lost<D: Db>(db: &D, at: Millis) -> Result<Vec<String>, D::Error> {
    let lost = rows::lost(db)?;
    for id in &lost {
        run::set_state(db, id, RunState::Closing, RunState::Open, at)?;
    }
    Ok(lost)
}
