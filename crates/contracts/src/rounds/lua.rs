//! `stats_ready`: webhook message of the script, whose embed carries all data as texts.

use admit_core::json::{self, Limits, Object, Value};

use super::coerce::{count_and_seconds, end_reason, int_text, leading, side, stopwatch};
use super::game_names::without_colours;
use super::parsed_event::{ArtifactError, ParseResult, ParsedEvent, text};

/// Required content of the message.
const CONTENT: &str = "STATS_READY";
/// Longest guid.
pub(super) const GUID_MAX: usize = 32;
/// Maximum number of players in a list.
const ROWS_MAX: usize = 1024;

/// Fields of the embed by lower-case name. The first of repeated ones wins.
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

/// Parses the webhook body.
pub(super) fn parse(body: &Object<'_>) -> ParseResult {
    let content = body.get("content").and_then(Value::as_str).unwrap_or_default();
    if content.trim() != CONTENT {
        return Err(ArtifactError::new("not_stats_ready", format!("content is not {CONTENT}")));
    }
    let embed = embed(body)?;
    let mut parsed = ParsedEvent { match_id: text(body, "match_id"), ..ParsedEvent::default() };
    parsed.add_field("webhook_id", text(body, "webhook_id"));
    read(&mut parsed, &embed)?;
    Ok(parsed)
}

fn embed<'a>(body: &'a Object<'_>) -> Result<Embed<'a>, ArtifactError> {
    let embeds = body.get("embeds").and_then(Value::as_array).unwrap_or_default();
    let Some(first) = embeds.first().and_then(Value::as_object) else {
        return Err(ArtifactError::new("missing_embed", "the message has no embed"));
    };
    let listed = first.get("fields").and_then(Value::as_array).unwrap_or_default();
    let field = |field: &'a Value<'_>| {
        let name = field.get("name")?.as_str()?.trim().to_lowercase();
        Some((name, field.get("value")?.as_str()?))
    };
    let footer = first.get("footer").and_then(|footer| footer.get("text")).and_then(Value::as_str);
    Ok(Embed { fields: listed.iter().filter_map(field).collect(), footer })
}

fn read(parsed: &mut ParsedEvent, embed: &Embed<'_>) -> Result<(), ArtifactError> {
    parsed.map = embed.get(&["map"]).map(str::to_owned);
    if let Some(number) = embed.get(&["round"]) {
        let invalid =
            || ArtifactError::new("invalid_round", format!("round {number:?} is not a number"));
        parsed.number = Some(int_text(number).ok_or_else(invalid)?);
    }
    parsed.start = embed.int(&["lua_roundstart", "start unix"]);
    parsed.end = embed.int(&["lua_roundend", "end unix"]);
    for (name, label) in [("winner_team", "winner"), ("defender_team", "defender")] {
        parsed.add_field(name, embed.get(&[label]).map(|text| side(&text.into())));
    }
    let reason = embed.get(&["lua_endreason", "end reason"]).map(|text| end_reason(&text.into()));
    parsed.add_field("end_reason", reason);
    let duration = embed.int(&["lua_playtime", "duration"]);
    let limit = embed.int(&["lua_timelimit", "time limit"]);
    parsed.add_field("actual_duration_seconds", duration);
    parsed.add_field("time_limit_minutes", limit);
    let (count, seconds) =
        embed.get(&["lua_pauses", "pauses"]).map(count_and_seconds).unwrap_or_default();
    parsed.add_field("pause_count", count);
    parsed.add_field("total_pause_seconds", seconds);
    parsed.add_field("lua_warmup_seconds", embed.int(&["lua_warmup"]));
    parsed.add_field("lua_warmup_start_unix", embed.int(&["lua_warmupstart"]));
    let surrendered = embed.get(&["lua_surrenderteam"]).map(|text| side(&text.into()));
    parsed.add_field("surrender_team", surrendered);
    for (name, label) in [
        ("surrender_caller_guid", "lua_surrendercaller"),
        ("surrender_caller_name", "lua_surrendercallername"),
        ("lua_spawn_summary", "lua_spawnsummary"),
    ] {
        parsed.add_field(name, embed.get(&[label]).map(str::to_owned));
    }
    parsed.add_field("axis_score", embed.int(&["lua_axisscore"]));
    parsed.add_field("allies_score", embed.int(&["lua_alliesscore"]));
    parsed.add_field("lua_version", embed.footer.and_then(version));
    for (name, label) in [
        ("axis_players", "axis_json"),
        ("allies_players", "allies_json"),
        ("lua_pause_events", "lua_pauses_json"),
    ] {
        let Some(text) = embed.get(&[label]) else { continue };
        match list(text) {
            Some(list) => parsed.add_field(name, list),
            None => parsed.note(format!("{label} is not a list, skipped")),
        }
    }
    let spawns = ["lua_spawnstats_json", "lua_spawn_stats_json", "spawn_stats"];
    if let Some(text) = embed.get(&spawns) {
        spawn_stats(parsed, &Value::from(text.to_owned()));
    }
    if let (Some(duration), Some(limit)) = (duration, limit) {
        let number = parsed.number.unwrap_or_default();
        let limit = limit.saturating_mul(60);
        parsed.add_stopwatch(stopwatch(reason.unwrap_or("NORMAL"), duration, limit, number));
    }
    Ok(())
}

