//! Read model of an intent: its current state, the first reply, and its history.

use admit_core::effect::{Effect, EffectLogEntry, EffectState};
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Millis, Receipt};

use super::gateway_call;
use super::reply::{fact, first_reply};
use crate::AdmissionContext;

/// Status filters of the listing. `ambiguous` is a `failed` with an unknown outcome.
pub const STATUSES: [&str; 4] = ["planned", "executed", "failed", "ambiguous"];

/// Current status of an intent: one of [`STATUSES`].
pub fn status(receipt: &Receipt, effect: Option<&Effect>) -> &'static str {
    match effect.map(|effect| &effect.state) {
        Some(EffectState::Withheld(_) | EffectState::Intended(_) | EffectState::InFlight(_)) => {
            "planned"
        }
        Some(EffectState::Done(_)) => "executed",
        Some(EffectState::Refused(_)) => "failed",
        Some(EffectState::Ambiguous(_)) => "ambiguous",
        None if fact(&facts(receipt), "status") == "failed" => "failed",
        None => "planned",
    }
}

/// Error of a failed intent: code and message.
pub fn error(receipt: &Receipt, effect: Option<&Effect>) -> Option<Object<'static>> {
    let facts = facts(receipt);
    if let Some(Value::Object(error)) = facts.get("error") {
        return Some(error.clone().into_owned());
    }
    let state = &effect?.state;
    if !matches!(state, EffectState::Refused(_) | EffectState::Ambiguous(_)) {
        return None;
    }
    let evidence = state.evidence().map(|evidence| parsed(evidence.as_bytes()));
    match evidence.as_ref().and_then(|evidence| evidence.get("error")) {
        Some(Value::Object(error)) => Some(error.clone().into_owned()),
        _ => Some(gateway_call::lost()),
    }
}

/// Full view of an intent. `receipt` is that of its admission.
pub fn intent(
    receipt: &Receipt,
    effect: Option<&Effect>,
    history: &[EffectLogEntry],
) -> Object<'static> {
    let facts = facts(receipt);
    let now = match status(receipt, effect) {
        "ambiguous" => "failed",
        other => other,
    };
    let own = |name| facts.get(name).cloned().unwrap_or_default().into_owned();
    let mut intent =
        Object::from_iter([("receipt_id", receipt.id.to_string().into()), ("status", now.into())]);
    for name in [
        "idempotency_key",
        "intent_id",
        "correlation_id",
        "request_id",
        "trace_id",
        "actor",
        "source",
        "schema_version",
        "intent_type",
        "plan",
    ] {
        intent.push(name, own(name));
    }
    intent.push("error", error(receipt, effect));
    intent.push("principal", receipt.principal.to_string());
    intent.push("received_at", receipt.received_at.to_rfc3339_millis());
    intent.push("duplicate_count", receipt.duplicate_count);
    intent.push(
        "effect",
        effect.map(|effect| {
            Object::from_iter([
                ("state", effect.state.word().into()),
                ("attempt", Value::from(effect.state.attempt())),
                (
                    "evidence",
                    effect.state.evidence().map(|evidence| parsed(evidence.as_bytes())).into(),
                ),
            ])
        }),
    );
    intent.push("reply", first_reply_object(receipt, &facts, effect));
    intent.push("history", lines(receipt, history));
    intent
}

/// Reply that every copy gets.
fn first_reply_object(
    receipt: &Receipt,
    facts: &Object<'_>,
    effect: Option<&Effect>,
) -> Object<'static> {
    let admission = AdmissionContext { id: receipt.id, facts, trace: fact(facts, "trace_id") };
    let reply = first_reply(admission, effect);
    Object::from_iter([("http_status", reply.status.into()), ("envelope", parsed(&reply.body))])
}

fn lines(receipt: &Receipt, history: &[EffectLogEntry]) -> Value<'static> {
    let line = |at: Millis, what: &str, attempt: Option<u32>| {
        Object::from_iter([
            ("at", at.to_rfc3339_millis().into()),
            ("what", what.to_owned().into()),
            ("attempt", attempt.into()),
        ])
    };
    let mut lines = vec![line(receipt.received_at, "received", None)];
    // The rules are applied before the record commit, so both have the same time.
    let ruled = if history.is_empty() { "failed" } else { "planned" };
    lines.push(line(receipt.received_at, ruled, None));
    lines.extend(history.iter().map(|passage| {
        let mut line = line(passage.at, &passage.what, Some(passage.attempt));
        if let Some(by) = &passage.by {
            line.push("by", by.who.clone());
            line.push("reason", by.why.clone());
        }
        if let Some(evidence) = &passage.evidence {
            line.push("evidence", parsed(evidence.as_bytes()));
        }
        line
    }));
    lines.into_iter().collect()
}

fn facts(receipt: &Receipt) -> Object<'static> {
    if let Value::Object(facts) = parsed(&receipt.facts) { facts } else { Object::new() }
}

fn parsed(text: &[u8]) -> Value<'static> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    json::parse(text, &limits).map(Value::into_owned).unwrap_or_default()
}
