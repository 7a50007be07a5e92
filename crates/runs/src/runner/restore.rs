//! Runs in a final state: a submit for other outputs is refused, and lost files are restored from the
//! ledger, when the run is submitted again, re-emitted, or reached by the periodic check.

use std::collections::BTreeSet;

use admit_core::Fault;
use admit_core::json::Value;
use admit_ledger::scenario_runs::ScenarioRun;

use super::reason::{RefusalCode, RefusedRequest, RunnerError};
use super::request::RunRequest;
use super::{Runner, SWEEP_PAGE, documents};

impl Runner {
    /// Refuses a request for other outputs than the run was planned with. A repeated request is accepted
    /// even if the configured outputs have changed since.
    pub(super) fn check_same_outputs(
        &self,
        run: &ScenarioRun,
        request: &RunRequest,
    ) -> Result<(), RunnerError> {
        let first = RunRequest::read(run.request.as_bytes())?;
        let set = |outputs: &[String]| outputs.iter().cloned().collect::<BTreeSet<_>>();
        if set(&first.output_ids) == set(&request.output_ids) {
            return Ok(());
        }
        // A run that ended before it was planned has no outputs.
        let Some(planned) = planned_outputs(run) else { return Ok(()) };
        let of_mode = self.settings.map.catalogue.of_mode(&self.settings.mode);
        let requested = match request.output_ids.as_slice() {
            [] => of_mode.iter().map(|output| output.output_id.clone()).collect(),
            ids => set(ids),
        };
        if requested == planned {
            return Ok(());
        }
        let detail = format!(
            "this run_equivalence_key belongs to a run with the outputs {}; use another key for \
             other outputs",
            planned.into_iter().collect::<Vec<_>>().join(", ")
        );
        Err(RefusedRequest::new(RefusalCode::PlanDrift, detail).into())
    }

    /// Checks the files of every run in a final state and restores lost ones from the ledger. Returns
    /// the number of runs with lost files. Ends early when the artifact store fails.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn restore_lost_files(&self) -> Result<usize, Fault> {
        let (mut after, mut restored) = (String::new(), 0);
        loop {
            let runs = self.ledger.final_runs(after.clone(), SWEEP_PAGE).await?;
            for run_id in &runs {
                let Some(run) = self.ledger.scenario_run(run_id.clone()).await? else { continue };
                // The sweep of unfinished runs brings files up to date.
                if run.shown != run.version {
                    continue;
                }
                match self.restore_files(&run).await {
                    Ok(is_lost) => restored += usize::from(is_lost),
                    Err(error) => {
                        tracing::warn!(run_id, %error, "failed to check the files of a run; will retry");
                        return Ok(restored);
                    }
                }
            }
            match runs.last() {
                Some(last) if runs.len() == SWEEP_PAGE => last.clone_into(&mut after),
                _ => return Ok(restored),
            }
        }
    }

    /// Restores missing files of a run. Returns whether any was missing. A file with other content is
    /// left alone: the ledger is the truth, and `admit verify` reports the difference.
    pub(super) async fn restore_files(&self, run: &ScenarioRun) -> Result<bool, RunnerError> {
        let refs = self.refs(run);
        let mut is_lost = false;
        for path in [refs.record(), refs.index(), refs.status()] {
            is_lost |= !self.files.exists(&path).await?;
        }
        for document in &run.documents {
            if self.files.exists(&document.path).await? {
                continue;
            }
            is_lost = true;
            self.files.put(std::slice::from_ref(document)).await?;
        }
        if is_lost {
            self.write_status_files(&run.run_id).await?;
            self.files.sync().await?;
            tracing::warn!(run_id = run.run_id, "restored lost files of a run");
        }
        Ok(is_lost)
    }
}

fn planned_outputs(run: &ScenarioRun) -> Option<BTreeSet<String>> {
    let plan = documents::parse(&run.document(documents::PLAN)?.text)?;
    let outputs = plan.get("intended_outputs").and_then(Value::as_array)?;
    Some(outputs.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
