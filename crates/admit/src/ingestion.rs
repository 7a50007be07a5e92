//! Builds the ingestion gate's door: contract, artifacts and publishing.

use std::path::Path;
use std::sync::Arc;

use admit_bus::Bus;
use admit_core::Door;
use admit_gate::gateway::EffectTarget;
use admit_gate::ingest::{Ingest, IngestParts, IngestSettings};
use admit_gate::{DoorMount, SystemClock};

use crate::artifacts;
use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::Failure;

/// Builds the mount of the door.
pub(crate) fn mount(
    config: &Config,
    base: &Path,
    ledger: &Arc<dyn GateLedger>,
    bus: Arc<dyn Bus>,
) -> Result<DoorMount, Failure> {
    let ingestion = &config.doors.ingestion_gate;
    let is_open = config.principals.is_empty();
    let paths = config.artifacts_location().map_err(Failure::usage)?.paths();
    let contract = ingestion
        .contract(base, paths, is_open, config.limits.json_depth_max)
        .map_err(Failure::usage)?;
    for warning in contract.policy().warnings() {
        tracing::warn!(warning, "warning in the ingestion gate's policy");
    }
    let contract = Arc::new(contract);
    let settings = ingestion.settings(base, is_open).map_err(Failure::usage)?;
    let ingest = Ingest::new(IngestParts {
        contract: contract.clone(),
        ledger: ledger.clone(),
        reader: ledger.clone(),
        bus,
        artifacts: artifacts::open(config)?,
        clock: Arc::new(SystemClock),
        settings: IngestSettings { write_behind: artifacts::write_behind(config)?, ..settings },
    });
    let header = ingestion.api_key_header.parse();
    Ok(DoorMount {
        door: Door::new("ingestion-gate"),
        path: ingestion.path.clone(),
        api_key_header: header.map_err(|error| Failure::usage(format!("{error}")))?,
        contract,
        effect_target: EffectTarget::publishing(ingest),
    })
}
