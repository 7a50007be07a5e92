//! Turns one submission into an event with a key, or into a refusal with a reason.

use admit_core::json::{self, Limits, Object, Value};
use admit_core::{
    Code, Digest, Door, Entry, Event, Key, Millis, OnOtherContent, RefusedSubmission, Submission,
};

use super::cloud::{CloudEvent, CloudEventError, EventData};
use super::identity::{FieldPath, IDEMPOTENCY_KEY, NoKey, key_in};
use super::media::{self, TransportMode};
use super::schemas::SchemaMismatch;
use super::settings::EventIdentity;
use super::{Events, KEY_CHARS_MAX, webhooks};
use crate::schema::meter::{Budget, within};

/// Integer timestamps above this are milliseconds, below it seconds: it is the year 5138 in seconds
/// and 1973 in milliseconds.
const SECONDS_MAX: i64 = 100_000_000_000;

/// Reason of a refusal, and the readable parts of the submission.
struct StreamRefusal {
    code: Code,
    message: String,
    facts: Object<'static>,
}

impl StreamRefusal {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), facts: Object::new() }
    }
}

impl From<CloudEventError> for StreamRefusal {
    fn from((code, message): CloudEventError) -> Self {
        Self::new(code, message)
    }
}

/// Result of vetting, besides the submission itself.
struct StreamEventParts {
    key: Key,
    digest: Digest,
    happened_at: Option<Millis>,
    facts: Object<'static>,
}

/// See [`Contract::vet`](crate::Contract::vet).
pub(super) fn vet(events: &Events, door: &Door, submission: Submission) -> Entry {
    let vetted = read(events, door, &submission);
    entry(door, submission, vetted)
}

/// See [`Contract::vet_within`](crate::Contract::vet_within).
pub(super) fn vet_within(
    events: &Events,
    door: &Door,
    submission: Submission,
    budget: &mut Budget,
) -> Result<Entry, Submission> {
    match within(budget, || read(events, door, &submission)) {
        Some(vetted) => Ok(entry(door, submission, vetted)),
        None => Err(submission),
    }
}

fn entry(
    door: &Door,
    submission: Submission,
    vetted: Result<StreamEventParts, StreamRefusal>,
) -> Entry {
    let Submission { principal, received_at, body, .. } = submission;
    let door = door.clone();
    match vetted {
        Ok(StreamEventParts { key, digest, happened_at, facts }) => Entry::Event(Event {
            door,
            key,
            digest,
            principal,
            received_at,
            happened_at,
            body,
            attempt: None,
            facts,
            on_other_content: OnOtherContent::Conflict,
            projections: Vec::new(),
            record: None,
            effect: None,
            inbox: None,
        }),
        Err(StreamRefusal { code, message, facts }) => Entry::Refused(RefusedSubmission {
            door,
            principal,
            received_at,
            body,
            attempt: None,
            code,
            message,
            facts,
        }),
    }
}

fn read(
    events: &Events,
    door: &Door,
    submission: &Submission,
) -> Result<StreamEventParts, StreamRefusal> {
    let settings = &events.settings;
    let most = settings.event_bytes_max;
    if submission.body.len() > most {
        let message = format!("the event is larger than {most} bytes");
        return Err(StreamRefusal::new(Code::BodyTooLarge, message));
    }
    let vetted = match TransportMode::of(submission) {
        TransportMode::Structured => {
            let value = parse(events, submission)?;
            cloud(events, door, submission, &CloudEvent::structured(&value)?, "structured")
        }
        TransportMode::Binary { is_json } => {
            let has_json = is_json && !submission.body.is_empty();
            let value = has_json.then(|| parse(events, submission)).transpose()?;
            let event = CloudEvent::binary(submission, value.as_ref())?;
            cloud(events, door, submission, &event, "binary")
        }
        // A line has no content type, so its format is detected from its content.
        TransportMode::Line(_) => {
            let value = parse(events, submission)?;
            if value.get("specversion").is_some() {
                cloud(events, door, submission, &CloudEvent::structured(&value)?, "structured")
            } else {
                plain(events, door, submission, Some(&value))
            }
        }
        TransportMode::Plain { is_json: true } => {
            plain(events, door, submission, Some(&parse(events, submission)?))
        }
        TransportMode::Plain { is_json: false } => plain(events, door, submission, None),
        TransportMode::Lines => {
            Err(StreamRefusal::new(Code::InvalidJson, "the body contains no line"))
        }
        TransportMode::Batch => {
            parse(events, submission)?;
            Err(StreamRefusal::new(Code::InvalidEnvelope, "a batch is a json array of cloudevents"))
        }
    }?;
    if events.horizon.is_outside(vetted.happened_at, submission.received_at) {
        let at = vetted.happened_at.unwrap_or_default();
        let message = format!("the event time {at} is older than the retention of this gate");
        return Err(StreamRefusal {
            facts: vetted.facts,
            ..StreamRefusal::new(Code::OutsideHorizon, message)
        });
    }
    Ok(vetted)
}

