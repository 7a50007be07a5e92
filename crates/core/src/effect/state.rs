//! The states an effect can be in, one type each.

use super::{By, Evidence};

/// Planned, and not to be done until a person asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld(());

/// To be done. Nothing has left yet, so a restart may take it up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intended {
    attempt: u32,
}

/// Being done by the process that holds `epoch`. Bytes may have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    attempt: u32,
    epoch: u64,
}

/// Done, and the evidence says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    attempt: u32,
    evidence: Evidence,
}

/// Definitely not done, and the evidence says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    attempt: u32,
    evidence: Evidence,
}

/// Nobody knows whether it was done. It stays so until a person finds out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    attempt: u32,
    evidence: Evidence,
}

impl Withheld {
    /// The state of a plan that waits for a person.
    pub fn new() -> Self {
        Self(())
    }

    /// A person asks for the first attempt.
    pub fn replay(self, _: &By) -> Intended {
        Intended { attempt: 1 }
    }
}

impl Default for Withheld {
    fn default() -> Self {
        Self::new()
    }
}

impl Intended {
    /// The state an effect is recorded in.
    pub fn new() -> Self {
        Self { attempt: 1 }
    }

    /// The process of `epoch` is about to do it.
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
    /// It was done.
    pub fn done(self, evidence: Evidence) -> Done {
        Done { attempt: self.attempt, evidence }
    }

    /// It was definitely not done.
    pub fn refused(self, evidence: Evidence) -> Refused {
        Refused { attempt: self.attempt, evidence }
    }

    /// It may have been done: no answer came, or whoever waited for it died.
    pub fn lost(self, evidence: Evidence) -> Ambiguous {
        Ambiguous { attempt: self.attempt, evidence }
    }

    /// Who is doing it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Done {
    /// A person wants it done once more.
    pub fn replay(self, _: &By) -> Intended {
        Intended { attempt: self.attempt + 1 }
    }
}

impl Refused {
    /// It did not happen, so a copy of the event may do it: the process of `epoch` is about to.
    pub fn renew(self, epoch: u64) -> InFlight {
        InFlight { attempt: self.attempt + 1, epoch }
    }

    /// A person wants it tried once more.
    pub fn replay(self, _: &By) -> Intended {
        Intended { attempt: self.attempt + 1 }
    }
}

impl Ambiguous {
    /// A person accepts that it may happen twice.
    pub fn replay(self, _: &By) -> Intended {
        Intended { attempt: self.attempt + 1 }
    }

    /// A person found out that it was done.
    pub fn found_done(self, _: &By, evidence: Evidence) -> Done {
        Done { attempt: self.attempt, evidence }
    }

    /// A person found out that it was not done.
    pub fn found_refused(self, _: &By, evidence: Evidence) -> Refused {
        Refused { attempt: self.attempt, evidence }
    }
}

/// Where an effect stands: one of the states, as a ledger hands it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
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

/// A stored row that is no state: the file is damaged, or a newer version wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} with attempt {attempt} is no state of an effect")]
pub struct NotAState {
    word: String,
    attempt: u32,
}

impl Standing {
    /// Every word, in the order of the machine.
    pub const WORDS: [&'static str; 6] =
        ["withheld", "intended", "in_flight", "done", "refused", "ambiguous"];

    /// The state that a ledger has written down.
    pub fn restore(
        word: &str,
        attempt: u32,
        epoch: Option<u64>,
        evidence: Option<Evidence>,
    ) -> Result<Self, NotAState> {
        match (word, attempt, epoch, evidence) {
            ("withheld", 0, _, _) => Ok(Self::Withheld(Withheld::new())),
            ("intended", 1.., _, _) => Ok(Self::Intended(Intended { attempt })),
            ("in_flight", 1.., Some(epoch), _) => Ok(Self::InFlight(InFlight { attempt, epoch })),
            ("done", 1.., _, Some(evidence)) => Ok(Self::Done(Done { attempt, evidence })),
            ("refused", 1.., _, Some(evidence)) => Ok(Self::Refused(Refused { attempt, evidence })),
            ("ambiguous", 1.., _, Some(evidence)) => {
                Ok(Self::Ambiguous(Ambiguous { attempt, evidence }))
            }
            _ => Err(NotAState { word: word.to_owned(), attempt }),
        }
    }

    /// The word for it in the ledger, in metrics and on the wire.
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

    /// Which attempt it is about; 0 before the first.
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

    /// Who is doing it, while it is in flight.
    pub fn epoch(&self) -> Option<u64> {
        if let Self::InFlight(flight) = self { Some(flight.epoch) } else { None }
    }

    /// What the state rests on.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Withheld(_) | Self::Intended(_) | Self::InFlight(_) => None,
            Self::Done(Done { evidence, .. })
            | Self::Refused(Refused { evidence, .. })
            | Self::Ambiguous(Ambiguous { evidence, .. }) => Some(evidence),
        }
    }

    /// Whether somebody is at it, or about to be.
    pub fn is_in_work(&self) -> bool {
        matches!(self, Self::Intended(_) | Self::InFlight(_))
    }
}
