//! Closing of runs: refuses new events, waits for effects in flight, and then checks the run.
//!
//! ```text
//! begin ──▶ wait for effects ──▶ collect ──▶ find_objections ──▶ closed + closure | reopened
//! commit    bounded              reads       pure                commit
//! ```
//!
//! It may be interrupted anywhere. Before the last commit the run stays in `closing`: the next attempt
//! starts over, and the next start of the gate reopens the run. After it the run is closed, and the next
//! attempt or start writes its file.

mod contents;
mod document;
mod presence;

use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::{Artifacts as _, ArtifactsError, File};
use admit_contracts::ingestion_gate::governance::GovernanceFamily;
use admit_core::closure::{
    CountedSample, Manifest, Miscount, Objection, RunFacts, find_objections,
};
use admit_core::effect::Attribution;
use admit_core::json::{Object, Value};
use admit_core::{DocumentKind, Fault, FaultKind};
use admit_ledger::RunCounts;
use admit_ledger::closures::{AmbiguityCounts, ClosingEnd, ClosingStart, Closure, UnsettledCounts};
use tokio::time::{Instant, sleep};

use crate::report::{ReceiptTotals, RunReporter, SentTotals};
use contents::ContentCheck;
use presence::FilePresence;

/// Poll interval of the wait for effects in flight.
const POLL_EVERY: Duration = Duration::from_millis(25);

/// Closures per page.
const PAGE: usize = 256;

/// A closed run.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedRun {
    /// The closure.
    pub document: Object<'static>,
    /// Path of its file.
    pub reference: String,
}

/// Error of closing a run.
#[derive(Clone, Debug)]
pub enum CloseError {
    /// The run does not exist.
    Unknown,
    /// Another attempt is in progress.
    InProgress,
    /// There are objections. The run is open, or was closed before.
    Refused {
        /// State of the run.
        state: &'static str,
        /// All objections.
        objections: Vec<Objection>,
    },
    /// Internal fault.
    Fault(Fault),
}

impl From<Fault> for CloseError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Input of a closure.
struct ClosureInput {
    facts: RunFacts,
    tally: ReceiptTotals,
    unsettled: UnsettledCounts,
    sent: SentTotals,
    counts: RunCounts,
    receipts: FilePresence,
    records: FilePresence,
    contents: ContentCheck,
    ambiguities: AmbiguityCounts,
    refused_while_closing: u64,
}

impl RunReporter {
    /// Closes a run, or returns all objections. For a closed run, returns its closure.
    ///
    /// # Errors
    /// See [`CloseError`].
    pub async fn close(
        self: &Arc<Self>,
        run: &str,
        manifest: Option<Manifest>,
        by: Attribution,
    ) -> Result<ClosedRun, CloseError> {
        let _attempt = CloseAttempt::begin(self, run).ok_or(CloseError::InProgress)?;
        let begun = self.ledger.begin_closing(run.to_owned(), by.clone(), self.clock.now()).await?;
        let attempt = match begun {
            ClosingStart::Unknown => return Err(CloseError::Unknown),
            ClosingStart::Closed(closure) => return self.return_closure(closure, manifest).await,
            ClosingStart::Closing { attempt } => attempt,
        };
        let input = self.collect(run, manifest).await;
        let objections = input.as_ref().map(|input| find_objections(&input.facts));
        let at = self.clock.now();
        let closed = match (&input, &objections) {
            (Ok(input), Ok(objections)) if objections.is_empty() => {
                Some(document::build(run, input, &by, at, &self.settings))
            }
            _ => None,
        };
        let path = self.paths.of_run(run, "obs/run_closure.json");
        let ending = match &closed {
            Some(document) => {
                ClosingEnd::Closed { path: path.clone(), text: document::to_text(document) }
            }
            None => ClosingEnd::Reopened,
        };
        let ended = self.ledger.end_closing(run.to_owned(), attempt, ending, at).await?;
        let objections = objections.map_err(Clone::clone)?;
        match closed {
            _ if !ended => Err(CloseError::InProgress),
            Some(document) => {
                tracing::info!(run, who = by.who, "closed a run");
                let text = document::to_text(&document);
                let closure = Closure { run: run.to_owned(), at, path, text, is_filed: false };
                self.write_closure(&closure).await?;
                Ok(ClosedRun { document, reference: closure.path })
            }
            None => {
                if let Ok(input) = &input {
                    self.request_restore(run, input).await;
                }
                let grounds: Vec<&str> = objections.iter().map(|o| o.ground.as_str()).collect();
                tracing::warn!(
                    run,
                    grounds = grounds.join(" "),
                    "refused to close a run: there are objections"
                );
                Err(CloseError::Refused { state: "open", objections })
            }
        }
    }

