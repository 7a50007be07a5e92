//! Documents and runs in the file: written inside the writer's transaction, read beside it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::effect::By;
use admit_core::{
    Fault, FaultKind, Filed, Issue, Issued, IssuedKind, Millis, Released, RunState, Said, Seq,
    Taken,
};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::queries;
use crate::issuance::{FiledFilter, Run, RunCounts};

/// The runs that a transaction has touched, and what it adds to them.
#[derive(Default)]
pub(super) struct Runs {
    touched: HashMap<String, Touched>,
}

#[derive(Default)]
struct Touched {
    /// Once somebody has asked.
    state: Option<RunState>,
    counts: RunCounts,
    at: Millis,
}

impl Runs {
    /// Whether a run takes events. One that nobody has named yet does.
    pub(super) fn state(
        &mut self,
        conn: &Connection,
        run: &str,
        at: Millis,
    ) -> rusqlite::Result<RunState> {
        if let Some(state) = self.touched.get(run).and_then(|touched| touched.state) {
            return Ok(state);
        }
        let known = conn.prepare_cached(queries::RUN_GET)?.query_row([run], run_row).optional()?;
        let state = known.map_or(RunState::Open, |run| run.state);
        let touched = self.touched.entry(run.to_owned()).or_default();
        (touched.state, touched.at) = (Some(state), touched.at.max(at));
        Ok(state)
    }

    /// Adds to the counters of a run.
    pub(super) fn count(&mut self, run: Option<&str>, at: Millis, add: impl Fn(&mut RunCounts)) {
        let Some(run) = run else { return };
        if !self.touched.contains_key(run) {
            self.touched.insert(run.to_owned(), Touched::default());
        }
        if let Some(touched) = self.touched.get_mut(run) {
            touched.at = touched.at.max(at);
            add(&mut touched.counts);
        }
    }

    /// Writes what has changed.
    pub(super) fn write(&self, conn: &Connection) -> rusqlite::Result<()> {
        if self.touched.is_empty() {
            return Ok(());
        }
        let mut add = conn.prepare_cached(queries::RUN_ADD)?;
        for (run, Touched { counts, at, .. }) in &self.touched {
            if *counts == RunCounts::default() {
                continue;
            }
            add.execute(params![
                run,
                at.0,
                counts.deliveries,
                counts.in_flight,
                counts.ambiguous,
                counts.admit,
                counts.duplicate,
                counts.quarantine,
                counts.superseded,
                counts.released,
            ])?;
        }
        Ok(())
    }
}

/// The ids in the file, as the open transaction sees them.
pub(super) struct Ids<'c>(pub(super) &'c Connection);

impl Taken for Ids<'_> {
    fn by_other(&self, kind: IssuedKind, run: Option<&str>, id: &str, identity: &str) -> bool {
        let run = run.unwrap_or_default();
        let other = self
            .0
            .prepare_cached(queries::ISSUED_IDENTITY)
            .and_then(|mut other| other.exists((id, run, kind.as_str(), identity)));
        // A look that fails fails the transaction at the next statement; until then, nothing is lost
        // by taking the longer id.
        other.unwrap_or(true)
    }
}

/// Has the contract say it. A panic of its is the delivery's own fault, not the ledger's end.
pub(super) fn say(issue: &dyn Issue, said: &Said<'_>) -> Result<Vec<Issued>, Fault> {
    catch_unwind(AssertUnwindSafe(|| issue.issue(said))).map_err(|_| {
        Fault::new(FaultKind::Internal, "the documents of this event could not be made")
    })
}

/// What a document is about.
#[derive(Clone, Copy)]
pub(super) struct About {
    pub(super) seq: Seq,
    pub(super) of: Option<Seq>,
    pub(super) at: Millis,
    /// A document that is there already and was let go counts again.
    pub(super) reopens: bool,
}

