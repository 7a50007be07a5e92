//! Inserts rows of the inbox, in the commit of their admissions.

use admit_core::{Event, Seq};

use super::conn::{OwnedParam, OwnedQuery, big};
use super::{nul_escape, sql};

/// Fresh events of the inbox, column by column.
#[derive(Default)]
pub(super) struct NewInboxRows {
    event_ids: Vec<String>,
    ats: Vec<String>,
    payloads: Vec<String>,
    places: Vec<i64>,
}

impl NewInboxRows {
    /// Adds a fresh event if its door has an inbox. Its row number is the number of its admission, which is
    /// never reused, so that a reader with a cursor misses nothing.
    pub(super) fn push(&mut self, seq: Seq, event: &Event) {
        let Some(event_id) = &event.inbox else { return };
        self.event_ids.push(nul_escape::escape(event_id).into_owned());
        self.ats.push(event.received_at.to_rfc3339_millis());
        // The body was vetted as JSON, so it is text.
        self.payloads.push(nul_escape::escape(&String::from_utf8_lossy(&event.body)).into_owned());
        self.places.push(big(seq.0));
    }

    /// The statement that inserts them.
    pub(super) fn writes(&self) -> Option<OwnedQuery<'_>> {
        let Self { event_ids, ats, payloads, places } = self;
        let columns: Vec<OwnedParam<'_>> =
            vec![Box::new(event_ids), Box::new(ats), Box::new(payloads), Box::new(places)];
        (!places.is_empty()).then(|| OwnedQuery::new(sql!("inbox_puts"), columns))
    }
}
