//! Effect steps, and the transition function.

use super::{EffectState, Evidence, StoredReply};

/// Operator who requested an action, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// Principal.
    pub who: String,
    /// Reason given.
    pub why: Option<String>,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Performed.
    Done,
    /// Definitely not performed.
    Refused,
    /// Unknown.
    Ambiguous,
}

/// Finding of an operator about an ambiguous effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileOutcome {
    /// Performed.
    Done,
    /// Not performed.
    Refused,
}

/// Step of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This process begins the attempt. Committed before the first byte leaves.
    Begin {
        /// Attempt number.
        attempt: u32,
    },
    /// The attempt has ended.
    Settle {
        /// Attempt number.
        attempt: u32,
        /// Outcome.
        outcome: Outcome,
        /// Evidence.
        evidence: Evidence,
        /// Reply for copies of the event, if this is the first attempt.
        reply: Option<StoredReply>,
    },
    /// Late evidence after the attempt was settled. Kept, changes nothing.
    Evidence {
        /// Attempt number.
        attempt: u32,
        /// Evidence.
        evidence: Evidence,
    },
    /// A copy of the event performs an effect that was reconciled as not performed. Committed
    /// before the first byte leaves, like `Begin`.
    Renew,
    /// Operator request for another attempt, unless it was performed.
    ReplayUndone(Attribution),
    /// Operator request for another attempt, even if it was performed.
    Replay(Attribution),
    /// Operator finding about an ambiguous attempt.
    Reconcile {
        /// Operator and reason.
        by: Attribution,
        /// Finding.
        found: ReconcileOutcome,
        /// Evidence.
        evidence: Evidence,
    },
}

/// Illegal step for the current state. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IllegalStep {
    /// The admission has no effect.
    #[error("this admission has no effect")]
    NoEffect,
    /// An attempt is in progress or pending.
    #[error("an attempt is in progress")]
    InWork,
    /// The step names another attempt than the current one.
    #[error("this is not the current attempt")]
    OtherAttempt,
    /// Only an intended effect can begin.
    #[error("the effect is not intended")]
    NotIntended,
    /// Only an effect in flight can be settled, and only by the process that began it.
    #[error("the effect is not in flight here")]
    NotInFlight,
    /// Only an ambiguous effect can be reconciled.
    #[error("the effect is not ambiguous")]
    NotAmbiguous,
    /// Only an effect that was definitely not performed can be performed by a copy.
    #[error("the effect is not released")]
    NotReleased,
    /// The effect was performed, and the request does not allow a repetition.
    #[error("the last attempt was executed")]
    AlreadyDone,
    /// Evidence for an attempt that has not begun.
    #[error("this attempt has not begun")]
    NotBegun,
}

/// Applies `step`, taken by the process with `epoch`, to `state`. Pure, and the only transition
/// function.
pub fn advance(state: EffectState, step: &Step, epoch: u64) -> Result<EffectState, IllegalStep> {
    match step {
        Step::Begin { attempt } => match state {
            EffectState::Intended(_) if state.attempt() != *attempt => {
                Err(IllegalStep::OtherAttempt)
            }
            EffectState::Intended(intended) => Ok(EffectState::InFlight(intended.begin(epoch))),
            EffectState::InFlight(_) => Err(IllegalStep::InWork),
            EffectState::Withheld(_)
            | EffectState::Done(_)
            | EffectState::Refused(_)
            | EffectState::Ambiguous(_) => Err(IllegalStep::NotIntended),
        },
        Step::Settle { attempt, outcome, evidence, .. } => {
            if state.attempt() != *attempt {
                return Err(IllegalStep::OtherAttempt);
            }
            let EffectState::InFlight(flight) = state else { return Err(IllegalStep::NotInFlight) };
            if flight.epoch() != epoch {
                return Err(IllegalStep::NotInFlight);
            }
            let evidence = evidence.clone();
            Ok(match outcome {
                Outcome::Done => EffectState::Done(flight.done(evidence)),
                Outcome::Refused => EffectState::Refused(flight.refused(evidence)),
                Outcome::Ambiguous => EffectState::Ambiguous(flight.lost(evidence)),
            })
        }
        Step::Evidence { attempt, .. } => {
            let has_begun = match &state {
                EffectState::Intended(_) => *attempt < state.attempt(),
                EffectState::Withheld(_) => false,
                EffectState::InFlight(_)
                | EffectState::Done(_)
                | EffectState::Refused(_)
                | EffectState::Ambiguous(_) => *attempt <= state.attempt(),
            };
            if has_begun && *attempt > 0 { Ok(state) } else { Err(IllegalStep::NotBegun) }
        }
        Step::Renew => match state {
            EffectState::Refused(refused) => Ok(EffectState::InFlight(refused.renew(epoch))),
            EffectState::Intended(_) | EffectState::InFlight(_) => Err(IllegalStep::InWork),
            EffectState::Withheld(_) | EffectState::Done(_) | EffectState::Ambiguous(_) => {
                Err(IllegalStep::NotReleased)
            }
        },
        Step::ReplayUndone(_) if matches!(state, EffectState::Done(_)) => {
            Err(IllegalStep::AlreadyDone)
        }
        Step::ReplayUndone(by) | Step::Replay(by) => Ok(EffectState::Intended(match state {
            EffectState::Intended(_) | EffectState::InFlight(_) => return Err(IllegalStep::InWork),
            EffectState::Withheld(withheld) => withheld.replay(by),
            EffectState::Done(done) => done.replay(by),
            EffectState::Refused(refused) => refused.replay(by),
            EffectState::Ambiguous(ambiguous) => ambiguous.replay(by),
        })),
        Step::Reconcile { by, found, evidence } => {
            let EffectState::Ambiguous(lost) = state else { return Err(IllegalStep::NotAmbiguous) };
            let evidence = evidence.clone();
            Ok(match found {
                ReconcileOutcome::Done => EffectState::Done(lost.found_done(by, evidence)),
                ReconcileOutcome::Refused => EffectState::Refused(lost.found_refused(by, evidence)),
            })
        }
    }
}

impl EffectState {
    /// Returns the state after a restart: an effect in flight under another epoch becomes
    /// ambiguous, others are unchanged.
    pub fn recovered(self, epoch: u64, evidence: Evidence) -> Self {
        if let Self::InFlight(flight) = &self
            && flight.epoch() != epoch
        {
            return Self::Ambiguous(flight.clone().lost(evidence));
        }
        self
    }
}
