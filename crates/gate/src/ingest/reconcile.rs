//! Ambiguous publishes: what the bus says about each, and what a person makes of it.
//!
//! Nothing resolves by itself. "Absent" is taken only once the attempt can no longer land: this
//! process does not wait for it any more, and the bus's delivery timeout has passed.

use std::sync::Arc;

use admit_bus::{SearchResult, Reference, SearchQuery};
use admit_contracts::ingestion_gate::eb_ref::EbRef;
use admit_contracts::ingestion_gate::facts::DeliveryFacts;
use admit_contracts::ingestion_gate::publication::{self, PublishPlan};
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_contracts::ingestion_gate::{names, state};
use admit_core::effect::{ReconcileOutcome, Attribution, Effect, IllegalStep, EffectLogEntry, EffectState, Step};
use admit_core::json::{Object, Value};
use admit_core::{Evidence, Fault, StoredDocument, Millis, Seq};
use admit_ledger::{EffectFilter, Settlement};

use super::Ingest;
use super::publish::{eb_ref, object};

/// How much earlier than the ledger says a message may be stamped: clocks are set.
const SLACK_MS: i64 = 60_000;

/// Most ambiguous publishes that are looked at for one list.
const LOOKED_AT_MAX: usize = 100_000;

/// An ambiguous publish, with what can be known of it.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    pub(crate) seq: Seq,
    pub(crate) facts: Object<'static>,
    plan: PublishPlan,
    attempt: u32,
    begun_at: Millis,
    pub(crate) since: Millis,
    reason: String,
    /// What the bus said too late.
    late: Option<EbRef>,
}

/// What the bus says about it.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    /// There, once or more often.
    At(Vec<EbRef>),
    /// Not there.
    Absent,
    /// It cannot tell.
    CannotTell(String),
}

/// What a person says about it.
#[derive(Clone, Debug)]
pub(crate) enum Resolution {
    /// It is on the bus; where, if the bus does not know or has it twice.
    Found(Option<(u32, String)>),
    /// It is not on the bus.
    Absent,
}

/// Why nothing was resolved.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// There is no such admission.
    NotFound,
    /// It cannot be resolved so, or not yet.
    Refused(String),
    /// Our side failed.
    Fault(Fault),
}

impl From<Fault> for Unresolved {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A resolved admission.
pub(crate) struct Resolved {
    pub(crate) state: EffectState,
    pub(crate) filed: Vec<StoredDocument>,
}

impl Ingest {
    /// Ambiguous publishes after a place, of one run or of all, each with what the bus says.
    pub(crate) async fn doubts(
        &self,
        run: Option<&str>,
        mut after: Seq,
        rows_max: usize,
    ) -> Result<Vec<(Doubt, Finding)>, Fault> {
        let mut doubts = Vec::new();
        let mut looked_at = 0;
        while doubts.len() < rows_max && looked_at < LOOKED_AT_MAX {
            let filter = EffectFilter {
                door: Some(Self::door().to_string()),
                states: vec!["ambiguous".to_owned()],
                after,
                rows_max: rows_max.max(64),
            };
            let page = self.reader.effects(filter).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            looked_at += page.len();
            for effect in page {
                let Some(doubt) = self.doubt(effect).await? else { continue };
                if run.is_none_or(|run| DeliveryFacts::new(&doubt.facts).run() == Some(run)) {
                    doubts.push(doubt);
                }
            }
        }
        doubts.truncate(rows_max);
        let findings = self.ask(&doubts).await;
        Ok(doubts.into_iter().zip(findings).collect())
    }

