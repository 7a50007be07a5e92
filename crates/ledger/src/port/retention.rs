//! Port of retention: removes expired data in small slices.

use admit_core::{Fault, Horizon, Millis};

use super::BoxFuture;

/// Removes expired data. Does nothing in a ledger opened without a retention age.
///
/// Bodies go first, at every door. Of events that carry the producer's wall time, the admission, its
/// sightings and its key follow once they are older than the age plus
/// [a margin](admit_core::KEY_MARGIN). Everything else about an event without a wall time stays.
pub trait Retention: Send + Sync {
    /// The retention horizon. Contracts refuse events outside of it.
    fn horizon(&self) -> Horizon;

    /// Removes one bounded slice of what has expired at `now`, in a shared commit. The position is part of
    /// that commit, so a restart resumes there.
    fn sweep(&self, now: Millis) -> BoxFuture<'_, Result<SweepResult, Fault>>;

    /// The newest trusted time. At start it is what earlier processes stored, or else when the newest
    /// event was received.
    fn known_time(&self) -> BoxFuture<'_, Result<KnownTime, Fault>>;

    /// Stores `at` as trusted time. An earlier time sets it back, so that a wrong clock leaves no trace
    /// once corrected; a difference below [`CLOCK_STEP_MAX`](admit_core::CLOCK_STEP_MAX) may be ignored.
    fn note_time(&self, at: Millis) -> BoxFuture<'_, Result<(), Fault>>;

    /// Records that an operator confirms a clock. `confirmed_at` becomes the trusted time, be it earlier or
    /// later than before.
    fn confirm_time(&self, confirmation: ClockConfirmation) -> BoxFuture<'_, Result<(), Fault>>;
}

/// Newest trusted time of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownTime {
    /// `None` in a ledger without events.
    pub at: Option<Millis>,
    /// Number of clock confirmations so far.
    pub confirmations: u64,
}

/// Confirmation of a clock by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockConfirmation {
    /// Time shown by the clock.
    pub confirmed_at: Millis,
    /// Trusted time before.
    pub trusted_at: Millis,
    /// Principal of the operator.
    pub principal: String,
    /// Reason, if given.
    pub reason: Option<String>,
}

/// Removals of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Raw bodies.
    pub bodies: u64,
    /// Keys; an event under one of them is outside the horizon.
    pub keys: u64,
    /// Admissions with their facts.
    pub admissions: u64,
    /// Sightings of them.
    pub sightings: u64,
    /// `true` if more can be removed at once.
    pub more: bool,
}
