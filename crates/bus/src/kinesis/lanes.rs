//! Who is sent next: of one partition key one message at a time, of one stream many keys together.
//!
//! Kinesis keeps no order among the records of one request, nor among requests on their way at the
//! same time. So a message waits until the one before it, of the same partition key, is answered.

use std::collections::{HashSet, VecDeque};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::frame::Frame;
use crate::port::{Message, Published};

/// Most records of one request.
const RECORDS_MAX: usize = 500;
/// Bytes of one request, about; Kinesis takes 5 MiB.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// A message that waits for its turn, or is on its way.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) message: Message,
    pub(super) frame: Frame,
    pub(super) answer: oneshot::Sender<Published>,
    /// Its place among all that wait, given back with it.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.message.payload.len() + self.frame.key.len()
    }
}

/// What waits for one stream.
#[derive(Debug, Default)]
pub(super) struct Lane {
    waiting: VecDeque<Waiting>,
    /// Partition keys with a message on its way.
    busy: HashSet<String>,
    /// Requests on their way.
    requests: usize,
}

impl Lane {
    /// Adds a message behind all others.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// The messages of the next request, if there is one to make. [`Self::answered`] must be told.
    pub(super) fn next(&mut self, requests_max: usize) -> Option<Vec<Waiting>> {
        if self.requests >= requests_max {
            return None;
        }
        let (mut taken, mut bytes, mut left) = (Vec::new(), 0, VecDeque::new());
        for waiting in self.waiting.drain(..) {
            // Nobody waits for it any more, and not a byte of it has been sent.
            if waiting.answer.is_closed() {
                continue;
            }
            let fits = taken.is_empty() || bytes + waiting.bytes() <= REQUEST_BYTES_MAX;
            let has_room = fits && taken.len() < RECORDS_MAX;
            if has_room && self.busy.insert(waiting.message.partition_key.clone()) {
                bytes += waiting.bytes();
                taken.push(waiting);
            } else {
                left.push_back(waiting);
            }
        }
        self.waiting = left;
        if taken.is_empty() {
            return None;
        }
        self.requests += 1;
        Some(taken)
    }

    /// A request was answered, whatever the answer: the next of its keys may go.
    pub(super) fn answered<'k>(&mut self, keys: impl Iterator<Item = &'k str>) {
        self.requests -= 1;
        for key in keys {
            self.busy.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use admit_core::Millis;

    use super::*;

    fn add(lane: &mut Lane, key: &str, name: &str) -> oneshot::Receiver<Published> {
        let (answer, answered) = oneshot::channel();
        let message = Message {
            topic: "t".into(),
            partition_key: key.to_owned(),
            dedupe_key: name.to_owned(),
            payload: "p".into(),
            at: Millis(0),
        };
        let frame = Frame::of(&message, 1 << 20).unwrap();
        lane.push(Waiting { message, frame, answer, _room: None });
        answered
    }

    fn names(taken: &Option<Vec<Waiting>>) -> Vec<&str> {
        taken.iter().flatten().map(|one| &*one.message.dedupe_key).collect()
    }

    #[test]
    fn of_one_key_one_message_is_on_its_way_and_the_others_keep_their_order() {
        let mut lane = Lane::default();
        let waits: Vec<_> = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3"), ("c", "c1")]
            .map(|(key, name)| add(&mut lane, key, name))
            .into();
        let first = lane.next(4);
        assert_eq!(names(&first), ["a1", "b1", "c1"]);
        assert_eq!(names(&lane.next(4)), [""; 0], "all keys are busy");
        lane.answered(["a", "b", "c"].into_iter());
        let second = lane.next(4);
        assert_eq!(names(&second), ["a2"]);
        lane.answered(["a"].into_iter());
        assert_eq!(names(&lane.next(4)), ["a3"]);
        drop(waits);
    }

    #[test]
    fn requests_are_bounded_in_number_and_records() {
        let mut lane = Lane::default();
        let waits: Vec<_> =
            (0..1_100).map(|n| add(&mut lane, &format!("k{n}"), &format!("n{n}"))).collect();
        assert_eq!(names(&lane.next(2)).len(), 500);
        assert_eq!(names(&lane.next(2)).len(), 500);
        assert!(lane.next(2).is_none(), "two are on their way");
        lane.answered((0..500).map(|_| "none of these"));
        assert_eq!(names(&lane.next(2)).len(), 100);
        drop(waits);
    }

    #[test]
    fn what_nobody_waits_for_is_not_sent() {
        let mut lane = Lane::default();
        drop(add(&mut lane, "a", "abandoned"));
        let kept = add(&mut lane, "a", "kept");
        assert_eq!(names(&lane.next(1)), ["kept"]);
        drop(kept);
    }
}
