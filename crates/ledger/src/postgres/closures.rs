//! Run reports and closures: written inside the writer's transaction, read outside of it.

use admit_core::effect::Attribution;
use admit_core::json::{self, Object, Value};
use admit_core::{DocumentKind, Fault, Millis, RunState};
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Error, Result, big, rows};
use super::write_op::{Tx, WriteOp};
use super::{PostgresLedger, nul_escape, sql};
use crate::closures::{
    AmbiguityCounts, ClosingEnd, ClosingStart, Closure, Closures, DecidingPolicy, QuarantineState,
    RunDocument, RunLine, RunReportReader, RunScope, UnsettledCounts,
};
use crate::issuance::{FileNote, Issuance as _};
use crate::port::BoxFuture;
use crate::rules::{self, ClosureStore};
use crate::tables::issued::turn_run;

type Reply<'a, T> = BoxFuture<'a, std::result::Result<T, Fault>>;

impl RunReportReader for PostgresLedger {
    fn run_lines(&self, run: String, after: u64, rows_max: usize) -> Reply<'_, Vec<RunLine>> {
        Box::pin(self.readers.read(move |conn, _| {
            let params = [&nul_escape::escape(&run) as _, &big(after) as _, &rows(rows_max) as _];
            conn.query(sql!("run_lines"), &params)?.iter().map(line_row).collect()
        }))
    }

    fn run_ids(
        &self,
        run: String,
        kind: DocumentKind,
        after: String,
        below: String,
        rows_max: usize,
    ) -> Reply<'_, Vec<String>> {
        Box::pin(self.readers.read(move |conn, _| {
            let (run, after, below) =
                (nul_escape::escape(&run), nul_escape::escape(&after), nul_escape::escape(&below));
            let params =
                [&run as _, &kind.as_str() as _, &after as _, &below as _, &rows(rows_max) as _];
            conn.query(sql!("run_ids"), &params)?.iter().map(|row| row.text("id")).collect()
        }))
    }

    fn run_documents(
        &self,
        run: String,
        kind: DocumentKind,
        after: u64,
        rows_max: usize,
    ) -> Reply<'_, Vec<RunDocument>> {
        Box::pin(self.readers.read(move |conn, _| {
            let query = match kind {
                DocumentKind::Receipt => sql!("run_receipts"),
                DocumentKind::Quarantine => sql!("run_quarantines"),
                DocumentKind::Governance => return Ok(Vec::new()),
            };
            let params = [&nul_escape::escape(&run) as _, &big(after) as _, &rows(rows_max) as _];
            let documents = conn.query(query, &params)?;
            let document = |row: &Row| {
                Ok(RunDocument {
                    n: row.num("n")?,
                    decision: row.text("decision")?,
                    path: row.text("path")?,
                    text: row.text("text")?,
                })
            };
            documents.iter().map(document).collect()
        }))
    }

    fn ambiguities(&self, run: String) -> Reply<'_, AmbiguityCounts> {
        Box::pin(self.readers.read(move |conn, _| {
            let row = conn.query_one(sql!("run_ambiguities"), &[&nul_escape::escape(&run)])?;
            Ok(AmbiguityCounts {
                found: row.num("found")?,
                absent: row.num("absent")?,
                never_arrived: row.num("never_arrived")?,
            })
        }))
    }

    fn refused_while_closing(&self, run: String) -> Reply<'_, u64> {
        Box::pin(self.readers.read(move |conn, _| {
            let name = rules::refused_while_closing(&run);
            let counted = conn.query_opt(sql!("meta_get"), &[&nul_escape::escape(&name)])?;
            Ok(counted.map(|row| row.num("value")).transpose()?.unwrap_or(0))
        }))
    }

    fn unsettled(&self, of: RunScope<'_>) -> Reply<'_, UnsettledCounts> {
        // The statement reads facts in escaped form: a database cannot store the character.
        let (door, run) = (of.door.to_owned(), of.run.replace('\0', "\u{fffd}"));
        let path = of.path;
        Box::pin(self.readers.read(move |conn, _| {
            let mut unsettled = UnsettledCounts::default();
            for row in conn.query(sql!("run_unsettled"), &[&door, &path, &run])? {
                let count = row.num("count")?;
                match row.text("state")?.as_str() {
                    "ambiguous" => unsettled.ambiguous += count,
                    _ => unsettled.in_work += count,
                }
            }
            Ok(unsettled)
        }))
    }

    fn closure(&self, run: String) -> Reply<'_, Option<Closure>> {
        Box::pin(self.readers.read(move |conn, _| closure(conn, &run)))
    }

    fn unfiled_closures(&self, rows_max: usize) -> Reply<'_, Vec<Closure>> {
        Box::pin(self.readers.read(move |conn, _| {
            let unfiled = conn.query(sql!("closure_unfiled"), &[&rows(rows_max)])?;
            unfiled.iter().map(closure_row).collect()
        }))
    }
}

