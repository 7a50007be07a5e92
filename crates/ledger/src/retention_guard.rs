//! Runs retention by trusted time: logs what each round removed, and stops while the clock is ahead of
//! what can be explained.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_core::{Age, CLOCK_STEP_MAX, Clock, ClockState, Fault, Millis, Monotonic, TrustedTime};
use tokio::sync::Notify;

use crate::port::{ClockConfirmation, KnownTime, Retention, Swept};

/// How long to wait when there is nothing to remove. Longer makes larger, cheaper removals.
pub const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// A long round is logged each time it has made so many slices.
const SLICES_LOGGED: u32 = 10_000;

/// What drives a round: the wall clock, and time that never steps.
pub trait SweepClock: Clock + Monotonic {}

impl<C: Clock + Monotonic> SweepClock for C {}

/// Decides whether retention may remove anything, and counts what it removed.
#[derive(Debug)]
pub struct RetentionGuard {
    gap_max: Age,
    state: Mutex<GuardState>,
    /// A person has vouched for the clock, so a round is due.
    confirmed: Notify,
    removed: RemovedTotals,
}

#[derive(Debug, Default)]
struct GuardState {
    time: Option<TrustedTime>,
    confirmations: u64,
    jump: Option<ClockJump>,
    /// Whether the ledger's trusted time was ahead of this clock, which has been logged.
    was_behind: bool,
}

/// A clock that is ahead of trusted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// Trusted time.
    pub trusted: Millis,
    /// What the clock showed.
    pub wall: Millis,
}

/// What retention has removed since the start.
#[derive(Debug, Default)]
struct RemovedTotals {
    bodies: AtomicU64,
    keys: AtomicU64,
    admissions: AtomicU64,
    sightings: AtomicU64,
}

impl RetentionGuard {
    /// A guard that takes a gap of up to `gap_max` before a start for downtime.
    pub fn new(gap_max: Age) -> Self {
        Self {
            gap_max,
            state: Mutex::default(),
            confirmed: Notify::new(),
            removed: RemovedTotals::default(),
        }
    }

    /// The jump that stops retention now, if one does.
    pub fn jump(&self) -> Option<ClockJump> {
        self.state().jump
    }

    /// What was removed since the start, by kind.
    pub fn removed(&self) -> [(&'static str, u64); 4] {
        let RemovedTotals { bodies, keys, admissions, sightings } = &self.removed;
        [
            ("bodies", bodies.load(Relaxed)),
            ("keys", keys.load(Relaxed)),
            ("admissions", admissions.load(Relaxed)),
            ("sightings", sightings.load(Relaxed)),
        ]
    }

    /// Sweeps for as long as it is polled: a round, then a pause of [`SWEEP_EVERY`]. A fault is logged
    /// and waited out. In a ledger that keeps everything it returns at once.
    pub async fn keep_swept(&self, ledger: &dyn Retention, clock: &dyn SweepClock) {
        if ledger.horizon().age().is_none() {
            return;
        }
        loop {
            if let Err(fault) = self.round(ledger, clock).await {
                tracing::warn!(%fault, "retention failed, nothing is lost by that; it is tried again");
            }
            let pause = tokio::time::sleep(SWEEP_EVERY);
            tokio::select! { () = pause => {}, () = self.confirmed.notified() => {} }
        }
    }

    /// Removes whatever is due by trusted time, slice after slice, and logs it. Removes nothing while
    /// the clock is ahead.
    pub async fn round(
        &self,
        ledger: &dyn Retention,
        clock: &dyn SweepClock,
    ) -> Result<Swept, Fault> {
        let mut all = Swept::default();
        let Some(age) = ledger.horizon().age() else { return Ok(all) };
        let known = ledger.known_time().await?;
        self.learn(known, clock);
        let mut slices = 0;
        // Looked at for each slice: the clock may jump in the middle of a long round.
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

    /// Records that `principal` vouches for the clock, and lets retention go on. `None` where nothing
    /// is stopped; then nothing is recorded.
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
            "the clock was confirmed, retention goes on"
        );
        self.confirmed.notify_one();
        Ok(Some(confirmation))
    }

    /// Begins with what the ledger knows, and begins anew when a person has vouched for a clock at
    /// another gate.
    fn learn(&self, known: KnownTime, clock: &dyn SweepClock) {
        let mut state = self.state();
        if state.time.is_none() || state.confirmations != known.confirmations {
            let (wall, elapsed) = (clock.now(), clock.elapsed());
            state.time = Some(TrustedTime::start(known.at, wall, elapsed, self.gap_max));
            state.confirmations = known.confirmations;
        }
    }

    /// The time up to which may be swept; `None` while the clock is ahead.
    fn observe(&self, clock: &dyn SweepClock) -> Option<Millis> {
        let mut state = self.state();
        match state.time.as_mut()?.observe(clock.now(), clock.elapsed()) {
            ClockState::Trusted(now) => {
                if state.jump.take().is_some() {
                    tracing::info!(time = %now, "the clock agrees with trusted time again, retention goes on");
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

    /// Logs once that trusted time goes back with this clock. It may do so with every round while the
    /// gates of a ledger disagree.
    fn log_put_back(&self, known: KnownTime, now: Millis) {
        let ahead = known.at.filter(|at| *at > CLOCK_STEP_MAX.after(now));
        let was_behind = std::mem::replace(&mut self.state().was_behind, ahead.is_some());
        if let Some(noted) = ahead.filter(|_| !was_behind) {
            tracing::warn!(
                clock = %now,
                trusted_time = %noted,
                "the clock is behind the trusted time of the ledger, which is put back to the clock; \
                 nothing is removed by that, but look at the clock of each gate of this ledger"
            );
        }
    }

    fn count(&self, swept: &Swept) {
        self.removed.bodies.fetch_add(swept.bodies, Relaxed);
        self.removed.keys.fetch_add(swept.keys, Relaxed);
        self.removed.admissions.fetch_add(swept.admissions, Relaxed);
        self.removed.sightings.fetch_add(swept.sightings, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(all: &mut Swept, swept: &Swept) {
    all.bodies += swept.bodies;
    all.keys += swept.keys;
    all.admissions += swept.admissions;
    all.sightings += swept.sightings;
}

/// One line for each round that removed something.
fn log(all: &Swept, up_to: Millis) {
    let Swept { bodies, keys, admissions, sightings, .. } = *all;
    if bodies + keys + admissions + sightings > 0 {
        tracing::info!(bodies, keys, admissions, sightings, received_before = %up_to, "retention removed what is too old");
    }
}

fn before(now: Millis, age: Age) -> Millis {
    Millis(now.0.saturating_sub_unsigned(age.as_millis()))
}
