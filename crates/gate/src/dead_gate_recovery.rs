//! Recovery of the unfinished work of dead gates, while this gate serves.
//!
//! A gate that uses its ledger alone recovers once, before its doors open. Where several gates share a
//! ledger, one may die while others run. The ledger detects that by its expired lease, and a live gate
//! does the recovery that the next start of the dead gate would have done. The first gate that scans
//! does it; the others find nothing left.

use std::sync::Arc;
use std::time::Duration;

use admit_core::Fault;
use tokio::time::sleep;

use crate::gate::Gate;
use crate::gateway_delivery;

/// Scans during the lifetime of one lease.
const SCANS_PER_LEASE: u32 = 3;

/// Scans repeatedly until the gate drains. Returns at once for a ledger with a single gate.
pub(crate) async fn run(gate: Arc<Gate>) {
    let Some(lease) = gate.ledger.lease() else { return };
    let interval = lease / SCANS_PER_LEASE;
    loop {
        tokio::select! {
            () = gate.drain.cancelled() => return,
            () = sleep(jittered(interval)) => {}
        }
        if let Err(fault) = scan(&gate).await {
            // Debug: an unavailable ledger is logged elsewhere, and the next scan retries.
            tracing::debug!(%fault, "dead-gate recovery scan failed; will retry");
        }
    }
}

/// Spreads the scans of gates that started together.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.75 + f64::from(std::process::id() % 100) / 200.0)
}

/// Marks effects that dead gates had in flight as ambiguous, and performs those they had not begun.
async fn scan(gate: &Arc<Gate>) -> Result<(), Fault> {
    for ingest in gate.ingests() {
        ingest.recover_dead_gates().await?;
    }
    if let Some(reports) = &gate.run_reports {
        Arc::clone(reports).recover().await?;
    }
    gate.recover_publications().await?;
    for effect in gateway_delivery::recover(gate).await?.intended {
        tracing::info!(seq = effect.seq.0, "resuming an effect of a dead gate");
        let gate_of_task = Arc::clone(gate);
        gate.tasks.spawn(async move { gateway_delivery::resume(&gate_of_task, &effect).await });
    }
    Ok(())
}
