//! RecordingBatch: the decision on each event, the same for all ledgers. At doors that issue documents, verdict,
//! documents and the counters of the run are one decision.

use admit_core::effect::{EffectState, Step};
use admit_core::json::Object;
use admit_core::{
    Code, Decision, Entry, Event, Fault, FaultKind, FirstAdmission, Issue, IssueContext,
    IssueReason, Key, PriorAdmission, RefusedSubmission, RunState, Seq, StoredDocument, Verdict,
    decide,
};

use super::documents::{issue_documents, parsed, store_documents};
use super::steps::advance;
use super::{DocumentSubject, EffectStore};
use crate::issuance::FollowUp;

/// Result of a record commit besides the verdict.
#[derive(Debug)]
pub(crate) struct IssueResult {
    pub(crate) filed: Vec<StoredDocument>,
    pub(crate) follow_up: FollowUp,
}

impl IssueResult {
    fn filed(filed: Vec<StoredDocument>) -> Self {
        Self { filed, follow_up: FollowUp::Done }
    }
}

/// A batch being recorded.
pub(crate) trait RecordingBatch {
    /// Why the batch cannot continue.
    type Error: From<<Self::Store as EffectStore>::Error>;
    /// Storage of its documents.
    type Store: EffectStore;

    /// The error for an entry that cannot be recorded; without it the others can.
    fn poisoned(fault: Fault) -> Self::Error;

    fn store(&mut self) -> &mut Self::Store;

    /// Returns the first admission under a key, in this batch or in the ledger.
    fn first(&mut self, key: &Key) -> Result<Option<PriorAdmission>, Self::Error>;

    /// Returns the stored revision or conflict with exactly this content.
    fn same_content(&mut self, event: &Event) -> Result<Option<Seq>, Self::Error>;

    /// Admits a fresh event, with its effect, or a revision of `first`. Returns its seq too.
    fn admit(
        &mut self,
        event: &Event,
        first: Option<PriorAdmission>,
    ) -> Result<(Verdict, Seq), Self::Error>;

    /// Records other content under a known key.
    fn conflict(&mut self, event: &Event, first: PriorAdmission) -> Result<Verdict, Self::Error>;

    /// Records a copy of the admission at `first`.
    fn sighting(&mut self, event: &Event, first: Seq) -> Result<Seq, Self::Error>;

    /// Records a refusal.
    fn refused(&mut self, refused: &RefusedSubmission) -> Result<Verdict, Self::Error>;
}

/// Decides an event by the first admission under its key.
fn decision<R: RecordingBatch>(batch: &mut R, event: &Event) -> Result<Decision, R::Error> {
    Ok(decide(batch.first(&event.key)?, &event.digest, event.on_other_content))
}

/// Records an event at a door that issues no documents. Returns the verdict and the seq that holds the content.
pub(crate) fn record_event<R: RecordingBatch>(
    batch: &mut R,
    event: &Event,
) -> Result<(Verdict, Seq), R::Error> {
    match decision(batch, event)? {
        Decision::Fresh => batch.admit(event, None),
        Decision::Duplicate(first) => {
            let (seq, content_seq) = (batch.sighting(event, first.seq)?, first.seq);
            Ok((Verdict::Duplicate { seq, first }, content_seq))
        }
        // A version received before is a late copy, not newer content.
        Decision::Revision(first) => match batch.same_content(event)? {
            Some(known) => {
                let seq = batch.sighting(event, known)?;
                Ok((Verdict::Duplicate { seq, first }, known))
            }
            None => batch.admit(event, Some(first)),
        },
        Decision::Conflict(first) => {
            let content_seq = first.seq;
            Ok((batch.conflict(event, first)?, content_seq))
        }
    }
}

