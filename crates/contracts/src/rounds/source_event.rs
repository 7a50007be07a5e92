//! Builds a source event from a parser result: normalised names, times on one clock, the hard key.

use admit_core::entity::{EventFields, ParseReport, ParseStatus, SourceEvent};
use admit_core::json::{Object, Value};
use admit_core::{Key, Millis};
use jiff::tz::TimeZone;

use super::parsed_event::{ArtifactError, ParsedEvent};
use super::policy::{
    FILENAME_TRIGGER, GAMETIME_FALLBACK, LUA_SPAWN_STATS, PROXIMITY_FILE, STATS_READY,
};
use super::timezone::{self, ResolvedTime};

/// Longest map name and match id, in bytes.
const NAME_MAX: usize = 255;

/// Reason code of an artifact with skipped content.
const INCOMPLETE: &str = "incomplete";

/// Inputs for the source event of an artifact.
pub(super) struct SourceEventBuilder<'a> {
    pub(super) door: &'a str,
    pub(super) source: &'a str,
    pub(super) zone: &'a TimeZone,
    pub(super) body: &'a [u8],
    pub(super) received_at: Millis,
    pub(super) updates: bool,
}

impl SourceEventBuilder<'_> {
    /// Builds the event. An unreadable artifact becomes an event under the hash of its bytes, so
    /// that its replay is recognised too.
    pub(super) fn event(&self, parsed: Result<ParsedEvent, ArtifactError>) -> SourceEvent {
        parsed.and_then(|parsed| self.build(parsed)).unwrap_or_else(|wrong| {
            let mut event = SourceEvent::new(self.source, self.raw_key(), self.received_at);
            event.updates = self.updates;
            event.parse = ParseReport {
                status: ParseStatus::Failed,
                reason: Some(wrong.reason.to_owned()),
                notes: vec![wrong.message],
            };
            event
        })
    }

    fn raw_key(&self) -> Key {
        Key::derive(self.door, &[self.source.as_bytes(), b"raw", self.body])
    }

    fn build(&self, mut parsed: ParsedEvent) -> Result<SourceEvent, ArtifactError> {
        let group = match &parsed.map {
            Some(map) if map.len() > NAME_MAX => {
                return Err(ArtifactError::new("invalid_map", "the name of the map is too long"));
            }
            Some(map) => map.trim().to_lowercase(),
            // The match id determines the map.
            None if self.source == LUA_SPAWN_STATS && parsed.match_id.is_some() => String::new(),
            None => return Err(ArtifactError::new("missing_map", "the map name is missing")),
        };
        let missing = || ArtifactError::new("missing_round", "the round number is missing");
        let number = parsed.number.ok_or_else(missing)?;
        let start = parsed.start.and_then(timezone::unix);
        let end = parsed.end.and_then(timezone::unix);
        let (date, time) = self.clock(&mut parsed);
        let match_id = self.match_id(&parsed, end);
        let moment = self.moment(end.or(start), date.as_deref().zip(time.as_deref()), &match_id);
        let mut event = SourceEvent::new(self.source, self.raw_key(), self.received_at);
        event.hard_key = match self.source {
            FILENAME_TRIGGER => date
                .as_ref()
                .zip(time.as_ref())
                .map(|(date, time)| format!("{date}|{time}|{group}|{number}")),
            PROXIMITY_FILE => start
                .map(|start| format!("{group}|{number}|{start}"))
                .or_else(|| parsed.filename.clone()),
            _ => match_id.as_ref().map(|id| format!("{id}|{number}")),
        };
        if let Some(hard_key) = &event.hard_key {
            let parts: [&[u8]; 3] = [self.source.as_bytes(), b"hard", hard_key.as_bytes()];
            event.key = Key::derive(self.door, &parts);
        }
        let is_timing = matches!(self.source, STATS_READY | GAMETIME_FALLBACK);
        event.enriches = !parsed.fields.is_empty() || (is_timing && end.or(start).is_some());
        event.number = Some(number);
        event.number_from = parsed.number_from.map(str::to_owned);
        (event.start, event.end) = (start, end);
        event.event_time = moment.map(|moment| moment.unix);
        event.event_time_late = moment.and_then(|moment| moment.late);
        event.local_date = event.event_time.and_then(|time| timezone::local_date(self.zone, time));
        event.updates = self.updates;
        event.claims = parsed.claims.take();
        event.payload = parsed.payload.take();
        event.parse = parse(&mut parsed);
        (event.date, event.time, event.group) = (date, time, group);
        event.fields = EventFields::of(&self.fields(parsed, &event, match_id));
        Ok(event)
    }

    /// Date and time of the server's clock, both or neither.
    fn clock(&self, parsed: &mut ParsedEvent) -> (Option<String>, Option<String>) {
        let date = parsed.date.as_deref().map(|text| (text.to_owned(), timezone::date(text)));
        let time = parsed.time.as_deref().map(|text| (text.to_owned(), timezone::time(text)));
        for (name, given) in [("round_date", &date), ("round_time", &time)] {
            if let Some((text, None)) = given {
                let text: String = text.chars().take(40).collect();
                parsed.note(format!("time_parse_failed: {name} {text:?} cannot be read"));
            }
        }
        let (date, time) = (date.and_then(|(_, date)| date), time.and_then(|(_, time)| time));
        if date.is_some() && time.is_some() { (date, time) } else { (None, None) }
    }

    /// Match id in the script's form: its local time when the round ended. An id of digits only is
    /// that time in seconds; other sources' ids are not ids of the script.
    fn match_id(&self, parsed: &ParsedEvent, end: Option<i64>) -> Option<String> {
        if !matches!(self.source, STATS_READY | GAMETIME_FALLBACK | LUA_SPAWN_STATS) {
            return None;
        }
        let made = |end: i64| timezone::match_id(self.zone, end);
        match parsed.match_id.as_deref() {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let given = digits.parse().ok().and_then(timezone::unix);
                end.or(given).and_then(made).or_else(|| Some(digits.to_owned()))
            }
            Some(long) if long.len() > NAME_MAX => Some(timezone::short(long)),
            Some(given) => Some(given.to_owned()),
            None => end.and_then(made),
        }
    }

    fn moment(
        &self,
        unix: Option<i64>,
        clock: Option<(&str, &str)>,
        match_id: &Option<String>,
    ) -> Option<ResolvedTime> {
        if let Some(unix) = unix {
            return Some(ResolvedTime { unix, late: None });
        }
        let given = clock.and_then(|(date, time)| timezone::moment(self.zone, date, time));
        given.or_else(|| timezone::of_match_id(self.zone, match_id.as_deref()?))
    }

    /// Fields of the event: first those that identify the round, then all others.
    fn fields(
        &self,
        parsed: ParsedEvent,
        event: &SourceEvent,
        match_id: Option<String>,
    ) -> Object<'static> {
        let mut fields = Object::new();
        let mut add = |name: &'static str, value: Value<'static>| {
            if !value.is_null() {
                fields.push(name, value);
            }
        };
        let is_named = !event.group.is_empty();
        add("map_name", Some(event.group.clone()).filter(|_| is_named).into());
        if self.source != PROXIMITY_FILE {
            add("round_number", event.number.into());
        }
        add("round_date", event.date.clone().into());
        add("round_time", event.time.clone().into());
        add("round_start_unix", event.start.into());
        add("round_end_unix", event.end.into());
        add("match_id", match_id.into());
        let filename = match self.source {
            FILENAME_TRIGGER => "filename",
            PROXIMITY_FILE => "proximity_filename",
            _ => "gametime_filename",
        };
        add(filename, parsed.filename.into());
        fields.extend(parsed.fields);
        fields
    }
}

fn parse(parsed: &mut ParsedEvent) -> ParseReport {
    let notes = std::mem::take(&mut parsed.notes);
    match notes.is_empty() {
        true => ParseReport::default(),
        false => {
            ParseReport { status: ParseStatus::Partial, reason: Some(INCOMPLETE.to_owned()), notes }
        }
    }
}
