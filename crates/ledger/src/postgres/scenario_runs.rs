//! Scenario runs: written inside the writer's transaction, read beside it.

use admit_core::{Fault, Millis, ScenarioState};
use tokio_postgres::Row;

use super::answers::answering;
use super::conn::{Ask, Columns, Conn, Error, Result, big, rows};
use super::task::{Tx, Work};
use super::{PostgresLedger, sql, text};
use crate::desk::{self, Held, ScenarioRows};
use crate::port::BoxFuture;
use crate::scenario_runs::{
    Keeping, NotKept, Opened, Opening, Publication, PublicationState, RunDocument, RunEvent,
    RunLease, ScenarioRun, ScenarioRunReader, ScenarioRuns, Taking, Turn,
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
        desk::open_run(&Rows(tx.conn), &self.0)
    }
}

struct TakeLease(RunLease);

impl Work for TakeLease {
    type Answer = Taking;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Taking> {
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

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        Rows(tx.conn).renew(&self.name, &self.token, self.at, self.at)
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
        desk::keep(&Rows(tx.conn), &self.0)
    }
}

/// The rows of scenario runs, inside a transaction.
struct Rows<'t>(&'t Conn);

impl ScenarioRows for Rows<'_> {
    type Error = Error;

    fn intent(&self, key: &str) -> Result<Option<String>> {
        let known = self.0.query_opt(sql!("sr_equivalence_get"), &[&text::kept(key)])?;
        known.map(|row| row.text("intent_fingerprint")).transpose()
    }

    fn seen(&self, key: &str, at: Millis) -> Result<()> {
        self.0.execute(sql!("sr_equivalence_seen"), &[&text::kept(key), &at.0])?;
        Ok(())
    }

    fn open(&self, opening: &Opening) -> Result<()> {
        let (key, run) = (text::kept(&opening.run_equivalence_key), text::kept(&opening.run_id));
        let intent = text::kept(&opening.intent_fingerprint);
        let platform_run = text::kept(&opening.platform_run_id);
        let (request, at) = (text::kept(&opening.request), opening.at.0);
        let state = ScenarioState::Open.word();
        self.0.execute_all(&[
            Ask::new(sql!("sr_equivalence_put"), vec![&key, &run, &intent, &at]),
            Ask::new(sql!("sr_run_put"), vec![&run, &platform_run, &request, &state, &at]),
        ])?;
        Ok(())
    }

    fn held(&self, lease: &str) -> Result<Option<Held>> {
        let Some(held) = self.0.query_opt(sql!("sr_lease_get"), &[&text::kept(lease)])? else {
            return Ok(None);
        };
        let (owner, token) = (held.text("owner_id")?, held.text("lease_token")?);
        Ok(Some(Held { owner, token, until: held.millis("expires_at")? }))
    }

    fn take(&self, lease: &RunLease, until: Millis) -> Result<()> {
        let (name, token) = (text::kept(&lease.name), text::kept(&lease.token));
        let owner = text::kept(&lease.owner);
        let row = [&name as _, &owner as _, &token as _, &until.0 as _, &lease.at.0 as _];
        self.0.execute(sql!("sr_lease_put"), &row)?;
        Ok(())
    }

    fn renew(&self, lease: &str, token: &str, until: Millis, at: Millis) -> Result<()> {
        let (name, token) = (text::kept(lease), text::kept(token));
        self.0.execute(sql!("sr_lease_renew"), &[&name, &token, &until.0, &at.0])?;
        Ok(())
    }

    fn state(&self, run: &str) -> Result<Option<ScenarioState>> {
        let row = self.0.query_opt(sql!("sr_run_get"), &[&text::kept(run)])?;
        row.map(|row| state_of(&row.text("state")?)).transpose()
    }

    fn has_attempt(&self, run: &str, attempt: u32) -> Result<bool> {
        let asked = [&text::kept(run) as _, &i64::from(attempt) as _];
        Ok(self.0.query_opt(sql!("sr_publication_has"), &asked)?.is_some())
    }

    fn document(&self, run: &str, kind: &str) -> Result<Option<RunDocument>> {
        let asked = [&text::kept(run) as _, &text::kept(kind) as _];
        let kept = self.0.query_opt(sql!("sr_document_get"), &asked)?;
        kept.as_ref().map(document).transpose()
    }

    fn put_document(&self, run: &str, document: &RunDocument, at: Millis) -> Result<u64> {
        let RunDocument { kind, path, text } = document;
        let (kind, path, text) = (text::kept(kind), text::kept(path), text::kept(text));
        let run = text::kept(run);
        self.0.execute(sql!("sr_document_put"), &[&run, &kind, &path, &text, &at.0])
    }

    fn put_event(&self, run: &str, event: &RunEvent) -> Result<u64> {
        let (id, line) = (text::kept(&event.event_id), text::kept(&event.line));
        self.0.execute(sql!("sr_event_put"), &[&text::kept(run), &id, &line])
    }

    fn turn(&self, run: &str, turn: &Turn, at: Millis) -> Result<u64> {
        let reason = turn.reason.as_deref().map(text::kept);
        let row = [&text::kept(run) as _, &turn.to.word() as _, &reason as _, &at.0 as _];
        self.0.execute(sql!("sr_run_turn"), &row)
    }

    fn publish(&self, run: &str, said: &Publication) -> Result<u64> {
        let (message, kind) = (text::kept(&said.message_id), text::kept(&said.kind));
        let evidence = said.evidence.as_deref().map(text::kept);
        let (attempt, state) = (i64::from(said.attempt), said.state.word());
        self.0.execute(
            sql!("sr_publication_put"),
            &[&text::kept(run), &attempt, &message, &kind, &state, &evidence, &said.at.0],
        )
    }

    fn touch(&self, run: &str) -> Result<()> {
        self.0.execute(sql!("sr_run_touch"), &[&text::kept(run)])?;
        Ok(())
    }
}

fn document(row: &Row) -> Result<RunDocument> {
    Ok(RunDocument { kind: row.text("kind")?, path: row.text("path")?, text: row.text("text")? })
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
