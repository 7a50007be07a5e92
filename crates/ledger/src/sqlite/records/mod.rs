//! Rows of records in SQLite. The tables of records are in [`crate::tables::record`].

#[cfg(test)]
mod candidates_tests;
mod rows;

use admit_core::entity::Table;
use admit_core::{Millis, Seq};
use rusqlite::Connection;

use crate::common::records::RowWrite;
use crate::db::{Call, Db as _};
use crate::tables::record::RowTables;

impl RowTables for Connection {
    fn write_rows(
        &self,
        _: &mut bool,
        before: &[Call<'_>],
        writes: &[RowWrite<'_>],
    ) -> rusqlite::Result<Vec<Option<String>>> {
        self.execute_all(before)?;
        let mut reasons = Vec::new();
        for write in writes {
            match write {
                RowWrite::Clear(table, seqs) => rows::clear(self, table, seqs)?,
                RowWrite::Put(set) => reasons.push(rows::put(self, set)?),
            }
        }
        Ok(reasons)
    }

    fn touch_rows(&self, table: &Table, seq: Seq, at: Millis) -> rusqlite::Result<()> {
        rows::seen(self, table, seq, at)
    }
}
