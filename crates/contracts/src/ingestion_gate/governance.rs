//! Governance: the lines that tell whoever watches over a run, and the audit events on the bus.

use admit_core::Millis;
use admit_core::hash::sha256_hex;
use admit_core::json::{Object, Value};

use super::facts::Facts;
use super::names;
use super::quarantine::NO_MANIFEST;
use super::time;

/// Who says it.
pub const COMPONENT: &str = "ingestion_gate";

/// The topic of audit events.
pub const AUDIT_TOPIC: &str = "fp.bus.audit.v1";

/// The producer that audit events name.
const PRODUCER: &str = "svc:ingestion_gate";

/// So many quarantines within the window are a spike.
pub const SPIKE_COUNT_MIN: u32 = 25;

/// The window in which they are counted, in milliseconds. A spike is told once in it.
pub const SPIKE_WINDOW_MS: i64 = 60_000;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A streamer has seen that a run is ready.
    RunReadySeen,
    /// A run has begun.
    RunStarted,
    /// A run has ended.
    RunEnded,
    /// A run was given up.
    RunCancelled,
    /// Another policy decides from now on.
    PolicyRevChanged,
    /// Something did not pass.
    CorridorAnomaly,
    /// A reference to evidence was followed.
    EvidenceRefResolved,
    /// A report was written.
    RunReportGenerated,
}

impl Family {
    /// The word on the wire.
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

/// What a line is made of.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// What it is about.
    pub family: Family,
    /// Which run it is about.
    pub run: &'a str,
    /// Which scenario run.
    pub scenario_run: Option<&'a str>,
    /// Who says it.
    pub component: &'a str,
    /// What makes it this line and no other.
    pub dedupe_key: &'a str,
    /// When.
    pub at: Millis,
    /// Who caused it.
    pub actor: Object<'static>,
    /// Which release and configuration said it.
    pub provenance: Object<'static>,
    /// What there is to know.
    pub details: Object<'static>,
}

impl Line<'_> {
    /// The id of this line: the same for the same run, component and dedupe key.
    pub fn event_id(&self) -> String {
        let Self { family, run, scenario_run, component, dedupe_key, .. } = self;
        names::governance_event_id(family.as_str(), run, *scenario_run, component, dedupe_key)
    }

    /// The line itself.
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

/// The kind of anomaly that a reason is.
pub fn category(reason: &str) -> &'static str {
    if reason.starts_with("SCHEMA_") || reason == "PINS_MISSING" {
        "SCHEMA_POLICY_MISSING"
    } else if reason.starts_with("PUBLISH_AMBIGUOUS") {
        "PUBLISH_AMBIGUOUS"
    } else {
        "UNKNOWN"
    }
}

/// The line for one quarantine: its id and itself. `None` for what names no run or no event.
pub fn anomaly(
    facts: Facts<'_>,
    reason: &str,
    record: &str,
    at: Millis,
) -> Option<(String, Object<'static>)> {
    let event_id = facts.event_id()?;
    let line = Line {
        family: Family::CorridorAnomaly,
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

/// A policy: what decides, and since which content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRev {
    /// Which policy.
    pub policy_id: String,
    /// The revision that its owner gave it.
    pub revision: String,
    /// What is in it.
    pub content_digest: String,
}

impl PolicyRev {
    /// As receipts and records carry it.
    pub fn to_object(&self) -> Object<'static> {
        Object::from_iter([
            ("policy_id", Value::from(self.policy_id.clone())),
            ("revision", self.revision.clone().into()),
            ("content_digest", self.content_digest.clone().into()),
        ])
    }

    /// Reads the policy part of `active.json`.
    pub fn read(active: &Value<'_>) -> Option<Self> {
        let text = |name| Some(active.get(name)?.as_str()?.to_owned());
        Some(Self {
            policy_id: text("policy_id")?,
            revision: text("revision")?,
            content_digest: text("content_digest")?,
        })
    }

    /// What `active.json` holds from now on.
    pub fn active(&self, at: Millis) -> Object<'static> {
        let mut active = self.to_object();
        active.push("activated_at_utc", time::utc(at));
        active
    }

    /// The line that says that this policy decides from now on. `run` is where it is written down.
    pub fn changed(
        &self,
        before: Option<&Self>,
        run: &str,
        at: Millis,
        provenance: Object<'static>,
    ) -> (String, Object<'static>) {
        let dedupe_key = format!("ig_policy:{}:{}", self.revision, self.content_digest);
        let line = Line {
            family: Family::PolicyRevChanged,
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

    /// The audit event of an activation, for [`AUDIT_TOPIC`].
    pub fn activation(&self, before: Option<&Self>, at: Millis) -> Audit {
        let payload = Object::from_iter([
            ("policy_rev", Value::from(self.to_object())),
            ("previous", before.map(Self::to_object).into()),
            ("activated_at_utc", time::utc(at).into()),
        ]);
        let named = format!("{}|{}|{}", self.policy_id, self.revision, self.content_digest);
        Audit::new("ig.policy.activation", &format!("{named}|{}", at.0), at, payload)
    }
}

/// An envelope of our own for the audit topic. It goes straight to the bus: what the gate says of
/// itself is not admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// Its id, which is also what its partition is taken from.
    pub event_id: String,
    /// The envelope.
    pub envelope: Object<'static>,
}

impl Audit {
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

    /// The partition it belongs to.
    pub fn partition_key(&self) -> String {
        names::partition_key(&Value::from(self.event_id.as_str()))
    }
}

/// The audit event of a spike: so many quarantines in the window that ended at `at`.
pub fn spike(count: u32, at: Millis) -> Audit {
    let payload = Object::from_iter([
        ("count", Value::from(count)),
        ("window_seconds", (SPIKE_WINDOW_MS / 1_000).into()),
        ("threshold", SPIKE_COUNT_MIN.into()),
    ]);
    Audit::new("ig.quarantine.spike", &format!("{COMPONENT}|{}", at.0), at, payload)
}

/// Counts quarantines and says when they are a spike.
#[derive(Clone, Debug, Default)]
pub struct Spikes {
    /// When the last ones came, oldest first; never more than make a spike.
    recent: std::collections::VecDeque<Millis>,
    told_at: Option<Millis>,
}

impl Spikes {
    /// Notes a quarantine at `at`; the audit event, if it makes a spike that nobody was told of.
    pub fn note(&mut self, at: Millis) -> Option<Audit> {
        let begin = at.0.saturating_sub(SPIKE_WINDOW_MS);
        while self.recent.front().is_some_and(|first| first.0 <= begin) {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
        let count = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if count > SPIKE_COUNT_MIN {
            self.recent.pop_front();
        }
        let is_told = self.told_at.is_some_and(|told| told.0 > begin);
        if count < SPIKE_COUNT_MIN || is_told {
            return None;
        }
        self.told_at = Some(at);
        Some(spike(count, at))
    }
}
