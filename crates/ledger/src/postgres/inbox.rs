//! The inbox: rows that consumers read with SQL too, under the names their contract gives them.

use admit_core::{Event, Seq};

use super::conn::{Ask, big};
use super::{sql, text};

/// Fresh events that have a place in the inbox, column by column.
#[derive(Default)]
pub(super) struct Arrived {
    event_ids: Vec<String>,
    ats: Vec<String>,
    payloads: Vec<String>,
    places: Vec<i64>,
}

impl Arrived {
    /// Takes a fresh event in, if it has a place there: the number of its admission, which no other
    /// ever gets, so that whoever reads on after a place misses nothing.
    pub(super) fn push(&mut self, seq: Seq, event: &Event) {
        let Some(event_id) = &event.inbox else { return };
        self.event_ids.push(text::kept(event_id).into_owned());
        self.ats.push(event.received_at.to_rfc3339_millis());
        // What was vetted is JSON, so it is text.
        self.payloads.push(text::kept(&String::from_utf8_lossy(&event.body)).into_owned());
        self.places.push(big(seq.0));
    }

    /// What writes them.
    pub(super) fn asks(&self) -> Vec<Ask<'_>> {
        if self.places.is_empty() {
            return Vec::new();
        }
        let Self { event_ids, ats, payloads, places } = self;
        vec![Ask::new(sql!("inbox_puts"), vec![event_ids, ats, payloads, places])]
    }
}