/// Records one entry at a door that issues documents. After an error nothing of it may be committed.
pub(crate) fn record<R: RecordingBatch>(
    batch: &mut R,
    entry: &Entry,
    issue: &dyn Issue,
) -> Result<(Verdict, IssueResult), R::Error> {
    let (facts, at) = match entry {
        Entry::Event(event) => (&event.facts, event.received_at),
        Entry::Refused(refused) => (&refused.facts, refused.received_at),
    };
    // An unknown run accepts events.
    let mut state = RunState::Open;
    if let Some(run) = issue.run(facts) {
        let store = batch.store();
        state = store.run_state(run)?.unwrap_or(RunState::Open);
        store.runs().count(Some(run), at, |counts| counts.deliveries += 1);
    }
    match entry {
        Entry::Refused(refused) if state == RunState::Open => refuse(batch, refused, issue),
        Entry::Refused(refused) => run_closed(batch, refused, issue, state),
        Entry::Event(event) => admit(batch, event, issue, state),
    }
}

fn refuse<R: RecordingBatch>(
    batch: &mut R,
    refused: &RefusedSubmission,
    issue: &dyn Issue,
) -> Result<(Verdict, IssueResult), R::Error> {
    let verdict = batch.refused(refused)?;
    let Some(seq) = verdict.seq() else { return Ok((verdict, IssueResult::filed(Vec::new()))) };
    let reason = IssueReason::Refused { code: refused.code, message: &refused.message };
    let about = DocumentSubject { seq, of: None, at: refused.received_at, reopens: false };
    let filed = issue_and_store(batch, issue, reason, about, &refused.facts)?;
    Ok((verdict, IssueResult::filed(filed)))
}

/// Records a delivery as refused, because its run accepts no new events.
fn run_closed<R: RecordingBatch>(
    batch: &mut R,
    refused: &RefusedSubmission,
    issue: &dyn Issue,
    state: RunState,
) -> Result<(Verdict, IssueResult), R::Error> {
    let (code, message, reason, follow_up) = match state {
        RunState::Closing => (
            Code::RunClosing,
            "the run of this event is being closed",
            IssueReason::RunClosing,
            FollowUp::RunClosing,
        ),
        RunState::Open | RunState::Closed => (
            Code::RunClosed,
            "the run of this event is closed to new events",
            IssueReason::RunClosed,
            FollowUp::RunClosed,
        ),
    };
    if let (RunState::Closing, Some(run)) = (state, issue.run(&refused.facts)) {
        batch.store().counters().add(&refused_while_closing(run), 1);
    }
    let message = message.to_owned();
    let refused = RefusedSubmission { code, message, ..refused.clone() };
    let verdict = batch.refused(&refused)?;
    let filed = match verdict.seq() {
        Some(seq) => {
            let about = DocumentSubject { seq, of: None, at: refused.received_at, reopens: false };
            issue_and_store(batch, issue, reason, about, &refused.facts)?
        }
        None => Vec::new(),
    };
    Ok((verdict, IssueResult { filed, follow_up }))
}

/// Name of the counter of events refused while a run was closing.
pub(crate) fn refused_while_closing(run: &str) -> String {
    format!("refused_while_closing:{run}")
}