/// Keeps documents, each once, and counts the new ones.
pub(super) fn file(
    conn: &Connection,
    runs: &mut Runs,
    documents: Vec<Issued>,
    about: About,
) -> rusqlite::Result<Vec<Filed>> {
    let mut filed = Vec::with_capacity(documents.len());
    for issued in documents {
        let run = issued.run.as_deref().unwrap_or_default();
        let kind = issued.kind.as_str();
        let known = conn
            .prepare_cached(queries::ISSUED_FIND)?
            .query_row((&issued.id, run, kind), filed_row)
            .optional()?;
        if let Some(mut known) = known {
            if about.reopens && known.released.take().is_some() {
                reopen(conn, &known)?;
                if known.issued.kind == IssuedKind::Receipt {
                    runs.count(issued.run.as_deref(), about.at, |counts| counts.released -= 1);
                }
            }
            filed.push(known);
            continue;
        }
        conn.prepare_cached(queries::ISSUED_INSERT)?.execute(params![
            kind,
            run,
            issued.id,
            issued.identity,
            issued.decision,
            issued.reason,
            about.seq.0,
            about.of.map(|of| of.0),
            issued.event_id,
            issued.event_type,
            about.at.0,
            issued.path,
            issued.text,
        ])?;
        let n = conn.last_insert_rowid().unsigned_abs();
        if issued.kind == IssuedKind::Receipt {
            runs.count(issued.run.as_deref(), about.at, |counts| match &*issued.decision {
                "ADMIT" => counts.admit += 1,
                "DUPLICATE" => counts.duplicate += 1,
                "QUARANTINE" => counts.quarantine += 1,
                _ => {}
            });
        }
        let About { seq, of, at, .. } = about;
        filed.push(Filed { n, seq, of, at, issued, superseded_by: None, released: None });
    }
    Ok(filed)
}

fn reopen(conn: &Connection, known: &Filed) -> rusqlite::Result<()> {
    conn.prepare_cached(queries::ISSUED_REOPEN)?.execute([known.n])?;
    Ok(())
}

/// A quarantine that is still open, as far as closing it needs.
pub(super) struct Open {
    n: u64,
    run: String,
    kind: String,
    reason: Option<String>,
}

impl Open {
    /// Whether it says no more than that the effect of the event is not settled.
    pub(super) fn is_about_the_effect(&self, issue: &dyn Issue) -> bool {
        self.reason.as_deref().is_some_and(|reason| issue.is_about_the_effect(reason))
    }
}

/// The open quarantines of one admission.
pub(super) fn open_of(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<Open>> {
    conn.prepare_cached(queries::ISSUED_OPEN_OF)?
        .query_map([seq.0], |row| {
            Ok(Open { n: row.get(0)?, run: row.get(1)?, kind: row.get(2)?, reason: row.get(3)? })
        })?
        .collect()
}

/// The event at `seq` was admitted, by the document `by`: what only said that it was under way is
/// void.
pub(super) fn supersede(
    conn: &Connection,
    runs: &mut Runs,
    issue: &dyn Issue,
    seq: Seq,
    by: u64,
    at: Millis,
) -> rusqlite::Result<()> {
    for open in open_of(conn, seq)? {
        if !open.reason.as_deref().is_some_and(|reason| issue.is_passing(reason)) {
            continue;
        }
        conn.prepare_cached(queries::ISSUED_SUPERSEDE)?.execute((open.n, by))?;
        if open.kind == IssuedKind::Receipt.as_str() {
            runs.count(Some(&open.run), at, |counts| counts.superseded += 1);
        }
    }
    Ok(())
}

/// Lets go of documents, each once.
pub(super) fn release(
    conn: &Connection,
    runs: &mut Runs,
    open: Vec<Open>,
    how: &str,
    by: &By,
    at: Millis,
) -> rusqlite::Result<bool> {
    let mut any = false;
    for open in open {
        let row = (open.n, how, &by.who, &by.why, at.0);
        let changed = conn.prepare_cached(queries::ISSUED_RELEASE)?.execute(row)?;
        any |= changed > 0;
        if changed > 0 && open.kind == IssuedKind::Receipt.as_str() && !open.run.is_empty() {
            runs.count(Some(&open.run), at, |counts| counts.released += 1);
        }
    }
    Ok(any)
}

/// The open quarantine with this id: its receipt and its record.
pub(super) fn open_named(conn: &Connection, run: &str, id: &str) -> rusqlite::Result<Vec<Open>> {
    conn.prepare_cached(queries::ISSUED_TWIN)?
        .query_map((id, run), |row| {
            Ok(Open { n: row.get(0)?, kind: row.get(1)?, run: row.get(2)?, reason: None })
        })?
        .collect()
}

/// Where the receipt of an admission is.
pub(super) fn receipt_of(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(queries::ISSUED_RECEIPT_OF)?.query_row([seq.0], |row| row.get(0)).optional()
}

pub(super) fn list(conn: &Connection, filter: &FiledFilter) -> rusqlite::Result<Vec<Filed>> {
    let rows_max = i64::try_from(filter.rows_max).unwrap_or(i64::MAX);
    if let (Some(IssuedKind::Quarantine), Some(run), None) =
        (filter.kind, &filter.run, &filter.decision)
    {
        return conn
            .prepare_cached(queries::ISSUED_QUARANTINE)?
            .query_map((run, filter.after, filter.is_open, rows_max), filed_row)?
            .collect();
    }
    conn.prepare_cached(queries::ISSUED_LIST)?
        .query_map(
            (
                filter.kind.map(IssuedKind::as_str),
                &filter.run,
                &filter.decision,
                filter.is_open,
                filter.after,
                rows_max,
            ),
            filed_row,
        )?
        .collect()
}

pub(super) fn named(conn: &Connection, id: &str) -> rusqlite::Result<Vec<Filed>> {
    conn.prepare_cached(queries::ISSUED_NAMED)?.query_map([id], filed_row)?.collect()
}

pub(super) fn of(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<Filed>> {
    conn.prepare_cached(queries::ISSUED_OF)?.query_map([seq.0], filed_row)?.collect()
}

pub(super) fn unwritten(
    conn: &Connection,
    after: u64,
    rows_max: usize,
) -> rusqlite::Result<Vec<Filed>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::ISSUED_UNWRITTEN)?
        .query_map((after, rows_max), filed_row)?
        .collect()
}

