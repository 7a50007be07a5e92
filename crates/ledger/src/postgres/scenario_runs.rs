//! Scenario runs: written inside the writer's transaction, read beside it.

use admit_core::{Fault, Millis, ScenarioState};
use tokio_postgres::Row;

use super::answers::answering;
use super::conn::{Ask, Columns, Conn, Error, Result, big, rows};
use super::task::{Tx, Work};
use super::{PostgresLedger, sql, text};
use crate::port::BoxFuture;
use crate::scenario_runs::{
    Keeping, NotKept, Opened, Opening, Publication, PublicationState, RunDocument, RunEvent,
    RunLease, ScenarioRun, ScenarioRunReader, ScenarioRuns, Taking,
};

type Answer<'a, T> = BoxFuture<'a, std::result::Result<T, Fault>>;

impl ScenarioRuns for PostgresLedger {
    fn open_run(&self, opening: Opening) -> Answer<'_, Opened> {
        Box::pin(self.write(OpenRun(opening)))
    }

    fn take_lease(&self, lease: RunLease) -> Answer<'_, Taking> {
        Box::pin(self.write(TakeLease(lease)))
    }

    fn give_back(&self, name: String, token: String, at: Millis) -> Answer<'_, ()> {
        Box::pin(self.write(GiveBack { name, token, at }))
    }

    fn keep(&self, keeping: Keeping) -> Answer<'_, std::result::Result<(), NotKept>> {
        Box::pin(self.write(Keep(keeping)))
    }

    fn note_shown(&self, run_id: String, version: u64) -> Answer<'_, ()> {
        Box::pin(self.write(NoteShown { run_id, version }))
    }
}

answering!(ScenarioRunReader {
    fn scenario_run(&self, run_id: String) -> Answer<'_, Option<ScenarioRun>> {
        Box::pin(self.readers.read(move |conn, _| get(conn, &run_id)))
    }

    fn unfinished_runs(&self, after: String, rows_max: usize) -> Answer<'_, Vec<String>> {
        Box::pin(self.readers.read(move |conn, _| {
            let asked = [&text::kept(&after) as _, &rows(rows_max) as _];
            let unfinished = conn.query(sql!("sr_run_unfinished"), &asked)?;
            unfinished.iter().map(|row| row.text("run_id")).collect()
        }))
    }
});

struct OpenRun(Opening);

impl Work for OpenRun {
    type Answer = Opened;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Opened> {
        let at = self.0.at.0;
        let key = text::kept(&self.0.run_equivalence_key);
        if let Some(row) = tx.conn.query_opt(sql!("sr_equivalence_get"), &[&key])? {
            let known = row.text("intent_fingerprint")?;
            if known != self.0.intent_fingerprint {
                return Ok(Opened::Collision { intent_fingerprint: known });
            }
            tx.conn.execute(sql!("sr_equivalence_seen"), &[&key, &at])?;
            return Ok(Opened::Known);
        }
        let (run, intent) = (text::kept(&self.0.run_id), text::kept(&self.0.intent_fingerprint));
        let platform_run = text::kept(&self.0.platform_run_id);
        let request = text::kept(&self.0.request);
        let state = ScenarioState::Open.word();
        tx.conn.execute_all(&[
            Ask::new(sql!("sr_equivalence_put"), vec![&key, &run, &intent, &at]),
            Ask::new(sql!("sr_run_put"), vec![&run, &platform_run, &request, &state, &at]),
        ])?;
        Ok(Opened::New)
    }
}

struct TakeLease(RunLease);

impl Work for TakeLease {
    type Answer = Taking;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Taking> {
        let RunLease { name, owner, token, at, ttl_ms } = &self.0;
        if let Some(held) = tx.conn.query_opt(sql!("sr_lease_get"), &[&text::kept(name)])? {
            let until = held.millis("expires_at")?;
            if held.text("lease_token")? != *token && until > *at {
                return Ok(Taking::HeldBy { owner: held.text("owner_id")?, until });
            }
        }
        let (name, owner, token) = (text::kept(name), text::kept(owner), text::kept(token));
        let until = at.0.saturating_add(*ttl_ms);
        tx.conn.execute(sql!("sr_lease_put"), &[&name, &owner, &token, &until, &at.0])?;
        Ok(Taking::Taken)
    }
}

/// Moves the end of a lease, if `token` still has it.
fn renew(conn: &Conn, name: &str, token: &str, until: i64, at: Millis) -> Result<()> {
    let (name, token) = (text::kept(name), text::kept(token));
    conn.execute(sql!("sr_lease_renew"), &[&name, &token, &until, &at.0])?;
    Ok(())
}

struct GiveBack {
    name: String,
    token: String,
    at: Millis,
}

impl Work for GiveBack {
    type Answer = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        renew(tx.conn, &self.name, &self.token, self.at.0, self.at)
    }
}

struct NoteShown {
    run_id: String,
    version: u64,
}

impl Work for NoteShown {
    type Answer = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let row = [&text::kept(&self.run_id) as _, &big(self.version) as _];
        tx.conn.execute(sql!("sr_run_shown"), &row)?;
        Ok(())
    }
}

struct Keep(Keeping);

