//! From a draft to a source event: normalised names, times on one clock, the hard key.

use admit_core::json::{Object, Value};
use admit_core::record::{Fields, Parse, ParseStatus, SourceEvent};
use admit_core::{Key, Millis};
use jiff::tz::TimeZone;

use super::clock::{self, Moment};
use super::draft::{Draft, Unreadable};
use super::policy::{
    FILENAME_TRIGGER, GAMETIME_FALLBACK, LUA_SPAWN_STATS, PROXIMITY_FILE, STATS_READY,
};

/// Longest name of a map, and of a match.
const NAME_MAX: usize = 255;

/// Why not everything of an artifact was taken.
const INCOMPLETE: &str = "incomplete";

/// What an artifact is vetted with.
pub(super) struct Telling<'a> {
    pub(super) door: &'a str,
    pub(super) source: &'a str,
    pub(super) zone: &'a TimeZone,
    pub(super) body: &'a [u8],
    pub(super) received_at: Millis,
    pub(super) updates: bool,
}

impl Telling<'_> {
    /// The event that a draft makes, or the event of an artifact that could not be read: it is kept
    /// under the hash of its bytes, so that its replay is recognised too.
    pub(super) fn event(&self, parsed: Result<Draft, Unreadable>) -> SourceEvent {
        parsed.and_then(|draft| self.told(draft)).unwrap_or_else(|wrong| {
            let mut event = SourceEvent::new(self.source, self.raw_key(), self.received_at);
            event.updates = self.updates;
            event.parse = Parse {
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

    fn told(&self, mut draft: Draft) -> Result<SourceEvent, Unreadable> {
        let group = match &draft.map {
            Some(map) if map.len() > NAME_MAX => {
                return Err(Unreadable::new("invalid_map", "the name of the map is too long"));
            }
            Some(map) => map.trim().to_lowercase(),
            // The match id leads to the map.
            None if self.source == LUA_SPAWN_STATS && draft.match_id.is_some() => String::new(),
            None => return Err(Unreadable::new("missing_map", "nothing names the map")),
        };
        let missing = || Unreadable::new("missing_round", "nothing says which round it is");
        let number = draft.number.ok_or_else(missing)?;
        let start = draft.start.and_then(clock::unix);
        let end = draft.end.and_then(clock::unix);
        let (date, time) = self.clock(&mut draft);
        let match_id = self.match_id(&draft, end);
        let moment = self.moment(end.or(start), date.as_deref().zip(time.as_deref()), &match_id);
        let mut event = SourceEvent::new(self.source, self.raw_key(), self.received_at);
        event.hard_key = match self.source {
            FILENAME_TRIGGER => date
                .as_ref()
                .zip(time.as_ref())
                .map(|(date, time)| format!("{date}|{time}|{group}|{number}")),
            PROXIMITY_FILE => start
                .map(|start| format!("{group}|{number}|{start}"))
                .or_else(|| draft.filename.clone()),
            _ => match_id.as_ref().map(|id| format!("{id}|{number}")),
        };
        if let Some(hard_key) = &event.hard_key {
            let parts: [&[u8]; 3] = [self.source.as_bytes(), b"hard", hard_key.as_bytes()];
            event.key = Key::derive(self.door, &parts);
        }
        let is_timing = matches!(self.source, STATS_READY | GAMETIME_FALLBACK);
        event.enriches = !draft.fields.is_empty() || (is_timing && end.or(start).is_some());
        event.number = Some(number);
        event.number_from = draft.number_from.map(str::to_owned);
        (event.start, event.end) = (start, end);
        event.event_time = moment.map(|moment| moment.unix);
        event.event_time_late = moment.and_then(|moment| moment.late);
        event.local_date = event.event_time.and_then(|time| clock::local_date(self.zone, time));
        event.updates = self.updates;
        event.claims = draft.claims.take();
        event.payload = draft.payload.take();
        event.parse = parse(&mut draft);
        (event.date, event.time, event.group) = (date, time, group);
        event.fields = Fields::of(&self.fields(draft, &event, match_id));
        Ok(event)
    }

    /// Date and time of the server's clock, both or neither.
    fn clock(&self, draft: &mut Draft) -> (Option<String>, Option<String>) {
        let date = draft.date.as_deref().map(|text| (text.to_owned(), clock::date(text)));
        let time = draft.time.as_deref().map(|text| (text.to_owned(), clock::time(text)));
        for (name, told) in [("round_date", &date), ("round_time", &time)] {
            if let Some((text, None)) = told {
                let text: String = text.chars().take(40).collect();
                draft.note(format!("time_parse_failed: {name} {text:?} cannot be read"));
            }
        }
        let (date, time) = (date.and_then(|(_, date)| date), time.and_then(|(_, time)| time));
        if date.is_some() && time.is_some() { (date, time) } else { (None, None) }
    }

    /// The id of the match as the script makes it: its local time when the round ended. An id that
    /// is only digits is that second itself, and other sources' ids are no ids of the script.
    fn match_id(&self, draft: &Draft, end: Option<i64>) -> Option<String> {
        if !matches!(self.source, STATS_READY | GAMETIME_FALLBACK | LUA_SPAWN_STATS) {
            return None;
        }
        let made = |end: i64| clock::match_id(self.zone, end);
        match draft.match_id.as_deref() {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let told = digits.parse().ok().and_then(clock::unix);
                end.or(told).and_then(made).or_else(|| Some(digits.to_owned()))
            }
            Some(long) if long.len() > NAME_MAX => Some(clock::short(long)),
            Some(given) => Some(given.to_owned()),
            None => end.and_then(made),
        }
    }

    fn moment(
        &self,
        unix: Option<i64>,
        clock: Option<(&str, &str)>,
        match_id: &Option<String>,
    ) -> Option<Moment> {
        if let Some(unix) = unix {
            return Some(Moment { unix, late: None });
        }
        let told = clock.and_then(|(date, time)| clock::moment(self.zone, date, time));
        told.or_else(|| clock::of_match_id(self.zone, match_id.as_deref()?))
    }

    /// What the event tells: what names the round, then everything else.
    fn fields(
        &self,
        draft: Draft,
        event: &SourceEvent,
        match_id: Option<String>,
    ) -> Object<'static> {
        let mut fields = Object::new();
        let mut tell = |name: &'static str, value: Value<'static>| {
            if !value.is_null() {
                fields.push(name, value);
            }
        };
        let is_named = !event.group.is_empty();
        tell("map_name", Some(event.group.clone()).filter(|_| is_named).into());
        if self.source != PROXIMITY_FILE {
            tell("round_number", event.number.into());
        }
        tell("round_date", event.date.clone().into());
        tell("round_time", event.time.clone().into());
        tell("round_start_unix", event.start.into());
        tell("round_end_unix", event.end.into());
        tell("match_id", match_id.into());
        let filename = match self.source {
            FILENAME_TRIGGER => "filename",
            PROXIMITY_FILE => "proximity_filename",
            _ => "gametime_filename",
        };
        tell(filename, draft.filename.into());
        fields.extend(draft.fields);
        fields
    }
}

fn parse(draft: &mut Draft) -> Parse {
    let notes = std::mem::take(&mut draft.notes);
    match notes.is_empty() {
        true => Parse::default(),
        false => Parse { status: ParseStatus::Partial, reason: Some(INCOMPLETE.to_owned()), notes },
    }
}
