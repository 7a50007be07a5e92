//! `proximity_file`: file of the proximity tracker, a header and sections of `;`-separated fields.
//!
//! Its round number is unreliable: the engine counts the second half as 0, the tracker writes 1, in
//! the header and in the file name. Another source corrects it during linking.

use admit_core::json::{Object, Value};

use super::coerce::int_text;
use super::filenames;
use super::game_names::without_colours;
use super::parsed_event::{ArtifactError, ParseResult, ParsedEvent, text};

/// Column of the player's name, which contains the game's colour codes.
const PLAYER_NAME: &str = "name";

/// Section: its name in the file, the field it becomes, and its columns.
struct Section {
    name: &'static str,
    field: &'static str,
    columns: &'static [&'static str],
    /// Column that older files lack.
    newer: Option<&'static str>,
    /// Whether the last column may contain the separator.
    is_open_ended: bool,
}

const SECTIONS: [Section; 5] = [
    Section {
        name: "ENGAGEMENTS",
        field: "engagements",
        columns: &[
            "id",
            "start_time",
            "end_time",
            "duration",
            "target_guid",
            "target_name",
            "target_team",
            "outcome",
            "total_damage",
            "killer_guid",
            "killer_name",
            "num_attackers",
            "is_crossfire",
            "crossfire_delay",
            "crossfire_participants",
            "start_x",
            "start_y",
            "start_z",
            "end_x",
            "end_y",
            "end_z",
            "distance_traveled",
            "positions",
            "attackers",
        ],
        newer: None,
        is_open_ended: true,
    },
    Section {
        name: "PLAYER_TRACKS",
        field: "player_tracks",
        columns: &[
            "guid",
            "name",
            "team",
            "class",
            "spawn_time",
            "death_time",
            "first_move_time",
            "death_type",
            "samples",
            "path",
        ],
        newer: Some("death_type"),
        is_open_ended: false,
    },
    Section {
        name: "KILL_HEATMAP",
        field: "kill_heatmap",
        columns: &["grid_x", "grid_y", "axis_kills", "allies_kills"],
        newer: None,
        is_open_ended: false,
    },
    Section {
        name: "MOVEMENT_HEATMAP",
        field: "movement_heatmap",
        columns: &["grid_x", "grid_y", "traversal", "combat", "escape"],
        newer: None,
        is_open_ended: false,
    },
    Section {
        name: "OBJECTIVE_FOCUS",
        field: "objective_focus",
        columns: &["guid", "name", "team", "objective", "avg_distance", "time_within_radius"],
        newer: None,
        is_open_ended: false,
    },
];

/// Parses `{"filename", "content"}`.
pub(super) fn parse(body: &Object<'_>) -> ParseResult {
    let filename = text(body, "filename")
        .ok_or_else(|| ArtifactError::new("missing_filename", "the file name is missing"))?;
    let Some(content) = body.get("content").and_then(Value::as_str) else {
        return Err(ArtifactError::new("invalid_content", "the file has no content"));
    };
    let mut parsed = ParsedEvent { filename: Some(filename.clone()), ..ParsedEvent::default() };
    let mut lines = content.lines().map(|line| line.trim_end_matches('\r'));
    header(&mut parsed, &mut lines.clone());
    match filenames::proximity(&filename) {
        Ok(named) => {
            parsed.map = parsed.map.or(Some(named.map));
            (parsed.number, parsed.number_from) = (Some(named.number), Some("filename"));
            parsed.add_field("session_date", named.date.clone());
            (parsed.date, parsed.time) = (Some(named.date), Some(named.time));
        }
        Err(wrong) if parsed.map.is_none() => return Err(wrong),
        Err(wrong) => {
            parsed.note(format!("{}; the header is used", wrong.message));
            if parsed.number.is_none() {
                (parsed.number, parsed.number_from) = (Some(1), Some("default"));
            }
        }
    }
    // The times of the header identify the round; the time in the file name is only a fallback.
    if parsed.start.is_some_and(|time| time > 0) || parsed.end.is_some_and(|time| time > 0) {
        (parsed.date, parsed.time) = (None, None);
    }
    sections(&mut parsed, &mut lines);
    Ok(parsed)
}

