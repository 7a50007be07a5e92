//! The publish that an event causes: what is to be done, and what is known of how it ended.

use std::sync::Arc;

use admit_core::json::{Object, Value};
use admit_core::{Evidence, Millis};

use super::eb_ref::{EbRef, OffsetKind};
use super::policy::Place;
use super::receipt::Committed;

/// What is to be published where. The message itself is the body of the event, unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The logical topic.
    pub topic: Arc<str>,
    /// What keeps events in order.
    pub partition_key: String,
    /// What the message can be found again by.
    pub dedupe_key: String,
}

/// The plan as the ledger keeps it.
pub(super) fn planned(place: &Place<'_>, dedupe_key: &str) -> Object<'static> {
    Object::from_iter([
        ("topic", Value::from(place.topic.to_owned())),
        ("partition_key", place.partition_key.clone().into()),
        ("dedupe_key", dedupe_key.to_owned().into()),
        ("partitioning_profile_id", place.profile_id.to_owned().into()),
    ])
}

/// Reads a plan back.
pub fn plan(kept: &Object<'_>) -> Option<Plan> {
    let text = |name| kept.get(name)?.as_str();
    Some(Plan {
        topic: text("topic")?.into(),
        partition_key: text("partition_key")?.to_owned(),
        dedupe_key: text("dedupe_key")?.to_owned(),
    })
}

/// The evidence that the message is on the bus.
pub fn committed(eb_ref: &EbRef, at: Millis) -> Evidence {
    Committed::at(eb_ref.clone(), at).to_evidence()
}

/// The topic and the number of messages in it that an outcome proves to be acknowledged, where the
/// bus is a file whose lines are counted.
pub(super) fn acknowledged(evidence: &Evidence) -> Option<(String, u64)> {
    let EbRef { topic, partition, offset, offset_kind, .. } = Committed::read(evidence)?.eb_ref;
    let is_counted = offset_kind == OffsetKind::FileLine && partition == 0;
    let messages = offset.parse::<u64>().ok()?.checked_add(1)?;
    is_counted.then_some((topic, messages))
}

/// The evidence that nobody knows; or, where the bus has proven so much, that it is not written.
pub fn unknown(reason: &str, is_not_written: bool) -> Evidence {
    Evidence::of(&Object::from_iter([
        ("reason", Value::from(reason)),
        ("not_written", is_not_written.into()),
    ]))
}
