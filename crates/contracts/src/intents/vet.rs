//! Turns a submission into an intent with its plan, or into a refusal with its reasons.
//!
//! A packet for which the rules yield no plan is an intent all the same: it is stored under its
//! key, and its copy gets the same reply. Only a body that is not a packet is refused here.

use admit_core::hash::sha256_hex;
use admit_core::json::{self, DEPTH_CEILING, Form, Limits, Object, Value};
use admit_core::{
    Code, Digest, Door, Entry, Event, InitialState, Intent, Key, OnOtherContent, RefusedSubmission,
    Submission,
};

use super::normalise::{Action, PlanRules, plan};
use super::packet::{text, unknown_version, violations};
use super::{Intents, ids};

/// Effect kind of gateway calls.
const KIND: &str = "gateway";

/// Reason of a refusal.
struct PacketRejection {
    code: Code,
    message: String,
    errors: Vec<Object<'static>>,
}

/// Result of vetting, besides the submission itself.
struct IntentParts {
    key: Key,
    digest: Digest,
    facts: Object<'static>,
    effect: Option<Intent>,
}

/// See [`Contract::vet`](crate::Contract::vet).
pub(super) fn vet(intents: &Intents, door: &Door, submission: Submission) -> Entry {
    let vetted = read(intents, door, &submission);
    let Submission { principal, received_at, body, nonce, .. } = submission;
    let door = door.clone();
    match vetted {
        Ok(IntentParts { key, digest, facts, effect }) => Entry::Event(Event {
            door,
            key,
            digest,
            principal,
            received_at,
            happened_at: None,
            body,
            attempt: None,
            facts,
            on_other_content: OnOtherContent::Conflict,
            projections: Vec::new(),
            record: None,
            effect,
            inbox: None,
        }),
        Err(PacketRejection { code, message, errors }) => {
            let trace = ids::trace(&nonce);
            let facts =
                Object::from_iter([("trace_id", trace.into()), ("errors", Value::from(errors))]);
            let attempt = None;
            Entry::Refused(RefusedSubmission {
                door,
                principal,
                received_at,
                body,
                attempt,
                code,
                message,
                facts,
            })
        }
    }
}

fn read(
    intents: &Intents,
    door: &Door,
    submission: &Submission,
) -> Result<IntentParts, PacketRejection> {
    let reject = |code, message| PacketRejection { code, message, errors: Vec::new() };
    let settings = &intents.settings;
    // The server has already limited the body size.
    let limits = Limits { depth_max: settings.json_depth_max, bytes_max: usize::MAX };
    let value = json::parse(&submission.body, &limits)
        .map_err(|error| reject(Code::InvalidJson, format!("body is not json: {error}")))?;
    let Value::Object(packet) = &value else {
        let message = format!("the body must be an object, is {}", value.kind());
        let error = Object::from_iter([("field", "".into()), ("message", message.clone().into())]);
        return Err(PacketRejection { code: Code::InvalidEnvelope, message, errors: vec![error] });
    };
    if unknown_version(packet).is_some() {
        let message = "schema_version is not supported; leave it out or send \"v1\"".to_owned();
        return Err(reject(Code::SchemaVersionUnsupported, message));
    }
    let violations = violations(packet);
    if !violations.is_empty() {
        let messages: Vec<String> =
            violations.iter().take(3).map(|one| format!("{} {}", one.field, one.message)).collect();
        let errors = violations.into_iter().map(super::packet::PacketViolation::object).collect();
        return Err(PacketRejection {
            code: Code::InvalidEnvelope,
            message: messages.join("; "),
            errors,
        });
    }
    let canonical = json::canonical(&value, Form::Utf8)
        .map_err(|error| reject(Code::InvalidJson, format!("body is not json: {error}")))?;
    let digest = Digest::of(&canonical);
    let hex = digest.to_string();
    let names = IntentIds::of(packet, submission, &hex);
    let rules = PlanRules {
        confidence_min: settings.confidence_min,
        zone: &intents.zone,
        now: submission.received_at,
    };
    let mut facts = names.facts(packet, submission, &hex);
    let effect = match plan(packet, &rules) {
        Ok(action) => {
            let key = action_key(&action);
            facts.push("status", "planned");
            facts.push("execute", settings.execute);
            let planned = names.action(&action, &key);
            facts.push("plan", Object::from_iter([("actions", Value::Array(vec![planned]))]));
            let starts =
                if settings.execute { InitialState::Intended } else { InitialState::Withheld };
            Some(Intent { kind: KIND, plan: names.call(action, key), starts })
        }
        Err(refusal) => {
            facts.push("status", "failed");
            facts.push("execute", false);
            facts.push("plan", Object::from_iter([("actions", Value::Array(Vec::new()))]));
            let error = Object::from_iter([
                ("code", refusal.code.into()),
                ("message", refusal.message.into()),
                ("details", refusal.details.into()),
            ]);
            facts.push("error", error);
            None
        }
    };
    Ok(IntentParts { key: key(door.as_str(), &hex), digest, facts, effect })
}

