//! The path of every submission, top to bottom: bytes in, a verdict said out loud.
//!
//! vet (pure, the contract) → record (the ledger, one durable commit) → reply (pure, the contract).
//! Where the event causes an effect, it is performed and settled between record and reply: the
//! intent is in the record commit, and the reply waits for the settle commit.
//!
//! Invariant: `reply` is called only with what a durable commit returned. A fault of ours is never
//! said as a verdict.

use std::sync::Arc;

use admit_contracts::{Reply, SplitRequest};
use admit_core::{Code, Digest, Entry, Fault, FaultKind, RecordedEntry, Submission};
use bytes::Bytes;
use futures_util::future::join_all;

use crate::gate::Gate;
use crate::http::trace_field;
use crate::ingest::{self, Ingest};
use crate::parts::DoorMount;
use crate::perform;
use crate::publisher::Publisher;
use crate::request_permit::{NotAdmitted, RequestPermit, TOO_FAST_UNSIGNED};
use crate::reserve;
use crate::vetting::{self, Unvetted};

/// Answers a request, which may carry many submissions: split (pure, the contract) → one batch →
/// join (pure, the contract). A request that may not be looked at any further is counted only.
///
/// What a request without a key says of its sender is verified by `split`: only after that it counts
/// for its principal.
pub(crate) async fn answer(
    gate: &Gate,
    door: &DoorMount,
    request: Submission,
    permit: RequestPermit,
) -> Reply {
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
    let place = permit.place();
    match door.contract.split(request) {
        Ok(SplitRequest { submissions, shape }) => match permit.admit(gate, submissions.len()) {
            Ok(inside) => {
                let replies = admit(gate, door, place, submissions).await;
                drop(inside);
                door.contract.join(&shape, replies)
            }
            Err(not) => gate.refuse(door, not.code, not.message, gate.hint_after(not.wait_seconds)),
        },
        Err(turned) => {
            let is_unsigned = turned.code == Code::Unauthorized && permit.is_without_key();
            if is_unsigned && let Err(exceeded) = gate.allow_unsigned(door) {
                let NotAdmitted { code, message, .. } = TOO_FAST_UNSIGNED;
                let hint = gate.hint_after(exceeded.retry_after_seconds);
                return gate.refuse(door, code, message, hint);
            }
            gate.refuse(door, turned.code, &turned.message, gate.ticket())
        }
    }
}

/// Admits a batch of the principal at `place`: one reply for each submission, in order.
pub async fn admit(
    gate: &Gate,
    door: &DoorMount,
    place: usize,
    submissions: Vec<Submission>,
) -> Vec<Reply> {
    if submissions.is_empty() {
        return Vec::new();
    }
    let entries = match vetting::vet(gate, door, place, submissions).await {
        Ok(entries) => entries,
        Err(unvetted) => return say_unvetted(gate, door, unvetted),
    };
    if gate.reserve.as_ref().is_some_and(|reserve| reserve.is_low()) {
        return copies(gate, door, entries).await;
    }
    admit_entries(gate, door, entries).await
}

/// The same while the disk is below its reserve: copies go on, anything else is answered before
/// anything is written.
async fn copies(gate: &Gate, door: &DoorMount, entries: Vec<Entry>) -> Vec<Reply> {
    let faults = reserve::faults_of_new(&*gate.ledger, &entries).await;
    let mut known = Vec::new();
    let mut replies: Vec<Option<Reply>> = Vec::with_capacity(entries.len());
    for (entry, fault) in entries.into_iter().zip(faults) {
        match fault {
            Some(fault) => replies.push(Some(say(gate, door, &Seed::of(&entry), Err(fault)))),
            None => {
                known.push(entry);
                replies.push(None);
            }
        }
    }
    let mut answered = match known.is_empty() {
        true => Vec::new(),
        false => admit_entries(gate, door, known).await,
    }
    .into_iter();
    replies.into_iter().filter_map(|reply| reply.or_else(|| answered.next())).collect()
}

async fn admit_entries(gate: &Gate, door: &DoorMount, entries: Vec<Entry>) -> Vec<Reply> {
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
    match door.contract.gateway_calls() {
        None => {
            let now = gate.clock.now();
            let reply = |recorded: RecordedEntry| Ok(door.contract.reply_at(&recorded, now));
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
    recorded: Result<RecordedEntry, Fault>,
) -> Result<RecordedEntry, Fault> {
    if let (Ok(recorded), Some(counters)) = (&recorded, gate.metrics().door(&door.door)) {
        counters.count(&recorded.verdict);
    }
    recorded
}

/// The reply, or the fault in the words of the door's contract.
fn count_fault(gate: &Gate, door: &DoorMount, fault: &Fault) {
    if let Some(counters) = gate.metrics().door(&door.door) {
        counters.faults.of(fault.code()).add_one();
    }
}

/// The replies to a request that was not vetted.
fn say_unvetted(gate: &Gate, door: &DoorMount, unvetted: Unvetted) -> Vec<Reply> {
    let Unvetted { fault, bodies } = unvetted;
    // Clients cause an overload of the pool; it is counted like any fault, and no error of the gate.
    if fault.kind != FaultKind::Overloaded {
        log(gate, door, &fault);
    }
    let seeds = bodies.into_iter().map(|body| Seed { key: None, body });
    seeds
        .map(|seed| {
            count_fault(gate, door, &fault);
            gate.say_about(door, &seed.body, fault.code(), fault.message, seed.number())
        })
        .collect()
}

fn say(gate: &Gate, door: &DoorMount, seed: &Seed, reply: Result<Reply, Fault>) -> Reply {
    reply.unwrap_or_else(|fault| {
        count_fault(gate, door, &fault);
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
