//! The path of every submission, top to bottom: bytes in, a verdict said out loud.
//!
//! vet (pure, the contract) → record (the ledger, one durable commit) → reply (pure, the contract).
//! Where the event causes an effect, it is performed and settled between record and reply: the
//! intent is in the record commit, and the reply waits for the settle commit.
//!
//! Invariant: `reply` is called only with what a durable commit returned. A fault of ours is never
//! said as a verdict.

use std::sync::Arc;

use admit_contracts::{Reply, Split};
use admit_core::{Code, Digest, Entry, Fault, FaultKind, Recorded, Submission};
use bytes::Bytes;
use futures_util::future::join_all;

use crate::gate::Gate;
use crate::http::trace_field;
use crate::ingest::{self, Ingest};
use crate::parts::DoorMount;
use crate::perform;
use crate::publisher::Publisher;

/// Answers a request, which may carry many submissions: split (pure, the contract) → one batch →
/// join (pure, the contract). A request that may not be looked at any further is counted only.
pub async fn answer(gate: &Gate, door: &DoorMount, request: Submission) -> Reply {
    // A door that cannot keep its promise takes nothing and writes nothing.
    if let Some(ingest) = &door.outward.ingest {
        if !ingest.allows_push() {
            let message = "more events are pushed than this door takes in a minute";
            return gate.refuse(door, Code::RateLimited, message, gate.ticket());
        }
        if !ingest.health().takes_events {
            let message = "a part that this door needs is down, nothing was written";
            return gate.refuse(door, Code::Unhealthy, message, gate.ticket());
        }
    }
    match door.contract.split(request) {
        Ok(Split { submissions, shape }) => {
            let replies = admit(gate, door, submissions).await;
            door.contract.join(&shape, replies)
        }
        Err(turned) => gate.refuse(door, turned.code, &turned.message, gate.ticket()),
    }
}

/// Admits a batch: one reply for each submission, in order.
pub async fn admit(gate: &Gate, door: &DoorMount, submissions: Vec<Submission>) -> Vec<Reply> {
    let vet = |submission| door.contract.vet(&door.door, submission);
    let entries: Vec<Entry> = submissions.into_iter().map(vet).collect();
    if entries.is_empty() {
        return Vec::new();
    }
    let seeds: Vec<Seed> = entries.iter().map(Seed::of).collect();
    if let Some(ingest) = &door.outward.ingest {
        return publish(gate, door, ingest, entries, seeds).await;
    }
    let mut recorded = gate.ledger.record(entries).await.into_iter();
    let verdicts: Vec<_> = seeds
        .into_iter()
        .map(|seed| (seed, recorded.next().unwrap_or_else(|| Err(unanswered()))))
        .collect();
    if let Some(publisher) = gate.publisher.as_ref().filter(|_| door.door == Publisher::door()) {
        publisher.wake();
    }
    match door.contract.calling() {
        None => {
            let now = gate.clock.now();
            let reply = |recorded: Recorded| Ok(door.contract.reply_at(&recorded, now));
            let said = verdicts.into_iter();
            said.map(|(seed, verdict)| {
                say(gate, door, &seed, count(gate, door, verdict).and_then(reply))
            })
            .collect()
        }
        Some(calling) => {
            let performed = verdicts.into_iter().map(async |(seed, verdict)| {
                let reply = match count(gate, door, verdict) {
                    Ok(recorded) => perform::conclude(gate, door, calling, &recorded).await,
                    Err(fault) => Err(fault),
                };
                say(gate, door, &seed, reply)
            });
            join_all(performed).await
        }
    }
}

/// The same at a door whose events are published.
async fn publish(
    gate: &Gate,
    door: &DoorMount,
    ingest: &Arc<Ingest>,
    entries: Vec<Entry>,
    seeds: Vec<Seed>,
) -> Vec<Reply> {
    let mut answered = ingest::admit(ingest, entries).await.into_iter();
    let said = seeds.into_iter().map(|seed| {
        let answered = answered.next().unwrap_or_else(|| Err(unanswered()));
        let reply = answered.and_then(|(recorded, _, reply)| {
            count(gate, door, Ok(recorded))?;
            Ok(reply)
        });
        say(gate, door, &seed, reply)
    });
    said.collect()
}

/// Counts a verdict once it is durable.
fn count(
    gate: &Gate,
    door: &DoorMount,
    recorded: Result<Recorded, Fault>,
) -> Result<Recorded, Fault> {
    if let (Ok(recorded), Some(counters)) = (&recorded, gate.metrics().door(&door.door)) {
        counters.count(&recorded.verdict);
    }
    recorded
}

/// The reply, or the fault in the words of the door's contract.
fn say(gate: &Gate, door: &DoorMount, seed: &Seed, reply: Result<Reply, Fault>) -> Reply {
    reply.unwrap_or_else(|fault| {
        if let Some(counters) = gate.metrics().door(&door.door) {
            counters.faults.of(fault.code()).add_one();
        }
        log(gate, door, &fault);
        gate.say_about(door, &seed.body, fault.code(), fault.message, seed.number())
    })
}

/// What spreads the retry hint of an event: its key, or its body where it has none. The same event
/// gets the same hint; different ones come back at different times.
struct Seed {
    key: Option<u32>,
    body: Bytes,
}

impl Seed {
    fn of(entry: &Entry) -> Self {
        match entry {
            Entry::Event(event) => {
                let key = Some(first_four(event.key.as_bytes()));
                Self { key, body: event.body.clone() }
            }
            Entry::Refused(refused) => Self { key: None, body: refused.body.clone() },
        }
    }

    fn number(&self) -> u32 {
        self.key.unwrap_or_else(|| body_seed(&self.body))
    }
}

/// The seed of a body that has no key yet.
pub(crate) fn body_seed(body: &[u8]) -> u32 {
    first_four(Digest::of(body).as_bytes())
}

fn first_four(hash: &[u8; 32]) -> u32 {
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

fn unanswered() -> Fault {
    Fault::new(FaultKind::Internal, "the ledger answered for fewer events than it was given")
}

fn log(gate: &Gate, door: &DoorMount, fault: &Fault) {
    if gate.may_log_fault() {
        let cause = fault.source.as_deref().map(tracing::field::display);
        let trace_id = trace_field();
        tracing::error!(trace_id, door = %door.door, code = fault.code().as_str(), cause, "{fault}");
    }
}
