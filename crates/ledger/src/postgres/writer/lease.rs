//! The lease of a gate: while it is alive, no other gate touches the effects it performs.
//!
//! A gate renews its lease in its own commits, by the clock of the database. A gate that was late is a new
//! gate: it takes a new epoch in the transaction that notices, and what it had in flight counts as left by
//! a dead gate. Until another gate has recovered an effect, this one may still settle it, because it has
//! not died after all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::conn::{Columns, Conn, Result, big};
use super::super::head_lock::millis;
use super::super::{Options, bus_holder, nul_escape, sql};
use crate::port::StoreId;

/// Maximum epochs a process remembers: enough for everything it may still have in flight.
const EPOCHS_MAX: usize = 64;

/// The epochs of one process. Every late renewal adds one.
#[derive(Debug)]
pub(in super::super) struct Epochs(Mutex<EpochHistory>);

#[derive(Debug)]
struct EpochHistory {
    all: Vec<u64>,
    /// Time when the last lease had run out.
    epoch_renewed_at: Option<Instant>,
    /// The bus in a folder that this process holds.
    bus: Option<StoreId>,
}

impl Epochs {
    fn new(epoch: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(EpochHistory {
            all: vec![epoch],
            epoch_renewed_at: None,
            bus: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, EpochHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew_epoch(&self, epoch: u64) {
        let mut history = self.lock();
        if history.all.len() >= EPOCHS_MAX {
            history.all.remove(0);
        }
        history.all.push(epoch);
        history.epoch_renewed_at = Some(Instant::now());
    }

    /// The current epoch.
    pub(in super::super) fn current(&self) -> u64 {
        self.lock().all.last().copied().unwrap_or_default()
    }

    /// All epochs, the current one last.
    pub(in super::super) fn all(&self) -> Vec<u64> {
        self.lock().all.clone()
    }

    /// Records that this process holds a bus.
    pub(in super::super) fn hold(&self, bus: StoreId) {
        self.lock().bus = Some(bus);
    }

    fn bus(&self) -> Option<StoreId> {
        self.lock().bus
    }

    /// Whether this gate may treat others as dead. If its own lease ran out just now, theirs may have for the
    /// same reason, so they get one lease duration to renew.
    fn may_recover_others(&self, lease: Duration) -> bool {
        self.lock().epoch_renewed_at.is_none_or(|at| at.elapsed() > lease)
    }
}

/// The lease of this gate.
#[derive(Debug)]
pub(in super::super) struct GateLease {
    owner: String,
    is_named: bool,
    length: Duration,
    epoch: u64,
    renewed: Instant,
    /// Epoch and renewal time of the open transaction, which take effect once it is durable.
    pending: Option<(u64, Instant)>,
    shared: Arc<Epochs>,
}

impl GateLease {
    /// Takes the next epoch.
    pub(in super::super) fn take(conn: &Conn, options: &Options) -> Result<Self> {
        let Options { owner, lease: length, is_named, .. } = options;
        if *is_named {
            conn.execute(sql!("gate_supersede"), &[&nul_escape::escape(owner)])?;
        }
        let renewed = Instant::now();
        let epoch = start(conn, owner, *length)?;
        Ok(Self {
            owner: owner.clone(),
            is_named: *is_named,
            length: *length,
            epoch,
            renewed,
            pending: None,
            shared: Epochs::new(epoch),
        })
    }

    /// The epochs, shared with other components.
    pub(in super::super) fn shared(&self) -> Arc<Epochs> {
        Arc::clone(&self.shared)
    }

    pub(in super::super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// All epochs of this process.
    pub(super) fn own(&self) -> Vec<u64> {
        self.shared.all()
    }

    /// Whether the open transaction, of `epoch`, may treat other gates as dead.
    pub(super) fn may_recover_others(&self, epoch: u64) -> bool {
        epoch == self.epoch && self.shared.may_recover_others(self.length)
    }

    /// Time until the lease has to be renewed.
    pub(super) fn until_due(&self) -> Duration {
        (self.length / 3).saturating_sub(self.renewed.elapsed())
    }

    /// Whether other gates may have treated this one as dead.
    pub(super) fn has_expired(&self) -> bool {
        self.renewed.elapsed() >= self.length
    }

    /// The lease duration, if the renewal is due.
    pub(super) fn renewal(&self) -> Option<Duration> {
        self.until_due().is_zero().then_some(self.length)
    }

    /// The open transaction renews the lease.
    pub(super) fn renews(&mut self, began: Instant) {
        self.pending = Some((self.epoch, began));
    }

    /// Whether another process has started under the name that is exclusive to this gate.
    pub(super) fn is_taken(&self, conn: &Conn) -> Result<bool> {
        let newer = || {
            conn.query_opt(
                sql!("gate_newer"),
                &[&nul_escape::escape(&self.owner), &big(self.epoch)],
            )
        };
        Ok(self.is_named && newer()?.is_some())
    }

    /// Whether another gate took the bus of this one while its lease had run out.
    pub(super) fn bus_is_taken(&self, conn: &Conn) -> Result<bool> {
        let Some(bus) = self.shared.bus() else { return Ok(false) };
        bus_holder::is_taken(conn, bus, &self.own())
    }

    /// Starts a new epoch in the open transaction, because the lease had run out.
    pub(super) fn renew_epoch(&mut self, conn: &Conn, began: Instant) -> Result<u64> {
        let epoch = start(conn, &self.owner, self.length)?;
        if let Some(bus) = self.shared.bus() {
            bus_holder::put(conn, bus, epoch)?;
        }
        tracing::warn!(
            was = self.epoch,
            is = epoch,
            "the lease of this gate expired; its effects in flight are ambiguous"
        );
        self.pending = Some((epoch, began));
        Ok(epoch)
    }

    pub(super) fn committed(&mut self) {
        if let Some((epoch, renewed)) = self.pending.take() {
            if epoch != self.epoch {
                self.shared.renew_epoch(epoch);
            }
            (self.epoch, self.renewed) = (epoch, renewed);
        }
    }

    pub(super) fn rolled_back(&mut self) {
        self.pending = None;
    }

    /// Ends the lease on shutdown.
    pub(super) fn release(&self, conn: &Conn) -> Result<()> {
        conn.execute(sql!("gate_stop"), &[&big(self.epoch)])?;
        Ok(())
    }
}

/// Starts an epoch by the clock of the database, which all leases use.
fn start(conn: &Conn, owner: &str, length: Duration) -> Result<u64> {
    let owner = nul_escape::escape(owner);
    conn.query_one(sql!("gate_start"), &[&owner, &millis(length)])?.num("epoch")
}
