//! Every knob of the runner, with the defaults of its contract.

use std::time::Duration;

use admit_contracts::ingestion_gate::governance::PolicyRev;

use super::documents::Provenance;
use super::gate_map::GateMap;

/// The topic READY is said on.
pub const CONTROL_TOPIC: &str = "fp.bus.control.v1";

/// The policy that plans and facts name.
const POLICY_ID: &str = "sr_policy";

/// How the runner behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Outputs and gates.
    pub map: GateMap,
    /// The outputs of a request that names none.
    pub mode: String,
    /// The revision of the policy, as documents name it.
    pub policy_revision: String,
    /// Who says READY.
    pub provenance: Provenance,
    /// The topic it is said on.
    pub control_topic: String,
    /// Where the pack is of a request that does not say so.
    pub engine_run_root: Option<String>,
    /// The folder that relative places of packs start at; empty is the working directory.
    pub packs: String,
    /// How long a run is led without a sign of life.
    pub lease_ttl: Duration,
    /// How long emitting again is led without one.
    pub reemit_lease_ttl: Duration,
    /// How long evidence is waited for, from the plan on.
    pub evidence_wait: Duration,
    /// How often a pack may be made.
    pub attempt_limit: u32,
    /// How often a run may be emitted again within [`Self::reemit_window`].
    pub reemits_max: usize,
    /// See [`Self::reemits_max`].
    pub reemit_window: Duration,
    /// Whether emitting a run of another platform run than the active one needs an override.
    pub reemit_same_platform_run_only: bool,
    /// The reasons for such an override.
    pub override_reasons: Vec<String>,
    /// Who this runner is, in leases.
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

    /// The place of the pack of a request, if anybody names one.
    pub(super) fn engine_root(&self, asked: Option<&str>) -> Option<String> {
        let named = asked.or(self.engine_run_root.as_deref())?;
        let is_whole = named.starts_with('/') || named.contains("://");
        Some(if is_whole || self.packs.is_empty() {
            named.to_owned()
        } else {
            format!("{}/{named}", self.packs.trim_end_matches('/'))
        })
    }

    /// The policy that decides: the catalogue, by its content.
    pub fn policy(&self) -> PolicyRev {
        PolicyRev {
            policy_id: POLICY_ID.to_owned(),
            revision: self.policy_revision.clone(),
            content_digest: self.map.content_digest.clone(),
        }
    }
}

/// A time as the ledger counts it.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
