//! Send queue of a stream: one message per partition key in flight, many keys per request.
//!
//! Kinesis keeps no order among the records of one request, nor among concurrent requests. So a
//! message waits until the previous message of the same partition key is acknowledged.

use std::collections::{HashSet, VecDeque};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::frame::Frame;
use crate::port::{Message, PublishOutcome};

/// Maximum records per request.
const RECORDS_MAX: usize = 500;
/// Approximate maximum bytes per request; Kinesis accepts 5 MiB.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// A message queued or in flight.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) message: Message,
    pub(super) frame: Frame,
    pub(super) reply: oneshot::Sender<PublishOutcome>,
    /// Capacity permit, released with the message.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

impl QueuedMessage {
    fn bytes(&self) -> usize {
        self.message.payload.len() + self.frame.key.len()
    }
}

/// Queue of one stream.
#[derive(Debug, Default)]
pub(super) struct StreamQueue {
    queue: VecDeque<QueuedMessage>,
    /// Partition keys with a message in flight.
    keys_in_flight: HashSet<String>,
    /// Requests in flight.
    requests: usize,
}

impl StreamQueue {
    /// Appends a message.
    pub(super) fn push(&mut self, message: QueuedMessage) {
        self.queue.push_back(message);
    }

    /// The messages of the next request, if there is one to send. Call [`Self::request_done`]
    /// afterwards.
    pub(super) fn next(&mut self, requests_max: usize) -> Option<Vec<QueuedMessage>> {
        if self.requests >= requests_max {
            return None;
        }
        let (mut taken, mut bytes, mut remaining) = (Vec::new(), 0, VecDeque::new());
        for queued in self.queue.drain(..) {
            // The caller has gone away, and nothing was sent.
            if queued.reply.is_closed() {
                continue;
            }
            let fits = taken.is_empty() || bytes + queued.bytes() <= REQUEST_BYTES_MAX;
            let has_room = fits && taken.len() < RECORDS_MAX;
            if has_room && self.keys_in_flight.insert(queued.message.partition_key.clone()) {
                bytes += queued.bytes();
                taken.push(queued);
            } else {
                remaining.push_back(queued);
            }
        }
        self.queue = remaining;
        if taken.is_empty() {
            return None;
        }
        self.requests += 1;
        Some(taken)
    }

    /// Marks a request as completed, whatever its outcome: the next messages of its keys may be
    /// sent.
    pub(super) fn request_done<'k>(&mut self, keys: impl Iterator<Item = &'k str>) {
        self.requests -= 1;
        for key in keys {
            self.keys_in_flight.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use admit_core::Millis;

    use super::*;

    fn add(
        stream_queue: &mut StreamQueue,
        key: &str,
        name: &str,
    ) -> oneshot::Receiver<PublishOutcome> {
        let (reply, outcome) = oneshot::channel();
        let message = Message {
            topic: "t".into(),
            partition_key: key.to_owned(),
            dedupe_key: name.to_owned(),
            payload: "p".into(),
            at: Millis(0),
        };
        let frame = Frame::of(&message, 1 << 20).unwrap();
        stream_queue.push(QueuedMessage { message, frame, reply, _permit: None });
        outcome
    }

    fn names(taken: &Option<Vec<QueuedMessage>>) -> Vec<&str> {
        taken.iter().flatten().map(|queued| &*queued.message.dedupe_key).collect()
    }

    #[test]
    fn one_message_per_key_is_in_flight_and_order_is_kept() {
        let mut stream_queue = StreamQueue::default();
        let waits: Vec<_> = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3"), ("c", "c1")]
            .map(|(key, name)| add(&mut stream_queue, key, name))
            .into();
        let first = stream_queue.next(4);
        assert_eq!(names(&first), ["a1", "b1", "c1"]);
        assert_eq!(names(&stream_queue.next(4)), [""; 0], "all keys are busy");
        stream_queue.request_done(["a", "b", "c"].into_iter());
        let second = stream_queue.next(4);
        assert_eq!(names(&second), ["a2"]);
        stream_queue.request_done(["a"].into_iter());
        assert_eq!(names(&stream_queue.next(4)), ["a3"]);
        drop(waits);
    }

    #[test]
    fn requests_are_limited_in_number_and_records() {
        let mut stream_queue = StreamQueue::default();
        let waits: Vec<_> = (0..1_100)
            .map(|n| add(&mut stream_queue, &format!("k{n}"), &format!("n{n}")))
            .collect();
        assert_eq!(names(&stream_queue.next(2)).len(), 500);
        assert_eq!(names(&stream_queue.next(2)).len(), 500);
        assert!(stream_queue.next(2).is_none(), "two requests are in flight");
        stream_queue.request_done((0..500).map(|_| "none of these"));
        assert_eq!(names(&stream_queue.next(2)).len(), 100);
        drop(waits);
    }

    #[test]
    fn abandoned_messages_are_not_sent() {
        let mut stream_queue = StreamQueue::default();
        drop(add(&mut stream_queue, "a", "abandoned"));
        let kept = add(&mut stream_queue, "a", "kept");
        assert_eq!(names(&stream_queue.next(1)), ["kept"]);
        drop(kept);
    }
}
