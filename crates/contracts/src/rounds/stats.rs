//! `filename_trigger`: a stats file, or only its name.
//!
//! The file name identifies the round; the header's own round number is always 1 and is ignored.

use admit_core::hash::sha256_hex;
use admit_core::json::{Object, Value};

use super::coerce::{clock_seconds, int_text, side, stopwatch};
use super::filenames;
use super::game_names::{weapon as weapon_name, without_colours};
use super::parsed_event::{ArtifactError, ParseResult, ParsedEvent, text};

/// Minimum number of header fields.
const HEADER_MIN: usize = 8;
/// Integers reported per weapon.
const WEAPON: [&str; 5] = ["hits", "shots", "kills", "deaths", "headshots"];
/// Maximum number of weapons: the bits of a mask.
const WEAPONS_MAX: u32 = 64;

/// Parses `{"filename", "content"?}`, or a message that names a file in backticks.
pub(super) fn parse(body: &Object<'_>) -> ParseResult {
    let message = || body.get("content").and_then(Value::as_str);
    let (filename, content) = match text(body, "filename") {
        Some(filename) => (filename, body.get("content")),
        None => match message().and_then(filenames::in_backticks) {
            Some(filename) => (filename.to_owned(), None),
            None => return Err(ArtifactError::new("missing_filename", "the file name is missing")),
        },
    };
    let mut parsed = from_filename(&filename)?;
    match content {
        Some(Value::String(content)) => file(&mut parsed, content)?,
        None | Some(Value::Null) => {}
        Some(other) => {
            let message = format!("content must be a text, is {}", other.kind());
            return Err(ArtifactError::new("invalid_content", message));
        }
    }
    Ok(parsed)
}

fn from_filename(filename: &str) -> ParseResult {
    let name = filenames::stats(filename)?;
    Ok(ParsedEvent {
        map: Some(name.map),
        number: Some(name.number),
        number_from: Some("filename"),
        date: Some(name.date),
        time: Some(name.time),
        filename: Some(filename.to_owned()),
        ..ParsedEvent::default()
    })
}

/// Parses the file content.
fn file(parsed: &mut ParsedEvent, content: &str) -> Result<(), ArtifactError> {
    let (header, rest) = content.split_once('\n').unwrap_or((content, ""));
    let lines = rest.lines().filter(|line| !line.trim().is_empty());
    let header: Vec<&str> = header.trim_end_matches('\r').split('\\').collect();
    if header.len() < HEADER_MIN {
        let message = format!("the header has {} fields, not {HEADER_MIN}", header.len());
        return Err(ArtifactError::new("invalid_header", message));
    }
    if lines.clone().next().is_none() {
        return Err(ArtifactError::new("insufficient_lines", "nothing follows the header"));
    }
    head(parsed, &header);
    let mut players = Vec::new();
    for (number, line) in lines.enumerate() {
        match player(line) {
            Some(player) => players.push(player),
            None => parsed.note(format!("line {} describes no player, skipped", number + 2)),
        }
    }
    if !players.is_empty() {
        parsed.payload = Some(sha256_hex(rest.as_bytes()));
    }
    parsed.add_field("player_count", players.len());
    parsed.add_field("players", players);
    Ok(())
}

fn head(parsed: &mut ParsedEvent, header: &[&str]) {
    let is_same_map = parsed.map.as_deref().is_some_and(|map| map.eq_ignore_ascii_case(header[1]));
    if !is_same_map {
        parsed.note(format!("the header names the map {:?}; the file name is used", header[1]));
    }
    let (defender, winner) = (side(&header[4].into()), side(&header[5].into()));
    parsed.add_field("server_name", header[0].to_owned());
    parsed.add_field("config_name", header[2].to_owned());
    parsed.add_field("defender_team", defender);
    parsed.add_field("winner_team", winner);
    let confidence = match (defender, winner) {
        (1 | 2, 1 | 2) => "verified_header",
        (0, 0) => "missing",
        _ => "ambiguous",
    };
    parsed.add_field("score_confidence", confidence);
    parsed.add_field("time_limit", header[6].to_owned());
    parsed.add_field("actual_time", header[7].to_owned());
    let duration = header.get(8).and_then(|text| int_text(text));
    parsed.add_field_if_missing("actual_duration_seconds", duration);
    // The file has no end reason: it is written only for rounds that were played to the end.
    let duration = duration.or_else(|| clock_seconds(header[7])).filter(|seconds| *seconds > 0);
    let limit = clock_seconds(header[6]).filter(|seconds| *seconds > 0);
    if let (Some(duration), Some(limit), Some(number)) = (duration, limit, parsed.number) {
        parsed.add_stopwatch(stopwatch("NORMAL", duration, limit, number));
    }
}

/// Parses `guid\name\rounds\team\mask and weapons<tab>more`.
fn player(line: &str) -> Option<Object<'static>> {
    let (fields, more) = line.split_once('\t').unwrap_or((line, ""));
    let mut parts = fields.splitn(5, '\\');
    let guid = parts.next().map(str::trim).filter(|guid| !guid.is_empty())?;
    let name = parts.next()?;
    let rounds = int_text(parts.next()?)?;
    let team = int_text(parts.next()?)?;
    let mut numbers = parts.next()?.split_whitespace().map(int_text);
    let mask = u64::try_from(numbers.next()??).ok()?;
    let mut weapons = Vec::new();
    let mut sums = [0_i64; WEAPON.len()];
    for bit in (0..WEAPONS_MAX).filter(|bit| mask >> bit & 1 == 1) {
        let mut weapon =
            Object::from_iter([("weapon", Value::from(bit)), ("name", weapon_name(bit).into())]);
        for (name, sum) in WEAPON.iter().zip(&mut sums) {
            let number = numbers.next()??;
            *sum = sum.saturating_add(number);
            weapon.push(*name, number);
        }
        weapons.push(weapon);
    }
    let extended: Vec<Value<'static>> = more
        .split('\t')
        .flat_map(str::split_whitespace)
        .map(|text| match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => Value::from(number),
            (_, Ok(number)) if number.is_finite() => Value::from(number),
            _ => Value::from(text.to_owned()),
        })
        .collect();
    Some(Object::from_iter([
        ("guid", Value::from(guid.to_owned())),
        ("name", without_colours(name).into()),
        ("raw_name", name.to_owned().into()),
        ("rounds", rounds.into()),
        ("team", team.into()),
        ("kills", sums[2].into()),
        ("deaths", sums[3].into()),
        ("headshots", sums[4].into()),
        ("weapons", weapons.into()),
        ("extended", extended.into()),
    ]))
}
