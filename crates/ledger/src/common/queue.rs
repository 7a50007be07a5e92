//! Where calls are handed to a ledger's writer, and how its threads end.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use admit_core::{Entry, Fault, FaultKind, Recorded};
use tokio::sync::oneshot;

use super::job::{Job, Reply, stopped};
use crate::gauges::Gauges;
use crate::issuance::{Issuing, Kept};
use crate::port::BoxFuture;

/// The queue before the writer. Dropping it lets the writer finish what was handed in, and waits for
/// the threads to end.
pub(crate) struct Queue<T> {
    /// `None` only while it is dropped.
    jobs: Option<SyncSender<Job<T>>>,
    gauges: Arc<Gauges>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<T> Queue<T> {
    pub(crate) fn new(
        jobs: SyncSender<Job<T>>,
        gauges: Arc<Gauges>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        Self { jobs: Some(jobs), gauges, threads: Mutex::new(threads) }
    }

    /// Hands a job to the writer, or says why nothing of it will happen.
    fn hand_in(&self, job: Job<T>) -> Result<(), Fault> {
        let sent = match &self.jobs {
            Some(jobs) => jobs.try_send(job),
            None => Err(TrySendError::Disconnected(job)),
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

    /// Has a batch recorded in the next commit.
    pub(crate) fn record(
        &self,
        batch: Vec<Entry>,
    ) -> BoxFuture<'static, Vec<Result<Recorded, Fault>>> {
        self.batch(batch, |batch, reply| Job::Record { batch, reply })
    }

    /// The same at a door that issues documents.
    pub(crate) fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: Issuing,
    ) -> BoxFuture<'static, Vec<Result<Kept, Fault>>> {
        self.batch(batch, |batch, reply| Job::RecordIssuing { batch, issuing, reply })
    }

    /// It is handed in before anybody waits for the answer, so that batches keep their order.
    fn batch<R: Send + 'static>(
        &self,
        batch: Vec<Entry>,
        job: impl FnOnce(Vec<Entry>, oneshot::Sender<Vec<Result<R, Fault>>>) -> Job<T>,
    ) -> BoxFuture<'static, Vec<Result<R, Fault>>> {
        let events = batch.len();
        let each = move |fault: Fault| (0..events).map(|_| Err(fault.clone())).collect();
        let (reply, answer) = oneshot::channel();
        let sent = self.hand_in(job(batch, reply));
        Box::pin(async move {
            match sent {
                Ok(()) => answer.await.unwrap_or_else(|_| each(stopped())),
                Err(fault) => each(fault),
            }
        })
    }

    /// Has a piece of work done in the next commit.
    pub(crate) async fn task<A>(&self, task: T, answer: Reply<A>) -> Result<A, Fault> {
        self.hand_in(Job::Task(task))?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.jobs = None;
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the ledger ended by a panic");
            }
        }
    }
}
