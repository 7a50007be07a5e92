//! The documents of this contract: which are written on which occasion, and what they are called.

use std::borrow::Cow;

use admit_core::effect::{By, Standing};
use admit_core::json::{Object, Value};
use admit_core::{Digest, Issued, IssuedKind, Occasion, Original, Said};

use super::facts::Facts;
use super::law::{self, Known};
use super::names::{self, ArtifactName};
use super::paths::{Paths, UNSCOPED};
use super::receipt::Committed;
use super::words::{Decision, Reason};
use super::{governance, quarantine, receipt};

/// The word for a run that takes nothing new.
pub const RUN_CLOSED: &str = "RUN_CLOSED";

/// The word for a run that takes nothing new for the moment.
pub const RUN_CLOSING: &str = "RUN_CLOSING";

/// Writes the documents of this contract.
#[derive(Clone, Debug)]
pub(super) struct Issuer {
    paths: Paths,
}

impl Issuer {
    /// Documents that lie in these places.
    pub(super) fn new(paths: Paths) -> Self {
        Self { paths }
    }

    fn known(&self, said: &Said<'_>, facts: Facts<'_>, first: Original<'_>) -> Vec<Issued> {
        let before = Facts::new(first.facts);
        let stored = hash(before);
        match law::existing(&stored, Some(first.standing), &hash(facts)) {
            Known::Quarantine(reason) => self.quarantined(said, facts, reason),
            Known::Duplicate => match committed(first.standing) {
                Some(committed) => {
                    let name = artifact(Decision::Duplicate, facts, super::DUPLICATE);
                    self.receipt(said, facts, &name, |id| {
                        receipt::duplicate(facts, id, &committed, first.receipt)
                    })
                    .into_iter()
                    .collect()
                }
                None => self.quarantined(said, facts, Reason::AdmissionStateInvalid),
            },
        }
    }

    fn settled(
        &self,
        said: &Said<'_>,
        facts: Facts<'_>,
        standing: &Standing,
        by: Option<&By>,
    ) -> Vec<Issued> {
        match standing {
            Standing::Done(_) => match committed(standing) {
                Some(committed) => {
                    let name = artifact(Decision::Admit, facts, "");
                    let receipt = self.receipt(said, facts, &name, |id| {
                        receipt::admit(facts, id, &committed, by)
                    });
                    receipt.into_iter().collect()
                }
                None => self.quarantined(said, facts, Reason::AdmissionStateInvalid),
            },
            Standing::Ambiguous(_) => self.quarantined(said, facts, Reason::PublishAmbiguous),
            Standing::Withheld(_)
            | Standing::Intended(_)
            | Standing::InFlight(_)
            | Standing::Refused(_) => Vec::new(),
        }
    }

    /// The record, its receipt, and the line about both.
    fn quarantined(&self, said: &Said<'_>, facts: Facts<'_>, reason: Reason) -> Vec<Issued> {
        let Some(run) = facts.run() else { return Vec::new() };
        let name = artifact(Decision::Quarantine, facts, reason.as_str());
        let id = self.id(said, run, &name);
        let path = self.paths.quarantine(run, &id);
        let record = quarantine::record(facts, &id, reason.as_str(), said.at, None);
        let kept = Issued {
            kind: IssuedKind::Quarantine,
            run: Some(run.to_owned()),
            id: id.clone(),
            identity: name.long(),
            decision: Cow::Borrowed(Decision::Quarantine.as_str()),
            reason: Some(Cow::Borrowed(reason.as_str())),
            event_id: facts.event_id().map(str::to_owned),
            event_type: Some(facts.event_type().to_owned()),
            text: text(record),
            path: path.clone(),
        };
        let mut documents = vec![kept];
        documents.extend(
            self.receipt(said, facts, &name, |id| receipt::quarantine(facts, id, reason, &path)),
        );
        if let Some((event_id, line)) = governance::anomaly(facts, reason.as_str(), &path, said.at)
        {
            documents.push(Issued {
                kind: IssuedKind::Governance,
                run: Some(run.to_owned()),
                path: self.paths.governance_marker(run, &event_id),
                identity: event_id.clone(),
                id: event_id,
                decision: Cow::Borrowed(governance::Family::CorridorAnomaly.as_str()),
                reason: Some(Cow::Borrowed(reason.as_str())),
                event_id: facts.event_id().map(str::to_owned),
                event_type: Some(facts.event_type().to_owned()),
                text: text(line),
            });
        }
        documents
    }

