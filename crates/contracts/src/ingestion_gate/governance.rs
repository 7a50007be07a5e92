//! Governance: log lines for the operators of a run, and audit events on the bus.

use admit_core::Millis;
use admit_core::hash::sha256_hex;
use admit_core::json::{Object, Value};

use super::facts::DeliveryFacts;
use super::names;
use super::quarantine::NO_MANIFEST;
use super::time;

/// Source component of these lines.
pub const COMPONENT: &str = "ingestion_gate";

/// Topic of audit events.
pub const AUDIT_TOPIC: &str = "fp.bus.audit.v1";

/// Producer name on audit events.
const PRODUCER: &str = "svc:ingestion_gate";

/// Number of quarantines within the window that counts as a spike.
pub const SPIKE_COUNT_MIN: u32 = 25;

/// Counting window, in milliseconds. A spike is reported once per window.
pub const SPIKE_WINDOW_MS: i64 = 60_000;

/// Family of a governance line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GovernanceFamily {
    /// A streamer has seen that a run is ready.
    RunReadySeen,
    /// A run has started.
    RunStarted,
    /// A run has ended.
    RunEnded,
    /// A run was cancelled.
    RunCancelled,
    /// Another policy is active from now on.
    PolicyRevChanged,
    /// An event was quarantined.
    CorridorAnomaly,
    /// A reference to evidence was resolved.
    EvidenceRefResolved,
    /// A report was written.
    RunReportGenerated,
}

impl GovernanceFamily {
    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunReadySeen => "RUN_READY_SEEN",
            Self::RunStarted => "RUN_STARTED",
            Self::RunEnded => "RUN_ENDED",
            Self::RunCancelled => "RUN_CANCELLED",
            Self::PolicyRevChanged => "POLICY_REV_CHANGED",
            Self::CorridorAnomaly => "CORRIDOR_ANOMALY",
            Self::EvidenceRefResolved => "EVIDENCE_REF_RESOLVED",
            Self::RunReportGenerated => "RUN_REPORT_GENERATED",
        }
    }
}

/// Contents of a governance line.
#[derive(Clone, Debug)]
pub struct GovernanceLine<'a> {
    /// Family.
    pub family: GovernanceFamily,
    /// Run.
    pub run: &'a str,
    /// Scenario run.
    pub scenario_run: Option<&'a str>,
    /// Source component.
    pub component: &'a str,
    /// Deduplication key of the line.
    pub dedupe_key: &'a str,
    /// Time.
    pub at: Millis,
    /// Actor that caused it.
    pub actor: Object<'static>,
    /// Release and configuration of the component.
    pub provenance: Object<'static>,
    /// Details.
    pub details: Object<'static>,
}

impl GovernanceLine<'_> {
    /// Id of this line: identical for the same run, component and dedupe key.
    pub fn event_id(&self) -> String {
        let Self { family, run, scenario_run, component, dedupe_key, .. } = self;
        names::governance_event_id(family.as_str(), run, *scenario_run, component, dedupe_key)
    }

    /// JSON form.
    pub fn to_object(&self) -> Object<'static> {
        let mut line = Object::from_iter([
            ("event_id", Value::from(self.event_id())),
            ("event_family", self.family.as_str().into()),
            ("ts_utc", time::utc(self.at).into()),
            ("platform_run_id", self.run.to_owned().into()),
            ("source_component", self.component.to_owned().into()),
            ("dedupe_key", self.dedupe_key.to_owned().into()),
            ("actor", self.actor.clone().into()),
            ("provenance", self.provenance.clone().into()),
            ("details", self.details.clone().into()),
        ]);
        if let Some(scenario_run) = self.scenario_run {
            line.push("scenario_run_id", scenario_run.to_owned());
        }
        line
    }
}

/// Anomaly category of a reason.
pub fn category(reason: &str) -> &'static str {
    if reason.starts_with("SCHEMA_") || reason == "PINS_MISSING" {
        "SCHEMA_POLICY_MISSING"
    } else if reason.starts_with("PUBLISH_AMBIGUOUS") {
        "PUBLISH_AMBIGUOUS"
    } else {
        "UNKNOWN"
    }
}

/// Returns id and contents of the line for one quarantine; `None` if it names no run or no event.
pub fn anomaly(
    facts: DeliveryFacts<'_>,
    reason: &str,
    record: &str,
    at: Millis,
) -> Option<(String, Object<'static>)> {
    let event_id = facts.event_id()?;
    let line = GovernanceLine {
        family: GovernanceFamily::CorridorAnomaly,
        run: facts.run()?,
        scenario_run: facts.scenario_run(),
        component: COMPONENT,
        dedupe_key: &format!("ig_quarantine:{event_id}:{reason}"),
        at,
        actor: facts.actor(),
        provenance: facts.provenance(),
        details: Object::from_iter([
            ("category", Value::from(category(reason))),
            ("reason_code", reason.to_owned().into()),
            ("event_id", event_id.to_owned().into()),
            ("event_type", facts.event_type().to_owned().into()),
            ("event_class", facts.class().map(str::to_owned).into()),
            ("quarantine_ref", record.to_owned().into()),
        ]),
    };
    Some((line.event_id(), line.to_object()))
}

