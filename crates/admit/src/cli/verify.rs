//! `admit verify`: recomputes the ledger from the raw bodies and reports disagreements.
//!
//! The ledger checks its structure, keys, references and counters. The contracts recompute key, digest and
//! facts from each body, and the projections of all bodies must give the stored documents. Whatever could not
//! be recomputed is counted and reported. Reads only, also while a gate runs.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;

use admit_contracts::events::{Events, recompute};
use admit_contracts::ingestion_gate::governance::AUDIT_TOPIC;
use admit_contracts::pixel_control::{self, PixelControl, SchemaMode, Settings};
use admit_contracts::{Contract as _, ingestion_gate, intents, rounds, skyra};
use admit_core::projection::ProjectionState;
use admit_core::{Digest, Door, Entry, Event, Key, Principal, ReceiptId, Seq, Submission, json};
use admit_ledger::sqlite::unreadable::UnreadableCell;
use admit_ledger::verify::{
    Disagreement, DisagreementSink, InboxCounts, RecordsChecked, StoredAdmission, Structure,
    UnreadableDocument, Verifier, VerifyError,
};
use bytes::Bytes;
use serde_json::json;

use super::ledger_files::FileSources;
use super::receipts::unreadable;
use super::verify_artifacts::ArtifactSource;
use super::verify_bus::BusSource;
use super::verify_stores::StoreCounts;
use super::{LedgerArgs, ledger_files, verify_advice, verify_records, verify_stores};
use crate::bus;
use crate::config::{Config, EventsConfig};
use crate::ledger::{open_readable_rows, open_verifier};
use crate::output::{Failure, counted, print, print_json, print_stderr, printable};

/// Admissions between two lines of progress.
const PROGRESS_EVERY: u64 = 100_000;

/// Nesting limit for stored bodies: the highest that a config can set.
const DEPTH_MAX: usize = 512;

pub(super) fn run(args: LedgerArgs, as_json: bool) -> Result<(), Failure> {
    let (config, base) = args.load()?;
    let shows_progress = std::io::stderr().is_terminal();
    let (report, ledger, checked) = check(&config, &base, as_json, shows_progress)?;
    report.finish(&ledger, &checked)
}

/// Verifies and prints only progress. Returns the disagreements as text.
pub(crate) fn collect_disagreements(config: &Config, base: &Path) -> Result<VerifyResult, Failure> {
    let (report, ..) = check(config, base, true, true)?;
    let text = |disagreement: &serde_json::Value, name: &str| {
        disagreement[name].as_str().map_or_else(|| "ledger".to_owned(), printable)
    };
    let line = |it: &serde_json::Value| {
        format!("{}: {}: {}", text(it, "receipt"), text(it, "check"), text(it, "message"))
    };
    let is_repairable =
        |it: &serde_json::Value| it["check"].as_str().is_some_and(verify_advice::is_repairable);
    Ok(VerifyResult {
        are_repairable: report.disagreements.iter().all(is_repairable),
        disagreements: report.disagreements.iter().map(line).collect(),
    })
}

/// Disagreements found by [`collect_disagreements`].
pub(crate) struct VerifyResult {
    /// One line per disagreement.
    pub(crate) disagreements: Vec<String>,
    /// Whether `admit repair` can write all files that they are about.
    pub(crate) are_repairable: bool,
}

