//! Where a source event belongs: to which record, how sure, and why not.

use super::fingerprint::{Fingerprint, Kind};
use super::state::State;

/// How an event is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkStatus {
    /// To no record.
    Unlinked,
    /// To one.
    Linked,
    /// It contradicts what is known; it is kept, and nothing is overwritten.
    Ambiguous,
}

/// How sure a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// By a clock, or not at all.
    Low,
    /// By being near enough in time.
    Medium,
    /// By the same start or end.
    High,
}

/// What made a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matched {
    /// The event opens the record itself.
    Opens,
    /// A fingerprint.
    Fingerprint(Kind),
    /// The hard key, shared within a family of sources.
    HardKey,
    /// The id of the record, named by the event.
    Named,
    /// What it carries, known under another name.
    Payload,
    /// Nearness in time.
    Window,
}

/// Why an event is, or is not, linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is.
    Resolved,
    /// It names its record.
    ResolvedCanonicalIdMatch,
    /// It carries what another event carries under another name.
    DuplicatePayload,
    /// It has no group or no number.
    InvalidInput,
    /// Nobody has opened a record of this group and number.
    NoRows,
    /// There are some, on other days only.
    DateExcluded,
    /// There are some, none near enough.
    OutsideWindow,
    /// It has no time, or none of those it could belong to has.
    TimeParseFailed,
    /// A better-known event says otherwise about the same thing.
    FingerprintMismatch,
    /// Two different things have the same hard key.
    HardKeyCollision,
    /// It is, and a person has said that what it tells counts.
    Accepted,
}

macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word for it, in the ledger and on the wire.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// What a word stands for.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }
    };
}

words!(LinkStatus { Unlinked = "unlinked", Linked = "linked_round_id", Ambiguous = "ambiguous" });
words!(Confidence { Low = "low", Medium = "medium", High = "high" });
words!(Reason {
    Resolved = "resolved",
    ResolvedCanonicalIdMatch = "resolved_canonical_id_match",
    DuplicatePayload = "duplicate_payload",
    InvalidInput = "invalid_input",
    NoRows = "no_rows_for_map_round",
    DateExcluded = "date_filter_excluded_rows",
    OutsideWindow = "all_candidates_outside_window",
    TimeParseFailed = "time_parse_failed",
    FingerprintMismatch = "fingerprint_mismatch",
    HardKeyCollision = "hard_key_collision",
    Accepted = "accepted",
});

impl Matched {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Opens => "opens",
            Self::Fingerprint(kind) => kind.word(),
            Self::HardKey => "hard_key",
            Self::Named => "named",
            Self::Payload => "payload",
            Self::Window => "window",
        }
    }

    /// What a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        let kinds = Kind::ALL.into_iter().map(Self::Fingerprint);
        kinds
            .chain([Self::Opens, Self::HardKey, Self::Named, Self::Payload, Self::Window])
            .find(|matched| matched.word() == word)
    }

    /// How sure such a link is.
    pub const fn confidence(self) -> Confidence {
        match self {
            Self::Fingerprint(Kind::Start | Kind::End) | Self::HardKey | Self::Named => {
                Confidence::High
            }
            Self::Window => Confidence::Medium,
            // All a record is opened by is a clock.
            Self::Fingerprint(Kind::Clock) | Self::Opens | Self::Payload => Confidence::Low,
        }
    }
}

/// What the linker looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// How many records of the group and number there were to choose from.
    pub candidates: u32,
    /// How many of them have a time.
    pub timed_candidates: u32,
    /// How far the nearest is away, in seconds.
    pub best_diff_seconds: Option<u64>,
    /// How far it may be.
    pub window_seconds: i64,
}

/// Where an event belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// How it is linked.
    pub status: LinkStatus,
    /// Where it stands.
    pub state: State,
    /// Why: a [`Reason`], or the reason its artifact could not be read.
    pub reason: String,
    /// How sure.
    pub confidence: Confidence,
    /// What made the link.
    pub matched: Option<Matched>,
    /// The record.
    pub record_id: Option<String>,
    /// Every fingerprint that could be computed, the one that stands for it first.
    pub fingerprints: Vec<Fingerprint>,
    /// The number, corrected where the source is not to be trusted with it.
    pub number: Option<i64>,
    /// Where the number comes from.
    pub number_from: Option<String>,
    /// Whether anything the event tells counts: not for a replay that changes nothing, nor for
    /// what contradicts.
    pub is_applied: bool,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What the linker looked at.
    pub diagnostics: Diagnostics,
    /// Why the record with it in it could not go out, where that is how it stands.
    pub unsent: Option<String>,
}

impl Link {
    /// Whether what the event tells counts because a person has said so.
    pub fn is_accepted(&self) -> bool {
        self.reason == Reason::Accepted.word()
    }

    /// Whether what the event tells has a place in the tables: not for one that has the hard key of
    /// another entity, because rows are named by it.
    pub fn has_rows(&self) -> bool {
        self.status != LinkStatus::Ambiguous || self.reason == Reason::FingerprintMismatch.word()
    }

    /// The fingerprint that stands for the event.
    pub fn fingerprint(&self) -> Option<&Fingerprint> {
        self.fingerprints.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        assert!(LinkStatus::ALL.iter().all(|one| LinkStatus::parse(one.word()) == Some(*one)));
        assert!(Confidence::ALL.iter().all(|one| Confidence::parse(one.word()) == Some(*one)));
        assert!(Reason::ALL.iter().all(|one| Reason::parse(one.word()) == Some(*one)));
        for word in ["start", "end", "clock", "opens", "hard_key", "named", "payload", "window"] {
            assert_eq!(Matched::parse(word).map(Matched::word), Some(word));
        }
    }

    #[test]
    fn clocks_are_trusted_less_than_nearness_and_nearness_less_than_times() {
        let of = |kind| Matched::Fingerprint(kind).confidence();
        assert_eq!(of(Kind::Start), Confidence::High);
        assert_eq!(of(Kind::End), Confidence::High);
        assert_eq!(Matched::Window.confidence(), Confidence::Medium);
        assert_eq!(of(Kind::Clock), Confidence::Low);
    }
}
