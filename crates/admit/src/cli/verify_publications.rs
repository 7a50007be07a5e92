//! Published rounds against the bus: every message has its publication, and every completed publication its
//! message.

use std::collections::{BTreeMap, BTreeSet};

use admit_bus::{Reference, StoredMessage};
use admit_contracts::rounds::DOOR;
use admit_core::effect::EffectState;
use admit_core::{Digest, Fault};
use admit_gate::publisher::reference_of;
use admit_ledger::PublicationReader;
use admit_ledger::verify::{Disagreement, DisagreementSink};

use super::bus_messages::BusMessages;

/// Rows read per page.
const PAGE: usize = 500;

/// Publications of the ledger, read before the bus, and the messages that must be there.
#[derive(Debug, Default)]
pub(super) struct PublicationCheck {
    expected: BTreeMap<u64, PublicationMessage>,
    topics: BTreeSet<String>,
    pub(super) ambiguous: u64,
}

/// A message of a completed publication.
#[derive(Debug)]
struct PublicationMessage {
    name: String,
    /// Position on the bus, if it is known.
    at: Option<Reference>,
}

impl PublicationCheck {
    /// Topics of all publications, including topics that the config no longer names.
    pub(super) fn topics(&self) -> impl Iterator<Item = String> {
        self.topics.iter().cloned()
    }

    /// Reads all publications.
    pub(super) async fn read(ledger: &(impl PublicationReader + ?Sized)) -> Result<Self, Fault> {
        let mut all = Self::default();
        let mut after = 0;
        loop {
            let page = ledger.publications(DOOR.to_owned(), after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.n;
            for publication in page {
                all.topics.insert(publication.topic);
                match publication.state {
                    EffectState::Done(_) => {
                        let name = format!(
                            "revision {} of {}",
                            publication.revision, publication.record_id
                        );
                        let at = publication.state.evidence().and_then(reference_of);
                        all.expected.insert(publication.n, PublicationMessage { name, at });
                    }
                    EffectState::Ambiguous(_) => all.ambiguous += 1,
                    EffectState::Withheld(_)
                    | EffectState::Intended(_)
                    | EffectState::InFlight(_)
                    | EffectState::Refused(_) => {}
                }
            }
        }
    }

    /// Compares a message with its publication. Returns whether it has one.
    pub(super) async fn check_message(
        &mut self,
        ledger: &(impl PublicationReader + ?Sized),
        record: &StoredMessage,
        dedupe_key: &str,
        found: &mut DisagreementSink<'_>,
    ) -> Result<bool, Fault> {
        let of = ledger.publication(DOOR.to_owned(), dedupe_key.to_owned()).await?;
        let Some(publication) = of else { return Ok(false) };
        let at = &record.reference;
        let position = format!("{} {}:{}", at.topic, at.partition, at.offset);
        let name = format!("revision {} of {}", publication.revision, publication.record_id);
        let mut add = |message: String| {
            found(Disagreement { at: None, check: "bus", message });
        };
        if record.partition_key != publication.partition_key {
            add(format!("{position} has a partition key that differs from that of {name}"));
        }
        match &publication.state {
            EffectState::Done(_) => {
                let evidence = publication.state.evidence().and_then(reference_of);
                // Without a position: an operator reconciled it as found.
                let is_there = evidence.is_none_or(|evidence| {
                    (&evidence.topic, evidence.partition, &evidence.offset)
                        == (&at.topic, at.partition, &at.offset)
                });
                if !is_there {
                    add(format!("{position} is a second message of {name}"));
                } else if Digest::of(&record.payload) != publication.digest {
                    add(format!("{position} differs from the published payload of {name}"));
                }
                if is_there {
                    self.expected.remove(&publication.n);
                }
            }
            EffectState::Refused(_) => {
                add(format!("{position} is {name}, which was released as absent"));
            }
            // Unsettled: `admit reconcile` resolves these.
            EffectState::Withheld(_)
            | EffectState::Intended(_)
            | EffectState::InFlight(_)
            | EffectState::Ambiguous(_) => {}
        }
        Ok(true)
    }

    /// Adds the messages that were not found. Returns how many the retention of the bus has removed.
    pub(super) fn add_missing(
        &self,
        messages: &BusMessages<'_>,
        found: &mut DisagreementSink<'_>,
    ) -> u64 {
        let mut expired = 0;
        for PublicationMessage { name, at } in self.expected.values() {
            let has_expired =
                |at: &Reference| messages.has_expired(&at.topic, at.partition, &at.offset);
            if at.as_ref().is_some_and(has_expired) {
                expired += 1;
                continue;
            }
            let message = format!("{name} missing on the bus at the offset recorded in the ledger");
            found(Disagreement { at: None, check: "bus", message });
        }
        expired
    }
}
