//! Commands of the writer thread, and the replies once their commit is durable.

use std::collections::VecDeque;

use admit_core::json::{self, Object};
use admit_core::{Entry, Fault, FaultKind, Issue, RecordedEntry, Verdict};
use tokio::sync::oneshot;

use super::notifier::{Notifier, StreamUpdates};
use crate::issuance::{IssueHandlers, RecordedDelivery};
use crate::rules::IssueResult;

/// A call waiting for its commit. `T` is the ledger's type of write operations other than recording.
pub(crate) enum WriteCommand<T> {
    /// A call of `record`.
    Record { batch: Vec<Entry>, reply: oneshot::Sender<Vec<Result<RecordedEntry, Fault>>> },
    /// A call of `record_issuing`.
    RecordIssuing {
        batch: Vec<Entry>,
        issuing: IssueHandlers,
        reply: oneshot::Sender<Vec<Result<RecordedDelivery, Fault>>>,
    },
    /// Any other write operation.
    Op(T),
}

/// How a write operation is replied to.
pub(crate) trait Completion {
    /// The commit is durable.
    fn committed(self, notifier: &Notifier);

    /// The commit failed or its outcome is unknown.
    fn failed(self, fault: &Fault);
}

/// Weight of a write operation in a commit, in events.
const OP_WEIGHT: usize = 64;

/// Bytes of a body that weigh as much as another event. A commit is kept in memory until it is written:
/// 32 MiB at 1024 events a commit.
const BYTES_LIKE_AN_EVENT: usize = 32 << 10;

impl<T> WriteCommand<T> {
    pub(crate) fn entries(&self) -> &[Entry] {
        match self {
            Self::Record { batch, .. } | Self::RecordIssuing { batch, .. } => batch,
            Self::Op(_) => &[],
        }
    }

    /// The document factory, at a door that issues documents.
    pub(crate) fn issue(&self) -> Option<&dyn Issue> {
        if let Self::RecordIssuing { issuing, .. } = self { Some(&*issuing.issue) } else { None }
    }

    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Record { batch, .. } | Self::RecordIssuing { batch, .. } => {
                batch.iter().map(|entry| 1 + body_bytes(entry) / BYTES_LIKE_AN_EVENT).sum()
            }
            Self::Op(_) => OP_WEIGHT,
        }
    }
}

fn body_bytes(entry: &Entry) -> usize {
    match entry {
        Entry::Event(event) => event.body.len(),
        Entry::Refused(refused) => refused.body.len(),
    }
}

impl<T: Completion> WriteCommand<T> {
    /// Replies that nothing was committed, or that the outcome is unknown.
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
            Self::Op(op) => op.failed(fault),
        }
    }
}

/// Result of an entry, once its commit is durable.
pub(crate) struct EntryOutcome {
    pub(crate) verdict: Verdict,
    /// State of the record the event belongs to.
    pub(crate) outcome: Option<Object<'static>>,
    /// Its documents, at a door that issues documents.
    pub(crate) issued: Option<Box<IssueResult>>,
}

impl EntryOutcome {
    /// A verdict without further results.
    pub(crate) fn plain(verdict: Verdict) -> Self {
        Self { verdict, outcome: None, issued: None }
    }
}

/// Results of the entries of a commit, in order.
pub(crate) type Outcomes = VecDeque<Result<EntryOutcome, Fault>>;

/// Replies to the calls of a durable commit.
pub(crate) fn reply_all<T: Completion>(
    group: Vec<WriteCommand<T>>,
    mut outcomes: Outcomes,
    ledger: u32,
    notifier: &Notifier,
) {
    let mut updates = StreamUpdates::default();
    for command in group {
        match command {
            WriteCommand::Record { batch, reply } => {
                reply_batch(batch, reply, &mut outcomes, ledger, &mut updates);
            }
            WriteCommand::RecordIssuing { batch, issuing, reply } => {
                reply_issuing(batch, &issuing, reply, &mut outcomes, ledger);
            }
            WriteCommand::Op(op) => op.committed(notifier),
        }
    }
    updates.send(notifier);
}

