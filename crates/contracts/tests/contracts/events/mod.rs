//! The `events` contract, held to its promises one request at a time.

mod cloud;
mod identity;
mod many;
mod rules;

use admit_contracts::events::{Events, Settings};
use admit_contracts::{Contract as _, Reply, Split};
use admit_core::{
    Code, Door, Entry, Event, First, Millis, Principal, Recorded, Refused, Seq, Submission, Verdict,
};
use bytes::Bytes;

pub(crate) const NOW: Millis = Millis(1_771_524_842_123);

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// The contract of the stream `orders`, with settings changed by `change`.
pub(crate) fn stream(change: impl FnOnce(&mut Settings)) -> Events {
    let mut settings = Settings::named("orders");
    change(&mut settings);
    Events::new(settings).expect("settings that fit")
}

/// A request with these headers, as the door hands it over.
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

/// What becomes of every event in a request.
pub(crate) fn entries(events: &Events, submission: Submission) -> Vec<Entry> {
    let Split { submissions, .. } = events.split(submission).expect("it is looked at");
    submissions.into_iter().map(|one| events.vet(&Door::new("events/orders"), one)).collect()
}

/// The one event of a request.
pub(crate) fn event(events: &Events, headers: &[(&str, &str)], body: &str) -> Event {
    match entries(events, request(headers, body)).pop() {
        Some(Entry::Event(event)) => event,
        other => panic!("an event was expected, not {other:?}"),
    }
}

/// The refusal of the one event of a request.
pub(crate) fn refused(events: &Events, headers: &[(&str, &str)], body: &str) -> Refused {
    match entries(events, request(headers, body)).pop() {
        Some(Entry::Refused(refused)) => refused,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

/// The code under which it is refused.
pub(crate) fn code(events: &Events, headers: &[(&str, &str)], body: &str) -> Code {
    refused(events, headers, body).code
}

/// The reply to an event with this verdict.
pub(crate) fn reply(events: &Events, event: &Event, verdict: Verdict) -> Reply {
    let entry = Entry::Event(event.clone());
    events.reply(&Recorded { entry, verdict, ledger: 7, outcome: None })
}

/// What the ledger knows of `event` when it was admitted at place 3.
pub(crate) fn first(event: &Event) -> First {
    First {
        seq: Seq(3),
        digest: event.digest,
        received_at: event.received_at,
        principal: event.principal.clone(),
        facts: Bytes::new(),
    }
}