fn header<'a>(parsed: &mut ParsedEvent, lines: &mut impl Iterator<Item = &'a str>) {
    let mut is_marked = false;
    for line in lines {
        let Some(comment) = line.strip_prefix('#').map(str::trim) else { continue };
        is_marked |= comment.starts_with("PROXIMITY_TRACKER");
        let Some((name, value)) = comment.split_once('=') else { continue };
        let (name, value) = (name.trim(), value.trim());
        let number = int_text(value);
        match name {
            "map" if !value.is_empty() => parsed.map = Some(value.to_owned()),
            "round" if number.is_some() => {
                (parsed.number, parsed.number_from) = (number, Some("header"));
            }
            "round_start_unix" => parsed.start = number,
            "round_end_unix" => parsed.end = number,
            "crossfire_window" | "escape_time" | "escape_distance" | "position_sample_interval" => {
                parsed.add_field(format!("proximity_{name}"), number);
            }
            _ => {}
        }
    }
    if !is_marked {
        parsed.note("the file does not begin with # PROXIMITY_TRACKER");
    }
}

fn sections<'a>(parsed: &mut ParsedEvent, lines: &mut impl Iterator<Item = &'a str>) {
    let mut open: Option<(&Section, Vec<String>)> = None;
    let mut rows: Vec<(&'static str, Vec<Object<'static>>)> = Vec::new();
    for (number, line) in lines.enumerate() {
        if let Some(comment) = line.strip_prefix('#').map(str::trim) {
            if let Some(section) = SECTIONS.iter().find(|section| section.name == comment) {
                rows.push((section.field, Vec::new()));
                let usual = section.columns.iter().map(|column| (*column).to_owned());
                open = Some((section, usual.collect()));
            } else if is_heading(comment) {
                open = None;
            } else if let Some((_, columns)) = open.as_mut().filter(|_| comment.contains(';')) {
                // The file lists its own columns.
                *columns = comment.split(';').map(|column| column.trim().to_owned()).collect();
            }
            continue;
        }
        let Some((section, columns)) = open.as_ref().filter(|_| !line.trim().is_empty()) else {
            continue;
        };
        match (row(section, columns, line), rows.last_mut()) {
            (Some(row), Some((_, rows))) => rows.push(row),
            _ => {
                parsed.note(format!("line {} is not a valid line of {}", number + 1, section.name))
            }
        }
    }
    for (field, rows) in rows {
        if !parsed.fields.contains_key(field) {
            parsed.add_field(field, rows);
        }
    }
}

/// Whether a comment starts a section, including unknown ones.
fn is_heading(comment: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    comment.len() > 2 && comment.bytes().all(is_allowed)
}

fn row(section: &Section, columns: &[String], line: &str) -> Option<Object<'static>> {
    let fields: Vec<&str> = if section.is_open_ended {
        line.splitn(columns.len(), ';').collect()
    } else {
        line.split(';').collect()
    };
    let missing = columns.len().checked_sub(fields.len())?;
    let is_short = match (missing, section.newer) {
        (0, _) => false,
        (1, Some(_)) => true,
        _ => return None,
    };
    let is_absent = |column: &String| is_short && section.newer == Some(column.as_str());
    let present = columns.iter().filter(|column| !is_absent(column));
    // The identifying column is required; all others are kept unmodified.
    if fields.first().is_none_or(|first| first.trim().is_empty()) {
        return None;
    }
    let mut row = Object::new();
    for (column, field) in present.zip(fields) {
        if column == PLAYER_NAME {
            row.push(PLAYER_NAME, without_colours(field));
            row.push("raw_name", field.to_owned());
        } else {
            row.push(column.clone(), scalar(field));
        }
    }
    Some(row)
}

fn scalar(field: &str) -> Value<'static> {
    match (field.parse::<i64>(), field.parse::<f64>()) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(number)) if number.is_finite() && field.contains('.') => Value::from(number),
        _ => Value::from(field.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attackers_may_contain_the_separator_and_old_tracks_lack_a_column() {
        let engagement = (1..=23).map(|n| n.to_string()).collect::<Vec<_>>().join(";") + ";a,1;b,2";
        let row_of = |place: usize, line: &str| {
            let columns: Vec<String> =
                SECTIONS[place].columns.iter().map(|column| (*column).to_owned()).collect();
            row(&SECTIONS[place], &columns, line)
        };
        let parsed = row_of(0, &engagement).unwrap();
        assert_eq!(parsed.get("attackers").and_then(Value::as_str), Some("a,1;b,2"));
        let old = row_of(1, "G1;name;axis;medic;1000;2000;1100;7;path").unwrap();
        assert!(!old.contains_key("death_type"));
        assert_eq!(old.get("samples").and_then(Value::as_i64), Some(7));
        let new = row_of(1, "G1;name;axis;medic;1000;2000;1100;killed;7;path").unwrap();
        assert_eq!(new.get("death_type").and_then(Value::as_str), Some("killed"));
        for wrong in ["", "1;2;3", ";name;axis;medic;1;2;3;4;5"] {
            assert_eq!(row_of(1, wrong), None, "{wrong}");
        }
    }
}
