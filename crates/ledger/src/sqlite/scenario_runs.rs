//! Scenario runs in the file: written inside the writer's transaction, read beside it.

use admit_core::{Fault, Millis, ScenarioState};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::task::{Tx, Work};
use super::{SqliteLedger, SqliteReader, queries};
use crate::desk::{self, Held, ScenarioRows};
use crate::port::BoxFuture;
use crate::scenario_runs::{
    Keeping, NotKept, Opened, Opening, Publication, PublicationState, RunDocument, RunEvent,
    RunLease, ScenarioRun, ScenarioRunReader, ScenarioRuns, Taking, Turn,
};

impl ScenarioRuns for SqliteLedger {
    fn open_run(&self, opening: Opening) -> BoxFuture<'_, Result<Opened, Fault>> {
        Box::pin(self.write(OpenRun(opening)))
    }

    fn take_lease(&self, lease: RunLease) -> BoxFuture<'_, Result<Taking, Fault>> {
        Box::pin(self.write(TakeLease(lease)))
    }

    fn give_back(
        &self,
        name: String,
        token: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.write(GiveBack { name, token, at }))
    }

    fn keep(&self, keeping: Keeping) -> BoxFuture<'_, Result<Result<(), NotKept>, Fault>> {
        Box::pin(self.write(Keep(keeping)))
    }

    fn note_shown(&self, run_id: String, version: u64) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.write(NoteShown { run_id, version }))
    }
}

impl ScenarioRunReader for SqliteLedger {
    fn scenario_run(&self, run_id: String) -> BoxFuture<'_, Result<Option<ScenarioRun>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| get(conn, &run_id)))
    }

    fn unfinished_runs(
        &self,
        after: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| unfinished(conn, &after, rows_max)))
    }
}

impl ScenarioRunReader for SqliteReader {
    fn scenario_run(&self, run_id: String) -> BoxFuture<'_, Result<Option<ScenarioRun>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| get(conn, &run_id)))
    }

    fn unfinished_runs(
        &self,
        after: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| unfinished(conn, &after, rows_max)))
    }
}

struct OpenRun(Opening);

impl Work for OpenRun {
    type Answer = Opened;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Opened> {
        desk::open_run(&Rows(tx.conn), &self.0)
    }
}

struct TakeLease(RunLease);

impl Work for TakeLease {
    type Answer = Taking;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Taking> {
        desk::take_lease(&Rows(tx.conn), &self.0)
    }
}

struct GiveBack {
    name: String,
    token: String,
    at: Millis,
}

impl Work for GiveBack {
    type Answer = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        Rows(tx.conn).renew(&self.name, &self.token, self.at, self.at)
    }
}

struct NoteShown {
    run_id: String,
    version: u64,
}

impl Work for NoteShown {
    type Answer = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.conn.prepare_cached(queries::SR_RUN_SHOWN)?.execute((&self.run_id, self.version))?;
        Ok(())
    }
}

struct Keep(Keeping);

impl Work for Keep {
    type Answer = Result<(), NotKept>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        desk::keep(&Rows(tx.conn), &self.0)
    }
}

/// The rows of scenario runs, inside a transaction.
struct Rows<'t>(&'t Connection);

impl Rows<'_> {
    fn change(&self, sql: &str, row: impl Params) -> rusqlite::Result<u64> {
        Ok(self.0.prepare_cached(sql)?.execute(row)? as u64)
    }
}

