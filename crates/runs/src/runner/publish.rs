//! Publication of messages about a run to the control bus: at most once automatically.
//!
//! The attempt is committed as in flight before it is sent. An unconfirmed publication is unknown and
//! stays so; an operator may re-emit it under the same message id.

use admit_bus::{Message, PublishOutcome};
use admit_contracts::ingestion_gate::utc;
use admit_core::json::{Object, Value};
use admit_ledger::publications::BusEnd;
use admit_ledger::scenario_runs::{PublicationState, RunPublication, ScenarioRun};
use tokio::time::timeout;

use super::Runner;
use super::documents::{parse, record_event, to_json};
use super::lease::{RunChange, RunnerLease};
use super::reason::RunnerError;

/// Kind of a message about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Ready,
    ReadyReemit,
    TerminalReemit,
}

impl MessageKind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::ReadyReemit => "READY_REEMIT",
            Self::TerminalReemit => "TERMINAL_REEMIT",
        }
    }

    /// Events in the record for success and failure.
    const fn events(self) -> [&'static str; 2] {
        match self {
            Self::Ready => ["READY_PUBLISHED", "READY_PUBLISH_FAILED"],
            Self::ReadyReemit => ["READY_REEMITTED", "READY_REEMIT_FAILED"],
            Self::TerminalReemit => ["TERMINAL_REEMITTED", "TERMINAL_REEMIT_FAILED"],
        }
    }
}

/// Message about a run.
#[derive(Clone)]
pub(super) struct RunMessage {
    pub(super) kind: MessageKind,
    pub(super) message_id: String,
    /// JSON text.
    pub(super) payload: String,
    /// Further details for the record: actor and reason of a re-emit.
    pub(super) details: Object<'static>,
}

impl Runner {
    /// Publishes a message and records the outcome.
    pub(super) async fn publish_message(
        &self,
        lease: &RunnerLease,
        run: &ScenarioRun,
        message: RunMessage,
    ) -> Result<ScenarioRun, RunnerError> {
        let now = self.clock.now();
        let attempt = run.publications.last().map_or(0, |last| last.attempt) + 1;
        let mut publication = RunPublication {
            message_id: message.message_id.clone(),
            kind: message.kind.word().to_owned(),
            attempt,
            state: PublicationState::InFlight,
            evidence: None,
            at: now,
        };
        let change = RunChange { publication: Some(publication.clone()), ..RunChange::default() };
        self.update_run(lease, &run.run_id, change).await?;
        let bus_message = self.bus_message(run, &message);
        let sent = timeout(self.bus.delivery_timeout(), self.bus.publish(vec![bus_message])).await;
        let outcome = sent.ok().and_then(|mut outcomes| outcomes.pop());
        let mut acknowledged = None;
        let (state, evidence) = match outcome {
            Some(PublishOutcome::Committed(at)) => {
                let topic = at.topic.clone();
                acknowledged = at.messages_up_to().map(|messages| BusEnd { topic, messages });
                let position = format!("{}/{}@{}", at.topic, at.partition, at.offset);
                (PublicationState::Published, position)
            }
            Some(PublishOutcome::NotWritten { reason }) => (PublicationState::NotWritten, reason),
            Some(PublishOutcome::Unknown { reason }) => (PublicationState::Unknown, reason),
            None => (PublicationState::Unknown, "timeout: no reply from the bus".to_owned()),
        };
        (publication.state, publication.evidence) = (state, Some(evidence));
        self.record_outcome(lease, run, (publication, acknowledged), message).await
    }

    /// Commits the outcome of an attempt, with its event in the record.
    pub(super) async fn record_outcome(
        &self,
        lease: &RunnerLease,
        run: &ScenarioRun,
        (publication, acknowledged): (RunPublication, Option<BusEnd>),
        message: RunMessage,
    ) -> Result<ScenarioRun, RunnerError> {
        let [published, failed] = message.kind.events();
        let mut details = Object::from_iter([
            ("message_id", Value::from(publication.message_id.clone())),
            ("attempt", publication.attempt.into()),
        ]);
        let is_published = publication.state == PublicationState::Published;
        if !is_published {
            details.push("outcome", publication.state.word());
            tracing::warn!(
                run_id = run.run_id,
                outcome = publication.state.word(),
                "failed to confirm the publication of a message about a run"
            );
        }
        details.push("evidence", publication.evidence.clone());
        details.extend(message.details);
        let kind = if is_published { published } else { failed };
        let event = record_event(kind, &run.run_id, &details, &self.policy, self.clock.now());
        let change = RunChange {
            events: vec![event],
            publication: Some(publication),
            acknowledged,
            ..RunChange::default()
        };
        self.update_run(lease, &run.run_id, change).await
    }

    fn bus_message(&self, run: &ScenarioRun, message: &RunMessage) -> Message {
        let now = self.clock.now();
        let attributes = Object::from_iter([
            ("kind", Value::from(message.kind.word())),
            ("run_id", (&run.run_id).into()),
        ]);
        let payload = parse(&message.payload).unwrap_or_default();
        let envelope = Object::from_iter([
            ("topic", Value::from(&self.settings.control_topic)),
            ("message_id", (&message.message_id).into()),
            ("published_at_utc", utc(now).into()),
            ("attributes", attributes.into()),
            ("partition_key", (&run.run_id).into()),
            ("payload", payload),
        ]);
        Message {
            topic: self.settings.control_topic.as_str().into(),
            partition_key: run.run_id.clone(),
            dedupe_key: message.message_id.clone(),
            payload: to_json(&envelope).into(),
            at: now,
        }
    }
}
