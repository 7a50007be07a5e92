//! Reconciliation of ambiguous publications by an operator, with a lookup on the bus.
//!
//! Nothing is resolved automatically. "Absent" is accepted only once the attempt can no longer be
//! published: its call in this process has ended, and the delivery timeout of the bus has passed. Then
//! the revision is published again, unless a later one has replaced it.

use admit_bus::{OffsetKind, Reference, SearchQuery, SearchResult};
use admit_contracts::rounds::DOOR;
use admit_core::effect::{Attribution, EffectState, IllegalStep, ReconcileOutcome, Step};
use admit_core::json::{self, Object, Value};
use admit_core::{Evidence, Fault, Millis};
use admit_ledger::publications::{BusEnd, Publication, PublicationCounts, PublicationStep};

use super::Publisher;
use super::publish_loop::{reference_object, unknown_evidence};
use crate::ingest::reconcile::{OperatorResolution, ReconcileError};

/// Tolerance for clock differences between ledger and bus.
const CLOCK_SKEW_MS: i64 = 60_000;

/// A step, with the end of the topic if its evidence is a position on a bus that counts messages.
pub(super) fn with_end(n: u64, step: Step, reason: Option<&'static str>) -> PublicationStep {
    let acknowledged = match &step {
        Step::Settle { evidence, .. }
        | Step::Reconcile { evidence, .. }
        | Step::Evidence { evidence, .. } => reference_of(evidence),
        Step::Begin { .. } | Step::Renew | Step::ReplayUndone(_) | Step::Replay(_) => None,
    };
    let acknowledged = acknowledged.and_then(|at| {
        let messages = at.messages_up_to()?;
        Some(BusEnd { topic: at.topic, messages })
    });
    PublicationStep { n, step, reason, acknowledged }
}

/// An ambiguous publication with its lookup on the bus.
pub(crate) struct AmbiguousPublication {
    pub(crate) publication: Publication,
    pub(crate) found: SearchResult,
    may_still_land: Option<&'static str>,
}

impl Publisher {
    /// Lists ambiguous publications after `after`, each with its lookup on the bus.
    pub(crate) async fn list_ambiguous(
        &self,
        after: u64,
        rows_max: usize,
    ) -> Result<Vec<AmbiguousPublication>, Fault> {
        let listed = self.ledger.ambiguous_publications(DOOR.to_owned(), after, rows_max).await?;
        self.query_bus(listed).await
    }

    /// Counts publications by state, and unpublished records.
    pub(crate) async fn counts(&self) -> Result<PublicationCounts, Fault> {
        self.ledger.publication_counts(DOOR.to_owned()).await
    }

    /// Looks publications up on the bus. A late result counts if the lookup finds nothing.
    async fn query_bus(
        &self,
        listed: Vec<Publication>,
    ) -> Result<Vec<AmbiguousPublication>, Fault> {
        let grace = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let queries = listed.iter().map(|one| SearchQuery {
            topic: one.topic.clone(),
            dedupe_key: one.dedupe_key.clone(),
            partition_key: one.partition_key.clone(),
            from: Millis(one.begun_at.0.saturating_sub(CLOCK_SKEW_MS)),
            to: Millis(one.changed_at.0.saturating_add(grace).saturating_add(CLOCK_SKEW_MS)),
        });
        let mut found = self.bus.find(queries.collect()).await;
        let reason = "the bus returned no result".to_owned();
        found.resize(listed.len(), SearchResult::Unknown { reason });
        let mut ambiguous = Vec::with_capacity(listed.len());
        for (publication, found) in listed.into_iter().zip(found) {
            let found = match found {
                SearchResult::Found(references) => SearchResult::Found(references),
                other @ (SearchResult::Absent | SearchResult::Unknown { .. }) => {
                    let late = self.late(&publication).await?;
                    late.map_or(other, |late| SearchResult::Found(vec![late]))
                }
            };
            let may_still_land = self.may_still_land(&publication);
            ambiguous.push(AmbiguousPublication { publication, found, may_still_land });
        }
        Ok(ambiguous)
    }

    /// Reads the reference of the current attempt from late evidence.
    async fn late(&self, of: &Publication) -> Result<Option<Reference>, Fault> {
        let history = self.ledger.publication_history(of.n).await?;
        let attempt = of.state.attempt();
        let evidence =
            history.iter().filter(|line| line.what == "evidence" && line.attempt == attempt);
        Ok(evidence.filter_map(|line| line.evidence.as_ref()).find_map(reference_of))
    }

    /// Reason why "absent" is not accepted yet.
    fn may_still_land(&self, of: &Publication) -> Option<&'static str> {
        if self.active().contains(&of.n) {
            return Some("the publish call is still in progress in this gate");
        }
        let timeout = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let over_at = of.changed_at.0.saturating_add(timeout);
        (self.clock.now().0 < over_at).then_some("the delivery timeout of the bus has not passed")
    }

    /// Resolves an ambiguous publication as an operator requests, unless the evidence contradicts.
    pub(crate) async fn reconcile(
        &self,
        dedupe_key: &str,
        resolution: OperatorResolution,
        by: Attribution,
    ) -> Result<Publication, ReconcileError> {
        let found = self.ledger.publication(DOOR.to_owned(), dedupe_key.to_owned()).await?;
        let publication = found.ok_or(ReconcileError::NotFound)?;
        if !matches!(publication.state, EffectState::Ambiguous(_)) {
            let word = publication.state.word();
            return Err(ReconcileError::Refused(format!(
                "the publication is {word}, not ambiguous"
            )));
        }
        let Some(ambiguous_publication) = self.query_bus(vec![publication]).await?.pop() else {
            return Err(ReconcileError::NotFound);
        };
        let (found, evidence) =
            ambiguous_publication.decide(resolution).map_err(ReconcileError::Refused)?;
        let step = Step::Reconcile { by, found, evidence };
        let batch = vec![with_end(ambiguous_publication.publication.n, step, None)];
        let results = self.ledger.step_publications(batch, self.clock.now()).await?;
        match results.into_iter().next() {
            Some(Ok(publication)) => {
                let Publication { record_id, revision, state, .. } = &publication;
                let state = state.word();
                tracing::info!(record_id, revision, state, "reconciled an ambiguous publication");
                self.wake();
                Ok(publication)
            }
            Some(Err(IllegalStep::NotAmbiguous)) | None => {
                Err(ReconcileError::Refused("it was resolved concurrently".to_owned()))
            }
            Some(Err(illegal)) => Err(ReconcileError::Refused(illegal.to_string())),
        }
    }
}

