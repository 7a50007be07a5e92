//! Admission pipeline: the path of every submission, from body to reply.
//!
//! vet (pure, the contract) → record (the ledger, one durable commit) → reply (pure, the contract).
//! If the event causes an effect, that is performed and settled between record and reply: the intent is
//! in the record commit, and the reply waits for the settle commit.
//!
//! Invariant: `reply` is called only with the result of a durable commit. A fault of the gate is never
//! rendered as a verdict.

use std::sync::Arc;

use admit_contracts::{Reply, SplitRequest};
use admit_core::{Code, Digest, Entry, Fault, FaultKind, RecordedEntry, Submission};
use bytes::Bytes;
use futures_util::future::join_all;

use crate::builder::DoorMount;
use crate::gate::Gate;
use crate::gateway_delivery;
use crate::http::trace_field;
use crate::ingest::{self, Ingest};
use crate::publisher::Publisher;
use crate::request_permit::{NotAdmitted, RequestPermit, UNSIGNED_RATE_EXCEEDED};
use crate::reserve;
use crate::vetting::{self, PoolShare, VettingFailure};

/// Processes a request, which may contain several submissions: split (pure, the contract) → one batch →
/// join (pure, the contract). A request that is refused before vetting is only counted.
///
/// `split` verifies the signature of a request without a key; only then it counts for its principal.
pub(crate) async fn process_request(
    gate: &Gate,
    door: &DoorMount,
    request: Submission,
    permit: RequestPermit,
) -> Reply {
    // A door that cannot publish refuses requests and writes nothing.
    if let Some(ingest) = &door.effect_target.ingest {
        if !ingest.allows_push() {
            let message = "rate limit exceeded at this door (push_rate_limit_per_minute)";
            return gate.refuse(door, Code::RateLimited, message, gate.next_hint_seed());
        }
        if !ingest.health().takes_events {
            let message = "a dependency of this door is down, nothing was written";
            return gate.refuse(door, Code::Unhealthy, message, gate.next_hint_seed());
        }
    }
    let index = permit.index();
    let share = match permit.is_without_key() {
        true => PoolShare::Unauthenticated,
        false => PoolShare::Principal(index),
    };
    match vetting::split(gate, door, share, request).await {
        Ok(SplitRequest { submissions, shape }) => match permit.admit(gate, submissions.len()) {
            Ok(permit) => {
                let replies = admit(gate, door, index, submissions).await;
                drop(permit);
                door.contract.join(&shape, replies)
            }
            Err(denied) => {
                gate.refuse(door, denied.code, denied.message, gate.hint_after(denied.wait_seconds))
            }
        },
        Err(refusal) => {
            let is_unsigned = refusal.code == Code::Unauthorized && permit.is_without_key();
            if is_unsigned && let Err(exceeded) = gate.allow_unsigned(door) {
                let NotAdmitted { code, message, .. } = UNSIGNED_RATE_EXCEEDED;
                let hint = gate.hint_after(exceeded.retry_after_seconds);
                return gate.refuse(door, code, message, hint);
            }
            gate.refuse(door, refusal.code, &refusal.message, gate.next_hint_seed())
        }
    }
}

/// Admits a batch of the principal at `index`. Returns one reply for each submission, in order.
pub async fn admit(
    gate: &Gate,
    door: &DoorMount,
    index: usize,
    submissions: Vec<Submission>,
) -> Vec<Reply> {
    if submissions.is_empty() {
        return Vec::new();
    }
    let entries = match vetting::vet(gate, door, index, submissions).await {
        Ok(entries) => entries,
        Err(failure) => return reply_to_unvetted(gate, door, failure),
    };
    if gate.reserve.as_ref().is_some_and(|reserve| reserve.is_low()) {
        return admit_duplicates(gate, door, entries).await;
    }
    admit_entries(gate, door, entries).await
}

/// Admits a batch while the disk is below its reserve: only duplicates; everything else gets a fault and
/// is not written.
async fn admit_duplicates(gate: &Gate, door: &DoorMount, entries: Vec<Entry>) -> Vec<Reply> {
    let faults = reserve::faults_of_new(&*gate.ledger, &entries).await;
    let mut duplicates = Vec::new();
    let mut replies: Vec<Option<Reply>> = Vec::with_capacity(entries.len());
    for (entry, fault) in entries.into_iter().zip(faults) {
        match fault {
            Some(fault) => {
                replies.push(Some(reply_or_fault(gate, door, &HintSeed::of(&entry), Err(fault))))
            }
            None => {
                duplicates.push(entry);
                replies.push(None);
            }
        }
    }
    let mut admitted = match duplicates.is_empty() {
        true => Vec::new(),
        false => admit_entries(gate, door, duplicates).await,
    }
    .into_iter();
    replies.into_iter().filter_map(|reply| reply.or_else(|| admitted.next())).collect()
}

