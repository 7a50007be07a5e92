//! `gametime_fallback`: the file that the script leaves behind, its message with more beside it.

use admit_core::json::{self, Limits, Object, Value};

use super::draft::{Draft, Parsed, Unreadable, text};
use super::value::int;
use super::{lua, name};

/// Reads `{"meta", "payload"}`, or the same as the content of a file.
pub(super) fn parse(body: &Object<'_>) -> Parsed {
    if body.contains_key("meta") || body.contains_key("payload") {
        return document(body);
    }
    let Some(filename) = text(body, "filename") else {
        return Err(Unreadable::new(
            "missing_meta",
            "there is neither meta, nor payload, nor a file",
        ));
    };
    let named = name::gametime(&filename);
    let mut draft = match content(body) {
        Ok(document) => document,
        // The name of the file says which round it was; that is worth keeping.
        Err(wrong) => match &named {
            Ok(_) => {
                let mut draft = Draft::default();
                draft.note(format!("{}: {}", wrong.reason, wrong.message));
                draft
            }
            Err(_) => return Err(wrong),
        },
    };
    match named {
        Ok(named) => {
            if draft.number.is_none() {
                draft.number_from = Some("filename");
            }
            draft.map = draft.map.or(Some(named.map));
            draft.number = draft.number.or(Some(named.number));
            draft.end = draft.end.filter(|end| *end > 0).or(Some(named.end));
        }
        Err(wrong) => draft.note(format!("{}; what is inside counts", wrong.message)),
    }
    draft.filename = Some(filename);
    Ok(draft)
}

fn content(body: &Object<'_>) -> Parsed {
    match body.get("content") {
        Some(Value::Object(inner)) => document(inner),
        Some(Value::String(inner)) => {
            let value = json::parse(inner.as_bytes(), &Limits::default());
            match value {
                Ok(Value::Object(inner)) => document(&inner),
                Ok(other) => {
                    let message = format!("the file must be an object, is {}", other.kind());
                    Err(Unreadable::new("invalid_content", message))
                }
                Err(error) => Err(Unreadable::new("invalid_json", error.to_string())),
            }
        }
        _ => Err(Unreadable::new("invalid_content", "the file has no content")),
    }
}

/// Reads the document itself. What the message says counts before what `meta` says.
fn document(document: &Object<'_>) -> Parsed {
    let mut draft = match document.get("payload") {
        None | Some(Value::Null) => {
            let mut draft = Draft::default();
            draft.note("there is no payload; meta counts");
            draft
        }
        Some(payload) => message(payload),
    };
    let empty = Object::new();
    let meta = document.get("meta").and_then(Value::as_object).unwrap_or(&empty);
    let number = |name: &str| meta.get(name).and_then(int);
    draft.map = draft.map.or_else(|| text(meta, "map"));
    draft.number = draft.number.or_else(|| number("round"));
    draft.start = draft.start.filter(|s| *s > 0).or_else(|| number("round_start_unix"));
    draft.end = draft.end.filter(|end| *end > 0).or_else(|| number("round_end_unix"));
    for (field, member) in [
        ("actual_duration_seconds", "actual_duration_seconds"),
        ("lua_warmup_seconds", "warmup_seconds"),
        ("total_pause_seconds", "pause_seconds"),
        ("pause_count", "pause_count"),
    ] {
        draft.tell_if_missing(field, number(member));
    }
    draft.tell("server_ip", text(meta, "server_ip"));
    draft.tell("server_port", number("server_port"));
    if let Some(spawns) = meta.get("spawn_stats").filter(|spawns| !spawns.is_null()) {
        lua::spawn_stats(&mut draft, spawns);
    }
    Ok(draft)
}

/// The message inside, which may be a text. One that cannot be read leaves `meta` to count.
fn message(payload: &Value<'_>) -> Draft {
    let inside =
        payload.as_str().and_then(|told| json::parse(told.as_bytes(), &Limits::default()).ok());
    let parsed = match inside.as_ref().unwrap_or(payload).as_object() {
        Some(message) => lua::parse(message),
        None => Err(Unreadable::new("invalid_payload", "the payload is no object")),
    };
    parsed.unwrap_or_else(|wrong| {
        let mut draft = Draft::default();
        draft.note(format!("{}: {}; meta counts", wrong.reason, wrong.message));
        draft
    })
}
