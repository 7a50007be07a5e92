//! Reconciliation of ambiguous publishes by an operator, with a lookup on the bus.
//!
//! Nothing is resolved automatically. "Absent" is accepted only once the attempt can no longer be
//! published: its call in this process has ended, and the delivery timeout of the bus has passed.

use std::sync::Arc;

use admit_bus::{Reference, SearchQuery, SearchResult};
use admit_contracts::ingestion_gate::eb_ref::EbRef;
use admit_contracts::ingestion_gate::facts::DeliveryFacts;
use admit_contracts::ingestion_gate::publication::{self, PublishPlan};
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_contracts::ingestion_gate::{names, state};
use admit_core::effect::{
    Attribution, Effect, EffectLogEntry, EffectState, IllegalStep, ReconcileOutcome, Step,
};
use admit_core::json::{Object, Value};
use admit_core::{Evidence, Fault, Millis, Seq, StoredDocument};
use admit_ledger::{EffectFilter, Settlement};

use super::Ingest;
use super::publish::{eb_ref, object};

/// Tolerance for clock differences between ledger and bus.
const CLOCK_SKEW_MS: i64 = 60_000;

/// Maximum number of ambiguous publishes scanned for one list.
const SCAN_MAX: usize = 100_000;

/// An ambiguous publish with its evidence.
#[derive(Clone, Debug)]
pub(crate) struct AmbiguousPublish {
    pub(crate) seq: Seq,
    pub(crate) facts: Object<'static>,
    plan: PublishPlan,
    attempt: u32,
    begun_at: Millis,
    pub(crate) since: Millis,
    reason: String,
    /// Reference from a late result of the bus.
    late: Option<EbRef>,
}

/// Result of the lookup on the bus.
#[derive(Clone, Debug)]
pub(crate) enum BusFinding {
    /// Present, once or several times.
    Present(Vec<EbRef>),
    /// Not present.
    Absent,
    /// The bus cannot determine it.
    Undetermined(String),
}

/// Resolution by an operator.
#[derive(Clone, Debug)]
pub(crate) enum OperatorResolution {
    /// Published; with partition and offset if the bus does not determine them.
    Found(Option<(u32, String)>),
    /// Not published.
    Absent,
}

/// Reason why nothing was resolved.
#[derive(Debug)]
pub(crate) enum ReconcileError {
    /// Unknown admission or publication.
    NotFound,
    /// The resolution is not allowed, or not yet.
    Refused(String),
    /// The gate failed.
    Fault(Fault),
}

impl From<Fault> for ReconcileError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A reconciled admission.
pub(crate) struct ReconciledAdmission {
    pub(crate) state: EffectState,
    pub(crate) filed: Vec<StoredDocument>,
}

impl Ingest {
    /// Lists ambiguous publishes after `after`, of one run or of all, each with its lookup on the bus.
    pub(crate) async fn list_ambiguous(
        &self,
        run: Option<&str>,
        mut after: Seq,
        rows_max: usize,
    ) -> Result<Vec<(AmbiguousPublish, BusFinding)>, Fault> {
        let mut publishes = Vec::new();
        let mut scanned = 0;
        while publishes.len() < rows_max && scanned < SCAN_MAX {
            let filter = EffectFilter {
                door: Some(Self::door().to_string()),
                states: vec!["ambiguous".to_owned()],
                after,
                rows_max: rows_max.max(64),
            };
            let page = self.reader.effects(filter).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            scanned += page.len();
            for effect in page {
                let Some(publish) = self.load_ambiguous(effect).await? else { continue };
                if run.is_none_or(|run| DeliveryFacts::new(&publish.facts).run() == Some(run)) {
                    publishes.push(publish);
                }
            }
        }
        publishes.truncate(rows_max);
        let findings = self.query_bus(&publishes).await;
        Ok(publishes.into_iter().zip(findings).collect())
    }

    async fn load_ambiguous(&self, effect: Effect) -> Result<Option<AmbiguousPublish>, Fault> {
        let Some(receipt) = self.reader.receipt(effect.seq).await? else { return Ok(None) };
        let history = self.reader.history(effect.seq).await?;
        let Some(plan) = publication::plan(&object(&effect.plan)) else { return Ok(None) };
        let attempt = effect.state.attempt();
        let at = |what: &str| {
            let is_it = |line: &&EffectLogEntry| line.attempt == attempt && line.what == what;
            history.iter().rev().find(is_it).map(|line| line.at)
        };
        let late = history.iter().rev().filter(|line| line.attempt == attempt);
        let late = late
            .filter(|line| line.what == "evidence")
            .find_map(|line| CommitEvidence::read(line.evidence.as_ref()?));
        let reason = effect.state.evidence().map(reason).unwrap_or_default();
        Ok(Some(AmbiguousPublish {
            seq: effect.seq,
            facts: object(&receipt.facts),
            plan,
            attempt,
            begun_at: at("in_flight").unwrap_or(receipt.received_at),
            since: at("ambiguous").unwrap_or(receipt.received_at),
            reason,
            late: late.map(|committed| committed.eb_ref),
        }))
    }