/// The key is derived from the digest.
fn key(door: &str, hex: &str) -> Key {
    Key::derive(door, &[hex.as_bytes()])
}

/// Recomputes key and digest of an admitted body, independent of the current rules. `None` if the
/// body cannot have been admitted.
pub fn recompute(door: &str, body: &[u8]) -> Option<(Key, Digest)> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).ok()?;
    let digest = Digest::of(&json::canonical(&value, Form::Utf8).ok()?);
    Some((key(door, &digest.to_string()), digest))
}

/// Ids of an intent, sent or generated.
struct IntentIds {
    intent_id: String,
    correlation_id: String,
    request_id: Value<'static>,
    actor: String,
}

impl IntentIds {
    fn of(packet: &Object<'_>, submission: &Submission, hex: &str) -> Self {
        let made = |prefix: &str| {
            format!("{prefix}_{}", ids::ulid(submission.received_at, &submission.nonce, prefix))
        };
        let given = |name| text(packet, name).map(str::to_owned);
        let header = submission.header("x-actor-id").filter(|actor| !actor.trim().is_empty());
        Self {
            intent_id: given("intent_id").unwrap_or_else(|| made("int")),
            correlation_id: given("correlation_id").unwrap_or_else(|| made("cor")),
            request_id: ["request_id", "requestId"]
                .into_iter()
                .filter_map(|name| super::packet::present(packet, name))
                .find(|value| value.as_str().is_none_or(|text| !text.trim().is_empty()))
                .map_or_else(|| format!("intent:{hex}").into(), |id| id.clone().into_owned()),
            actor: header
                .map(str::to_owned)
                .or_else(|| given("actor_id"))
                .unwrap_or_else(|| submission.principal.to_string()),
        }
    }

    /// Facts fixed at the first admission.
    fn facts(&self, packet: &Object<'_>, submission: &Submission, hex: &str) -> Object<'static> {
        let given = |name| Value::from(text(packet, name).map(str::to_owned));
        Object::from_iter([
            ("idempotency_key", hex.to_owned().into()),
            ("intent_id", self.intent_id.clone().into()),
            ("correlation_id", self.correlation_id.clone().into()),
            ("request_id", self.request_id.clone()),
            ("trace_id", ids::trace(&submission.nonce).into()),
            ("actor", self.actor.clone().into()),
            ("source", given("source")),
            ("schema_version", text(packet, "schema_version").unwrap_or("v1").to_owned().into()),
            ("intent_type", given("intent_type")),
        ])
    }

    /// Action as shown in the envelope.
    fn action(&self, action: &Action, key: &str) -> Value<'static> {
        Value::from(Object::from_iter([
            ("kind", "action".into()),
            ("action", action.name.as_str().into()),
            ("intent_id", self.intent_id.clone().into()),
            ("correlation_id", self.correlation_id.clone().into()),
            ("idempotency_key", key.to_owned().into()),
            ("payload", action.payload.clone().into()),
        ]))
    }

    /// Action as stored in the plan of the gateway call.
    fn call(&self, action: Action, key: String) -> Object<'static> {
        let payload = match action.name.wrapper() {
            Some(name) => Object::from_iter([(name, action.payload.into())]),
            None => action.payload,
        };
        let request = Object::from_iter([
            ("request_id", self.request_id.clone()),
            ("idempotency_key", key.into()),
            ("actor", self.actor.clone().into()),
            ("payload", payload.into()),
        ]);
        Object::from_iter([("action", action.name.as_str().into()), ("request", request.into())])
    }
}

/// `"action:" + sha256hex(canonical({action, payload}))`
fn action_key(action: &Action) -> String {
    let named = Object::from_iter([
        ("action", action.name.as_str().into()),
        ("payload", Value::from(action.payload.clone())),
    ]);
    let canonical = json::canonical(&named.into(), Form::Utf8)
        .expect("what was read from json can be written in this form");
    format!("action:{}", sha256_hex(&canonical))
}