    /// Marks lost files, so that the gate restores them from the ledger before the next attempt.
    async fn request_restore(&self, run: &str, input: &ClosureInput) {
        let lost = [&*input.receipts.lost, &*input.records.lost].concat();
        if lost.is_empty() {
            return;
        }
        let count = lost.len();
        match self.ledger.note_missing(lost).await {
            Ok(()) => tracing::warn!(run, count, "restoring lost files of a run"),
            Err(fault) => {
                tracing::warn!(run, %fault, "failed to mark lost files of a run for restoring")
            }
        }
    }

    /// Start-up recovery: reopens runs with an interrupted closing, and writes missing files of closures.
    ///
    /// # Errors
    /// When the ledger or the artifacts fail.
    pub async fn recover(&self) -> Result<(), Fault> {
        for run in self.ledger.reopen_lost(self.clock.now()).await? {
            tracing::warn!(run, "reopened a run: its closing was interrupted by a restart");
        }
        loop {
            let unfiled = self.ledger.unfiled_closures(PAGE).await?;
            for closure in &unfiled {
                self.write_closure(closure).await?;
                tracing::info!(run = closure.run, "wrote the missing file of a closure");
            }
            if unfiled.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Returns the closure of a closed run, unless it contradicts the manifest.
    async fn return_closure(
        &self,
        closure: Closure,
        manifest: Option<Manifest>,
    ) -> Result<ClosedRun, CloseError> {
        let damaged = || {
            Fault::new(
                FaultKind::Internal,
                "the stored closure of this run is damaged; run admit verify",
            )
        };
        let document = document::parse(&closure.text).ok_or_else(damaged)?;
        let outputs = document::admitted_by_output(&document);
        let facts = RunFacts { admitted: 1, outputs, manifest, ..RunFacts::default() };
        let objections = find_objections(&facts);
        if !objections.is_empty() {
            return Err(CloseError::Refused { state: "closed", objections });
        }
        // The file is never overwritten, but it may have been deleted.
        if !closure.is_filed || self.artifacts_get(&closure.path).await?.is_none() {
            self.write_closure(&closure).await?;
        }
        Ok(ClosedRun { document, reference: closure.path })
    }

    /// Writes the file of a closure, unless it exists, and appends to the governance log.
    async fn write_closure(&self, closure: &Closure) -> Result<(), Fault> {
        let fail = |error: ArtifactsError| {
            let message =
                "the run is closed, but writing its closure failed; close it again to retry";
            Fault::caused_by(FaultKind::OutcomeUnknown, message, error)
        };
        let bytes = format!("{}\n", closure.text);
        let put = self.artifacts.put_if_absent(vec![File::new(&*closure.path, bytes)]).await;
        put.into_iter().try_for_each(|put| put.map(drop)).map_err(fail)?;
        let details = evidence_details(closure);
        let resolved = self.append_governance_line(
            GovernanceFamily::EvidenceRefResolved,
            &closure.run,
            "run_closure_evidence",
            closure.at,
            details,
        );
        resolved.await.map_err(fail)?;
        let details = Object::from_iter([("closure_ref", Value::from(closure.path.clone()))]);
        let ended = self.append_governance_line(
            GovernanceFamily::RunEnded,
            &closure.run,
            "run_closure",
            closure.at,
            details,
        );
        ended.await.map_err(fail)?;
        let log = self.paths.governance_log(&closure.run);
        self.artifacts.compose(&log).await.map_err(fail)?;
        self.artifacts.sync().await.map_err(fail)?;
        self.ledger.note_closure_filed(closure.run.clone()).await
    }

    /// Collects the input of a closure, once nothing is in flight or the wait has timed out.
    async fn collect(&self, run: &str, manifest: Option<Manifest>) -> Result<ClosureInput, Fault> {
        let deadline = Instant::now() + self.settings.closing_wait;
        while self.counts(run).await?.in_flight > 0 && Instant::now() < deadline {
            sleep(POLL_EVERY).await;
        }
        let _permit = self.acquire_permit().await?;
        let before = self.counts(run).await?;
        let tally = self.tally(run).await?;
        let unsettled = self.unsettled(run).await?;
        let counts = self.counts(run).await?;
        let receipts = self.check_presence(run, DocumentKind::Receipt, deadline).await?;
        let mut records = self.check_presence(run, DocumentKind::Quarantine, deadline).await?;
        // The governance log has several writers, so only missing lines count, not unknown ones.
        let lines = self.check_presence(run, DocumentKind::Governance, deadline).await?;
        records.lost.extend(lines.lost);
        records.missing.count += lines.missing.count;
        records.missing.sample.extend(lines.missing.sample);
        records.missing.sample.truncate(admit_core::closure::SAMPLE_MAX);
        let mut unknown = receipts.unknown.clone();
        unknown.count += records.unknown.count;
        unknown.sample.extend(records.unknown.sample.iter().cloned());
        unknown.sample.truncate(admit_core::closure::SAMPLE_MAX);
        let contents = self.check_contents(run).await?;
        let sent = self.sent(run).await?;
        let facts = RunFacts {
            admitted: tally.receipts.admit,
            in_flight: unsettled.in_work,
            ambiguous: unsettled.ambiguous,
            quarantined: tally.open.clone(),
            receipts_missing: receipts.missing.clone(),
            records_missing: records.missing.clone(),
            misplaced: tally.misplaced.clone(),
            differing: contents.differing.clone(),
            unknown,
            without_reference: tally.without_reference.clone(),
            messages_missing: contents.messages.missing.clone(),
            bus_trouble: contents.messages.trouble.clone(),
            ready_failed: sent.failed.clone(),
            outputs_unknown: self.unknown_outputs(manifest.as_ref(), &tally),
            miscounted: miscounted(&before, &counts, &tally, unsettled),
            outputs: tally.admitted(),
            manifest,
        };
        let ambiguities = self.ledger.ambiguities(run.to_owned()).await?;
        Ok(ClosureInput {
            facts,
            tally,
            unsettled,
            sent,
            counts,
            receipts,
            records,
            contents,
            ambiguities,
            refused_while_closing: self.ledger.refused_while_closing(run.to_owned()).await?,
        })
    }

    /// Outputs of a manifest that are neither configured nor have events.
    fn unknown_outputs(&self, manifest: Option<&Manifest>, tally: &ReceiptTotals) -> CountedSample {
        let (Some(manifest), Some(known)) = (manifest, &self.settings.outputs) else {
            return CountedSample::default();
        };
        let (admitted, outputs) = (tally.admitted(), manifest.keys().map(String::as_str));
        outputs.filter(|name| !known.contains(*name) && !admitted.contains_key(*name)).collect()
    }

    async fn counts(&self, run: &str) -> Result<RunCounts, Fault> {
        Ok(self.ledger.run(run.to_owned()).await?.map(|run| run.counts).unwrap_or_default())
    }
}

/// Details of the governance line about the checked evidence: the file of every receipt and quarantine
/// record of the run exists.
fn evidence_details(closure: &Closure) -> Object<'static> {
    let document = document::parse(&closure.text).unwrap_or_default();
    let count = |name: &str| document.get(name).and_then(Value::as_u64).unwrap_or(0);
    let resolved = count("receipts_present") + count("quarantine_records_present");
    Object::from_iter([
        ("closure_ref", Value::from(closure.path.clone())),
        ("attempted", resolved.into()),
        ("resolved", resolved.into()),
        ("denied", 0.into()),
    ])
}

/// Counters that differ from the counted documents. Duplicates are still counted while a run is closing,
/// so a counter is correct if the count is between its values before and after.
fn miscounted(
    before: &RunCounts,
    after: &RunCounts,
    tally: &ReceiptTotals,
    unsettled: UnsettledCounts,
) -> Vec<Miscount> {
    let range = |of: fn(&RunCounts) -> i64| (of(before), of(after));
    let compared = [
        ("admit", range(|counts| counts.admit), tally.receipts.admit),
        ("duplicate", range(|counts| counts.duplicate), tally.receipts.duplicate),
        ("quarantine", range(|counts| counts.quarantine), tally.receipts.quarantine),
        ("superseded", range(|counts| counts.superseded), tally.superseded),
        ("released", range(|counts| counts.released), tally.released_total()),
        ("in_flight", range(|counts| counts.in_flight), unsettled.in_work),
        ("ambiguous", range(|counts| counts.ambiguous), unsettled.ambiguous),
    ];
    let wrong = compared.into_iter().filter_map(|(name, (before, after), found)| {
        let found = i64::try_from(found).unwrap_or(i64::MAX);
        let is_correct = (before.min(after)..=before.max(after)).contains(&found);
        (!is_correct).then_some(Miscount { name, counted: after, found })
    });
    wrong.collect()
}

/// A closing attempt of this process; at most one per run.
struct CloseAttempt {
    reporter: Arc<RunReporter>,
    run: String,
}

impl CloseAttempt {
    fn begin(reporter: &Arc<RunReporter>, run: &str) -> Option<Self> {
        let is_first = reporter.closing().insert(run.to_owned());
        is_first.then(|| Self { reporter: Arc::clone(reporter), run: run.to_owned() })
    }
}

impl Drop for CloseAttempt {
    fn drop(&mut self) {
        self.reporter.closing().remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_may_move_while_it_is_compared_but_not_be_wrong() {
        let mut tally = ReceiptTotals::default();
        (tally.receipts.admit, tally.receipts.duplicate) = (3, 2);
        let before = RunCounts { admit: 3, duplicate: 1, ..RunCounts::default() };
        let after = RunCounts { duplicate: 4, ..before };
        assert_eq!(miscounted(&before, &after, &tally, UnsettledCounts::default()), []);
        tally.receipts.duplicate = 5;
        tally.receipts.admit = 2;
        let wrong = miscounted(&before, &after, &tally, UnsettledCounts::default());
        let names: Vec<&str> = wrong.iter().map(|wrong| wrong.name).collect();
        assert_eq!(names, ["admit", "duplicate"]);
    }
}
