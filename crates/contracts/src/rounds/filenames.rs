//! File names of artifacts: a stats file is identified by its name alone.

use super::parsed_event::ArtifactError;
use super::timezone;

/// Longest file name, in characters, and longest map name in it.
const NAME_MAX: usize = 255;
const MAP_MAX: usize = 50;

/// Parsed name of a stats or proximity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatsName {
    pub(super) date: String,
    pub(super) time: String,
    pub(super) map: String,
    pub(super) number: i64,
}

/// Parsed name of a gametime file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GametimeName {
    pub(super) map: String,
    pub(super) number: i64,
    pub(super) end: i64,
}

fn wrong(message: impl Into<String>) -> ArtifactError {
    ArtifactError::new("invalid_filename", message)
}

/// Checks common to all file names.
fn check_filename(name: &str) -> Result<(), ArtifactError> {
    if name.chars().count() > NAME_MAX {
        return Err(wrong(format!("the file name is longer than {NAME_MAX} characters")));
    }
    if name.contains(['/', '\\', '\0']) || name.contains("..") {
        return Err(wrong("the file name contains a path"));
    }
    Ok(())
}

fn is_map(map: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !map.is_empty() && map.bytes().all(is_allowed)
}

/// Parses `2026-02-11-220205-supply-round-2.txt`.
pub(super) fn stats(name: &str) -> Result<StatsName, ArtifactError> {
    check_filename(name)?;
    if name.ends_with("-endstats.txt") {
        return Err(ArtifactError::new("not_a_round_file", "an endstats file is not a round file"));
    }
    let stem =
        name.strip_suffix(".txt").ok_or_else(|| wrong("the file name does not end in .txt"))?;
    round(stem)
}

/// Parses `2026-02-11-220202-supply-round-2_engagements.txt`.
pub(super) fn proximity(name: &str) -> Result<StatsName, ArtifactError> {
    check_filename(name)?;
    let stem = name
        .strip_suffix("_engagements.txt")
        .ok_or_else(|| wrong("the file name does not end in _engagements.txt"))?;
    round(stem)
}

fn round(stem: &str) -> Result<StatsName, ArtifactError> {
    let shape = || wrong("the file name is not YYYY-MM-DD-HHMMSS-map-round-N");
    let (rest, digits) = stem.rsplit_once("-round-").ok_or_else(shape)?;
    let head = rest.get(..17).ok_or_else(shape)?;
    let map = rest.get(17..).and_then(|map| map.strip_prefix('-')).ok_or_else(shape)?;
    let (day, clock) = (head.get(..10).ok_or_else(shape)?, head.get(10..).ok_or_else(shape)?);
    let clock = clock.strip_prefix('-').ok_or_else(shape)?;
    let date = timezone::date(day).ok_or_else(|| wrong(format!("{day:?} is not a date")))?;
    let year: i32 = date.get(..4).and_then(|year| year.parse().ok()).ok_or_else(shape)?;
    if !(2020..=2035).contains(&year) {
        return Err(wrong(format!("the year {year} is not from 2020 to 2035")));
    }
    let is_time = clock.len() == 6 && !clock.contains(':');
    let time = timezone::time(clock).filter(|_| is_time);
    let time = time.ok_or_else(|| wrong(format!("{clock:?} is not a time")))?;
    if !is_map(map) || map.len() > MAP_MAX {
        return Err(wrong("the map name is empty, too long, or has invalid characters"));
    }
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| is_number && (1..=10).contains(number));
    let number = number.ok_or_else(|| wrong(format!("round {digits:?} is not from 1 to 10")))?;
    Ok(StatsName { date, time, map: map.to_owned(), number })
}

/// Parses `gametime-supply-R2-1770843722.json`.
pub(super) fn gametime(name: &str) -> Result<GametimeName, ArtifactError> {
    check_filename(name)?;
    let shape = || wrong("the file name is not gametime-map-RN-END.json");
    let stem = name.strip_prefix("gametime-").and_then(|rest| rest.strip_suffix(".json"));
    let (rest, end) = stem.and_then(|stem| stem.rsplit_once('-')).ok_or_else(shape)?;
    let (map, number) = rest.rsplit_once("-R").ok_or_else(shape)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_map(map) || !digits(number) || !digits(end) {
        return Err(shape());
    }
    let number = number.parse().map_err(|_| shape())?;
    let end = end.parse().map_err(|_| shape())?;
    Ok(GametimeName { map: map.to_owned(), number, end })
}

