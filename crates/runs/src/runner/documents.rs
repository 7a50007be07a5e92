//! Documents of a run, in the formats of the reference system. Immutable documents are reproducible:
//! the same run always has the same documents.

use admit_contracts::ingestion_gate::governance::PolicyRev;
use admit_contracts::ingestion_gate::{ArtifactPaths, utc};

use admit_core::Millis;
use admit_core::json::{self, Limits, Object, Value};
use admit_ledger::scenario_runs::{RunEvent, ScenarioDocument, ScenarioRun};

use super::evidence::{LocatedOutput, RunEvidence};
use super::identity;
use super::request::RunRequest;

/// Outputs and required gates of a run.
pub(super) const PLAN: &str = "run_plan";
/// Facts of a run that is ready.
pub(super) const FACTS: &str = "run_facts_view";
/// READY signal of a run.
pub(super) const SIGNAL: &str = "ready_signal";
/// Reason of a quarantined run.
pub(super) const QUARANTINE: &str = "quarantine";

/// Maximum size of a stored document in bytes.
const BYTES_MAX: usize = 64 << 20;

/// Paths of the documents of one run.
#[derive(Clone, Debug)]
pub(super) struct RunRefs<'a> {
    pub(super) paths: &'a ArtifactPaths,
    pub(super) run: &'a str,
    pub(super) run_id: &'a str,
}

impl RunRefs<'_> {
    pub(super) fn of(&self, kind: &str) -> String {
        self.paths.of_run(self.run, &format!("sr/{kind}/{}.json", self.run_id))
    }

    pub(super) fn record(&self) -> String {
        self.paths.of_run(self.run, &format!("sr/run_record/{}.jsonl", self.run_id))
    }

    pub(super) fn status(&self) -> String {
        self.of("run_status")
    }

    pub(super) fn index(&self) -> String {
        self.of("run_record_index")
    }

    fn instance(&self, output: &LocatedOutput, request: &RunRequest) -> String {
        let RunRequest { manifest_fingerprint, parameter_hash, seed, .. } = request;
        let rest = format!(
            "sr/instance_receipts/output_id={}/manifest_fingerprint={manifest_fingerprint}/\
             parameter_hash={parameter_hash}/seed={seed}/scenario_id={}/run_id={}/\
             instance_receipt.json",
            output.output_id,
            request.scenario.id(),
            self.run_id
        );
        self.paths.of_run(self.run, &rest)
    }
}

/// Plan of a run: its outputs and required gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunPlan {
    pub(super) outputs: Vec<String>,
    pub(super) gates: Vec<String>,
    pub(super) strategy: &'static str,
    pub(super) attempt_limit: u32,
    pub(super) plan_hash: String,
}

impl RunPlan {
    pub(super) fn new(
        run_id: &str,
        policy: &PolicyRev,
        request: &RunRequest,
        outputs: Vec<String>,
        gates: Vec<String>,
        attempt_limit: u32,
    ) -> Self {
        let strategy = request.strategy.word();
        let plan_hash = identity::spaced_hash(Object::from_iter([
            ("run_id", Value::from(run_id)),
            ("policy_rev", policy.to_object().into()),
            ("strategy", strategy.into()),
            ("intended_outputs", outputs.iter().map(String::as_str).collect()),
            ("required_gates", gates.iter().map(String::as_str).collect()),
            ("attempt_limit", attempt_limit.into()),
        ]));
        Self { outputs, gates, strategy, attempt_limit, plan_hash }
    }

    /// Builds the document. Its times are not part of the plan hash, which is compared later.
    pub(super) fn document(
        &self,
        refs: &RunRefs<'_>,
        policy: &PolicyRev,
        created: Millis,
        deadline: Millis,
    ) -> ScenarioDocument {
        let plan = Object::from_iter([
            ("run_id", Value::from(refs.run_id)),
            ("plan_hash", (&self.plan_hash).into()),
            ("policy_rev", policy.to_object().into()),
            ("strategy", self.strategy.into()),
            ("intended_outputs", self.outputs.iter().map(String::as_str).collect()),
            ("required_gates", self.gates.iter().map(String::as_str).collect()),
            ("evidence_deadline_utc", utc(deadline).into()),
            ("attempt_limit", self.attempt_limit.into()),
            ("created_at_utc", utc(created).into()),
        ]);
        document(PLAN, refs.of(PLAN), &plan)
    }
}

