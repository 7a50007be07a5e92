//! Puts the ingestion gate together: bus, artifacts, contract.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_bus::file::{self, FileBus};
use admit_core::Door;
use admit_gate::gateway::Outward;
use admit_gate::ingest::{Ingest, IngestParts};
use admit_gate::{DoorMount, SystemClock};

use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::{Failure, with_cause};

/// The bus that the config names. Opening it repairs what a crash left there.
pub(crate) fn open_bus(config: &Config) -> Result<Arc<FileBus>, Failure> {
    let root = config.bus_root().map_err(Failure::usage)?;
    let options = file::Options {
        message_bytes_max: config.limits.body_bytes_max.min(file::MESSAGE_BYTES_CEILING),
        delivery_timeout: Duration::from_millis(config.bus.delivery_timeout_ms),
        ..file::Options::new(root)
    };
    Ok(Arc::new(FileBus::open(options).map_err(|error| with_cause(&error))?))
}

/// The door with everything behind it.
pub(crate) fn mount(
    config: &Config,
    base: &Path,
    ledger: &Arc<dyn GateLedger>,
    bus: Arc<FileBus>,
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