/// Finds a file name in a message: the first text in backticks that ends in `.txt`.
pub(super) fn in_backticks(message: &str) -> Option<&str> {
    message.split('`').skip(1).step_by(2).find(|quoted| quoted.ends_with(".txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_may_have_hyphens() {
        let name = stats("2026-02-11-220205-te-escape2-round-2.txt").unwrap();
        assert_eq!((name.map.as_str(), name.number), ("te-escape2", 2));
        assert_eq!((name.date.as_str(), name.time.as_str()), ("2026-02-11", "220205"));
        let odd = stats("2026-02-11-220205-a-round-b-round-1.txt").unwrap();
        assert_eq!(odd.map, "a-round-b");
    }

    #[test]
    fn every_rule_about_names_is_checked() {
        let long = format!("2026-02-11-220205-{}-round-1.txt", "a".repeat(51));
        let longer = format!("2026-02-11-220205-{}-round-1.txt", "a".repeat(255));
        for wrong in [
            "",
            "supply-round-2.txt",
            "2026-02-11-220205-supply-round-2.TXT",
            "2026-02-11-220205-supply-round-2",
            "2026-02-11-220205-supply-round-.txt",
            "2026-02-11-220205-supply-round-0.txt",
            "2026-02-11-220205-supply-round-11.txt",
            "2026-02-11-220205-supply-round-+1.txt",
            "2026-02-11-220205--round-1.txt",
            "2026-02-11-220205-sup ply-round-1.txt",
            "2026-02-11-220205-šupply-round-1.txt",
            "2019-02-11-220205-supply-round-1.txt",
            "2036-02-11-220205-supply-round-1.txt",
            "2026-13-11-220205-supply-round-1.txt",
            "2026-02-32-220205-supply-round-1.txt",
            "2026-02-11-250205-supply-round-1.txt",
            "2026-02-11-22020-supply-round-1.txt",
            "../2026-02-11-220205-supply-round-1.txt",
            "x\\2026-02-11-220205-supply-round-1.txt",
            "2026-02-11-220205-sup..ply-round-1.txt",
            "2026-02-11-220205-sup\0ply-round-1.txt",
            "é026-02-11-220205-supply-round-1.txt",
            &long,
            &longer,
        ] {
            assert_eq!(stats(wrong).unwrap_err().reason, "invalid_filename", "{wrong:?}");
        }
        let sibling = "2026-02-11-220205-supply-round-2-endstats.txt";
        assert_eq!(stats(sibling).unwrap_err().reason, "not_a_round_file");
    }

    #[test]
    fn gametime_and_proximity_files_are_named_in_their_own_ways() {
        let name = gametime("gametime-te-R_escape2-R2-1770843722.json").unwrap();
        assert_eq!((name.map.as_str(), name.number, name.end), ("te-R_escape2", 2, 1_770_843_722));
        for wrong in ["gametime-supply-R2.json", "gametime-supply-2-1.json", "gametime--R1-1.json"]
        {
            assert!(gametime(wrong).is_err(), "{wrong}");
        }
        let name = proximity("2026-02-11-220202-supply-round-1_engagements.txt").unwrap();
        assert_eq!((name.map.as_str(), name.number), ("supply", 1));
        assert!(proximity("2026-02-11-220202-supply-round-1.txt").is_err());
    }

    #[test]
    fn a_message_names_its_file_in_backticks() {
        let message = "New round: `supply` `2026-02-11-220205-supply-round-2.txt`";
        assert_eq!(in_backticks(message), Some("2026-02-11-220205-supply-round-2.txt"));
        assert_eq!(in_backticks("`a.txt"), Some("a.txt"));
        assert_eq!(in_backticks("no file"), None);
    }
}
