//! Vetting of submissions: on the async thread, or in small pools of blocking threads.
//!
//! An async thread serves many connections, so expensive work is moved off it: large requests at once, and
//! the rest of a request when its schema validation has used up the [`Budget`]. A small event is never
//! moved. Events that use up the budget of a large request too have a pool of their own, so that they do
//! not delay large events that are cheap to validate.
//!
//! Invariant: the contract bounds the work of one submission, so a pool thread always becomes free. The
//! time of one request on a thread for costly events is bounded here.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::available_parallelism;
use std::time::Duration;

use admit_contracts::{Budget, Contract, RequestRejection, SplitRequest, unless_late};
use admit_core::{Door, Entry, Fault, FaultKind, Submission};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::builder::DoorMount;
use crate::gate::Gate;

/// Largest body that is split or vetted on an async thread, in bytes: below a millisecond without a schema.
const INLINE_BODY_BYTES_MAX: usize = 64 * 1024;

/// Largest sum of the bodies of one request that is vetted on an async thread.
const INLINE_BODIES_BYTES_MAX: usize = 256 * 1024;

/// Maximum time of a request on a thread for costly events. Checked between its events and inside them.
const THREAD_TIME_MAX: Duration = Duration::from_secs(2);

/// Maximum wait for a pool thread.
const WAIT_MAX: Duration = Duration::from_secs(2);

const POOL_FULL: &str = "validation pool is full: too many expensive events at once";
const TIMED_OUT: &str =
    "validation of this request timed out; send fewer events in one request, or retry later";

/// Pools for work that would delay other requests on an async thread.
#[derive(Debug)]
pub(crate) struct VettingPools {
    /// For large requests.
    large: ThreadPool,
    /// For events that are costly to validate.
    costly: ThreadPool,
}

impl VettingPools {
    /// Pools with one thread per core each, at least two. With several sending principals each may use half
    /// of them.
    pub(crate) fn new(is_shared: bool) -> Self {
        let threads = available_parallelism().map_or(1, NonZero::get).max(2);
        let pool = || ThreadPool::new(threads, is_shared);
        Self { large: pool(), costly: pool() }
    }
}

/// Share of a pool that a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolShare {
    /// Share of the principal at an index.
    Principal(usize),
    /// Share of all requests that are not authenticated yet.
    Unauthenticated,
}

/// Limited number of blocking threads.
#[derive(Debug)]
struct ThreadPool {
    threads: Arc<Semaphore>,
    /// Maximum number of threads for one share.
    per_share: usize,
    /// Shares that use or await a thread.
    shares: Mutex<HashMap<PoolShare, Weak<Semaphore>>>,
}

