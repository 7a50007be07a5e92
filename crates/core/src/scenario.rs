//! How a scenario run stands, and where it may go from there.
//!
//! ```text
//! OPEN ─▶ PLANNED ─▶ EXECUTING ─▶ WAITING_EVIDENCE ─▶ READY
//!   │        │ └──────────┴───────────────┘            READY, FAILED and QUARANTINED are final:
//!   └────────┴──▶ FAILED | QUARANTINED                 from there a run goes nowhere, not even back
//! ```

use std::fmt;

/// How a scenario run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScenarioState {
    /// It is known, and nothing is decided.
    Open,
    /// What it is made of and what must vouch for it is settled.
    Planned,
    /// Its pack is being made.
    Executing,
    /// Something that must vouch for it is not there yet.
    WaitingEvidence,
    /// Its facts are committed. Final.
    Ready,
    /// It cannot become ready. Final.
    Failed,
    /// What should vouch for it contradicts itself. Final.
    Quarantined,
}

/// A step that no run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {from} does not become {to}")]
pub struct IllegalTurn {
    /// How it stands.
    pub from: ScenarioState,
    /// Where it was to go.
    pub to: ScenarioState,
}

impl ScenarioState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::Planned,
        Self::Executing,
        Self::WaitingEvidence,
        Self::Ready,
        Self::Failed,
        Self::Quarantined,
    ];

    /// The word on the wire and in the ledger.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Planned => "PLANNED",
            Self::Executing => "EXECUTING",
            Self::WaitingEvidence => "WAITING_EVIDENCE",
            Self::Ready => "READY",
            Self::Failed => "FAILED",
            Self::Quarantined => "QUARANTINED",
        }
    }

    /// The state that a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether nothing comes after it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed | Self::Quarantined)
    }

    /// The state after a turn to `to`. Staying is no turn and always possible.
    ///
    /// # Errors
    /// When no run takes that step.
    pub fn turn(self, to: Self) -> Result<Self, IllegalTurn> {
        let is_end = to.is_final();
        let may = match self {
            Self::Open => to == Self::Planned || matches!(to, Self::Failed | Self::Quarantined),
            Self::Planned => is_end || matches!(to, Self::Executing | Self::WaitingEvidence),
            Self::Executing => is_end || to == Self::WaitingEvidence,
            Self::WaitingEvidence => is_end,
            Self::Ready | Self::Failed | Self::Quarantined => false,
        };
        if may || self == to { Ok(to) } else { Err(IllegalTurn { from: self, to }) }
    }
}

impl fmt::Display for ScenarioState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_allowed_or_refused_as_the_contract_says() {
        use ScenarioState as S;
        let allowed = [
            (S::Open, vec![S::Planned, S::Failed, S::Quarantined]),
            (
                S::Planned,
                vec![S::Executing, S::WaitingEvidence, S::Ready, S::Failed, S::Quarantined],
            ),
            (S::Executing, vec![S::WaitingEvidence, S::Ready, S::Failed, S::Quarantined]),
            (S::WaitingEvidence, vec![S::Ready, S::Failed, S::Quarantined]),
            (S::Ready, vec![]),
            (S::Failed, vec![]),
            (S::Quarantined, vec![]),
        ];
        for (from, to) in allowed {
            for next in S::ALL {
                let may = next == from || to.contains(&next);
                assert_eq!(from.turn(next).is_ok(), may, "{from} to {next}");
            }
        }
    }

    #[test]
    fn words_read_back() {
        for state in ScenarioState::ALL {
            assert_eq!(ScenarioState::from_word(state.word()), Some(state));
        }
        assert_eq!(ScenarioState::from_word("VERIFYING"), None, "nobody ever writes it");
    }
}
