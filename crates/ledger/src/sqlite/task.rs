//! Work other than recording that is written in the same group commits: claims, retention, the
//! steps of effects.
//!
//! What holds for recording holds here: rolled back means nothing changed, and an answer waits for
//! the commit. A task reads and writes inside the transaction only; what it would tell the world is
//! told after the commit.

use admit_core::Fault;
use rusqlite::Connection;

use super::keys::KeyIndex;
use crate::common::job::{Answered, Reply, Waiting};
use crate::common::news::News;

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

/// Work for the writer, and where its answer will be.
pub(super) fn task<W: Work>(work: W) -> (Box<dyn Task>, Reply<W::Answer>) {
    let (waiting, answer) = Waiting::new(work);
    (Box::new(waiting), answer)
}

impl<W: Work> Task for Waiting<W, W::Answer> {
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.answer = Some(self.work.write(tx)?);
        Ok(())
    }

    fn committed(self: Box<Self>, news: &News) {
        Waiting::committed(*self, |work, answer| work.tell(answer, news));
    }

    fn failed(self: Box<Self>, fault: &Fault) {
        Waiting::failed(*self, fault);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger as _;
    use crate::sqlite::{Options, SqliteLedger};
    use admit_core::{FaultKind, Millis};

    struct Panics;

    impl Work for Panics {
        type Answer = ();

        fn write(&mut self, _: &mut Tx<'_>) -> rusqlite::Result<()> {
            panic!("on purpose")
        }
    }

    #[tokio::test]
    async fn a_writer_that_panics_stops_the_gate_instead_of_refusing_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(Options::new(folder.path(), Millis(1))).unwrap();
        assert!(ledger.is_healthy());
        ledger.write(Panics).await.unwrap_err();
        let fault = ledger.must_stop().await;
        assert_eq!(fault.kind, FaultKind::OutcomeUnknown);
        assert!(fault.to_string().contains("ended by a panic"), "{fault}");
        assert!(!ledger.is_healthy());
    }
}
