//! Limits on what is in flight between the door and its answer: events, and the body bytes they hold.
//!
//! Atomics rather than a semaphore, because a request that finds no room is refused at once. Only
//! the shutdown waits, for the room to empty.
//!
//! Each principal has a share of the whole, and some of it is kept for each, so that no number of them
//! can use up the room of the others. What a head announces is not reserved, only what has arrived. A body of a request that is not authenticated yet belongs to no share: until its
//! signature is verified it counts in a pool of its own, outside of the whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

use crate::limits::Limits;
use crate::shares::Shares;

/// A body is reserved in steps of this size, as it arrives.
const STEP_BYTES: usize = 16 * 1024;

/// Counts what is in flight.
#[derive(Debug)]
pub(crate) struct Room {
    events: Shares,
    bytes: Shares,
    /// All events, for the shutdown.
    in_flight: AtomicUsize,
    /// Bytes of bodies of requests that are not authenticated yet.
    unauthenticated: Shares,
    watched: AtomicBool,
    emptied: Notify,
}

impl Room {
    /// Room for events of principals with so many `places`.
    pub(crate) fn new(limits: &Limits, places: usize, is_shared: bool) -> Arc<Self> {
        let (events_max, bytes_max) =
            (limits.events_in_flight_max, limits.body_bytes_in_flight_max);
        let percent = limits.principal_share_percent;
        let part = |whole: usize| (whole / 100 * percent) + (whole % 100 * percent).div_ceil(100);
        let (events, bytes) = match is_shared {
            false => (Shares::undivided(events_max, places), Shares::undivided(bytes_max, places)),
            true => {
                // The largest event must fit a share that is otherwise empty.
                let body = limits.body_bytes_max;
                let bytes = Shares::divided(bytes_max, places, part(bytes_max).max(body), body);
                (Shares::divided(events_max, places, part(events_max).max(1), 1), bytes)
            }
        };
        let unauthenticated_bytes =
            limits.unauthenticated_body_bytes_in_flight_max.max(limits.body_bytes_max);
        Arc::new(Self {
            events,
            bytes,
            in_flight: AtomicUsize::new(0),
            unauthenticated: Shares::undivided(unauthenticated_bytes, 1),
            watched: AtomicBool::new(false),
            emptied: Notify::new(),
        })
    }

    /// Takes in one event of the principal at `place` that has `bytes` so far, if it fits.
    pub(crate) fn enter(self: &Arc<Self>, place: usize, bytes: usize) -> Option<Inside> {
        let is_in = self.try_reserve(Some(place), 1, bytes);
        is_in.then(|| Inside { room: Arc::clone(self), place: Some(place), bytes })
    }

    /// Takes in one event whose body has still to arrive, if the `announced` bytes would fit now.
    /// Nothing is reserved for them: a head alone must not cost others their room.
    pub(crate) fn enter_announced(
        self: &Arc<Self>,
        place: usize,
        announced: usize,
    ) -> Option<Inside> {
        self.bytes.would_fit(place, announced).then(|| self.enter(place, 0)).flatten()
    }

    /// A request that is not authenticated yet. It is no event before [`Inside::authenticated`].
    pub(crate) fn enter_unauthenticated(self: &Arc<Self>) -> Inside {
        Inside { room: Arc::clone(self), place: None, bytes: 0 }
    }

    /// How many events are in flight.
    pub(crate) fn events(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    /// Waits until no event is in flight.
    pub(crate) async fn empty(&self) {
        self.watched.store(true, SeqCst);
        loop {
            let emptied = self.emptied.notified();
            if self.events() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn try_reserve(&self, place: Option<usize>, events: usize, bytes: usize) -> bool {
        let Some(place) = place else { return self.unauthenticated.try_add(0, bytes) };
        // Before its limit is looked at: a shutdown must not miss an event that is let in.
        self.in_flight.fetch_add(events, SeqCst);
        let has_events = self.events.try_add(place, events);
        let fits = has_events && self.bytes.try_add(place, bytes);
        if has_events && !fits {
            self.events.remove(place, events);
        }
        if !fits {
            self.leave(events);
        }
        fits
    }

    fn release(&self, place: Option<usize>, events: usize, bytes: usize) {
        let Some(place) = place else { return self.unauthenticated.remove(0, bytes) };
        self.bytes.remove(place, bytes);
        self.events.remove(place, events);
        self.leave(events);
    }

    fn leave(&self, events: usize) {
        if self.in_flight.fetch_sub(events, SeqCst) == events {
            self.notify_if_empty(events);
        }
    }

    /// The count may have been above zero for a moment, so the waiting shutdown looks again.
    fn notify_if_empty(&self, events: usize) {
        if events > 0 && self.watched.load(SeqCst) {
            self.emptied.notify_waiters();
        }
    }
}

/// What one event, or the body of an unauthenticated request, holds. Released when it is dropped.
#[derive(Debug)]
pub(crate) struct Inside {
    room: Arc<Room>,
    /// The principal's; none in the pool of unauthenticated bodies.
    place: Option<usize>,
    bytes: usize,
}

impl Inside {
    /// How many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it holds `bytes`, or could be made to: what has arrived is reserved in steps.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        let steps = more.next_multiple_of(STEP_BYTES);
        // Close to the limit there may be room for the bytes, but not for a whole step.
        for more in [steps, more] {
            if self.room.try_reserve(self.place, 0, more) {
                self.bytes += more;
                return true;
            }
        }
        false
    }

    /// Gives back what `bytes` do not need.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) {
            self.room.release(self.place, 0, less);
            self.bytes = bytes;
        }
    }

    /// Moves it into the share of the principal at `place`, as an event, if it fits.
    pub(crate) fn authenticated(self, place: usize) -> Option<Self> {
        // Both are held for a moment; dropping `self` gives back the bytes of the pool.
        self.room.enter(place, self.bytes)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let events = usize::from(self.place.is_some());
        self.room.release(self.place, events, self.bytes);
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
