//! Fingerprints of source events, and their comparison.

use super::source_event::SourceEvent;

/// Basis of a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FingerprintKind {
    /// Start time.
    Start,
    /// End time.
    End,
    /// Date and time by the source's own clock.
    Clock,
}

impl FingerprintKind {
    /// All kinds, strongest first.
    pub const ALL: [Self; 3] = [Self::Start, Self::End, Self::Clock];

    /// Name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Clock => "clock",
        }
    }
}

/// Fingerprint of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Kind.
    pub kind: FingerprintKind,
    /// Text form: group, number and times, separated by `|`.
    pub value: String,
}

/// Result of comparing two sets of identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintMatch {
    /// Same entity, on this level.
    Same(FingerprintKind),
    /// Different entities, on this level.
    Other(FingerprintKind),
    /// Not comparable: no common level, or another group or number.
    Apart,
}

/// Identifiers of an event or of several matching events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityIdentifiers {
    /// Group.
    pub group: String,
    /// Number within the group.
    pub number: Option<i64>,
    /// Start; zero and negative values are unknown.
    pub start: Option<i64>,
    /// End time.
    pub end: Option<i64>,
    /// Date and time by the source's own clock.
    pub clock: Option<(String, String)>,
}

fn known(time: Option<i64>) -> Option<i64> {
    time.filter(|time| *time > 0)
}

impl EntityIdentifiers {
    /// Identifiers of an event.
    pub fn of(event: &SourceEvent) -> Self {
        Self {
            group: event.group.clone(),
            number: event.number,
            start: known(event.start),
            end: known(event.end),
            clock: event.date.clone().zip(event.time.clone()),
        }
    }

    /// All computable fingerprints, strongest first.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        let Some(number) = self.number.filter(|_| !self.group.is_empty()) else {
            return Vec::new();
        };
        let made = |kind: FingerprintKind| {
            let rest = match kind {
                FingerprintKind::Start => self.start?.to_string(),
                FingerprintKind::End => self.end?.to_string(),
                FingerprintKind::Clock => {
                    let (date, time) = self.clock.as_ref()?;
                    format!("{date}|{time}")
                }
            };
            Some(Fingerprint { kind, value: format!("{}|{number}|{rest}", self.group) })
        };
        FingerprintKind::ALL.into_iter().filter_map(made).collect()
    }

    /// Strongest fingerprint.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprints().into_iter().next()
    }

    /// Compares on the strongest common level, and on no other.
    pub fn compare(&self, other: &Self) -> FingerprintMatch {
        if self.group != other.group || self.number != other.number {
            return FingerprintMatch::Apart;
        }
        let result = |kind, is_same| {
            if is_same { FingerprintMatch::Same(kind) } else { FingerprintMatch::Other(kind) }
        };
        if let (Some(one), Some(two)) = (self.start, other.start) {
            return result(FingerprintKind::Start, one == two);
        }
        if let (Some(one), Some(two)) = (self.end, other.end) {
            return result(FingerprintKind::End, one == two);
        }
        match (&self.clock, &other.clock) {
            (Some(one), Some(two)) => result(FingerprintKind::Clock, one == two),
            _ => FingerprintMatch::Apart,
        }
    }

    /// Whether they share a time on any level.
    pub fn shares_a_time(&self, other: &Self) -> bool {
        let same = |one: Option<i64>, two| one.is_some() && one == two;
        same(self.start, other.start)
            || same(self.end, other.end)
            || (self.clock.is_some() && self.clock == other.clock)
    }

    /// Whether two events under one hard key contradict each other: another start, or ends that
    /// differ by more than a correction.
    pub fn contradicts(&self, later: &Self, tolerance_seconds: i64) -> bool {
        match (self.start, later.start) {
            (Some(one), Some(two)) => one != two,
            _ => match (self.end, later.end) {
                (Some(one), Some(two)) => one.abs_diff(two) > tolerance_seconds.unsigned_abs(),
                _ => false,
            },
        }
    }

    /// Fills missing values from `other`.
    pub fn fill_from(&mut self, other: &Self) {
        self.start = self.start.or(other.start);
        self.end = self.end.or(other.end);
        self.clock = self.clock.take().or_else(|| other.clock.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(start: i64, end: i64, clock: Option<(&str, &str)>) -> EntityIdentifiers {
        EntityIdentifiers {
            group: "supply".to_owned(),
            number: Some(2),
            start: known(Some(start)),
            end: known(Some(end)),
            clock: clock.map(|(date, time)| (date.to_owned(), time.to_owned())),
        }
    }

    #[test]
    fn published_fingerprints_are_computed() {
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
        let kind = |identifiers: EntityIdentifiers| identifiers.fingerprint().map(|one| one.kind);
        assert_eq!(kind(named(5, 9, None)), Some(FingerprintKind::Start));
        assert_eq!(kind(named(0, 9, None)), Some(FingerprintKind::End));
        assert_eq!(kind(named(-1, 9, None)), Some(FingerprintKind::End));
        assert_eq!(kind(named(0, 0, Some(("d", "t")))), Some(FingerprintKind::Clock));
        assert_eq!(kind(named(0, 0, None)), None);
    }

    #[test]
    fn only_the_strongest_common_level_counts() {
        let both = named(5, 9, None);
        assert_eq!(
            both.compare(&named(5, 8, None)),
            FingerprintMatch::Same(FingerprintKind::Start)
        );
        assert_eq!(
            both.compare(&named(6, 9, None)),
            FingerprintMatch::Other(FingerprintKind::Start)
        );
        assert_eq!(both.compare(&named(0, 9, None)), FingerprintMatch::Same(FingerprintKind::End));
        assert_eq!(both.compare(&named(0, 8, None)), FingerprintMatch::Other(FingerprintKind::End));
        let clock = named(0, 0, Some(("d", "t")));
        assert_eq!(both.compare(&clock), FingerprintMatch::Apart);
        assert_eq!(clock.compare(&clock), FingerprintMatch::Same(FingerprintKind::Clock));
        assert_eq!(
            clock.compare(&named(0, 0, Some(("d", "u")))),
            FingerprintMatch::Other(FingerprintKind::Clock)
        );
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
