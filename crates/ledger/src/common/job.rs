//! The calls a writer serves, and their answers once the commit that holds them is durable.

use std::collections::VecDeque;

use admit_core::json::{self, Object};
use admit_core::{Entry, Fault, FaultKind, Issue, Recorded, Verdict};
use tokio::sync::oneshot;

use super::news::{News, Noted};
use crate::desk::Told;
use crate::issuance::{Issuing, Kept};

/// One call, waiting for its commit. `T` is whatever the ledger calls work other than recording.
pub(crate) enum Job<T> {
    /// Of `record`.
    Record { batch: Vec<Entry>, reply: oneshot::Sender<Vec<Result<Recorded, Fault>>> },
    /// Of `record_issuing`.
    RecordIssuing {
        batch: Vec<Entry>,
        issuing: Issuing,
        reply: oneshot::Sender<Vec<Result<Kept, Fault>>>,
    },
    /// Of anything else that writes.
    Task(T),
}

/// Work other than recording, as far as answering it goes.
pub(crate) trait Answered {
    /// The commit is durable.
    fn committed(self, news: &News);

    /// It did not happen, or nobody knows.
    fn failed(self, fault: &Fault);
}

/// A task fills a commit like so many events.
const TASK_WEIGHT: usize = 64;

/// So many bytes of a body fill a commit like one more event, because a commit is kept in memory until it is
/// written: at 1024 events a commit, 32 MiB.
const BYTES_LIKE_AN_EVENT: usize = 32 << 10;

impl<T> Job<T> {
    pub(crate) fn entries(&self) -> &[Entry] {
        match self {
            Self::Record { batch, .. } | Self::RecordIssuing { batch, .. } => batch,
            Self::Task(_) => &[],
        }
    }

    /// What puts its decisions into words, at a door that issues documents.
    pub(crate) fn issue(&self) -> Option<&dyn Issue> {
        if let Self::RecordIssuing { issuing, .. } = self { Some(&*issuing.issue) } else { None }
    }

    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Record { batch, .. } | Self::RecordIssuing { batch, .. } => {
                batch.iter().map(|entry| 1 + body_bytes(entry) / BYTES_LIKE_AN_EVENT).sum()
            }
            Self::Task(_) => TASK_WEIGHT,
        }
    }
}

fn body_bytes(entry: &Entry) -> usize {
    match entry {
        Entry::Event(event) => event.body.len(),
        Entry::Refused(refused) => refused.body.len(),
    }
}

impl<T: Answered> Job<T> {
    /// Nothing of it happened, or nobody knows.
    pub(crate) fn fail(self, fault: &Fault) {
        match self {
            Self::Record { batch, reply } => {
                let faults = batch.iter().map(|_| Err(fault.clone())).collect();
                reply.send(faults).unwrap_or_default();
            }
            Self::RecordIssuing { batch, reply, .. } => {
                let faults = batch.iter().map(|_| Err(fault.clone())).collect();
                reply.send(faults).unwrap_or_default();
            }
            Self::Task(task) => task.failed(fault),
        }
    }
}

/// What became of an entry, once its commit is durable.
pub(crate) struct Written {
    pub(crate) verdict: Verdict,
    /// How the record stands that it tells of.
    pub(crate) outcome: Option<Object<'static>>,
    /// What is said about it at a door that issues documents.
    pub(crate) told: Option<Box<Told>>,
}

impl Written {
    /// A verdict that has nothing beside it.
    pub(crate) fn plain(verdict: Verdict) -> Self {
        Self { verdict, outcome: None, told: None }
    }
}

/// What became of each entry of a group, in order.
pub(crate) type Outcomes = VecDeque<Result<Written, Fault>>;

/// Answers the calls of a durable commit, each with the outcomes that belong to it.
pub(crate) fn answer_all<T: Answered>(
    group: Vec<Job<T>>,
    mut outcomes: Outcomes,
    ledger: u32,
    news: &News,
) {
    let mut noted = Noted::default();
    for job in group {
        match job {
            Job::Record { batch, reply } => {
                answer(batch, reply, &mut outcomes, ledger, &mut noted);
            }
            Job::RecordIssuing { batch, issuing, reply } => {
                answer_issuing(batch, &issuing, reply, &mut outcomes, ledger);
            }
            Job::Task(task) => task.committed(news),
        }
    }
    noted.tell(news);
}

