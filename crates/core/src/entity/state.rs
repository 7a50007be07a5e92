//! State machine of a source event, and its history entries.
//!
//! ```text
//! seen ─▶ parsed ─▶ linked_round_id ─▶ enriched ─▶ published
//!   └▶ parse_failed └▶ link_failed       └▶ publish_failed
//! ```
//!
//! A failure ends an attempt, not the event: late evidence begins another attempt at `parsed`, and
//! the history of the previous attempt stays.

use super::fingerprint::Fingerprint;
use super::link::{Confidence, LinkStatus};
use crate::receipt::Seq;
use crate::time::Millis;

/// State of a source event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessingState {
    /// Received.
    Seen,
    /// Identifiers parsed.
    Parsed,
    /// Linked to an entity.
    Linked,
    /// Contributes fields to the entity.
    Enriched,
    /// The entity was published with this event.
    Published,
    /// Identifiers could not be parsed.
    ParseFailed,
    /// Not linked, or ambiguous.
    LinkFailed,
    /// The entity could not be published.
    PublishFailed,
}

impl ProcessingState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Seen,
        Self::Parsed,
        Self::Linked,
        Self::Enriched,
        Self::Published,
        Self::ParseFailed,
        Self::LinkFailed,
        Self::PublishFailed,
    ];

    /// Name in the ledger and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Parsed => "parsed",
            Self::Linked => "linked_round_id",
            Self::Enriched => "enriched",
            Self::Published => "published",
            Self::ParseFailed => "parse_failed",
            Self::LinkFailed => "link_failed",
            Self::PublishFailed => "publish_failed",
        }
    }

    /// Parses the name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether the state is a failure that ends an attempt.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::ParseFailed | Self::LinkFailed | Self::PublishFailed)
    }

    /// Whether the transition to `next` is legal.
    pub const fn leads_to(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Seen, Self::Parsed | Self::ParseFailed)
                | (Self::Parsed, Self::Linked | Self::LinkFailed)
                | (Self::Linked, Self::Enriched)
                | (Self::Enriched, Self::Published | Self::PublishFailed)
        )
    }

    /// Path from the start state of an attempt to this state, both included.
    pub(super) fn path_from(self, begin: Self) -> Vec<Self> {
        let whole: &[Self] = match self {
            Self::Seen => &[Self::Seen],
            Self::ParseFailed => &[Self::Seen, Self::ParseFailed],
            Self::Parsed => &[Self::Seen, Self::Parsed],
            Self::LinkFailed => &[Self::Seen, Self::Parsed, Self::LinkFailed],
            Self::Linked => &[Self::Seen, Self::Parsed, Self::Linked],
            Self::Enriched => &[Self::Seen, Self::Parsed, Self::Linked, Self::Enriched],
            Self::Published => {
                &[Self::Seen, Self::Parsed, Self::Linked, Self::Enriched, Self::Published]
            }
            Self::PublishFailed => {
                &[Self::Seen, Self::Parsed, Self::Linked, Self::Enriched, Self::PublishFailed]
            }
        };
        let from = whole.iter().position(|state| *state == begin).unwrap_or(0);
        whole[from..].to_vec()
    }
}

/// Entry of the append-only history of state transitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Ledger position of the event.
    pub seq: Seq,
    /// Link attempt, from 1.
    pub attempt: u32,
    /// Previous state.
    pub from: ProcessingState,
    /// New state.
    pub to: ProcessingState,
    /// Time of the transition.
    pub at: Millis,
    /// Source of the event.
    pub source: String,
    /// Fingerprint used.
    pub fingerprint: Option<Fingerprint>,
    /// Link status.
    pub link_status: LinkStatus,
    /// Confidence of the link.
    pub confidence: Confidence,
    /// Reason; set for every failure.
    pub reason: Option<String>,
    /// Linked entity.
    pub record_id: Option<String>,
}

/// IllegalTransition state transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal transition from {} to {}", from.word(), to.word())]
pub struct IllegalTransition {
    /// Current state.
    pub from: ProcessingState,
    /// Requested state.
    pub to: ProcessingState,
}

impl ProcessingState {
    /// Returns `next` if the transition is legal.
    pub fn advance(self, next: Self) -> Result<Self, IllegalTransition> {
        if self.leads_to(next) { Ok(next) } else { Err(IllegalTransition { from: self, to: next }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_transitions_are_legal() {
        let steps: Vec<String> = ProcessingState::ALL
            .into_iter()
            .flat_map(|from| ProcessingState::ALL.into_iter().map(move |to| (from, to)))
            .filter(|(from, to)| from.advance(*to).is_ok())
            .map(|(from, to)| format!("{} {}", from.word(), to.word()))
            .collect();
        assert_eq!(
            steps,
            [
                "seen parsed",
                "seen parse_failed",
                "parsed linked_round_id",
                "parsed link_failed",
                "linked_round_id enriched",
                "enriched published",
                "enriched publish_failed",
            ]
        );
    }

    #[test]
    fn every_state_is_reached_by_legal_transitions_only() {
        for state in ProcessingState::ALL {
            let path = state.path_from(ProcessingState::Seen);
            assert!(path.windows(2).all(|step| step[0].leads_to(step[1])), "{state:?}");
            assert_eq!((path.first(), path.last()), (Some(&ProcessingState::Seen), Some(&state)));
            assert_eq!(ProcessingState::parse(state.word()), Some(state));
        }
    }
}
