//! Laws: what must hold between the rows of several tables, each as one query that finds where it does
//! not. Both databases have the same ones.

use admit_core::Seq;

/// A law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Law {
    /// An effect stands where its history ends.
    Effects,
    /// An ambiguous publish is told in its receipt and in its quarantine.
    Ambiguous,
    /// The state and the counters of a run are what its rows say.
    Runs,
    /// A closed run has its closure.
    Closures,
    /// The rows of a scenario run belong together.
    Scenarios,
    /// The events of records belong to admissions and to records.
    Records,
    /// Records and their fields belong to events.
    RecordRows,
}

impl Law {
    /// All of them, in the order in which they are checked.
    pub(crate) const ALL: [Self; 7] = [
        Self::Effects,
        Self::Ambiguous,
        Self::Runs,
        Self::Closures,
        Self::Scenarios,
        Self::Records,
        Self::RecordRows,
    ];

    /// The word for disagreements with it.
    pub(crate) const fn check(self) -> &'static str {
        match self {
            Self::Effects => "effect",
            Self::Ambiguous => "ambiguity",
            Self::Runs => "run",
            Self::Closures => "closure",
            Self::Scenarios => "scenario",
            Self::Records | Self::RecordRows => "record",
        }
    }

    /// Whether it is checked in slices of places; otherwise all at once.
    pub(crate) const fn is_sliced(self) -> bool {
        matches!(self, Self::Effects | Self::Ambiguous | Self::Records)
    }
}

/// Takes what breaks a law: where, if it has a place, and how.
pub(crate) type EachBreach<'f> = dyn FnMut(Option<Seq>, String) + 'f;
