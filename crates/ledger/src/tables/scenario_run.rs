//! Scenario runs: leases, documents, history and publications of a run.

use admit_core::{Fault, Millis, ScenarioState};

use crate::db::{
    Call, Columns, Db, InvalidValue, Operation, ReadBackend, Transaction, WriteBackend, params,
    statements,
};
use crate::port::BoxFuture;
use crate::publications::BusEnd;
use crate::rules::{bus_end_name, scenario};
use crate::scenario_runs::{
    OpenRunRequest, OpenRunResult, PublicationState, RunEvent, RunLease, RunPublication, RunUpdate,
    RunUpdateError, ScenarioDocument, ScenarioRun, ScenarioRunReader, ScenarioRuns, StateChange,
    TakeLeaseResult,
};

statements! {
    shared DOCUMENT_GET "sr_document_get";
    shared DOCUMENT_PUT "sr_document_put";
    shared DOCUMENTS "sr_documents";
    shared EQUIVALENCE_GET "sr_equivalence_get";
    shared EQUIVALENCE_PUT "sr_equivalence_put";
    shared EQUIVALENCE_SEEN "sr_equivalence_seen";
    shared EVENT_PUT "sr_event_put";
    shared EVENTS "sr_events";
    shared LEASE_GET "sr_lease_get";
    shared LEASE_PUT "sr_lease_put";
    shared LEASE_RENEW "sr_lease_renew";
    shared META_MAX "meta_max";
    shared PUBLICATION_HAS "sr_publication_has";
    shared PUBLICATION_PUT "sr_publication_put";
    shared PUBLICATIONS "sr_publications";
    shared RUN_FINAL "sr_run_final";
    shared RUN_GET "sr_run_get";
    shared RUN_PUT "sr_run_put";
    shared RUN_SHOWN "sr_run_shown";
    shared RUN_TOUCH "sr_run_touch";
    shared RUN_TURN "sr_run_turn";
    shared RUN_UNFINISHED "sr_run_unfinished";
}

impl<B: WriteBackend> ScenarioRuns for B {
    fn open_run(&self, request: OpenRunRequest) -> BoxFuture<'_, Result<OpenRunResult, Fault>> {
        self.apply(OpenRun(request))
    }

    fn take_lease(&self, lease: RunLease) -> BoxFuture<'_, Result<TakeLeaseResult, Fault>> {
        self.apply(TakeLease(lease))
    }

    fn release_lease(
        &self,
        name: String,
        token: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<(), Fault>> {
        self.apply(ReleaseLease { name, token, at })
    }

    fn update_run(
        &self,
        update: RunUpdate,
    ) -> BoxFuture<'_, Result<Result<(), RunUpdateError>, Fault>> {
        self.apply(UpdateRun(update))
    }

    fn note_shown(&self, run_id: String, version: u64) -> BoxFuture<'_, Result<(), Fault>> {
        self.apply(NoteShown { run_id, version })
    }
}

impl<B: ReadBackend> ScenarioRunReader for B {
    fn scenario_run(&self, run_id: String) -> BoxFuture<'_, Result<Option<ScenarioRun>, Fault>> {
        self.read(move |db, _| db.snapshot(|| get(db, &run_id)))
    }

    fn unfinished_runs(
        &self,
        after: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        self.read(move |db, _| {
            let rows = db.query(&RUN_UNFINISHED, params![&after, rows_max])?;
            rows.iter().map(|row| row.text("run_id")).collect()
        })
    }

    fn final_runs(
        &self,
        after: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>> {
        self.read(move |db, _| {
            let rows = db.query(&RUN_FINAL, params![&after, rows_max])?;
            rows.iter().map(|row| row.text("run_id")).collect()
        })
    }
}

struct OpenRun(OpenRunRequest);

impl<D: Db> Operation<D> for OpenRun {
    type Output = OpenRunResult;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<OpenRunResult, D::Error> {
        scenario::open_run(tx.db, &self.0)
    }
}

struct TakeLease(RunLease);

impl<D: Db> Operation<D> for TakeLease {
    type Output = TakeLeaseResult;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<TakeLeaseResult, D::Error> {
        scenario::take_lease(tx.db, &self.0)
    }
}

