//! From a request to facts: plan, evidence, commit, or an end.

use std::sync::Arc;

use admit_core::json::{Object, Value};
use admit_core::{Millis, ScenarioState};
use admit_ledger::scenario_runs::{ScenarioRun, StateChange};
use tokio::task::spawn_blocking;

use super::documents::{self, FactsParts, KeptPlan, Plan, event};
use super::evidence::{self, Evidence, Gathered, Sought};
use super::lead::{Kept, Lead};
use super::reason::{Reason, Refusal, Refused, RunnerError};
use super::request::{RunRequest, Strategy};
use super::settings::millis;
use super::{Runner, gone, identity};
use crate::streamer::identity::World;

impl Runner {
    /// What the run is made of and what must vouch for it, once.
    pub(super) async fn plan(
        &self,
        lead: &Lead,
        run: ScenarioRun,
        asked: Option<&RunRequest>,
    ) -> Result<ScenarioRun, RunnerError> {
        let first = first_request(&run)?;
        if asked.is_some_and(|asked| asked.engine_run_root != first.engine_run_root) {
            let detail = "this run was asked for with another engine_run_root";
            return Err(Refused::new(Refusal::PlanDrift, detail).into());
        }
        let planned = match self.planned(&run.run_id, asked.unwrap_or(&first)) {
            Ok(plan) => plan,
            Err((reason, detail)) => return self.end(lead, &run, reason, false, &detail).await,
        };
        let now = self.clock.now();
        if let Some(kept) = KeptPlan::of(&run) {
            if kept.plan_hash == planned.plan_hash {
                return Ok(run);
            }
            let detail = "this run is planned with other outputs, gates, strategy or policy";
            if asked.is_none() && now >= kept.deadline {
                return self.end(lead, &run, Reason::PlanInvalid, false, detail).await;
            }
            return Err(Refused::new(Refusal::PlanDrift, detail).into());
        }
        let deadline = Millis(now.0.saturating_add(millis(self.settings.evidence_wait)));
        let document = planned.document(&self.refs(&run), &self.policy, now, deadline);
        let details = Object::from_iter([
            ("plan_hash", Value::from(&planned.plan_hash)),
            ("plan_ref", (&document.path).into()),
        ]);
        let kept = Kept {
            events: vec![event("PLAN_COMMITTED", &run.run_id, &details, &self.policy, now)],
            documents: vec![document.clone()],
            turn: Some(StateChange { to: ScenarioState::Planned, reason: None }),
            publication: None,
        };
        let run = self.keep(lead, &run.run_id, kept).await?;
        self.files.put(&[document]).await?;
        Ok(run)
    }

    fn planned(&self, run_id: &str, request: &RunRequest) -> Result<Plan, (Reason, String)> {
        let map = &self.settings.map;
        let outputs = if request.output_ids.is_empty() {
            let of_mode = map.catalogue.of_mode(&self.settings.mode);
            of_mode.iter().map(|output| output.output_id.clone()).collect()
        } else {
            request.output_ids.clone()
        };
        if outputs.is_empty() {
            return Err((Reason::PlanInvalid, "no output is intended".to_owned()));
        }
        let gates = map.required_gates(&outputs)?;
        let limit = self.settings.attempt_limit;
        Ok(Plan::new(run_id, &self.policy, request, outputs, gates, limit))
    }

    /// Looks at the evidence, and turns the run to what it says.
    pub(super) async fn vouch(
        &self,
        lead: &Lead,
        run: ScenarioRun,
    ) -> Result<ScenarioRun, RunnerError> {
        let request = first_request(&run)?;
        if request.strategy == Strategy::ForceInvoke {
            let attempt = identity::attempt_id(&run.run_id, 1);
            let detail = format!("attempt {attempt}: this runner has no engine to invoke");
            return self.end(lead, &run, Reason::EngineInvocationInvalid, false, &detail).await;
        }
        let root = self.settings.engine_root(request.engine_run_root.as_deref());
        let Some(root) = root else {
            let detail = "neither the request nor the config says where the pack is";
            return self.end(lead, &run, Reason::EngineRootMissing, false, detail).await;
        };
        let planned = self.planned(&run.run_id, &request);
        let plan = planned.map_err(|(reason, detail)| {
            Refused::new(Refusal::PlanDrift, format!("{reason}: {detail}"))
        })?;
        let gathered = self.leading(lead, self.gather(&root, &request, &plan)).await??;
        match gathered {
            Gathered::Complete(evidence) => {
                let done = self.commit(lead, &run, &request, &root, &plan, &evidence).await;
                self.or_too_late(lead, &run, done).await
            }
            Gathered::Missing { reason, what } => self.wait(lead, &run, reason, &what).await,
            Gathered::Broken { reason, is_conflict, detail } => {
                self.end(lead, &run, reason, is_conflict, &detail).await
            }
        }
    }