impl Work for Keep {
    type Answer = std::result::Result<(), NotKept>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer> {
        let conn = tx.conn;
        // Everything that may be refused is looked at first: a refusal writes nothing.
        let state = match self.check(conn)? {
            Ok(state) => state,
            Err(refused) => return Ok(Err(refused)),
        };
        let Keeping { run_id, lease, token, at, ttl_ms, documents, events, turn, publication } =
            &self.0;
        renew(conn, lease, token, at.0.saturating_add(*ttl_ms), *at)?;
        let (run, at) = (text::kept(run_id), at.0);
        let mut changed = 0;
        for RunDocument { kind, path, text } in documents {
            let (kind, path, text) = (text::kept(kind), text::kept(path), text::kept(text));
            changed += conn.execute(sql!("sr_document_put"), &[&run, &kind, &path, &text, &at])?;
        }
        for RunEvent { event_id, line } in events {
            let (id, line) = (text::kept(event_id), text::kept(line));
            changed += conn.execute(sql!("sr_event_put"), &[&run, &id, &line])?;
        }
        if let Some(turn) = turn
            && state != turn.to
        {
            let reason = turn.reason.as_deref().map(text::kept);
            changed += conn.execute(sql!("sr_run_turn"), &[&run, &turn.to.word(), &reason, &at])?;
        }
        if let Some(said) = publication {
            changed += publish(conn, &run, said)?;
        }
        if changed > 0 {
            conn.execute(sql!("sr_run_touch"), &[&run])?;
        }
        Ok(Ok(()))
    }
}

fn publish(conn: &Conn, run: &str, said: &Publication) -> Result<u64> {
    let Publication { message_id, kind, attempt, state, evidence, at } = said;
    let (message, kind) = (text::kept(message_id), text::kept(kind));
    let evidence = evidence.as_deref().map(text::kept);
    let (attempt, state) = (i64::from(*attempt), state.word());
    conn.execute(
        sql!("sr_publication_put"),
        &[&run, &attempt, &message, &kind, &state, &evidence, &at.0],
    )
}

impl Keep {
    /// How the run stands, or why nothing is kept of it.
    fn check(&self, conn: &Conn) -> Result<std::result::Result<ScenarioState, NotKept>> {
        let Keeping { run_id, lease, token, documents, turn, publication, .. } = &self.0;
        let held = conn.query_opt(sql!("sr_lease_get"), &[&text::kept(lease)])?;
        let held = held.map(|held| held.text("lease_token")).transpose()?;
        if held.as_ref() != Some(token) {
            return Ok(Err(NotKept::LeaseLost));
        }
        let run = text::kept(run_id);
        let Some(row) = conn.query_opt(sql!("sr_run_get"), &[&run])? else {
            return Ok(Err(NotKept::NoRun));
        };
        let state = state_of(&row.text("state")?)?;
        if let Some(turn) = turn
            && let Err(illegal) = state.turn(turn.to)
        {
            return Ok(Err(illegal.into()));
        }
        if let Some(said) = publication
            && said.state == PublicationState::InFlight
        {
            let asked = [&run as _, &i64::from(said.attempt) as _];
            if conn.query_opt(sql!("sr_publication_has"), &asked)?.is_some() {
                return Ok(Err(NotKept::AttemptTaken));
            }
        }
        for RunDocument { kind, path, text } in documents {
            let asked = [&run as _, &text::kept(kind) as _];
            let Some(kept) = conn.query_opt(sql!("sr_document_get"), &asked)? else { continue };
            if kept.text("path")? != *path || kept.text("text")? != *text {
                return Ok(Err(NotKept::Drift { kind: kind.clone() }));
            }
        }
        Ok(Ok(state))
    }
}

fn state_of(word: &str) -> Result<ScenarioState> {
    ScenarioState::from_word(word).ok_or_else(|| Error::not_ours("run state", word))
}

/// A run with everything about it, as of one moment.
fn get(conn: &Conn, run_id: &str) -> Result<Option<ScenarioRun>> {
    conn.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let read = read(conn, run_id);
    conn.batch("COMMIT")?;
    read
}

fn read(conn: &Conn, run_id: &str) -> Result<Option<ScenarioRun>> {
    let run = text::kept(run_id);
    let mut answers = conn
        .query_all(&[
            Ask::new(sql!("sr_run_get"), vec![&run]),
            Ask::new(sql!("sr_documents"), vec![&run]),
            Ask::new(sql!("sr_events"), vec![&run]),
            Ask::new(sql!("sr_publications"), vec![&run]),
        ])?
        .into_iter();
    let mut next = || answers.next().unwrap_or_default();
    let (found, documents, events, publications) = (next(), next(), next(), next());
    let Some(row) = found.first() else { return Ok(None) };
    let document = |row: &Row| {
        Ok(RunDocument {
            kind: row.text("kind")?,
            path: row.text("path")?,
            text: row.text("text")?,
        })
    };
    let event =
        |row: &Row| Ok(RunEvent { event_id: row.text("event_id")?, line: row.text("line")? });
    Ok(Some(ScenarioRun {
        run_id: row.text("run_id")?,
        run_equivalence_key: row.text("run_equivalence_key")?,
        intent_fingerprint: row.text("intent_fingerprint")?,
        platform_run_id: row.text("platform_run_id")?,
        request: row.text("request")?,
        state: state_of(&row.text("state")?)?,
        reason: row.text_opt("reason_code")?,
        version: row.num("version")?,
        shown: row.num("shown")?,
        opened_at: row.millis("opened_at")?,
        turned_at: row.millis("turned_at")?,
        documents: documents.iter().map(document).collect::<Result<_>>()?,
        events: events.iter().map(event).collect::<Result<_>>()?,
        publications: publications.iter().map(publication).collect::<Result<_>>()?,
    }))
}

fn publication(row: &Row) -> Result<Publication> {
    let word = row.text("state")?;
    let state = PublicationState::from_word(&word);
    Ok(Publication {
        message_id: row.text("message_id")?,
        kind: row.text("kind")?,
        attempt: row.small("attempt")?,
        state: state.ok_or_else(|| Error::not_ours("publication state", &word))?,
        evidence: row.text_opt("evidence")?,
        at: row.millis("at")?,
    })
}