impl AmbiguousPublication {
    /// Checks a resolution against the lookup on the bus. Returns the outcome and its evidence.
    fn decide(
        &self,
        resolution: OperatorResolution,
    ) -> Result<(ReconcileOutcome, Evidence), String> {
        let done =
            |at: &Reference| Ok((ReconcileOutcome::Done, Evidence::of(&reference_object(at))));
        match (resolution, &self.found) {
            (OperatorResolution::Absent, SearchResult::Found(_)) => {
                Err("the bus has it; resolve it as found".to_owned())
            }
            (OperatorResolution::Absent, SearchResult::Absent | SearchResult::Unknown { .. }) => {
                match self.may_still_land {
                    Some(why) => Err(format!("it may still be published: {why}")),
                    None => Ok((ReconcileOutcome::Refused, unknown_evidence("found absent", true))),
                }
            }
            (OperatorResolution::Found(_), SearchResult::Absent) => {
                Err("the bus does not have it".to_owned())
            }
            (OperatorResolution::Found(None), SearchResult::Found(references)) => {
                match references.as_slice() {
                    [only] => done(only),
                    _ => Err(format!(
                        "it is on the bus {} times; specify one by partition and offset",
                        references.len()
                    )),
                }
            }
            (OperatorResolution::Found(None), SearchResult::Unknown { reason }) => {
                Err(format!("the bus cannot determine it ({reason}); specify partition and offset"))
            }
            (
                OperatorResolution::Found(Some((partition, offset))),
                SearchResult::Found(references),
            ) => {
                let is_it = |at: &&Reference| at.partition == partition && at.offset == offset;
                match references.iter().find(is_it) {
                    Some(at) => done(at),
                    None => Err("the bus has it at another offset".to_owned()),
                }
            }
            (
                OperatorResolution::Found(Some((partition, offset))),
                SearchResult::Unknown { .. },
            ) => {
                let evidence = Object::from_iter([
                    ("topic", Value::from(self.publication.topic.clone())),
                    ("partition", partition.into()),
                    ("offset", offset.into()),
                ]);
                Ok((ReconcileOutcome::Done, Evidence::of(&evidence)))
            }
        }
    }

    /// JSON of an ambiguous publication in a list.
    pub(crate) fn to_object(&self) -> Object<'static> {
        let publication = &self.publication;
        let evidence = publication.state.evidence().map(|evidence| object(evidence.as_bytes()));
        let reason = evidence.and_then(|evidence| evidence.get("reason").cloned());
        let (word, references, why) = match &self.found {
            SearchResult::Found(references) if references.len() == 1 => {
                ("found", references.as_slice(), None)
            }
            SearchResult::Found(references) => ("found_twice", references.as_slice(), None),
            SearchResult::Absent => ("absent", [].as_slice(), None),
            SearchResult::Unknown { reason } => {
                ("cannot_tell", [].as_slice(), Some(reason.clone()))
            }
        };
        Object::from_iter([
            ("dedupe_key", Value::from(publication.dedupe_key.clone())),
            ("round_id", publication.record_id.clone().into()),
            ("revision", publication.revision.into()),
            ("topic", publication.topic.clone().into()),
            ("attempt", publication.state.attempt().into()),
            ("in_flight_at", publication.begun_at.to_rfc3339_millis().into()),
            ("ambiguous_at", publication.changed_at.to_rfc3339_millis().into()),
            ("reason_code", publication.reason.clone().into()),
            ("reason", reason.unwrap_or_default()),
            ("bus", word.into()),
            ("bus_reason", why.into()),
            ("references", references.iter().map(reference_object).collect()),
            ("may_still_land", self.may_still_land.into()),
        ])
    }
}

/// Parses stored evidence.
fn object(text: &[u8]) -> Object<'static> {
    match json::parse(text, &json::Limits::default()) {
        Ok(Value::Object(object)) => object.into_owned(),
        Ok(_) | Err(_) => Object::new(),
    }
}

/// Reads the bus reference from evidence, if it has one.
pub fn reference_of(evidence: &Evidence) -> Option<Reference> {
    let evidence = object(evidence.as_bytes());
    let text = |name| evidence.get(name).and_then(Value::as_str);
    Some(Reference {
        topic: text("topic")?.to_owned(),
        partition: u32::try_from(evidence.get("partition")?.as_u64()?).ok()?,
        offset: text("offset")?.to_owned(),
        offset_kind: OffsetKind::from_word(text("offset_kind")?)?,
        published_at: text("published_at").and_then(Millis::parse_rfc3339),
    })
}
