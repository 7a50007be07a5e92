//! Admission limiter: bounds the events in flight between door and reply, and their body bytes.
//!
//! Uses atomics rather than a semaphore, because a request over the limit is refused at once. Only the
//! shutdown waits, until nothing is in flight.
//!
//! Each principal has a maximum and a guaranteed share, so that no number of principals can starve the
//! others. Bytes are reserved as they arrive, not by the announced `content-length`. Bodies of requests
//! that are not authenticated yet count in a separate pool until their signature is verified.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

use crate::limits::Limits;
use crate::shares::Shares;

/// Step size of body reservations.
const STEP_BYTES: usize = 16 * 1024;

/// Counters of events and body bytes in flight.
#[derive(Debug)]
pub(crate) struct AdmissionLimiter {
    events: Shares,
    bytes: Shares,
    /// Number of events, for the shutdown.
    in_flight: AtomicUsize,
    /// Body bytes of requests that are not authenticated yet.
    unauthenticated: Shares,
    has_waiter: AtomicBool,
    emptied: Notify,
}

impl AdmissionLimiter {
    /// Limiter for `principals` principals; `is_shared` divides the limits between them.
    pub(crate) fn new(limits: &Limits, principals: usize, is_shared: bool) -> Arc<Self> {
        let (events_max, bytes_max) =
            (limits.events_in_flight_max, limits.body_bytes_in_flight_max);
        let percent = limits.principal_share_percent;
        let part = |whole: usize| (whole / 100 * percent) + (whole % 100 * percent).div_ceil(100);
        let (events, bytes) = match is_shared {
            false => (
                Shares::undivided(events_max, principals),
                Shares::undivided(bytes_max, principals),
            ),
            true => {
                // The largest event must fit a share that is otherwise empty.
                let body = limits.body_bytes_max;
                let bytes = Shares::divided(bytes_max, principals, part(bytes_max).max(body), body);
                (Shares::divided(events_max, principals, part(events_max).max(1), 1), bytes)
            }
        };
        let unauthenticated_bytes =
            limits.unauthenticated_body_bytes_in_flight_max.max(limits.body_bytes_max);
        Arc::new(Self {
            events,
            bytes,
            in_flight: AtomicUsize::new(0),
            unauthenticated: Shares::undivided(unauthenticated_bytes, 1),
            has_waiter: AtomicBool::new(false),
            emptied: Notify::new(),
        })
    }

    /// Reserves one event of the principal at `index`, with `bytes` of body so far, if it fits.
    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        index: usize,
        bytes: usize,
    ) -> Option<AdmissionPermit> {
        let is_reserved = self.try_reserve(Some(index), 1, bytes);
        is_reserved.then(|| AdmissionPermit {
            limiter: Arc::clone(self),
            index: Some(index),
            bytes,
        })
    }

    /// Reserves one event whose body has still to arrive, if the `announced` bytes would fit now. The
    /// bytes are not reserved: a request head alone must not use up the limit.
    pub(crate) fn try_acquire_announced(
        self: &Arc<Self>,
        index: usize,
        announced: usize,
    ) -> Option<AdmissionPermit> {
        self.bytes.would_fit(index, announced).then(|| self.try_acquire(index, 0)).flatten()
    }

    /// Permit for a request that is not authenticated yet. It does not count as an event before
    /// [`AdmissionPermit::into_authenticated`].
    pub(crate) fn acquire_unauthenticated(self: &Arc<Self>) -> AdmissionPermit {
        AdmissionPermit { limiter: Arc::clone(self), index: None, bytes: 0 }
    }

    /// Number of events in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    /// Waits until no event is in flight.
    pub(crate) async fn wait_until_empty(&self) {
        self.has_waiter.store(true, SeqCst);
        loop {
            let emptied = self.emptied.notified();
            if self.in_flight() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn try_reserve(&self, index: Option<usize>, events: usize, bytes: usize) -> bool {
        let Some(index) = index else { return self.unauthenticated.try_add(0, bytes) };
        // Counted before the limit check, so that a shutdown cannot miss an admitted event.
        self.in_flight.fetch_add(events, SeqCst);
        let has_events = self.events.try_add(index, events);
        let fits = has_events && self.bytes.try_add(index, bytes);
        if has_events && !fits {
            self.events.remove(index, events);
        }
        if !fits {
            self.remove_in_flight(events);
        }
        fits
    }

    fn release(&self, index: Option<usize>, events: usize, bytes: usize) {
        let Some(index) = index else { return self.unauthenticated.remove(0, bytes) };
        self.bytes.remove(index, bytes);
        self.events.remove(index, events);
        self.remove_in_flight(events);
    }

    fn remove_in_flight(&self, events: usize) {
        if self.in_flight.fetch_sub(events, SeqCst) == events {
            self.notify_if_empty(events);
        }
    }

    /// Wakes the waiting shutdown, which checks the count again.
    fn notify_if_empty(&self, events: usize) {
        if events > 0 && self.has_waiter.load(SeqCst) {
            self.emptied.notify_waiters();
        }
    }
}

/// Reservation of one event, or of the body of an unauthenticated request. Released on drop.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    limiter: Arc<AdmissionLimiter>,
    /// Index of the principal; `None` in the pool of unauthenticated bodies.
    index: Option<usize>,
    bytes: usize,
}

impl AdmissionPermit {
    /// Reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Extends the reservation to at least `bytes`, in steps. False if the limit is reached.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        let steps = more.next_multiple_of(STEP_BYTES);
        // Close to the limit the bytes may fit where a whole step does not.
        for more in [steps, more] {
            if self.limiter.try_reserve(self.index, 0, more) {
                self.bytes += more;
                return true;
            }
        }
        false
    }

    /// Releases everything beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) {
            self.limiter.release(self.index, 0, less);
            self.bytes = bytes;
        }
    }

    /// Moves the reservation to the principal at `index` and counts it as an event, if it fits.
    pub(crate) fn into_authenticated(self, index: usize) -> Option<Self> {
        // Both are reserved for a moment; dropping `self` releases the bytes of the pool.
        self.limiter.try_acquire(index, self.bytes)
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let events = usize::from(self.index.is_some());
        self.limiter.release(self.index, events, self.bytes);
    }
}

#[cfg(test)]
#[path = "admission_limiter_tests.rs"]
mod tests;
