//! Runs retention by trusted time: logs what each round removed, and stops while the clock is ahead of
//! trusted time without an explanation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_core::{Age, CLOCK_STEP_MAX, Clock, ClockState, Fault, Millis, Monotonic, TrustedTime};
use tokio::sync::Notify;

use crate::port::{ClockConfirmation, KnownTime, Retention, SweepResult};

/// Pause between rounds. Longer pauses make larger, cheaper removals.
pub const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Slices after which a long round logs its progress.
const SLICES_LOGGED: u32 = 10_000;

/// Clock of a round: wall time, and monotonic time.
pub trait SweepClock: Clock + Monotonic {}

impl<C: Clock + Monotonic> SweepClock for C {}

/// Decides whether retention may remove anything, and counts what it removed.
#[derive(Debug)]
pub struct RetentionGuard {
    gap_max: Age,
    state: Mutex<GuardState>,
    /// Notified when an operator has confirmed the clock, so that a round runs at once.
    confirmed: Notify,
    removed: RemovedTotals,
}

#[derive(Debug, Default)]
struct GuardState {
    time: Option<TrustedTime>,
    confirmations: u64,
    jump: Option<ClockJump>,
    /// Whether it was logged that the ledger's trusted time is ahead of this clock.
    was_behind: bool,
}

/// A clock that is ahead of trusted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// Trusted time.
    pub trusted: Millis,
    /// Time shown by the clock.
    pub wall: Millis,
}

/// Removals since start.
#[derive(Debug, Default)]
struct RemovedTotals {
    bodies: AtomicU64,
    keys: AtomicU64,
    admissions: AtomicU64,
    sightings: AtomicU64,
}

impl RetentionGuard {
    /// A guard that accepts a gap of up to `gap_max` before a start as downtime.
    pub fn new(gap_max: Age) -> Self {
        Self {
            gap_max,
            state: Mutex::default(),
            confirmed: Notify::new(),
            removed: RemovedTotals::default(),
        }
    }

    /// Returns the clock jump that stops retention, if any.
    pub fn jump(&self) -> Option<ClockJump> {
        self.state().jump
    }