fn parse<'a>(events: &Events, submission: &'a Submission) -> Result<Value<'a>, StreamRefusal> {
    // The size was checked before.
    let limits = Limits { depth_max: events.settings.json_depth_max, bytes_max: usize::MAX };
    json::parse(&submission.body, &limits).map_err(|error| {
        StreamRefusal::new(Code::InvalidJson, format!("the body is not json: {error}"))
    })
}

fn digest(events: &Events, value: &Value<'_>) -> Result<Digest, StreamRefusal> {
    match json::canonical(value, events.settings.canonical.form()) {
        Ok(canonical) => Ok(Digest::of(&canonical)),
        Err(error) => {
            let message = format!("the body has no canonical form: {error}");
            Err(StreamRefusal::new(Code::InvalidJson, message))
        }
    }
}

/// Vets a CloudEvent, identified by its `source` and `id`.
fn cloud(
    events: &Events,
    door: &Door,
    submission: &Submission,
    event: &CloudEvent<'_>,
    mode: &'static str,
) -> Result<StreamEventParts, StreamRefusal> {
    let [source, id, kind] =
        ["source", "id", "type"].map(|name| event.get(name).unwrap_or_default());
    let mut facts = Object::from_iter([("mode", Value::from(mode))]);
    if mode == "binary" {
        facts.push("attributes", event.attributes());
        if let Some(content_type) = event.get("datacontenttype") {
            facts.push("content_type", content_type.to_owned());
        }
    } else {
        for (name, value) in [("source", source), ("id", id), ("type", kind)] {
            facts.push(name, value.to_owned());
        }
    }
    let null = Value::Null;
    if !events.schemas.is_empty() {
        let data = if let EventData::Json(data) = &event.data { data.as_ref() } else { &null };
        let version = event.get("dataschema").map(str::to_owned).or_else(|| version(events, data));
        check_schema(events, version.as_deref(), data, &facts)?;
    }
    let scope = submission.principal.as_str().as_bytes();
    let own: [&[u8]; 4] = [scope, b"cloudevent", source.as_bytes(), id.as_bytes()];
    Ok(StreamEventParts {
        key: Key::derive(door.as_str(), &own),
        digest: digest(events, &event.content())?,
        happened_at: event.time(),
        facts,
    })
}

/// Vets a plain event. `value` is its body if that is JSON.
fn plain(
    events: &Events,
    door: &Door,
    submission: &Submission,
    value: Option<&Value<'_>>,
) -> Result<StreamEventParts, StreamRefusal> {
    let settings = &events.settings;
    let mut facts = Object::new();
    let digest = match value {
        Some(value) => digest(events, value)?,
        None => Digest::of(&submission.body),
    };
    let own = match &settings.identity {
        EventIdentity::Body => {
            // Equal bytes as JSON and as another type are different content.
            let form: &[u8] = if value.is_some() { b"body" } else { b"bytes" };
            vec![form.to_vec(), digest.as_bytes().to_vec()]
        }
        EventIdentity::Fields(fields) => field_values(events, fields, value)?,
        EventIdentity::IdempotencyKey => {
            let (name, fact) = match settings.webhooks {
                Some(_) => (webhooks::ID, "webhook_id"),
                None => (IDEMPOTENCY_KEY, "idempotency_key"),
            };
            let key = header_key(submission, name)?;
            facts.push(fact, key.clone());
            let mut own = vec![fact.as_bytes().to_vec(), key.into_bytes()];
            if let TransportMode::Line(number) = TransportMode::of(submission) {
                own.push(number.to_string().into_bytes());
                facts.push("line", number);
            }
            own
        }
    };
    let content_type = submission.header(media::CONTENT_TYPE);
    if let Some(other) = content_type.filter(|kind| media::essence(kind) != "application/json") {
        facts.push("content_type", other.to_owned());
    }
    if let Some(value) = value.filter(|_| !events.schemas.is_empty()) {
        check_schema(events, version(events, value).as_deref(), value, &facts)?;
    }
    let happened_at = happened_at(settings.time_field.as_ref(), value)?;
    let scope = submission.principal.as_str().as_bytes();
    let own: Vec<&[u8]> = std::iter::once(scope).chain(own.iter().map(Vec::as_slice)).collect();
    Ok(StreamEventParts { key: Key::derive(door.as_str(), &own), digest, happened_at, facts })
}