impl Closures for PostgresLedger {
    fn begin_closing(&self, run: String, by: Attribution, at: Millis) -> Reply<'_, ClosingStart> {
        Box::pin(self.write(Begin { run, by, at }))
    }

    fn end_closing(
        &self,
        run: String,
        attempt: u64,
        ending: ClosingEnd,
        at: Millis,
    ) -> Reply<'_, bool> {
        Box::pin(self.write(End { run, attempt, ending, at }))
    }

    /// Checks outside the writer first: usually there is nothing to reopen.
    fn reopen_lost(&self, at: Millis) -> Reply<'_, Vec<String>> {
        Box::pin(async move {
            let look = |conn: &Conn, _| Ok(lost(conn)?.is_empty());
            if self.readers.read(look).await? {
                return Ok(Vec::new());
            }
            self.write(ReopenLost { at }).await
        })
    }

    fn note_missing(&self, numbers: Vec<u64>) -> Reply<'_, ()> {
        self.note_files(FileNote::Unwritten(numbers))
    }

    fn note_closure_filed(&self, run: String) -> Reply<'_, ()> {
        Box::pin(self.write(NoteFiled(run)))
    }
}

struct Begin {
    run: String,
    by: Attribution,
    at: Millis,
}

impl WriteOp for Begin {
    type Output = ClosingStart;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<ClosingStart> {
        rules::begin_closing(&Rows::of(tx), &self.run, &self.by, self.at)
    }
}

struct End {
    run: String,
    attempt: u64,
    ending: ClosingEnd,
    at: Millis,
}

impl WriteOp for End {
    type Output = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<bool> {
        rules::end_closing(&Rows::of(tx), &self.run, self.attempt, &self.ending, self.at)
    }
}

struct ReopenLost {
    at: Millis,
}

impl WriteOp for ReopenLost {
    type Output = Vec<String>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Vec<String>> {
        if !tx.may_recover_others {
            return Ok(Vec::new());
        }
        let lost = lost(tx.conn)?;
        rules::reopen(&Rows::of(tx), &lost, self.at)?;
        Ok(lost)
    }
}

struct NoteFiled(String);

impl WriteOp for NoteFiled {
    type Output = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        tx.conn.execute(sql!("closure_filed"), &[&nul_escape::escape(&self.0)])?;
        Ok(())
    }
}

/// Storage of closures inside a transaction.
struct Rows<'t> {
    conn: &'t Conn,
    epoch: u64,
}

impl<'t> Rows<'t> {
    fn of(tx: &Tx<'t>) -> Self {
        Self { conn: tx.conn, epoch: tx.epoch }
    }
}