    /// Looks the publishes up on the bus, within their time in flight.
    async fn query_bus(&self, publishes: &[AmbiguousPublish]) -> Vec<BusFinding> {
        let grace = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let queries = publishes.iter().map(|publish| SearchQuery {
            topic: publish.plan.topic.to_string(),
            dedupe_key: publish.plan.dedupe_key.clone(),
            partition_key: publish.plan.partition_key.clone(),
            from: Millis(publish.begun_at.0.saturating_sub(CLOCK_SKEW_MS)),
            to: Millis(publish.since.0.saturating_add(grace).saturating_add(CLOCK_SKEW_MS)),
        });
        let found = self.bus.find(queries.collect()).await;
        let findings =
            found.into_iter().zip(publishes).map(|(found, publish)| match (found, &publish.late) {
                (SearchResult::Found(references), _) => {
                    BusFinding::Present(references.iter().map(eb_ref).collect())
                }
                (SearchResult::Unknown { .. } | SearchResult::Absent, Some(late)) => {
                    BusFinding::Present(vec![late.clone()])
                }
                (SearchResult::Absent, None) => BusFinding::Absent,
                (SearchResult::Unknown { reason }, None) => BusFinding::Undetermined(reason),
            });
        let mut findings: Vec<BusFinding> = findings.collect();
        findings.resize_with(publishes.len(), || {
            BusFinding::Undetermined("the bus returned no result".to_owned())
        });
        findings
    }