/// The parts of a stored plan that are read back.
pub(super) struct StoredPlan {
    pub(super) plan_hash: String,
    pub(super) deadline: Millis,
}

impl StoredPlan {
    pub(super) fn of(run: &ScenarioRun) -> Option<Self> {
        let plan = parse(&run.document(PLAN)?.text)?;
        let text = |name| plan.get(name).and_then(Value::as_str);
        Some(Self {
            plan_hash: text("plan_hash")?.to_owned(),
            deadline: Millis::parse_rfc3339(text("evidence_deadline_utc")?)?,
        })
    }
}

/// Facts of a run that is about to be ready, with the receipts they reference.
pub(super) struct ReadyFacts {
    pub(super) documents: Vec<ScenarioDocument>,
    pub(super) bundle_hash: String,
}

/// Input of the facts.
pub(super) struct FactsInput<'a> {
    pub(super) refs: RunRefs<'a>,
    pub(super) request: &'a RunRequest,
    pub(super) engine_root: &'a str,
    pub(super) outputs: &'a [String],
    pub(super) evidence: &'a RunEvidence,
    pub(super) policy: &'a PolicyRev,
    /// See [`facts_provenance`].
    pub(super) provenance: Option<Object<'static>>,
}

impl FactsInput<'_> {
    /// Pins of every event of the run.
    fn pins(&self) -> Object<'_> {
        Object::from_iter([
            ("platform_run_id", Value::from(self.refs.run)),
            ("scenario_run_id", self.refs.run_id.into()),
            ("manifest_fingerprint", (&self.request.manifest_fingerprint).into()),
            ("parameter_hash", (&self.request.parameter_hash).into()),
            ("scenario_id", self.request.scenario.id().into()),
            ("seed", self.request.seed.into()),
            ("run_id", self.refs.run_id.into()),
        ])
    }

    fn locators(&self) -> Value<'_> {
        let locator = |output: &LocatedOutput| {
            Object::from_iter([
                ("output_id", Value::from(output.output_id.clone())),
                ("path", format!("{}/{}", self.engine_root, output.path).into()),
                ("files", output.files.into()),
                ("content_digest", sha256(&output.digest).into()),
            ])
        };
        self.evidence.outputs.iter().map(locator).collect()
    }

    fn gate_receipts(&self) -> Value<'_> {
        let scope = Object::from_iter([(
            "manifest_fingerprint",
            (&self.request.manifest_fingerprint).into(),
        )]);
        let receipts = self.evidence.gates.iter().map(|gate| {
            Object::from_iter([
                ("gate_id", Value::from(&gate.gate_id)),
                ("status", "PASS".into()),
                ("scope", scope.clone().into()),
                ("digest", sha256(&gate.digest).into()),
                ("bundle_ref", format!("{}/{}", self.engine_root, gate.folder).into()),
            ])
        });
        receipts.collect()
    }

    fn instance_receipts(&self) -> Vec<ScenarioDocument> {
        let receipt = |output: &LocatedOutput| {
            let scope = Object::from_iter([
                ("manifest_fingerprint", Value::from(&self.request.manifest_fingerprint)),
                ("parameter_hash", (&self.request.parameter_hash).into()),
                ("scenario_id", self.request.scenario.id().into()),
                ("seed", self.request.seed.into()),
                ("run_id", self.refs.run_id.into()),
            ]);
            let path = format!("{}/{}", self.engine_root, output.path);
            let receipt = Object::from_iter([
                ("output_id", Value::from(&output.output_id)),
                ("status", "PASS".into()),
                ("scope", scope.into()),
                ("target_ref", Object::from_iter([("path", path.into())]).into()),
                ("target_digest", sha256(&output.digest).into()),
            ]);
            let kind = format!("instance_receipt:{}", output.output_id);
            document(&kind, self.refs.instance(output, self.request), &receipt)
        };
        self.evidence.outputs.iter().map(receipt).collect()
    }

    fn pack_ref(&self) -> Object<'_> {
        let mut pack = Object::from_iter([
            ("engine_run_root", Value::from(self.engine_root)),
            ("scenario_id", self.request.scenario.id().into()),
        ]);
        if let Some(id) = &self.evidence.oracle_pack_id {
            pack.push("oracle_pack_id", id);
        }
        pack
    }

    /// Builds the facts and the receipts they reference.
    pub(super) fn build(&self) -> ReadyFacts {
        let mut documents = self.instance_receipts();
        let instances: Value<'_> = documents
            .iter()
            .map(|receipt| {
                Object::from_iter([
                    ("ref", Value::from(receipt.path.clone())),
                    ("digest", admit_core::hash::sha256_hex(receipt.text.as_bytes()).into()),
                ])
            })
            .collect();
        let bundle_hash = identity::compact_hash(&Object::from_iter([
            ("locators", self.locators()),
            ("gate_receipts", self.gate_receipts()),
            ("instance_receipts", instances.clone()),
            ("policy_rev", self.policy.to_object().into()),
        ]));
        let Self { refs, policy, outputs, .. } = self;
        let mut facts = Object::from_iter([
            ("run_id", Value::from(refs.run_id)),
            ("platform_run_id", refs.run.into()),
            ("scenario_run_id", refs.run_id.into()),
            ("pins", self.pins().into()),
            ("locators", self.locators()),
            ("gate_receipts", self.gate_receipts()),
            ("instance_receipts", instances),
            ("intended_outputs", outputs.iter().map(String::as_str).collect()),
            ("policy_rev", policy.to_object().into()),
            ("run_config_digest", (&policy.content_digest).into()),
            ("bundle_hash", (&bundle_hash).into()),
            ("plan_ref", refs.of(PLAN).into()),
            ("record_ref", refs.record().into()),
            ("status_ref", refs.status().into()),
            ("oracle_pack_ref", self.pack_ref().into()),
        ]);
        if let Some(provenance) = &self.provenance {
            for name in ["service_release_id", "environment"] {
                facts.push(name, provenance.get(name).cloned().unwrap_or(Value::Null));
            }
            facts.push("provenance", provenance.clone());
        }
        documents.push(document(FACTS, refs.of(FACTS), &facts));
        ReadyFacts { documents, bundle_hash }
    }
}