struct ReleaseLease {
    name: String,
    token: String,
    at: Millis,
}

impl<D: Db> Operation<D> for ReleaseLease {
    type Output = ();

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<(), D::Error> {
        renew_lease(tx.db, &self.name, &self.token, self.at, self.at)
    }
}

struct UpdateRun(RunUpdate);

impl<D: Db> Operation<D> for UpdateRun {
    type Output = Result<(), RunUpdateError>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Self::Output, D::Error> {
        scenario::update_run(tx.db, &self.0)
    }
}

struct NoteShown {
    run_id: String,
    version: u64,
}

impl<D: Db> Operation<D> for NoteShown {
    type Output = ();

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<(), D::Error> {
        tx.db.execute(&RUN_SHOWN, params![&self.run_id, self.version]).map(drop)
    }
}

/// A lease as it is stored; it may have expired.
pub(crate) struct StoredLease {
    pub(crate) owner: String,
    pub(crate) token: String,
    pub(crate) until: Millis,
}

/// The intent that a key stands for.
pub(crate) fn intent<D: Db>(db: &D, key: &str) -> Result<Option<String>, D::Error> {
    let row = db.query_opt(&EQUIVALENCE_GET, params![key])?;
    row.map(|row| row.text("intent_fingerprint")).transpose()
}

/// Notes a later request under a known key.
pub(crate) fn note_request<D: Db>(db: &D, key: &str, at: Millis) -> Result<(), D::Error> {
    db.execute(&EQUIVALENCE_SEEN, params![key, at]).map(drop)
}

pub(crate) fn insert_run<D: Db>(db: &D, request: &OpenRunRequest) -> Result<(), D::Error> {
    let OpenRunRequest { run_equivalence_key, run_id, intent_fingerprint, at, .. } = request;
    let OpenRunRequest { platform_run_id, request, .. } = request;
    let state = ScenarioState::Open.word();
    let key = params![run_equivalence_key, run_id, intent_fingerprint, *at];
    let run = params![run_id, platform_run_id, request, state, *at];
    db.execute_all(&[Call::new(&EQUIVALENCE_PUT, key), Call::new(&RUN_PUT, run)]).map(drop)
}

pub(crate) fn lease<D: Db>(db: &D, name: &str) -> Result<Option<StoredLease>, D::Error> {
    let Some(row) = db.query_opt(&LEASE_GET, params![name])? else { return Ok(None) };
    let (owner, token) = (row.text("owner_id")?, row.text("lease_token")?);
    Ok(Some(StoredLease { owner, token, until: row.millis("expires_at")? }))
}

pub(crate) fn put_lease<D: Db>(db: &D, lease: &RunLease, until: Millis) -> Result<(), D::Error> {
    let RunLease { name, owner, token, at, .. } = lease;
    db.execute(&LEASE_PUT, params![name, owner, token, until, *at]).map(drop)
}

/// Moves the end of a lease, if `token` still holds it.
pub(crate) fn renew_lease<D: Db>(
    db: &D,
    name: &str,
    token: &str,
    until: Millis,
    at: Millis,
) -> Result<(), D::Error> {
    db.execute(&LEASE_RENEW, params![name, token, until, at]).map(drop)
}

pub(crate) fn state<D: Db>(db: &D, run: &str) -> Result<Option<ScenarioState>, D::Error> {
    let row = db.query_opt(&RUN_GET, params![run])?;
    row.map(|row| state_of(&row)).transpose()
}

/// Whether the number of an attempt at publishing is taken.
pub(crate) fn has_attempt<D: Db>(db: &D, run: &str, attempt: u32) -> Result<bool, D::Error> {
    db.exists(&PUBLICATION_HAS, params![run, attempt])
}

pub(crate) fn document<D: Db>(
    db: &D,
    run: &str,
    kind: &str,
) -> Result<Option<ScenarioDocument>, D::Error> {
    let row = db.query_opt(&DOCUMENT_GET, params![run, kind])?;
    row.as_ref().map(document_of).transpose()
}

