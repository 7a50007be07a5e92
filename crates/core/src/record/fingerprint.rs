//! Fingerprints: what an event says that tells one entity from another, and how two are compared.

use super::event::SourceEvent;

/// Which times a fingerprint is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The start.
    Start,
    /// The end.
    End,
    /// Date and time by the source's own clock.
    Clock,
}

impl Kind {
    /// Every kind, the strongest first.
    pub const ALL: [Self; 3] = [Self::Start, Self::End, Self::Clock];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Clock => "clock",
        }
    }
}

/// A fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// What it is made of.
    pub kind: Kind,
    /// The text: group, number and times, with `|` between them.
    pub value: String,
}

/// What two tellings have to say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// They name the same, on this level.
    Same(Kind),
    /// They name different things, on this level.
    Other(Kind),
    /// They have no level in common, or another group or number.
    Apart,
}

/// What an event, or several that belong together, are named by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The group.
    pub group: String,
    /// The number.
    pub number: Option<i64>,
    /// The start, if it is known: zero and less are not.
    pub start: Option<i64>,
    /// The end.
    pub end: Option<i64>,
    /// Date and time of the source's own clock.
    pub clock: Option<(String, String)>,
}

fn known(time: Option<i64>) -> Option<i64> {
    time.filter(|time| *time > 0)
}

impl Named {
    /// What an event says it is.
    pub fn of(event: &SourceEvent) -> Self {
        Self {
            group: event.group.clone(),
            number: event.number,
            start: known(event.start),
            end: known(event.end),
            clock: event.date.clone().zip(event.time.clone()),
        }
    }

    /// Every fingerprint that can be computed, the strongest first.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        let Some(number) = self.number.filter(|_| !self.group.is_empty()) else {
            return Vec::new();
        };
        let made = |kind: Kind| {
            let rest = match kind {
                Kind::Start => self.start?.to_string(),
                Kind::End => self.end?.to_string(),
                Kind::Clock => {
                    let (date, time) = self.clock.as_ref()?;
                    format!("{date}|{time}")
                }
            };
            Some(Fingerprint { kind, value: format!("{}|{number}|{rest}", self.group) })
        };
        Kind::ALL.into_iter().filter_map(made).collect()
    }

    /// The fingerprint that stands for it.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprints().into_iter().next()
    }

    /// Compares on the strongest level that both have, and on no other.
    pub fn likeness(&self, other: &Self) -> Likeness {
        if self.group != other.group || self.number != other.number {
            return Likeness::Apart;
        }
        let said =
            |kind, is_same| if is_same { Likeness::Same(kind) } else { Likeness::Other(kind) };
        if let (Some(one), Some(two)) = (self.start, other.start) {
            return said(Kind::Start, one == two);
        }
        if let (Some(one), Some(two)) = (self.end, other.end) {
            return said(Kind::End, one == two);
        }
        match (&self.clock, &other.clock) {
            (Some(one), Some(two)) => said(Kind::Clock, one == two),
            _ => Likeness::Apart,
        }
    }

    /// Whether the two share a level, be it the strongest or not.
    pub fn shares_a_time(&self, other: &Self) -> bool {
        let same = |one: Option<i64>, two| one.is_some() && one == two;
        same(self.start, other.start)
            || same(self.end, other.end)
            || (self.clock.is_some() && self.clock == other.clock)
    }

    /// Whether two tellings under one hard key cannot be one thing: another start, or ends that are
    /// further apart than a correction would be.
    pub fn contradicts(&self, later: &Self, tolerance_seconds: i64) -> bool {
        match (self.start, later.start) {
            (Some(one), Some(two)) => one != two,
            _ => match (self.end, later.end) {
                (Some(one), Some(two)) => one.abs_diff(two) > tolerance_seconds.unsigned_abs(),
                _ => false,
            },
        }
    }

    /// Takes over what is missing here.
    pub fn fill_from(&mut self, other: &Self) {
        self.start = self.start.or(other.start);
        self.end = self.end.or(other.end);
        self.clock = self.clock.take().or_else(|| other.clock.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(start: i64, end: i64, clock: Option<(&str, &str)>) -> Named {
        Named {
            group: "supply".to_owned(),
            number: Some(2),
            start: known(Some(start)),
            end: known(Some(end)),
            clock: clock.map(|(date, time)| (date.to_owned(), time.to_owned())),
        }
    }

    #[test]
    fn the_published_fingerprints_are_made() {
        let all = named(1_770_843_143, 1_770_843_722, Some(("2026-02-11", "220205")));
        let values: Vec<(&str, String)> =
            all.fingerprints().into_iter().map(|one| (one.kind.word(), one.value)).collect();
        assert_eq!(
            values,
            [
                ("start", "supply|2|1770843143".to_owned()),
                ("end", "supply|2|1770843722".to_owned()),
                ("clock", "supply|2|2026-02-11|220205".to_owned()),
            ]
        );
    }

    #[test]
    fn zero_and_negative_times_are_missing() {
        let kind = |named: Named| named.fingerprint().map(|one| one.kind);
        assert_eq!(kind(named(5, 9, None)), Some(Kind::Start));
        assert_eq!(kind(named(0, 9, None)), Some(Kind::End));
        assert_eq!(kind(named(-1, 9, None)), Some(Kind::End));
        assert_eq!(kind(named(0, 0, Some(("d", "t")))), Some(Kind::Clock));
        assert_eq!(kind(named(0, 0, None)), None);
    }

    #[test]
    fn only_the_strongest_common_level_counts() {
        let both = named(5, 9, None);
        assert_eq!(both.likeness(&named(5, 8, None)), Likeness::Same(Kind::Start));
        assert_eq!(both.likeness(&named(6, 9, None)), Likeness::Other(Kind::Start));
        assert_eq!(both.likeness(&named(0, 9, None)), Likeness::Same(Kind::End));
        assert_eq!(both.likeness(&named(0, 8, None)), Likeness::Other(Kind::End));
        let clock = named(0, 0, Some(("d", "t")));
        assert_eq!(both.likeness(&clock), Likeness::Apart);
        assert_eq!(clock.likeness(&clock), Likeness::Same(Kind::Clock));
        assert_eq!(clock.likeness(&named(0, 0, Some(("d", "u")))), Likeness::Other(Kind::Clock));
    }

    #[test]
    fn a_correction_of_the_end_is_no_contradiction_but_an_hour_is() {
        let first = named(0, 1_792_888_200, None);
        assert!(!first.contradicts(&named(0, 1_792_888_201, None), 60));
        assert!(first.contradicts(&named(0, 1_792_891_800, None), 60));
        assert!(named(5, 9, None).contradicts(&named(6, 9, None), 60));
        assert!(!named(5, 9, None).contradicts(&named(5, 9_999, None), 60));
        assert!(!first.contradicts(&named(7, 0, None), 60));
    }
}
