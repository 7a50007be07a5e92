//! Run reports and closures of runs.

use admit_core::effect::Attribution;
use admit_core::json::{self, Object, Value};
use admit_core::{DocumentKind, Fault, Millis};

use super::meta;
use crate::closures::{
    AmbiguityCounts, ClosingEnd, ClosingStart, Closure, Closures, DecidingPolicy, QuarantineState,
    RunDocument, RunLine, RunReportReader, RunScope, UnsettledCounts,
};
use crate::db::{
    Columns, Db, Operation, ReadBackend, Transaction, WriteBackend, params, statements,
};
use crate::issuance::{DocumentReader, FileNote, Issuance};
use crate::port::BoxFuture;
use crate::rules;

statements! {
    shared ATTEMPT "closure_attempt";
    shared BEGIN "closure_begin";
    shared FILED "closure_filed";
    shared GET "closure_get";
    each LOST "closure_lost";
    shared PUT "closure_put";
    shared UNFILED "closure_unfiled";
    shared AMBIGUITIES "run_ambiguities";
    each IDS "run_ids";
    each LINES "run_lines";
    each QUARANTINES "run_quarantines";
    each RECEIPTS "run_receipts";
    each UNSETTLED "run_unsettled";
}

impl<B: ReadBackend + DocumentReader> RunReportReader for B {
    fn run_lines(
        &self,
        run: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunLine>, Fault>> {
        self.read(move |db, _| {
            db.query(&LINES, params![&run, after, rows_max])?.iter().map(line_of).collect()
        })
    }

    fn run_ids(
        &self,
        run: String,
        kind: DocumentKind,
        after: String,
        below: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        self.read(move |db, _| {
            let rows = db.query(&IDS, params![&run, kind.as_str(), &after, &below, rows_max])?;
            rows.iter().map(|row| row.text("id")).collect()
        })
    }

    fn run_documents(
        &self,
        run: String,
        kind: DocumentKind,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunDocument>, Fault>> {
        self.read(move |db, _| {
            let statement = match kind {
                DocumentKind::Receipt => &RECEIPTS,
                DocumentKind::Quarantine => &QUARANTINES,
                DocumentKind::Governance => return Ok(Vec::new()),
            };
            let rows = db.query(statement, params![&run, after, rows_max])?;
            rows.iter().map(document_of).collect()
        })
    }

    fn ambiguities(&self, run: String) -> BoxFuture<'_, Result<AmbiguityCounts, Fault>> {
        self.read(move |db, _| {
            let row = db.query_one(&AMBIGUITIES, params![&run])?;
            Ok(AmbiguityCounts {
                found: row.num("found")?,
                absent: row.num("absent")?,
                never_arrived: row.num("never_arrived")?,
            })
        })
    }

    fn refused_while_closing(&self, run: String) -> BoxFuture<'_, Result<u64, Fault>> {
        self.read(move |db, _| Ok(meta::num(db, &rules::refused_while_closing(&run))?.unwrap_or(0)))
    }

    fn unsettled(&self, of: RunScope<'_>) -> BoxFuture<'_, Result<UnsettledCounts, Fault>> {
        let (door, path, run) = (of.door.to_owned(), of.path, of.run.to_owned());
        self.read(move |db, _| {
            let mut unsettled = UnsettledCounts::default();
            for row in db.query(&UNSETTLED, params![&door, path, &run])? {
                let count = row.num("count")?;
                match row.text("state")?.as_str() {
                    "ambiguous" => unsettled.ambiguous += count,
                    _ => unsettled.in_work += count,
                }
            }
            Ok(unsettled)
        })
    }

    fn closure(&self, run: String) -> BoxFuture<'_, Result<Option<Closure>, Fault>> {
        self.read(move |db, _| get(db, &run))
    }

    fn unfiled_closures(&self, rows_max: usize) -> BoxFuture<'_, Result<Vec<Closure>, Fault>> {
        self.read(move |db, _| {
            db.query(&UNFILED, params![rows_max])?.iter().map(closure_of).collect()
        })
    }
}

