//! Turns a submission into a source event. A submission with a valid source name is never refused:
//! an unreadable artifact is stored as an event with parse status `failed`.

use std::sync::Arc;

use admit_core::entity::{EntityInput, SourceEvent};
use admit_core::json::{self, DEPTH_CEILING, Form, Limits, Object, Value};
use admit_core::{
    Code, Digest, Door, Entry, Event, Key, Millis, OnOtherContent, RefusedSubmission, Submission,
};
use jiff::tz::TimeZone;

use super::parsed_event::{ArtifactError, ParseResult};
use super::policy::{
    FILENAME_TRIGGER, GAMETIME_FALLBACK, LUA_SPAWN_STATS, PROXIMITY_FILE, SOURCES, STATS_READY,
};
use super::source_event::SourceEventBuilder;
use super::{Rounds, gametime, lua, normalised, proximity, stats};
use crate::{QUERY, SUBPATH};

/// Members of a `round_event` that the gate assigns; they are not part of the content.
const ASSIGNED: [&str; 4] = ["received_at", "parse_status", "link_status", "confidence"];

/// See [`Contract::vet`](crate::Contract::vet).
pub(super) fn vet(rounds: &Rounds, door: &Door, submission: Submission) -> Entry {
    let requested = requested_source(&submission);
    let Submission { principal, received_at, body, .. } = submission;
    let door = door.clone();
    let (source, updates) = match requested {
        Ok(requested) => requested,
        Err((code, message)) => {
            let (attempt, facts) = (None, Object::new());
            return Entry::Refused(RefusedSubmission {
                door,
                principal,
                received_at,
                body,
                attempt,
                code,
                message,
                facts,
            });
        }
    };
    let depth_max = rounds.settings.json_depth_max;
    let zone = &rounds.zone;
    let builder =
        SourceEventBuilder { door: door.as_str(), source, zone, body: &body, received_at, updates };
    let event = builder.event(parse_artifact(source, &body, depth_max));
    let digest = digest(source, updates, &event, &body, depth_max);
    let facts = facts(&event, &rounds.settings.time_zone, depth_max);
    Entry::Event(Event {
        door,
        key: event.key,
        digest,
        principal,
        received_at,
        happened_at: None,
        body,
        attempt: None,
        facts,
        on_other_content: OnOtherContent::Revision,
        projections: Vec::new(),
        record: Some(Arc::new(EntityInput { policy: Arc::clone(&rounds.policy), event })),
        inbox: None,
        effect: None,
    })
}

/// Reads the source name and whether the submission updates known data.
fn requested_source(submission: &Submission) -> Result<(&'static str, bool), (Code, String)> {
    let below = submission.header(SUBPATH).unwrap_or_default();
    let Some(source) = SOURCES.into_iter().find(|source| *source == below) else {
        return Err((Code::NotFound, format!("there is no source {below:?}")));
    };
    let query = submission.header(QUERY).unwrap_or_default();
    let update = query.split('&').find_map(|pair| pair.strip_prefix("update="));
    match update {
        None | Some("") => Ok((source, false)),
        Some("metadata") => Ok((source, true)),
        Some(_) => Err((Code::InvalidRequest, "update can only be metadata".to_owned())),
    }
}

/// Parses the artifact of a source, raw or normalised.
fn parse_artifact(source: &str, body: &[u8], depth_max: usize) -> ParseResult {
    // The server has already limited the body size.
    let limits = Limits { depth_max, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).map_err(|error| {
        ArtifactError::new("invalid_json", format!("body is not json: {error}"))
    })?;
    let Value::Object(body) = &value else {
        let message = format!("the body must be an object, is {}", value.kind());
        return Err(ArtifactError::new("invalid_body", message));
    };
    match source {
        LUA_SPAWN_STATS => normalised::spawns(body),
        _ if normalised::is_normalised(body) => normalised::parse(source, body),
        FILENAME_TRIGGER => stats::parse(body),
        STATS_READY => lua::parse(body),
        GAMETIME_FALLBACK => gametime::parse(body),
        PROXIMITY_FILE => proximity::parse(body),
        _ => Err(ArtifactError::new("unknown_source", "there is no parser for this source")),
    }
}

/// Digest of the content that must not differ under one key: the body, regardless of whitespace and
/// member order, and the update flag.
fn digest(
    source: &str,
    updates: bool,
    event: &SourceEvent,
    body: &[u8],
    depth_max: usize,
) -> Digest {
    let limits = Limits { depth_max, bytes_max: usize::MAX };
    let canonical = json::parse(body, &limits).ok().filter(|_| event.is_parsed());
    let canonical = canonical.and_then(|mut value| {
        if let Value::Object(object) = &mut value {
            for name in ASSIGNED {
                object.remove(name);
            }
        }
        json::canonical(&value, Form::Utf8).ok()
    });
    let mut content = format!("{source}\n{}\n", if updates { "update" } else { "" }).into_bytes();
    content.extend_from_slice(canonical.as_deref().unwrap_or(body));
    Digest::of(&content)
}

/// Facts of this contract for the receipt.
fn facts(event: &SourceEvent, time_zone: &str, depth_max: usize) -> Object<'static> {
    let notes: Vec<String> = event.parse.notes.clone();
    Object::from_iter([
        ("source", Value::from(event.source.clone())),
        ("map_name", event.group.clone().into()),
        ("round_number", event.number.into()),
        ("hard_key", event.hard_key.clone().into()),
        ("parse_status", event.parse.status.word().into()),
        ("parse_reason", event.parse.reason.clone().into()),
        ("notes", notes.into()),
        ("updates", event.updates.into()),
        ("time_zone", time_zone.to_owned().into()),
        ("json_depth_max", depth_max.into()),
    ])
}

/// Recomputes key and digest of an admitted body from the facts of its receipt. `None` if the body
/// cannot have been admitted.
pub fn recompute(door: &str, facts: &Object<'_>, body: &[u8]) -> Option<(Key, Digest)> {
    let (event, depth_max) = rebuild_with_depth(door, facts, body)?;
    let digest = digest(&event.source, event.updates, &event, body, depth_max);
    Some((event.key, digest))
}

/// Rebuilds the event from its body and the facts of its receipt. `None` if the body cannot have been
/// admitted.
pub fn rebuild(door: &str, facts: &Object<'_>, body: &[u8]) -> Option<SourceEvent> {
    rebuild_with_depth(door, facts, body).map(|(event, _)| event)
}

/// Returns the event with the JSON depth limit it was parsed with.
fn rebuild_with_depth(door: &str, facts: &Object<'_>, body: &[u8]) -> Option<(SourceEvent, usize)> {
    let text = |name| facts.get(name).and_then(Value::as_str);
    let source = SOURCES.into_iter().find(|source| text("source") == Some(source))?;
    let zone = &TimeZone::get(text("time_zone")?).ok()?;
    let updates = facts.get("updates").and_then(Value::as_bool)?;
    let depth = facts.get("json_depth_max").and_then(Value::as_u64)?;
    let depth_max = usize::try_from(depth).ok()?.min(DEPTH_CEILING);
    let received_at = Millis(0);
    let builder = SourceEventBuilder { door, source, zone, body, received_at, updates };
    Some((builder.event(parse_artifact(source, body, depth_max)), depth_max))
}
