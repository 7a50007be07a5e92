//! Settings of the runner, with the defaults of its contract.

use std::time::Duration;

use admit_contracts::ingestion_gate::governance::PolicyRev;

use super::documents::Provenance;
use super::gate_map::GateMap;

/// Default topic of READY messages.
pub const CONTROL_TOPIC: &str = "fp.bus.control.v1";

/// Policy id in plans and facts.
const POLICY_ID: &str = "sr_policy";

/// Settings of the runner.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Outputs and gates.
    pub map: GateMap,
    /// Mode that selects the outputs of a request without any.
    pub mode: String,
    /// Revision of the policy, as in documents.
    pub policy_revision: String,
    /// Provenance in READY and governance lines.
    pub provenance: Provenance,
    /// Topic of READY messages.
    pub control_topic: String,
    /// Default location of the pack, for requests without one.
    pub engine_run_root: Option<String>,
    /// Folder that relative pack locations start at; empty is the working directory.
    pub packs: String,
    /// Lease duration of a run.
    pub lease_ttl: Duration,
    /// Lease duration of a re-emit.
    pub reemit_lease_ttl: Duration,
    /// Timeout for missing evidence, from the plan on.
    pub evidence_wait: Duration,
    /// Maximum attempts to create a pack.
    pub attempt_limit: u32,
    /// Rate limit: maximum re-emits of a run within [`Self::reemit_window`].
    pub reemits_max: usize,
    /// Window of the rate limit.
    pub reemit_window: Duration,
    /// Whether a re-emit for another platform run than the active one requires an override.
    pub reemit_same_platform_run_only: bool,
    /// Allowed reasons of such an override.
    pub override_reasons: Vec<String>,
    /// Name of this runner in leases.
    pub owner: String,
}

impl Settings {
    /// The defaults, with these outputs and gates.
    pub fn new(map: GateMap) -> Self {
        Self {
            map,
            mode: "fraud".to_owned(),
            policy_revision: "local-parity-v0".to_owned(),
            provenance: Provenance {
                service_release_id: "dev-local".to_owned(),
                environment: "local_parity".to_owned(),
            },
            control_topic: CONTROL_TOPIC.to_owned(),
            engine_run_root: None,
            packs: String::new(),
            lease_ttl: Duration::from_secs(300),
            reemit_lease_ttl: Duration::from_secs(60),
            evidence_wait: Duration::from_secs(600),
            attempt_limit: 1,
            reemits_max: 10,
            reemit_window: Duration::from_secs(3600),
            reemit_same_platform_run_only: true,
            override_reasons: ["operator_replay", "incident_recovery"].map(str::to_owned).to_vec(),
            owner: "runner".to_owned(),
        }
    }

    /// Location of the pack: from the request, else the default.
    pub(super) fn engine_root(&self, requested: Option<&str>) -> Option<String> {
        let location = requested.or(self.engine_run_root.as_deref())?;
        let is_absolute = location.starts_with('/') || location.contains("://");
        Some(if is_absolute || self.packs.is_empty() {
            location.to_owned()
        } else {
            format!("{}/{location}", self.packs.trim_end_matches('/'))
        })
    }

    /// The deciding policy: the catalogue, identified by its content.
    pub fn policy(&self) -> PolicyRev {
        PolicyRev {
            policy_id: POLICY_ID.to_owned(),
            revision: self.policy_revision.clone(),
            content_digest: self.map.content_digest.clone(),
        }
    }
}

/// Milliseconds, as the ledger stores durations.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