/// Hands the next outcomes to the call they belong to.
fn answer(
    batch: Vec<Entry>,
    reply: oneshot::Sender<Vec<Result<Recorded, Fault>>>,
    outcomes: &mut Outcomes,
    ledger: u32,
    noted: &mut Noted,
) {
    let recorded = batch
        .into_iter()
        .map(|entry| {
            let written = outcomes.pop_front().expect("every entry has an outcome")?;
            let Written { verdict, outcome, .. } = written;
            let recorded = Recorded { entry, verdict, ledger, outcome };
            noted.note(&recorded);
            Ok(recorded)
        })
        .collect();
    // Whoever asked may have gone away; the commit stands all the same.
    reply.send(recorded).unwrap_or_default();
}

/// The same at a door that issues: whoever performs is told first, in ledger order.
fn answer_issuing(
    batch: Vec<Entry>,
    issuing: &Issuing,
    reply: oneshot::Sender<Vec<Result<Kept, Fault>>>,
    outcomes: &mut Outcomes,
    ledger: u32,
) {
    let kept = batch
        .into_iter()
        .map(|entry| {
            let written = outcomes.pop_front().expect("every entry has an outcome")?;
            let Written { verdict, outcome, told } = written;
            let told = told.expect("an entry of a door that issues was told about");
            let recorded = Recorded { entry, verdict, ledger, outcome };
            let kept = Kept { recorded, filed: told.filed, outlook: told.outlook };
            issuing.handover.recorded(&kept);
            Ok(kept)
        })
        .collect();
    reply.send(kept).unwrap_or_default();
}

/// The answer of a task, on its way: computed in the transaction, sent after the commit.
pub(crate) struct Waiting<W, A> {
    pub(crate) work: W,
    pub(crate) answer: Option<A>,
    reply: oneshot::Sender<Result<A, Fault>>,
}

/// What became of a piece of work, once its commit is durable.
pub(crate) type Reply<A> = oneshot::Receiver<Result<A, Fault>>;

impl<W, A> Waiting<W, A> {
    pub(crate) fn new(work: W) -> (Self, Reply<A>) {
        let (reply, answer) = oneshot::channel();
        (Self { work, answer: None, reply }, answer)
    }

    /// Sends the answer, after `tell` was told of it.
    pub(crate) fn committed(self, tell: impl FnOnce(&W, &A)) {
        // None when it failed alone, of which whoever asked was told.
        let Some(answer) = self.answer else { return };
        tell(&self.work, &answer);
        // Whoever asked may have gone away; the commit stands all the same.
        self.reply.send(Ok(answer)).unwrap_or_default();
    }

    pub(crate) fn failed(self, fault: &Fault) {
        self.reply.send(Err(for_tasks(fault))).unwrap_or_default();
    }

    /// Sends the fault now, ahead of the commit; the work itself stays in the group.
    pub(crate) fn unknown(&mut self, fault: &Fault) {
        let (nobody, _) = oneshot::channel();
        let reply = std::mem::replace(&mut self.reply, nobody);
        reply.send(Err(for_tasks(fault))).unwrap_or_default();
    }
}

/// A write command that is left out of its group because the database refused its content.
pub(crate) fn unfit(error: impl std::error::Error + Send + Sync + 'static) -> Fault {
    let message = "this cannot be stored as it is, nothing of it was";
    Fault::caused_by(FaultKind::Internal, message, error)
}

/// The writer's words are for producers; these are for consumers and operators.
fn for_tasks(fault: &Fault) -> Fault {
    let message = match fault.kind {
        FaultKind::OutcomeUnknown => "the ledger did not confirm the commit, ask again to see",
        FaultKind::LedgerUnavailable => "the ledger is unavailable, nothing was changed",
        FaultKind::Overloaded | FaultKind::Draining | FaultKind::Internal => fault.message,
    };
    Fault { message, ..fault.clone() }
}

/// The writer died with the answer: what it did is on disk or it is not.
pub(crate) fn stopped() -> Fault {
    let message = "the ledger stopped before it answered, send the same event again";
    Fault::new(FaultKind::OutcomeUnknown, message)
}

/// Facts as they are kept: compact JSON.
pub(crate) fn facts_text(facts: &Object<'static>) -> String {
    let mut text = Vec::with_capacity(256);
    json::write_object(facts, &mut text);
    String::from_utf8(text).expect("json is written as utf-8")
}
