//! Write operations other than recording that share the group commits: claims, retention, effect steps.
//!
//! As with recording, a rollback means that nothing changed, and a reply waits for the commit. An operation
//! reads and writes inside the transaction only and may be run again after a rollback; notifications are
//! sent after the commit.

use admit_core::Fault;

use super::conn::{Conn, Result};
use super::head_lock::Position;
use crate::common::notifier::Notifier;
use crate::common::write_command::{Completion, PendingReply, ReplyReceiver};

/// The open transaction. It holds the lock on the head of the ledger, and the lease of this gate was alive
/// when it was taken: no other gate writes, and none treats this one as dead.
pub(super) struct Tx<'t> {
    pub(super) conn: &'t Conn,
    /// Current epoch of this gate.
    pub(super) epoch: u64,
    /// All epochs of this process.
    pub(super) own: &'t [u64],
    /// Whether other gates may be treated as dead: not right after this gate's own lease ran out, because
    /// theirs may have for the same reason.
    pub(super) may_recover_others: bool,
    /// Counters of the ledger; written back before the commit.
    pub(super) position: &'t mut Position,
}

/// A write operation with a result.
pub(super) trait WriteOp: Send + 'static {
    type Output: Send + 'static;

    /// Executes it. After an error the transaction is rolled back.
    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output>;

    /// Notifies subscribers after the commit.
    fn notify(&self, _: &Self::Output, _: &Notifier) {}
}

/// Type-erased write operation, as the writer sees it.
pub(super) trait ErasedWriteOp: Send {
    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()>;
    fn committed(self: Box<Self>, notifier: &Notifier);
    fn failed(self: Box<Self>, fault: &Fault);
    fn unknown(&mut self, fault: &Fault);
}

/// Boxes an operation, and returns the receiver of its result.
pub(super) fn pending<W: WriteOp>(op: W) -> (Box<dyn ErasedWriteOp>, ReplyReceiver<W::Output>) {
    let (pending, output) = PendingReply::new(op);
    (Box::new(pending), output)
}

impl<W: WriteOp> ErasedWriteOp for PendingReply<W, W::Output> {
    fn write(&mut self, tx: &mut Tx<'_>) -> Result<()> {
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

    fn unknown(&mut self, fault: &Fault) {
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
