//! Write operations other than recording that share the group commits: claims, retention, effect steps.
//!
//! As with recording, a rollback means that nothing changed, and a reply waits for the commit. An operation
//! reads and writes inside the transaction only and may be run again after a rollback; notifications are
//! sent after the commit. An operation that the database rejects fails alone, like a poisoned event; the
//! rest of its batch is committed without it.

use admit_core::Fault;
use rusqlite::Connection;

use super::keys::KeyIndex;
use crate::common::notifier::Notifier;
use crate::common::write_command::{Completion, PendingReply, ReplyReceiver};

/// The open transaction.
pub(super) struct Tx<'t> {
    pub(super) conn: &'t Connection,
    pub(super) keys: &'t mut KeyIndex,
}

/// A write operation with a result.
pub(super) trait WriteOp: Send + 'static {
    type Output: Send + 'static;

    /// Executes it. After an error the transaction is rolled back; if the error was another operation's,
    /// this is called again.
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output>;

    /// Notifies subscribers after the commit.
    fn notify(&self, _: &Self::Output, _: &Notifier) {}
}

/// Type-erased write operation, as the writer sees it.
pub(super) trait ErasedWriteOp: Send {
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;
    fn committed(self: Box<Self>, notifier: &Notifier);
    fn failed(self: Box<Self>, fault: &Fault);
    /// Excludes it from the commit; its caller gets the fault at once.
    fn left_out(&mut self, fault: &Fault);
}

/// Boxes an operation, and returns the receiver of its result.
pub(super) fn pending<W: WriteOp>(op: W) -> (Box<dyn ErasedWriteOp>, ReplyReceiver<W::Output>) {
    let (pending, output) = PendingReply::new(op);
    (Box::new(pending), output)
}

impl<W: WriteOp> ErasedWriteOp for PendingReply<W, W::Output> {
    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.output = None;
        self.output = Some(self.op.write(tx)?);
        Ok(())
    }

    fn committed(self: Box<Self>, notifier: &Notifier) {
        PendingReply::committed(*self, |op, output| op.notify(output, notifier));
    }

    fn failed(self: Box<Self>, fault: &Fault) {
        PendingReply::failed(*self, fault);
    }

    fn left_out(&mut self, fault: &Fault) {
        self.output = None;
        PendingReply::unknown(self, fault);
    }
}

impl Completion for Box<dyn ErasedWriteOp> {
    fn committed(self, notifier: &Notifier) {
        ErasedWriteOp::committed(self, notifier);
    }

    fn failed(self, fault: &Fault) {
        ErasedWriteOp::failed(self, fault);
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

    struct PanickingOp;

    impl WriteOp for PanickingOp {
        type Output = ();

        fn write(&mut self, _: &mut Tx<'_>) -> rusqlite::Result<()> {
            panic!("on purpose")
        }
    }

    /// Reports that the writer has reached it, and blocks the writer until released.
    struct BlockingOp(SyncSender<()>, Receiver<()>);

    impl WriteOp for BlockingOp {
        type Output = ();

        fn write(&mut self, _: &mut Tx<'_>) -> rusqlite::Result<()> {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
            Ok(())
        }
    }

    /// Writes something, then fails.
    struct FailingOp(fn() -> rusqlite::Error);

    impl WriteOp for FailingOp {
        type Output = ();

        fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
            tx.conn.execute("INSERT INTO meta (name, value) VALUES ('half', 1)", [])?;
            Err(self.0())
        }
    }

    /// Counts the rows written by `FailingOp`.
    struct HalfCount;

    impl WriteOp for HalfCount {
        type Output = u64;

        fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<u64> {
            let half = "SELECT count(*) FROM meta WHERE name = 'half'";
            tx.conn.query_row(half, [], |row| row.get(0))
        }
    }

    /// Results of an operation that fails with `error`, and of its neighbours in the same commit.
    async fn with_neighbours(error: fn() -> rusqlite::Error) -> [Result<u64, FaultKind>; 3] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(Options::new(folder.path(), Millis(1))).unwrap();
        let ((come, has_come), (go, wait)) = (sync_channel(1), sync_channel(1));
        let pending = ledger.write(BlockingOp(come, wait));
        let group = async {
            // Everything sent while the writer is blocked is one batch.
            has_come.recv().unwrap();
            let sent = tokio::join!(
                ledger.write(HalfCount),
                ledger.write(FailingOp(error)),
                ledger.write(HalfCount),
                async { go.send(()).unwrap() },
            );
            [sent.0, sent.1.map(|()| 0), sent.2]
        };
        let (waited, answers) = tokio::join!(pending, group);
        waited.unwrap();
        answers.map(|output| output.map_err(|fault| fault.kind))
    }

    #[tokio::test]
    async fn a_task_that_is_refused_fails_alone_and_leaves_nothing() {
        for refused in [
            || rusqlite::Error::ToSqlConversionFailure("too large".into()),
            || rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CONSTRAINT), None),
            || rusqlite::Error::QueryReturnedNoRows,
        ] as [fn() -> rusqlite::Error; 3]
        {
            let answers = with_neighbours(refused).await;
            assert_eq!(answers, [Ok(0), Err(FaultKind::Internal), Ok(0)], "{}", refused());
        }
    }

    #[tokio::test]
    async fn a_task_that_fails_with_its_disk_fails_with_its_group() {
        let full = || rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None);
        let answers = with_neighbours(full).await;
        assert_eq!(answers, [Err(FaultKind::LedgerUnavailable); 3]);
    }

    #[tokio::test]
    async fn a_writer_that_panics_stops_the_gate_instead_of_refusing_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(Options::new(folder.path(), Millis(1))).unwrap();
        assert!(ledger.is_healthy());
        ledger.write(PanickingOp).await.unwrap_err();
        let fault = ledger.must_stop().await;
        assert_eq!(fault.kind, FaultKind::OutcomeUnknown);
        assert!(fault.to_string().contains("panicked"), "{fault}");
        assert!(!ledger.is_healthy());
    }
}
