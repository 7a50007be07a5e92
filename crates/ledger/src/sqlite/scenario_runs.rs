//! Scenario runs in the file: written inside the writer's transaction, read beside it.

use admit_core::{Fault, Millis, ScenarioState};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};

use super::task::{Tx, Work};
use super::{SqliteLedger, SqliteReader, queries};
use crate::port::BoxFuture;
use crate::scenario_runs::{
    Keeping, NotKept, Opened, Opening, Publication, PublicationState, RunDocument, RunEvent,
    RunLease, ScenarioRun, ScenarioRunReader, ScenarioRuns, Taking,
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
        let Opening { run_equivalence_key: key, run_id, intent_fingerprint, at, .. } = &self.0;
        let known = tx
            .conn
            .prepare_cached(queries::SR_EQUIVALENCE_GET)?
            .query_row([key], |row| row.get::<_, String>(1))
            .optional()?;
        if let Some(known) = known {
            if known != *intent_fingerprint {
                return Ok(Opened::Collision { intent_fingerprint: known });
            }
            tx.conn.prepare_cached(queries::SR_EQUIVALENCE_SEEN)?.execute((key, at.0))?;
            return Ok(Opened::Known);
        }
        let row = (key, run_id, intent_fingerprint, at.0);
        tx.conn.prepare_cached(queries::SR_EQUIVALENCE_PUT)?.execute(row)?;
        let state = ScenarioState::Open.word();
        let row = (run_id, &self.0.platform_run_id, &self.0.request, state, at.0);
        tx.conn.prepare_cached(queries::SR_RUN_PUT)?.execute(row)?;
        Ok(Opened::New)
    }
}

struct TakeLease(RunLease);

impl Work for TakeLease {
    type Answer = Taking;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Taking> {
        let RunLease { name, owner, token, at, ttl_ms } = &self.0;
        let held = tx
            .conn
            .prepare_cached(queries::SR_LEASE_GET)?
            .query_row([name], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        if let Some((owner, held_by, until)) = held
            && held_by != *token
            && until > at.0
        {
            return Ok(Taking::HeldBy { owner, until: Millis(until) });
        }
        let row = (name, owner, token, at.0.saturating_add(*ttl_ms), at.0);
        tx.conn.prepare_cached(queries::SR_LEASE_PUT)?.execute(row)?;
        Ok(Taking::Taken)
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
        let row = (&self.name, &self.token, self.at.0, self.at.0);
        tx.conn.prepare_cached(queries::SR_LEASE_RENEW)?.execute(row)?;
        Ok(())
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
        let conn = tx.conn;
        // Everything that may be refused is looked at first: a refusal writes nothing.
        if let Err(refused) = self.check(conn)? {
            return Ok(Err(refused));
        }
        let Keeping { run_id, lease, token, at, ttl_ms, documents, events, turn, publication } =
            &self.0;
        let until = at.0.saturating_add(*ttl_ms);
        conn.prepare_cached(queries::SR_LEASE_RENEW)?.execute((lease, token, until, at.0))?;
        let mut changed = 0;
        for RunDocument { kind, path, text } in documents {
            let row = (run_id, kind, path, text, at.0);
            changed += conn.prepare_cached(queries::SR_DOCUMENT_PUT)?.execute(row)?;
        }
        for RunEvent { event_id, line } in events {
            changed +=
                conn.prepare_cached(queries::SR_EVENT_PUT)?.execute((run_id, event_id, line))?;
        }
        if let Some(turn) = turn
            && state(conn, run_id)? != Some(turn.to)
        {
            let row = (run_id, turn.to.word(), &turn.reason, at.0);
            changed += conn.prepare_cached(queries::SR_RUN_TURN)?.execute(row)?;
        }
        if let Some(said) = publication {
            let Publication { message_id, kind, attempt, state, evidence, at } = said;
            let row = (run_id, attempt, message_id, kind, state.word(), evidence, at.0);
            changed += conn.prepare_cached(queries::SR_PUBLICATION_PUT)?.execute(row)?;
        }
        if changed > 0 {
            conn.prepare_cached(queries::SR_RUN_TOUCH)?.execute([run_id])?;
        }
        Ok(Ok(()))
    }
}

impl Keep {
    fn check(&self, conn: &Connection) -> rusqlite::Result<Result<(), NotKept>> {
        let Keeping { run_id, lease, token, documents, turn, publication, .. } = &self.0;
        let held = conn
            .prepare_cached(queries::SR_LEASE_GET)?
            .query_row([lease], |row| row.get::<_, String>(1))
            .optional()?;
        if held.as_ref() != Some(token) {
            return Ok(Err(NotKept::LeaseLost));
        }
        let Some(state) = state(conn, run_id)? else { return Ok(Err(NotKept::NoRun)) };
        if let Some(turn) = turn
            && let Err(illegal) = state.turn(turn.to)
        {
            return Ok(Err(illegal.into()));
        }
        if let Some(said) = publication
            && said.state == PublicationState::InFlight
            && conn.prepare_cached(queries::SR_PUBLICATION_HAS)?.exists((run_id, said.attempt))?
        {
            return Ok(Err(NotKept::AttemptTaken));
        }
        for document in documents {
            let kept = conn
                .prepare_cached(queries::SR_DOCUMENT_GET)?
                .query_row((run_id, &document.kind), |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
                })
                .optional()?;
            if kept.is_some_and(|(path, text)| path != document.path || text != document.text) {
                return Ok(Err(NotKept::Drift { kind: document.kind.clone() }));
            }
        }
        Ok(Ok(()))
    }
}

fn state(conn: &Connection, run_id: &str) -> rusqlite::Result<Option<ScenarioState>> {
    conn.prepare_cached(queries::SR_RUN_GET)?
        .query_row([run_id], |row| state_of(row.get_ref("state")?.as_str()?))
        .optional()
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
        .query_map([run_id], |row| {
            Ok(RunDocument { kind: row.get(0)?, path: row.get(1)?, text: row.get(2)? })
        })?
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
