//! Turns a submission into an event with a key, or into a refusal with a reason.
//!
//! Only the six required members are checked: unknown types and members are accepted and stored,
//! because the door need not know the meaning of an event.

use admit_core::json::{self, DEPTH_CEILING, Form, Limits, Object, Value};
use admit_core::{
    Code, Digest, Door, Entry, Event, Key, OnOtherContent, RefusedSubmission, Submission,
};

use super::ts::is_rfc3339;
use super::{EVENT_ID_CHARS_MAX, Skyra};

/// Required members that must be non-empty texts.
const TEXTS: [&str; 5] = ["event_id", "type", "ts", "session_id", "device_id"];

/// Reason of a refusal, and the readable parts of the submission.
struct SkyraRefusal {
    code: Code,
    message: String,
    event_id: Option<String>,
}

/// Result of vetting, besides the submission itself.
struct SkyraEventParts {
    key: Key,
    digest: Digest,
    event_id: String,
    facts: Object<'static>,
}

/// See [`Contract::vet`](crate::Contract::vet).
pub(super) fn vet(skyra: &Skyra, door: &Door, submission: Submission) -> Entry {
    let vetted = read(skyra, door, &submission.body);
    let Submission { principal, received_at, body, .. } = submission;
    let door = door.clone();
    match vetted {
        Ok(SkyraEventParts { key, digest, event_id, facts }) => Entry::Event(Event {
            door,
            key,
            digest,
            principal,
            received_at,
            // Producers retry without a time limit until they are acknowledged, so no event is ever
            // too old for this door.
            happened_at: None,
            body,
            attempt: None,
            facts,
            on_other_content: match skyra.settings.owned_ids {
                true => OnOtherContent::OwnedConflict,
                false => OnOtherContent::Conflict,
            },
            projections: Vec::new(),
            record: None,
            effect: None,
            inbox: Some(event_id),
        }),
        Err(SkyraRefusal { code, message, event_id }) => {
            let facts = event_id.map(|id| ("event_id", Value::from(id))).into_iter().collect();
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

fn read(skyra: &Skyra, door: &Door, body: &[u8]) -> Result<SkyraEventParts, SkyraRefusal> {
    let refuse = |code, message| SkyraRefusal { code, message, event_id: None };
    // The server has already limited the body size.
    let limits = Limits { depth_max: skyra.settings.json_depth_max, bytes_max: usize::MAX };
    let value = json::parse(body, &limits)
        .map_err(|error| refuse(Code::InvalidJson, format!("it is not json: {error}")))?;
    let Value::Object(envelope) = &value else {
        let message = format!("it must be an object, is {}", value.kind());
        return Err(refuse(Code::InvalidEnvelope, message));
    };
    if let Some(message) = first_violation(envelope) {
        let event_id = readable_id(envelope).map(str::to_owned);
        return Err(SkyraRefusal { code: Code::InvalidEnvelope, message, event_id });
    }
    let event_id = readable_id(envelope).unwrap_or_default().to_owned();
    let canonical = json::canonical(&value, Form::Utf8)
        .map_err(|error| refuse(Code::InvalidJson, format!("it is not json: {error}")))?;
    let fact = |name: &'static str| (name, envelope.get(name).cloned().map(Value::into_owned));
    let facts = TEXTS.into_iter().chain(["schema_version"]).map(fact);
    let facts = facts.filter_map(|(name, value)| value.map(|value| (name, value))).collect();
    let digest = Digest::of(&canonical);
    Ok(SkyraEventParts { key: key(door.as_str(), &event_id), digest, event_id, facts })
}

/// Returns the first violation in an envelope.
fn first_violation(envelope: &Object<'_>) -> Option<String> {
    for name in TEXTS {
        match envelope.get(name) {
            None => return Some(format!("{name} is missing")),
            Some(Value::String(text)) if text.is_empty() => {
                return Some(format!("{name} must not be empty"));
            }
            Some(Value::String(_)) => {}
            Some(other) => return Some(format!("{name} must be a string, is {}", other.kind())),
        }
    }
    match envelope.get("payload") {
        None => return Some("payload is missing".to_owned()),
        Some(Value::Object(_)) => {}
        Some(other) => return Some(format!("payload must be an object, is {}", other.kind())),
    }
    let text = |name| envelope.get(name).and_then(Value::as_str).unwrap_or_default();
    if !is_id(text("event_id")) {
        return Some(format!(
            "event_id must be 1 to {EVENT_ID_CHARS_MAX} characters without control characters"
        ));
    }
    if !is_rfc3339(text("ts")) {
        let message = "ts must be an RFC 3339 time with seconds, such as 2026-02-16T23:10:21Z";
        return Some(message.to_owned());
    }
    None
}

fn is_id(text: &str) -> bool {
    let length = text.chars().take(EVENT_ID_CHARS_MAX + 1).count();
    (1..=EVENT_ID_CHARS_MAX).contains(&length) && !text.contains(char::is_control)
}

/// Returns the id of an envelope that may be invalid otherwise.
fn readable_id<'o>(envelope: &'o Object<'_>) -> Option<&'o str> {
    envelope.get("event_id").and_then(Value::as_str).filter(|id| is_id(id))
}

/// Returns the id in a body, if readable, for the reply.
pub(super) fn event_id(body: &[u8], depth_max: usize) -> Option<String> {
    let limits = Limits { depth_max, bytes_max: usize::MAX };
    match json::parse(body, &limits) {
        Ok(Value::Object(envelope)) => readable_id(&envelope).map(str::to_owned),
        Ok(_) | Err(_) => None,
    }
}

/// Derived from the id alone, without the sender: it is the primary key of the inbox.
fn key(door: &str, event_id: &str) -> Key {
    Key::derive(door, &[event_id.as_bytes()])
}

/// Recomputes key and digest of an admitted body. `None` if the body cannot have been admitted.
pub fn recompute(door: &str, body: &[u8]) -> Option<(Key, Digest)> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).ok()?;
    let digest = Digest::of(&json::canonical(&value, Form::Utf8).ok()?);
    let event_id = value.get("event_id").and_then(Value::as_str)?;
    Some((key(door, event_id), digest))
}
