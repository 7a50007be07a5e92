//! The normalised `round_event`, which any source may send instead of its artifact, and the body of
//! `lua_spawn_stats`.

use admit_core::json::{Object, Value};

use super::draft::{Draft, Parsed, Unreadable, text};
use super::value::{end_reason, int, side};
use super::{lua, name};

/// What `details` cannot say: it names the round, and the event itself does.
const NAMES: [&str; 4] = ["map_name", "round_number", "round_id", "captured_at"];

/// Whether a body is a normalised event and no artifact.
pub(super) fn is_normalised(body: &Object<'_>) -> bool {
    ["map_name", "round_number", "source"].iter().any(|name| body.contains_key(name))
}

/// Reads a `round_event` that was posted as `source`.
pub(super) fn parse(source: &str, body: &Object<'_>) -> Parsed {
    if let Some(told) = text(body, "source").filter(|told| told != source) {
        let message = format!("the event says it is from {told}, and was posted as {source}");
        return Err(Unreadable::new("source_mismatch", message));
    }
    let mut draft = names(body)?;
    draft.match_id = text(body, "match_id");
    draft.filename = text(body, "filename");
    draft.claims = text(body, "round_id");
    (draft.date, draft.time) = (text(body, "round_date"), text(body, "round_time"));
    if draft.date.is_none()
        && draft.time.is_none()
        && let Some(named) = draft.filename.as_deref().and_then(|file| name::stats(file).ok())
    {
        (draft.date, draft.time) = (Some(named.date), Some(named.time));
    }
    draft.tell("webhook_id", text(body, "webhook_id"));
    match body.get("details") {
        None | Some(Value::Null) => {}
        Some(Value::Object(details)) => tell(&mut draft, details),
        Some(other) => draft.note(format!("details must be an object, is {}", other.kind())),
    }
    // The day of a tracker's rows is that of its file, whenever the round was.
    if !draft.fields.contains_key("session_date")
        && let Some(named) = draft.filename.as_deref().and_then(|file| name::proximity(file).ok())
    {
        draft.tell("session_date", named.date);
    }
    Ok(draft)
}

/// Reads the body of `lua_spawn_stats`. The map may be missing: the match id leads to it.
pub(super) fn spawns(body: &Object<'_>) -> Parsed {
    let mut draft = names(body)?;
    draft.match_id = text(body, "match_id");
    let details = body.get("details").and_then(Value::as_object);
    let rows = body.get("spawn_stats").or_else(|| details?.get("spawn_stats"));
    match rows {
        Some(rows) => lua::spawn_stats(&mut draft, rows),
        None => return Err(Unreadable::new("missing_spawn_stats", "there is no spawn_stats")),
    }
    Ok(draft)
}

/// What names the round, in the event itself.
fn names(body: &Object<'_>) -> Parsed {
    let map = match body.get("map_name") {
        Some(Value::String(map)) => Some(map.to_string()),
        None | Some(Value::Null) => None,
        Some(other) => {
            let message = format!("map_name must be a text, is {}", other.kind());
            return Err(Unreadable::new("invalid_map", message));
        }
    };
    let number = match body.get("round_number") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let invalid = || Unreadable::new("invalid_round", "round_number is no number");
            Some(int(value).ok_or_else(invalid)?)
        }
    };
    let mut draft = Draft { map, number, ..Draft::default() };
    draft.start = time(&mut draft, body, "round_start_unix");
    draft.end = time(&mut draft, body, "round_end_unix");
    Ok(draft)
}

fn time(draft: &mut Draft, body: &Object<'_>, name: &str) -> Option<i64> {
    let value = body.get(name).filter(|value| !value.is_null())?;
    let time = int(value);
    if time.is_none() {
        draft.note(format!("{name} is no number, left out"));
    }
    time
}

/// The keys of `details` become fields under their own names.
fn tell(draft: &mut Draft, details: &Object<'_>) {
    for (name, value) in details {
        match name {
            _ if NAMES.contains(&name) || value.is_null() => {}
            "round_start_unix" => draft.start = draft.start.or_else(|| int(value)),
            "round_end_unix" => draft.end = draft.end.or_else(|| int(value)),
            "winner_team" | "defender_team" | "surrender_team" => {
                draft.tell(name.to_owned(), side(value));
            }
            "end_reason" => draft.tell("end_reason", end_reason(value)),
            "spawn_stats" => lua::spawn_stats(draft, value),
            _ => draft.tell(name.to_owned(), value.clone().into_owned()),
        }
    }
}
