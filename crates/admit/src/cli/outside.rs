//! What `admit verify` finds outside the ledger: documents against files, admissions against the bus.
//!
//! The ledger is the truth, so everything is asked from it: every document has its file, every file
//! its document; every admission its message, every message its admission.

use std::collections::{BTreeMap, HashSet};
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::Artifacts;
use admit_bus::StoredMessage;
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_contracts::ingestion_gate::audit_check::{self, DocumentOrigin};
use admit_contracts::ingestion_gate::{DOOR, names, publication};
use admit_core::effect::{Effect, EffectState};
use admit_core::json;
use admit_core::{Digest, Door, Fault, StoredDocument, DocumentKind, Seq};
use admit_ledger::verify::{Disagreement, DisagreementSink};
use admit_ledger::{EffectFilter, DocumentFilter, Run, RunCounts};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::time::Instant;

use super::ledger_files::{self, LedgerFile};
use super::outside_bus::Messages;
use super::outside_pages::{Ahead, ClaimedKeys, Documented};
use super::published::Published;
use crate::artifacts;
use crate::bus::Reading;
use crate::config::Config;
use crate::ledger::LedgerReader;
use crate::output::{Failure, aside};

/// Rows that are read at a time.
const PAGE: usize = 500;

/// Between two lines of progress; a multiple of [`PAGE`].
const PROGRESS_EVERY: u64 = 10_000;

/// Paths that are listed at a time. A folder is read and sorted as a whole for each page, so a large page
/// keeps the check linear.
const LIST_PAGE: usize = 100_000;

/// A running gate writes a file a moment after its commit.
const MOMENT: Duration = Duration::from_millis(500);

/// Where files are written behind, it takes longer.
const MOMENT_BEHIND: Duration = Duration::from_secs(5);

/// Files that are read at once.
const AT_ONCE: usize = 16;

/// How much was looked at.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) artifacts: u64,
    pub(super) messages: u64,
    /// Messages on a shared bus that are of no admission here.
    pub(super) others: u64,
    /// Admissions whose message the bus has let go, by its own rule.
    pub(super) gone: u64,
    pub(super) ambiguous: u64,
}

