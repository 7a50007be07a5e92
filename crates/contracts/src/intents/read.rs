//! An intent for whoever asks later: how it stands now, what was said first, and its history.

use admit_core::effect::{Effect, Passage, Standing};
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Millis, Receipt};

use super::act;
use super::reply::{fact, original};
use crate::Admission;

/// The words an intent's status can be listed by. `ambiguous` is a `failed` whose outcome is not
/// known.
pub const STATUSES: [&str; 4] = ["planned", "executed", "failed", "ambiguous"];

/// How an intent stands now: one of [`STATUSES`].
pub fn status(receipt: &Receipt, effect: Option<&Effect>) -> &'static str {
    match effect.map(|effect| &effect.standing) {
        Some(Standing::Withheld(_) | Standing::Intended(_) | Standing::InFlight(_)) => "planned",
        Some(Standing::Done(_)) => "executed",
        Some(Standing::Refused(_)) => "failed",
        Some(Standing::Ambiguous(_)) => "ambiguous",
        None if fact(&facts(receipt), "status") == "failed" => "failed",
        None => "planned",
    }
}

/// Why it failed, if it did: the code and what is said about it.
pub fn error(receipt: &Receipt, effect: Option<&Effect>) -> Option<Object<'static>> {
    let facts = facts(receipt);
    if let Some(Value::Object(error)) = facts.get("error") {
        return Some(error.clone().into_owned());
    }
    let standing = &effect?.standing;
    if !matches!(standing, Standing::Refused(_) | Standing::Ambiguous(_)) {
        return None;
    }
    let evidence = standing.evidence().map(|evidence| parsed(evidence.as_bytes()));
    match evidence.as_ref().and_then(|evidence| evidence.get("error")) {
        Some(Value::Object(error)) => Some(error.clone().into_owned()),
        _ => Some(act::lost()),
    }
}

/// Everything about one intent. `receipt` is the one of its admission.
pub fn intent(receipt: &Receipt, effect: Option<&Effect>, history: &[Passage]) -> Object<'static> {
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
                ("state", effect.standing.word().into()),
                ("attempt", Value::from(effect.standing.attempt())),
                (
                    "evidence",
                    effect.standing.evidence().map(|evidence| parsed(evidence.as_bytes())).into(),
                ),
            ])
        }),
    );
    intent.push("reply", told_first(receipt, &facts, effect));
    intent.push("history", lines(receipt, history));
    intent
}

/// What every copy is told.
fn told_first(receipt: &Receipt, facts: &Object<'_>, effect: Option<&Effect>) -> Object<'static> {
    let admission = Admission { id: receipt.id, facts, trace: fact(facts, "trace_id") };
    let reply = original(admission, effect);
    Object::from_iter([("http_status", reply.status.into()), ("envelope", parsed(&reply.body))])
}

fn lines(receipt: &Receipt, history: &[Passage]) -> Value<'static> {
    let line = |at: Millis, what: &str, attempt: Option<u32>| {
        Object::from_iter([
            ("at", at.to_rfc3339_millis().into()),
            ("what", what.to_owned().into()),
            ("attempt", attempt.into()),
        ])
    };
    let mut lines = vec![line(receipt.received_at, "received", None)];
    // The rules are applied before the record commit, so both have its time.
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