/// Release and environment of a runner, as in READY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Release of this runner.
    pub service_release_id: String,
    /// Environment it runs in.
    pub environment: String,
}

impl Provenance {
    /// The object in signals and governance lines.
    pub(super) fn to_object(&self, policy: &PolicyRev) -> Object<'static> {
        Object::from_iter([
            ("service_release_id", Value::from(self.service_release_id.clone())),
            ("environment", self.environment.clone().into()),
            ("config_revision", policy.revision.clone().into()),
            ("run_config_digest", policy.content_digest.clone().into()),
        ])
    }
}

/// Provenance in the facts of a run. Stored facts keep theirs, so that another release that resumes the
/// run builds the same document.
pub(super) fn facts_provenance(
    run: &ScenarioRun,
    own: &Provenance,
    policy: &PolicyRev,
) -> Option<Object<'static>> {
    match run.document(FACTS) {
        None => Some(own.to_object(policy)),
        Some(stored) => {
            let facts = parse(&stored.text)?;
            facts.get("provenance")?.as_object().cloned().map(Object::into_owned)
        }
    }
}

/// Builds the READY signal of a run. `None` without complete facts in the ledger.
pub(super) fn ready_signal(
    run: &ScenarioRun,
    refs: &RunRefs<'_>,
    policy: &PolicyRev,
    provenance: &Provenance,
) -> Option<(String, ScenarioDocument)> {
    let stored = run.document(FACTS)?;
    let facts = parse(&stored.text)?;
    let text = |pointer: &str| Some(facts.pointer(pointer)?.as_str()?.to_owned());
    let bundle_hash = text("/bundle_hash")?;
    let message_id = identity::ready_message_id(&run.platform_run_id, &run.run_id, &bundle_hash);
    let signal = Object::from_iter([
        ("run_id", Value::from(refs.run_id)),
        ("platform_run_id", refs.run.into()),
        ("scenario_run_id", refs.run_id.into()),
        ("facts_view_ref", (&stored.path).into()),
        ("bundle_hash", bundle_hash.into()),
        ("message_id", (&message_id).into()),
        ("run_config_digest", text("/run_config_digest")?.into()),
        ("manifest_fingerprint", text("/pins/manifest_fingerprint")?.into()),
        ("parameter_hash", text("/pins/parameter_hash")?.into()),
        ("scenario_id", text("/pins/scenario_id")?.into()),
        ("plan_hash", StoredPlan::of(run)?.plan_hash.into()),
        ("service_release_id", (&provenance.service_release_id).into()),
        ("environment", (&provenance.environment).into()),
        ("provenance", provenance.to_object(policy).into()),
        ("emitted_at_utc", utc(run.turned_at).into()),
        ("oracle_pack_ref", facts.get("oracle_pack_ref")?.clone()),
    ]);
    let document = document(SIGNAL, refs.of(SIGNAL), &signal);
    Some((message_id, document))
}