fn header_key(submission: &Submission, name: &str) -> Result<String, StreamRefusal> {
    key_in(submission, name).map_err(|why| match why {
        NoKey::Missing => {
            StreamRefusal::new(Code::IdempotencyKeyMissing, format!("the header {name} is missing"))
        }
        NoKey::Repeated => {
            StreamRefusal::new(Code::InvalidRequest, format!("the header {name} appears twice"))
        }
        NoKey::Invalid => StreamRefusal::new(
            Code::InvalidRequest,
            format!("the header {name} must be 1 to {KEY_CHARS_MAX} visible ascii characters"),
        ),
    })
}

fn field_values(
    events: &Events,
    fields: &[FieldPath],
    value: Option<&Value<'_>>,
) -> Result<Vec<Vec<u8>>, StreamRefusal> {
    let Some(body) = value else {
        let message = "this stream identifies events by their fields, so they must be json";
        return Err(StreamRefusal::new(Code::UnsupportedMediaType, message));
    };
    let mut own = vec![b"fields".to_vec()];
    for field in fields {
        let Some(value) = field.of(body) else {
            let message = format!("the field {field}, which identifies the event, is missing");
            return Err(StreamRefusal::new(Code::IdempotencyKeyMissing, message));
        };
        let canonical = json::canonical(value, events.settings.canonical.form());
        own.push(canonical.map_err(|error| {
            let message = format!("the field {field} has no canonical form: {error}");
            StreamRefusal::new(Code::InvalidJson, message)
        })?);
    }
    Ok(own)
}

/// Schema version in a body: text, or a number as written.
fn version(events: &Events, value: &Value<'_>) -> Option<String> {
    let value = events.settings.version_field.as_ref()?.of(value)?;
    let number = if let Value::Int(digits) = value { Some(digits.as_ref()) } else { None };
    value.as_str().or(number).map(str::to_owned)
}

fn check_schema(
    events: &Events,
    version: Option<&str>,
    value: &Value<'_>,
    facts: &Object<'static>,
) -> Result<(), StreamRefusal> {
    let unfit = match events.schemas.check(version, value) {
        Ok(()) => return Ok(()),
        Err(unfit) => unfit,
    };
    let mut facts = facts.clone();
    let (code, message) = match unfit {
        SchemaMismatch::UnknownVersion(version) => {
            (Code::SchemaVersionUnsupported, format!("schema version {version:?} is not supported"))
        }
        SchemaMismatch::NoVersion => {
            (Code::SchemaVersionUnsupported, "the event has no schema version".to_owned())
        }
        SchemaMismatch::Violations(violations) => {
            let first = violations.first().cloned().unwrap_or_default();
            facts.push("violations", violations);
            (Code::InvalidEnvelope, format!("the event violates its schema: {first}"))
        }
    };
    Err(StreamRefusal { code, message, facts })
}

/// Time of a plain event from the configured field. A missing time is refused, because the stream's
/// horizon depends on it.
fn happened_at(
    field: Option<&FieldPath>,
    value: Option<&Value<'_>>,
) -> Result<Option<Millis>, StreamRefusal> {
    let Some(field) = field else { return Ok(None) };
    let value = value.and_then(|value| field.of(value));
    let at = value.and_then(|value| match value {
        Value::String(text) => Millis::parse_rfc3339(text),
        Value::Int(_) => value.as_i64().map(|at| match at {
            0..SECONDS_MAX => Millis(at * 1_000),
            _ => Millis(at),
        }),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::Array(_) | Value::Object(_) => None,
    });
    if at.is_none() {
        let message = format!("the field {field} must be an RFC 3339 time or a unix time");
        return Err(StreamRefusal::new(Code::InvalidEnvelope, message));
    }
    Ok(at)
}
