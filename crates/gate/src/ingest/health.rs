//! Health of the ingestion gate (GREEN, AMBER or RED), from periodic probes and publish results.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use admit_bus::{BusHealth, PublishOutcome};
use admit_contracts::ingestion_gate::health::{self, BusProbe, HealthState, ProbeResults};
use admit_core::json::{Object, write_object};
use bytes::Bytes;
use tokio::time::sleep;

use super::Ingest;

/// Latest probe results of the door's dependencies.
#[derive(Debug)]
pub(super) struct ProbeCache {
    can_write_artifacts: AtomicBool,
    read_failures: AtomicU32,
    bus: Mutex<BusProbe>,
    /// Reason given by the bus while it is not up.
    bus_error: Mutex<Option<String>>,
    publish_failures: AtomicU32,
    is_amber: AtomicBool,
    last: Mutex<Option<HealthState>>,
}

impl Default for ProbeCache {
    fn default() -> Self {
        Self {
            can_write_artifacts: AtomicBool::new(true),
            read_failures: AtomicU32::new(0),
            bus: Mutex::new(BusProbe::Unknown),
            bus_error: Mutex::default(),
            publish_failures: AtomicU32::new(0),
            is_amber: AtomicBool::new(false),
            last: Mutex::default(),
        }
    }
}

impl ProbeCache {
    /// Counts consecutive publish failures; a success resets the count.
    pub(super) fn count_outcomes<'p>(&self, outcomes: impl Iterator<Item = &'p PublishOutcome>) {
        for outcome in outcomes {
            match outcome {
                PublishOutcome::Committed(_) => self.publish_failures.store(0, Relaxed),
                PublishOutcome::NotWritten { .. } | PublishOutcome::Unknown { .. } => {
                    self.publish_failures.fetch_add(1, Relaxed);
                }
            }
        }
    }

    pub(super) fn is_amber(&self) -> bool {
        self.is_amber.load(Relaxed)
    }

    fn bus(&self) -> BusProbe {
        *self.bus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ingest {
    /// Computes the health from the last probes and the publishes since.
    pub(crate) fn health(&self) -> health::DoorHealth {
        let probes = ProbeResults {
            can_write_artifacts: self.health.can_write_artifacts.load(Relaxed),
            read_failures: self.health.read_failures.load(Relaxed),
            is_ledger_up: self.reader.is_healthy(),
            bus: self.health.bus(),
            publish_failures: self.health.publish_failures.load(Relaxed),
        };
        let health = health::DoorHealth::of(&probes, &self.settings.rules);
        self.health.is_amber.store(health.state == HealthState::Amber, Relaxed);
        let mut last = self.health.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != Some(health.state) {
            let (state, reasons) = (health.state.as_str(), health.reasons.join(" "));
            match health.state {
                HealthState::Green if last.is_none() => tracing::debug!(state, "healthy"),
                HealthState::Green => tracing::info!(state, "the ingestion gate is healthy again"),
                HealthState::Amber | HealthState::Red => {
                    tracing::warn!(state, reasons, "the ingestion gate is not healthy");
                }
            }
            *last = Some(health.state);
        }
        health
    }

    /// Reason given by the bus in the last probe, if it was not up.
    pub(crate) fn bus_error(&self) -> Option<String> {
        self.health.bus_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Probes whether the artifacts can be written now.
    pub(super) async fn can_write(&self) -> bool {
        // Separate from the periodic probe file, which is read back.
        let path = format!("{}.behind", self.contract.paths().probe());
        let written = self.artifacts.probe(&path, Bytes::from_static(b"{}\n")).await.is_ok();
        self.health.can_write_artifacts.store(written, Relaxed);
        written
    }

    pub(super) fn run_probe_loop(self: Arc<Self>) -> super::IngestLoop {
        Box::pin(async move {
            loop {
                sleep(self.settings.probe_every).await;
                self.probe().await;
            }
        })
    }

    /// Probes the artifacts and the bus.
    pub(super) async fn probe(&self) {
        let now = self.clock.now();
        let content = Object::from_iter([("probed_at", now.to_rfc3339_millis().into())]);
        let mut bytes = Vec::new();
        write_object(&content, &mut bytes);
        bytes.push(b'\n');
        let path = self.contract.paths().probe();
        let bytes = Bytes::from(bytes);
        let written = self.artifacts.probe(&path, bytes.clone()).await;
        if let Err(error) = &written {
            tracing::warn!(%error, "artifacts probe failed: cannot write");
        }
        self.health.can_write_artifacts.store(written.is_ok(), Relaxed);
        if written.is_ok() {
            match self.artifacts.get(&path).await {
                Ok(Some(read)) if read == bytes => self.health.read_failures.store(0, Relaxed),
                read => {
                    tracing::warn!(?read, "artifacts probe failed: cannot read back");
                    self.health.read_failures.fetch_add(1, Relaxed);
                }
            }
        }
        let (bus, error) = match self.bus.health(&self.contract.topics()).await {
            BusHealth::Up => {
                // Consecutive failures close the door; only a probe opens it again.
                self.health.publish_failures.store(0, Relaxed);
                (BusProbe::Up, None)
            }
            BusHealth::Unknown { reason } => {
                tracing::debug!(reason, "the health of the bus is unknown");
                (BusProbe::Unknown, Some(reason))
            }
            BusHealth::Down { reason } => {
                tracing::warn!(reason, "the bus is down");
                (BusProbe::Down, Some(reason))
            }
        };
        *self.health.bus_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        *self.health.bus.lock().unwrap_or_else(PoisonError::into_inner) = bus;
        self.health();
    }
}
