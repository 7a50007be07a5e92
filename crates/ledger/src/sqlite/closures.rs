//! Run reports and closures: written inside the writer's transaction, read outside of it.

use admit_core::effect::Attribution;
use admit_core::{DocumentKind, Fault, Millis, RunState};
use rusqlite::{Connection, OptionalExtension, Row};

use super::write_op::{Tx, WriteOp};
use super::{SqliteLedger, queries};
use crate::closures::{
    AmbiguityCounts, ClosingEnd, ClosingStart, Closure, Closures, DecidingPolicy, QuarantineState,
    RunDocument, RunLine, RunReportReader, RunScope, UnsettledCounts,
};
use crate::issuance::{FileNote, Issuance as _};
use crate::port::BoxFuture;
use crate::rules::{self, ClosureStore};

impl RunReportReader for SqliteLedger {
    fn run_lines(
        &self,
        run: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunLine>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let mut lines = conn.prepare_cached(queries::RUN_LINES)?;
            lines.query_map((run, after, limit(rows_max)), line_row)?.collect()
        }))
    }

    fn run_ids(
        &self,
        run: String,
        kind: DocumentKind,
        after: String,
        below: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let params = (run, kind.as_str(), after, below, limit(rows_max));
            conn.prepare_cached(queries::RUN_IDS)?.query_map(params, |row| row.get(0))?.collect()
        }))
    }

    fn run_documents(
        &self,
        run: String,
        kind: DocumentKind,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunDocument>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let query = match kind {
                DocumentKind::Receipt => queries::RUN_RECEIPTS,
                DocumentKind::Quarantine => queries::RUN_QUARANTINES,
                DocumentKind::Governance => return Ok(Vec::new()),
            };
            let mut documents = conn.prepare_cached(query)?;
            let documents = documents.query_map((run, after, limit(rows_max)), |row| {
                Ok(RunDocument {
                    n: row.get("n")?,
                    decision: row.get("decision")?,
                    path: row.get("path")?,
                    text: row.get("text")?,
                })
            })?;
            documents.collect()
        }))
    }

    fn ambiguities(&self, run: String) -> BoxFuture<'_, Result<AmbiguityCounts, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            conn.prepare_cached(queries::RUN_AMBIGUITIES)?.query_row([run], |row| {
                Ok(AmbiguityCounts {
                    found: row.get("found")?,
                    absent: row.get("absent")?,
                    never_arrived: row.get("never_arrived")?,
                })
            })
        }))
    }

    fn refused_while_closing(&self, run: String) -> BoxFuture<'_, Result<u64, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let name = rules::refused_while_closing(&run);
            let counted = conn
                .prepare_cached(queries::META_GET)?
                .query_row([name], |row| row.get(0))
                .optional()?;
            Ok(counted.unwrap_or(0))
        }))
    }

    fn unsettled(&self, of: RunScope<'_>) -> BoxFuture<'_, Result<UnsettledCounts, Fault>> {
        let (door, path, run) = (of.door.to_owned(), of.path, of.run.to_owned());
        Box::pin(self.readers.read(move |conn, _| {
            let mut unsettled = UnsettledCounts::default();
            let mut counted = conn.prepare_cached(queries::RUN_UNSETTLED)?;
            let mut rows = counted.query((door, path, run))?;
            while let Some(row) = rows.next()? {
                let count: u64 = row.get(1)?;
                match row.get_ref(0)?.as_str()? {
                    "ambiguous" => unsettled.ambiguous += count,
                    _ => unsettled.in_work += count,
                }
            }
            Ok(unsettled)
        }))
    }

    fn closure(&self, run: String) -> BoxFuture<'_, Result<Option<Closure>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| closure(conn, &run)))
    }

    fn unfiled_closures(&self, rows_max: usize) -> BoxFuture<'_, Result<Vec<Closure>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            let mut unfiled = conn.prepare_cached(queries::CLOSURE_UNFILED)?;
            unfiled.query_map([limit(rows_max)], closure_row)?.collect()
        }))
    }
}

impl Closures for SqliteLedger {
    fn begin_closing(
        &self,
        run: String,
        by: Attribution,
        at: Millis,
    ) -> BoxFuture<'_, Result<ClosingStart, Fault>> {
        Box::pin(self.write(Begin { epoch: self.epoch, run, by, at }))
    }

    fn end_closing(
        &self,
        run: String,
        attempt: u64,
        ending: ClosingEnd,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        Box::pin(self.write(End { epoch: self.epoch, run, attempt, ending, at }))
    }

    fn reopen_lost(&self, at: Millis) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        Box::pin(self.write(ReopenLost { epoch: self.epoch, at }))
    }

    fn note_missing(&self, numbers: Vec<u64>) -> BoxFuture<'_, Result<(), Fault>> {
        self.note_files(FileNote::Unwritten(numbers))
    }

    fn note_closure_filed(&self, run: String) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.write(NoteFiled(run)))
    }
}