fn check(
    config: &Config,
    base: &Path,
    as_json: bool,
    shows_progress: bool,
) -> Result<(VerifyReport, Verifier, VerifyCounts), Failure> {
    let (reader, runtime, unreadable_cells) = open_readable_rows(config, base)?;
    let status = runtime.block_on(reader.status()).map_err(|fault| unreadable(&fault))?;
    let has_removed = has_removed_rows(&status);
    let ledger = open_verifier(config, base, has_removed)?;
    let mut report =
        VerifyReport { tag: reader.tag(), as_json, disagreements: Vec::new(), count: 0 };
    for place in unreadable_cells.iter().map(UnreadableCell::place) {
        let message = format!(
            "{place} is not UTF-8 text; the row is left out of the comparison with artifacts and bus"
        );
        report.add(Disagreement { at: None, check: "row", message });
    }
    let contracts = ContractChecks::new(event_contracts(config, base));
    let mut checked = verify(&ledger, has_removed, contracts, shows_progress, &mut report)
        .map_err(Failure::runtime)?;
    let artifacts = ArtifactSource::open(config)?;
    let bus = BusSource {
        source: runtime.block_on(bus::open_read_only(config, base))?,
        topics: bus::topics(config, base)?,
        topics_without_events: vec![AUDIT_TOPIC.to_owned(), config.stream.control_topic.clone()],
    };
    let last = ledger.last();
    let found = &mut |disagreement| report.add(disagreement);
    checked.records = verify_records::check(&ledger, config, &mut checked.skipped, found)
        .map_err(Failure::runtime)?;
    let paths = config.artifacts_location().map_err(Failure::usage)?.paths();
    let sources = FileSources::read(&ledger).map_err(Failure::runtime)?;
    let reconciled = ledger.reconciled().map_err(Failure::runtime)?;
    let store_checks = async {
        let files = ledger_files::render(&*reader, sources, &paths, found).await?;
        let context = (&files[..], &reconciled);
        verify_stores::verify(&*reader, &artifacts, &bus, context, last, found).await
    };
    checked.stores = runtime.block_on(store_checks).map_err(Failure::runtime)?;
    Ok((report, ledger, checked))
}

/// Whether retention has removed rows, so that a missing row is no disagreement.
fn has_removed_rows(status: &admit_ledger::Status) -> bool {
    status.removed_bodies > 0 || status.removed_keys > 0
}

/// Contracts of the configured event streams, by door. Streams that cannot be built are left out, because
/// verifying a ledger must not require the schemas or secrets of a gate.
fn event_contracts(config: &Config, base: &Path) -> BTreeMap<String, Events> {
    let build = |stream: &EventsConfig| {
        let contract = stream.contract(base, config.limits.json_depth_max).ok()?;
        Some((stream.door(), contract))
    };
    config.doors.events.iter().filter_map(build).collect()
}

/// Reasons why an event was not recomputed.
mod skip_reason {
    pub(super) const NO_BODY: &str = "without a body any more";
    pub(super) const NO_CONTRACT: &str = "of a door that this build does not know";
    pub(super) const NO_KEY: &str =
        "with their digest only, because the config does not define their key";
}

/// Numbers of checked rows.
#[derive(Debug, Default)]
struct VerifyCounts {
    structure: Structure,
    admissions: u64,
    recomputed: u64,
    not_recomputed: BTreeMap<&'static str, u64>,
    sightings: u64,
    keys: u64,
    documents: u64,
    inbox: InboxCounts,
    records: RecordsChecked,
    /// Parts that were not checked, each with the reason.
    skipped: Vec<String>,
    stores: StoreCounts,
}