impl<B: WriteBackend + Issuance> Closures for B {
    fn begin_closing(
        &self,
        run: String,
        by: Attribution,
        at: Millis,
    ) -> BoxFuture<'_, Result<ClosingStart, Fault>> {
        self.apply(Begin { run, by, at })
    }

    fn end_closing(
        &self,
        run: String,
        attempt: u64,
        ending: ClosingEnd,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        self.apply(End { run, attempt, ending, at })
    }

    /// Checks outside the writer first: usually there is nothing to reopen.
    fn reopen_lost(&self, at: Millis) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        Box::pin(async move {
            if self.read(|db, _| Ok(lost(db)?.is_empty())).await? {
                return Ok(Vec::new());
            }
            self.apply(ReopenLost { at }).await
        })
    }

    fn note_missing(&self, numbers: Vec<u64>) -> BoxFuture<'_, Result<(), Fault>> {
        self.note_files(FileNote::Unwritten(numbers))
    }

    fn note_closure_filed(&self, run: String) -> BoxFuture<'_, Result<(), Fault>> {
        self.apply(NoteFiled(run))
    }
}

struct Begin {
    run: String,
    by: Attribution,
    at: Millis,
}

impl<D: Db> Operation<D> for Begin {
    type Output = ClosingStart;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<ClosingStart, D::Error> {
        rules::begin_closing(tx, &self.run, &self.by, self.at)
    }
}

struct End {
    run: String,
    attempt: u64,
    ending: ClosingEnd,
    at: Millis,
}

impl<D: Db> Operation<D> for End {
    type Output = bool;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<bool, D::Error> {
        rules::end_closing(tx.db, &self.run, self.attempt, &self.ending, self.at)
    }
}

struct ReopenLost {
    at: Millis,
}

impl<D: Db> Operation<D> for ReopenLost {
    type Output = Vec<String>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Vec<String>, D::Error> {
        if !tx.may_expire_gates {
            return Ok(Vec::new());
        }
        rules::reopen_lost(tx.db, self.at)
    }
}

struct NoteFiled(String);

impl<D: Db> Operation<D> for NoteFiled {
    type Output = ();

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<(), D::Error> {
        tx.db.execute(&FILED, params![&self.0]).map(drop)
    }
}

/// Starts an attempt at closing a run and returns its number.
pub(crate) fn begin<D: Db>(
    tx: &Transaction<'_, D>,
    run: &str,
    by: &Attribution,
    at: Millis,
) -> Result<u64, D::Error> {
    let params = params![run, tx.epoch, at, &by.who, &by.why];
    tx.db.query_one(&BEGIN, params)?.num("attempt")
}

/// Returns the latest attempt at a run that is closing.
pub(crate) fn attempt<D: Db>(db: &D, run: &str) -> Result<Option<u64>, D::Error> {
    db.query_opt(&ATTEMPT, params![run])?.map(|row| row.num("attempt")).transpose()
}

pub(crate) fn put<D: Db>(
    db: &D,
    run: &str,
    attempt: u64,
    path: &str,
    text: &str,
    at: Millis,
) -> Result<(), D::Error> {
    db.execute(&PUT, params![run, attempt, at, path, text]).map(drop)
}

pub(crate) fn get<D: Db>(db: &D, run: &str) -> Result<Option<Closure>, D::Error> {
    db.query_opt(&GET, params![run])?.as_ref().map(closure_of).transpose()
}

/// Runs being closed by processes that have ended: gates without a lease, earlier starts.
pub(crate) fn lost<D: Db>(db: &D) -> Result<Vec<String>, D::Error> {
    db.query(&LOST, &[])?.iter().map(|row| row.text("platform_run_id")).collect()
}

fn closure_of<R: Columns>(row: &R) -> Result<Closure, R::Error> {
    Ok(Closure {
        run: row.text("platform_run_id")?,
        at: row.millis("closed_at")?,
        path: row.text("path")?,
        text: row.text("text")?,
        is_filed: row.flag("is_filed")?,
    })
}

fn document_of<R: Columns>(row: &R) -> Result<RunDocument, R::Error> {
    Ok(RunDocument {
        n: row.num("n")?,
        decision: row.text("decision")?,
        path: row.text("path")?,
        text: row.text("text")?,
    })
}

/// A receipt for a run report. Fields of its text are parsed here: a document may contain characters that the
/// JSON of a database cannot.
fn line_of<R: Columns>(row: &R) -> Result<RunLine, R::Error> {
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
