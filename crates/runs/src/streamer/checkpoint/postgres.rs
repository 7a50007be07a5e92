//! Checkpoints in the ledger's database, so that any machine can resume a run.
//!
//! A run is locked by an advisory lock, which the database releases when the session ends. A
//! streamer that lost its session unnoticed and another one may then stream the same run: the gate
//! admits each row once, and checkpoints never go back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use admit_core::Millis;
use admit_ledger::postgres::{Options, Session};

use super::{CheckpointError, CheckpointReason, Checkpoints, Cursor, RunLock};
use crate::streamer::progress::Counts;

const SAVE: &str = include_str!("../sql/postgres/save.sql");
const LOAD: &str = include_str!("../sql/postgres/load.sql");
const MOVE_TO: &str = include_str!("../sql/postgres/move_to.sql");
const LOCK: &str = include_str!("../sql/postgres/lock.sql");
const POSITION: &str =
    "SELECT next_offset FROM wsp_ready_position WHERE topic = $1 AND partition = $2";

const FORGET: &str = "DELETE FROM wsp_checkpoint WHERE pack_key = $1 AND output_id = $2";

/// Checkpoints in a database.
pub struct PostgresCheckpoints {
    session: Mutex<Session>,
}

impl PostgresCheckpoints {
    /// Opens the checkpoints in a ledger's database, creating the tables if necessary.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub fn open(options: &Options) -> Result<Self, CheckpointError> {
        Ok(Self { session: Mutex::new(Session::open(options)?) })
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpoints for PostgresCheckpoints {
    fn lock(&self, pack_key: &str) -> Result<Option<RunLock>, CheckpointError> {
        let mut session = self.session().another();
        let rows = session.query(LOCK, &[&pack_key])?;
        let is_locked = rows.first().is_some_and(|row| row.get(0));
        Ok(is_locked.then(|| RunLock::holding(Mutex::new(session))))
    }

    fn load(&self, pack_key: &str, output_id: &str) -> Result<Option<Cursor>, CheckpointError> {
        let rows = self.session().query(LOAD, &[&pack_key, &output_id])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let count = |column: usize| {
            let found: i64 = row.get(column);
            u64::try_from(found).map_err(|_| invalid_value(found))
        };
        Ok(Some(Cursor {
            last_file: row.get(0),
            last_row_index: count(1)?,
            last_ts_utc: row.get(2),
            counts: Counts { admitted: count(3)?, duplicates: count(4)?, quarantined: count(5)? },
        }))
    }

    fn save(
        &self,
        pack_key: &str,
        output_id: &str,
        cursor: &Cursor,
        reason: CheckpointReason,
        now: Millis,
    ) -> Result<(), CheckpointError> {
        let Cursor { last_file, last_row_index, last_ts_utc, counts } = cursor;
        let number = |number: u64| i64::try_from(number).map_err(|_| invalid_value(number));
        self.session().query(
            SAVE,
            &[
                &pack_key,
                &output_id,
                last_file,
                &number(*last_row_index)?,
                last_ts_utc,
                &number(counts.admitted)?,
                &number(counts.duplicates)?,
                &number(counts.quarantined)?,
                &now.to_rfc3339_millis(),
                &reason.as_str(),
            ],
        )?;
        Ok(())
    }

    fn forget(&self, pack_key: &str, output_id: &str) -> Result<(), CheckpointError> {
        self.session().query(FORGET, &[&pack_key, &output_id])?;
        Ok(())
    }

    fn position(&self, topic: &str, partition: u32) -> Result<String, CheckpointError> {
        let rows = self.session().query(POSITION, &[&topic, &i64::from(partition)])?;
        Ok(rows.first().map_or_else(String::new, |row| row.get(0)))
    }

    fn move_to(&self, topic: &str, partition: u32, offset: &str) -> Result<(), CheckpointError> {
        self.session().query(MOVE_TO, &[&topic, &i64::from(partition), &offset])?;
        Ok(())
    }
}

fn invalid_value(number: impl std::fmt::Display) -> CheckpointError {
    CheckpointError::InvalidValue { detail: format!("{number} is not a valid number of rows") }
}
