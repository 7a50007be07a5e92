//! Work other than recording that is written in the same group commits: claims, retention, the
//! steps of effects.
//!
//! What holds for recording holds here: rolled back means nothing changed, and an answer waits for
//! the commit. A task reads and writes inside the transaction only; what it would tell the world is
//! told after the commit.

use admit_core::{Fault, FaultKind};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::keys::KeyIndex;
use super::news::News;

/// The open transaction.
pub(super) struct Tx<'t> {
    pub(super) conn: &'t Connection,
    pub(super) keys: &'t mut KeyIndex,
}

/// One piece of work with an answer.
pub(super) trait Work: Send + 'static {
    type Answer: Send + 'static;

    /// Does it. After an error the transaction is rolled back.
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer>;

    /// Tells whoever waits for news of it; the commit is durable.
    fn tell(&self, _: &Self::Answer, _: &News) {}
}

/// A piece of work as the writer sees it, whatever its answer is.
pub(super) trait Task: Send {
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;
    fn committed(self: Box<Self>, news: &News);
    fn failed(self: Box<Self>, fault: &Fault);
}

/// Work that waits for its commit.
struct Waiting<W: Work> {
    work: W,
    answer: Option<W::Answer>,
    reply: oneshot::Sender<Result<W::Answer, Fault>>,
}

/// What became of a piece of work, once its commit is durable.
pub(super) type Reply<A> = oneshot::Receiver<Result<A, Fault>>;

/// Work for the writer, and where its answer will be.
pub(super) fn task<W: Work>(work: W) -> (Box<dyn Task>, Reply<W::Answer>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(Waiting { work, answer: None, reply }), answer)
}

impl<W: Work> Task for Waiting<W> {
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.answer = Some(self.work.write(tx)?);
        Ok(())
    }

    fn committed(self: Box<Self>, news: &News) {
        let answer = self.answer.expect("it was written before it was committed");
        self.work.tell(&answer, news);
        // Whoever asked may have gone away; the commit stands all the same.
        self.reply.send(Ok(answer)).unwrap_or_default();
    }

    fn failed(self: Box<Self>, fault: &Fault) {
        // The writer's words are for producers; these are for consumers and operators.
        let message = match fault.kind {
            FaultKind::OutcomeUnknown => "the ledger did not confirm the commit, ask again to see",
            FaultKind::LedgerUnavailable => "the ledger is unavailable, nothing was changed",
            FaultKind::Overloaded | FaultKind::Draining | FaultKind::Internal => fault.message,
        };
        self.reply.send(Err(Fault { message, ..fault.clone() })).unwrap_or_default();
    }
}
