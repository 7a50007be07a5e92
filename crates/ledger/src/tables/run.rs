//! Platform runs: their states and counters.

use admit_core::{Millis, RunState};

use crate::db::{Columns, Db, InvalidValue, Operation, Transaction, params, statements};
use crate::issuance::{Run, RunCounts};

statements! {
    shared GET "run_get";
    shared LIST "run_list";
    shared STATE "run_state";
}

/// Changes the state of a run; see [`set_state`].
pub(crate) struct SetState {
    pub(crate) id: String,
    pub(crate) from: RunState,
    pub(crate) to: RunState,
    pub(crate) at: Millis,
}

impl<D: Db> Operation<D> for SetState {
    type Output = bool;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<bool, D::Error> {
        set_state(tx.db, &self.id, self.from, self.to, self.at)
    }
}

/// Changes the state of a run. Returns `false` if it is not in the state `from`.
pub(crate) fn set_state<D: Db>(
    db: &D,
    id: &str,
    from: RunState,
    to: RunState,
    at: Millis,
) -> Result<bool, D::Error> {
    Ok(db.execute(&STATE, params![id, from.as_str(), to.as_str(), at])? > 0)
}

pub(crate) fn get<D: Db>(db: &D, id: &str) -> Result<Option<Run>, D::Error> {
    db.query_opt(&GET, params![id])?.as_ref().map(run_of).transpose()
}

/// Lists runs by id, after `after`.
pub(crate) fn list<D: Db>(db: &D, after: &str, rows_max: usize) -> Result<Vec<Run>, D::Error> {
    db.query(&LIST, params![after, rows_max])?.iter().map(run_of).collect()
}

/// Parses a stored state.
pub(crate) fn parse_state(word: &str) -> Result<RunState, InvalidValue> {
    RunState::parse(word).ok_or_else(|| InvalidValue::unknown("run state", word))
}

fn run_of<R: Columns>(row: &R) -> Result<Run, R::Error> {
    Ok(Run {
        id: row.text("platform_run_id")?,
        state: parse_state(&row.text("state")?)?,
        opened_at: row.millis("opened_at")?,
        changed_at: row.millis("changed_at")?,
        counts: RunCounts {
            deliveries: row.int("deliveries")?,
            in_flight: row.int("in_flight")?,
            ambiguous: row.int("ambiguous")?,
            admit: row.int("admit")?,
            duplicate: row.int("duplicate")?,
            quarantine: row.int("quarantine")?,
            superseded: row.int("superseded")?,
            released: row.int("released")?,
        },
    })
}