fn verify(
    ledger: &Verifier,
    has_removed: bool,
    mut contracts: ContractChecks,
    shows_progress: bool,
    report: &mut VerifyReport,
) -> Result<VerifyCounts, VerifyError> {
    let mut found = |disagreement| report.add(disagreement);
    let mut checked = VerifyCounts::default();
    if shows_progress {
        print_stderr("checking the structure of the ledger");
    }
    checked.structure = ledger.structure(&mut found)?;
    let last = ledger.last().0;
    let mut seen = 0;
    checked.admissions = ledger.admissions(&mut found, &mut |stored, found| {
        seen += 1;
        if shows_progress && seen % PROGRESS_EVERY == 0 {
            print_stderr(&format!("{seen} admissions checked, at seq {} of {last}", stored.seq.0));
        }
        contracts.check(stored, found);
    })?;
    checked.recomputed = contracts.recomputed;
    checked.not_recomputed = std::mem::take(&mut contracts.not_recomputed);
    checked.sightings = ledger.sightings(&mut found)?;
    checked.keys = ledger.keys(&mut found)?;
    ledger.inbox(&mut found)?;
    checked.inbox = ledger.inbox_rows(&mut found)?;
    ledger.laws(&mut found)?;
    ledger.counters(checked.admissions, checked.sightings, &mut found);
    if has_removed {
        let why = "the documents of projections and the counters, because retention has removed \
                   some of their events";
        checked.skipped.push(why.to_owned());
    } else {
        checked.documents = contracts.check_documents(ledger, &mut found)?;
        if !contracts.is_complete {
            let why =
                "the documents of projections, because one of their events cannot be recomputed";
            checked.skipped.push(why.to_owned());
        }
    }
    if checked.inbox.untimed > 0 {
        let rows = checked.inbox.untimed;
        let why =
            format!("last_updated_at of {rows} finished inbox rows, which is stored nowhere else");
        checked.skipped.push(why);
    }
    Ok(checked)
}

/// Recomputed document with the seq that changed it last.
type FoldedDocument = (Box<dyn ProjectionState>, Seq);

/// Contracts of this build, with the documents recomputed from the bodies seen so far.
struct ContractChecks {
    pixel: PixelControl,
    event_contracts: BTreeMap<String, Events>,
    recomputed: u64,
    not_recomputed: BTreeMap<&'static str, u64>,
    folded: BTreeMap<(&'static str, String), FoldedDocument>,
    /// Whether every body could be recomputed; otherwise documents cannot be compared.
    is_complete: bool,
}

impl ContractChecks {
    fn new(event_contracts: BTreeMap<String, Events>) -> Self {
        // The most permissive settings accept every body that a stricter gate admitted.
        let settings = Settings { schema: SchemaMode::Envelope, json_depth_max: DEPTH_MAX };
        Self {
            pixel: PixelControl::new(settings),
            event_contracts,
            recomputed: 0,
            not_recomputed: BTreeMap::new(),
            folded: BTreeMap::new(),
            is_complete: true,
        }
    }

    fn count_not_recomputed(&mut self, why: &'static str) {
        *self.not_recomputed.entry(why).or_default() += 1;
    }

    /// Recomputes key, digest and facts from the body. A refusal has only a digest, which the ledger checks.
    fn check(&mut self, stored: &StoredAdmission<'_>, found: &mut DisagreementSink<'_>) {
        let Some(body) = stored.body else {
            return self.count_not_recomputed(skip_reason::NO_BODY);
        };
        if stored.verdict == "refused" {
            self.recomputed += 1;
            if stored.door == ingestion_gate::DOOR {
                check_envelope_facts(stored, body, found);
            }
            return;
        }
        match stored.door {
            pixel_control::DOOR => self.check_pixel(stored, body, found),
            skyra::DOOR => self.check_body_only(stored, skyra::recompute(stored.door, body), found),
            intents::DOOR => {
                self.check_body_only(stored, intents::recompute(stored.door, body), found)
            }
            ingestion_gate::DOOR => self.check_envelope(stored, body, found),
            rounds::DOOR => self.check_round(stored, body, found),
            door if door.starts_with("events/") => self.check_event(stored, body, found),
            _ => self.count_not_recomputed(skip_reason::NO_CONTRACT),
        }
    }

    /// Checks an event whose key and content come from the body alone.
    fn check_body_only(
        &mut self,
        stored: &StoredAdmission<'_>,
        recomputed: Option<(Key, Digest)>,
        found: &mut DisagreementSink<'_>,
    ) {
        self.recomputed += 1;
        let (key, digest) = recomputed.unzip();
        add_if(stored, "key", stored.key != key, found);
        add_if(stored, "digest", Some(stored.digest) != digest, found);
    }