/// Why it could not be looked at.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutsideError {
    #[error("the ledger cannot be read: {0}")]
    Ledger(#[from] Fault),
    #[error(transparent)]
    Artifacts(#[from] admit_artifacts::ArtifactsError),
    #[error("the bus cannot be read: {0}")]
    Bus(#[from] std::io::Error),
}

/// The bus, and the topics to look at where it cannot list them.
pub(super) struct OnBus {
    pub(super) source: Reading,
    pub(super) topics: Vec<String>,
    /// Topics of messages that never were events: what the gate and the runner say themselves.
    pub(super) apart: Vec<String>,
}

/// The artifacts, and how long a running gate may take to write what it has committed.
pub(super) struct OnFiles {
    store: Arc<dyn Artifacts>,
    patience: Duration,
}

impl OnFiles {
    /// The artifacts that the config names.
    pub(super) fn open(config: &Config) -> Result<Self, Failure> {
        let patience = if artifacts::behind(config)?.is_some() { MOMENT_BEHIND } else { MOMENT };
        Ok(Self { store: artifacts::open_reading(config)?, patience })
    }

    /// What is wrong with the file of a document.
    async fn file_of(&self, filed: &StoredDocument) -> Result<Option<String>, OutsideError> {
        let path = &filed.document.path;
        let until = Instant::now() + self.patience;
        let mut file = self.store.get(path).await?;
        while file.is_none() && Instant::now() < until {
            tokio::time::sleep(MOMENT.min(self.patience)).await;
            file = self.store.get(path).await?;
        }
        Ok(match file {
            None => Some(format!("{path} is missing")),
            Some(file) if file.strip_suffix(b"\n") != Some(filed.document.text.as_bytes()) => {
                Some(format!("{path} is not what the ledger says"))
            }
            Some(_) => None,
        })
    }
}

/// Compares all three. `last` is the newest place that the ledger's own check has seen.
pub(super) async fn verify(
    ledger: &dyn LedgerReader,
    artifacts: &OnFiles,
    bus: &OnBus,
    (files, reconciled): (&[LedgerFile], &HashSet<Seq>),
    last: Seq,
    found: &mut DisagreementSink<'_>,
) -> Result<Outside, OutsideError> {
    let mut outside = Outside::default();
    let mut documented = Documented::upto(last);
    let about = (reconciled, &mut documented);
    documents(ledger, artifacts, about, &mut outside, found).await?;
    outside.artifacts += ledger_files::check(files, &*artifacts.store, found).await?;
    documented.sort();
    strangers(ledger, &*artifacts.store, &documented, found).await?;
    messages(ledger, bus, &documented, last, &mut outside, found).await?;
    Ok(outside)
}

/// Every document has its file, byte for byte.
async fn documents(
    ledger: &dyn LedgerReader,
    files: &OnFiles,
    (reconciled, documented): (&HashSet<Seq>, &mut Documented),
    outside: &mut Outside,
    found: &mut DisagreementSink<'_>,
) -> Result<(), OutsideError> {
    let mut after = 0;
    let before = runs(ledger).await?;
    let mut tallies = Tallies::default();
    loop {
        let filter = DocumentFilter { after, rows_max: PAGE, ..DocumentFilter::default() };
        let page = ledger.filed(filter).await?;
        let Some(last) = page.last() else { break };
        after = last.n;
        // Every question takes its time, so several are asked at once.
        let ahead =
            Ahead::of(ledger, page.iter().map(|filed| filed.of.unwrap_or(filed.seq))).await?;
        let asked = (ledger, &ahead, reconciled);
        let looked = page.iter().map(|filed| look_at(asked, files, filed)).collect::<Vec<_>>();
        let looked: Vec<_> = stream::iter(looked).buffered(AT_ONCE).try_collect().await?;
        for (filed, looked) in page.iter().zip(looked) {
            outside.artifacts += 1;
            tallies.count(filed);
            documented.note(filed);
            looked.into_iter().for_each(&mut *found);
        }
        progress(outside.artifacts, "documents");
    }
    tallies.judge(&before, &runs(ledger).await?, found);
    tallies.lines(&*files.store, found).await
}

/// Everything that is wrong about one document.
async fn look_at(
    (ledger, ahead, reconciled): (&dyn LedgerReader, &Ahead<'_>, &HashSet<Seq>),
    files: &OnFiles,
    filed: &StoredDocument,
) -> Result<Vec<Disagreement>, OutsideError> {
    let mut wrong = Vec::new();
    if let Some(message) = files.file_of(filed).await? {
        wrong.push(Disagreement::at(filed.seq, "artifact", message));
    }
    if !is_borne_out((ledger, ahead, reconciled), filed).await? {
        let path = &filed.document.path;
        let message = format!("{path} is not what its body and its outcome give");
        wrong.push(Disagreement::at(filed.seq, "document", message));
    }
    if let Some(message) = raw_of(ledger, &*files.store, filed).await? {
        wrong.push(Disagreement::at(filed.seq, "artifact", message));
    }
    Ok(wrong)
}

/// Says how far it is, where somebody watches.
fn progress(count: u64, what: &str) {
    if count.is_multiple_of(PROGRESS_EVERY) && std::io::stderr().is_terminal() {
        aside(&format!("{count} {what} checked"));
    }
}

/// Every run, by its name.
async fn runs(ledger: &dyn LedgerReader) -> Result<BTreeMap<String, Run>, OutsideError> {
    let mut all = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = ledger.runs(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = last.id.clone();
        all.extend(page.into_iter().map(|run| (run.id.clone(), run)));
    }
}

/// What the documents add up to: counters of runs, and lines of governance logs.
#[derive(Default)]
struct Tallies {
    runs: BTreeMap<String, RunCounts>,
    logs: BTreeMap<String, Vec<(Seq, Digest)>>,
}

impl Tallies {
    fn count(&mut self, filed: &StoredDocument) {
        let issued = &filed.document;
        if issued.kind == DocumentKind::Governance {
            if let Some(log) = log_of(filed) {
                let line = (filed.seq, Digest::of(issued.text.as_bytes()));
                self.logs.entry(log).or_default().push(line);
            }
            return;
        }
        let Some(run) = issued.run.as_ref().filter(|_| issued.kind == DocumentKind::Receipt) else {
            return;
        };
        let counts = self.runs.entry(run.clone()).or_default();
        match &*issued.decision {
            "ADMIT" => counts.admit += 1,
            "DUPLICATE" => counts.duplicate += 1,
            _ => counts.quarantine += 1,
        }
        counts.superseded += i64::from(filed.superseded_by.is_some());
        counts.released += i64::from(filed.released.is_some());
    }

    /// The counters of every run that nobody has changed meanwhile.
    fn judge(
        &mut self,
        before: &BTreeMap<String, Run>,
        now: &BTreeMap<String, Run>,
        found: &mut DisagreementSink<'_>,
    ) {
        for (name, run) in now.iter().filter(|(name, run)| before.get(*name) == Some(*run)) {
            let RunCounts { deliveries, in_flight, ambiguous, .. } = run.counts;
            let tally = self.runs.remove(name).unwrap_or_default();
            let tally = RunCounts { deliveries, in_flight, ambiguous, ..tally };
            if tally != run.counts {
                let message =
                    format!("the counters of {name} are not what its documents add up to");
                found(Disagreement { at: None, check: "run", message });
            }
        }
    }

    /// Every governance document has its line.
    async fn lines(
        &self,
        store: &dyn Artifacts,
        found: &mut DisagreementSink<'_>,
    ) -> Result<(), OutsideError> {
        for (path, wanted) in &self.logs {
            let log = store.get(path).await?.unwrap_or_default();
            let there: HashSet<Digest> = log.split(|byte| *byte == b'\n').map(Digest::of).collect();
            for (seq, _) in wanted.iter().filter(|(_, line)| !there.contains(line)) {
                let message = format!("{path} does not have its line");
                found(Disagreement::at(*seq, "artifact", message));
            }
        }
        Ok(())
    }
}

/// Whether a document is what comes out when it is made again.
async fn is_borne_out(
    (ledger, ahead, reconciled): (&dyn LedgerReader, &Ahead<'_>, &HashSet<Seq>),
    filed: &StoredDocument,
) -> Result<bool, OutsideError> {
    // Retention may have let its row go; whether it may is for the ledger's own check.
    let Some(delivery) = ahead.receipt(filed.seq).await? else { return Ok(true) };
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let Ok(json::Value::Object(facts)) = json::parse(&delivery.facts, &limits) else {
        return Ok(false);
    };
    let of = filed.of.unwrap_or(filed.seq);
    let (mut committed, mut by) = (None, None);
    if let Some(effect) = ahead.effect(of).await?
        && matches!(effect.state, EffectState::Done(_))
    {
        committed = effect.state.evidence().and_then(CommitEvidence::read);
        if reconciled.contains(&of) {
            let history = ledger.history(of).await?;
            let done = history.into_iter().rev().find(|line| line.what == "done");
            by = done.and_then(|line| line.by);
        }
    }
    let origin = DocumentOrigin {
        facts: &facts,
        is_copy: delivery.verdict == "duplicate",
        committed: committed.as_ref(),
        by: by.as_ref(),
        at: filed.at,
    };
    Ok(audit_check::matches_origin(&filed.document, &origin))
}

/// Where the bytes of a delivery lie that is in no run.
pub(super) fn raw_path(filed: &StoredDocument) -> Option<String> {
    let is_outside = filed.document.run.is_none() && filed.document.kind == DocumentKind::Quarantine;
    let path = filed.document.path.strip_suffix(".json").filter(|_| is_outside)?;
    Some(format!("{path}.raw"))
}

/// The log that a governance document has its line in.
pub(super) fn log_of(filed: &StoredDocument) -> Option<String> {
    let (folder, _) = filed.document.path.rsplit_once("/markers/")?;
    Some(format!("{folder}/events.jsonl"))
}

/// The body that a document is about, unless the ledger has let it go. A copy of a refusal keeps none.
pub(super) async fn body_of(
    ledger: &dyn LedgerReader,
    filed: &StoredDocument,
) -> Result<Option<bytes::Bytes>, Fault> {
    let first = ledger.receipt(filed.seq).await?.and_then(|receipt| receipt.first);
    ledger.body(first.map_or(filed.seq, |first| first.seq)).await
}

/// What is wrong with the bytes beside the record of a delivery that is in no run.
async fn raw_of(
    ledger: &dyn LedgerReader,
    store: &dyn Artifacts,
    filed: &StoredDocument,
) -> Result<Option<String>, OutsideError> {
    let Some(path) = raw_path(filed) else { return Ok(None) };
    // Where the ledger has let the body go, the file is all there is.
    let Some(body) = body_of(ledger, filed).await? else { return Ok(None) };
    Ok(match store.get(&path).await? {
        None => Some(format!("{path} is missing")),
        Some(raw) if raw != body => Some(format!("{path} is not the body that came")),
        Some(_) => None,
    })
}

/// Every file of a document has its document.
async fn strangers(
    ledger: &dyn LedgerReader,
    store: &dyn Artifacts,
    documented: &Documented,
    found: &mut DisagreementSink<'_>,
) -> Result<(), OutsideError> {
    let mut after = None;
    loop {
        let page = store.list("", after.take(), LIST_PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for path in &page {
            let is_ours = path.contains("/ig/receipts/") || path.contains("/ig/quarantine/");
            let id = path.rsplit('/').next().and_then(|name| name.strip_suffix(".json"));
            let Some(id) = id.filter(|_| is_ours && !documented.has_path(path)) else { continue };
            let named = ledger.named(id.to_owned()).await?;
            if !named.iter().any(|filed| filed.document.path == *path) {
                let message = format!("{path} is not in the ledger");
                found(Disagreement { at: None, check: "artifact", message });
            }
        }
    }
}

/// Every message has its admission, and every admission its message.
async fn messages(
    ledger: &dyn LedgerReader,
    bus: &OnBus,
    documented: &Documented,
    last: Seq,
    outside: &mut Outside,
    found: &mut DisagreementSink<'_>,
) -> Result<(), OutsideError> {
    let places = usize::try_from(last.0).unwrap_or(usize::MAX).saturating_add(1);
    // One mark per place: which admissions have been seen on the bus.
    let mut seen = vec![false; places];
    let mut published = Published::read(ledger).await?;
    let mut topics = bus.topics.clone();
    topics.extend(published.topics().filter(|topic| !bus.topics.contains(topic)));
    let mut messages = Messages::over(&bus.source, topics)?;
    let keys = ClaimedKeys::read(ledger).await?;
    loop {
        let mut batch = Vec::with_capacity(PAGE);
        while batch.len() < PAGE
            && let Some(record) = messages.next().await
        {
            outside.messages += 1;
            match record {
                Ok(record) => {
                    let key = record.dedupe_key.as_ref();
                    let seq = key.and_then(|key| keys.find(&names::key(&Door::new(DOOR), key)));
                    batch.push((record, seq));
                }
                Err(message) => stray(found, message),
            }
        }
        if batch.is_empty() {
            break;
        }
        progress(outside.messages, "messages");
        let ahead = Ahead::of(ledger, batch.iter().filter_map(|(_, seq)| *seq)).await?;
        let bodies = batch.iter().map(async |(_, seq)| match seq {
            Some(seq) => ledger.body(*seq).await,
            None => Ok(None),
        });
        let bodies: Vec<_> =
            stream::iter(bodies.collect::<Vec<_>>()).buffered(AT_ONCE).try_collect().await?;
        for ((record, seq), body) in batch.iter().zip(bodies) {
            let at = &record.reference;
            let is_ours = match seq {
                Some(seq) => message(&ahead, record, (*seq, body), &mut seen, found).await?,
                None => match &record.dedupe_key {
                    Some(key) => published.message(ledger, record, key, found).await?,
                    None => false,
                },
            };
            if !is_ours && !bus.apart.contains(&at.topic) && messages.is_shared() {
                outside.others += 1;
            } else if !is_ours && !bus.apart.contains(&at.topic) {
                stray(found, foreign(record));
            }
        }
    }
    outside.gone += published.judge(&messages, found);
    outside.ambiguous += published.ambiguous;
    let mut after = Seq(0);
    loop {
        let filter = EffectFilter {
            door: Some(DOOR.to_owned()),
            states: vec!["done".to_owned(), "ambiguous".to_owned()],
            after,
            rows_max: PAGE,
        };
        let page = ledger.effects(filter).await?;
        let Some(newest) = page.last() else { return Ok(()) };
        after = newest.seq;
        for effect in page.iter().filter(|effect| effect.seq <= last) {
            admission(effect, (&seen, &messages, documented), outside, found);
        }
    }
}

/// A message on a bus of our own that belongs to no admission.
fn foreign(record: &StoredMessage) -> String {
    let at = &record.reference;
    let place = format!("{} {}:{}", at.topic, at.partition, at.offset);
    match &record.dedupe_key {
        Some(key) => format!("{place} is of no admission: {key}"),
        None => format!("{place} has no dedupe key"),
    }
}

fn stray(found: &mut DisagreementSink<'_>, message: String) {
    found(Disagreement { at: None, check: "bus", message });
}

/// One message: whose is it, and is it where that says. Whether it is of an admission here.
async fn message(
    ahead: &Ahead<'_>,
    record: &StoredMessage,
    (seq, body): (Seq, Option<bytes::Bytes>),
    seen: &mut [bool],
    found: &mut DisagreementSink<'_>,
) -> Result<bool, OutsideError> {
    let at = &record.reference;
    let place = format!("{} {}:{}", at.topic, at.partition, at.offset);
    let Some(effect) = ahead.effect(seq).await? else {
        stray(found, format!("{place} is of an admission without an effect"));
        return Ok(true);
    };
    if let Some(body) = body
        && !is_same(&body, &record.payload)
    {
        found(Disagreement::at(seq, "bus", format!("{place} holds another envelope")));
    }
    let planned = json::parse(&effect.plan, &json::Limits::default()).ok();
    let planned = planned.as_ref().and_then(|plan| publication::plan(plan.as_object()?));
    if planned.is_none_or(|plan| plan.partition_key != record.partition_key) {
        let message = format!("{place} has another partition key than was planned");
        found(Disagreement::at(seq, "bus", message));
    }
    match &effect.state {
        EffectState::Done(_) => {
            let said = effect.state.evidence().and_then(CommitEvidence::read);
            let is_there = said.is_some_and(|said| {
                let said = said.eb_ref;
                said.topic == at.topic
                    && said.partition == at.partition
                    && said.offset == at.offset
                    && (said.published_at.is_none() || said.published_at == at.published_at)
            });
            let index = usize::try_from(seq.0).unwrap_or(usize::MAX);
            match seen.get_mut(index) {
                Some(mark) if is_there => *mark = true,
                _ if is_there => {}
                _ => {
                    let message = format!("{place} is a second message of one admission");
                    found(Disagreement::at(seq, "bus", message));
                }
            }
        }
        EffectState::Refused(_) => {
            let message = format!("{place} is of an admission that was released as absent");
            found(Disagreement::at(seq, "bus", message));
        }
        // Not settled: what the bus has is for whoever reconciles.
        EffectState::Withheld(_)
        | EffectState::Intended(_)
        | EffectState::InFlight(_)
        | EffectState::Ambiguous(_) => {}
    }
    Ok(true)
}

/// One settled admission: its message was seen, and its documents are there.
fn admission(
    effect: &Effect,
    (seen, messages, documented): (&[bool], &Messages<'_>, &Documented),
    outside: &mut Outside,
    found: &mut DisagreementSink<'_>,
) {
    let index = usize::try_from(effect.seq.0).unwrap_or(usize::MAX);
    let is_done = matches!(effect.state, EffectState::Done(_));
    if is_done && !seen.get(index).copied().unwrap_or(false) {
        let said = effect.state.evidence().and_then(CommitEvidence::read).map(|said| said.eb_ref);
        let is_gone = said.is_some_and(|at| messages.is_gone(&at.topic, at.partition, &at.offset));
        if is_gone {
            outside.gone += 1;
        } else {
            let message = "the bus does not have its message where the ledger says";
            found(Disagreement::at(effect.seq, "bus", message));
        }
    }
    if !is_done {
        outside.ambiguous += 1;
    }
    let (wanted, mark, what) = match is_done {
        true => ("ADMIT", Documented::ADMIT, "admitted"),
        false => ("QUARANTINE", Documented::QUARANTINE, "ambiguous"),
    };
    if !documented.has(effect.seq, mark) {
        let message = format!("it is {what} and has no {wanted} receipt");
        found(Disagreement::at(effect.seq, "receipt", message));
    }
}

/// The same envelope: byte for byte, or as data where a line could not hold its spaces.
fn is_same(body: &[u8], payload: &[u8]) -> bool {
    let canonical = |text: &[u8]| {
        let limits = json::Limits { bytes_max: usize::MAX, depth_max: json::DEPTH_CEILING };
        json::parse(text, &limits)
            .ok()
            .and_then(|value| json::canonical(&value, json::Form::Ascii).ok())
    };
    body == payload || canonical(body) == canonical(payload)
}
