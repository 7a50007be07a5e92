//! Laws: invariants between the rows of several tables, each as one query that finds violations. Both
//! databases have the same laws.

use admit_core::Seq;

/// A law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Law {
    /// The state of an effect is the last state of its history.
    Effects,
    /// An ambiguous publish is recorded in its receipt and in its quarantine.
    Ambiguous,
    /// The state and the counters of a run match its rows.
    Runs,
    /// A closed run has its closure.
    Closures,
    /// The rows of a scenario run are consistent.
    Scenarios,
    /// The events of records have an admission and a record.
    Records,
    /// Records and their fields have events.
    RecordRows,
}

impl Law {
    /// All laws, in the order in which they are checked.
    pub(crate) const ALL: [Self; 7] = [
        Self::Effects,
        Self::Ambiguous,
        Self::Runs,
        Self::Closures,
        Self::Scenarios,
        Self::Records,
        Self::RecordRows,
    ];

    /// The check name of its inconsistencies.
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

    /// Whether it is checked in slices of seqs; otherwise all at once.
    pub(crate) const fn is_sliced(self) -> bool {
        matches!(self, Self::Effects | Self::Ambiguous | Self::Records)
    }
}

/// Callback that receives a violation: its seq, if any, and a description.
pub(crate) type EachBreach<'f> = dyn FnMut(Option<Seq>, String) + 'f;
