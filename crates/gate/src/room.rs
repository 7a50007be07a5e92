//! How much may be between the door and its answer at once: events, and the bytes they hold.
//!
//! Two atomics rather than a semaphore, because nobody waits here: whoever finds no room is told
//! so at once. The only one who waits is the shutdown, for the room to empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

/// Counts what is inside.
#[derive(Debug)]
pub(crate) struct Room {
    events: AtomicUsize,
    bytes: AtomicUsize,
    events_max: usize,
    bytes_max: usize,
    watched: AtomicBool,
    emptied: Notify,
}

/// One event inside. It leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Inside {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(events_max: usize, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            events: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            events_max,
            bytes_max,
            watched: AtomicBool::new(false),
            emptied: Notify::new(),
        })
    }

    /// Lets one event with at most `bytes` in, or nobody.
    pub(crate) fn enter(self: &Arc<Self>, bytes: usize) -> Option<Inside> {
        // Made first, so that dropping it undoes both additions whichever limit was passed.
        let inside = Inside { room: Arc::clone(self), bytes };
        let events = self.events.fetch_add(1, SeqCst) + 1;
        let bytes = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        (events <= self.events_max && bytes <= self.bytes_max).then_some(inside)
    }

    /// How many events are inside.
    pub(crate) fn events(&self) -> usize {
        self.events.load(SeqCst)
    }

    /// Waits until nobody is inside.
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
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.room.bytes.fetch_sub(self.bytes, SeqCst);
        if self.room.events.fetch_sub(1, SeqCst) == 1 && self.room.watched.load(SeqCst) {
            self.room.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn nobody_is_let_in_over_either_limit() {
        let room = Room::new(2, 10);
        let first = room.enter(4).unwrap();
        assert!(room.enter(7).is_none(), "too many bytes");
        let second = room.enter(6).unwrap();
        assert!(room.enter(0).is_none(), "too many events");
        drop(first);
        assert!(room.enter(4).is_some());
        drop(second);
        assert_eq!((room.events(), room.bytes.load(SeqCst)), (0, 0));
    }

    #[test]
    fn an_empty_room_is_noticed_when_the_last_one_leaves() {
        let room = Room::new(2, 10);
        let inside = room.enter(1).unwrap();
        let mut empty = Box::pin(room.empty());
        assert!(empty.as_mut().now_or_never().is_none());
        drop(inside);
        assert!(empty.as_mut().now_or_never().is_some());
    }
}