    /// Checks an envelope, with the class that the policy gave it at admission.
    fn check_envelope(
        &mut self,
        stored: &StoredAdmission<'_>,
        body: &[u8],
        found: &mut DisagreementSink<'_>,
    ) {
        self.recomputed += 1;
        let facts = json::parse(stored.facts.as_bytes(), &json::Limits::default());
        let class =
            facts.ok().and_then(|facts| Some(facts.get("event_class")?.as_str()?.to_owned()));
        check_envelope_facts(stored, body, found);
        let door = Door::new(stored.door);
        let (key, digest) =
            class.and_then(|class| ingestion_gate::recompute(&door, &class, body)).unzip();
        add_if(stored, "key", stored.key != key, found);
        add_if(stored, "digest", Some(stored.digest) != digest, found);
    }

    /// Checks a round event. Its facts hold the source path and the parser.
    fn check_round(
        &mut self,
        stored: &StoredAdmission<'_>,
        body: &[u8],
        found: &mut DisagreementSink<'_>,
    ) {
        self.recomputed += 1;
        let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
        let facts = json::parse(stored.facts.as_bytes(), &limits);
        let (key, digest) = match &facts {
            Ok(json::Value::Object(facts)) => rounds::recompute(stored.door, facts, body).unzip(),
            _ => (None, None),
        };
        add_if(stored, "key", stored.key != key, found);
        add_if(stored, "digest", Some(stored.digest) != digest, found);
    }

    /// Checks an event of a stream. Its facts hold the values from headers.
    fn check_event(
        &mut self,
        stored: &StoredAdmission<'_>,
        body: &[u8],
        found: &mut DisagreementSink<'_>,
    ) {
        let &StoredAdmission { door, principal, key, digest, .. } = stored;
        let facts = stored.facts.as_bytes();
        let event = recompute::RecordedEvent { door, principal, facts, body, key, digest };
        let identity = self.event_contracts.get(door).map(Events::identity);
        let agreement = recompute::agreement(&event, identity);
        add_if(stored, "digest", !agreement.digest, found);
        match agreement.key {
            Some(agrees) => {
                self.recomputed += 1;
                add_if(stored, "key", !agrees, found);
            }
            None => self.count_not_recomputed(skip_reason::NO_KEY),
        }
    }

    fn check_pixel(
        &mut self,
        stored: &StoredAdmission<'_>,
        body: &[u8],
        found: &mut DisagreementSink<'_>,
    ) {
        let submission = Submission {
            principal: Principal::new(stored.principal),
            received_at: stored.received_at,
            body: Bytes::copy_from_slice(body),
            headers: Vec::new(),
            // Used for generated ids only, not for key or digest.
            nonce: [0; 16],
        };
        let vetted = self.pixel.vet(&Door::new(stored.door), submission);
        self.recomputed += 1;
        let event = match vetted {
            Entry::Event(event) => event,
            Entry::Refused(refused) => {
                self.is_complete = false;
                let message = format!("the contract refuses the body: {}", refused.message);
                found(Disagreement::at(stored.seq, "body", message));
                return;
            }
        };
        compare_event(stored, &event, found);
        if matches!(stored.verdict, "fresh" | "revision") {
            self.apply_projections(stored.seq, &event, found);
        }
    }

    /// Applies the projections of the event, as its commit did.
    fn apply_projections(&mut self, seq: Seq, event: &Event, found: &mut DisagreementSink<'_>) {
        for projection in &event.projections {
            let id = projection.entity();
            let name = (id.projection, id.entity);
            let applied = match self.folded.get_mut(&name) {
                Some((document, last)) => {
                    *last = seq;
                    projection.apply(document.as_mut())
                }
                None => projection.load(None).and_then(|mut document| {
                    projection.apply(document.as_mut())?;
                    self.folded.insert(name, (document, seq));
                    Ok(())
                }),
            };
            if let Err(error) = applied {
                self.is_complete = false;
                found(Disagreement::at(seq, "document", error.to_string()));
            }
        }
    }

