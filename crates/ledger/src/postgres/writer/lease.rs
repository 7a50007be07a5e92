//! The lease of a gate: as long as it is alive, nobody else touches the effects it performs.
//!
//! A gate says in time that it is alive, in its own commits and by the clock of the database. One
//! that was late is a new gate: it takes a new epoch in the transaction that notices, and what it
//! had in flight is what a dead gate left. Only as long as nobody has looked after it may the gate
//! still say how it ended, for it has not died after all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::conn::{Columns, Conn, Result, big};
use super::super::head::millis;
use super::super::{Options, bus_holder, sql, text};
use crate::port::StoreId;

/// So many epochs of its own a gate remembers: enough for whatever it may still have in flight.
const EPOCHS_MAX: usize = 64;

/// The epochs that one process has had. Every late renewal adds one.
#[derive(Debug)]
pub(in super::super) struct Epochs(Mutex<Terms>);

#[derive(Debug)]
struct Terms {
    all: Vec<u64>,
    /// When the last lease had run out.
    started_over: Option<Instant>,
    /// The bus in a folder that this process holds.
    bus: Option<StoreId>,
}

impl Epochs {
    fn new(epoch: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Terms { all: vec![epoch], started_over: None, bus: None })))
    }

    fn lock(&self) -> MutexGuard<'_, Terms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_over(&self, epoch: u64) {
        let mut terms = self.lock();
        if terms.all.len() >= EPOCHS_MAX {
            terms.all.remove(0);
        }
        terms.all.push(epoch);
        terms.started_over = Some(Instant::now());
    }

    /// The present one.
    pub(in super::super) fn current(&self) -> u64 {
        self.lock().all.last().copied().unwrap_or_default()
    }

    /// All of them, the present one last.
    pub(in super::super) fn all(&self) -> Vec<u64> {
        self.lock().all.clone()
    }

    /// This process holds a bus from now on.
    pub(in super::super) fn hold(&self, bus: StoreId) {
        self.lock().bus = Some(bus);
    }

    fn bus(&self) -> Option<StoreId> {
        self.lock().bus
    }

    /// Whether this gate may take others for dead. Where its own lease ran out just now, theirs may
    /// have for the same reason, and they get the time of one lease to say that they live.
    fn may_judge(&self, lease: Duration) -> bool {
        self.lock().started_over.is_none_or(|at| at.elapsed() > lease)
    }
}

/// The lease of this gate.
#[derive(Debug)]
pub(in super::super) struct Lease {
    owner: String,
    is_named: bool,
    length: Duration,
    epoch: u64,
    renewed: Instant,
    /// The epoch and the renewal of the open transaction, which count once it is durable.
    pending: Option<(u64, Instant)>,
    shared: Arc<Epochs>,
}

impl Lease {
    /// Takes the next epoch.
    pub(in super::super) fn take(conn: &Conn, options: &Options) -> Result<Self> {
        let Options { owner, lease: length, is_named, .. } = options;
        if *is_named {
            conn.execute(sql!("gate_supersede"), &[&text::kept(owner)])?;
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

    /// The epochs, for whoever asks from outside.
    pub(in super::super) fn shared(&self) -> Arc<Epochs> {
        Arc::clone(&self.shared)
    }

    pub(in super::super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Every epoch of this process.
    pub(super) fn own(&self) -> Vec<u64> {
        self.shared.all()
    }

    /// Whether the open transaction, of `epoch`, may take other gates for dead.
    pub(super) fn may_judge(&self, epoch: u64) -> bool {
        epoch == self.epoch && self.shared.may_judge(self.length)
    }

    /// How long until the gate has to say that it is alive.
    pub(super) fn until_due(&self) -> Duration {
        (self.length / 3).saturating_sub(self.renewed.elapsed())
    }

    /// Whether others may have taken this gate for dead.
    pub(super) fn has_run_out(&self) -> bool {
        self.renewed.elapsed() >= self.length
    }

    /// The length, when it is time to say it.
    pub(super) fn renewal(&self) -> Option<Duration> {
        self.until_due().is_zero().then_some(self.length)
    }

    /// A transaction has begun that renews it.
    pub(super) fn renews(&mut self, began: Instant) {
        self.pending = Some((self.epoch, began));
    }

    /// Whether another process has started under the name that is this gate's alone.
    pub(super) fn is_taken(&self, conn: &Conn) -> Result<bool> {
        let asked =
            || conn.query_opt(sql!("gate_newer"), &[&text::kept(&self.owner), &big(self.epoch)]);
        Ok(self.is_named && asked()?.is_some())
    }

    /// Whether another gate took the bus of this one while its lease had run out.
    pub(super) fn bus_is_taken(&self, conn: &Conn) -> Result<bool> {
        let Some(bus) = self.shared.bus() else { return Ok(false) };
        bus_holder::is_taken(conn, bus, &self.own())
    }

    /// It had run out: a new epoch, in the open transaction.
    pub(super) fn start_over(&mut self, conn: &Conn, began: Instant) -> Result<u64> {
        let epoch = start(conn, &self.owner, self.length)?;
        if let Some(bus) = self.shared.bus() {
            bus_holder::put(conn, bus, epoch)?;
        }
        tracing::warn!(
            was = self.epoch,
            is = epoch,
            "the lease of this gate ran out, what it had in flight is ambiguous"
        );
        self.pending = Some((epoch, began));
        Ok(epoch)
    }

    pub(super) fn committed(&mut self) {
        if let Some((epoch, renewed)) = self.pending.take() {
            if epoch != self.epoch {
                self.shared.start_over(epoch);
            }
            (self.epoch, self.renewed) = (epoch, renewed);
        }
    }

    pub(super) fn rolled_back(&mut self) {
        self.pending = None;
    }

    /// The gate stops.
    pub(super) fn give_up(&self, conn: &Conn) -> Result<()> {
        conn.execute(sql!("gate_stop"), &[&big(self.epoch)])?;
        Ok(())
    }
}

/// Starts by the clock of the database, as everything about leases goes.
fn start(conn: &Conn, owner: &str, length: Duration) -> Result<u64> {
    let owner = text::kept(owner);
    conn.query_one(sql!("gate_start"), &[&owner, &millis(length)])?.num("epoch")
}
