//! Closing a run: nothing new comes in, what is in flight lands, and then it is judged.
//!
//! ```text
//! begin ─▶ what is in flight lands ─▶ account ─▶ find_objections ─▶ closed + closure | open again
//! commit        waits, bounded         reads     pure     commit
//! ```
//!
//! It can stop anywhere. What stops before the last commit leaves a run in `closing`: the next attempt
//! takes it up from the beginning, and the next start opens it again. What stops after it leaves a
//! closed run whose file the next attempt, or the next start, writes.

mod contents;
mod document;
mod presence;

use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::{Artifacts as _, ArtifactsError, File};
use admit_contracts::ingestion_gate::governance::GovernanceFamily;
use admit_core::closure::{RunFacts, CountedSample, Manifest, Miscount, Objection, find_objections};
use admit_core::effect::Attribution;
use admit_core::json::{Object, Value};
use admit_core::{Fault, FaultKind, DocumentKind};
use admit_ledger::RunCounts;
use admit_ledger::closures::{AmbiguityCounts, ClosingStart, Closure, ClosingEnd, UnsettledCounts};
use tokio::time::{Instant, sleep};

use crate::report::{RunReporter, SentTotals, Tally};
use contents::Contents;
use presence::Presence;

/// Between two looks at what is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Closures that are looked after at a time.
const PAGE: usize = 256;

/// A run that is closed.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// The closure.
    pub document: Object<'static>,
    /// Where its file is.
    pub reference: String,
}

/// Why a run was not closed.
#[derive(Clone, Debug)]
pub enum NotClosed {
    /// Nobody has named such a run.
    Unknown,
    /// Somebody else is closing it.
    InWork,
    /// It may not be closed: this speaks against it. The run is open, or was closed before.
    Refused {
        /// How the run stands.
        state: &'static str,
        /// Everything that speaks against it.
        objections: Vec<Objection>,
    },
    /// Our side failed.
    Fault(Fault),
}

impl From<Fault> for NotClosed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Everything a closure says.
struct Accounted {
    account: RunFacts,
    tally: Tally,
    unsettled: UnsettledCounts,
    sent: SentTotals,
    counts: RunCounts,
    receipts: Presence,
    records: Presence,
    contents: Contents,
    ambiguities: AmbiguityCounts,
    refused_while_closing: u64,
}

impl RunReporter {
    /// Closes a run, or says everything that speaks against it. A run that is closed stays so, and
    /// asking again gives its closure again.
    ///
    /// # Errors
    /// See [`NotClosed`].
    pub async fn close(
        self: &Arc<Self>,
        run: &str,
        manifest: Option<Manifest>,
        by: Attribution,
    ) -> Result<Closed, NotClosed> {
        let _attempt = Attempt::begin(self, run).ok_or(NotClosed::InWork)?;
        let begun = self.ledger.begin_closing(run.to_owned(), by.clone(), self.clock.now()).await?;
        let attempt = match begun {
            ClosingStart::Unknown => return Err(NotClosed::Unknown),
            ClosingStart::Closed(closure) => return self.closed_before(closure, manifest).await,
            ClosingStart::Closing { attempt } => attempt,
        };
        let accounted = self.account(run, manifest).await;
        let objections = accounted.as_ref().map(|accounted| find_objections(&accounted.account));
        let at = self.clock.now();
        let closed = match (&accounted, &objections) {
            (Ok(accounted), Ok(objections)) if objections.is_empty() => {
                Some(document::closure(run, accounted, &by, at, &self.settings))
            }
            _ => None,
        };
        let path = self.paths.of_run(run, "obs/run_closure.json");
        let ending = match &closed {
            Some(document) => ClosingEnd::Closed { path: path.clone(), text: document::text(document) },
            None => ClosingEnd::Reopened,
        };
        let ended = self.ledger.end_closing(run.to_owned(), attempt, ending, at).await?;
        let objections = objections.map_err(Clone::clone)?;
        match closed {
            _ if !ended => Err(NotClosed::InWork),
            Some(document) => {
                tracing::info!(run, who = by.who, "a run was closed");
                let text = document::text(&document);
                let closure = Closure { run: run.to_owned(), at, path, text, is_filed: false };
                self.file(&closure).await?;
                Ok(Closed { document, reference: closure.path })
            }
            None => {
                if let Ok(accounted) = &accounted {
                    self.have_written_again(run, accounted).await;
                }
                let grounds: Vec<&str> = objections.iter().map(|o| o.ground.as_str()).collect();
                tracing::warn!(run, grounds = grounds.join(" "), "a run cannot be closed");
                Err(NotClosed::Refused { state: "open", objections })
            }
        }
    }

