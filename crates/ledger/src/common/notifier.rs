//! Notifies waiting consumers: one watch channel per subscribed stream.

use std::collections::HashMap;
#[cfg(feature = "postgres")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use admit_core::{Door, Entry, RecordedEntry, Seq, Verdict};
use tokio::sync::watch;

/// Watch channels of the subscribed streams.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    doors: Mutex<HashMap<Door, Channel>>,
    /// Newest known seq of any stream.
    #[cfg(feature = "postgres")]
    newest: AtomicU64,
}

#[derive(Debug)]
struct Channel {
    sender: watch::Sender<Seq>,
    /// Newest known seq at the first subscription; only later entries are new.
    #[cfg(feature = "postgres")]
    since: Seq,
}

impl Notifier {
    pub(crate) fn subscribe(&self, door: &Door) -> watch::Receiver<Seq> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = doors.get(door) {
            return channel.sender.subscribe();
        }
        // Removes streams without subscribers.
        doors.retain(|_, channel| channel.sender.receiver_count() > 0);
        let (sender, receiver) = watch::channel(Seq(0));
        let channel = Channel {
            sender,
            #[cfg(feature = "postgres")]
            since: Seq(self.newest.load(Ordering::Acquire)),
        };
        doors.insert(door.clone(), channel);
        receiver
    }

    /// Wakes the subscribers of `door`.
    pub(crate) fn notify(&self, door: &Door, seq: Seq) {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = doors.get(door) {
            channel.sender.send_modify(|newest| *newest = seq.max(*newest));
        }
    }
}

/// Commits of other gates, for ledgers that several gates write to.
#[cfg(feature = "postgres")]
impl Notifier {
    /// Every seq up to this one is known.
    pub(crate) fn advance_newest(&self, seq: Seq) {
        self.newest.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// The streams that have subscribers.
    pub(crate) fn subscribed_doors(&self) -> Vec<Door> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let subscribed = doors.iter().filter(|(_, channel)| channel.sender.receiver_count() > 0);
        subscribed.map(|(door, _)| door.clone()).collect()
    }

    /// The newest seq at `door`, written by any gate. Wakes subscribers that have not seen it, and all of
    /// them if an entry was released anywhere.
    pub(crate) fn notify_remote(&self, door: &Door, seq: Seq, is_given_back: bool) {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Channel { sender, since }) = doors.get(door) else { return };
        let known = *sender.borrow();
        if is_given_back || seq > known.max(*since) {
            sender
                .send_modify(|newest| *newest = if seq > *since { seq.max(known) } else { known });
        }
    }
}

/// Stream entries of one commit: one notification per stream, regardless of the number of events.
#[derive(Debug, Default)]
pub(crate) struct StreamUpdates(Vec<(Door, Seq)>);

impl StreamUpdates {
    pub(crate) fn note(&mut self, recorded: &RecordedEntry) {
        let (Verdict::Fresh { seq } | Verdict::Revision { seq, .. }) = &recorded.verdict else {
            return;
        };
        let Entry::Event(event) = &recorded.entry else { return };
        if !event.door.is_stream() {
            return;
        }
        match self.0.iter_mut().find(|(door, _)| *door == event.door) {
            Some((_, newest)) => *newest = *seq,
            None => self.0.push((event.door.clone(), *seq)),
        }
    }

    pub(crate) fn send(&mut self, notifier: &Notifier) {
        for (door, seq) in self.0.drain(..) {
            notifier.notify(&door, seq);
        }
    }
}
