//! Recording at doors that issue documents: verdict, documents and the counters of the run, as one
//! decision.

use admit_core::effect::{Standing, Step};
use admit_core::json::Object;
use admit_core::{
    Code, Decision, Entry, Event, Fault, FaultKind, Filed, First, Issue, Key, Occasion, Original,
    Refused, RunState, Said, Seq, Verdict, decide,
};

use super::documents::{file, parsed, say};
use super::steps::advance;
use super::{About, Desk};
use crate::issuance::Outlook;

/// What a record commit says beside the verdict.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) filed: Vec<Filed>,
    pub(crate) outlook: Outlook,
}

impl Told {
    fn filed(filed: Vec<Filed>) -> Self {
        Self { filed, outlook: Outlook::Said }
    }
}

/// A batch being recorded: what admitting, seeing and refusing mean to a ledger.
pub(crate) trait Recording {
    /// Why the batch cannot go on.
    type Error: From<<Self::Desk as Desk>::Error>;
    /// Where its documents are kept.
    type Desk: Desk;

    /// An entry that cannot be recorded; without it the others can.
    fn poisoned(fault: Fault) -> Self::Error;

    fn desk(&mut self) -> &mut Self::Desk;

    /// What is known under a key, in this batch or in the ledger.
    fn first(&mut self, key: &Key) -> Result<Option<First>, Self::Error>;

    /// A fresh admission, with its effect.
    fn admit(&mut self, event: &Event) -> Result<(Verdict, Seq), Self::Error>;

    /// Other content under a known key.
    fn conflict(&mut self, event: &Event, first: First) -> Result<Verdict, Self::Error>;

    /// A copy of what was admitted at `first`.
    fn sighting(&mut self, event: &Event, first: Seq) -> Result<Seq, Self::Error>;

    /// Something that is not admitted.
    fn refused(&mut self, refused: &Refused) -> Result<Verdict, Self::Error>;
}

/// Records one entry. After an error nothing of it may be kept.
pub(crate) fn record<R: Recording>(
    batch: &mut R,
    entry: &Entry,
    issue: &dyn Issue,
) -> Result<(Verdict, Told), R::Error> {
    let (facts, at) = match entry {
        Entry::Event(event) => (&event.facts, event.received_at),
        Entry::Refused(refused) => (&refused.facts, refused.received_at),
    };
    // A run that nobody has named takes events.
    let mut state = RunState::Open;
    if let Some(run) = issue.run(facts) {
        let desk = batch.desk();
        state = desk.run_state(run)?.unwrap_or(RunState::Open);
        desk.runs().count(Some(run), at, |counts| counts.deliveries += 1);
    }
    match entry {
        Entry::Refused(refused) if state == RunState::Open => refuse(batch, refused, issue),
        Entry::Refused(refused) => run_closed(batch, refused, issue, state),
        Entry::Event(event) => admit(batch, event, issue, state),
    }
}

fn refuse<R: Recording>(
    batch: &mut R,
    refused: &Refused,
    issue: &dyn Issue,
) -> Result<(Verdict, Told), R::Error> {
    let verdict = batch.refused(refused)?;
    let Some(seq) = verdict.seq() else { return Ok((verdict, Told::filed(Vec::new()))) };
    let occasion = Occasion::Refused { code: refused.code, message: &refused.message };
    let about = About { seq, of: None, at: refused.received_at, reopens: false };
    let filed = told(batch, issue, occasion, about, &refused.facts)?;
    Ok((verdict, Told::filed(filed)))
}

/// Keeps a delivery outside of its run, which takes nothing new.
fn run_closed<R: Recording>(
    batch: &mut R,
    refused: &Refused,
    issue: &dyn Issue,
    state: RunState,
) -> Result<(Verdict, Told), R::Error> {
    let (message, outlook) = match state {
        RunState::Closing => ("the run of this event is being closed", Outlook::RunClosing),
        RunState::Open | RunState::Closed => {
            ("the run of this event is closed to new events", Outlook::RunClosed)
        }
    };
    if let (RunState::Closing, Some(run)) = (state, issue.run(&refused.facts)) {
        batch.desk().counters().add(&refused_while_closing(run), 1);
    }
    let message = message.to_owned();
    let refused = Refused { code: Code::RunClosed, message, ..refused.clone() };
    let verdict = batch.refused(&refused)?;
    let filed = match verdict.seq() {
        Some(seq) => {
            let about = About { seq, of: None, at: refused.received_at, reopens: false };
            told(batch, issue, Occasion::RunClosed, about, &refused.facts)?
        }
        None => Vec::new(),
    };
    Ok((verdict, Told { filed, outlook }))
}

/// The name of the counter of events that a run has refused while it was being closed.
pub(crate) fn refused_while_closing(run: &str) -> String {
    format!("refused_while_closing:{run}")
}

