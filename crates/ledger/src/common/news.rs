//! Who waits for what: one watch channel for each stream somebody listens to.

use std::collections::HashMap;
#[cfg(feature = "postgres")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use admit_core::{Door, Entry, Recorded, Seq, Verdict};
use tokio::sync::watch;

/// The channels. Only streams somebody has asked for have one.
#[derive(Debug, Default)]
pub(crate) struct News {
    doors: Mutex<HashMap<Door, Channel>>,
    /// The newest place that is known of, in any stream.
    #[cfg(feature = "postgres")]
    newest: AtomicU64,
}

#[derive(Debug)]
struct Channel {
    sender: watch::Sender<Seq>,
    /// What was known of when somebody first asked: nothing up to here is news.
    #[cfg(feature = "postgres")]
    since: Seq,
}

impl News {
    pub(crate) fn subscribe(&self, door: &Door) -> watch::Receiver<Seq> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = doors.get(door) {
            return channel.sender.subscribe();
        }
        // Streams nobody listens to any more make room for this one.
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

    /// Wakes whoever waits at `door`.
    pub(crate) fn tell(&self, door: &Door, seq: Seq) {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = doors.get(door) {
            channel.sender.send_modify(|newest| *newest = seq.max(*newest));
        }
    }
}

/// What is committed elsewhere, for ledgers that others write to as well.
#[cfg(feature = "postgres")]
impl News {
    /// Every place up to here is known of.
    pub(crate) fn known_to(&self, seq: Seq) {
        self.newest.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// The streams that somebody listens to.
    pub(crate) fn listened_to(&self) -> Vec<Door> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = doors.iter().filter(|(_, channel)| channel.sender.receiver_count() > 0);
        heard.map(|(door, _)| door.clone()).collect()
    }

    /// The newest place at `door` is this, by whomever; wakes those who do not know it yet, and all
    /// when something was given back somewhere.
    pub(crate) fn heard(&self, door: &Door, seq: Seq, is_given_back: bool) {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Channel { sender, since }) = doors.get(door) else { return };
        let known = *sender.borrow();
        if is_given_back || seq > known.max(*since) {
            sender
                .send_modify(|newest| *newest = if seq > *since { seq.max(known) } else { known });
        }
    }
}

/// What one commit put into streams: told once per stream, however many events it had.
#[derive(Debug, Default)]
pub(crate) struct Noted(Vec<(Door, Seq)>);

impl Noted {
    pub(crate) fn note(&mut self, recorded: &Recorded) {
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

    pub(crate) fn tell(&mut self, news: &News) {
        for (door, seq) in self.0.drain(..) {
            news.tell(&door, seq);
        }
    }
}
