//! Work other than recording that is written in the same group commits: claims, retention, the
//! steps of effects.
//!
//! What holds for recording holds here: rolled back means nothing changed, and an answer waits for
//! the commit. A task reads and writes inside the transaction only, and may be asked to do so again
//! after a rollback; what it would tell the world is told after the commit.

use admit_core::Fault;

use super::conn::{Conn, Result};
use super::head::Position;
use crate::common::job::{Answered, Reply, Waiting};
use crate::common::news::News;

/// The open transaction. Whoever has it holds the lock on the head of the ledger, and the lease of
/// this gate was alive when it was taken: no other gate writes, and none takes this one for dead.
pub(super) struct Tx<'t> {
    pub(super) conn: &'t Conn,
    /// Which start of this gate writes.
    pub(super) epoch: u64,
    /// Every epoch that this process has had.
    pub(super) own: &'t [u64],
    /// Whether other gates may be taken for dead: not while this one's own lease ran out just now,
    /// for theirs may have for the same reason.
    pub(super) may_judge: bool,
    /// Where the ledger stands; written back before the commit.
    pub(super) position: &'t mut Position,
}

/// One piece of work with an answer.
pub(super) trait Work: Send + 'static {
    type Answer: Send + 'static;

    /// Does it. After an error the transaction is rolled back.
    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer>;

    /// Tells whoever waits for news of it; the commit is durable.
    fn tell(&self, _: &Self::Answer, _: &News) {}
}

/// A piece of work as the writer sees it, whatever its answer is.
pub(super) trait Task: Send {
    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()>;
    fn committed(self: Box<Self>, news: &News);
    fn failed(self: Box<Self>, fault: &Fault);
    fn unknown(&mut self, fault: &Fault);
}

/// Work for the writer, and where its answer will be.
pub(super) fn task<W: Work>(work: W) -> (Box<dyn Task>, Reply<W::Answer>) {
    let (waiting, answer) = Waiting::new(work);
    (Box::new(waiting), answer)
}

impl<W: Work> Task for Waiting<W, W::Answer> {
    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        self.answer = None;
        self.answer = Some(self.work.write(tx)?);
        Ok(())
    }

    fn committed(self: Box<Self>, news: &News) {
        Waiting::committed(*self, |work, answer| work.tell(answer, news));
    }

    fn failed(self: Box<Self>, fault: &Fault) {
        Waiting::failed(*self, fault);
    }

    fn unknown(&mut self, fault: &Fault) {
        Waiting::unknown(self, fault);
    }
}

impl Answered for Box<dyn Task> {
    fn committed(self, news: &News) {
        Task::committed(self, news);
    }

    fn failed(self, fault: &Fault) {
        Task::failed(self, fault);
    }
}
