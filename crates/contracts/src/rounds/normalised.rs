//! Normalised `round_event`, which any source may send instead of its artifact, and the body of
//! `lua_spawn_stats`.

use admit_core::json::{Object, Value};

use super::coerce::{end_reason, int, side};
use super::parsed_event::{ArtifactError, ParseResult, ParsedEvent, text};
use super::{filenames, lua};

/// Members that `details` must not contain: they identify the round and belong to the event itself.
const NAMES: [&str; 4] = ["map_name", "round_number", "round_id", "captured_at"];

/// Whether a body is a normalised event rather than an artifact.
pub(super) fn is_normalised(body: &Object<'_>) -> bool {
    ["map_name", "round_number", "source"].iter().any(|name| body.contains_key(name))
}

/// Parses a `round_event` posted as `source`.
pub(super) fn parse(source: &str, body: &Object<'_>) -> ParseResult {
    if let Some(claimed) = text(body, "source").filter(|claimed| claimed != source) {
        let message = format!("the event names the source {claimed}, and was posted as {source}");
        return Err(ArtifactError::new("source_mismatch", message));
    }
    let mut parsed = names(body)?;
    parsed.match_id = text(body, "match_id");
    parsed.filename = text(body, "filename");
    parsed.claims = text(body, "round_id");
    (parsed.date, parsed.time) = (text(body, "round_date"), text(body, "round_time"));
    if parsed.date.is_none()
        && parsed.time.is_none()
        && let Some(named) = parsed.filename.as_deref().and_then(|file| filenames::stats(file).ok())
    {
        (parsed.date, parsed.time) = (Some(named.date), Some(named.time));
    }
    parsed.add_field("webhook_id", text(body, "webhook_id"));
    match body.get("details") {
        None | Some(Value::Null) => {}
        Some(Value::Object(details)) => add_details(&mut parsed, details),
        Some(other) => parsed.note(format!("details must be an object, is {}", other.kind())),
    }
    // The session date of a tracker's rows is that of its file, independent of the time of the
    // round.
    if !parsed.fields.contains_key("session_date")
        && let Some(named) =
            parsed.filename.as_deref().and_then(|file| filenames::proximity(file).ok())
    {
        parsed.add_field("session_date", named.date);
    }
    Ok(parsed)
}

/// Parses the body of `lua_spawn_stats`. The map may be missing: the match id determines it.
pub(super) fn spawns(body: &Object<'_>) -> ParseResult {
    let mut parsed = names(body)?;
    parsed.match_id = text(body, "match_id");
    let details = body.get("details").and_then(Value::as_object);
    let rows = body.get("spawn_stats").or_else(|| details?.get("spawn_stats"));
    match rows {
        Some(rows) => lua::spawn_stats(&mut parsed, rows),
        None => return Err(ArtifactError::new("missing_spawn_stats", "there is no spawn_stats")),
    }
    Ok(parsed)
}

/// Parses the members that identify the round.
fn names(body: &Object<'_>) -> ParseResult {
    let map = match body.get("map_name") {
        Some(Value::String(map)) => Some(map.to_string()),
        None | Some(Value::Null) => None,
        Some(other) => {
            let message = format!("map_name must be a text, is {}", other.kind());
            return Err(ArtifactError::new("invalid_map", message));
        }
    };
    let number = match body.get("round_number") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let invalid = || ArtifactError::new("invalid_round", "round_number is not a number");
            Some(int(value).ok_or_else(invalid)?)
        }
    };
    let mut parsed = ParsedEvent { map, number, ..ParsedEvent::default() };
    parsed.start = time(&mut parsed, body, "round_start_unix");
    parsed.end = time(&mut parsed, body, "round_end_unix");
    Ok(parsed)
}

fn time(parsed: &mut ParsedEvent, body: &Object<'_>, name: &str) -> Option<i64> {
    let value = body.get(name).filter(|value| !value.is_null())?;
    let time = int(value);
    if time.is_none() {
        parsed.note(format!("{name} is not a number, skipped"));
    }
    time
}

/// Copies the members of `details` as fields under their own names.
fn add_details(parsed: &mut ParsedEvent, details: &Object<'_>) {
    for (name, value) in details {
        match name {
            _ if NAMES.contains(&name) || value.is_null() => {}
            "round_start_unix" => parsed.start = parsed.start.or_else(|| int(value)),
            "round_end_unix" => parsed.end = parsed.end.or_else(|| int(value)),
            "winner_team" | "defender_team" | "surrender_team" => {
                parsed.add_field(name.to_owned(), side(value));
            }
            "end_reason" => parsed.add_field("end_reason", end_reason(value)),
            "spawn_stats" => lua::spawn_stats(parsed, value),
            _ => parsed.add_field(name.to_owned(), value.clone().into_owned()),
        }
    }
}
