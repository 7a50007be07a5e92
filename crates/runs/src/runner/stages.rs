//! Stages of a run: plan, evidence check, facts; or failure.

use std::sync::Arc;

use admit_core::json::{Object, Value};
use admit_core::{Millis, ScenarioState};
use admit_ledger::scenario_runs::{ScenarioRun, StateChange};
use tokio::task::spawn_blocking;

use super::documents::{self, FactsInput, RunPlan, StoredPlan, record_event};
use super::evidence::{self, EvidenceQuery, EvidenceResult, RunEvidence};
use super::lease::{RunChange, RunnerLease};
use super::reason::{Reason, RefusalCode, RefusedRequest, RunnerError};
use super::request::{RunRequest, Strategy};
use super::settings::millis;
use super::{Runner, identity, panicked};
use crate::streamer::identity::WorldPins;

impl Runner {
    /// Commits the plan of the run, once.
    pub(super) async fn plan(
        &self,
        lease: &RunnerLease,
        run: ScenarioRun,
        request: Option<&RunRequest>,
    ) -> Result<ScenarioRun, RunnerError> {
        let first = first_request(&run)?;
        if request.is_some_and(|request| request.engine_run_root != first.engine_run_root) {
            let detail = "the run was submitted with another engine_run_root";
            return Err(RefusedRequest::new(RefusalCode::PlanDrift, detail).into());
        }
        let plan = match self.build_plan(&run.run_id, request.unwrap_or(&first)) {
            Ok(plan) => plan,
            Err((reason, detail)) => {
                return self.end_run(lease, &run, reason, false, &detail).await;
            }
        };
        let now = self.clock.now();
        if let Some(stored) = StoredPlan::of(&run) {
            if stored.plan_hash == plan.plan_hash {
                return Ok(run);
            }
            let detail = "the stored plan has other outputs, gates, strategy or policy";
            if request.is_none() && now >= stored.deadline {
                return self.end_run(lease, &run, Reason::PlanInvalid, false, detail).await;
            }
            return Err(RefusedRequest::new(RefusalCode::PlanDrift, detail).into());
        }
        let deadline = Millis(now.0.saturating_add(millis(self.settings.evidence_wait)));
        let document = plan.document(&self.refs(&run), &self.policy, now, deadline);
        let details = Object::from_iter([
            ("plan_hash", Value::from(&plan.plan_hash)),
            ("plan_ref", (&document.path).into()),
        ]);
        let change = RunChange {
            events: vec![record_event("PLAN_COMMITTED", &run.run_id, &details, &self.policy, now)],
            documents: vec![document.clone()],
            turn: Some(StateChange { to: ScenarioState::Planned, reason: None }),
            ..RunChange::default()
        };
        let run = self.update_run(lease, &run.run_id, change).await?;
        self.files.put(&[document]).await?;
        Ok(run)
    }

    fn build_plan(&self, run_id: &str, request: &RunRequest) -> Result<RunPlan, (Reason, String)> {
        let map = &self.settings.map;
        let outputs = if request.output_ids.is_empty() {
            let of_mode = map.catalogue.of_mode(&self.settings.mode);
            of_mode.iter().map(|output| output.output_id.clone()).collect()
        } else {
            request.output_ids.clone()
        };
        if outputs.is_empty() {
            return Err((Reason::PlanInvalid, "the plan has no outputs".to_owned()));
        }
        let gates = map.required_gates(&outputs)?;
        let limit = self.settings.attempt_limit;
        Ok(RunPlan::new(run_id, &self.policy, request, outputs, gates, limit))
    }

    /// Checks the evidence and changes the state of the run accordingly.
    pub(super) async fn check_evidence(
        &self,
        lease: &RunnerLease,
        run: ScenarioRun,
    ) -> Result<ScenarioRun, RunnerError> {
        let request = first_request(&run)?;
        if request.strategy == Strategy::ForceInvoke {
            let attempt = identity::attempt_id(&run.run_id, 1);
            let detail = format!("attempt {attempt}: invoking an engine is not supported");
            return self
                .end_run(lease, &run, Reason::EngineInvocationInvalid, false, &detail)
                .await;
        }
        let root = self.settings.engine_root(request.engine_run_root.as_deref());
        let Some(root) = root else {
            let detail = "neither the request nor the config names the pack";
            return self.end_run(lease, &run, Reason::EngineRootMissing, false, detail).await;
        };
        let plan = self.build_plan(&run.run_id, &request);
        let plan = plan.map_err(|(reason, detail)| {
            RefusedRequest::new(RefusalCode::PlanDrift, format!("{reason}: {detail}"))
        })?;
        let result = self.renew_lease_during(lease, self.gather(&root, &request, &plan)).await??;
        match result {
            EvidenceResult::Complete(evidence) => {
                let committed =
                    self.commit_facts(lease, &run, &request, &root, &plan, &evidence).await;
                self.quarantine_if_late(lease, &run, committed).await
            }
            EvidenceResult::Missing { reason, what } => {
                self.wait_for_evidence(lease, &run, reason, &what).await
            }
            EvidenceResult::Broken { reason, is_conflict, detail } => {
                self.end_run(lease, &run, reason, is_conflict, &detail).await
            }
        }
    }

