//! Ambiguous publications: what the bus says about each, and what a person makes of it.
//!
//! Nothing resolves by itself. "Absent" is taken only once the attempt can no longer land: this
//! process does not wait for it any more, and the bus's delivery timeout has passed. Then the
//! revision is handed over again, unless a later one has taken its place.

use admit_bus::{SearchResult, OffsetKind, Reference, SearchQuery};
use admit_contracts::rounds::DOOR;
use admit_core::effect::{ReconcileOutcome, Attribution, IllegalStep, EffectState, Step};
use admit_core::json::{self, Object, Value};
use admit_core::{Evidence, Fault, Millis};
use admit_ledger::publications::{Publication, PublicationCounts, PublicationStep};

use super::Publisher;
use super::work::{place, unknown};
use crate::ingest::reconcile::{Resolution, Unresolved};

/// How much earlier than the ledger says a message may be stamped: clocks are set.
const SLACK_MS: i64 = 60_000;

/// An ambiguous publication, with what can be known of it.
pub(crate) struct Doubt {
    pub(crate) publication: Publication,
    pub(crate) found: SearchResult,
    may_still_land: Option<&'static str>,
}

impl Publisher {
    /// Ambiguous publications after a place, with what the bus says of each.
    pub(crate) async fn doubts(&self, after: u64, rows_max: usize) -> Result<Vec<Doubt>, Fault> {
        let listed = self.ledger.ambiguous_publications(DOOR.to_owned(), after, rows_max).await?;
        self.ask(listed).await
    }

    /// How many publications there are, and how much waits.
    pub(crate) async fn counts(&self) -> Result<PublicationCounts, Fault> {
        self.ledger.publication_counts(DOOR.to_owned()).await
    }

    /// Asks the bus about publications. What it said too late counts where it cannot tell now.
    async fn ask(&self, listed: Vec<Publication>) -> Result<Vec<Doubt>, Fault> {
        let grace = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let sought = listed.iter().map(|one| SearchQuery {
            topic: one.topic.clone(),
            dedupe_key: one.dedupe_key.clone(),
            partition_key: one.partition_key.clone(),
            from: Millis(one.begun_at.0.saturating_sub(SLACK_MS)),
            to: Millis(one.changed_at.0.saturating_add(grace).saturating_add(SLACK_MS)),
        });
        let mut found = self.bus.find(sought.collect()).await;
        let reason = "the bus gave no answer".to_owned();
        found.resize(listed.len(), SearchResult::Unknown { reason });
        let mut doubts = Vec::with_capacity(listed.len());
        for (publication, found) in listed.into_iter().zip(found) {
            let found = match found {
                SearchResult::Found(there) => SearchResult::Found(there),
                other @ (SearchResult::Absent | SearchResult::Unknown { .. }) => {
                    let late = self.late(&publication).await?;
                    late.map_or(other, |late| SearchResult::Found(vec![late]))
                }
            };
            let may_still_land = self.may_still_land(&publication);
            doubts.push(Doubt { publication, found, may_still_land });
        }
        Ok(doubts)
    }

    /// Where the bus said, too late, that the present attempt is.
    async fn late(&self, of: &Publication) -> Result<Option<Reference>, Fault> {
        let history = self.ledger.publication_history(of.n).await?;
        let attempt = of.state.attempt();
        let told = history.iter().filter(|line| line.what == "evidence" && line.attempt == attempt);
        Ok(told.filter_map(|line| line.evidence.as_ref()).find_map(place_of))
    }

    /// Why "absent" cannot be said yet.
    fn may_still_land(&self, of: &Publication) -> Option<&'static str> {
        if self.alive().contains(&of.n) {
            return Some("the attempt is still under way in this gate");
        }
        let timeout = i64::try_from(self.bus.delivery_timeout().as_millis()).unwrap_or(i64::MAX);
        let over_at = of.changed_at.0.saturating_add(timeout);
        (self.clock.now().0 < over_at).then_some("the delivery timeout of the bus has not passed")
    }

    /// Resolves one, because a person says so and nothing speaks against it.
    pub(crate) async fn reconcile(
        &self,
        dedupe_key: &str,
        resolution: Resolution,
        by: Attribution,
    ) -> Result<Publication, Unresolved> {
        let named = self.ledger.publication(DOOR.to_owned(), dedupe_key.to_owned()).await?;
        let publication = named.ok_or(Unresolved::NotFound)?;
        if !matches!(publication.state, EffectState::Ambiguous(_)) {
            let word = publication.state.word();
            return Err(Unresolved::Refused(format!("the publication is {word}, not ambiguous")));
        }
        let Some(doubt) = self.ask(vec![publication]).await?.pop() else {
            return Err(Unresolved::NotFound);
        };
        let (found, evidence) = doubt.judge(resolution).map_err(Unresolved::Refused)?;
        let step = Step::Reconcile { by, found, evidence };
        let batch = vec![PublicationStep { n: doubt.publication.n, step, reason: None }];
        let taken = self.ledger.step_publications(batch, self.clock.now()).await?;
        match taken.into_iter().next() {
            Some(Ok(publication)) => {
                let Publication { record_id, revision, state, .. } = &publication;
                let state = state.word();
                tracing::info!(record_id, revision, state, "a publication was reconciled");
                self.wake();
                Ok(publication)
            }
            Some(Err(IllegalStep::NotAmbiguous)) | None => {
                Err(Unresolved::Refused("somebody else has resolved it in this moment".to_owned()))
            }
            Some(Err(illegal)) => Err(Unresolved::Refused(illegal.to_string())),
        }
    }
}

