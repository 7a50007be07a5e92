//! Totals of a run's receipts, read once and in pages.

use std::collections::{BTreeMap, BTreeSet};

use admit_contracts::ingestion_gate::{ArtifactPaths, ReceiptDecision};
use admit_core::Fault;
use admit_core::closure::{CountedSample, SAMPLE_MAX};
use admit_ledger::closures::{DecidingPolicy, QuarantineState, RunLine};

use super::RunReporter;

/// Receipts per page.
const PAGE: usize = 4_096;

/// Maximum distinct producers, outputs and scenario runs. The names come from producers and may be
/// unlimited; further ones are counted together.
const NAMES_MAX: usize = 1_000;

/// Name for all names beyond [`NAMES_MAX`].
const OTHERS: &str = "(others)";

/// Name if an envelope has none.
const UNKNOWN: &str = "unknown";

/// Receipts by their decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// ADMIT.
    pub admit: u64,
    /// DUPLICATE.
    pub duplicate: u64,
    /// QUARANTINE.
    pub quarantine: u64,
}

impl Split {
    fn add(&mut self, decision: ReceiptDecision) {
        match decision {
            ReceiptDecision::Admit => self.admit += 1,
            ReceiptDecision::Duplicate => self.duplicate += 1,
            ReceiptDecision::Quarantine => self.quarantine += 1,
        }
    }

    /// Sum of all.
    pub fn total(&self) -> u64 {
        self.admit + self.duplicate + self.quarantine
    }
}

/// Totals of a run's receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiptTotals {
    /// All receipts.
    pub receipts: Split,
    /// Receipts whose file could not be written.
    pub write_failed: u64,
    /// Open quarantines.
    pub open: CountedSample,
    /// Quarantines superseded by the admission of their event.
    pub superseded: u64,
    /// Released quarantines, by resolution.
    pub released: BTreeMap<String, u64>,
    /// Quarantines by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Receipts by producer.
    pub producers: BTreeMap<String, Split>,
    /// Receipts by output (the event type of the envelope).
    pub outputs: BTreeMap<String, Split>,
    /// Receipts by deciding policy.
    pub policies: BTreeMap<DecidingPolicy, u64>,
    /// Scenario runs of the events.
    pub scenario_runs: BTreeSet<String>,
    /// Sample of receipts.
    pub receipt_refs: Vec<String>,
    /// Sample of quarantine records.
    pub quarantine_refs: Vec<String>,
    /// Receipts outside the run's folder.
    pub misplaced: CountedSample,
    /// Admissions and duplicates without a bus reference.
    pub without_reference: CountedSample,
}

impl ReceiptTotals {
    fn add(&mut self, line: &RunLine, run: &str, paths: &ArtifactPaths) {
        let Some(decision) = decision(&line.decision) else { return };
        self.receipts.add(decision);
        self.write_failed += u64::from(line.is_unwritten);
        if let Some(policy) = &line.policy
            && (self.policies.len() < NAMES_MAX || self.policies.contains_key(policy))
        {
            *self.policies.entry(policy.clone()).or_default() += 1;
        }
        let producer = line.producer.as_deref().unwrap_or(UNKNOWN);
        entry_of(&mut self.producers, producer).add(decision);
        if let Some(scenario_run) = &line.scenario_run
            && self.scenario_runs.len() < NAMES_MAX
            && !self.scenario_runs.contains(scenario_run)
        {
            self.scenario_runs.insert(scenario_run.clone());
        }
        if line.path != paths.receipt(run, &line.id) {
            self.misplaced.add(&line.path);
        }
        if self.receipt_refs.len() < SAMPLE_MAX {
            self.receipt_refs.push(line.path.clone());
        }
        let output = line.event_type.as_deref().unwrap_or(UNKNOWN);
        entry_of(&mut self.outputs, output).add(decision);
        match decision {
            ReceiptDecision::Admit | ReceiptDecision::Duplicate => {
                if !line.has_reference {
                    self.without_reference.add(&line.id);
                }
            }
            ReceiptDecision::Quarantine => self.add_quarantine(line, run, paths),
        }
    }

    fn add_quarantine(&mut self, line: &RunLine, run: &str, paths: &ArtifactPaths) {
        let reason = line.reason.as_deref().unwrap_or(UNKNOWN);
        *entry_of(&mut self.reasons, reason) += 1;
        if self.quarantine_refs.len() < SAMPLE_MAX {
            self.quarantine_refs.push(paths.quarantine(run, &line.id));
        }
        match &line.state {
            QuarantineState::Open => self.open.add(&line.id),
            QuarantineState::Superseded => self.superseded += 1,
            QuarantineState::Released(resolution) => *entry_of(&mut self.released, resolution) += 1,
        }
    }

    /// Admitted events by output.
    pub fn admitted(&self) -> BTreeMap<String, u64> {
        let admitted = self.outputs.iter().filter(|(_, split)| split.admit > 0);
        admitted.map(|(output, split)| (output.clone(), split.admit)).collect()
    }

    /// Number of released quarantines.
    pub fn released_total(&self) -> u64 {
        self.released.values().sum()
    }
}

