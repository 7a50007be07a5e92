//! Link of a source event to an entity, with confidence and reason.

use super::fingerprint::{Fingerprint, FingerprintKind};
use super::state::ProcessingState;

/// Link status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkStatus {
    /// Not linked.
    Unlinked,
    /// Linked.
    Linked,
    /// Contradicts known events; kept, nothing is overwritten.
    Ambiguous,
}

/// Confidence of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// By a local clock, or not linked.
    Low,
    /// By time window.
    Medium,
    /// By the same start or end.
    High,
}

/// Basis of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchBasis {
    /// The event opens the entity.
    Opens,
    /// Same fingerprint.
    Fingerprint(FingerprintKind),
    /// Same hard key within a family of sources.
    HardKey,
    /// Entity id named by the event.
    Named,
    /// Same payload under another id.
    Payload,
    /// Time window.
    Window,
}

/// Reason of a link status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkReason {
    /// Linked.
    Resolved,
    /// The event names its entity.
    ResolvedCanonicalIdMatch,
    /// Same payload as another event under another id.
    DuplicatePayload,
    /// Group or number is missing.
    InvalidInput,
    /// No entity of this group and number.
    NoRows,
    /// Candidates on other days only.
    DateExcluded,
    /// Candidates outside the time window only.
    OutsideWindow,
    /// The event, or every candidate, has no time.
    TimeParseFailed,
    /// Contradicts a more trusted event about the same entity.
    FingerprintMismatch,
    /// Different entities share the hard key.
    HardKeyCollision,
    /// Linked, and accepted by an operator.
    Accepted,
}

macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Name in the ledger and on the wire.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Parses the name.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }
        }
    };
}

words!(LinkStatus { Unlinked = "unlinked", Linked = "linked_round_id", Ambiguous = "ambiguous" });
words!(Confidence { Low = "low", Medium = "medium", High = "high" });
words!(LinkReason {
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

impl MatchBasis {
    /// Name.
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

    /// Parses the name.
    pub fn parse(word: &str) -> Option<Self> {
        let kinds = FingerprintKind::ALL.into_iter().map(Self::Fingerprint);
        kinds
            .chain([Self::Opens, Self::HardKey, Self::Named, Self::Payload, Self::Window])
            .find(|matched| matched.word() == word)
    }

    /// Confidence of such a link.
    pub const fn confidence(self) -> Confidence {
        match self {
            Self::Fingerprint(FingerprintKind::Start | FingerprintKind::End)
            | Self::HardKey
            | Self::Named => Confidence::High,
            Self::Window => Confidence::Medium,
            // The opening event is identified by a clock only.
            Self::Fingerprint(FingerprintKind::Clock) | Self::Opens | Self::Payload => {
                Confidence::Low
            }
        }
    }
}

/// Diagnostics of the linker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkDiagnostics {
    /// Number of candidates of the group and number.
    pub candidates: u32,
    /// Number of candidates with a time.
    pub timed_candidates: u32,
    /// Distance of the nearest candidate in seconds.
    pub best_diff_seconds: Option<u64>,
    /// Size of the window in seconds.
    pub window_seconds: i64,
}

/// Link of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Status.
    pub status: LinkStatus,
    /// State of the event.
    pub state: ProcessingState,
    /// A [`LinkReason`], or the reason of a parse failure.
    pub reason: String,
    /// Confidence.
    pub confidence: Confidence,
    /// What made the link.
    pub matched: Option<MatchBasis>,
    /// Entity id.
    pub record_id: Option<String>,
    /// All computable fingerprints, strongest first.
    pub fingerprints: Vec<Fingerprint>,
    /// Number, corrected for sources with an untrusted number.
    pub number: Option<i64>,
    /// Origin of the number.
    pub number_from: Option<String>,
    /// Whether the event contributes to the entity: false for replays that change nothing and for
    /// contradictions.
    pub is_applied: bool,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// Diagnostics of the linker.
    pub diagnostics: LinkDiagnostics,
    /// Reason of a failed publication, if it failed.
    pub unsent: Option<String>,
}

impl Link {
    /// Whether an operator accepted the event.
    pub fn is_accepted(&self) -> bool {
        self.reason == LinkReason::Accepted.word()
    }

    /// Whether the event has table rows: false for hard key collisions, because rows are keyed by
    /// it.
    pub fn has_rows(&self) -> bool {
        self.status != LinkStatus::Ambiguous
            || self.reason == LinkReason::FingerprintMismatch.word()
    }

    /// Strongest fingerprint.
    pub fn fingerprint(&self) -> Option<&Fingerprint> {
        self.fingerprints.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert!(LinkStatus::ALL.iter().all(|one| LinkStatus::parse(one.word()) == Some(*one)));
        assert!(Confidence::ALL.iter().all(|one| Confidence::parse(one.word()) == Some(*one)));
        assert!(LinkReason::ALL.iter().all(|one| LinkReason::parse(one.word()) == Some(*one)));
        for word in ["start", "end", "clock", "opens", "hard_key", "named", "payload", "window"] {
            assert_eq!(MatchBasis::parse(word).map(MatchBasis::word), Some(word));
        }
    }

    #[test]
    fn clocks_are_trusted_less_than_windows_and_windows_less_than_times() {
        let of = |kind| MatchBasis::Fingerprint(kind).confidence();
        assert_eq!(of(FingerprintKind::Start), Confidence::High);
        assert_eq!(of(FingerprintKind::End), Confidence::High);
        assert_eq!(MatchBasis::Window.confidence(), Confidence::Medium);
        assert_eq!(of(FingerprintKind::Clock), Confidence::Low);
    }
}
