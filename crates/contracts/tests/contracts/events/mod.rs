//! The `events` contract, tested one request at a time.

mod cloud;
mod identity;
mod many;
mod rules;

use admit_contracts::events::{Events, Settings};
use admit_contracts::{Contract as _, Reply, SplitRequest};
use admit_core::{
    Code, Door, Entry, Event, Millis, Principal, PriorAdmission, RecordedEntry, RefusedSubmission,
    Seq, Submission, Verdict,
};
use bytes::Bytes;

pub(crate) const NOW: Millis = Millis(1_771_524_842_123);

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// Contract of the stream `orders`, with settings modified by `change`.
pub(crate) fn stream(change: impl FnOnce(&mut Settings)) -> Events {
    let mut settings = Settings::named("orders");
    change(&mut settings);
    Events::new(settings).expect("settings that fit")
}

/// Request with these headers, as the door passes it on.
pub(crate) fn request(headers: &[(&str, &str)], body: &str) -> Submission {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Submission {
        principal: Principal::new("shop"),
        received_at: NOW,
        body: Bytes::copy_from_slice(body.as_bytes()),
        headers: headers.iter().map(owned).collect(),
        nonce: [0; 16],
    }
}

/// Entries of all events in a request.
pub(crate) fn entries(events: &Events, submission: Submission) -> Vec<Entry> {
    let SplitRequest { submissions, .. } = events.split(submission).expect("it is looked at");
    submissions.into_iter().map(|one| events.vet(&Door::new("events/orders"), one)).collect()
}

/// The single event of a request.
pub(crate) fn event(events: &Events, headers: &[(&str, &str)], body: &str) -> Event {
    match entries(events, request(headers, body)).pop() {
        Some(Entry::Event(event)) => event,
        other => panic!("an event was expected, not {other:?}"),
    }
}

/// Refusal of the single event of a request.
pub(crate) fn refused(events: &Events, headers: &[(&str, &str)], body: &str) -> RefusedSubmission {
    match entries(events, request(headers, body)).pop() {
        Some(Entry::Refused(refused)) => refused,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

/// Code of that refusal.
pub(crate) fn code(events: &Events, headers: &[(&str, &str)], body: &str) -> Code {
    refused(events, headers, body).code
}

/// Reply to an event with this verdict.
pub(crate) fn reply(events: &Events, event: &Event, verdict: Verdict) -> Reply {
    let entry = Entry::Event(event.clone());
    events.reply(&RecordedEntry { entry, verdict, ledger: 7, outcome: None })
}

/// Prior admission of `event`, with seq 3.
pub(crate) fn first(event: &Event) -> PriorAdmission {
    PriorAdmission {
        seq: Seq(3),
        digest: event.digest,
        received_at: event.received_at,
        principal: event.principal.clone(),
        facts: Bytes::new(),
    }
}