    async fn doubt(&self, effect: Effect) -> Result<Option<Doubt>, Fault> {
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
        Ok(Some(Doubt {
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

    /// What the bus says, bounded by when each was in flight.
    async fn ask(&self, doubts: &[Doubt]) -> Vec<Finding> {
        let grace = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let sought = doubts.iter().map(|doubt| SearchQuery {
            topic: doubt.plan.topic.to_string(),
            dedupe_key: doubt.plan.dedupe_key.clone(),
            partition_key: doubt.plan.partition_key.clone(),
            from: Millis(doubt.begun_at.0.saturating_sub(SLACK_MS)),
            to: Millis(doubt.since.0.saturating_add(grace).saturating_add(SLACK_MS)),
        });
        let found = self.bus.find(sought.collect()).await;
        let said = found.into_iter().zip(doubts).map(|(found, doubt)| match (found, &doubt.late) {
            (SearchResult::Found(references), _) => Finding::At(references.iter().map(eb_ref).collect()),
            (SearchResult::Unknown { .. } | SearchResult::Absent, Some(late)) => {
                Finding::At(vec![late.clone()])
            }
            (SearchResult::Absent, None) => Finding::Absent,
            (SearchResult::Unknown { reason }, None) => Finding::CannotTell(reason),
        });
        let mut said: Vec<Finding> = said.collect();
        said.resize_with(doubts.len(), || Finding::CannotTell("the bus gave no answer".to_owned()));
        said
    }

    /// Why "absent" cannot be said yet.
    pub(crate) fn may_still_land(&self, doubt: &Doubt) -> Option<&'static str> {
        if self.flights.is_alive(doubt.seq) {
            return Some("the attempt is still under way in this gate");
        }
        // It holds for what another gate has under way too: a gate that is held up for longer than
        // its lease begins nothing.
        let timeout = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let over_at = doubt.since.0.saturating_add(timeout);
        (self.clock.now().0 < over_at).then_some("the delivery timeout of the bus has not passed")
    }

    /// Resolves one, because a person says so and nothing speaks against it.
    pub(crate) async fn reconcile(
        self: &Arc<Self>,
        dedupe_key: &str,
        resolution: Resolution,
        by: Attribution,
    ) -> Result<Resolved, Unresolved> {
        let key = names::key(&Self::door(), dedupe_key);
        let receipt = self.reader.find(key).await?.ok_or(Unresolved::NotFound)?;
        let effect = self.reader.effect(receipt.id.seq).await?.ok_or(Unresolved::NotFound)?;
        if !matches!(effect.state, EffectState::Ambiguous(_)) {
            let word = state(&effect.state);
            return Err(Unresolved::Refused(format!("the admission is {word}, not ambiguous")));
        }
        let doubt = self.doubt(effect).await?.ok_or(Unresolved::NotFound)?;
        let finding = self.ask(std::slice::from_ref(&doubt)).await.pop();
        let finding = finding.unwrap_or(Finding::CannotTell(String::new()));
        let (found, evidence) = self.judge(&doubt, &finding, resolution)?;
        let step = Step::Reconcile { by, found, evidence };
        let (seq, facts) = (doubt.seq, Some(doubt.facts));
        let batch = vec![Settlement { seq, step, facts }];
        let settled = self.ledger.settle(batch, self.issue.clone(), self.clock.now()).await?;
        let settled = match settled.into_iter().next() {
            Some(Ok(settled)) => settled,
            Some(Err(IllegalStep::NotAmbiguous)) | None => {
                let message = "somebody else has resolved it in this moment".to_owned();
                return Err(Unresolved::Refused(message));
            }
            Some(Err(illegal)) => return Err(Unresolved::Refused(illegal.to_string())),
        };
        self.in_work.ended(seq);
        let filed: Vec<&StoredDocument> = settled.filed.iter().collect();
        self.write_files(&filed, None).await;
        let word = state(&settled.effect.state);
        tracing::info!(dedupe_key, state = word, "an ambiguous admission was reconciled");
        Ok(Resolved { state: settled.effect.state, filed: settled.filed })
    }

    /// Whether what a person says fits what is known.
    fn judge(
        &self,
        doubt: &Doubt,
        finding: &Finding,
        resolution: Resolution,
    ) -> Result<(ReconcileOutcome, Evidence), Unresolved> {
        let refused = |message: String| Err(Unresolved::Refused(message));
        let now = self.clock.now();
        match (resolution, finding) {
            (Resolution::Found(None), Finding::At(there)) => match there.as_slice() {
                [only] => Ok((ReconcileOutcome::Done, CommitEvidence::at(only.clone(), now).to_evidence())),
                _ => refused(format!(
                    "it is on the bus {} times; say which one counts, by partition and offset",
                    there.len()
                )),
            },
            (Resolution::Found(Some((partition, offset))), Finding::At(there)) => {
                let is_it = |at: &&EbRef| at.partition == partition && at.offset == offset;
                match there.iter().find(is_it) {
                    Some(at) => Ok((ReconcileOutcome::Done, CommitEvidence::at(at.clone(), now).to_evidence())),
                    None => refused("the bus has it elsewhere".to_owned()),
                }
            }
            (Resolution::Found(Some((partition, offset))), Finding::CannotTell(_)) => {
                let topic = doubt.plan.topic.to_string();
                let offset_kind = self.bus.offset_kind();
                let at = Reference { topic, partition, offset, offset_kind, published_at: None };
                Ok((ReconcileOutcome::Done, CommitEvidence::at(eb_ref(&at), now).to_evidence()))
            }
            (Resolution::Found(_), Finding::Absent) => {
                refused("the bus does not have it".to_owned())
            }
            (Resolution::Found(None), Finding::CannotTell(reason)) => refused(format!(
                "the bus cannot tell ({reason}); say where it is, by partition and offset"
            )),
            (Resolution::Absent, Finding::At(_)) => {
                refused("the bus has it; resolve it as found".to_owned())
            }
            (Resolution::Absent, Finding::Absent | Finding::CannotTell(_)) => {
                match self.may_still_land(doubt) {
                    Some(why) => refused(format!("it may still land: {why}")),
                    None => Ok((ReconcileOutcome::Refused, publication::unknown("found absent", true))),
                }
            }
        }
    }

    /// A doubt as it is listed.
    pub(crate) fn listed(&self, doubt: &Doubt, finding: &Finding) -> Object<'static> {
        let facts = DeliveryFacts::new(&doubt.facts);
        let text = |text: Option<&str>| Value::from(text.map(str::to_owned));
        let (word, there, why) = match finding {
            Finding::At(there) if there.len() == 1 => ("found", there.as_slice(), None),
            Finding::At(there) => ("found_twice", there.as_slice(), None),
            Finding::Absent => ("absent", [].as_slice(), None),
            Finding::CannotTell(why) => ("cannot_tell", [].as_slice(), Some(why.clone())),
        };
        Object::from_iter([
            ("dedupe_key", text(facts.dedupe_key())),
            ("platform_run_id", text(facts.run())),
            ("event_id", text(facts.event_id())),
            ("event_type", facts.event_type().to_owned().into()),
            ("topic", doubt.plan.topic.to_string().into()),
            ("attempt", doubt.attempt.into()),
            ("in_flight_at", doubt.begun_at.to_rfc3339_millis().into()),
            ("ambiguous_at", doubt.since.to_rfc3339_millis().into()),
            ("reason", doubt.reason.clone().into()),
            ("bus", word.into()),
            ("bus_reason", why.into()),
            ("eb_refs", there.iter().map(EbRef::to_object).collect()),
            ("may_still_land", self.may_still_land(doubt).into()),
            ("seq", doubt.seq.0.into()),
        ])
    }
}

/// Why an attempt is ambiguous, as it was kept.
fn reason(evidence: &Evidence) -> String {
    let evidence = object(evidence.as_bytes());
    evidence.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned()
}