    /// Reason why "absent" is not accepted yet.
    pub(crate) fn may_still_land(&self, publish: &AmbiguousPublish) -> Option<&'static str> {
        if self.publish_queue.is_active(publish.seq) {
            return Some("the publish call is still in progress in this gate");
        }
        // This also covers attempts of other gates: a gate that was paused for longer than its lease
        // publishes nothing.
        let timeout = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let over_at = publish.since.0.saturating_add(timeout);
        (self.clock.now().0 < over_at).then_some("the delivery timeout of the bus has not passed")
    }

    /// Resolves an ambiguous publish as an operator requests, unless the evidence contradicts.
    pub(crate) async fn reconcile(
        self: &Arc<Self>,
        dedupe_key: &str,
        resolution: OperatorResolution,
        by: Attribution,
    ) -> Result<ReconciledAdmission, ReconcileError> {
        let key = names::key(&Self::door(), dedupe_key);
        let receipt = self.reader.find(key).await?.ok_or(ReconcileError::NotFound)?;
        let effect = self.reader.effect(receipt.id.seq).await?.ok_or(ReconcileError::NotFound)?;
        if !matches!(effect.state, EffectState::Ambiguous(_)) {
            let word = state(&effect.state);
            return Err(ReconcileError::Refused(format!("the admission is {word}, not ambiguous")));
        }
        let publish = self.load_ambiguous(effect).await?.ok_or(ReconcileError::NotFound)?;
        let finding = self.query_bus(std::slice::from_ref(&publish)).await.pop();
        let finding = finding.unwrap_or(BusFinding::Undetermined(String::new()));
        let (found, evidence) = self.decide(&publish, &finding, resolution)?;
        let step = Step::Reconcile { by, found, evidence };
        let (seq, facts) = (publish.seq, Some(publish.facts));
        let batch = vec![Settlement { seq, step, facts }];
        let settled = self.ledger.settle(batch, self.issue.clone(), self.clock.now()).await?;
        let settled = match settled.into_iter().next() {
            Some(Ok(settled)) => settled,
            Some(Err(IllegalStep::NotAmbiguous)) | None => {
                let message = "it was resolved concurrently".to_owned();
                return Err(ReconcileError::Refused(message));
            }
            Some(Err(illegal)) => return Err(ReconcileError::Refused(illegal.to_string())),
        };
        self.in_flight_effects.notify_ended(seq);
        let filed: Vec<&StoredDocument> = settled.filed.iter().collect();
        self.write_files(&filed, None).await;
        let word = state(&settled.effect.state);
        tracing::info!(dedupe_key, state = word, "reconciled an ambiguous admission");
        Ok(ReconciledAdmission { state: settled.effect.state, filed: settled.filed })
    }

    /// Checks a resolution against the lookup on the bus. Returns the outcome and its evidence.
    fn decide(
        &self,
        publish: &AmbiguousPublish,
        finding: &BusFinding,
        resolution: OperatorResolution,
    ) -> Result<(ReconcileOutcome, Evidence), ReconcileError> {
        let refused = |message: String| Err(ReconcileError::Refused(message));
        let now = self.clock.now();
        match (resolution, finding) {
            (OperatorResolution::Found(None), BusFinding::Present(references)) => {
                match references.as_slice() {
                    [only] => Ok((
                        ReconcileOutcome::Done,
                        CommitEvidence::at(only.clone(), now).to_evidence(),
                    )),
                    _ => refused(format!(
                        "it is on the bus {} times; specify one by partition and offset",
                        references.len()
                    )),
                }
            }
            (
                OperatorResolution::Found(Some((partition, offset))),
                BusFinding::Present(references),
            ) => {
                let is_it = |at: &&EbRef| at.partition == partition && at.offset == offset;
                match references.iter().find(is_it) {
                    Some(at) => Ok((
                        ReconcileOutcome::Done,
                        CommitEvidence::at(at.clone(), now).to_evidence(),
                    )),
                    None => refused("the bus has it at another offset".to_owned()),
                }
            }
            (OperatorResolution::Found(Some((partition, offset))), BusFinding::Undetermined(_)) => {
                let topic = publish.plan.topic.to_string();
                let offset_kind = self.bus.offset_kind();
                let at = Reference { topic, partition, offset, offset_kind, published_at: None };
                Ok((ReconcileOutcome::Done, CommitEvidence::at(eb_ref(&at), now).to_evidence()))
            }
            (OperatorResolution::Found(_), BusFinding::Absent) => {
                refused("the bus does not have it".to_owned())
            }
            (OperatorResolution::Found(None), BusFinding::Undetermined(reason)) => refused(
                format!("the bus cannot determine it ({reason}); specify partition and offset"),
            ),
            (OperatorResolution::Absent, BusFinding::Present(_)) => {
                refused("the bus has it; resolve it as found".to_owned())
            }
            (OperatorResolution::Absent, BusFinding::Absent | BusFinding::Undetermined(_)) => {
                match self.may_still_land(publish) {
                    Some(why) => refused(format!("it may still be published: {why}")),
                    None => {
                        Ok((ReconcileOutcome::Refused, publication::unknown("found absent", true)))
                    }
                }
            }
        }
    }

    /// JSON of an ambiguous publish in a list.
    pub(crate) fn to_object(
        &self,
        publish: &AmbiguousPublish,
        finding: &BusFinding,
    ) -> Object<'static> {
        let facts = DeliveryFacts::new(&publish.facts);
        let text = |text: Option<&str>| Value::from(text.map(str::to_owned));
        let (word, references, why) = match finding {
            BusFinding::Present(references) if references.len() == 1 => {
                ("found", references.as_slice(), None)
            }
            BusFinding::Present(references) => ("found_twice", references.as_slice(), None),
            BusFinding::Absent => ("absent", [].as_slice(), None),
            BusFinding::Undetermined(why) => ("cannot_tell", [].as_slice(), Some(why.clone())),
        };
        Object::from_iter([
            ("dedupe_key", text(facts.dedupe_key())),
            ("platform_run_id", text(facts.run())),
            ("event_id", text(facts.event_id())),
            ("event_type", facts.event_type().to_owned().into()),
            ("topic", publish.plan.topic.to_string().into()),
            ("attempt", publish.attempt.into()),
            ("in_flight_at", publish.begun_at.to_rfc3339_millis().into()),
            ("ambiguous_at", publish.since.to_rfc3339_millis().into()),
            ("reason", publish.reason.clone().into()),
            ("bus", word.into()),
            ("bus_reason", why.into()),
            ("eb_refs", references.iter().map(EbRef::to_object).collect()),
            ("may_still_land", self.may_still_land(publish).into()),
            ("seq", publish.seq.0.into()),
        ])
    }
}

/// Reads the reason of an ambiguous attempt from its evidence.
fn reason(evidence: &Evidence) -> String {
    let evidence = object(evidence.as_bytes());
    evidence.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned()
}
