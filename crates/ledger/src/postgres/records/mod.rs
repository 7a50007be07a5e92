//! Rows of records in PostgreSQL. The tables of records are in [`crate::tables::record`].
//!
//! Rows may be rejected. They are sent behind a savepoint optimistically, in one round trip with what comes
//! before; only if one is rejected, they are rolled back and written set by set, to find out which.

mod rows;

use admit_core::entity::Table;
use admit_core::{Millis, Seq};

use super::conn::{Conn, Query, Result, big};
use super::driver::BoundCall;
use crate::common::records::RowWrite;
use crate::db::{Call, ints};
use crate::tables::record::RowTables;
use rows::RowsCall;

pub(super) use crate::tables::record::RecordTables;

/// The savepoint before rows.
const GUARD: &str = "SAVEPOINT record_rows";
const TAKE_BACK: &str = "ROLLBACK TO SAVEPOINT record_rows; RELEASE SAVEPOINT record_rows";

impl RowTables for Conn {
    fn write_rows(
        &self,
        has_savepoint: &mut bool,
        before: &[Call<'_>],
        writes: &[RowWrite<'_>],
    ) -> Result<Vec<Option<String>>> {
        let before: Vec<BoundCall<'_>> =
            before.iter().filter_map(BoundCall::of).collect::<Result<_>>()?;
        let made: Vec<RowCall> = writes.iter().map(RowCall::of).collect();
        let mut queries: Vec<Query<'_>> = before.iter().map(BoundCall::query).collect();
        queries.push(Query::new(GUARD, Vec::new()));
        let certain = queries.len();
        queries.extend(made.iter().filter_map(RowCall::query));
        let mut done = self.try_all(&queries)?;
        let in_savepoint = done.split_off(certain);
        // Errors that do not concern rows fail the transaction.
        done.into_iter().collect::<std::result::Result<Vec<u64>, _>>()?;
        let sent = made.iter().filter(|made| made.query().is_some());
        let is_whole = sent.zip(&in_savepoint).all(|(made, done)| match (made, done) {
            (RowCall::Put(Ok(put)), Ok(written)) => put.count() == *written,
            (_, done) => done.is_ok(),
        });
        if is_whole {
            *has_savepoint = true;
            return Ok(made.into_iter().filter_map(RowCall::reason).collect());
        }
        self.batch(TAKE_BACK)?;
        one_by_one(self, writes)
    }

    fn touch_rows(&self, table: &Table, seq: Seq, at: Millis) -> Result<()> {
        let query = format!(
            "UPDATE {} SET captured_at = greatest(captured_at, $2) WHERE event = $1",
            table.name
        );
        self.execute(&query, &[&big(seq.0), &at.0])?;
        Ok(())
    }
}

/// A write of rows, to be sent.
enum RowCall {
    Clear {
        sql: String,
        seqs: Vec<i64>,
    },
    /// Or why the rows cannot be written.
    Put(std::result::Result<RowsCall, String>),
}

impl RowCall {
    fn of(write: &RowWrite<'_>) -> Self {
        match write {
            RowWrite::Clear(table, seqs) => Self::Clear {
                sql: format!("DELETE FROM {} WHERE event = ANY($1)", table.name),
                seqs: ints(seqs.iter().map(|seq| seq.0)),
            },
            RowWrite::Put(set) => Self::Put(RowsCall::of(set)),
        }
    }

    fn query(&self) -> Option<Query<'_>> {
        match self {
            Self::Clear { sql, seqs } => Some(Query::new(sql, vec![seqs])),
            Self::Put(Ok(put)) => Some(put.query()),
            Self::Put(Err(_)) => None,
        }
    }

    /// Why a row set was rejected, if it was; nothing for other writes.
    fn reason(self) -> Option<Option<String>> {
        match self {
            Self::Clear { .. } => None,
            Self::Put(put) => Some(put.err()),
        }
    }
}

/// Writes row sets one by one; rejected ones are left out.
fn one_by_one(conn: &Conn, writes: &[RowWrite<'_>]) -> Result<Vec<Option<String>>> {
    let mut reasons = Vec::new();
    for write in writes {
        if let RowWrite::Put(set) = write {
            reasons.push(rows::put(conn, set)?);
        } else if let Some(query) = RowCall::of(write).query() {
            conn.execute_all(&[query])?;
        }
    }
    Ok(reasons)
}