    async fn gather(
        &self,
        root: &str,
        request: &RunRequest,
        plan: &Plan,
    ) -> Result<Gathered, RunnerError> {
        let sought = Sought {
            world: World {
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
        let looked = spawn_blocking(move || {
            let store = packs(&root).map_err(std::io::Error::other)?;
            evidence::gather(&*store, &map, &sought)
        });
        Ok(looked.await.map_err(|_| gone())?.unwrap_or_else(|error| {
            // A disk that cannot be read now may be read later, before the deadline.
            let what = vec![format!("the pack cannot be read: {error}")];
            Gathered::Missing { reason: Reason::EvidenceMissingDeadline, what }
        }))
    }

    /// Facts first, then READY: whoever hears of it finds them.
    async fn commit(
        &self,
        lead: &Lead,
        run: &ScenarioRun,
        request: &RunRequest,
        engine_root: &str,
        plan: &Plan,
        evidence: &Evidence,
    ) -> Result<ScenarioRun, RunnerError> {
        let parts = FactsParts {
            refs: self.refs(run),
            request,
            engine_root,
            outputs: &plan.outputs,
            evidence,
            policy: &self.policy,
            provenance: documents::provenance(run, &self.settings.provenance, &self.policy),
        };
        let facts = parts.facts();
        let kept = Kept { documents: facts.documents.clone(), ..Kept::default() };
        self.keep(lead, &run.run_id, kept).await?;
        self.files.put(&facts.documents).await?;
        self.files.sync().await?;
        let details = Object::from_iter([
            ("bundle_hash", Value::from(&facts.bundle_hash)),
            ("plan_hash", (&plan.plan_hash).into()),
            ("facts_view_ref", parts.refs.of(documents::FACTS).into()),
        ]);
        let now = self.clock.now();
        let kept = Kept {
            events: vec![event("READY_COMMITTED", &run.run_id, &details, &self.policy, now)],
            turn: Some(StateChange { to: ScenarioState::Ready, reason: None }),
            ..Kept::default()
        };
        self.keep(lead, &run.run_id, kept).await
    }

    /// Facts that were kept and cannot be made again: until the deadline the pack may be put right.
    async fn or_too_late(
        &self,
        lead: &Lead,
        run: &ScenarioRun,
        done: Result<ScenarioRun, RunnerError>,
    ) -> Result<ScenarioRun, RunnerError> {
        match done {
            Err(RunnerError::Refused(refused))
                if matches!(refused.refusal, Refusal::FactsViewDrift | Refusal::ArtifactDrift)
                    && is_late(run, self.clock.now()) =>
            {
                self.end(lead, run, Reason::EvidenceConflict, true, &refused.to_string()).await
            }
            done => done,
        }
    }

    /// Waits for what is missing, until it is too late.
    async fn wait(
        &self,
        lead: &Lead,
        run: &ScenarioRun,
        reason: Reason,
        missing: &[String],
    ) -> Result<ScenarioRun, RunnerError> {
        let now = self.clock.now();
        if is_late(run, now) {
            return self.end(lead, run, reason, false, &missing.join("; ")).await;
        }
        let missing = missing.iter().map(String::as_str).collect();
        let details = Object::from_iter([("missing", missing)]);
        let kept = Kept {
            events: vec![event("EVIDENCE_WAITING", &run.run_id, &details, &self.policy, now)],
            turn: Some(StateChange { to: ScenarioState::WaitingEvidence, reason: None }),
            ..Kept::default()
        };
        self.keep(lead, &run.run_id, kept).await
    }

    /// Ends a run that does not become ready.
    async fn end(
        &self,
        lead: &Lead,
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
        tracing::warn!(run_id = run.run_id, reason = reason.word(), detail, "a run ends as {to}");
        let kept = Kept {
            documents: documents.clone(),
            events: vec![event(kind, &run.run_id, &details, &self.policy, now)],
            turn: Some(StateChange { to, reason: Some(reason.word().to_owned()) }),
            publication: None,
        };
        let run = self.keep(lead, &run.run_id, kept).await?;
        self.files.put(&documents).await?;
        Ok(run)
    }
}

fn first_request(run: &ScenarioRun) -> Result<RunRequest, RunnerError> {
    Ok(RunRequest::read(run.request.as_bytes())?)
}

/// Whether evidence has been waited for long enough.
fn is_late(run: &ScenarioRun, now: Millis) -> bool {
    KeptPlan::of(run).is_none_or(|plan| now >= plan.deadline)
}
