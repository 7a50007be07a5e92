//! The life of a source event, and the line that is written for every step of it.
//!
//! ```text
//! seen ─▶ parsed ─▶ linked_round_id ─▶ enriched ─▶ published
//!   └▶ parse_failed └▶ link_failed       └▶ publish_failed
//! ```
//!
//! A failure ends an attempt, not the event: late evidence begins another attempt at `parsed`, and
//! the lines of the one before stay.

use super::fingerprint::Fingerprint;
use super::link::{Confidence, LinkStatus};
use crate::receipt::Seq;
use crate::time::Millis;

/// Where a source event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is here.
    Seen,
    /// What names it could be read.
    Parsed,
    /// It belongs to a record.
    Linked,
    /// It has something to say about it.
    Enriched,
    /// The record with it in it went out.
    Published,
    /// What names it could not be read.
    ParseFailed,
    /// It belongs to no record, or to none for sure.
    LinkFailed,
    /// The record could not go out.
    PublishFailed,
}

impl State {
    /// Every state.
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

    /// The word for it, in the ledger and on the wire.
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

    /// The state a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether an attempt ends here for want of something.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::ParseFailed | Self::LinkFailed | Self::PublishFailed)
    }

    /// Whether `next` may follow.
    pub const fn leads_to(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Seen, Self::Parsed | Self::ParseFailed)
                | (Self::Parsed, Self::Linked | Self::LinkFailed)
                | (Self::Linked, Self::Enriched)
                | (Self::Enriched, Self::Published | Self::PublishFailed)
        )
    }

    /// The states that lie between the beginning of an attempt and this one, both included.
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

/// One step, with what it rests on. Steps are only ever added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whose step it is.
    pub seq: Seq,
    /// Which attempt at linking it belongs to, from 1.
    pub attempt: u32,
    /// Where it stood.
    pub from: State,
    /// Where it stands.
    pub to: State,
    /// When.
    pub at: Millis,
    /// Who told.
    pub source: String,
    /// The fingerprint that was used.
    pub fingerprint: Option<Fingerprint>,
    /// How it is linked.
    pub link_status: LinkStatus,
    /// How sure that is.
    pub confidence: Confidence,
    /// Why; every failure has one.
    pub reason: Option<String>,
    /// The record it is linked to.
    pub record_id: Option<String>,
}

/// A step that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing leads from {} to {}", from.word(), to.word())]
pub struct Illegal {
    /// Where it would begin.
    pub from: State,
    /// Where it would end.
    pub to: State,
}

impl State {
    /// `next`, if it may follow.
    pub fn advance(self, next: Self) -> Result<Self, Illegal> {
        if self.leads_to(next) { Ok(next) } else { Err(Illegal { from: self, to: next }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_steps_exist() {
        let steps: Vec<String> = State::ALL
            .into_iter()
            .flat_map(|from| State::ALL.into_iter().map(move |to| (from, to)))
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
    fn every_state_is_reached_by_listed_steps_only() {
        for state in State::ALL {
            let path = state.path_from(State::Seen);
            assert!(path.windows(2).all(|step| step[0].leads_to(step[1])), "{state:?}");
            assert_eq!((path.first(), path.last()), (Some(&State::Seen), Some(&state)));
            assert_eq!(State::parse(state.word()), Some(state));
        }
    }
}
