//! The lease of a gate: as long as it is alive, nobody else touches the effects it performs.
//!
//! A gate says in time that it is alive, in its own commits and by the clock of the database. One
//! that was late is a new gate: it takes a new epoch in the transaction that notices, and what it
//! had in flight is what a dead gate left.

use std::time::{Duration, Instant};

use admit_core::Millis;

use super::super::conn::{Columns, Conn, Result, big};
use super::super::head::millis;
use super::super::{sql, text};

/// The lease of this gate.
#[derive(Debug)]
pub(in super::super) struct Lease {
    owner: String,
    length: Duration,
    epoch: u64,
    renewed: Instant,
    /// The epoch and the renewal of the open transaction, which count once it is durable.
    pending: Option<(u64, Instant)>,
    shared: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Lease {
    /// Takes the next epoch.
    pub(in super::super) fn take(
        conn: &Conn,
        owner: &str,
        length: Duration,
        now: Millis,
    ) -> Result<Self> {
        let renewed = Instant::now();
        let epoch = start(conn, owner, length, now)?;
        let owner = owner.to_owned();
        let shared = std::sync::Arc::new(epoch.into());
        Ok(Self { owner, length, epoch, renewed, pending: None, shared })
    }

    /// The epoch, for whoever asks from outside.
    pub(in super::super) fn shared(&self) -> std::sync::Arc<std::sync::atomic::AtomicU64> {
        std::sync::Arc::clone(&self.shared)
    }

    pub(in super::super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How long until the gate has to say that it is alive.
    pub(super) fn until_due(&self) -> Duration {
        (self.length / 3).saturating_sub(self.renewed.elapsed())
    }

    /// The length, when it is time to say it.
    pub(super) fn renewal(&self) -> Option<Duration> {
        self.until_due().is_zero().then_some(self.length)
    }

    /// A transaction has begun that renews it.
    pub(super) fn renews(&mut self, began: Instant) {
        self.pending = Some((self.epoch, began));
    }

    /// It had run out: a new epoch, in the open transaction.
    pub(super) fn start_over(&mut self, conn: &Conn, began: Instant) -> Result<u64> {
        let now = conn.query_one(sql!("now"), &[])?.millis(0)?;
        let epoch = start(conn, &self.owner, self.length, now)?;
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
            (self.epoch, self.renewed) = (epoch, renewed);
            self.shared.store(epoch, std::sync::atomic::Ordering::Release);
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

fn start(conn: &Conn, owner: &str, length: Duration, now: Millis) -> Result<u64> {
    let owner = text::kept(owner);
    conn.query_one(sql!("gate_start"), &[&owner, &now.0, &millis(length)])?.num("epoch")
}