fn admit<R: Recording>(
    batch: &mut R,
    event: &Event,
    issue: &dyn Issue,
    state: RunState,
) -> Result<(Verdict, Told), R::Error> {
    let is_open = state == RunState::Open;
    let Some(first) = batch.first(&event.key)? else {
        if !is_open {
            return run_closed(batch, &as_refused(event), issue, state);
        }
        let (verdict, seq) = batch.admit(event)?;
        let run = issue.run(&event.facts);
        batch.desk().runs().count(run, event.received_at, |counts| counts.in_flight += 1);
        let outlook = Outlook::Performs { seq, attempt: 1 };
        return Ok((verdict, Told { filed: Vec::new(), outlook }));
    };
    match decide(Some(&first), &event.digest, event.on_other_content) {
        Decision::Fresh | Decision::Duplicate => copy(batch, event, first, issue, state),
        Decision::Revision | Decision::Conflict if !is_open => {
            run_closed(batch, &as_refused(event), issue, state)
        }
        Decision::Revision | Decision::Conflict => {
            let standing = standing(batch, first.seq)?;
            let verdict = batch.conflict(event, first.clone())?;
            let seq = verdict.seq().unwrap_or(first.seq);
            let about = About { seq, of: Some(first.seq), at: event.received_at, reopens: false };
            let conflict: fn(Original<'_>) -> Occasion<'_> = |first| Occasion::Conflict { first };
            let filed = told_of(batch, issue, conflict, &first, &standing, about, event)?;
            Ok((verdict, Told::filed(filed)))
        }
    }
}

/// A copy: what it means hangs on where the first stands.
fn copy<R: Recording>(
    batch: &mut R,
    event: &Event,
    first: First,
    issue: &dyn Issue,
    state: RunState,
) -> Result<(Verdict, Told), R::Error> {
    let at = event.received_at;
    let standing = standing(batch, first.seq)?;
    let outlook = match &standing {
        Standing::Refused(_) if state != RunState::Open => {
            return run_closed(batch, &as_refused(event), issue, state);
        }
        Standing::Refused(_) => {
            let renewed = advance(batch.desk(), first.seq, &Step::Renew, at)?;
            let effect = renewed.map_err(|_| lost_effect::<R>())?.effect;
            let run = issue.run(&event.facts);
            batch.desk().runs().count(run, at, |counts| counts.in_flight += 1);
            Outlook::Performs { seq: first.seq, attempt: effect.standing.attempt() }
        }
        Standing::Withheld(_) | Standing::Intended(_) | Standing::InFlight(_) => {
            Outlook::InFlight { seq: first.seq }
        }
        Standing::Done(_) | Standing::Ambiguous(_) => Outlook::Said,
    };
    let seq = batch.sighting(event, first.seq)?;
    let filed = if outlook == Outlook::Said {
        let about = About { seq, of: Some(first.seq), at, reopens: false };
        let copy: fn(Original<'_>) -> Occasion<'_> = |first| Occasion::Copy { first };
        told_of(batch, issue, copy, &first, &standing, about, event)?
    } else {
        Vec::new()
    };
    Ok((Verdict::Duplicate { seq, first }, Told { filed, outlook }))
}

fn standing<R: Recording>(batch: &mut R, seq: Seq) -> Result<Standing, R::Error> {
    let effect = batch.desk().effect(seq)?.ok_or_else(lost_effect::<R>)?;
    Ok(effect.standing)
}

/// What is said of a delivery that stands beside an earlier one.
fn told_of<R: Recording>(
    batch: &mut R,
    issue: &dyn Issue,
    occasion: fn(Original<'_>) -> Occasion<'_>,
    first: &First,
    standing: &Standing,
    about: About,
    event: &Event,
) -> Result<Vec<Filed>, R::Error> {
    let receipt = batch.desk().receipt_of(first.seq)?;
    let facts = parsed(&first.facts).ok_or_else(|| {
        let message = "the facts of an earlier event cannot be read";
        R::poisoned(Fault::new(FaultKind::Internal, message))
    })?;
    let receipt = receipt.as_deref();
    let original = Original { seq: first.seq, facts: &facts, standing, receipt };
    told(batch, issue, occasion(original), about, &event.facts)
}

fn told<R: Recording>(
    batch: &mut R,
    issue: &dyn Issue,
    occasion: Occasion<'_>,
    about: About,
    facts: &Object<'_>,
) -> Result<Vec<Filed>, R::Error> {
    let desk = batch.desk();
    let said = Said { occasion, seq: about.seq, at: about.at, facts, taken: &*desk };
    let documents = say(issue, &said).map_err(R::poisoned)?;
    Ok(file(desk, documents, about)?)
}

/// An event that may not come in, as something to be kept all the same.
fn as_refused(event: &Event) -> Refused {
    Refused {
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

fn lost_effect<R: Recording>() -> R::Error {
    let message = "the effect of the first event under this key is not where it was left";
    R::poisoned(Fault::new(FaultKind::Internal, message))
}
