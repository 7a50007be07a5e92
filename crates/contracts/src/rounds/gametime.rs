//! `gametime_fallback`: the file that the script writes, with its message and more data.

use admit_core::json::{self, Limits, Object, Value};

use super::coerce::int;
use super::parsed_event::{ArtifactError, ParseResult, ParsedEvent, text};
use super::{filenames, lua};

/// Parses `{"meta", "payload"}`, or the same as the content of a file.
pub(super) fn parse(body: &Object<'_>) -> ParseResult {
    if body.contains_key("meta") || body.contains_key("payload") {
        return document(body);
    }
    let Some(filename) = text(body, "filename") else {
        return Err(ArtifactError::new(
            "missing_meta",
            "there is neither meta, nor payload, nor a file",
        ));
    };
    let named = filenames::gametime(&filename);
    let mut parsed = match content(body) {
        Ok(document) => document,
        // The file name identifies the round, so it is worth keeping.
        Err(wrong) => match &named {
            Ok(_) => {
                let mut parsed = ParsedEvent::default();
                parsed.note(format!("{}: {}", wrong.reason, wrong.message));
                parsed
            }
            Err(_) => return Err(wrong),
        },
    };
    match named {
        Ok(named) => {
            if parsed.number.is_none() {
                parsed.number_from = Some("filename");
            }
            parsed.map = parsed.map.or(Some(named.map));
            parsed.number = parsed.number.or(Some(named.number));
            parsed.end = parsed.end.filter(|end| *end > 0).or(Some(named.end));
        }
        Err(wrong) => parsed.note(format!("{}; the names in the content are used", wrong.message)),
    }
    parsed.filename = Some(filename);
    Ok(parsed)
}

fn content(body: &Object<'_>) -> ParseResult {
    match body.get("content") {
        Some(Value::Object(inner)) => document(inner),
        Some(Value::String(inner)) => {
            let value = json::parse(inner.as_bytes(), &Limits::default());
            match value {
                Ok(Value::Object(inner)) => document(&inner),
                Ok(other) => {
                    let message = format!("the file must be an object, is {}", other.kind());
                    Err(ArtifactError::new("invalid_content", message))
                }
                Err(error) => Err(ArtifactError::new("invalid_json", error.to_string())),
            }
        }
        _ => Err(ArtifactError::new("invalid_content", "the file has no content")),
    }
}

/// Parses the document. The message takes precedence over `meta`.
fn document(document: &Object<'_>) -> ParseResult {
    let mut parsed = match document.get("payload") {
        None | Some(Value::Null) => {
            let mut parsed = ParsedEvent::default();
            parsed.note("there is no payload; meta is used");
            parsed
        }
        Some(payload) => message(payload),
    };
    let empty = Object::new();
    let meta = document.get("meta").and_then(Value::as_object).unwrap_or(&empty);
    let number = |name: &str| meta.get(name).and_then(int);
    parsed.map = parsed.map.or_else(|| text(meta, "map"));
    parsed.number = parsed.number.or_else(|| number("round"));
    parsed.start = parsed.start.filter(|s| *s > 0).or_else(|| number("round_start_unix"));
    parsed.end = parsed.end.filter(|end| *end > 0).or_else(|| number("round_end_unix"));
    for (field, member) in [
        ("actual_duration_seconds", "actual_duration_seconds"),
        ("lua_warmup_seconds", "warmup_seconds"),
        ("total_pause_seconds", "pause_seconds"),
        ("pause_count", "pause_count"),
    ] {
        parsed.add_field_if_missing(field, number(member));
    }
    parsed.add_field("server_ip", text(meta, "server_ip"));
    parsed.add_field("server_port", number("server_port"));
    if let Some(spawns) = meta.get("spawn_stats").filter(|spawns| !spawns.is_null()) {
        lua::spawn_stats(&mut parsed, spawns);
    }
    Ok(parsed)
}

/// Parses the embedded message, which may be a JSON text. If it is unreadable, `meta` is used
/// instead.
fn message(payload: &Value<'_>) -> ParsedEvent {
    let inside =
        payload.as_str().and_then(|text| json::parse(text.as_bytes(), &Limits::default()).ok());
    let parsed = match inside.as_ref().unwrap_or(payload).as_object() {
        Some(message) => lua::parse(message),
        None => Err(ArtifactError::new("invalid_payload", "the payload is not an object")),
    };
    parsed.unwrap_or_else(|wrong| {
        let mut parsed = ParsedEvent::default();
        parsed.note(format!("{}: {}; meta is used", wrong.reason, wrong.message));
        parsed
    })
}
