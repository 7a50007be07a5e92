//! Puts the ingestion gate together: artifacts, contract, and what publishes.

use std::path::Path;
use std::sync::Arc;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_bus::Bus;
use admit_core::Door;
use admit_gate::gateway::Outward;
use admit_gate::ingest::{Ingest, IngestParts};
use admit_gate::{DoorMount, SystemClock};
use admit_ledger::sqlite::SqliteLedger;

use crate::config::Config;
use crate::output::{Failure, with_cause};

/// The door with everything behind it.
pub(crate) fn mount(
    config: &Config,
    base: &Path,
    ledger: &Arc<SqliteLedger>,
    bus: Arc<dyn Bus>,
) -> Result<DoorMount, Failure> {
    let ingestion = &config.doors.ingestion_gate;
    let is_open = config.principals.is_empty();
    let root = config.artifacts_root().map_err(Failure::usage)?;
    let artifacts = LocalArtifacts::open(local::Options::new(&root));
    let artifacts = artifacts.map_err(|error| with_cause(&error))?;
    let contract = ingestion
        .contract(base, &root, is_open, config.limits.json_depth_max)
        .map_err(Failure::usage)?;
    for warning in contract.policy().warnings() {
        tracing::warn!(warning, "the policy of the ingestion gate");
    }
    let contract = Arc::new(contract);
    let ingest = Ingest::new(IngestParts {
        contract: contract.clone(),
        ledger: ledger.clone(),
        reader: ledger.clone(),
        bus,
        artifacts: Arc::new(artifacts),
        clock: Arc::new(SystemClock),
        settings: ingestion.settings(base, is_open).map_err(Failure::usage)?,
    });
    let header = ingestion.api_key_header.parse();
    Ok(DoorMount {
        door: Door::new("ingestion-gate"),
        path: ingestion.path.clone(),
        api_key_header: header.map_err(|error| Failure::usage(format!("{error}")))?,
        contract,
        outward: Outward::publishing(ingest),
    })
}