fn decision(word: &str) -> Option<ReceiptDecision> {
    [ReceiptDecision::Admit, ReceiptDecision::Duplicate, ReceiptDecision::Quarantine]
        .into_iter()
        .find(|decision| decision.as_str() == word)
}

/// The value of a name, or of [`OTHERS`] beyond the limit.
fn entry_of<'m, T: Default>(names: &'m mut BTreeMap<String, T>, name: &str) -> &'m mut T {
    let is_known = names.contains_key(name);
    let name = if is_known || names.len() < NAMES_MAX { name } else { OTHERS };
    names.entry(name.to_owned()).or_default()
}

impl RunReporter {
    /// Adds up the receipts of a run.
    pub(crate) async fn tally(&self, run: &str) -> Result<ReceiptTotals, Fault> {
        let (mut tally, mut after) = (ReceiptTotals::default(), 0);
        loop {
            let page = self.ledger.run_lines(run.to_owned(), after, PAGE).await?;
            page.iter().for_each(|line| tally.add(line, run, &self.paths));
            match page.last() {
                Some(last) if page.len() == PAGE => after = last.n,
                _ => return Ok(tally),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "platform_20260212T085637Z";

    fn line(n: u64, decision: &str) -> RunLine {
        let id = format!("{n:032x}");
        RunLine {
            n,
            decision: decision.to_owned(),
            reason: None,
            event_type: Some("output".to_owned()),
            producer: Some("svc:world_stream_producer".to_owned()),
            scenario_run: Some("s".to_owned()),
            path: ArtifactPaths::top().receipt(RUN, &id),
            id,
            has_reference: decision != "QUARANTINE",
            is_unwritten: false,
            state: QuarantineState::Open,
            policy: Some(DecidingPolicy { revision: "v0".to_owned(), digest: "d".repeat(64) }),
        }
    }

    fn tally(lines: &[RunLine]) -> ReceiptTotals {
        let mut tally = ReceiptTotals::default();
        lines.iter().for_each(|line| tally.add(line, RUN, &ArtifactPaths::top()));
        tally
    }

    #[test]
    fn receipts_are_split_by_decision_producer_and_output() {
        let other = RunLine { producer: None, event_type: None, ..line(3, "ADMIT") };
        let added = tally(&[line(1, "ADMIT"), line(2, "DUPLICATE"), other, line(4, "QUARANTINE")]);
        assert_eq!(added.receipts, Split { admit: 2, duplicate: 1, quarantine: 1 });
        let streamer = &added.producers["svc:world_stream_producer"];
        assert_eq!(*streamer, Split { admit: 1, duplicate: 1, quarantine: 1 });
        assert_eq!(added.producers["unknown"].admit, 1);
        assert_eq!(
            added.admitted(),
            BTreeMap::from([("output".to_owned(), 1), ("unknown".to_owned(), 1)])
        );
        assert_eq!(added.policies.values().copied().collect::<Vec<_>>(), [4]);
        assert_eq!(added.scenario_runs.len(), 1);
        assert_eq!(
            added.quarantine_refs,
            [ArtifactPaths::top().quarantine(RUN, &format!("{:032x}", 4))]
        );
    }

    #[test]
    fn quarantines_are_counted_by_state() {
        let released = |n, resolution: &str| RunLine {
            state: QuarantineState::Released(resolution.to_owned()),
            reason: Some("SCHEMA_FAIL".into()),
            ..line(n, "QUARANTINE")
        };
        let superseded = RunLine { state: QuarantineState::Superseded, ..line(9, "QUARANTINE") };
        let added = tally(&[
            released(1, "dismissed"),
            released(2, "dismissed"),
            released(3, "reconciled"),
            superseded,
            line(5, "QUARANTINE"),
        ]);
        assert_eq!((added.open.count, added.superseded, added.released_total()), (1, 1, 3));
        assert_eq!(added.released["dismissed"], 2);
        assert_eq!(added.reasons["SCHEMA_FAIL"], 3);
    }

    #[test]
    fn misplaced_receipts_and_missing_references_are_counted() {
        let elsewhere = RunLine { path: "other/ig/receipts/x.json".into(), ..line(1, "ADMIT") };
        let without_reference = RunLine { has_reference: false, ..line(2, "DUPLICATE") };
        let unwritten = RunLine { is_unwritten: true, ..line(3, "ADMIT") };
        let added = tally(&[elsewhere, without_reference, unwritten]);
        assert_eq!(
            (added.misplaced.count, added.without_reference.count, added.write_failed),
            (1, 1, 1)
        );
    }

    #[test]
    fn names_beyond_the_limit_are_counted_together() {
        let lines: Vec<RunLine> = (0..1_100u64)
            .map(|n| RunLine { producer: Some(format!("p{n}")), ..line(n, "ADMIT") })
            .collect();
        let added = tally(&lines);
        assert_eq!(added.producers.len(), NAMES_MAX + 1);
        assert_eq!(added.producers[OTHERS].admit, 100);
        assert_eq!((added.receipt_refs.len(), added.receipts.total()), (SAMPLE_MAX, 1_100));
    }
}