impl ScenarioRows for Rows<'_> {
    type Error = rusqlite::Error;

    fn intent(&self, key: &str) -> rusqlite::Result<Option<String>> {
        self.0
            .prepare_cached(queries::SR_EQUIVALENCE_GET)?
            .query_row([key], |row| row.get(1))
            .optional()
    }

    fn seen(&self, key: &str, at: Millis) -> rusqlite::Result<()> {
        self.change(queries::SR_EQUIVALENCE_SEEN, (key, at.0)).map(drop)
    }

    fn open(&self, opening: &Opening) -> rusqlite::Result<()> {
        let Opening { run_equivalence_key, run_id, intent_fingerprint, at, .. } = opening;
        let row = (run_equivalence_key, run_id, intent_fingerprint, at.0);
        self.change(queries::SR_EQUIVALENCE_PUT, row)?;
        let state = ScenarioState::Open.word();
        let row = (run_id, &opening.platform_run_id, &opening.request, state, at.0);
        self.change(queries::SR_RUN_PUT, row).map(drop)
    }

    fn held(&self, lease: &str) -> rusqlite::Result<Option<Held>> {
        self.0
            .prepare_cached(queries::SR_LEASE_GET)?
            .query_row([lease], |row| {
                Ok(Held { owner: row.get(0)?, token: row.get(1)?, until: Millis(row.get(2)?) })
            })
            .optional()
    }

    fn take(&self, lease: &RunLease, until: Millis) -> rusqlite::Result<()> {
        let row = (&lease.name, &lease.owner, &lease.token, until.0, lease.at.0);
        self.change(queries::SR_LEASE_PUT, row).map(drop)
    }

    fn renew(&self, lease: &str, token: &str, until: Millis, at: Millis) -> rusqlite::Result<()> {
        self.change(queries::SR_LEASE_RENEW, (lease, token, until.0, at.0)).map(drop)
    }

    fn state(&self, run: &str) -> rusqlite::Result<Option<ScenarioState>> {
        self.0
            .prepare_cached(queries::SR_RUN_GET)?
            .query_row([run], |row| state_of(row.get_ref("state")?.as_str()?))
            .optional()
    }

    fn has_attempt(&self, run: &str, attempt: u32) -> rusqlite::Result<bool> {
        self.0.prepare_cached(queries::SR_PUBLICATION_HAS)?.exists((run, attempt))
    }

    fn document(&self, run: &str, kind: &str) -> rusqlite::Result<Option<RunDocument>> {
        self.0.prepare_cached(queries::SR_DOCUMENT_GET)?.query_row((run, kind), document).optional()
    }

    fn put_document(&self, run: &str, document: &RunDocument, at: Millis) -> rusqlite::Result<u64> {
        let RunDocument { kind, path, text } = document;
        self.change(queries::SR_DOCUMENT_PUT, (run, kind, path, text, at.0))
    }

    fn put_event(&self, run: &str, event: &RunEvent) -> rusqlite::Result<u64> {
        self.change(queries::SR_EVENT_PUT, (run, &event.event_id, &event.line))
    }

    fn turn(&self, run: &str, turn: &Turn, at: Millis) -> rusqlite::Result<u64> {
        self.change(queries::SR_RUN_TURN, (run, turn.to.word(), &turn.reason, at.0))
    }

    fn publish(&self, run: &str, said: &Publication) -> rusqlite::Result<u64> {
        let Publication { message_id, kind, attempt, state, evidence, at } = said;
        let row = (run, attempt, message_id, kind, state.word(), evidence, at.0);
        self.change(queries::SR_PUBLICATION_PUT, row)
    }

    fn touch(&self, run: &str) -> rusqlite::Result<()> {
        self.change(queries::SR_RUN_TOUCH, [run]).map(drop)
    }
}

fn document(row: &Row<'_>) -> rusqlite::Result<RunDocument> {
    Ok(RunDocument { kind: row.get(0)?, path: row.get(1)?, text: row.get(2)? })
}

fn state_of(word: &str) -> rusqlite::Result<ScenarioState> {
    ScenarioState::from_word(word).ok_or_else(|| foreign(format!("run state {word:?}")))
}

fn foreign(what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        0,
        Type::Text,
        format!("{what} is not one of ours").into(),
    )
}

fn unfinished(conn: &Connection, after: &str, rows_max: usize) -> rusqlite::Result<Vec<String>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::SR_RUN_UNFINISHED)?
        .query_map((after, rows_max), |row| row.get(0))?
        .collect()
}

/// A run with everything about it, as of one moment.
fn get(conn: &Connection, run_id: &str) -> rusqlite::Result<Option<ScenarioRun>> {
    let moment = conn.unchecked_transaction()?;
    let run = read(&moment, run_id)?;
    moment.finish()?;
    Ok(run)
}

fn read(conn: &Connection, run_id: &str) -> rusqlite::Result<Option<ScenarioRun>> {
    let run = conn
        .prepare_cached(queries::SR_RUN_GET)?
        .query_row([run_id], |row| {
            Ok(ScenarioRun {
                run_id: row.get("run_id")?,
                run_equivalence_key: row.get("run_equivalence_key")?,
                intent_fingerprint: row.get("intent_fingerprint")?,
                platform_run_id: row.get("platform_run_id")?,
                request: row.get("request")?,
                state: state_of(row.get_ref("state")?.as_str()?)?,
                reason: row.get("reason_code")?,
                version: row.get("version")?,
                shown: row.get("shown")?,
                opened_at: Millis(row.get("opened_at")?),
                turned_at: Millis(row.get("turned_at")?),
                documents: Vec::new(),
                events: Vec::new(),
                publications: Vec::new(),
            })
        })
        .optional()?;
    let Some(mut run) = run else { return Ok(None) };
    run.documents = conn
        .prepare_cached(queries::SR_DOCUMENTS)?
        .query_map([run_id], document)?
        .collect::<rusqlite::Result<_>>()?;
    run.events = conn
        .prepare_cached(queries::SR_EVENTS)?
        .query_map([run_id], |row| Ok(RunEvent { event_id: row.get(0)?, line: row.get(1)? }))?
        .collect::<rusqlite::Result<_>>()?;
    run.publications = conn
        .prepare_cached(queries::SR_PUBLICATIONS)?
        .query_map([run_id], publication)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(run))
}

fn publication(row: &Row<'_>) -> rusqlite::Result<Publication> {
    let word = row.get_ref(3)?.as_str()?.to_owned();
    let state = PublicationState::from_word(&word);
    Ok(Publication {
        message_id: row.get(0)?,
        kind: row.get(1)?,
        attempt: row.get(2)?,
        state: state.ok_or_else(|| foreign(format!("publication state {word:?}")))?,
        evidence: row.get(4)?,
        at: Millis(row.get(5)?),
    })
}