/// Replies to one call with the next outcomes.
fn reply_batch(
    batch: Vec<Entry>,
    reply: oneshot::Sender<Vec<Result<RecordedEntry, Fault>>>,
    outcomes: &mut Outcomes,
    ledger: u32,
    updates: &mut StreamUpdates,
) {
    let recorded = batch
        .into_iter()
        .map(|entry| {
            let written = outcomes.pop_front().expect("every entry has an outcome")?;
            let EntryOutcome { verdict, outcome, .. } = written;
            let recorded = RecordedEntry { entry, verdict, ledger, outcome };
            updates.note(&recorded);
            Ok(recorded)
        })
        .collect();
    // The receiver may be gone; the commit is durable all the same.
    reply.send(recorded).unwrap_or_default();
}

/// The same at a door that issues documents: effects are handed over first, in ledger order.
fn reply_issuing(
    batch: Vec<Entry>,
    issuing: &IssueHandlers,
    reply: oneshot::Sender<Vec<Result<RecordedDelivery, Fault>>>,
    outcomes: &mut Outcomes,
    ledger: u32,
) {
    let kept = batch
        .into_iter()
        .map(|entry| {
            let written = outcomes.pop_front().expect("every entry has an outcome")?;
            let EntryOutcome { verdict, outcome, issued } = written;
            let issued = issued.expect("an entry of a door that issues has a result");
            let recorded = RecordedEntry { entry, verdict, ledger, outcome };
            let kept =
                RecordedDelivery { recorded, filed: issued.filed, follow_up: issued.follow_up };
            issuing.handover.recorded(&kept);
            Ok(kept)
        })
        .collect();
    reply.send(kept).unwrap_or_default();
}

/// A write operation with its output, which is computed in the transaction and sent after the commit.
pub(crate) struct PendingReply<W, A> {
    pub(crate) op: W,
    pub(crate) output: Option<A>,
    reply: oneshot::Sender<Result<A, Fault>>,
}

/// Receives the output of an operation once its commit is durable.
pub(crate) type ReplyReceiver<A> = oneshot::Receiver<Result<A, Fault>>;

impl<W, A> PendingReply<W, A> {
    pub(crate) fn new(op: W) -> (Self, ReplyReceiver<A>) {
        let (reply, output) = oneshot::channel();
        (Self { op, output: None, reply }, output)
    }

    /// Sends the output, after `notify` has seen it.
    pub(crate) fn committed(self, notify: impl FnOnce(&W, &A)) {
        // None if it failed alone, which was replied already.
        let Some(output) = self.output else { return };
        notify(&self.op, &output);
        // The receiver may be gone; the commit is durable all the same.
        self.reply.send(Ok(output)).unwrap_or_default();
    }

    pub(crate) fn failed(self, fault: &Fault) {
        self.reply.send(Err(fault_for_op(fault))).unwrap_or_default();
    }

    /// Sends the fault ahead of the commit; the operation itself stays in the batch.
    pub(crate) fn unknown(&mut self, fault: &Fault) {
        let (dropped, _) = oneshot::channel();
        let reply = std::mem::replace(&mut self.reply, dropped);
        reply.send(Err(fault_for_op(fault))).unwrap_or_default();
    }
}

/// Fault of an operation left out of its batch because the database rejected its content.
pub(crate) fn rejected(error: impl std::error::Error + Send + Sync + 'static) -> Fault {
    let message = "the database rejected this content, nothing of it was stored";
    Fault::caused_by(FaultKind::Internal, message, error)
}

/// Replaces messages addressed to producers with ones for consumers and operators.
fn fault_for_op(fault: &Fault) -> Fault {
    let message = match fault.kind {
        FaultKind::OutcomeUnknown => {
            "the ledger did not confirm the commit, read again to find out"
        }
        FaultKind::LedgerUnavailable => "the ledger is unavailable, nothing was changed",
        FaultKind::Overloaded | FaultKind::Draining | FaultKind::Internal => fault.message,
    };
    Fault { message, ..fault.clone() }
}

/// The writer ended before it replied: the outcome is unknown.
pub(crate) fn stopped() -> Fault {
    let message = "the ledger stopped before it replied, send the same event again";
    Fault::new(FaultKind::OutcomeUnknown, message)
}

/// Facts as stored: compact JSON.
pub(crate) fn facts_text(facts: &Object<'static>) -> String {
    let mut text = Vec::with_capacity(256);
    json::write_object(facts, &mut text);
    String::from_utf8(text).expect("json is written as utf-8")
}
