//! Who waits for what: one watch channel for each stream somebody listens to.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use admit_core::{Door, Entry, Recorded, Seq, Verdict};
use tokio::sync::watch;

/// The channels. Only streams somebody has asked for have one.
#[derive(Debug, Default)]
pub(crate) struct News {
    doors: Mutex<HashMap<Door, watch::Sender<Seq>>>,
}

impl News {
    pub(crate) fn subscribe(&self, door: &Door) -> watch::Receiver<Seq> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = doors.get(door) {
            return sender.subscribe();
        }
        // Streams nobody listens to any more make room for this one.
        doors.retain(|_, sender| sender.receiver_count() > 0);
        let (sender, receiver) = watch::channel(Seq(0));
        doors.insert(door.clone(), sender);
        receiver
    }

    /// Wakes whoever waits at `door`.
    pub(crate) fn tell(&self, door: &Door, seq: Seq) {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = doors.get(door) {
            sender.send_modify(|newest| *newest = seq.max(*newest));
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