    /// Compares recomputed documents with stored ones. Returns how many were compared; documents that a
    /// running gate changed meanwhile are skipped.
    fn check_documents(
        &mut self,
        ledger: &Verifier,
        found: &mut DisagreementSink<'_>,
    ) -> Result<u64, VerifyError> {
        let mut compared = 0;
        let folded = std::mem::take(&mut self.folded);
        let mut left: BTreeMap<(String, String), FoldedDocument> = folded
            .into_iter()
            .map(|((projection, entity), folded)| ((projection.to_owned(), entity), folded))
            .collect();
        let is_complete = self.is_complete;
        ledger.documents(&mut |stored| {
            let stored = match stored {
                Ok(stored) => stored,
                Err(UnreadableDocument { projection, entity, seq, why }) => {
                    left.remove(&(projection.clone(), entity.clone()));
                    let message = format!("cannot read {projection} of {entity:?}: {why}");
                    return found(Disagreement::at(seq, "document", message));
                }
            };
            let folded = left.remove(&(stored.projection.clone(), stored.entity.clone()));
            if stored.seq > ledger.last() || !is_complete {
                return;
            }
            compared += 1;
            let name = format!("{} of {:?}", stored.projection, stored.entity);
            let message = match folded {
                None => format!("{name} is stored, but no event changes it"),
                Some((_, last)) if last != stored.seq => {
                    format!("{name} was last changed by seq {last}, not by this one", last = last.0)
                }
                Some((document, _)) if document.to_text() != stored.text => {
                    format!("{name} does not match its events")
                }
                Some(_) => return,
            };
            found(Disagreement::at(stored.seq, "document", message));
        })?;
        for ((projection, entity), (_, last)) in left {
            let message = format!("{projection} of {entity:?} is missing");
            found(Disagreement::at(last, "document", message));
        }
        Ok(compared)
    }
}

fn compare_event(stored: &StoredAdmission<'_>, event: &Event, found: &mut DisagreementSink<'_>) {
    let mut facts = Vec::new();
    json::write_object(&event.facts, &mut facts);
    add_if(stored, "key", stored.key != Some(event.key), found);
    add_if(stored, "digest", stored.digest != event.digest, found);
    add_if(stored, "attempt", stored.attempt != event.attempt, found);
    add_if(stored, "facts", stored.facts.as_bytes() != facts, found);
}

/// Checks the facts of an envelope; all documents about it derive from them.
fn check_envelope_facts(
    stored: &StoredAdmission<'_>,
    body: &[u8],
    found: &mut DisagreementSink<'_>,
) {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let wrong = match json::parse(stored.facts.as_bytes(), &limits) {
        Ok(json::Value::Object(facts)) => {
            ingestion_gate::audit_check::mismatched_facts(&facts, stored.principal, body)
        }
        Ok(_) | Err(_) => vec!["all of them"],
    };
    if !wrong.is_empty() {
        let message = format!("facts differ from those in the body: {}", wrong.join(", "));
        found(Disagreement::at(stored.seq, "facts", message));
    }
}

fn add_if(
    stored: &StoredAdmission<'_>,
    check: &'static str,
    differs: bool,
    found: &mut DisagreementSink<'_>,
) {
    if differs {
        let message = format!("{check} differs from the one in the body");
        found(Disagreement::at(stored.seq, check, message));
    }
}

/// Prints or collects the disagreements.
struct VerifyReport {
    tag: u32,
    as_json: bool,
    disagreements: Vec<serde_json::Value>,
    count: u64,
}

impl VerifyReport {
    fn add(&mut self, disagreement: Disagreement) {
        self.count += 1;
        let Disagreement { at, check, message } = disagreement;
        let id = at.map(|seq| ReceiptId { ledger: self.tag, seq }.to_string());
        let action = verify_advice::action(check);
        if self.as_json {
            let found = json!({
                "receipt": id, "check": check, "message": message, "action": action,
            });
            self.disagreements.push(found);
        } else {
            let id = id.unwrap_or_else(|| "ledger".to_owned());
            // A closed stdout must not hide the exit code.
            let message = printable(&message);
            print(&format!("{id}: {check}: {message}\n  {action}\n")).unwrap_or_default();
        }
    }

