//! Turns a submission into an event with a key, or into a rejection with a reason.
//!
//! The order is fixed by the contract: parse, request fields, schema version, envelope. An
//! unsupported version is reported before any other violation of the envelope, because a newer
//! plugin may have changed the rest of it too.

use std::sync::Arc;

use admit_core::json::{self, Form, Limits, Object, Value};
use admit_core::{
    Code, Digest, Door, Entry, Event, Horizon, Key, Millis, OnOtherContent, Principal,
    RefusedSubmission, Submission,
};

use super::enums::is_idempotency_key;
use super::envelope::{PixelEnvelope, RequestBody};
use super::extract;
use super::rules::CategoryRules;
use super::server_state::ServerChange;
use super::violations::Violations;
use super::{SchemaMode, Settings};
use crate::text::bounded;

/// Longest text of a rejected event repeated in its facts and message, in characters.
const REJECTED_CHARS_MAX: usize = 256;

/// Reason of a rejection, and the readable parts of the submission.
struct PixelRejection {
    code: Code,
    message: String,
    attempt: Option<u32>,
    facts: Object<'static>,
}

/// Result of vetting, besides the submission itself.
struct PixelEventParts {
    key: Key,
    digest: Digest,
    happened_at: Option<Millis>,
    attempt: Option<u32>,
    facts: Object<'static>,
    change: ServerChange,
}

/// See [`Contract::vet`](crate::Contract::vet).
pub(super) fn vet(
    settings: &Settings,
    horizon: &Horizon,
    door: &Door,
    submission: Submission,
) -> Entry {
    let vetted = read(settings, horizon, door, &submission);
    let Submission { principal, received_at, body, .. } = submission;
    let door = door.clone();
    match vetted {
        Ok(PixelEventParts { key, digest, happened_at, attempt, facts, change }) => {
            Entry::Event(Event {
                door,
                key,
                digest,
                principal,
                received_at,
                happened_at,
                body,
                attempt,
                facts,
                on_other_content: OnOtherContent::Conflict,
                projections: vec![Arc::new(change)],
                record: None,
                effect: None,
                inbox: None,
            })
        }
        Err(PixelRejection { code, message, attempt, facts }) => {
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
    settings: &Settings,
    horizon: &Horizon,
    door: &Door,
    submission: &Submission,
) -> Result<PixelEventParts, PixelRejection> {
    // The server has already limited the body size.
    let limits = Limits { depth_max: settings.json_depth_max, bytes_max: usize::MAX };
    let value = json::parse(&submission.body, &limits).map_err(|error| PixelRejection {
        code: Code::InvalidJson,
        message: format!("body is not json: {error}"),
        attempt: None,
        facts: Object::new(),
    })?;
    let scope = &submission.principal;
    let request = RequestBody::read(&value);
    let reject = |code, message| PixelRejection {
        code,
        message,
        attempt: request.attempt(),
        facts: readable_facts(scope, &request),
    };

    let around = request.check_body();
    if !around.is_empty() {
        return Err(reject(Code::InvalidEnvelope, around.message()));
    }
    if let Some(version) = request.unknown_version() {
        let version = bounded(version, REJECTED_CHARS_MAX);
        let message = match version.as_str() {
            "" => "an empty schema_version is not supported".to_owned(),
            version => format!("schema_version {version} is not supported"),
        };
        return Err(reject(Code::SchemaVersionUnsupported, message));
    }
    let envelope = request
        .check_envelope()
        .map_err(|violations| reject(Code::InvalidEnvelope, violations.message()))?;
    let canonical = json::canonical(envelope.whole, Form::Utf8)
        .map_err(|error| reject(Code::InvalidJson, format!("body is not json: {error}")))?;
    let warnings = CategoryRules::get().violations(
        envelope.version,
        envelope.category,
        envelope.whole,
        canonical.len(),
    );
    if settings.schema == SchemaMode::Strict && !warnings.is_empty() {
        let mut rejection = reject(Code::InvalidEnvelope, warnings.message());
        push_warnings(&mut rejection.facts, warnings);
        return Err(rejection);
    }

    let happened_at = happened_at(envelope.source_time);
    if horizon.is_outside(happened_at, submission.received_at) {
        let message = format!(
            "source_time {} is older than the retention of this gate",
            envelope.source_time
        );
        return Err(reject(Code::OutsideHorizon, message));
    }

    let dedupe_key = dedupe_key(scope, envelope.idempotency_key);
    let login = extract::login(Some(envelope.metadata), Some(envelope.payload));
    Ok(PixelEventParts {
        key: Key::derive(door.as_str(), &[dedupe_key.as_bytes()]),
        digest: Digest::of(&canonical),
        happened_at,
        attempt: request.attempt(),
        facts: facts(&envelope, &dedupe_key, login, warnings),
        change: ServerChange::of(scope, login, &envelope, submission.received_at),
    })
}

/// The plugin's wall-clock time. Zero means that the server has no clock.
fn happened_at(source_time: u64) -> Option<Millis> {
    let seconds = i64::try_from(source_time).ok().filter(|seconds| *seconds > 0)?;
    Some(Millis(seconds.saturating_mul(1_000)))
}

/// `sha256(dedupe_scope + ":" + idempotency_key)`
fn dedupe_key(scope: &Principal, idempotency_key: &str) -> Digest {
    Digest::of([scope.as_str(), ":", idempotency_key].concat().as_bytes())
}

/// Facts of this contract for the receipt.
fn facts(
    envelope: &PixelEnvelope<'_, '_>,
    dedupe_key: &Digest,
    login: Option<&str>,
    warnings: Violations,
) -> Object<'static> {
    let mut facts = Object::new();
    facts.push("event_id", envelope.event_id.to_owned());
    facts.push("idempotency_key", envelope.idempotency_key.to_owned());
    facts.push("dedupe_key", dedupe_key.to_string());
    facts.push("event_name", envelope.event_name.to_owned());
    facts.push("event_category", Value::from(envelope.category.as_str()));
    facts.push("schema_version", Value::from(envelope.version.as_str()));
    facts.push("source_sequence", envelope.source_sequence.clone().into_owned());
    if let Some(login) = login {
        facts.push("server_login", login.to_owned());
    }
    if !warnings.is_empty() {
        push_warnings(&mut facts, warnings);
    }
    facts
}

fn push_warnings(facts: &mut Object<'static>, warnings: Violations) {
    facts.push("warning_count", warnings.count());
    facts.push("warnings", warnings.into_listed());
}

/// Facts of a rejected event, as far as readable; their values are not validated.
fn readable_facts(scope: &Principal, request: &RequestBody<'_, '_>) -> Object<'static> {
    let mut facts = Object::new();
    let text = |name| request.envelope_field(name).and_then(Value::as_str);
    for name in ["event_id", "idempotency_key", "event_name", "event_category", "schema_version"] {
        if let Some(text) = text(name) {
            facts.push(name, bounded(text, REJECTED_CHARS_MAX));
        }
        if name == "idempotency_key"
            && let Some(key) = text(name).filter(|key| is_idempotency_key(key))
        {
            facts.push("dedupe_key", dedupe_key(scope, key).to_string());
        }
    }
    if let Some(sequence @ (Value::Int(_) | Value::Float(_))) =
        request.envelope_field("source_sequence")
    {
        facts.push("source_sequence", sequence.clone().into_owned());
    }
    let part = |name| request.envelope_field(name);
    if let Some(login) = extract::login(part("metadata"), part("payload")) {
        facts.push("server_login", login.to_owned());
    }
    facts
}
