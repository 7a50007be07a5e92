//! Effect states, one type each.

use super::{Attribution, Evidence};

/// Planned; not performed until an operator requests it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld(());

/// To be performed. Nothing was sent yet, so a restart may resume it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intended {
    attempt: u32,
}

/// Performed by the process with `epoch`. Bytes may have been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    attempt: u32,
    epoch: u64,
}

/// Performed, with evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    attempt: u32,
    evidence: Evidence,
}

/// Definitely not performed, with evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    attempt: u32,
    evidence: Evidence,
}

/// Unknown outcome, until an operator reconciles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    attempt: u32,
    evidence: Evidence,
}

impl Withheld {
    /// Creates a plan that waits for an operator.
    pub fn new() -> Self {
        Self(())
    }

    /// Starts the first attempt on operator request.
    pub fn replay(self, _: &Attribution) -> Intended {
        Intended { attempt: 1 }
    }
}

impl Default for Withheld {
    fn default() -> Self {
        Self::new()
    }
}

impl Intended {
    /// Creates the first attempt.
    pub fn new() -> Self {
        Self { attempt: 1 }
    }

    /// Begins the attempt in the process with `epoch`.
    pub fn begin(self, epoch: u64) -> InFlight {
        InFlight { attempt: self.attempt, epoch }
    }
}

impl Default for Intended {
    fn default() -> Self {
        Self::new()
    }
}

impl InFlight {
    /// Settles the attempt as performed.
    pub fn done(self, evidence: Evidence) -> Done {
        Done { attempt: self.attempt, evidence }
    }

    /// Settles the attempt as definitely not performed.
    pub fn refused(self, evidence: Evidence) -> Refused {
        Refused { attempt: self.attempt, evidence }
    }

    /// Settles the attempt as unknown: no response arrived, or the waiting process died.
    pub fn lost(self, evidence: Evidence) -> Ambiguous {
        Ambiguous { attempt: self.attempt, evidence }
    }

    /// Epoch of the performing process.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Done {
    /// Requests another attempt.
    pub fn replay(self, _: &Attribution) -> Intended {
        Intended { attempt: self.attempt + 1 }
    }
}

impl Refused {
    /// Begins an attempt for a copy of the event in the process with `epoch`; the last attempt did
    /// not happen.
    pub fn renew(self, epoch: u64) -> InFlight {
        InFlight { attempt: self.attempt + 1, epoch }
    }

    /// Requests another attempt.
    pub fn replay(self, _: &Attribution) -> Intended {
        Intended { attempt: self.attempt + 1 }
    }
}

impl Ambiguous {
    /// Requests another attempt; the operator accepts that it may happen twice.
    pub fn replay(self, _: &Attribution) -> Intended {
        Intended { attempt: self.attempt + 1 }
    }

    /// Reconciles the attempt as performed.
    pub fn found_done(self, _: &Attribution, evidence: Evidence) -> Done {
        Done { attempt: self.attempt, evidence }
    }

    /// Reconciles the attempt as not performed.
    pub fn found_refused(self, _: &Attribution, evidence: Evidence) -> Refused {
        Refused { attempt: self.attempt, evidence }
    }
}

/// State of an effect, as loaded from a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectState {
    /// See [`Withheld`].
    Withheld(Withheld),
    /// See [`Intended`].
    Intended(Intended),
    /// See [`InFlight`].
    InFlight(InFlight),
    /// See [`Done`].
    Done(Done),
    /// See [`Refused`].
    Refused(Refused),
    /// See [`Ambiguous`].
    Ambiguous(Ambiguous),
}

/// Invalid stored effect state: the file is damaged, or a newer version wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{word:?} with attempt {attempt} is not a valid effect state: the ledger is damaged or was written by a newer version"
)]
pub struct InvalidEffectState {
    word: String,
    attempt: u32,
}

impl EffectState {
    /// Names of all states, in machine order.
    pub const WORDS: [&'static str; 6] =
        ["withheld", "intended", "in_flight", "done", "refused", "ambiguous"];

    /// Restores a stored state.
    pub fn restore(
        word: &str,
        attempt: u32,
        epoch: Option<u64>,
        evidence: Option<Evidence>,
    ) -> Result<Self, InvalidEffectState> {
        match (word, attempt, epoch, evidence) {
            ("withheld", 0, _, _) => Ok(Self::Withheld(Withheld::new())),
            ("intended", 1.., _, _) => Ok(Self::Intended(Intended { attempt })),
            ("in_flight", 1.., Some(epoch), _) => Ok(Self::InFlight(InFlight { attempt, epoch })),
            ("done", 1.., _, Some(evidence)) => Ok(Self::Done(Done { attempt, evidence })),
            ("refused", 1.., _, Some(evidence)) => Ok(Self::Refused(Refused { attempt, evidence })),
            ("ambiguous", 1.., _, Some(evidence)) => {
                Ok(Self::Ambiguous(Ambiguous { attempt, evidence }))
            }
            _ => Err(InvalidEffectState { word: word.to_owned(), attempt }),
        }
    }

    /// Name in the ledger, in metrics and on the wire.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Withheld(_) => "withheld",
            Self::Intended(_) => "intended",
            Self::InFlight(_) => "in_flight",
            Self::Done(_) => "done",
            Self::Refused(_) => "refused",
            Self::Ambiguous(_) => "ambiguous",
        }
    }

    /// Attempt number; 0 before the first.
    pub fn attempt(&self) -> u32 {
        match self {
            Self::Withheld(_) => 0,
            Self::Intended(Intended { attempt })
            | Self::InFlight(InFlight { attempt, .. })
            | Self::Done(Done { attempt, .. })
            | Self::Refused(Refused { attempt, .. })
            | Self::Ambiguous(Ambiguous { attempt, .. }) => *attempt,
        }
    }

    /// Epoch of the performing process, while in flight.
    pub fn epoch(&self) -> Option<u64> {
        if let Self::InFlight(flight) = self { Some(flight.epoch) } else { None }
    }

    /// Evidence of the state.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Withheld(_) | Self::Intended(_) | Self::InFlight(_) => None,
            Self::Done(Done { evidence, .. })
            | Self::Refused(Refused { evidence, .. })
            | Self::Ambiguous(Ambiguous { evidence, .. }) => Some(evidence),
        }
    }

    /// Whether an attempt is in progress or pending.
    pub fn is_in_work(&self) -> bool {
        matches!(self, Self::Intended(_) | Self::InFlight(_))
    }
}