impl ClosureStore for Rows<'_> {
    type Error = Error;

    fn state(&self, run: &str) -> Result<Option<RunState>> {
        Ok(crate::tables::issued::run(self.conn, run)?.map(|run| run.state))
    }

    fn turn(&self, run: &str, from: RunState, to: RunState, at: Millis) -> Result<bool> {
        turn_run(self.conn, run, from, to, at)
    }

    fn closure_of_closed(&self, run: &str) -> Result<Closure> {
        let missing = || Error::Unexpected("a closed run without a closure".to_owned());
        closure(self.conn, run)?.ok_or_else(missing)
    }

    fn begin(&self, run: &str, by: &Attribution, at: Millis) -> Result<u64> {
        let (run, who) = (nul_escape::escape(run), nul_escape::escape(&by.who));
        let why = by.why.as_deref().map(nul_escape::escape);
        let begun = [&run as _, &big(self.epoch) as _, &at.0 as _, &who as _, &why as _];
        self.conn.query_one(sql!("closure_begin"), &begun)?.num("attempt")
    }

    fn attempt(&self, run: &str) -> Result<Option<u64>> {
        let last = self.conn.query_opt(sql!("closure_attempt"), &[&nul_escape::escape(run)])?;
        last.map(|row| row.num("attempt")).transpose()
    }

    fn put(&self, run: &str, attempt: u64, path: &str, text: &str, at: Millis) -> Result<()> {
        let (run, path, text) =
            (nul_escape::escape(run), nul_escape::escape(path), nul_escape::escape(text));
        let row = [&run as _, &big(attempt) as _, &at.0 as _, &path as _, &text as _];
        self.conn.execute(sql!("closure_put"), &row)?;
        Ok(())
    }
}

/// Runs being closed by gates whose leases have ended.
fn lost(conn: &Conn) -> Result<Vec<String>> {
    let lost = conn.query(sql!("closure_lost"), &[])?;
    lost.iter().map(|row| row.text("platform_run_id")).collect()
}

fn closure(conn: &Conn, run: &str) -> Result<Option<Closure>> {
    let found = conn.query_opt(sql!("closure_get"), &[&nul_escape::escape(run)])?;
    found.as_ref().map(closure_row).transpose()
}

fn closure_row(row: &Row) -> Result<Closure> {
    Ok(Closure {
        run: row.text("platform_run_id")?,
        at: row.millis("closed_at")?,
        path: row.text("path")?,
        text: row.text("text")?,
        is_filed: row.flag("is_filed")?,
    })
}

/// A receipt for a run report. Fields of its text are parsed here: a document may contain characters that the
/// JSON of a database cannot.
fn line_row(row: &Row) -> Result<RunLine> {
    let state = match (row.text_opt("released_how")?, row.num_opt("superseded_by")?) {
        (Some(how), _) => QuarantineState::Released(how),
        (None, Some(_)) => QuarantineState::Superseded,
        (None, None) => QuarantineState::Open,
    };
    let document = row.text("text")?;
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let fields = match json::parse(document.as_bytes(), &limits) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Object::new(),
    };
    let refers = |name| match fields.get("eb_ref") {
        Some(Value::Object(at)) => at.get(name).is_some_and(|value| *value != Value::Null),
        _ => false,
    };
    let policy = |name| match fields.get("policy_rev") {
        Some(Value::Object(policy)) => policy.get(name).and_then(Value::as_str).map(str::to_owned),
        _ => None,
    };
    let word = |name| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(RunLine {
        n: row.num("n")?,
        id: row.text("id")?,
        decision: row.text("decision")?,
        reason: row.text_opt("reason")?,
        event_type: row.text_opt("event_type")?,
        producer: word("producer"),
        scenario_run: word("scenario_run_id"),
        path: row.text("path")?,
        has_reference: refers("topic") && refers("offset"),
        is_unwritten: row.flag("is_unwritten")?,
        state,
        policy: match (policy("revision"), policy("content_digest")) {
            (Some(revision), Some(digest)) => Some(DecidingPolicy { revision, digest }),
            _ => None,
        },
    })
}