fn admit<R: RecordingBatch>(
    batch: &mut R,
    event: &Event,
    issue: &dyn Issue,
    state: RunState,
) -> Result<(Verdict, IssueResult), R::Error> {
    let is_open = state == RunState::Open;
    match decision(batch, event)? {
        Decision::Duplicate(first) => copy(batch, event, first, issue, state),
        Decision::Fresh | Decision::Revision(_) | Decision::Conflict(_) if !is_open => {
            run_closed(batch, &as_refused(event), issue, state)
        }
        Decision::Fresh => {
            let (verdict, seq) = batch.admit(event, None)?;
            let run = issue.run(&event.facts);
            batch.store().runs().count(run, event.received_at, |counts| counts.in_flight += 1);
            let follow_up = FollowUp::Perform { seq, attempt: 1 };
            Ok((verdict, IssueResult { filed: Vec::new(), follow_up }))
        }
        // Documents of such a door are issued once, so other content is never newer content.
        Decision::Revision(first) | Decision::Conflict(first) => {
            let state = effect_state(batch, first.seq)?;
            let verdict = batch.conflict(event, first.clone())?;
            let seq = verdict.seq().unwrap_or(first.seq);
            let about =
                DocumentSubject { seq, of: Some(first.seq), at: event.received_at, reopens: false };
            let conflict: fn(FirstAdmission<'_>) -> IssueReason<'_> =
                |first| IssueReason::Conflict { first };
            let filed = issue_with_first(batch, issue, conflict, &first, &state, about, event)?;
            Ok((verdict, IssueResult::filed(filed)))
        }
    }
}

/// Records a copy; the result depends on the state of the first event's effect.
fn copy<R: RecordingBatch>(
    batch: &mut R,
    event: &Event,
    first: PriorAdmission,
    issue: &dyn Issue,
    run_state: RunState,
) -> Result<(Verdict, IssueResult), R::Error> {
    let at = event.received_at;
    let state = effect_state(batch, first.seq)?;
    let follow_up = match &state {
        EffectState::Refused(_) if run_state != RunState::Open => {
            return run_closed(batch, &as_refused(event), issue, run_state);
        }
        EffectState::Refused(_) => {
            let renewed = advance(batch.store(), first.seq, &Step::Renew, at)?;
            let effect = renewed.map_err(|_| lost_effect::<R>())?.effect;
            let run = issue.run(&event.facts);
            batch.store().runs().count(run, at, |counts| counts.in_flight += 1);
            FollowUp::Perform { seq: first.seq, attempt: effect.state.attempt() }
        }
        EffectState::Withheld(_) | EffectState::Intended(_) | EffectState::InFlight(_) => {
            FollowUp::InFlight { seq: first.seq }
        }
        EffectState::Done(_) | EffectState::Ambiguous(_) => FollowUp::Done,
    };
    let seq = batch.sighting(event, first.seq)?;
    let filed = if follow_up == FollowUp::Done {
        let about = DocumentSubject { seq, of: Some(first.seq), at, reopens: false };
        let copy: fn(FirstAdmission<'_>) -> IssueReason<'_> = |first| IssueReason::Copy { first };
        issue_with_first(batch, issue, copy, &first, &state, about, event)?
    } else {
        Vec::new()
    };
    Ok((Verdict::Duplicate { seq, first }, IssueResult { filed, follow_up }))
}

fn effect_state<R: RecordingBatch>(batch: &mut R, seq: Seq) -> Result<EffectState, R::Error> {
    let effect = batch.store().effect(seq)?.ok_or_else(lost_effect::<R>)?;
    Ok(effect.state)
}

/// Issues the documents of a duplicate or conflicting delivery.
fn issue_with_first<R: RecordingBatch>(
    batch: &mut R,
    issue: &dyn Issue,
    reason: fn(FirstAdmission<'_>) -> IssueReason<'_>,
    first: &PriorAdmission,
    state: &EffectState,
    about: DocumentSubject,
    event: &Event,
) -> Result<Vec<StoredDocument>, R::Error> {
    let receipt = batch.store().receipt_of(first.seq)?;
    let facts = parsed(&first.facts).ok_or_else(|| {
        let message = "the facts of an earlier event cannot be read";
        R::poisoned(Fault::new(FaultKind::Internal, message))
    })?;
    let receipt = receipt.as_deref();
    let original = FirstAdmission { seq: first.seq, facts: &facts, state, receipt };
    issue_and_store(batch, issue, reason(original), about, &event.facts)
}

fn issue_and_store<R: RecordingBatch>(
    batch: &mut R,
    issue: &dyn Issue,
    reason: IssueReason<'_>,
    about: DocumentSubject,
    facts: &Object<'_>,
) -> Result<Vec<StoredDocument>, R::Error> {
    let store = batch.store();
    let context = IssueContext { reason, seq: about.seq, at: about.at, facts, ids: &*store };
    let documents = issue_documents(issue, &context).map_err(R::poisoned)?;
    Ok(store_documents(store, documents, about)?)
}

/// An event that may not be admitted, as a refusal to be stored.
fn as_refused(event: &Event) -> RefusedSubmission {
    RefusedSubmission {
        door: event.door.clone(),
        principal: event.principal.clone(),
        received_at: event.received_at,
        body: event.body.clone(),
        attempt: event.attempt,
        code: Code::RunClosed,
        message: String::new(),
        facts: event.facts.clone(),
    }
}

fn lost_effect<R: RecordingBatch>() -> R::Error {
    let message = "the effect of the first event under this key is missing or changed concurrently";
    R::poisoned(Fault::new(FaultKind::Internal, message))
}