    /// What has lost its file gets it again from the ledger, for the next attempt.
    async fn have_written_again(&self, run: &str, accounted: &Accounted) {
        let lost = [&*accounted.receipts.lost, &*accounted.records.lost].concat();
        if lost.is_empty() {
            return;
        }
        let count = lost.len();
        match self.ledger.note_missing(lost).await {
            Ok(()) => tracing::warn!(run, count, "lost files of a run are written again"),
            Err(fault) => tracing::warn!(run, %fault, "lost files of a run could not be noted"),
        }
    }

    /// Before the doors open: runs that were being closed take events again, and closures that were
    /// committed get their files.
    ///
    /// # Errors
    /// When the ledger or the artifacts fail.
    pub async fn recover(&self) -> Result<(), Fault> {
        for run in self.ledger.reopen_lost(self.clock.now()).await? {
            tracing::warn!(run, "the gate stopped while it closed this run, the run is open again");
        }
        loop {
            let unfiled = self.ledger.unfiled_closures(PAGE).await?;
            for closure in &unfiled {
                self.file(closure).await?;
                tracing::info!(run = closure.run, "the closure of a run was put back");
            }
            if unfiled.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// A run that was closed before: its closure again, unless the manifest asks for another one.
    async fn closed_before(
        &self,
        closure: Closure,
        manifest: Option<Manifest>,
    ) -> Result<Closed, NotClosed> {
        let damaged = || Fault::new(FaultKind::Internal, "the closure of this run cannot be read");
        let document = document::read(&closure.text).ok_or_else(damaged)?;
        let outputs = document::admitted(&document);
        let account = RunFacts { admitted: 1, outputs, manifest, ..RunFacts::default() };
        let objections = find_objections(&account);
        if !objections.is_empty() {
            return Err(NotClosed::Refused { state: "closed", objections });
        }
        // Nobody writes over the file, but somebody may have taken it away.
        if !closure.is_filed || self.artifacts_get(&closure.path).await?.is_none() {
            self.file(&closure).await?;
        }
        Ok(Closed { document, reference: closure.path })
    }

    /// Writes a closure down where nothing is yet, and tells whoever watches over the run.
    async fn file(&self, closure: &Closure) -> Result<(), Fault> {
        let cannot = |error: ArtifactsError| {
            let message = "the run is closed, but its closure cannot be written; close it again";
            Fault::caused_by(FaultKind::OutcomeUnknown, message, error)
        };
        let bytes = format!("{}\n", closure.text);
        let put = self.artifacts.put_if_absent(vec![File::new(&*closure.path, bytes)]).await;
        put.into_iter().try_for_each(|put| put.map(drop)).map_err(cannot)?;
        let details = evidence(closure);
        let resolved = self.append_governance_line(
            GovernanceFamily::EvidenceRefResolved,
            &closure.run,
            "run_closure_evidence",
            closure.at,
            details,
        );
        resolved.await.map_err(cannot)?;
        let details = Object::from_iter([("closure_ref", Value::from(closure.path.clone()))]);
        let told = self.append_governance_line(GovernanceFamily::RunEnded, &closure.run, "run_closure", closure.at, details);
        told.await.map_err(cannot)?;
        let log = self.paths.governance_log(&closure.run);
        self.artifacts.compose(&log).await.map_err(cannot)?;
        self.artifacts.sync().await.map_err(cannot)?;
        self.ledger.note_closure_filed(closure.run.clone()).await
    }

    /// Everything that is known of a run, once nothing is in flight or patience has run out.
    async fn account(&self, run: &str, manifest: Option<Manifest>) -> Result<Accounted, Fault> {
        let until = Instant::now() + self.settings.closing_wait;
        while self.counts(run).await?.in_flight > 0 && Instant::now() < until {
            sleep(LOOK_EVERY).await;
        }
        let _permit = self.acquire_permit().await?;
        let before = self.counts(run).await?;
        let tally = self.tally(run).await?;
        let unsettled = self.unsettled(run).await?;
        let counts = self.counts(run).await?;
        let receipts = self.present(run, DocumentKind::Receipt, until).await?;
        let mut records = self.present(run, DocumentKind::Quarantine, until).await?;
        // Lines of the governance log have more writers than the gate, so only what is missing counts.
        let lines = self.present(run, DocumentKind::Governance, until).await?;
        records.lost.extend(lines.lost);
        records.missing.count += lines.missing.count;
        records.missing.sample.extend(lines.missing.sample);
        records.missing.sample.truncate(admit_core::closure::SAMPLE_MAX);
        let mut unknown = receipts.unknown.clone();
        unknown.count += records.unknown.count;
        unknown.sample.extend(records.unknown.sample.iter().cloned());
        unknown.sample.truncate(admit_core::closure::SAMPLE_MAX);
        let contents = self.contents(run).await?;
        let sent = self.sent(run).await?;
        let account = RunFacts {
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
        Ok(Accounted {
            account,
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

    /// Outputs of a manifest that no event can be of, and none is of.
    fn unknown_outputs(&self, manifest: Option<&Manifest>, tally: &Tally) -> CountedSample {
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

/// What governance learns of the evidence behind a closure: every receipt and quarantine record of the
/// run was followed to its file.
fn evidence(closure: &Closure) -> Object<'static> {
    let document = document::read(&closure.text).unwrap_or_default();
    let count = |name: &str| document.get(name).and_then(Value::as_u64).unwrap_or(0);
    let resolved = count("receipts_present") + count("quarantine_records_present");
    Object::from_iter([
        ("closure_ref", Value::from(closure.path.clone())),
        ("attempted", resolved.into()),
        ("resolved", resolved.into()),
        ("denied", 0.into()),
    ])
}

/// Counters that are not what there is. Copies are still counted while a run is closing, so a counter
/// is right when what was found lies between what it said before and after.
fn miscounted(
    before: &RunCounts,
    after: &RunCounts,
    tally: &Tally,
    unsettled: UnsettledCounts,
) -> Vec<Miscount> {
    let both = |of: fn(&RunCounts) -> i64| (of(before), of(after));
    let compared = [
        ("admit", both(|counts| counts.admit), tally.receipts.admit),
        ("duplicate", both(|counts| counts.duplicate), tally.receipts.duplicate),
        ("quarantine", both(|counts| counts.quarantine), tally.receipts.quarantine),
        ("superseded", both(|counts| counts.superseded), tally.superseded),
        ("released", both(|counts| counts.released), tally.released_total()),
        ("in_flight", both(|counts| counts.in_flight), unsettled.in_work),
        ("ambiguous", both(|counts| counts.ambiguous), unsettled.ambiguous),
    ];
    let wrong = compared.into_iter().filter_map(|(name, (before, after), found)| {
        let found = i64::try_from(found).unwrap_or(i64::MAX);
        let is_right = (before.min(after)..=before.max(after)).contains(&found);
        (!is_right).then_some(Miscount { name, counted: after, found })
    });
    wrong.collect()
}

/// An attempt of this process; there is one at a time for each run.
struct Attempt {
    books: Arc<RunReporter>,
    run: String,
}

impl Attempt {
    fn begin(books: &Arc<RunReporter>, run: &str) -> Option<Self> {
        let is_first = books.closing().insert(run.to_owned());
        is_first.then(|| Self { books: Arc::clone(books), run: run.to_owned() })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.books.closing().remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_may_move_while_it_is_compared_but_not_be_wrong() {
        let mut tally = Tally::default();
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