/// Parses a list encoded as JSON text.
fn list(text: &str) -> Option<Value<'static>> {
    let value = json::parse(text.as_bytes(), &Limits::default()).ok()?;
    value.as_array()?;
    Some(value.into_owned())
}

/// Extracts `1.6.0` from `… v1.6.0`.
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

/// Adds the rows of a list of spawns, which may be a JSON text. Rows without a guid are skipped.
pub(super) fn spawn_stats(parsed: &mut ParsedEvent, value: &Value<'_>) {
    let list = value.as_str().map(list);
    let rows = match (&list, value) {
        (Some(Some(list)), _) => list.as_array(),
        (Some(None), _) => None,
        (None, list) => list.as_array(),
    };
    let Some(rows) = rows else {
        parsed.note("spawn_stats is not a list, skipped");
        return;
    };
    let mut clean_rows: Vec<Object<'static>> = Vec::new();
    for (number, row) in rows.iter().take(ROWS_MAX).enumerate() {
        let guid = row.as_object().and_then(|row| text(row, "guid"));
        let (Some(row), Some(guid)) = (row.as_object(), guid) else {
            parsed.note(format!("spawn_stats row {} has no guid, skipped", number + 1));
            continue;
        };
        let guid: String = guid.chars().take(GUID_MAX).collect();
        let mut clean = Object::from_iter([("guid", Value::from(guid))]);
        let name = row.get("name").and_then(Value::as_str);
        if let Some(raw) = name {
            clean.extend([
                ("name", Value::from(without_colours(raw))),
                ("raw_name", raw.to_owned().into()),
            ]);
        }
        let is_other = |member: &str| {
            member != "guid" && (name.is_none() || !["name", "raw_name"].contains(&member))
        };
        let others = row.iter().filter(|(member, _)| is_other(member));
        clean.extend(others.map(|(name, value)| (name.to_owned(), value.clone().into_owned())));
        clean_rows.push(clean);
    }
    if rows.len() > ROWS_MAX {
        parsed.note(format!("spawn_stats has more than {ROWS_MAX} rows, the rest is skipped"));
    }
    parsed.add_field("spawn_stats", clean_rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_footer() {
        assert_eq!(version("Slomix Stats Webhook v1.6.0").as_deref(), Some("1.6.0"));
        assert_eq!(version("v12.0.3-beta").as_deref(), Some("12.0.3"));
        for none in ["", "v1.6", "version", "1.6.0"] {
            assert_eq!(version(none), None, "{none}");
        }
    }

    #[test]
    fn a_row_without_a_guid_is_skipped_with_a_note() {
        let mut parsed = ParsedEvent::default();
        let long = "A".repeat(40);
        let text = format!(r#"[{{"guid":"{long}","spawns":3}},{{"guid":" ","spawns":1}},7]"#);
        spawn_stats(&mut parsed, &Value::from(text));
        let rows = parsed.fields.get("spawn_stats").and_then(Value::as_array).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].get("guid").and_then(Value::as_str), Some("A".repeat(32).as_str()));
        assert_eq!(parsed.notes.len(), 2);
    }
}