    fn finish(self, ledger: &Verifier, checked: &VerifyCounts) -> Result<(), Failure> {
        let VerifyCounts { structure, admissions, recomputed, not_recomputed, .. } = checked;
        let VerifyCounts { sightings, keys, documents, stores, .. } = checked;
        let StoreCounts { artifacts, messages, other_messages, expired, ambiguous } = stores;
        let open: u64 = not_recomputed.values().sum();
        let skipped = &checked.skipped;
        let is_complete = skipped.is_empty() && structure.unchecked.is_none();
        if self.as_json {
            print_json(&json!({
                "agrees": self.count == 0,
                "last_seq": ledger.last().0,
                "checked": {
                    "admissions": admissions, "recomputed": recomputed, "sightings": sightings,
                    "keys": keys, "documents": documents, "artifacts": artifacts,
                    "messages": messages, "indexes": structure.indexes,
                    "inbox_rows": checked.inbox.rows, "records": checked.records.records,
                    "links": checked.records.links,
                },
                "not_checked": skipped,
                "indexes_not_checked_why": structure.unchecked,
                "messages_of_others": other_messages,
                "messages_gone": expired,
                "ambiguous": ambiguous,
                "not_recomputed": open,
                "not_recomputed_why": not_recomputed,
                "disagreements": self.disagreements,
            }))?;
        } else {
            print_counts(checked)?;
        }
        match self.count {
            0 if self.as_json => Ok(()),
            0 if open > 0 => {
                print(&format!("everything agrees, except that {open} were not recomputed\n"))
            }
            0 if !is_complete => print("everything that was checked agrees\n"),
            0 => print("everything agrees\n"),
            count => Err(Failure::runtime(format!("{} found", counted(count, "disagreement")))),
        }
    }
}

/// Prints the counts as text for people.
fn print_counts(checked: &VerifyCounts) -> Result<(), Failure> {
    let VerifyCounts { structure, admissions, recomputed, not_recomputed, .. } = checked;
    let VerifyCounts { sightings, keys, documents, stores, skipped, .. } = checked;
    let StoreCounts { artifacts, messages, other_messages, expired, ambiguous } = stores;
    print(&format!(
        "{admissions} admissions ({recomputed} recomputed from their bodies), {sightings} \
         copies, {keys} keys and {documents} documents checked\n"
    ))?;
    if checked.inbox.rows > 0 {
        print(&format!("{} checked\n", counted(checked.inbox.rows, "inbox row")))?;
    }
    if checked.records.events > 0 {
        let RecordsChecked { records, links, .. } = checked.records;
        print(&format!("{records} records and {links} links recomputed\n"))?;
    }
    if structure.indexes > 0 {
        print(&format!("{} indexes checked\n", structure.indexes))?;
    }
    if let Some(why) = &structure.unchecked {
        print(&format!("indexes not checked: {}\n", printable(why)))?;
    }
    for why in skipped {
        print(&format!("not checked: {}\n", printable(why)))?;
    }
    if artifacts + messages > 0 {
        print(&format!("{artifacts} artifacts and {messages} messages checked\n"))?;
    }
    if *other_messages > 0 {
        print(&format!(
            "{other_messages} messages on the bus belong to no admission of this ledger\n"
        ))?;
    }
    if *expired > 0 {
        print(&format!(
            "{expired} admissions have a message that the retention of the bus removed\n"
        ))?;
    }
    if *ambiguous > 0 {
        print(&format!("{ambiguous} ambiguous: see admit reconcile\n"))?;
    }
    for (why, count) in not_recomputed {
        print(&format!("not recomputed: {count} {why}\n"))?;
    }
    Ok(())
}