struct Begin {
    epoch: u64,
    run: String,
    by: Attribution,
    at: Millis,
}

impl WriteOp for Begin {
    type Output = ClosingStart;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<ClosingStart> {
        let rows = Rows { conn: tx.conn, epoch: self.epoch };
        rules::begin_closing(&rows, &self.run, &self.by, self.at)
    }
}

struct End {
    epoch: u64,
    run: String,
    attempt: u64,
    ending: ClosingEnd,
    at: Millis,
}

impl WriteOp for End {
    type Output = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let rows = Rows { conn: tx.conn, epoch: self.epoch };
        rules::end_closing(&rows, &self.run, self.attempt, &self.ending, self.at)
    }
}

struct ReopenLost {
    epoch: u64,
    at: Millis,
}

impl WriteOp for ReopenLost {
    type Output = Vec<String>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<String>> {
        let lost: Vec<String> = tx
            .conn
            .prepare_cached(queries::CLOSURE_LOST)?
            .query_map([self.epoch], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        rules::reopen(&Rows { conn: tx.conn, epoch: self.epoch }, &lost, self.at)?;
        Ok(lost)
    }
}

struct NoteFiled(String);

impl WriteOp for NoteFiled {
    type Output = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.conn.prepare_cached(queries::CLOSURE_FILED)?.execute([&self.0])?;
        Ok(())
    }
}

/// Storage of closures inside a transaction.
struct Rows<'t> {
    conn: &'t Connection,
    epoch: u64,
}

impl ClosureStore for Rows<'_> {
    type Error = rusqlite::Error;

    fn state(&self, run: &str) -> rusqlite::Result<Option<RunState>> {
        Ok(crate::tables::issued::run(self.conn, run)?.map(|run| run.state))
    }

    fn turn(&self, run: &str, from: RunState, to: RunState, at: Millis) -> rusqlite::Result<bool> {
        crate::tables::issued::turn_run(self.conn, run, from, to, at)
    }

    fn closure_of_closed(&self, run: &str) -> rusqlite::Result<Closure> {
        closure(self.conn, run)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    fn begin(&self, run: &str, by: &Attribution, at: Millis) -> rusqlite::Result<u64> {
        let begun = (run, self.epoch, at.0, &by.who, &by.why);
        self.conn.prepare_cached(queries::CLOSURE_BEGIN)?.query_row(begun, |row| row.get(0))
    }

    fn attempt(&self, run: &str) -> rusqlite::Result<Option<u64>> {
        self.conn
            .prepare_cached(queries::CLOSURE_ATTEMPT)?
            .query_row([run], |row| row.get(0))
            .optional()
    }

    fn put(
        &self,
        run: &str,
        attempt: u64,
        path: &str,
        text: &str,
        at: Millis,
    ) -> rusqlite::Result<()> {
        let row = (run, attempt, at.0, path, text);
        self.conn.prepare_cached(queries::CLOSURE_PUT)?.execute(row)?;
        Ok(())
    }
}

fn limit(rows_max: usize) -> i64 {
    i64::try_from(rows_max).unwrap_or(i64::MAX)
}

fn closure(conn: &Connection, run: &str) -> rusqlite::Result<Option<Closure>> {
    conn.prepare_cached(queries::CLOSURE_GET)?.query_row([run], closure_row).optional()
}

fn closure_row(row: &Row<'_>) -> rusqlite::Result<Closure> {
    Ok(Closure {
        run: row.get("platform_run_id")?,
        at: Millis(row.get("closed_at")?),
        path: row.get("path")?,
        text: row.get("text")?,
        is_filed: row.get("is_filed")?,
    })
}

fn line_row(row: &Row<'_>) -> rusqlite::Result<RunLine> {
    let is_superseded = row.get::<_, Option<u64>>("superseded_by")?.is_some();
    let state = match row.get::<_, Option<String>>("released_how")? {
        Some(how) => QuarantineState::Released(how),
        None if is_superseded => QuarantineState::Superseded,
        None => QuarantineState::Open,
    };
    Ok(RunLine {
        n: row.get("n")?,
        id: row.get("id")?,
        decision: row.get("decision")?,
        reason: row.get("reason")?,
        event_type: row.get("event_type")?,
        producer: row.get("producer")?,
        scenario_run: row.get("scenario_run")?,
        path: row.get("path")?,
        has_reference: row.get("has_reference")?,
        is_unwritten: row.get("is_unwritten")?,
        state,
        policy: match (row.get("policy_revision")?, row.get("policy_digest")?) {
            (Some(revision), Some(digest)) => Some(DecidingPolicy { revision, digest }),
            _ => None,
        },
    })
}