/// The name of the watermark among the ledger's single values.
pub(super) const SYNCED: &str = "artifacts_synced";

pub(super) fn synced(conn: &Connection) -> rusqlite::Result<(u64, u64)> {
    let to = conn
        .prepare_cached(queries::META_GET)?
        .query_row([SYNCED], |row| row.get::<_, u64>(0))
        .optional()?;
    let newest =
        conn.query_row("SELECT max(n) FROM issued", [], |row| row.get::<_, Option<u64>>(0))?;
    Ok((to.unwrap_or(0), newest.unwrap_or(0)))
}

pub(super) fn run(conn: &Connection, id: &str) -> rusqlite::Result<Option<Run>> {
    conn.prepare_cached(queries::RUN_GET)?.query_row([id], run_row).optional()
}

pub(super) fn runs(conn: &Connection, after: &str, rows_max: usize) -> rusqlite::Result<Vec<Run>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::RUN_LIST)?.query_map((after, rows_max), run_row)?.collect()
}

fn not_ours(what: &str, word: &str) -> rusqlite::Error {
    let unknown = format!("{what} {word:?} is not one of ours").into();
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, unknown)
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<Run> {
    let word = row.get_ref("state")?.as_str()?;
    Ok(Run {
        id: row.get("platform_run_id")?,
        state: RunState::parse(word).ok_or_else(|| not_ours("run state", word))?,
        opened_at: Millis(row.get("opened_at")?),
        changed_at: Millis(row.get("changed_at")?),
        counts: RunCounts {
            deliveries: row.get("deliveries")?,
            in_flight: row.get("in_flight")?,
            ambiguous: row.get("ambiguous")?,
            admit: row.get("admit")?,
            duplicate: row.get("duplicate")?,
            quarantine: row.get("quarantine")?,
            superseded: row.get("superseded")?,
            released: row.get("released")?,
        },
    })
}

fn filed_row(row: &Row<'_>) -> rusqlite::Result<Filed> {
    let word = row.get_ref("kind")?.as_str()?;
    let kind = IssuedKind::parse(word).ok_or_else(|| not_ours("document", word))?;
    let run: String = row.get("run")?;
    let released = match row.get::<_, Option<i64>>("released_at")? {
        Some(at) => {
            let by = By { who: row.get("released_by")?, why: row.get("released_why")? };
            Some(Released { how: row.get("released_how")?, by, at: Millis(at) })
        }
        None => None,
    };
    Ok(Filed {
        n: row.get("n")?,
        seq: Seq(row.get("seq")?),
        of: row.get::<_, Option<u64>>("of")?.map(Seq),
        at: Millis(row.get("at")?),
        issued: Issued {
            kind,
            run: Some(run).filter(|run| !run.is_empty()),
            id: row.get("id")?,
            identity: row.get("identity")?,
            decision: row.get::<_, String>("decision")?.into(),
            reason: row.get::<_, Option<String>>("reason")?.map(Into::into),
            event_id: row.get("event_id")?,
            event_type: row.get("event_type")?,
            path: row.get("path")?,
            text: row.get("text")?,
        },
        superseded_by: row.get("superseded_by")?,
        released,
    })
}
