//! `stats_ready`: the message of the script, a webhook body whose embed says it all in texts.

use admit_core::json::{self, Limits, Object, Value};

use super::draft::{Draft, Parsed, Unreadable, text};
use super::named::plain;
use super::value::{counted, end_reason, int_text, leading, side, stopwatch};

/// What the content of the message must be.
const CONTENT: &str = "STATS_READY";
/// Longest guid.
pub(super) const GUID_MAX: usize = 32;
/// Most players of one list.
const ROWS_MAX: usize = 1024;

/// The fields of the embed, by their names in lower case. The first of repeated ones counts.
struct Embed<'a> {
    fields: Vec<(String, &'a str)>,
    footer: Option<&'a str>,
}

impl<'a> Embed<'a> {
    fn get(&self, names: &[&str]) -> Option<&'a str> {
        let found = |name: &&str| {
            let mut fields = self.fields.iter();
            fields.find(|(field, _)| field == name).map(|(_, value)| value.trim())
        };
        names.iter().find_map(found).filter(|value| !value.is_empty())
    }

    fn int(&self, names: &[&str]) -> Option<i64> {
        self.get(names).and_then(leading)
    }
}

/// Reads the webhook body.
pub(super) fn parse(body: &Object<'_>) -> Parsed {
    let content = body.get("content").and_then(Value::as_str).unwrap_or_default();
    if content.trim() != CONTENT {
        return Err(Unreadable::new("not_stats_ready", format!("content is not {CONTENT}")));
    }
    let embed = embed(body)?;
    let mut draft = Draft { match_id: text(body, "match_id"), ..Draft::default() };
    draft.tell("webhook_id", text(body, "webhook_id"));
    read(&mut draft, &embed)?;
    Ok(draft)
}

fn embed<'a>(body: &'a Object<'_>) -> Result<Embed<'a>, Unreadable> {
    let embeds = body.get("embeds").and_then(Value::as_array).unwrap_or_default();
    let Some(first) = embeds.first().and_then(Value::as_object) else {
        return Err(Unreadable::new("missing_embed", "the message has no embed"));
    };
    let listed = first.get("fields").and_then(Value::as_array).unwrap_or_default();
    let field = |field: &'a Value<'_>| {
        let name = field.get("name")?.as_str()?.trim().to_lowercase();
        Some((name, field.get("value")?.as_str()?))
    };
    let footer = first.get("footer").and_then(|footer| footer.get("text")).and_then(Value::as_str);
    Ok(Embed { fields: listed.iter().filter_map(field).collect(), footer })
}

fn read(draft: &mut Draft, embed: &Embed<'_>) -> Result<(), Unreadable> {
    draft.map = embed.get(&["map"]).map(str::to_owned);
    if let Some(number) = embed.get(&["round"]) {
        let invalid = || Unreadable::new("invalid_round", format!("round {number:?} is no number"));
        draft.number = Some(int_text(number).ok_or_else(invalid)?);
    }
    draft.start = embed.int(&["lua_roundstart", "start unix"]);
    draft.end = embed.int(&["lua_roundend", "end unix"]);
    for (name, label) in [("winner_team", "winner"), ("defender_team", "defender")] {
        draft.tell(name, embed.get(&[label]).map(|told| side(&told.into())));
    }
    let reason = embed.get(&["lua_endreason", "end reason"]).map(|told| end_reason(&told.into()));
    draft.tell("end_reason", reason);
    let duration = embed.int(&["lua_playtime", "duration"]);
    let limit = embed.int(&["lua_timelimit", "time limit"]);
    draft.tell("actual_duration_seconds", duration);
    draft.tell("time_limit_minutes", limit);
    let (count, seconds) = embed.get(&["lua_pauses", "pauses"]).map(counted).unwrap_or_default();
    draft.tell("pause_count", count);
    draft.tell("total_pause_seconds", seconds);
    draft.tell("lua_warmup_seconds", embed.int(&["lua_warmup"]));
    draft.tell("lua_warmup_start_unix", embed.int(&["lua_warmupstart"]));
    let surrendered = embed.get(&["lua_surrenderteam"]).map(|told| side(&told.into()));
    draft.tell("surrender_team", surrendered);
    for (name, label) in [
        ("surrender_caller_guid", "lua_surrendercaller"),
        ("surrender_caller_name", "lua_surrendercallername"),
        ("lua_spawn_summary", "lua_spawnsummary"),
    ] {
        draft.tell(name, embed.get(&[label]).map(str::to_owned));
    }
    draft.tell("axis_score", embed.int(&["lua_axisscore"]));
    draft.tell("allies_score", embed.int(&["lua_alliesscore"]));
    draft.tell("lua_version", embed.footer.and_then(version));
    for (name, label) in [
        ("axis_players", "axis_json"),
        ("allies_players", "allies_json"),
        ("lua_pause_events", "lua_pauses_json"),
    ] {
        let Some(told) = embed.get(&[label]) else { continue };
        match list(told) {
            Some(list) => draft.tell(name, list),
            None => draft.note(format!("{label} is no list, left out")),
        }
    }
    let spawns = ["lua_spawnstats_json", "lua_spawn_stats_json", "spawn_stats"];
    if let Some(told) = embed.get(&spawns) {
        spawn_stats(draft, &Value::from(told.to_owned()));
    }
    if let (Some(duration), Some(limit)) = (duration, limit) {
        let number = draft.number.unwrap_or_default();
        let limit = limit.saturating_mul(60);
        draft.tell_stopwatch(stopwatch(reason.unwrap_or("NORMAL"), duration, limit, number));
    }
    Ok(())
}