impl Doubt {
    /// Whether what a person says fits what is known.
    fn judge(&self, resolution: Resolution) -> Result<(ReconcileOutcome, Evidence), String> {
        let done = |at: &Reference| Ok((ReconcileOutcome::Done, Evidence::of(&place(at))));
        match (resolution, &self.found) {
            (Resolution::Absent, SearchResult::Found(_)) => {
                Err("the bus has it; resolve it as found".to_owned())
            }
            (Resolution::Absent, SearchResult::Absent | SearchResult::Unknown { .. }) => {
                match self.may_still_land {
                    Some(why) => Err(format!("it may still land: {why}")),
                    None => Ok((ReconcileOutcome::Refused, unknown("found absent", true))),
                }
            }
            (Resolution::Found(_), SearchResult::Absent) => Err("the bus does not have it".to_owned()),
            (Resolution::Found(None), SearchResult::Found(there)) => match there.as_slice() {
                [only] => done(only),
                _ => Err(format!(
                    "it is on the bus {} times; say which one counts, by partition and offset",
                    there.len()
                )),
            },
            (Resolution::Found(None), SearchResult::Unknown { reason }) => Err(format!(
                "the bus cannot tell ({reason}); say where it is, by partition and offset"
            )),
            (Resolution::Found(Some((partition, offset))), SearchResult::Found(there)) => {
                let is_it = |at: &&Reference| at.partition == partition && at.offset == offset;
                match there.iter().find(is_it) {
                    Some(at) => done(at),
                    None => Err("the bus has it elsewhere".to_owned()),
                }
            }
            (Resolution::Found(Some((partition, offset))), SearchResult::Unknown { .. }) => {
                let said = Object::from_iter([
                    ("topic", Value::from(self.publication.topic.clone())),
                    ("partition", partition.into()),
                    ("offset", offset.into()),
                ]);
                Ok((ReconcileOutcome::Done, Evidence::of(&said)))
            }
        }
    }

    /// The doubt as it is listed.
    pub(crate) fn listed(&self) -> Object<'static> {
        let told = &self.publication;
        let evidence = told.state.evidence().map(|evidence| object(evidence.as_bytes()));
        let reason = evidence.and_then(|evidence| evidence.get("reason").cloned());
        let (word, there, why) = match &self.found {
            SearchResult::Found(there) if there.len() == 1 => ("found", there.as_slice(), None),
            SearchResult::Found(there) => ("found_twice", there.as_slice(), None),
            SearchResult::Absent => ("absent", [].as_slice(), None),
            SearchResult::Unknown { reason } => ("cannot_tell", [].as_slice(), Some(reason.clone())),
        };
        Object::from_iter([
            ("dedupe_key", Value::from(told.dedupe_key.clone())),
            ("round_id", told.record_id.clone().into()),
            ("revision", told.revision.into()),
            ("topic", told.topic.clone().into()),
            ("attempt", told.state.attempt().into()),
            ("in_flight_at", told.begun_at.to_rfc3339_millis().into()),
            ("ambiguous_at", told.changed_at.to_rfc3339_millis().into()),
            ("reason_code", told.reason.clone().into()),
            ("reason", reason.unwrap_or_default()),
            ("bus", word.into()),
            ("bus_reason", why.into()),
            ("references", there.iter().map(place).collect()),
            ("may_still_land", self.may_still_land.into()),
        ])
    }
}

/// Evidence as the ledger keeps it.
fn object(text: &[u8]) -> Object<'static> {
    match json::parse(text, &json::Limits::default()) {
        Ok(Value::Object(object)) => object.into_owned(),
        Ok(_) | Err(_) => Object::new(),
    }
}

/// The place on the bus that evidence tells of, if it does.
pub fn place_of(evidence: &Evidence) -> Option<Reference> {
    let told = object(evidence.as_bytes());
    let text = |name| told.get(name).and_then(Value::as_str);
    Some(Reference {
        topic: text("topic")?.to_owned(),
        partition: u32::try_from(told.get("partition")?.as_u64()?).ok()?,
        offset: text("offset")?.to_owned(),
        offset_kind: OffsetKind::from_word(text("offset_kind")?)?,
        published_at: text("published_at").and_then(Millis::parse_rfc3339),
    })
}
