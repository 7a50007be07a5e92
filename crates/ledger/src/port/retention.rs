//! Retention: what is older than the operator wants to keep goes, a little at a time.

use admit_core::{Fault, Horizon, Millis};

use super::BoxFuture;

/// Removes what is too old. Does nothing in a ledger that was opened without an age.
///
/// Bodies go first, of every door. Then, only of events that carry the producer's wall time, the
/// admission, its sightings and its key, once it is older than the age and
/// [a margin](admit_core::KEY_MARGIN). Everything else about an event without a wall time stays.
pub trait Retention: Send + Sync {
    /// How far back this ledger remembers. Contracts hold it and refuse what is outside.
    fn horizon(&self) -> Horizon;

    /// Removes one slice of what is too old at `now`: a bounded piece of work in a commit that
    /// others share. Where it stopped is part of that commit, so a restart goes on from there.
    fn sweep(&self, now: Millis) -> BoxFuture<'_, Result<Swept, Fault>>;

    /// The newest time this ledger trusts. At a start it is what earlier processes noted, or else when
    /// the newest event was received.
    fn known_time(&self) -> BoxFuture<'_, Result<KnownTime, Fault>>;

    /// Notes that it was trusted to be `at`. An earlier time puts it back, so that a clock that was wrong
    /// and is corrected leaves nothing behind; less than [`CLOCK_STEP_MAX`](admit_core::CLOCK_STEP_MAX)
    /// may change nothing.
    fn note_time(&self, at: Millis) -> BoxFuture<'_, Result<(), Fault>>;

    /// Records that a person vouches for a clock. From then on `confirmed_at` is the newest time this
    /// ledger trusts, be it earlier or later than before.
    fn confirm_time(&self, confirmation: ClockConfirmation) -> BoxFuture<'_, Result<(), Fault>>;
}

/// The newest time a ledger trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownTime {
    /// `None` in a ledger without events.
    pub at: Option<Millis>,
    /// How often a person has vouched for a clock so far.
    pub confirmations: u64,
}

/// A person's word that a clock is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockConfirmation {
    /// What the clock shows.
    pub confirmed_at: Millis,
    /// Trusted time before that.
    pub trusted_at: Millis,
    /// The principal.
    pub principal: String,
    /// Why, if a reason was given.
    pub reason: Option<String>,
}

/// What one sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Raw bodies.
    pub bodies: u64,
    /// Keys; an event under one of them would be admitted again, were it not outside.
    pub keys: u64,
    /// Admissions with their facts.
    pub admissions: u64,
    /// Sightings of them.
    pub sightings: u64,
    /// `true` when there is more to remove at once.
    pub more: bool,
}
