//! Bus messages against the ledger: every message has its admission, every admission its message.

use admit_bus::StoredMessage;
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_contracts::ingestion_gate::{DOOR, names, publication};
use admit_core::effect::{Effect, EffectState};
use admit_core::json;
use admit_core::{Door, Seq};
use admit_ledger::EffectFilter;
use admit_ledger::verify::{Disagreement, DisagreementSink};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::bus_messages::BusMessages;
use super::verify_prefetch::{ClaimedKeys, DocumentIndex, ReceiptPrefetch};
use super::verify_publications::PublicationCheck;
use super::verify_stores::{PAGE, READS_MAX, StoreCheckError, StoreCounts, print_progress};
use crate::bus::BusReader;
use crate::ledger::LedgerReader;

/// The bus, with the topics to read if it cannot list them.
pub(super) struct BusSource {
    pub(super) source: BusReader,
    pub(super) topics: Vec<String>,
    /// Topics of messages that are not events: governance and run control.
    pub(super) topics_without_events: Vec<String>,
}

/// Compares every message with its admission, and every admission with its message.
pub(super) async fn check_messages(
    ledger: &dyn LedgerReader,
    bus: &BusSource,
    documents: &DocumentIndex,
    last: Seq,
    counts: &mut StoreCounts,
    found: &mut DisagreementSink<'_>,
) -> Result<(), StoreCheckError> {
    let seqs = usize::try_from(last.0).unwrap_or(usize::MAX).saturating_add(1);
    // By seq: whether the admission's message was seen on the bus.
    let mut seen = vec![false; seqs];
    let mut publications = PublicationCheck::read(ledger).await?;
    let mut topics = bus.topics.clone();
    topics.extend(publications.topics().filter(|topic| !bus.topics.contains(topic)));
    let mut messages = BusMessages::new(&bus.source, topics)?;
    let keys = ClaimedKeys::read(ledger).await?;
    loop {
        let batch = next_batch(&mut messages, &keys, counts, found).await;
        if batch.is_empty() {
            break;
        }
        print_progress(counts.messages, "messages");
        let prefetch =
            ReceiptPrefetch::read(ledger, batch.iter().filter_map(|(_, seq)| *seq)).await?;
        let bodies = batch.iter().map(async |(_, seq)| match seq {
            Some(seq) => ledger.body(*seq).await,
            None => Ok(None),
        });
        let bodies: Vec<_> =
            stream::iter(bodies.collect::<Vec<_>>()).buffered(READS_MAX).try_collect().await?;
        for ((record, seq), body) in batch.iter().zip(bodies) {
            let is_ours = match seq {
                Some(seq) => {
                    check_message(&prefetch, record, (*seq, body), &mut seen, found).await?
                }
                None => match &record.dedupe_key {
                    Some(key) => publications.check_message(ledger, record, key, found).await?,
                    None => false,
                },
            };
            if is_ours || bus.topics_without_events.contains(&record.reference.topic) {
                continue;
            }
            if messages.is_shared() {
                counts.other_messages += 1;
            } else {
                add_bus_disagreement(found, unmatched_message(record));
            }
        }
    }
    counts.expired += publications.add_missing(&messages, found);
    counts.ambiguous += publications.ambiguous;
    let mut after = Seq(0);
    loop {
        let filter = EffectFilter {
            door: Some(DOOR.to_owned()),
            states: vec!["done".to_owned(), "ambiguous".to_owned()],
            after,
            rows_max: PAGE,
        };
        let page = ledger.effects(filter).await?;
        let Some(newest) = page.last() else { return Ok(()) };
        after = newest.seq;
        for effect in page.iter().filter(|effect| effect.seq <= last) {
            check_admission(effect, (&seen, &messages, documents), counts, found);
        }
    }
}

/// Reads the next messages, each with the admission of its key.
async fn next_batch(
    messages: &mut BusMessages<'_>,
    keys: &ClaimedKeys,
    counts: &mut StoreCounts,
    found: &mut DisagreementSink<'_>,
) -> Vec<(StoredMessage, Option<Seq>)> {
    let mut batch = Vec::with_capacity(PAGE);
    while batch.len() < PAGE
        && let Some(record) = messages.next().await
    {
        counts.messages += 1;
        match record {
            Ok(record) => {
                let key = record.dedupe_key.as_ref();
                let seq = key.and_then(|key| keys.find(&names::key(&Door::new(DOOR), key)));
                batch.push((record, seq));
            }
            Err(message) => add_bus_disagreement(found, message),
        }
    }
    batch
}

/// Describes a message on the local bus that belongs to no admission.
fn unmatched_message(record: &StoredMessage) -> String {
    let at = &record.reference;
    let position = format!("{} {}:{}", at.topic, at.partition, at.offset);
    match &record.dedupe_key {
        Some(key) => format!("{position} belongs to no admission: dedupe key {key}"),
        None => format!("{position} has no dedupe key"),
    }
}