/// Message id of the stored signal.
pub(super) fn message_id(run: &ScenarioRun) -> Option<String> {
    let signal = parse(&run.document(SIGNAL)?.text)?;
    Some(signal.get("message_id")?.as_str()?.to_owned())
}

/// Builds the quarantine document of a run.
pub(super) fn quarantine(
    refs: &RunRefs<'_>,
    reason: &str,
    detail: &str,
    at: Millis,
) -> ScenarioDocument {
    let record = Object::from_iter([
        ("run_id", Value::from(refs.run_id)),
        ("platform_run_id", refs.run.into()),
        ("reason_code", reason.into()),
        ("detail", detail.into()),
        ("record_ref", refs.record().into()),
        ("quarantined_at_utc", utc(at).into()),
    ]);
    document(QUARANTINE, refs.of(QUARANTINE), &record)
}

/// Content of the status file of a run.
pub(super) fn run_status(run: &ScenarioRun, refs: &RunRefs<'_>) -> Object<'static> {
    let mut status = Object::from_iter([
        ("run_id", Value::from(run.run_id.clone())),
        ("state", run.state.word().into()),
        ("updated_at_utc", utc(run.turned_at).into()),
        ("record_ref", refs.record().into()),
    ]);
    if let Some(reason) = &run.reason {
        status.push("reason_code", reason.clone());
    }
    if let Some(facts) = run.document(FACTS).filter(|_| run.state.word() == "READY") {
        status.push("facts_view_ref", facts.path.clone());
    }
    status
}

/// Content of the index file: ids of all events in the record of a run.
pub(super) fn record_index(run: &ScenarioRun) -> Object<'_> {
    let ids = run.events.iter().map(|event| event.event_id.as_str()).collect();
    Object::from_iter([("event_ids", ids)])
}

/// Builds an event for the record of a run.
pub(super) fn record_event(
    event_kind: &str,
    run_id: &str,
    details: &Object<'_>,
    policy: &PolicyRev,
    at: Millis,
) -> RunEvent {
    let event_id = identity::record_event_id(event_kind, run_id, details);
    let line = Object::from_iter([
        ("event_id", Value::from(&event_id)),
        ("event_kind", event_kind.into()),
        ("run_id", run_id.into()),
        ("ts_utc", utc(at).into()),
        ("details", details.clone().into()),
        ("policy_rev", policy.to_object().into()),
    ]);
    RunEvent { line: to_json(&line), event_id }
}

/// Parses a stored document.
pub(super) fn parse(text: &str) -> Option<Value<'_>> {
    json::parse(text.as_bytes(), &Limits { bytes_max: BYTES_MAX, ..Limits::default() }).ok()
}

/// Serializes an object as in its file.
pub(super) fn to_json(object: &Object<'_>) -> String {
    let mut out = Vec::new();
    json::write_object(object, &mut out);
    String::from_utf8(out).expect("json is written as utf-8")
}

fn document(kind: &str, path: String, object: &Object<'_>) -> ScenarioDocument {
    ScenarioDocument { kind: kind.to_owned(), path, text: to_json(object) }
}

fn sha256(digest: &str) -> Object<'static> {
    Object::from_iter([("algo", Value::from("sha256")), ("hex", digest.to_owned().into())])
}
