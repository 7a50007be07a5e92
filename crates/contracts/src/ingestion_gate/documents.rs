//! Documents of this contract: which are issued on which occasion, and their names.

use std::borrow::Cow;

use admit_core::effect::{Attribution, EffectState};
use admit_core::json::{Object, Value};
use admit_core::{Digest, Document, DocumentKind, FirstAdmission, IssueContext, IssueReason};

use super::duplicate_rule::{self, DuplicateDecision};
use super::enums::{Reason, ReceiptDecision};
use super::facts::DeliveryFacts;
use super::names::{self, ArtifactName};
use super::paths::{ArtifactPaths, UNSCOPED};
use super::receipt::CommitEvidence;
use super::{governance, quarantine, receipt};

/// Reason code for a run that accepts no new events.
pub const RUN_CLOSED: &str = "RUN_CLOSED";

/// Reason code for a run that is being closed and accepts no new events meanwhile.
pub const RUN_CLOSING: &str = "RUN_CLOSING";

/// Issues the documents of this contract.
#[derive(Clone, Debug)]
pub(super) struct Issuer {
    paths: ArtifactPaths,
}

impl Issuer {
    /// Creates an issuer for this artifact layout.
    pub(super) fn new(paths: ArtifactPaths) -> Self {
        Self { paths }
    }

    fn duplicate(
        &self,
        context: &IssueContext<'_>,
        facts: DeliveryFacts<'_>,
        first: FirstAdmission<'_>,
    ) -> Vec<Document> {
        let before = DeliveryFacts::new(first.facts);
        let stored = hash(before);
        match duplicate_rule::decide_duplicate(&stored, Some(first.state), &hash(facts)) {
            DuplicateDecision::Quarantine(reason) => self.quarantine(context, facts, reason),
            DuplicateDecision::Duplicate => match committed(first.state) {
                Some(committed) => {
                    let name = artifact(ReceiptDecision::Duplicate, facts, super::DUPLICATE);
                    self.receipt(context, facts, &name, |id| {
                        receipt::duplicate(facts, id, &committed, first.receipt)
                    })
                    .into_iter()
                    .collect()
                }
                None => self.quarantine(context, facts, Reason::AdmissionStateInvalid),
            },
        }
    }

    fn settlement(
        &self,
        context: &IssueContext<'_>,
        facts: DeliveryFacts<'_>,
        state: &EffectState,
        by: Option<&Attribution>,
    ) -> Vec<Document> {
        match state {
            EffectState::Done(_) => match committed(state) {
                Some(committed) => {
                    let name = artifact(ReceiptDecision::Admit, facts, "");
                    let receipt = self.receipt(context, facts, &name, |id| {
                        receipt::admit(facts, id, &committed, by)
                    });
                    receipt.into_iter().collect()
                }
                None => self.quarantine(context, facts, Reason::AdmissionStateInvalid),
            },
            EffectState::Ambiguous(_) => self.quarantine(context, facts, Reason::PublishAmbiguous),
            EffectState::Withheld(_)
            | EffectState::Intended(_)
            | EffectState::InFlight(_)
            | EffectState::Refused(_) => Vec::new(),
        }
    }