    fn receipt(
        &self,
        said: &Said<'_>,
        facts: Facts<'_>,
        name: &ArtifactName<'_>,
        write: impl FnOnce(&str) -> Object<'static>,
    ) -> Option<Issued> {
        let run = facts.run()?;
        let id = self.id(said, run, name);
        Some(Issued {
            kind: IssuedKind::Receipt,
            run: Some(run.to_owned()),
            path: self.paths.receipt(run, &id),
            text: text(write(&id)),
            id,
            identity: name.long(),
            decision: Cow::Borrowed(name.decision.as_str()),
            reason: Some(name.reason)
                .filter(|reason| !reason.is_empty())
                .map(|reason| Cow::Owned(reason.to_owned())),
            event_id: facts.event_id().map(str::to_owned),
            event_type: Some(facts.event_type().to_owned()),
        })
    }

    /// The record of a delivery that no run holds. Its bytes lie beside it.
    fn outside(&self, said: &Said<'_>, facts: Facts<'_>, id: &str, reason: &str) -> Issued {
        let raw = self.paths.unscoped_raw(id);
        let record = quarantine::record(facts, id, reason, said.at, Some(&raw));
        Issued {
            kind: IssuedKind::Quarantine,
            run: None,
            id: id.to_owned(),
            identity: id.to_owned(),
            decision: Cow::Borrowed(Decision::Quarantine.as_str()),
            reason: Some(Cow::Owned(reason.to_owned())),
            event_id: facts.event_id().map(str::to_owned),
            event_type: Some(facts.event_type().to_owned()),
            path: self.paths.quarantine(UNSCOPED, id),
            text: text(record),
        }
    }

    /// Receipt and record of one quarantine have one id, so both must have it free.
    fn id(&self, said: &Said<'_>, run: &str, name: &ArtifactName<'_>) -> String {
        let (short, identity) = (name.short(), name.long());
        let kinds = [IssuedKind::Receipt, IssuedKind::Quarantine];
        let is_taken =
            kinds.iter().any(|kind| said.taken.by_other(*kind, Some(run), &short, &identity));
        if is_taken { identity } else { short }
    }
}

impl Issuer {
    /// See [`admit_core::Issue::run`].
    pub(super) fn run<'f>(&self, facts: &'f Object<'_>) -> Option<&'f str> {
        Facts::new(facts).run()
    }

    /// See [`admit_core::Issue::issue`].
    pub(super) fn issue(&self, said: &Said<'_>) -> Vec<Issued> {
        let facts = Facts::new(said.facts);
        match said.occasion {
            Occasion::Refused { .. } => {
                let reason = facts.reason().unwrap_or(Reason::InternalError.as_str());
                match (facts.unscoped_id(), Reason::parse(reason)) {
                    (Some(id), _) => vec![self.outside(said, facts, id, reason)],
                    (None, Some(reason)) => self.quarantined(said, facts, reason),
                    (None, None) => self.quarantined(said, facts, Reason::InternalError),
                }
            }
            Occasion::Conflict { .. } => self.quarantined(said, facts, Reason::PayloadHashMismatch),
            Occasion::Copy { first } => self.known(said, facts, first),
            Occasion::RunClosed => {
                let hash = facts.payload_hash().unwrap_or_default();
                let id =
                    names::outside_id(facts.dedupe_key().unwrap_or_default(), RUN_CLOSED, hash);
                vec![self.outside(said, facts, &id, RUN_CLOSED)]
            }
            Occasion::Settled { standing, by } => self.settled(said, facts, standing, by),
        }
    }

    /// See [`admit_core::Issue::is_passing`].
    pub(super) fn is_passing(&self, reason: &str) -> bool {
        reason == Reason::PublishInFlight.as_str()
    }

    /// See [`admit_core::Issue::is_about_the_effect`].
    pub(super) fn is_about_the_effect(&self, reason: &str) -> bool {
        matches!(Reason::parse(reason), Some(Reason::PublishInFlight | Reason::PublishAmbiguous))
    }
}

fn artifact<'f>(decision: Decision, facts: Facts<'f>, reason: &'f str) -> ArtifactName<'f> {
    ArtifactName {
        decision,
        event_id: facts.event_id().unwrap_or_default(),
        class: facts.class().unwrap_or_default(),
        reason,
        payload_hash: facts.payload_hash().unwrap_or_default(),
    }
}

fn hash(facts: Facts<'_>) -> Digest {
    let bytes = facts.payload_hash().and_then(admit_core::hash::unhex32);
    Digest::from_bytes(bytes.unwrap_or_default())
}

fn committed(standing: &Standing) -> Option<Committed> {
    standing.evidence().and_then(Committed::read)
}

/// A document as it is kept: canonical, so that the same facts make the same bytes.
fn text(document: Object<'static>) -> String {
    String::from_utf8(names::canonical(&Value::from(document))).expect("this form is ascii")
}
