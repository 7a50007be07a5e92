//! Published rounds against the bus, for `admit verify`: every message has its publication, and every
//! publication that is done has its message.

use std::collections::{BTreeMap, BTreeSet};

use admit_bus::{StoredMessage, Reference};
use admit_contracts::rounds::DOOR;
use admit_core::effect::EffectState;
use admit_core::{Digest, Fault};
use admit_gate::publisher::place_of;
use admit_ledger::PublicationReader;
use admit_ledger::verify::{Disagreement, DisagreementSink};

use super::outside_bus::Messages;

/// Rows that are read at a time.
const PAGE: usize = 500;

/// What the bus must have, as the ledger said before the bus was read.
#[derive(Debug, Default)]
pub(super) struct Published {
    missing: BTreeMap<u64, Missing>,
    topics: BTreeSet<String>,
    pub(super) ambiguous: u64,
}

/// A message that the bus must have.
#[derive(Debug)]
struct Missing {
    name: String,
    /// Where, as far as that is known.
    at: Option<Reference>,
}

impl Published {
    /// Every topic that something was published to, whatever the config says now.
    pub(super) fn topics(&self) -> impl Iterator<Item = String> {
        self.topics.iter().cloned()
    }

    /// Everything that was published.
    pub(super) async fn read(ledger: &(impl PublicationReader + ?Sized)) -> Result<Self, Fault> {
        let mut all = Self::default();
        let mut after = 0;
        loop {
            let page = ledger.publications(DOOR.to_owned(), after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.n;
            for one in page {
                all.topics.insert(one.topic);
                match one.state {
                    EffectState::Done(_) => {
                        let name = format!("revision {} of {}", one.revision, one.record_id);
                        let at = one.state.evidence().and_then(place_of);
                        all.missing.insert(one.n, Missing { name, at });
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

    /// Looks at one message; whether it is of a publication.
    pub(super) async fn message(
        &mut self,
        ledger: &(impl PublicationReader + ?Sized),
        record: &StoredMessage,
        dedupe_key: &str,
        found: &mut DisagreementSink<'_>,
    ) -> Result<bool, Fault> {
        let of = ledger.publication(DOOR.to_owned(), dedupe_key.to_owned()).await?;
        let Some(publication) = of else { return Ok(false) };
        let at = &record.reference;
        let place = format!("{} {}:{}", at.topic, at.partition, at.offset);
        let name = format!("revision {} of {}", publication.revision, publication.record_id);
        let mut disagree = |message: String| {
            found(Disagreement { at: None, check: "bus", message });
        };
        if record.partition_key != publication.partition_key {
            disagree(format!("{place} has another partition key than {name}"));
        }
        match &publication.state {
            EffectState::Done(_) => {
                let said = publication.state.evidence().and_then(place_of);
                // Where a person said so, the rest of the place is not known.
                let is_there = said.is_none_or(|said| {
                    (&said.topic, said.partition, &said.offset)
                        == (&at.topic, at.partition, &at.offset)
                });
                if !is_there {
                    disagree(format!("{place} is a second message of {name}"));
                } else if Digest::of(&record.payload) != publication.digest {
                    disagree(format!("{place} is not what was published as {name}"));
                }
                if is_there {
                    self.missing.remove(&publication.n);
                }
            }
            EffectState::Refused(_) => {
                disagree(format!("{place} is {name}, which was released as absent"));
            }
            // Not settled: what the bus has is for whoever reconciles.
            EffectState::Withheld(_)
            | EffectState::Intended(_)
            | EffectState::InFlight(_)
            | EffectState::Ambiguous(_) => {}
        }
        Ok(true)
    }

    /// What was not found. Returns how many the bus has let go, by its own rule.
    pub(super) fn judge(&self, messages: &Messages<'_>, found: &mut DisagreementSink<'_>) -> u64 {
        let mut gone = 0;
        for Missing { name, at } in self.missing.values() {
            let is_gone = |at: &Reference| messages.is_gone(&at.topic, at.partition, &at.offset);
            if at.as_ref().is_some_and(is_gone) {
                gone += 1;
                continue;
            }
            let message = format!("the bus does not have {name} where the ledger says");
            found(Disagreement { at: None, check: "bus", message });
        }
        gone
    }
}