impl ThreadPool {
    fn new(threads: usize, is_shared: bool) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            per_share: if is_shared { threads / 2 } else { threads },
            shares: Mutex::default(),
        }
    }

    fn share(&self, of: PoolShare) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&of).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.per_share));
        shares.insert(of, Arc::downgrade(&share));
        share
    }

    /// Runs `work` on a thread of the pool.
    async fn run<T: Send + 'static>(
        &self,
        share: PoolShare,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let share = self.share(share);
        let threads = Arc::clone(&self.threads);
        let acquire = async {
            // The share first: waiting for it occupies no thread.
            let own = share.acquire_owned().await.ok()?;
            Some((own, threads.acquire_owned().await.ok()?))
        };
        let acquired = timeout(WAIT_MAX, acquire).await.ok().flatten();
        let permits = acquired.ok_or_else(|| Fault::new(FaultKind::Overloaded, POOL_FULL))?;
        let done = spawn_blocking(move || {
            let _permits = permits;
            work()
        });
        match done.await {
            Ok(done) => Ok(done),
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

/// Splits a request; a large one whose bytes all have to be read, on a pool thread.
pub(crate) async fn split(
    gate: &Gate,
    mount: &DoorMount,
    share: PoolShare,
    request: Submission,
) -> Result<SplitRequest, RequestRejection> {
    if request.body.len() <= INLINE_BODY_BYTES_MAX || !mount.contract.split_reads_body(&request) {
        return mount.contract.split(request);
    }
    let contract = Arc::clone(&mount.contract);
    let done = gate.vetting.large.run(share, move || contract.split(request)).await;
    done.unwrap_or_else(|fault| {
        Err(RequestRejection { code: fault.code(), message: fault.message.to_owned() })
    })
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
    if largest <= INLINE_BODY_BYTES_MAX && sum <= INLINE_BODIES_BYTES_MAX {
        let (entries, rest) =
            vet_within(&*mount.contract, &mount.door, submissions, Budget::of_request());
        return vet_rest(gate, mount, index, entries, rest).await;
    }
    let bodies: Vec<Bytes> = submissions.iter().map(|submission| submission.body.clone()).collect();
    let (contract, door) = (Arc::clone(&mount.contract), mount.door.clone());
    let budget = Budget::of_bytes(sum);
    let share = PoolShare::Principal(index);
    let vetted =
        gate.vetting.large.run(share, move || vet_within(&*contract, &door, submissions, budget));
    match vetted.await {
        Ok((entries, rest)) => vet_rest(gate, mount, index, entries, rest).await,
        Err(fault) => Err(VettingFailure { fault, bodies }),
    }
}

/// Vets submissions until the budget is used up. Returns the entries and the rest of the submissions.
fn vet_within(
    contract: &dyn Contract,
    door: &Door,
    submissions: Vec<Submission>,
    mut budget: Budget,
) -> (Vec<Entry>, Vec<Submission>) {
    let mut entries = Vec::with_capacity(submissions.len());
    let mut left = submissions.into_iter();
    while let Some(submission) = left.next() {
        match contract.vet_within(door, submission, &mut budget) {
            Ok(entry) => entries.push(entry),
            Err(submission) => return (entries, std::iter::once(submission).chain(left).collect()),
        }
    }
    (entries, Vec::new())
}

/// Vets the rest of a request, from the first event that is costly on.
async fn vet_rest(
    gate: &Gate,
    mount: &DoorMount,
    index: usize,
    mut entries: Vec<Entry>,
    rest: Vec<Submission>,
) -> Result<Vec<Entry>, VettingFailure> {
    if rest.is_empty() {
        return Ok(entries);
    }
    let bodies: Vec<Bytes> = rest.iter().map(|submission| submission.body.clone()).collect();
    let (contract, door) = (Arc::clone(&mount.contract), mount.door.clone());
    let work = move || vet_in_time(&*contract, &door, rest);
    let vetted = gate.vetting.costly.run(PoolShare::Principal(index), work).await;
    match vetted.flatten() {
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

/// Vets submissions within [`THREAD_TIME_MAX`].
fn vet_in_time(
    contract: &dyn Contract,
    door: &Door,
    submissions: Vec<Submission>,
) -> Result<Vec<Entry>, Fault> {
    let started = Instant::now();
    let mut entries = Vec::with_capacity(submissions.len());
    for submission in submissions {
        let is_late = move || started.elapsed() > THREAD_TIME_MAX;
        let vetted = match !entries.is_empty() && is_late() {
            true => None,
            false => unless_late(is_late, || contract.vet(door, submission)),
        };
        entries.push(vetted.ok_or_else(|| Fault::new(FaultKind::Overloaded, TIMED_OUT))?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn available(is_shared: bool, share: PoolShare) -> usize {
        ThreadPool::new(8, is_shared).share(share).available_permits()
    }

    #[test]
    fn a_single_sending_principal_may_use_all_threads() {
        assert_eq!(available(false, PoolShare::Principal(0)), 8);
        assert_eq!(available(true, PoolShare::Principal(0)), 4);
        assert_eq!(available(true, PoolShare::Unauthenticated), 4);
    }

    #[test]
    fn a_principal_has_one_share_of_the_threads() {
        let pool = ThreadPool::new(8, true);
        let share = pool.share(PoolShare::Principal(1));
        assert!(Arc::ptr_eq(&share, &pool.share(PoolShare::Principal(1))));
        assert!(!Arc::ptr_eq(&share, &pool.share(PoolShare::Principal(2))));
        assert!(!Arc::ptr_eq(&share, &pool.share(PoolShare::Unauthenticated)));
    }
}