    /// Removals since start, by kind.
    pub fn removed(&self) -> [(&'static str, u64); 4] {
        let RemovedTotals { bodies, keys, admissions, sightings } = &self.removed;
        [
            ("bodies", bodies.load(Relaxed)),
            ("keys", keys.load(Relaxed)),
            ("admissions", admissions.load(Relaxed)),
            ("sightings", sightings.load(Relaxed)),
        ]
    }

    /// Runs rounds with a pause of [`SWEEP_EVERY`] for as long as it is polled. A fault is logged and
    /// retried. Returns at once if the ledger has no retention.
    pub async fn run_sweeps(&self, ledger: &dyn Retention, clock: &dyn SweepClock) {
        if ledger.horizon().age().is_none() {
            return;
        }
        loop {
            if let Err(fault) = self.round(ledger, clock).await {
                tracing::warn!(%fault, "retention failed, no data is affected; will retry");
            }
            let pause = tokio::time::sleep(SWEEP_EVERY);
            tokio::select! { () = pause => {}, () = self.confirmed.notified() => {} }
        }
    }

    /// Removes what is due by trusted time, slice after slice, and logs it. Removes nothing while the clock
    /// is ahead.
    pub async fn round(
        &self,
        ledger: &dyn Retention,
        clock: &dyn SweepClock,
    ) -> Result<SweepResult, Fault> {
        let mut all = SweepResult::default();
        let Some(age) = ledger.horizon().age() else { return Ok(all) };
        let known = ledger.known_time().await?;
        self.learn(known, clock);
        let mut slices = 0;
        // Checked for each slice: the clock may jump during a long round.
        while let Some(now) = self.observe(clock) {
            if slices == 0 {
                self.log_put_back(known, now);
                ledger.note_time(now).await?;
            }
            let swept = ledger.sweep(now).await?;
            self.count(&swept);
            add(&mut all, &swept);
            slices += 1;
            if !swept.more || slices % SLICES_LOGGED == 0 {
                log(&all, before(now, age));
            }
            if !swept.more {
                break;
            }
        }
        Ok(all)
    }

    /// Records that `principal` confirms the clock, and resumes retention. Returns `None` and records
    /// nothing if retention is not stopped.
    pub async fn confirm(
        &self,
        ledger: &dyn Retention,
        clock: &dyn SweepClock,
        principal: &str,
        reason: Option<String>,
    ) -> Result<Option<ClockConfirmation>, Fault> {
        let Some(jump) = self.jump() else { return Ok(None) };
        let confirmation = ClockConfirmation {
            confirmed_at: clock.now(),
            trusted_at: jump.trusted,
            principal: principal.to_owned(),
            reason,
        };
        ledger.confirm_time(confirmation.clone()).await?;
        let known = ledger.known_time().await?;
        let mut state = self.state();
        if let Some(time) = &mut state.time {
            time.confirm(confirmation.confirmed_at, clock.elapsed());
        }
        state.confirmations = known.confirmations;
        state.jump = None;
        drop(state);
        tracing::warn!(
            principal,
            time = %confirmation.confirmed_at,
            trusted_before = %confirmation.trusted_at,
            "the clock was confirmed, retention resumes"
        );
        self.confirmed.notify_one();
        Ok(Some(confirmation))
    }

    /// Loads trusted time from the ledger, again after an operator has confirmed a clock at another gate.
    fn learn(&self, known: KnownTime, clock: &dyn SweepClock) {
        let mut state = self.state();
        if state.time.is_none() || state.confirmations != known.confirmations {
            let (wall, elapsed) = (clock.now(), clock.elapsed());
            state.time = Some(TrustedTime::start(known.at, wall, elapsed, self.gap_max));
            state.confirmations = known.confirmations;
        }
    }

    /// Returns the time up to which to sweep; `None` while the clock is ahead.
    fn observe(&self, clock: &dyn SweepClock) -> Option<Millis> {
        let mut state = self.state();
        match state.time.as_mut()?.observe(clock.now(), clock.elapsed()) {
            ClockState::Trusted(now) => {
                if state.jump.take().is_some() {
                    tracing::info!(time = %now, "the clock agrees with trusted time again, retention resumes");
                }
                Some(now)
            }
            ClockState::Jumped { trusted, wall } => {
                if state.jump.replace(ClockJump { trusted, wall }).is_none() {
                    tracing::warn!(
                        clock = %wall,
                        trusted_time = %trusted,
                        "the clock is ahead of trusted time, retention has stopped and removes nothing; \
                         if the clock is right, run: admit ledger confirm-time"
                    );
                }
                None
            }
        }
    }

    /// Logs once that trusted time is set back to this clock. It may be with every round while the gates of
    /// a ledger disagree.
    fn log_put_back(&self, known: KnownTime, now: Millis) {
        let ahead = known.at.filter(|at| *at > CLOCK_STEP_MAX.after(now));
        let was_behind = std::mem::replace(&mut self.state().was_behind, ahead.is_some());
        if let Some(noted) = ahead.filter(|_| !was_behind) {
            tracing::warn!(
                clock = %now,
                trusted_time = %noted,
                "the clock is behind the trusted time of the ledger, which is set back to the clock; \
                 this removes nothing, but check the clock of each gate of this ledger"
            );
        }
    }

    fn count(&self, swept: &SweepResult) {
        self.removed.bodies.fetch_add(swept.bodies, Relaxed);
        self.removed.keys.fetch_add(swept.keys, Relaxed);
        self.removed.admissions.fetch_add(swept.admissions, Relaxed);
        self.removed.sightings.fetch_add(swept.sightings, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(all: &mut SweepResult, swept: &SweepResult) {
    all.bodies += swept.bodies;
    all.keys += swept.keys;
    all.admissions += swept.admissions;
    all.sightings += swept.sightings;
}

/// Logs a round that removed something.
fn log(all: &SweepResult, up_to: Millis) {
    let SweepResult { bodies, keys, admissions, sightings, .. } = *all;
    if bodies + keys + admissions + sightings > 0 {
        tracing::info!(bodies, keys, admissions, sightings, received_before = %up_to, "retention removed expired data");
    }
}

fn before(now: Millis, age: Age) -> Millis {
    Millis(now.0.saturating_sub_unsigned(age.as_millis()))
}