    /// Quarantine record, its receipt, and the governance line.
    fn quarantine(
        &self,
        context: &IssueContext<'_>,
        facts: DeliveryFacts<'_>,
        reason: Reason,
    ) -> Vec<Document> {
        let Some(run) = facts.run() else { return Vec::new() };
        let name = artifact(ReceiptDecision::Quarantine, facts, reason.as_str());
        let id = self.id(context, run, &name);
        let path = self.paths.quarantine(run, &id);
        let record = quarantine::record(facts, &id, reason.as_str(), context.at, None);
        let record = Document {
            kind: DocumentKind::Quarantine,
            run: Some(run.to_owned()),
            id: id.clone(),
            identity: name.long(),
            decision: Cow::Borrowed(ReceiptDecision::Quarantine.as_str()),
            reason: Some(Cow::Borrowed(reason.as_str())),
            event_id: facts.event_id().map(str::to_owned),
            event_type: Some(facts.event_type().to_owned()),
            text: text(record),
            path: path.clone(),
        };
        let mut documents = vec![record];
        documents.extend(
            self.receipt(context, facts, &name, |id| receipt::quarantine(facts, id, reason, &path)),
        );
        if let Some((event_id, line)) =
            governance::anomaly(facts, reason.as_str(), &path, context.at)
        {
            documents.push(Document {
                kind: DocumentKind::Governance,
                run: Some(run.to_owned()),
                path: self.paths.governance_marker(run, &event_id),
                identity: event_id.clone(),
                id: event_id,
                decision: Cow::Borrowed(governance::GovernanceFamily::CorridorAnomaly.as_str()),
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
        context: &IssueContext<'_>,
        facts: DeliveryFacts<'_>,
        name: &ArtifactName<'_>,
        write: impl FnOnce(&str) -> Object<'static>,
    ) -> Option<Document> {
        let run = facts.run()?;
        let id = self.id(context, run, name);
        Some(Document {
            kind: DocumentKind::Receipt,
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

    /// Record of a delivery that belongs to no run. Its raw bytes are stored beside it.
    fn outside_run(
        &self,
        context: &IssueContext<'_>,
        facts: DeliveryFacts<'_>,
        id: &str,
        reason: &str,
    ) -> Document {
        let raw = self.paths.unscoped_raw(id);
        let record = quarantine::record(facts, id, reason, context.at, Some(&raw));
        Document {
            kind: DocumentKind::Quarantine,
            run: None,
            id: id.to_owned(),
            identity: id.to_owned(),
            decision: Cow::Borrowed(ReceiptDecision::Quarantine.as_str()),
            reason: Some(Cow::Owned(reason.to_owned())),
            event_id: facts.event_id().map(str::to_owned),
            event_type: Some(facts.event_type().to_owned()),
            path: self.paths.quarantine(UNSCOPED, id),
            text: text(record),
        }
    }

    /// Record of a delivery refused because its run is closed or closing.
    fn late(&self, context: &IssueContext<'_>, facts: DeliveryFacts<'_>, reason: &str) -> Document {
        let hash = facts.payload_hash().unwrap_or_default();
        let id = names::outside_id(facts.dedupe_key().unwrap_or_default(), reason, hash);
        self.outside_run(context, facts, &id, reason)
    }

    /// Receipt and record of one quarantine share one id, so it must be free for both.
    fn id(&self, context: &IssueContext<'_>, run: &str, name: &ArtifactName<'_>) -> String {
        let (short, identity) = (name.short(), name.long());
        let kinds = [DocumentKind::Receipt, DocumentKind::Quarantine];
        let is_taken = kinds
            .iter()
            .any(|kind| context.ids.is_used_by_other(*kind, Some(run), &short, &identity));
        if is_taken { identity } else { short }
    }
}

impl Issuer {
    /// See [`admit_core::Issue::run`].
    pub(super) fn run<'f>(&self, facts: &'f Object<'_>) -> Option<&'f str> {
        DeliveryFacts::new(facts).run()
    }

    /// See [`admit_core::Issue::issue`].
    pub(super) fn issue(&self, context: &IssueContext<'_>) -> Vec<Document> {
        let facts = DeliveryFacts::new(context.facts);
        match context.reason {
            IssueReason::Refused { .. } => {
                let reason = facts.reason().unwrap_or(Reason::InternalError.as_str());
                match (facts.unscoped_id(), Reason::parse(reason)) {
                    (Some(id), _) => vec![self.outside_run(context, facts, id, reason)],
                    (None, Some(reason)) => self.quarantine(context, facts, reason),
                    (None, None) => self.quarantine(context, facts, Reason::InternalError),
                }
            }
            IssueReason::Conflict { .. } => {
                self.quarantine(context, facts, Reason::PayloadHashMismatch)
            }
            IssueReason::Copy { first } => self.duplicate(context, facts, first),
            IssueReason::RunClosed => vec![self.late(context, facts, RUN_CLOSED)],
            IssueReason::RunClosing => vec![self.late(context, facts, RUN_CLOSING)],
            IssueReason::Settled { state, by } => self.settlement(context, facts, state, by),
        }
    }

    /// See [`admit_core::Issue::is_transient`].
    pub(super) fn is_transient(&self, reason: &str) -> bool {
        reason == Reason::PublishInFlight.as_str()
    }

    /// See [`admit_core::Issue::is_released_by_settlement`].
    pub(super) fn is_released_by_settlement(&self, reason: &str) -> bool {
        matches!(Reason::parse(reason), Some(Reason::PublishInFlight | Reason::PublishAmbiguous))
    }
}

fn artifact<'f>(
    decision: ReceiptDecision,
    facts: DeliveryFacts<'f>,
    reason: &'f str,
) -> ArtifactName<'f> {
    ArtifactName {
        decision,
        event_id: facts.event_id().unwrap_or_default(),
        class: facts.class().unwrap_or_default(),
        reason,
        payload_hash: facts.payload_hash().unwrap_or_default(),
    }
}

fn hash(facts: DeliveryFacts<'_>) -> Digest {
    let bytes = facts.payload_hash().and_then(admit_core::hash::unhex32);
    Digest::from_bytes(bytes.unwrap_or_default())
}

fn committed(state: &EffectState) -> Option<CommitEvidence> {
    state.evidence().and_then(CommitEvidence::read)
}

/// Serialises a document canonically, so that equal facts give equal bytes.
fn text(document: Object<'static>) -> String {
    String::from_utf8(names::canonical(&Value::from(document))).expect("this form is ascii")
}
