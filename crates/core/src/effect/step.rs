//! The steps an effect can take, and which of them lead anywhere from where it stands.

use super::{Evidence, Standing, StoredReply};

/// Who asked for something that does not happen by itself, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The principal.
    pub who: String,
    /// The reason that was given.
    pub why: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Definitely not done.
    Refused,
    /// Not known.
    Ambiguous,
}

/// What a person found out about an ambiguous effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// It was not done.
    Refused,
}

/// One step of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The ledger's own process is about to do this attempt. Committed before the first byte leaves.
    Begin {
        /// Which attempt.
        attempt: u32,
    },
    /// The attempt has ended.
    Settle {
        /// Which attempt.
        attempt: u32,
        /// How.
        outcome: Outcome,
        /// What it rests on.
        evidence: Evidence,
        /// What copies of the event are told from now on, if this is the first attempt.
        reply: Option<StoredReply>,
    },
    /// Something became known after the attempt was settled. It is kept and changes nothing.
    Evidence {
        /// Which attempt it is about.
        attempt: u32,
        /// What became known.
        evidence: Evidence,
    },
    /// A copy of the event does what was found not to have been done. Committed before the first
    /// byte leaves, like a beginning.
    Renew,
    /// A person wants another attempt at what has not been done.
    ReplayUndone(By),
    /// A person wants another attempt, also of what has been done.
    Replay(By),
    /// A person found out what became of an ambiguous attempt.
    Reconcile {
        /// Who, and why they say so.
        by: By,
        /// What they found.
        found: Answer,
        /// What it rests on.
        evidence: Evidence,
    },
}

/// A step that leads nowhere from where the effect stands. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// There is no effect at this place.
    #[error("this admission has no effect")]
    NoEffect,
    /// Somebody is at it, or about to be.
    #[error("an attempt is in work")]
    InWork,
    /// The step is about another attempt than the present one.
    #[error("this is not the present attempt")]
    OtherAttempt,
    /// Only what is intended can begin.
    #[error("the effect is not intended")]
    NotIntended,
    /// Only what is in flight can be settled, and only by the process that began it.
    #[error("the effect is not in flight here")]
    NotInFlight,
    /// Only an ambiguous effect can be reconciled.
    #[error("the effect is not ambiguous")]
    NotAmbiguous,
    /// Only what was definitely not done can be done by a copy.
    #[error("the effect is not released")]
    NotReleased,
    /// It has been done, and nothing says that it is to be done again.
    #[error("the last attempt was executed")]
    AlreadyDone,
    /// There can be no evidence of an attempt that has not begun.
    #[error("this attempt has not begun")]
    NotBegun,
}

/// Where `standing` leads with `step`, taken by the process of `epoch`. Pure, and the only way from
/// one state to another.
pub fn advance(standing: Standing, step: &Step, epoch: u64) -> Result<Standing, Illegal> {
    match step {
        Step::Begin { attempt } => match standing {
            Standing::Intended(_) if standing.attempt() != *attempt => Err(Illegal::OtherAttempt),
            Standing::Intended(intended) => Ok(Standing::InFlight(intended.begin(epoch))),
            Standing::InFlight(_) => Err(Illegal::InWork),
            Standing::Withheld(_)
            | Standing::Done(_)
            | Standing::Refused(_)
            | Standing::Ambiguous(_) => Err(Illegal::NotIntended),
        },
        Step::Settle { attempt, outcome, evidence, .. } => {
            if standing.attempt() != *attempt {
                return Err(Illegal::OtherAttempt);
            }
            let Standing::InFlight(flight) = standing else { return Err(Illegal::NotInFlight) };
            if flight.epoch() != epoch {
                return Err(Illegal::NotInFlight);
            }
            let evidence = evidence.clone();
            Ok(match outcome {
                Outcome::Done => Standing::Done(flight.done(evidence)),
                Outcome::Refused => Standing::Refused(flight.refused(evidence)),
                Outcome::Ambiguous => Standing::Ambiguous(flight.lost(evidence)),
            })
        }
        Step::Evidence { attempt, .. } => {
            let has_begun = match &standing {
                Standing::Intended(_) => *attempt < standing.attempt(),
                Standing::Withheld(_) => false,
                Standing::InFlight(_)
                | Standing::Done(_)
                | Standing::Refused(_)
                | Standing::Ambiguous(_) => *attempt <= standing.attempt(),
            };
            if has_begun && *attempt > 0 { Ok(standing) } else { Err(Illegal::NotBegun) }
        }
        Step::Renew => match standing {
            Standing::Refused(refused) => Ok(Standing::InFlight(refused.renew(epoch))),
            Standing::Intended(_) | Standing::InFlight(_) => Err(Illegal::InWork),
            Standing::Withheld(_) | Standing::Done(_) | Standing::Ambiguous(_) => {
                Err(Illegal::NotReleased)
            }
        },
        Step::ReplayUndone(_) if matches!(standing, Standing::Done(_)) => Err(Illegal::AlreadyDone),
        Step::ReplayUndone(by) | Step::Replay(by) => Ok(Standing::Intended(match standing {
            Standing::Intended(_) | Standing::InFlight(_) => return Err(Illegal::InWork),
            Standing::Withheld(withheld) => withheld.replay(by),
            Standing::Done(done) => done.replay(by),
            Standing::Refused(refused) => refused.replay(by),
            Standing::Ambiguous(ambiguous) => ambiguous.replay(by),
        })),
        Step::Reconcile { by, found, evidence } => {
            let Standing::Ambiguous(lost) = standing else { return Err(Illegal::NotAmbiguous) };
            let evidence = evidence.clone();
            Ok(match found {
                Answer::Done => Standing::Done(lost.found_done(by, evidence)),
                Answer::Refused => Standing::Refused(lost.found_refused(by, evidence)),
            })
        }
    }
}

impl Standing {
    /// Where the effect stands after the process that may have been doing it is gone: what was in
    /// flight under another epoch is lost, everything else is as it was.
    pub fn recovered(self, epoch: u64, evidence: Evidence) -> Self {
        if let Self::InFlight(flight) = &self
            && flight.epoch() != epoch
        {
            return Self::Ambiguous(flight.clone().lost(evidence));
        }
        self
    }
}