fn add_bus_disagreement(found: &mut DisagreementSink<'_>, message: String) {
    found(Disagreement { at: None, check: "bus", message });
}

/// Compares a message with its admission. Returns whether it belongs to one of this ledger.
async fn check_message(
    prefetch: &ReceiptPrefetch<'_>,
    record: &StoredMessage,
    (seq, body): (Seq, Option<bytes::Bytes>),
    seen: &mut [bool],
    found: &mut DisagreementSink<'_>,
) -> Result<bool, StoreCheckError> {
    let at = &record.reference;
    let position = format!("{} {}:{}", at.topic, at.partition, at.offset);
    let Some(effect) = prefetch.effect(seq).await? else {
        add_bus_disagreement(
            found,
            format!("{position} belongs to an admission without an effect"),
        );
        return Ok(true);
    };
    if let Some(body) = body
        && !is_same_envelope(&body, &record.payload)
    {
        found(Disagreement::at(
            seq,
            "bus",
            format!("{position} has an envelope that differs from the admitted body"),
        ));
    }
    let planned = json::parse(&effect.plan, &json::Limits::default()).ok();
    let planned = planned.as_ref().and_then(|plan| publication::plan(plan.as_object()?));
    if planned.is_none_or(|plan| plan.partition_key != record.partition_key) {
        let message = format!("{position} has a partition key that differs from the planned one");
        found(Disagreement::at(seq, "bus", message));
    }
    match &effect.state {
        EffectState::Done(_) => {
            let evidence = effect.state.evidence().and_then(CommitEvidence::read);
            let is_there = evidence.is_some_and(|evidence| {
                let evidence = evidence.eb_ref;
                evidence.topic == at.topic
                    && evidence.partition == at.partition
                    && evidence.offset == at.offset
                    && (evidence.published_at.is_none() || evidence.published_at == at.published_at)
            });
            let index = usize::try_from(seq.0).unwrap_or(usize::MAX);
            match seen.get_mut(index) {
                Some(mark) if is_there => *mark = true,
                _ if is_there => {}
                _ => {
                    let message = format!("{position} is a second message of one admission");
                    found(Disagreement::at(seq, "bus", message));
                }
            }
        }
        EffectState::Refused(_) => {
            let message = format!("{position} belongs to an admission that was released as absent");
            found(Disagreement::at(seq, "bus", message));
        }
        // Unsettled: `admit reconcile` resolves these.
        EffectState::Withheld(_)
        | EffectState::Intended(_)
        | EffectState::InFlight(_)
        | EffectState::Ambiguous(_) => {}
    }
    Ok(true)
}

/// Checks that the message of an admission was seen, and that its receipt exists.
fn check_admission(
    effect: &Effect,
    (seen, messages, documents): (&[bool], &BusMessages<'_>, &DocumentIndex),
    counts: &mut StoreCounts,
    found: &mut DisagreementSink<'_>,
) {
    let index = usize::try_from(effect.seq.0).unwrap_or(usize::MAX);
    let is_done = matches!(effect.state, EffectState::Done(_));
    if is_done && !seen.get(index).copied().unwrap_or(false) {
        let evidence =
            effect.state.evidence().and_then(CommitEvidence::read).map(|evidence| evidence.eb_ref);
        let has_expired =
            evidence.is_some_and(|at| messages.has_expired(&at.topic, at.partition, &at.offset));
        if has_expired {
            counts.expired += 1;
        } else {
            let message = "message missing on the bus at the offset recorded in the ledger";
            found(Disagreement::at(effect.seq, "bus", message));
        }
    }
    if !is_done {
        counts.ambiguous += 1;
    }
    let (expected, mark, what) = match is_done {
        true => ("ADMIT", DocumentIndex::ADMIT, "admitted"),
        false => ("QUARANTINE", DocumentIndex::QUARANTINE, "ambiguous"),
    };
    if !documents.has(effect.seq, mark) {
        let message = format!("{what} admission without {expected} receipt");
        found(Disagreement::at(effect.seq, "receipt", message));
    }
}

/// Whether body and payload are the same envelope: byte for byte, or as canonical JSON, because the file bus
/// stores a message as one line without its whitespace.
fn is_same_envelope(body: &[u8], payload: &[u8]) -> bool {
    let canonical = |text: &[u8]| {
        let limits = json::Limits { bytes_max: usize::MAX, depth_max: json::DEPTH_CEILING };
        json::parse(text, &limits)
            .ok()
            .and_then(|value| json::canonical(&value, json::Form::Ascii).ok())
    };
    body == payload || canonical(body) == canonical(payload)
}
