//! State machine of a scenario run.
//!
//! ```text
//! OPEN ─▶ PLANNED ─▶ EXECUTING ─▶ WAITING_EVIDENCE ─▶ READY
//!   │        │ └──────────┴───────────────┘            READY, FAILED and QUARANTINED are final:
//!   └────────┴──▶ FAILED | QUARANTINED                 no transition leads out of them
//! ```

use std::fmt;

/// State of a scenario run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScenarioState {
    /// Submitted, not planned yet.
    Open,
    /// Inputs and required evidence are fixed.
    Planned,
    /// The pack is being built.
    Executing,
    /// Required evidence is missing.
    WaitingEvidence,
    /// Facts are committed. Final.
    Ready,
    /// Cannot become ready. Final.
    Failed,
    /// Evidence is contradictory. Final.
    Quarantined,
}

/// Illegal state transition of a scenario run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal transition of a run from {from} to {to}")]
pub struct IllegalScenarioTransition {
    /// Current state.
    pub from: ScenarioState,
    /// Requested state.
    pub to: ScenarioState,
}

impl ScenarioState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::Planned,
        Self::Executing,
        Self::WaitingEvidence,
        Self::Ready,
        Self::Failed,
        Self::Quarantined,
    ];

    /// Name on the wire and in the ledger.
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

    /// Parses the name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether the state is final.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Failed | Self::Quarantined)
    }

    /// Returns `to` if the transition is legal. Staying in the same state is always legal.
    ///
    /// # Errors
    /// If the transition is illegal.
    pub fn transition(self, to: Self) -> Result<Self, IllegalScenarioTransition> {
        let is_end = to.is_final();
        let may = match self {
            Self::Open => to == Self::Planned || matches!(to, Self::Failed | Self::Quarantined),
            Self::Planned => is_end || matches!(to, Self::Executing | Self::WaitingEvidence),
            Self::Executing => is_end || to == Self::WaitingEvidence,
            Self::WaitingEvidence => is_end,
            Self::Ready | Self::Failed | Self::Quarantined => false,
        };
        if may || self == to { Ok(to) } else { Err(IllegalScenarioTransition { from: self, to }) }
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
    fn every_transition_is_allowed_or_refused_as_specified() {
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
                assert_eq!(from.transition(next).is_ok(), may, "{from} to {next}");
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for state in ScenarioState::ALL {
            assert_eq!(ScenarioState::from_word(state.word()), Some(state));
        }
        assert_eq!(ScenarioState::from_word("VERIFYING"), None, "never written");
    }
}