/// The list that a text is, if it is JSON.
fn list(told: &str) -> Option<Value<'static>> {
    let value = json::parse(told.as_bytes(), &Limits::default()).ok()?;
    value.as_array()?;
    Some(value.into_owned())
}

/// `1.6.0` out of `… v1.6.0`.
fn version(footer: &str) -> Option<String> {
    let is_version = |text: &&str| {
        let parts: Vec<&str> = text.split('.').collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        parts.len() == 3 && parts.iter().all(is_number)
    };
    let cut = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].trim_end_matches('.').to_owned()
    };
    footer.split('v').skip(1).map(cut).find(|text| is_version(&text.as_str()))
}

/// Adds the rows of a list of spawns, which may be a text. Rows without a guid are left out.
pub(super) fn spawn_stats(draft: &mut Draft, told: &Value<'_>) {
    let parsed = told.as_str().map(list);
    let rows = match (&parsed, told) {
        (Some(Some(list)), _) => list.as_array(),
        (Some(None), _) => None,
        (None, list) => list.as_array(),
    };
    let Some(rows) = rows else {
        draft.note("spawn_stats is no list, left out");
        return;
    };
    let mut kept: Vec<Object<'static>> = Vec::new();
    for (number, row) in rows.iter().take(ROWS_MAX).enumerate() {
        let guid = row.as_object().and_then(|row| text(row, "guid"));
        let (Some(row), Some(guid)) = (row.as_object(), guid) else {
            draft.note(format!("spawn_stats row {} has no guid, left out", number + 1));
            continue;
        };
        let guid: String = guid.chars().take(GUID_MAX).collect();
        let mut clean = Object::from_iter([("guid", Value::from(guid))]);
        let name = row.get("name").and_then(Value::as_str);
        if let Some(raw) = name {
            clean.extend([("name", Value::from(plain(raw))), ("raw_name", raw.to_owned().into())]);
        }
        let is_other = |member: &str| {
            member != "guid" && (name.is_none() || !["name", "raw_name"].contains(&member))
        };
        let others = row.iter().filter(|(member, _)| is_other(member));
        clean.extend(others.map(|(name, value)| (name.to_owned(), value.clone().into_owned())));
        kept.push(clean);
    }
    if rows.len() > ROWS_MAX {
        draft.note(format!("spawn_stats has more than {ROWS_MAX} rows, the rest is left out"));
    }
    draft.tell("spawn_stats", kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_stands_in_the_footer() {
        assert_eq!(version("Slomix Stats Webhook v1.6.0").as_deref(), Some("1.6.0"));
        assert_eq!(version("v12.0.3-beta").as_deref(), Some("12.0.3"));
        for none in ["", "v1.6", "version", "1.6.0"] {
            assert_eq!(version(none), None, "{none}");
        }
    }

    #[test]
    fn a_row_without_a_guid_is_left_out_and_told() {
        let mut draft = Draft::default();
        let long = "A".repeat(40);
        let told = format!(r#"[{{"guid":"{long}","spawns":3}},{{"guid":" ","spawns":1}},7]"#);
        spawn_stats(&mut draft, &Value::from(told));
        let rows = draft.fields.get("spawn_stats").and_then(Value::as_array).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].get("guid").and_then(Value::as_str), Some("A".repeat(32).as_str()));
        assert_eq!(draft.notes.len(), 2);
    }
}
