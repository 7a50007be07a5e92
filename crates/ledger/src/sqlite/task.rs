//! Work other than recording that is written in the same group commits: claims, retention, the
//! steps of effects.
//!
//! What holds for recording holds here: rolled back means nothing changed, and an answer waits for
//! the commit. A task reads and writes inside the transaction only, and may be asked to do so again
//! after a rollback; what it would tell the world is told after the commit. A task that the database
//! refuses fails alone, as a poisoned event does; the rest of its group is written without it.

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

    /// Does it. After an error the transaction is rolled back, and where the error was another
    /// command's, this is called again.
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer>;

    /// Tells whoever waits for news of it; the commit is durable.
    fn tell(&self, _: &Self::Answer, _: &News) {}
}

/// A piece of work as the writer sees it, whatever its answer is.
pub(super) trait Task: Send {
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;
    fn committed(self: Box<Self>, news: &News);
    fn failed(self: Box<Self>, fault: &Fault);
    /// It has no part in the commit; its caller gets the fault at once.
    fn left_out(&mut self, fault: &Fault);
}

/// Work for the writer, and where its answer will be.
pub(super) fn task<W: Work>(work: W) -> (Box<dyn Task>, Reply<W::Answer>) {
    let (waiting, answer) = Waiting::new(work);
    (Box::new(waiting), answer)
}

impl<W: Work> Task for Waiting<W, W::Answer> {
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
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

    fn left_out(&mut self, fault: &Fault) {
        self.answer = None;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger as _;
    use crate::sqlite::{Options, SqliteLedger};
    use admit_core::{FaultKind, Millis};
    use rusqlite::ffi;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    struct Panics;

    impl Work for Panics {
        type Answer = ();

        fn write(&mut self, _: &mut Tx<'_>) -> rusqlite::Result<()> {
            panic!("on purpose")
        }
    }

    /// Reports that the writer has come to it, and holds the writer until it is let go.
    struct Waits(SyncSender<()>, Receiver<()>);

    impl Work for Waits {
        type Answer = ();

        fn write(&mut self, _: &mut Tx<'_>) -> rusqlite::Result<()> {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
            Ok(())
        }
    }

    /// Writes something, then fails.
    struct Fails(fn() -> rusqlite::Error);

    impl Work for Fails {
        type Answer = ();

        fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
            tx.conn.execute("INSERT INTO meta (name, value) VALUES ('half', 1)", [])?;
            Err(self.0())
        }
    }

    /// Counts how much of `Fails` is there.
    struct Half;

    impl Work for Half {
        type Answer = u64;

        fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<u64> {
            let half = "SELECT count(*) FROM meta WHERE name = 'half'";
            tx.conn.query_row(half, [], |row| row.get(0))
        }
    }

    /// What a task that fails so is answered, and its neighbours in the same commit.
    async fn beside(error: fn() -> rusqlite::Error) -> [Result<u64, FaultKind>; 3] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(Options::new(folder.path(), Millis(1))).unwrap();
        let ((come, has_come), (go, wait)) = (sync_channel(1), sync_channel(1));
        let waiting = ledger.write(Waits(come, wait));
        let group = async {
            // Whatever is sent while the writer waits is one group.
            has_come.recv().unwrap();
            let sent = tokio::join!(
                ledger.write(Half),
                ledger.write(Fails(error)),
                ledger.write(Half),
                async { go.send(()).unwrap() },
            );
            [sent.0, sent.1.map(|()| 0), sent.2]
        };
        let (waited, answers) = tokio::join!(waiting, group);
        waited.unwrap();
        answers.map(|answer| answer.map_err(|fault| fault.kind))
    }

    #[tokio::test]
    async fn a_task_that_is_refused_fails_alone_and_leaves_nothing() {
        for refused in [
            || rusqlite::Error::ToSqlConversionFailure("too large".into()),
            || rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CONSTRAINT), None),
            || rusqlite::Error::QueryReturnedNoRows,
        ] as [fn() -> rusqlite::Error; 3]
        {
            let answers = beside(refused).await;
            assert_eq!(answers, [Ok(0), Err(FaultKind::Internal), Ok(0)], "{}", refused());
        }
    }

    #[tokio::test]
    async fn a_task_that_fails_with_its_disk_fails_with_its_group() {
        let full = || rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None);
        let answers = beside(full).await;
        assert_eq!(answers, [Err(FaultKind::LedgerUnavailable); 3]);
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