    async fn gather(
        &self,
        root: &str,
        request: &RunRequest,
        plan: &RunPlan,
    ) -> Result<EvidenceResult, RunnerError> {
        let query = EvidenceQuery {
            world: WorldPins {
                manifest_fingerprint: request.manifest_fingerprint.clone(),
                parameter_hash: request.parameter_hash.clone(),
                seed: request.seed,
                scenario_id: request.scenario.id(),
            },
            outputs: plan.outputs.clone(),
            gates: plan.gates.clone(),
        };
        let (packs, map) = (Arc::clone(&self.packs), self.settings.map.clone());
        let root = root.to_owned();
        let checked = spawn_blocking(move || {
            let store = packs(&root).map_err(std::io::Error::other)?;
            evidence::gather(&*store, &map, &query)
        });
        Ok(checked.await.map_err(|_| panicked())?.unwrap_or_else(|error| {
            // A read error may be temporary: retry until the deadline.
            let what = vec![format!("failed to read the pack: {error}")];
            EvidenceResult::Missing { reason: Reason::EvidenceMissingDeadline, what }
        }))
    }

    /// Commits the facts and then the state READY, so that a published run always has facts.
    async fn commit_facts(
        &self,
        lease: &RunnerLease,
        run: &ScenarioRun,
        request: &RunRequest,
        engine_root: &str,
        plan: &RunPlan,
        evidence: &RunEvidence,
    ) -> Result<ScenarioRun, RunnerError> {
        let input = FactsInput {
            refs: self.refs(run),
            request,
            engine_root,
            outputs: &plan.outputs,
            evidence,
            policy: &self.policy,
            provenance: documents::facts_provenance(run, &self.settings.provenance, &self.policy),
        };
        let facts = input.build();
        let change = RunChange { documents: facts.documents.clone(), ..RunChange::default() };
        self.update_run(lease, &run.run_id, change).await?;
        self.files.put(&facts.documents).await?;
        self.files.sync().await?;
        let details = Object::from_iter([
            ("bundle_hash", Value::from(&facts.bundle_hash)),
            ("plan_hash", (&plan.plan_hash).into()),
            ("facts_view_ref", input.refs.of(documents::FACTS).into()),
        ]);
        let now = self.clock.now();
        let change = RunChange {
            events: vec![record_event("READY_COMMITTED", &run.run_id, &details, &self.policy, now)],
            turn: Some(StateChange { to: ScenarioState::Ready, reason: None }),
            ..RunChange::default()
        };
        self.update_run(lease, &run.run_id, change).await
    }

    /// Handles stored facts that the pack no longer matches: the run is quarantined after the deadline;
    /// until then the pack may be repaired.
    async fn quarantine_if_late(
        &self,
        lease: &RunnerLease,
        run: &ScenarioRun,
        result: Result<ScenarioRun, RunnerError>,
    ) -> Result<ScenarioRun, RunnerError> {
        match result {
            Err(RunnerError::Refused(refused))
                if matches!(
                    refused.code,
                    RefusalCode::FactsViewDrift | RefusalCode::ArtifactDrift
                ) && is_late(run, self.clock.now()) =>
            {
                self.end_run(lease, run, Reason::EvidenceConflict, true, &refused.to_string()).await
            }
            result => result,
        }
    }

    /// Waits for missing evidence; fails the run after the deadline.
    async fn wait_for_evidence(
        &self,
        lease: &RunnerLease,
        run: &ScenarioRun,
        reason: Reason,
        missing: &[String],
    ) -> Result<ScenarioRun, RunnerError> {
        let now = self.clock.now();
        if is_late(run, now) {
            return self.end_run(lease, run, reason, false, &missing.join("; ")).await;
        }
        let missing = missing.iter().map(String::as_str).collect();
        let details = Object::from_iter([("missing", missing)]);
        let change = RunChange {
            events: vec![record_event(
                "EVIDENCE_WAITING",
                &run.run_id,
                &details,
                &self.policy,
                now,
            )],
            turn: Some(StateChange { to: ScenarioState::WaitingEvidence, reason: None }),
            ..RunChange::default()
        };
        self.update_run(lease, &run.run_id, change).await
    }

    /// Ends a run as failed or quarantined.
    async fn end_run(
        &self,
        lease: &RunnerLease,
        run: &ScenarioRun,
        reason: Reason,
        is_conflict: bool,
        detail: &str,
    ) -> Result<ScenarioRun, RunnerError> {
        let now = self.clock.now();
        let details = Object::from_iter([
            ("reason_code", Value::from(reason.word())),
            ("detail", detail.to_owned().into()),
        ]);
        let (to, kind) = if is_conflict {
            (ScenarioState::Quarantined, "RUN_QUARANTINED")
        } else {
            (ScenarioState::Failed, "RUN_FAILED")
        };
        let mut documents = Vec::new();
        if is_conflict {
            documents.push(documents::quarantine(&self.refs(run), reason.word(), detail, now));
        }
        tracing::warn!(run_id = run.run_id, reason = reason.word(), detail, "run ended as {to}");
        let change = RunChange {
            documents: documents.clone(),
            events: vec![record_event(kind, &run.run_id, &details, &self.policy, now)],
            turn: Some(StateChange { to, reason: Some(reason.word().to_owned()) }),
            ..RunChange::default()
        };
        let run = self.update_run(lease, &run.run_id, change).await?;
        self.files.put(&documents).await?;
        Ok(run)
    }
}

fn first_request(run: &ScenarioRun) -> Result<RunRequest, RunnerError> {
    Ok(RunRequest::read(run.request.as_bytes())?)
}

/// Whether the deadline for evidence has passed.
fn is_late(run: &ScenarioRun, now: Millis) -> bool {
    StoredPlan::of(run).is_none_or(|plan| now >= plan.deadline)
}
