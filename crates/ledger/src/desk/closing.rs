//! Closing runs inside a transaction: who began last, and what comes of it.

use admit_core::effect::By;
use admit_core::{Millis, RunState};

use crate::closures::{Begun, Closure, Ending};

/// What a transaction reads and writes of closures.
pub(crate) trait Closing {
    /// What the database says when it fails.
    type Error;

    /// Whether a run takes events; `None` when nobody has named it.
    fn state(&self, run: &str) -> Result<Option<RunState>, Self::Error>;

    /// Turns a run. `false` when it is not in the state `from`.
    fn turn(
        &self,
        run: &str,
        from: RunState,
        to: RunState,
        at: Millis,
    ) -> Result<bool, Self::Error>;

    /// The closure of a run that is closed; that there is none is an error.
    fn closure_of_closed(&self, run: &str) -> Result<Closure, Self::Error>;

    /// One more attempt, with its number.
    fn begin(&self, run: &str, by: &By, at: Millis) -> Result<u64, Self::Error>;

    /// The last attempt at a run that is being closed.
    fn attempt(&self, run: &str) -> Result<Option<u64>, Self::Error>;

    /// Keeps the closure of a run.
    fn put(
        &self,
        run: &str,
        attempt: u64,
        path: &str,
        text: &str,
        at: Millis,
    ) -> Result<(), Self::Error>;
}

/// From here on the run takes nothing new.
pub(crate) fn begin_closing<C: Closing>(
    rows: &C,
    run: &str,
    by: &By,
    at: Millis,
) -> Result<Begun, C::Error> {
    match rows.state(run)? {
        None => return Ok(Begun::Unknown),
        Some(RunState::Closed) => return rows.closure_of_closed(run).map(Begun::Closed),
        Some(RunState::Open) => {
            rows.turn(run, RunState::Open, RunState::Closing, at)?;
        }
        Some(RunState::Closing) => {}
    }
    Ok(Begun::Closing { attempt: rows.begin(run, by, at)? })
}

/// Ends an attempt. `false` when it was overtaken.
pub(crate) fn end_closing<C: Closing>(
    rows: &C,
    run: &str,
    attempt: u64,
    ending: &Ending,
    at: Millis,
) -> Result<bool, C::Error> {
    if rows.attempt(run)? != Some(attempt) {
        return Ok(false);
    }
    let to = match ending {
        Ending::Reopened => RunState::Open,
        Ending::Closed { path, text } => {
            rows.put(run, attempt, path, text, at)?;
            RunState::Closed
        }
    };
    rows.turn(run, RunState::Closing, to, at)
}

/// Runs that nobody is closing any more take events again.
pub(crate) fn reopen<C: Closing>(rows: &C, lost: &[String], at: Millis) -> Result<(), C::Error> {
    for run in lost {
        rows.turn(run, RunState::Closing, RunState::Open, at)?;
    }
    Ok(())
}