/// Policy revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRev {
    /// Policy id.
    pub policy_id: String,
    /// Revision set by its owner.
    pub revision: String,
    /// Digest of its content.
    pub content_digest: String,
}

impl PolicyRev {
    /// JSON form used in receipts and records.
    pub fn to_object(&self) -> Object<'static> {
        Object::from_iter([
            ("policy_id", Value::from(self.policy_id.clone())),
            ("revision", self.revision.clone().into()),
            ("content_digest", self.content_digest.clone().into()),
        ])
    }

    /// Parses the policy part of `active.json`.
    pub fn read(active: &Value<'_>) -> Option<Self> {
        let text = |name| Some(active.get(name)?.as_str()?.to_owned());
        Some(Self {
            policy_id: text("policy_id")?,
            revision: text("revision")?,
            content_digest: text("content_digest")?,
        })
    }

    /// New content of `active.json`.
    pub fn active(&self, at: Millis) -> Object<'static> {
        let mut active = self.to_object();
        active.push("activated_at_utc", time::utc(at));
        active
    }

    /// Returns id and contents of the line for a policy change. `run` is the run whose log it is
    /// written to.
    pub fn changed(
        &self,
        before: Option<&Self>,
        run: &str,
        at: Millis,
        provenance: Object<'static>,
    ) -> (String, Object<'static>) {
        let dedupe_key = format!("ig_policy:{}:{}", self.revision, self.content_digest);
        let line = GovernanceLine {
            family: GovernanceFamily::PolicyRevChanged,
            run,
            scenario_run: None,
            component: COMPONENT,
            dedupe_key: &dedupe_key,
            at,
            actor: super::AuthMode::Disabled.actor(&format!("SYSTEM::{COMPONENT}")),
            provenance,
            details: Object::from_iter([
                ("policy_rev", Value::from(self.to_object())),
                ("previous", before.map(Self::to_object).into()),
            ]),
        };
        (line.event_id(), line.to_object())
    }

    /// Audit event of an activation, for [`AUDIT_TOPIC`].
    pub fn activation(&self, before: Option<&Self>, at: Millis) -> AuditEvent {
        let payload = Object::from_iter([
            ("policy_rev", Value::from(self.to_object())),
            ("previous", before.map(Self::to_object).into()),
            ("activated_at_utc", time::utc(at).into()),
        ]);
        let named = format!("{}|{}|{}", self.policy_id, self.revision, self.content_digest);
        AuditEvent::new("ig.policy.activation", &format!("{named}|{}", at.0), at, payload)
    }
}

/// Envelope of the gate itself for the audit topic. It goes straight to the bus and is not
/// admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEvent {
    /// Event id; the partition key is derived from it.
    pub event_id: String,
    /// Envelope.
    pub envelope: Object<'static>,
}

impl AuditEvent {
    fn new(event_type: &'static str, named: &str, at: Millis, payload: Object<'static>) -> Self {
        let event_id = sha256_hex(format!("{event_type}|{named}").as_bytes());
        let envelope = Object::from_iter([
            ("event_id", Value::from(event_id.clone())),
            ("event_type", event_type.into()),
            ("ts_utc", time::ts_utc(at).into()),
            ("manifest_fingerprint", NO_MANIFEST.into()),
            ("schema_version", "v1".into()),
            ("producer", PRODUCER.into()),
            ("payload", payload.into()),
        ]);
        Self { event_id, envelope }
    }

    /// Partition key.
    pub fn partition_key(&self) -> String {
        names::partition_key(&Value::from(self.event_id.as_str()))
    }
}

/// Audit event of a spike: `count` quarantines in the window that ended at `at`.
pub fn spike(count: u32, at: Millis) -> AuditEvent {
    let payload = Object::from_iter([
        ("count", Value::from(count)),
        ("window_seconds", (SPIKE_WINDOW_MS / 1_000).into()),
        ("threshold", SPIKE_COUNT_MIN.into()),
    ]);
    AuditEvent::new("ig.quarantine.spike", &format!("{COMPONENT}|{}", at.0), at, payload)
}

/// Detects quarantine spikes.
#[derive(Clone, Debug, Default)]
pub struct SpikeDetector {
    /// Times of the most recent quarantines, oldest first; at most as many as make a spike.
    recent: std::collections::VecDeque<Millis>,
    reported_at: Option<Millis>,
}

impl SpikeDetector {
    /// Counts a quarantine at `at`; returns the audit event of a spike that was not reported yet.
    pub fn note(&mut self, at: Millis) -> Option<AuditEvent> {
        let begin = at.0.saturating_sub(SPIKE_WINDOW_MS);
        while self.recent.front().is_some_and(|first| first.0 <= begin) {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
        let count = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if count > SPIKE_COUNT_MIN {
            self.recent.pop_front();
        }
        let is_reported = self.reported_at.is_some_and(|at| at.0 > begin);
        if count < SPIKE_COUNT_MIN || is_reported {
            return None;
        }
        self.reported_at = Some(at);
        Some(spike(count, at))
    }
}
