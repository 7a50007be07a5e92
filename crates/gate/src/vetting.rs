//! Where submissions are vetted: on the serving thread, or in a small pool of blocking threads.
//!
//! A serving thread has many connections, so what takes long is moved away from it: large bodies at
//! once, and the rest of a request when its schema checks have used up the [`Budget`]. A small event
//! never changes threads.
//!
//! Invariant: the work of one submission is bounded by its contract, so a thread of the pool always
//! comes back. How long a request may have one is bounded here.

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

use crate::gate::Gate;
use crate::parts::DoorMount;

/// Largest body that is vetted on a serving thread, in bytes: below a millisecond without a schema.
const INLINE_BODY_BYTES_MAX: usize = 64 * 1024;

/// The same for all bodies of one request together.
const INLINE_BODIES_BYTES_MAX: usize = 1024 * 1024;

/// How long a request may occupy a thread of the pool. Checked between its events and inside of them.
const OCCUPIED_MAX: Duration = Duration::from_secs(2);

/// Longest wait for a thread of the pool.
const WAIT_MAX: Duration = Duration::from_secs(2);

const TOO_MANY: &str = "more costly events are being checked than this gate takes at once";
const TOO_LONG: &str =
    "checking the events of this request takes too long: send fewer in one request, or later";

/// The threads for costly vetting.
#[derive(Debug)]
pub(crate) struct VettingPool {
    threads: Arc<Semaphore>,
    /// How many of them one principal may have.
    per_principal: usize,
    /// The shares of principals that have or await a thread, by the principal's place.
    shares: Mutex<HashMap<usize, Weak<Semaphore>>>,
}

impl VettingPool {
    /// A pool of a thread for each core, and at least two. Where several principals can send, each may
    /// have half of them.
    pub(crate) fn new(is_shared: bool) -> Self {
        Self::of_threads(available_parallelism().map_or(1, NonZero::get).max(2), is_shared)
    }

    fn of_threads(threads: usize, is_shared: bool) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            per_principal: if is_shared { threads / 2 } else { threads },
            shares: Mutex::default(),
        }
    }

    fn share(&self, place: usize) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&place).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.per_principal));
        shares.insert(place, Arc::downgrade(&share));
        share
    }

    /// Vets on a thread of the pool.
    async fn vet(
        &self,
        contract: Arc<dyn Contract>,
        door: Door,
        place: usize,
        submissions: Vec<Submission>,
    ) -> Result<Vec<Entry>, Fault> {
        let share = self.share(place);
        let threads = Arc::clone(&self.threads);
        let granted = async {
            // The own share first: who waits for it occupies nothing.
            let own = share.acquire_owned().await.ok()?;
            Some((own, threads.acquire_owned().await.ok()?))
        };
        let granted = timeout(WAIT_MAX, granted).await.ok().flatten();
        let permits = granted.ok_or_else(|| Fault::new(FaultKind::Overloaded, TOO_MANY))?;
        let vetted = spawn_blocking(move || {
            let _permits = permits;
            let begun = Instant::now();
            let mut entries = Vec::with_capacity(submissions.len());
            for submission in submissions {
                let is_late = move || begun.elapsed() > OCCUPIED_MAX;
                let vetted = match !entries.is_empty() && is_late() {
                    true => None,
                    false => unless_late(is_late, || contract.vet(&door, submission)),
                };
                entries.push(vetted.ok_or_else(|| Fault::new(FaultKind::Overloaded, TOO_LONG))?);
            }
            Ok::<_, Fault>(entries)
        });
        match vetted.await {
            Ok(vetted) => vetted,
            // It panicked: in the same words as if that had happened on the serving thread.
            Err(error) => match error.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(error) => {
                    let message = "the check of an event was cut off";
                    Err(Fault::caused_by(FaultKind::Internal, message, error))
                }
            },
        }
    }
}

/// Submissions that could not be vetted. Nothing of their request has been kept.
pub(crate) struct Unvetted {
    /// Why.
    pub(crate) fault: Fault,
    /// The bodies of the whole request, in order.
    pub(crate) bodies: Vec<Bytes>,
}

/// Vets the submissions of one request of the principal at `place`, in order.
pub(crate) async fn vet(
    gate: &Gate,
    mount: &DoorMount,
    place: usize,
    submissions: Vec<Submission>,
) -> Result<Vec<Entry>, Unvetted> {
    let (mut sum, mut largest) = (0, 0);
    for submission in &submissions {
        sum += submission.body.len();
        largest = largest.max(submission.body.len());
    }
    if largest > INLINE_BODY_BYTES_MAX || sum > INLINE_BODIES_BYTES_MAX {
        return pooled(gate, mount, place, Vec::new(), submissions).await;
    }
    let mut budget = Budget::of_request();
    let mut entries = Vec::with_capacity(submissions.len());
    let mut left = submissions.into_iter();
    while let Some(submission) = left.next() {
        match mount.contract.vet_within(&mount.door, submission, &mut budget) {
            Ok(entry) => entries.push(entry),
            Err(submission) => {
                let rest = std::iter::once(submission).chain(left).collect();
                return pooled(gate, mount, place, entries, rest).await;
            }
        }
    }
    Ok(entries)
}

/// Vets what is left of a request in the pool.
async fn pooled(
    gate: &Gate,
    mount: &DoorMount,
    place: usize,
    mut entries: Vec<Entry>,
    rest: Vec<Submission>,
) -> Result<Vec<Entry>, Unvetted> {
    let bodies: Vec<Bytes> = rest.iter().map(|submission| submission.body.clone()).collect();
    let contract = Arc::clone(&mount.contract);
    match gate.vetting.vet(contract, mount.door.clone(), place, rest).await {
        Ok(vetted) => {
            entries.extend(vetted);
            Ok(entries)
        }
        Err(fault) => {
            let done = entries.into_iter().map(|entry| match entry {
                Entry::Event(event) => event.body,
                Entry::Refused(refused) => refused.body,
            });
            Err(Unvetted { fault, bodies: done.chain(bodies).collect() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn available(is_shared: bool, place: usize) -> usize {
        VettingPool::of_threads(8, is_shared).share(place).available_permits()
    }

    #[test]
    fn the_only_principal_that_sends_may_have_every_thread() {
        assert_eq!(available(false, 0), 8);
        assert_eq!(available(true, 0), 4);
    }

    #[test]
    fn a_principal_has_one_share_of_the_threads() {
        let pool = VettingPool::of_threads(8, true);
        let held = pool.share(1);
        assert!(Arc::ptr_eq(&held, &pool.share(1)));
        assert!(!Arc::ptr_eq(&held, &pool.share(2)));
    }
}
