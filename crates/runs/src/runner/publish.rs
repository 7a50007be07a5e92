//! Saying something about a run on the control bus: at most once by itself.
//!
//! In flight is kept before the first byte leaves. What the bus did not confirm is unknown, stays so
//! and can be seen; a person who wants it said again emits it again, under the same message id.

use admit_bus::{Message, PublishOutcome};
use admit_contracts::ingestion_gate::utc;
use admit_core::json::{Object, Value};
use admit_ledger::scenario_runs::{RunPublication, PublicationState, ScenarioRun};
use tokio::time::timeout;

use super::Runner;
use super::documents::{event, written};
use super::lead::{Kept, Lead};
use super::reason::RunnerError;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ready,
    ReadyReemit,
    TerminalReemit,
}

impl Kind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::ReadyReemit => "READY_REEMIT",
            Self::TerminalReemit => "TERMINAL_REEMIT",
        }
    }

    /// The event when it was said, and when it was not.
    const fn events(self) -> [&'static str; 2] {
        match self {
            Self::Ready => ["READY_PUBLISHED", "READY_PUBLISH_FAILED"],
            Self::ReadyReemit => ["READY_REEMITTED", "READY_REEMIT_FAILED"],
            Self::TerminalReemit => ["TERMINAL_REEMITTED", "TERMINAL_REEMIT_FAILED"],
        }
    }
}

/// Something to say.
#[derive(Clone)]
pub(super) struct Saying {
    pub(super) kind: Kind,
    pub(super) message_id: String,
    /// JSON.
    pub(super) payload: String,
    /// What the record says beside the outcome: who asked, and why.
    pub(super) details: Object<'static>,
}

impl Runner {
    /// Says it, and keeps what became of it.
    pub(super) async fn say(
        &self,
        lead: &Lead,
        run: &ScenarioRun,
        saying: Saying,
    ) -> Result<ScenarioRun, RunnerError> {
        let now = self.clock.now();
        let attempt = run.publications.last().map_or(0, |last| last.attempt) + 1;
        let mut publication = RunPublication {
            message_id: saying.message_id.clone(),
            kind: saying.kind.word().to_owned(),
            attempt,
            state: PublicationState::InFlight,
            evidence: None,
            at: now,
        };
        let kept = Kept { publication: Some(publication.clone()), ..Kept::default() };
        self.keep(lead, &run.run_id, kept).await?;
        let message = self.message(run, &saying);
        let sent = timeout(self.bus.delivery_timeout(), self.bus.publish(vec![message])).await;
        let answer = sent.ok().and_then(|mut answers| answers.pop());
        let (state, evidence) = match answer {
            Some(PublishOutcome::Committed(at)) => {
                let place = format!("{}/{}@{}", at.topic, at.partition, at.offset);
                (PublicationState::Published, place)
            }
            Some(PublishOutcome::NotWritten { reason }) => (PublicationState::NotWritten, reason),
            Some(PublishOutcome::Unknown { reason }) => (PublicationState::Unknown, reason),
            None => (PublicationState::Unknown, "the bus did not answer in time".to_owned()),
        };
        (publication.state, publication.evidence) = (state, Some(evidence));
        self.settle(lead, run, publication, saying).await
    }

    /// Keeps the outcome with its event in the record.
    pub(super) async fn settle(
        &self,
        lead: &Lead,
        run: &ScenarioRun,
        publication: RunPublication,
        saying: Saying,
    ) -> Result<ScenarioRun, RunnerError> {
        let [said, failed] = saying.kind.events();
        let mut details = Object::from_iter([
            ("message_id", Value::from(publication.message_id.clone())),
            ("attempt", publication.attempt.into()),
        ]);
        let is_said = publication.state == PublicationState::Published;
        if !is_said {
            details.push("outcome", publication.state.word());
            tracing::warn!(
                run_id = run.run_id,
                outcome = publication.state.word(),
                "a message about a run is not known to be on the control bus"
            );
        }
        details.push("evidence", publication.evidence.clone());
        details.extend(saying.details);
        let kind = if is_said { said } else { failed };
        let event = event(kind, &run.run_id, &details, &self.policy, self.clock.now());
        let kept = Kept { events: vec![event], publication: Some(publication), ..Kept::default() };
        self.keep(lead, &run.run_id, kept).await
    }

    fn message(&self, run: &ScenarioRun, saying: &Saying) -> Message {
        let now = self.clock.now();
        let attributes = Object::from_iter([
            ("kind", Value::from(saying.kind.word())),
            ("run_id", (&run.run_id).into()),
        ]);
        let payload = super::documents::read(&saying.payload).unwrap_or_default();
        let envelope = Object::from_iter([
            ("topic", Value::from(&self.settings.control_topic)),
            ("message_id", (&saying.message_id).into()),
            ("published_at_utc", utc(now).into()),
            ("attributes", attributes.into()),
            ("partition_key", (&run.run_id).into()),
            ("payload", payload),
        ]);
        Message {
            topic: self.settings.control_topic.as_str().into(),
            partition_key: run.run_id.clone(),
            dedupe_key: saying.message_id.clone(),
            payload: written(&envelope).into(),
            at: now,
        }
    }
}
