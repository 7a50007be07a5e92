//! Runs in a final state: a request for other outputs is refused, and lost files are written again from
//! the ledger, when the run is submitted again, re-emitted, or reached by the periodic check.

use std::collections::BTreeSet;

use admit_core::Fault;
use admit_core::json::Value;
use admit_ledger::scenario_runs::ScenarioRun;

use super::reason::{Refusal, Refused, RunnerError};
use super::request::RunRequest;
use super::{LOOK_ROWS_MAX, Runner, documents};

impl Runner {
    /// Refuses a request for other outputs than the run was planned with. The same request is the same
    /// run, also where the configured outputs have changed since.
    pub(super) fn same_outputs(
        &self,
        run: &ScenarioRun,
        asked: &RunRequest,
    ) -> Result<(), RunnerError> {
        let first = RunRequest::read(run.request.as_bytes())?;
        let set = |outputs: &[String]| outputs.iter().cloned().collect::<BTreeSet<_>>();
        if set(&first.output_ids) == set(&asked.output_ids) {
            return Ok(());
        }
        // A run that ended before it was planned has no outputs.
        let Some(planned) = planned_outputs(run) else { return Ok(()) };
        let of_mode = self.settings.map.catalogue.of_mode(&self.settings.mode);
        let wanted = match asked.output_ids.as_slice() {
            [] => of_mode.iter().map(|output| output.output_id.clone()).collect(),
            asked => set(asked),
        };
        if wanted == planned {
            return Ok(());
        }
        let detail = format!(
            "this run_equivalence_key stands for a run with the outputs {}; use another key for \
             other outputs",
            planned.into_iter().collect::<Vec<_>>().join(", ")
        );
        Err(Refused::new(Refusal::PlanDrift, detail).into())
    }

    /// Checks the files of every run in a final state and writes lost ones again from the ledger.
    /// Returns how many runs had lost files. Ends early when the artifact store fails.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn restore_lost(&self) -> Result<usize, Fault> {
        let (mut after, mut restored) = (String::new(), 0);
        loop {
            let runs = self.ledger.final_runs(after.clone(), LOOK_ROWS_MAX).await?;
            for run_id in &runs {
                let Some(run) = self.ledger.scenario_run(run_id.clone()).await? else { continue };
                // Files that are not up to date yet are left to the look at unfinished runs.
                if run.shown != run.version {
                    continue;
                }
                match self.restore(&run).await {
                    Ok(is_lost) => restored += usize::from(is_lost),
                    Err(error) => {
                        tracing::warn!(run_id, %error, "the files of a run could not be checked");
                        return Ok(restored);
                    }
                }
            }
            match runs.last() {
                Some(last) if runs.len() == LOOK_ROWS_MAX => last.clone_into(&mut after),
                _ => return Ok(restored),
            }
        }
    }

    /// Writes missing files of a run again, and returns whether any was missing. A file with other
    /// content is left alone: the ledger is the truth, and `admit verify` reports the difference.
    pub(super) async fn restore(&self, run: &ScenarioRun) -> Result<bool, RunnerError> {
        let refs = self.refs(run);
        let mut is_lost = false;
        for path in [refs.record(), refs.index(), refs.status()] {
            is_lost |= !self.files.has(&path).await?;
        }
        for document in &run.documents {
            if self.files.has(&document.path).await? {
                continue;
            }
            is_lost = true;
            self.files.put(std::slice::from_ref(document)).await?;
        }
        if is_lost {
            self.copy(&run.run_id).await?;
            self.files.sync().await?;
            tracing::warn!(run_id = run.run_id, "lost files of a run were made again");
        }
        Ok(is_lost)
    }
}

fn planned_outputs(run: &ScenarioRun) -> Option<BTreeSet<String>> {
    let plan = documents::read(&run.document(documents::PLAN)?.text)?;
    let outputs = plan.get("intended_outputs").and_then(Value::as_array)?;
    Some(outputs.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
