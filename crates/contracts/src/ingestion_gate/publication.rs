//! Publish effect of an event: its plan and the evidence of its outcome.

use std::sync::Arc;

use admit_core::json::{Object, Value};
use admit_core::{Evidence, Millis};

use super::eb_ref::{EbRef, WireOffsetKind};
use super::policy::BusPlacement;
use super::receipt::CommitEvidence;

/// Publish plan. The message itself is the unchanged body of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishPlan {
    /// Logical topic.
    pub topic: Arc<str>,
    /// Partition key.
    pub partition_key: String,
    /// Key by which the message can be found on the bus.
    pub dedupe_key: String,
}

/// Plan in the form stored by the ledger.
pub(super) fn plan_facts(place: &BusPlacement<'_>, dedupe_key: &str) -> Object<'static> {
    Object::from_iter([
        ("topic", Value::from(place.topic.to_owned())),
        ("partition_key", place.partition_key.clone().into()),
        ("dedupe_key", dedupe_key.to_owned().into()),
        ("partitioning_profile_id", place.profile_id.to_owned().into()),
    ])
}

/// Parses a stored plan.
pub fn plan(stored: &Object<'_>) -> Option<PublishPlan> {
    let text = |name| stored.get(name)?.as_str();
    Some(PublishPlan {
        topic: text("topic")?.into(),
        partition_key: text("partition_key")?.to_owned(),
        dedupe_key: text("dedupe_key")?.to_owned(),
    })
}

/// Evidence that the message is on the bus.
pub fn committed(eb_ref: &EbRef, at: Millis) -> Evidence {
    CommitEvidence::at(eb_ref.clone(), at).to_evidence()
}

/// Returns the topic and the number of messages in it that the evidence proves to be acknowledged;
/// only for a file bus, whose lines are counted.
pub(super) fn acknowledged(evidence: &Evidence) -> Option<(String, u64)> {
    let EbRef { topic, partition, offset, offset_kind, .. } =
        CommitEvidence::read(evidence)?.eb_ref;
    let is_counted = offset_kind == WireOffsetKind::FileLine && partition == 0;
    let messages = offset.parse::<u64>().ok()?.checked_add(1)?;
    is_counted.then_some((topic, messages))
}

/// Evidence of an unknown outcome or, if the bus has proven it, of a message that was not written.
pub fn unknown(reason: &str, is_not_written: bool) -> Evidence {
    Evidence::of(&Object::from_iter([
        ("reason", Value::from(reason)),
        ("not_written", is_not_written.into()),
    ]))
}
