//! Rules of closing runs, inside a transaction.

use admit_core::effect::Attribution;
use admit_core::{Millis, RunState};

use crate::closures::{ClosingEnd, ClosingStart, Closure};

/// Storage of closures inside a transaction.
pub(crate) trait ClosureStore {
    /// Database error.
    type Error;

    /// Returns the state of a run; `None` if it is unknown.
    fn state(&self, run: &str) -> Result<Option<RunState>, Self::Error>;

    /// Changes the state of a run. Returns `false` if it is not in the state `from`.
    fn turn(
        &self,
        run: &str,
        from: RunState,
        to: RunState,
        at: Millis,
    ) -> Result<bool, Self::Error>;

    /// Returns the closure of a closed run; fails if there is none.
    fn closure_of_closed(&self, run: &str) -> Result<Closure, Self::Error>;

    /// Starts an attempt and returns its number.
    fn begin(&self, run: &str, by: &Attribution, at: Millis) -> Result<u64, Self::Error>;

    /// Returns the latest attempt at a run that is closing.
    fn attempt(&self, run: &str) -> Result<Option<u64>, Self::Error>;

    /// Stores the closure of a run.
    fn put(
        &self,
        run: &str,
        attempt: u64,
        path: &str,
        text: &str,
        at: Millis,
    ) -> Result<(), Self::Error>;
}

/// Stops a run from accepting new events.
pub(crate) fn begin_closing<C: ClosureStore>(
    rows: &C,
    run: &str,
    by: &Attribution,
    at: Millis,
) -> Result<ClosingStart, C::Error> {
    match rows.state(run)? {
        None => return Ok(ClosingStart::Unknown),
        Some(RunState::Closed) => return rows.closure_of_closed(run).map(ClosingStart::Closed),
        Some(RunState::Open) => {
            rows.turn(run, RunState::Open, RunState::Closing, at)?;
        }
        Some(RunState::Closing) => {}
    }
    Ok(ClosingStart::Closing { attempt: rows.begin(run, by, at)? })
}

/// Ends an attempt. Returns `false` if a later one superseded it.
pub(crate) fn end_closing<C: ClosureStore>(
    rows: &C,
    run: &str,
    attempt: u64,
    ending: &ClosingEnd,
    at: Millis,
) -> Result<bool, C::Error> {
    if rows.attempt(run)? != Some(attempt) {
        return Ok(false);
    }
    let to = match ending {
        ClosingEnd::Reopened => RunState::Open,
        ClosingEnd::Closed { path, text } => {
            rows.put(run, attempt, path, text, at)?;
            RunState::Closed
        }
    };
    rows.turn(run, RunState::Closing, to, at)
}

/// Reopens runs whose closing was lost with its process.
pub(crate) fn reopen<C: ClosureStore>(
    rows: &C,
    lost: &[String],
    at: Millis,
) -> Result<(), C::Error> {
    for run in lost {
        rows.turn(run, RunState::Closing, RunState::Open, at)?;
    }
    Ok(())
}
