//! Looks after what gates that died have left, while this one serves.
//!
//! A gate that starts alone on its ledger recovers once, before its doors open. Where several share a
//! ledger, a gate may die while others go on; the ledger knows by its lease that it has, and one of
//! the living does for it what its own next start would have done. Whoever is first does it: the
//! others find nothing left.

use std::sync::Arc;
use std::time::Duration;

use admit_core::Fault;
use tokio::time::sleep;

use crate::gate::Gate;
use crate::perform;

/// A lease is looked at so many times while it lasts.
const LOOKS_PER_LEASE: u32 = 3;

/// Looks again and again, as long as the gate takes events. Nothing to do where nobody else writes.
pub(crate) async fn keep_watch(gate: Arc<Gate>) {
    let Some(lease) = gate.ledger.lease() else { return };
    let every = lease / LOOKS_PER_LEASE;
    loop {
        tokio::select! {
            () = gate.drain.cancelled() => return,
            () = sleep(pause(every)) => {}
        }
        if let Err(fault) = look(&gate).await {
            // It has been said already when the ledger is away; the next look makes up for this one.
            tracing::debug!(%fault, "what other gates may have left was not looked after");
        }
    }
}

/// Gates that started together need not look together.
fn pause(every: Duration) -> Duration {
    every.mul_f64(0.75 + f64::from(std::process::id() % 100) / 200.0)
}

/// Makes ambiguous what dead gates had in flight, and takes up what they had not begun.
async fn look(gate: &Arc<Gate>) -> Result<(), Fault> {
    for ingest in gate.ingests() {
        ingest.take_over().await?;
    }
    if let Some(accounts) = &gate.accounts {
        Arc::clone(accounts).recover().await?;
    }
    gate.recover_publications().await?;
    for effect in perform::recover(gate).await?.intended {
        tracing::info!(seq = effect.seq.0, "an effect of a gate that died is taken up");
        let performer = Arc::clone(gate);
        gate.tasks.spawn(async move { perform::resume(&performer, &effect).await });
    }
    Ok(())
}