async fn admit_entries(gate: &Gate, door: &DoorMount, entries: Vec<Entry>) -> Vec<Reply> {
    let seeds: Vec<HintSeed> = entries.iter().map(HintSeed::of).collect();
    if let Some(ingest) = &door.effect_target.ingest {
        return publish(gate, door, ingest, entries, seeds).await;
    }
    let mut recorded = gate.ledger.record(entries).await.into_iter();
    let verdicts: Vec<_> = seeds
        .into_iter()
        .map(|seed| (seed, recorded.next().unwrap_or_else(|| Err(missing_verdict()))))
        .collect();
    if let Some(publisher) = gate.publisher.as_ref().filter(|_| door.door == Publisher::door()) {
        publisher.wake();
    }
    match door.contract.gateway_calls() {
        None => {
            let now = gate.clock.now();
            let reply = |recorded: RecordedEntry| Ok(door.contract.reply_at(&recorded, now));
            let replies = verdicts.into_iter().map(|(seed, verdict)| {
                reply_or_fault(gate, door, &seed, count(gate, door, verdict).and_then(reply))
            });
            replies.collect()
        }
        Some(calling) => {
            let replies = verdicts.into_iter().map(async |(seed, verdict)| {
                let reply = match count(gate, door, verdict) {
                    Ok(recorded) => {
                        gateway_delivery::conclude(gate, door, calling, &recorded).await
                    }
                    Err(fault) => Err(fault),
                };
                reply_or_fault(gate, door, &seed, reply)
            });
            join_all(replies).await
        }
    }
}

/// Admits entries at a door whose events are published.
async fn publish(
    gate: &Gate,
    door: &DoorMount,
    ingest: &Arc<Ingest>,
    entries: Vec<Entry>,
    seeds: Vec<HintSeed>,
) -> Vec<Reply> {
    let mut admitted = ingest::admit(ingest, entries).await.into_iter();
    let replies = seeds.into_iter().map(|seed| {
        let outcome = admitted.next().unwrap_or_else(|| Err(missing_verdict()));
        let reply = outcome.and_then(|(recorded, _, reply)| {
            count(gate, door, Ok(recorded))?;
            Ok(reply)
        });
        reply_or_fault(gate, door, &seed, reply)
    });
    replies.collect()
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

fn count_fault(gate: &Gate, door: &DoorMount, fault: &Fault) {
    if let Some(counters) = gate.metrics().door(&door.door) {
        counters.faults.of(fault.code()).add_one();
    }
}

/// Renders the replies to a request that was not vetted.
fn reply_to_unvetted(gate: &Gate, door: &DoorMount, failure: VettingFailure) -> Vec<Reply> {
    let VettingFailure { fault, bodies } = failure;
    // An overload of the pool is caused by clients: counted like any fault, but not logged as an error.
    if fault.kind != FaultKind::Overloaded {
        log(gate, door, &fault);
    }
    let seeds = bodies.into_iter().map(|body| HintSeed { key: None, body });
    seeds
        .map(|seed| {
            count_fault(gate, door, &fault);
            gate.render_refusal(door, &seed.body, fault.code(), fault.message, seed.number())
        })
        .collect()
}

/// Returns the reply, or renders the fault in the format of the door's contract.
fn reply_or_fault(
    gate: &Gate,
    door: &DoorMount,
    seed: &HintSeed,
    reply: Result<Reply, Fault>,
) -> Reply {
    reply.unwrap_or_else(|fault| {
        count_fault(gate, door, &fault);
        log(gate, door, &fault);
        gate.render_refusal(door, &seed.body, fault.code(), fault.message, seed.number())
    })
}

/// Source of an event's retry-hint seed: its key, or its body if it has none. The same event gets the
/// same hint; different events retry at different times.
struct HintSeed {
    key: Option<u32>,
    body: Bytes,
}

impl HintSeed {
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

/// Computes the retry-hint seed of a body without a key.
pub(crate) fn body_seed(body: &[u8]) -> u32 {
    first_four(Digest::of(body).as_bytes())
}

fn first_four(hash: &[u8; 32]) -> u32 {
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

fn missing_verdict() -> Fault {
    Fault::new(FaultKind::Internal, "the ledger returned fewer verdicts than events")
}

fn log(gate: &Gate, door: &DoorMount, fault: &Fault) {
    if gate.may_log_fault() {
        let cause = fault.source.as_deref().map(tracing::field::display);
        let trace_id = trace_field();
        tracing::error!(trace_id, door = %door.door, code = fault.code().as_str(), cause, "{fault}");
    }
}
