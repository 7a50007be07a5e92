//! The closure document of a run.

use std::collections::BTreeMap;

use admit_contracts::ingestion_gate::utc;
use admit_core::Millis;
use admit_core::effect::Attribution;
use admit_core::json::{self, Limits, Object, Value, write_object};

use super::ClosureInput;
use crate::report::{Settings, ambiguities, ingress, notes, policies, quarantine, splits};

/// Builds the closure of a run.
pub(super) fn build(
    run: &str,
    input: &ClosureInput,
    by: &Attribution,
    at: Millis,
    settings: &Settings,
) -> Object<'static> {
    let ClosureInput { facts, tally, unsettled, sent, counts, receipts, records, .. } = input;
    let messages = &input.contents.messages;
    let bus = Object::from_iter([
        ("messages_present", Value::from(messages.present)),
        ("messages_expired", messages.expired.into()),
    ]);
    let manifest = facts.manifest.as_ref().map(|manifest| {
        manifest.iter().map(|(output, n)| (output.clone(), Value::from(*n))).collect::<Object<'_>>()
    });
    let is_unlisted = |output: &&String| {
        facts.manifest.as_ref().is_some_and(|manifest| !manifest.contains_key(*output))
    };
    let unlisted: Vec<String> = facts.outputs.keys().filter(is_unlisted).cloned().collect();
    Object::from_iter([
        ("platform_run_id", Value::from(run.to_owned())),
        ("state", "closed".into()),
        ("closed_at_utc", utc(at).into()),
        ("closed_by", by.who.clone().into()),
        ("reason", by.why.clone().into()),
        ("ingress", ingress(tally, unsettled, sent).into()),
        ("deliveries", counts.deliveries.into()),
        ("refused_while_closing", input.refused_while_closing.into()),
        ("quarantine", quarantine(tally).into()),
        ("producers", splits(&tally.producers).into()),
        ("outputs", splits(&tally.outputs).into()),
        ("manifest", manifest.into()),
        ("outputs_not_in_manifest", unlisted.into()),
        ("receipts_present", receipts.present.into()),
        ("quarantine_records_present", records.present.into()),
        ("bus", bus.into()),
        ("ambiguities", ambiguities(input.ambiguities).into()),
        ("policies", policies(tally).into()),
        ("notes", notes(tally).into()),
        ("provenance", settings.provenance.clone().into()),
    ])
}

/// Serializes a closure.
pub(super) fn to_text(document: &Object<'_>) -> String {
    let mut text = Vec::with_capacity(1024);
    write_object(document, &mut text);
    String::from_utf8(text).expect("json is written as utf-8")
}

/// Parses a stored closure.
pub(super) fn parse(text: &str) -> Option<Object<'static>> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    match json::parse(text.as_bytes(), &limits) {
        Ok(Value::Object(document)) => Some(document.into_owned()),
        Ok(_) | Err(_) => None,
    }
}

/// Admitted events by output, from a closure.
pub(super) fn admitted_by_output(document: &Object<'_>) -> BTreeMap<String, u64> {
    let outputs = document.get("outputs").and_then(Value::as_object);
    let admitted = outputs.into_iter().flat_map(Object::iter).map(|(output, split)| {
        let admit = split.get("admit").and_then(Value::as_u64);
        (output.to_owned(), admit.unwrap_or(0))
    });
    admitted.collect()
}