/// Inserts a document unless its kind is there. Like all that follow, returns the rows changed.
pub(crate) fn insert_document<D: Db>(
    db: &D,
    run: &str,
    document: &ScenarioDocument,
    at: Millis,
) -> Result<u64, D::Error> {
    let ScenarioDocument { kind, path, text } = document;
    db.execute(&DOCUMENT_PUT, params![run, kind, path, text, at])
}

pub(crate) fn insert_event<D: Db>(db: &D, run: &str, event: &RunEvent) -> Result<u64, D::Error> {
    db.execute(&EVENT_PUT, params![run, &event.event_id, &event.line])
}

pub(crate) fn set_state<D: Db>(
    db: &D,
    run: &str,
    change: &StateChange,
    at: Millis,
) -> Result<u64, D::Error> {
    db.execute(&RUN_TURN, params![run, change.to.word(), &change.reason, at])
}

pub(crate) fn put_publication<D: Db>(
    db: &D,
    run: &str,
    publication: &RunPublication,
) -> Result<u64, D::Error> {
    let RunPublication { message_id, kind, attempt, state, evidence, at } = publication;
    let params = params![run, *attempt, message_id, kind, state.word(), evidence, *at];
    db.execute(&PUBLICATION_PUT, params)
}

/// Raises the acknowledged end of a topic.
pub(crate) fn raise_bus_end<D: Db>(db: &D, end: &BusEnd) -> Result<(), D::Error> {
    db.execute(&META_MAX, params![&bus_end_name(&end.topic), end.messages]).map(drop)
}

/// Raises the version of a run: files written before are out of date.
pub(crate) fn raise_version<D: Db>(db: &D, run: &str) -> Result<(), D::Error> {
    db.execute(&RUN_TOUCH, params![run]).map(drop)
}

/// A run with everything about it.
fn get<D: Db>(db: &D, run_id: &str) -> Result<Option<ScenarioRun>, D::Error> {
    let run = params![run_id];
    let mut results = db
        .query_all(&[
            Call::new(&RUN_GET, run),
            Call::new(&DOCUMENTS, run),
            Call::new(&EVENTS, run),
            Call::new(&PUBLICATIONS, run),
        ])?
        .into_iter();
    let mut next = || results.next().unwrap_or_default();
    let (runs, documents, events, publications) = (next(), next(), next(), next());
    let Some(row) = runs.first() else { return Ok(None) };
    Ok(Some(ScenarioRun {
        run_id: row.text("run_id")?,
        run_equivalence_key: row.text("run_equivalence_key")?,
        intent_fingerprint: row.text("intent_fingerprint")?,
        platform_run_id: row.text("platform_run_id")?,
        request: row.text("request")?,
        state: state_of(row)?,
        reason: row.text_opt("reason_code")?,
        version: row.num("version")?,
        shown: row.num("shown")?,
        opened_at: row.millis("opened_at")?,
        turned_at: row.millis("turned_at")?,
        documents: documents.iter().map(document_of).collect::<Result<_, _>>()?,
        events: events.iter().map(event_of).collect::<Result<_, _>>()?,
        publications: publications.iter().map(publication_of).collect::<Result<_, _>>()?,
    }))
}

fn state_of<R: Columns>(row: &R) -> Result<ScenarioState, R::Error> {
    let word = row.text("state")?;
    ScenarioState::from_word(&word).ok_or_else(|| InvalidValue::unknown("run state", &word).into())
}

fn document_of<R: Columns>(row: &R) -> Result<ScenarioDocument, R::Error> {
    Ok(ScenarioDocument {
        kind: row.text("kind")?,
        path: row.text("path")?,
        text: row.text("text")?,
    })
}

fn event_of<R: Columns>(row: &R) -> Result<RunEvent, R::Error> {
    Ok(RunEvent { event_id: row.text("event_id")?, line: row.text("line")? })
}

fn publication_of<R: Columns>(row: &R) -> Result<RunPublication, R::Error> {
    let word = row.text("state")?;
    let state = PublicationState::from_word(&word);
    Ok(RunPublication {
        message_id: row.text("message_id")?,
        kind: row.text("kind")?,
        attempt: row.small("attempt")?,
        state: state.ok_or_else(|| InvalidValue::unknown("publication state", &word))?,
        evidence: row.text_opt("evidence")?,
        at: row.millis("at")?,
    })
}
