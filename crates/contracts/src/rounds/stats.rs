//! `filename_trigger`: a stats file, or only its name.
//!
//! The name says which round it is; the header's own round number is always 1 and is not believed.

use admit_core::hash::sha256_hex;
use admit_core::json::{Object, Value};

use super::draft::{Draft, Parsed, Unreadable, text};
use super::name;
use super::named::{plain, weapon as weapon_name};
use super::value::{clock_seconds, int_text, side, stopwatch};

/// Fields of a header.
const HEADER_MIN: usize = 8;
/// Integers that are told of each weapon.
const WEAPON: [&str; 5] = ["hits", "shots", "kills", "deaths", "headshots"];
/// Most weapons, as many as a mask has bits.
const WEAPONS_MAX: u32 = 64;

/// Reads `{"filename", "content"?}`, or a message that names a file in backticks.
pub(super) fn parse(body: &Object<'_>) -> Parsed {
    let message = || body.get("content").and_then(Value::as_str);
    let (filename, content) = match text(body, "filename") {
        Some(filename) => (filename, body.get("content")),
        None => match message().and_then(name::in_backticks) {
            Some(filename) => (filename.to_owned(), None),
            None => return Err(Unreadable::new("missing_filename", "nothing names a file")),
        },
    };
    let mut draft = named(&filename)?;
    match content {
        Some(Value::String(content)) => file(&mut draft, content)?,
        None | Some(Value::Null) => {}
        Some(other) => {
            let message = format!("content must be a text, is {}", other.kind());
            return Err(Unreadable::new("invalid_content", message));
        }
    }
    Ok(draft)
}

fn named(filename: &str) -> Parsed {
    let name = name::stats(filename)?;
    Ok(Draft {
        map: Some(name.map),
        number: Some(name.number),
        number_from: Some("filename"),
        date: Some(name.date),
        time: Some(name.time),
        filename: Some(filename.to_owned()),
        ..Draft::default()
    })
}

/// Reads the file itself.
fn file(draft: &mut Draft, content: &str) -> Result<(), Unreadable> {
    let (header, rest) = content.split_once('\n').unwrap_or((content, ""));
    let lines = rest.lines().filter(|line| !line.trim().is_empty());
    let header: Vec<&str> = header.trim_end_matches('\r').split('\\').collect();
    if header.len() < HEADER_MIN {
        let message = format!("the header has {} fields, not {HEADER_MIN}", header.len());
        return Err(Unreadable::new("invalid_header", message));
    }
    if lines.clone().next().is_none() {
        return Err(Unreadable::new("insufficient_lines", "nothing follows the header"));
    }
    head(draft, &header);
    let mut players = Vec::new();
    for (number, line) in lines.enumerate() {
        match player(line) {
            Some(player) => players.push(player),
            None => draft.note(format!("line {} tells of no player, left out", number + 2)),
        }
    }
    if !players.is_empty() {
        draft.payload = Some(sha256_hex(rest.as_bytes()));
    }
    draft.tell("player_count", players.len());
    draft.tell("players", players);
    Ok(())
}

fn head(draft: &mut Draft, header: &[&str]) {
    let is_same_map = draft.map.as_deref().is_some_and(|map| map.eq_ignore_ascii_case(header[1]));
    if !is_same_map {
        draft.note(format!("the header names the map {:?}; the file name counts", header[1]));
    }
    let (defender, winner) = (side(&header[4].into()), side(&header[5].into()));
    draft.tell("server_name", header[0].to_owned());
    draft.tell("config_name", header[2].to_owned());
    draft.tell("defender_team", defender);
    draft.tell("winner_team", winner);
    let confidence = match (defender, winner) {
        (1 | 2, 1 | 2) => "verified_header",
        (0, 0) => "missing",
        _ => "ambiguous",
    };
    draft.tell("score_confidence", confidence);
    draft.tell("time_limit", header[6].to_owned());
    draft.tell("actual_time", header[7].to_owned());
    let duration = header.get(8).and_then(|text| int_text(text));
    draft.tell_if_missing("actual_duration_seconds", duration);
    // The file has no reason for the end: it is written for rounds that were played to theirs.
    let duration = duration.or_else(|| clock_seconds(header[7])).filter(|seconds| *seconds > 0);
    let limit = clock_seconds(header[6]).filter(|seconds| *seconds > 0);
    if let (Some(duration), Some(limit), Some(number)) = (duration, limit, draft.number) {
        draft.tell_stopwatch(stopwatch("NORMAL", duration, limit, number));
    }
}

/// Reads `guid\name\rounds\team\mask and weapons<tab>more`.
fn player(line: &str) -> Option<Object<'static>> {
    let (told, more) = line.split_once('\t').unwrap_or((line, ""));
    let mut parts = told.splitn(5, '\\');
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
        ("name", plain(name).into()),
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
