//! Vetting of submissions: on the async thread, or in a small pool of blocking threads.
//!
//! An async thread serves many connections, so expensive work is moved off it: large bodies at once,
//! and the rest of a request when its schema validation has used up the [`Budget`]. A small event is
//! never moved.
//!
//! Invariant: the contract bounds the work of one submission, so a pool thread always becomes free. The
//! time of one request on a pool thread is bounded here.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::available_parallelism;
use std::time::Duration;

use admit_contracts::{Budget, Contract, unless_late};
use admit_core::{Door, Entry, Fault, FaultKind, Submission};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::builder::DoorMount;
use crate::gate::Gate;

/// Largest body that is vetted on an async thread, in bytes: below a millisecond without a schema.
const INLINE_BODY_BYTES_MAX: usize = 64 * 1024;

/// Largest sum of the bodies of one request that is vetted on an async thread.
const INLINE_BODIES_BYTES_MAX: usize = 1024 * 1024;

/// Maximum time of a request on a pool thread. Checked between its events and inside them.
const THREAD_TIME_MAX: Duration = Duration::from_secs(2);

/// Maximum wait for a pool thread.
const WAIT_MAX: Duration = Duration::from_secs(2);

const POOL_FULL: &str = "validation pool is full: too many expensive events at once";
const TIMED_OUT: &str =
    "validation of this request timed out; send fewer events in one request, or retry later";

/// Pool of blocking threads for expensive vetting.
#[derive(Debug)]
pub(crate) struct VettingPool {
    threads: Arc<Semaphore>,
    /// Maximum number of threads for one principal.
    per_principal: usize,
    /// Shares of the principals that use or await a thread, by the principal's index.
    shares: Mutex<HashMap<usize, Weak<Semaphore>>>,
}

impl VettingPool {
    /// Pool with one thread per core, at least two. With several sending principals each may use half of
    /// them.
    pub(crate) fn new(is_shared: bool) -> Self {
        Self::with_threads(available_parallelism().map_or(1, NonZero::get).max(2), is_shared)
    }

    fn with_threads(threads: usize, is_shared: bool) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            per_principal: if is_shared { threads / 2 } else { threads },
            shares: Mutex::default(),
        }
    }

    fn share(&self, index: usize) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&index).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.per_principal));
        shares.insert(index, Arc::downgrade(&share));
        share
    }

    /// Vets submissions on a pool thread.
    async fn vet(
        &self,
        contract: Arc<dyn Contract>,
        door: Door,
        index: usize,
        submissions: Vec<Submission>,
    ) -> Result<Vec<Entry>, Fault> {
        let share = self.share(index);
        let threads = Arc::clone(&self.threads);
        let acquire = async {
            // The principal's share first: waiting for it occupies no thread.
            let own = share.acquire_owned().await.ok()?;
            Some((own, threads.acquire_owned().await.ok()?))
        };
        let acquired = timeout(WAIT_MAX, acquire).await.ok().flatten();
        let permits = acquired.ok_or_else(|| Fault::new(FaultKind::Overloaded, POOL_FULL))?;
        let vetted = spawn_blocking(move || {
            let _permits = permits;
            let started = Instant::now();
            let mut entries = Vec::with_capacity(submissions.len());
            for submission in submissions {
                let is_late = move || started.elapsed() > THREAD_TIME_MAX;
                let vetted = match !entries.is_empty() && is_late() {
                    true => None,
                    false => unless_late(is_late, || contract.vet(&door, submission)),
                };
                entries.push(vetted.ok_or_else(|| Fault::new(FaultKind::Overloaded, TIMED_OUT))?);
            }
            Ok::<_, Fault>(entries)
        });
        match vetted.await {
            Ok(vetted) => vetted,
            // Propagates a panic, as if it had happened on the async thread.
            Err(error) => match error.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(error) => {
                    let message = "vetting of an event was cancelled";
                    Err(Fault::caused_by(FaultKind::Internal, message, error))
                }
            },
        }
    }
}

/// Failure to vet the submissions of a request, of which nothing was stored.
pub(crate) struct VettingFailure {
    /// Cause.
    pub(crate) fault: Fault,
    /// All bodies of the request, in order.
    pub(crate) bodies: Vec<Bytes>,
}

/// Vets the submissions of one request of the principal at `index`, in order.
pub(crate) async fn vet(
    gate: &Gate,
    mount: &DoorMount,
    index: usize,
    submissions: Vec<Submission>,
) -> Result<Vec<Entry>, VettingFailure> {
    let (mut sum, mut largest) = (0, 0);
    for submission in &submissions {
        sum += submission.body.len();
        largest = largest.max(submission.body.len());
    }
    if largest > INLINE_BODY_BYTES_MAX || sum > INLINE_BODIES_BYTES_MAX {
        return vet_in_pool(gate, mount, index, Vec::new(), submissions).await;
    }
    let mut budget = Budget::of_request();
    let mut entries = Vec::with_capacity(submissions.len());
    let mut left = submissions.into_iter();
    while let Some(submission) = left.next() {
        match mount.contract.vet_within(&mount.door, submission, &mut budget) {
            Ok(entry) => entries.push(entry),
            Err(submission) => {
                let rest = std::iter::once(submission).chain(left).collect();
                return vet_in_pool(gate, mount, index, entries, rest).await;
            }
        }
    }
    Ok(entries)
}

/// Vets the rest of a request in the pool.
async fn vet_in_pool(
    gate: &Gate,
    mount: &DoorMount,
    index: usize,
    mut entries: Vec<Entry>,
    rest: Vec<Submission>,
) -> Result<Vec<Entry>, VettingFailure> {
    let bodies: Vec<Bytes> = rest.iter().map(|submission| submission.body.clone()).collect();
    let contract = Arc::clone(&mount.contract);
    match gate.vetting.vet(contract, mount.door.clone(), index, rest).await {
        Ok(vetted) => {
            entries.extend(vetted);
            Ok(entries)
        }
        Err(fault) => {
            let done = entries.into_iter().map(|entry| match entry {
                Entry::Event(event) => event.body,
                Entry::Refused(refused) => refused.body,
            });
            Err(VettingFailure { fault, bodies: done.chain(bodies).collect() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn available(is_shared: bool, index: usize) -> usize {
        VettingPool::with_threads(8, is_shared).share(index).available_permits()
    }

    #[test]
    fn a_single_sending_principal_may_use_all_threads() {
        assert_eq!(available(false, 0), 8);
        assert_eq!(available(true, 0), 4);
    }

    #[test]
    fn a_principal_has_one_share_of_the_threads() {
        let pool = VettingPool::with_threads(8, true);
        let share = pool.share(1);
        assert!(Arc::ptr_eq(&share, &pool.share(1)));
        assert!(!Arc::ptr_eq(&share, &pool.share(2)));
    }
}
