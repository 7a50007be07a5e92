//! Queue of the writer thread, and the shutdown of the ledger's threads.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use admit_core::{Entry, Fault, FaultKind, RecordedEntry};
use tokio::sync::oneshot;

use super::write_command::{ReplyReceiver, WriteCommand, stopped};
use crate::gauges::Gauges;
use crate::issuance::{IssueHandlers, RecordedDelivery};
use crate::port::BoxFuture;

/// Queue of the writer. Dropping it lets the writer finish queued calls and waits for the threads to
/// end.
pub(crate) struct Queue<T> {
    /// `None` only while it is being dropped.
    commands: Option<SyncSender<WriteCommand<T>>>,
    gauges: Arc<Gauges>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<T> Queue<T> {
    pub(crate) fn new(
        commands: SyncSender<WriteCommand<T>>,
        gauges: Arc<Gauges>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        Self { commands: Some(commands), gauges, threads: Mutex::new(threads) }
    }

    /// Queues a command, or returns why it will not be executed.
    fn enqueue(&self, command: WriteCommand<T>) -> Result<(), Fault> {
        let sent = match &self.commands {
            Some(commands) => commands.try_send(command),
            None => Err(TrySendError::Disconnected(command)),
        };
        sent.map_err(|error| match error {
            TrySendError::Full(_) => Fault::new(
                FaultKind::Overloaded,
                "too many events wait for the ledger, nothing was stored",
            ),
            TrySendError::Disconnected(_) => Fault::new(
                FaultKind::LedgerUnavailable,
                "the ledger has stopped, nothing was stored",
            ),
        })?;
        self.gauges.call_handed_in();
        Ok(())
    }

    /// Records a batch in the next commit.
    pub(crate) fn record(
        &self,
        batch: Vec<Entry>,
    ) -> BoxFuture<'static, Vec<Result<RecordedEntry, Fault>>> {
        self.batch(batch, |batch, reply| WriteCommand::Record { batch, reply })
    }

    /// The same at a door that issues documents.
    pub(crate) fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: IssueHandlers,
    ) -> BoxFuture<'static, Vec<Result<RecordedDelivery, Fault>>> {
        self.batch(batch, |batch, reply| WriteCommand::RecordIssuing { batch, issuing, reply })
    }

    /// Queued before the future is polled, so that batches keep their order.
    fn batch<R: Send + 'static>(
        &self,
        batch: Vec<Entry>,
        command: impl FnOnce(Vec<Entry>, oneshot::Sender<Vec<Result<R, Fault>>>) -> WriteCommand<T>,
    ) -> BoxFuture<'static, Vec<Result<R, Fault>>> {
        let events = batch.len();
        let each = move |fault: Fault| (0..events).map(|_| Err(fault.clone())).collect();
        let (reply, result) = oneshot::channel();
        let sent = self.enqueue(command(batch, reply));
        Box::pin(async move {
            match sent {
                Ok(()) => result.await.unwrap_or_else(|_| each(stopped())),
                Err(fault) => each(fault),
            }
        })
    }

    /// Runs a write operation in the next commit.
    pub(crate) async fn op<A>(&self, op: T, result: ReplyReceiver<A>) -> Result<A, Fault> {
        self.enqueue(WriteCommand::Op(op))?;
        result.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.commands = None;
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the ledger panicked");
            }
        }
    }
}
