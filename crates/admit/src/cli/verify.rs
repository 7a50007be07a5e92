//! `admit verify`: recomputes what the ledger claims from the raw bodies, and says what disagrees.
//!
//! The ledger checks itself (structure, keys, references, counters); the contracts recompute what
//! each body says; the side effects of all bodies together must add up to the documents that are
//! kept. What could not be recomputed is counted and said. It only reads, beside a running gate too.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;

use admit_contracts::events::{Events, recompute};
use admit_contracts::ingestion_gate::governance::AUDIT_TOPIC;
use admit_contracts::pixel_control::{self, PixelControl, SchemaMode, Settings};
use admit_contracts::{Contract as _, ingestion_gate, intents, rounds, skyra};
use admit_core::projection::ProjectionState;
use admit_core::{Digest, Door, Entry, Event, Key, Principal, ReceiptId, Seq, Submission, json};
use admit_ledger::verify::{
    Disagreement, DisagreementSink, InboxCounts, RecordsChecked, StoredAdmission, Structure, UnreadableDocument, Verifier, VerifyError,
};
use bytes::Bytes;
use serde_json::json;

use super::ledger_files::Sources;
use super::outside::{self, OnBus, OnFiles, Outside};
use super::receipts::unreadable;
use super::{LedgerPlace, ledger_files, verify_advice, verify_records};
use crate::bus;
use crate::config::{Config, EventsConfig};
use crate::ledger::{open_reader, open_verifier};
use crate::output::{Failure, aside, counted, print, print_json, printable};

/// Admissions between two lines of progress.
const PROGRESS_EVERY: u64 = 100_000;

/// The deepest nesting that the contract ever takes; what is kept was taken under some limit.
const DEPTH_MAX: usize = 512;

pub(super) fn run(place: LedgerPlace, as_json: bool) -> Result<(), Failure> {
    let (config, base) = place.load()?;
    let is_watched = std::io::stderr().is_terminal();
    let (report, ledger, checked) = check(&config, &base, as_json, is_watched)?;
    report.end(&ledger, &checked)
}

/// Verifies without printing anything but progress; every disagreement, in words.
pub(crate) fn examine(config: &Config, base: &Path) -> Result<Examined, Failure> {
    let (report, ..) = check(config, base, true, true)?;
    let text = |one: &serde_json::Value, name: &str| {
        one[name].as_str().map_or_else(|| "ledger".to_owned(), printable)
    };
    let line = |one: &serde_json::Value| {
        format!("{}: {}: {}", text(one, "receipt"), text(one, "check"), text(one, "message"))
    };
    let is_repairable =
        |one: &serde_json::Value| one["check"].as_str().is_some_and(verify_advice::is_repairable);
    Ok(Examined {
        are_repairable: report.found.iter().all(is_repairable),
        found: report.found.iter().map(line).collect(),
    })
}

/// What an examination found.
pub(crate) struct Examined {
    /// A line for each disagreement.
    pub(crate) found: Vec<String>,
    /// Whether all of them are about what `admit repair` writes.
    pub(crate) are_repairable: bool,
}

fn check(
    config: &Config,
    base: &Path,
    as_json: bool,
    is_watched: bool,
) -> Result<(Report, Verifier, Checked), Failure> {
    let (reader, runtime) = open_reader(config, base)?;
    let status = runtime.block_on(reader.status()).map_err(|fault| unreadable(&fault))?;
    let forgets = has_forgotten(&status);
    let ledger = open_verifier(config, base, forgets)?;
    let mut report = Report { tag: reader.tag(), as_json, found: Vec::new(), count: 0 };
    let contracts = Contracts::new(streams(config, base));
    let mut checked =
        verify(&ledger, forgets, contracts, is_watched, &mut report).map_err(Failure::runtime)?;
    let artifacts = OnFiles::open(config)?;
    let bus = OnBus {
        source: runtime.block_on(bus::open_reading(config, base))?,
        topics: bus::topics(config, base)?,
        apart: vec![AUDIT_TOPIC.to_owned(), config.stream.control_topic.clone()],
    };
    let last = ledger.last();
    let found = &mut |disagreement| report.note(disagreement);
    checked.records = verify_records::check(&ledger, config, &mut checked.skipped, found)
        .map_err(Failure::runtime)?;
    let paths = config.artifacts_place().map_err(Failure::usage)?.paths();
    let sources = Sources::read(&ledger).map_err(Failure::runtime)?;
    let reconciled = ledger.reconciled().map_err(Failure::runtime)?;
    let looked = async {
        let files = ledger_files::all(&*reader, sources, &paths, found).await?;
        let about = (&files[..], &reconciled);
        outside::verify(&*reader, &artifacts, &bus, about, last, found).await
    };
    checked.outside = runtime.block_on(looked).map_err(Failure::runtime)?;
    Ok((report, ledger, checked))
}

/// Whether retention has removed something, so that what is missing proves nothing.
fn has_forgotten(status: &admit_ledger::Status) -> bool {
    status.removed_bodies > 0 || status.removed_keys > 0
}

/// The streams that the config names, by their doors. One that cannot be made is as good as not
/// named: to verify a ledger nobody needs the schemas or the secrets of a gate.
fn streams(config: &Config, base: &Path) -> BTreeMap<String, Events> {
    let made = |stream: &EventsConfig| {
        let contract = stream.contract(base, config.limits.json_depth_max).ok()?;
        Some((stream.door(), contract))
    };
    config.doors.events.iter().filter_map(made).collect()
}

/// Why something of an event was not recomputed.
mod left_out {
    pub(super) const NO_BODY: &str = "without a body any more";
    pub(super) const NO_CONTRACT: &str = "of a door that this build does not know";
    pub(super) const NO_KEY: &str =
        "with their digest only, because the config does not say what names them";
}

/// How much was looked at.
#[derive(Debug, Default)]
struct Checked {
    structure: Structure,
    admissions: u64,
    recomputed: u64,
    left_out: BTreeMap<&'static str, u64>,
    sightings: u64,
    keys: u64,
    documents: u64,
    inbox: InboxCounts,
    records: RecordsChecked,
    /// Parts that were not looked at at all, with why.
    skipped: Vec<String>,
    outside: Outside,
}

fn verify(
    ledger: &Verifier,
    forgets: bool,
    mut contracts: Contracts,
    is_watched: bool,
    report: &mut Report,
) -> Result<Checked, VerifyError> {
    let mut found = |disagreement| report.note(disagreement);
    let mut checked = Checked::default();
    if is_watched {
        aside("checking the structure");
    }
    checked.structure = ledger.structure(&mut found)?;
    let last = ledger.last().0;
    let mut seen = 0;
    checked.admissions = ledger.admissions(&mut found, &mut |kept, found| {
        seen += 1;
        if is_watched && seen % PROGRESS_EVERY == 0 {
            aside(&format!("{seen} admissions checked, at place {} of {last}", kept.seq.0));
        }
        contracts.check(kept, found);
    })?;
    checked.recomputed = contracts.recomputed;
    checked.left_out = std::mem::take(&mut contracts.left_out);
    checked.sightings = ledger.sightings(&mut found)?;
    checked.keys = ledger.keys(&mut found)?;
    ledger.inbox(&mut found)?;
    checked.inbox = ledger.inbox_rows(&mut found)?;
    ledger.laws(&mut found)?;
    ledger.counters(checked.admissions, checked.sightings, &mut found);
    if forgets {
        let why = "the documents of projections and the counters, because retention has removed \
                   events they add up";
        checked.skipped.push(why.to_owned());
    } else {
        checked.documents = contracts.documents(ledger, &mut found)?;
        if !contracts.is_whole {
            let why =
                "the documents of projections, because an event of theirs cannot be recomputed";
            checked.skipped.push(why.to_owned());
        }
    }
    if checked.inbox.untimed > 0 {
        let rows = checked.inbox.untimed;
        let why = format!("last_updated_at of {rows} finished inbox rows, which nothing else says");
        checked.skipped.push(why);
    }
    Ok(checked)
}

/// A document, and the place that changed it last.
type Folded = (Box<dyn ProjectionState>, Seq);

/// The contracts of this build, and what the bodies seen so far add up to.
struct Contracts {
    pixel: PixelControl,
    streams: BTreeMap<String, Events>,
    recomputed: u64,
    left_out: BTreeMap<&'static str, u64>,
    folded: BTreeMap<(&'static str, String), Folded>,
    /// A body that could not be recomputed is missing from the documents.
    is_whole: bool,
}

impl Contracts {
    fn new(streams: BTreeMap<String, Events>) -> Self {
        // Whatever was admitted under a narrower setting is admitted under these.
        let settings = Settings { schema: SchemaMode::Envelope, json_depth_max: DEPTH_MAX };
        Self {
            pixel: PixelControl::new(settings),
            streams,
            recomputed: 0,
            left_out: BTreeMap::new(),
            folded: BTreeMap::new(),
            is_whole: true,
        }
    }

    fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Recomputes what the body says. Of a refusal that is its digest, and the ledger has done it.
    fn check(&mut self, kept: &StoredAdmission<'_>, found: &mut DisagreementSink<'_>) {
        let Some(body) = kept.body else { return self.leave_out(left_out::NO_BODY) };
        if kept.verdict == "refused" {
            self.recomputed += 1;
            if kept.door == ingestion_gate::DOOR {
                envelope_facts(kept, body, found);
            }
            return;
        }
        match kept.door {
            pixel_control::DOOR => self.pixel(kept, body, found),
            skyra::DOOR => self.named(kept, skyra::recompute(kept.door, body), found),
            intents::DOOR => self.named(kept, intents::recompute(kept.door, body), found),
            ingestion_gate::DOOR => self.envelope(kept, body, found),
            rounds::DOOR => self.round(kept, body, found),
            door if door.starts_with("events/") => self.event(kept, body, found),
            _ => self.leave_out(left_out::NO_CONTRACT),
        }
    }

    /// An event whose name and content are all in its body.
    fn named(&mut self, kept: &StoredAdmission<'_>, said: Option<(Key, Digest)>, found: &mut DisagreementSink<'_>) {
        self.recomputed += 1;
        let (key, digest) = said.unzip();
        differ(kept, "key", kept.key != key, found);
        differ(kept, "digest", Some(kept.digest) != digest, found);
    }

    /// An envelope. Its class is what the policy said then.
    fn envelope(&mut self, kept: &StoredAdmission<'_>, body: &[u8], found: &mut DisagreementSink<'_>) {
        self.recomputed += 1;
        let facts = json::parse(kept.facts.as_bytes(), &json::Limits::default());
        let class =
            facts.ok().and_then(|facts| Some(facts.get("event_class")?.as_str()?.to_owned()));
        envelope_facts(kept, body, found);
        let door = Door::new(kept.door);
        let (key, digest) =
            class.and_then(|class| ingestion_gate::recompute(&door, &class, body)).unzip();
        differ(kept, "key", kept.key != key, found);
        differ(kept, "digest", Some(kept.digest) != digest, found);
    }

    /// What a source told of a round; where it was posted and how it was read are among its facts.
    fn round(&mut self, kept: &StoredAdmission<'_>, body: &[u8], found: &mut DisagreementSink<'_>) {
        self.recomputed += 1;
        let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
        let facts = json::parse(kept.facts.as_bytes(), &limits);
        let (key, digest) = match &facts {
            Ok(json::Value::Object(facts)) => rounds::recompute(kept.door, facts, body).unzip(),
            _ => (None, None),
        };
        differ(kept, "key", kept.key != key, found);
        differ(kept, "digest", Some(kept.digest) != digest, found);
    }

    /// An event of a stream. What a header said is among its facts.
    fn event(&mut self, kept: &StoredAdmission<'_>, body: &[u8], found: &mut DisagreementSink<'_>) {
        let &StoredAdmission { door, principal, key, digest, .. } = kept;
        let facts = kept.facts.as_bytes();
        let event = recompute::RecordedEvent { door, principal, facts, body, key, digest };
        let identity = self.streams.get(door).map(Events::identity);
        let agreement = recompute::agreement(&event, identity);
        differ(kept, "digest", !agreement.digest, found);
        match agreement.key {
            Some(agrees) => {
                self.recomputed += 1;
                differ(kept, "key", !agrees, found);
            }
            None => self.leave_out(left_out::NO_KEY),
        }
    }

    fn pixel(&mut self, kept: &StoredAdmission<'_>, body: &[u8], found: &mut DisagreementSink<'_>) {
        let submission = Submission {
            principal: Principal::new(kept.principal),
            received_at: kept.received_at,
            body: Bytes::copy_from_slice(body),
            headers: Vec::new(),
            // For ids that a contract makes up; nothing of the key or the digest.
            nonce: [0; 16],
        };
        let vetted = self.pixel.vet(&Door::new(kept.door), submission);
        self.recomputed += 1;
        let event = match vetted {
            Entry::Event(event) => event,
            Entry::Refused(refused) => {
                self.is_whole = false;
                let message = format!("the contract refuses its body: {}", refused.message);
                found(Disagreement::at(kept.seq, "body", message));
                return;
            }
        };
        compare(kept, &event, found);
        if matches!(kept.verdict, "fresh" | "revision") {
            self.fold(kept.seq, &event, found);
        }
    }

    /// Applies the event's side effects, as the commit that admitted it did.
    fn fold(&mut self, seq: Seq, event: &Event, found: &mut DisagreementSink<'_>) {
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
                self.is_whole = false;
                found(Disagreement::at(seq, "document", error.to_string()));
            }
        }
    }

    /// Compares what the bodies add up to with what is kept. Returns how many could be compared:
    /// one that a running gate has changed meanwhile cannot.
    fn documents(&mut self, ledger: &Verifier, found: &mut DisagreementSink<'_>) -> Result<u64, VerifyError> {
        let mut compared = 0;
        let folded = std::mem::take(&mut self.folded);
        let mut left: BTreeMap<(String, String), Folded> = folded
            .into_iter()
            .map(|((projection, entity), folded)| ((projection.to_owned(), entity), folded))
            .collect();
        let is_whole = self.is_whole;
        ledger.documents(&mut |kept| {
            let kept = match kept {
                Ok(kept) => kept,
                Err(UnreadableDocument { projection, entity, seq, why }) => {
                    left.remove(&(projection.clone(), entity.clone()));
                    let message = format!("{projection} of {entity:?} cannot be read: {why}");
                    return found(Disagreement::at(seq, "document", message));
                }
            };
            let folded = left.remove(&(kept.projection.clone(), kept.entity.clone()));
            if kept.seq > ledger.last() || !is_whole {
                return;
            }
            compared += 1;
            let name = format!("{} of {:?}", kept.projection, kept.entity);
            let message = match folded {
                None => format!("{name} is kept, but no event tells of it"),
                Some((_, last)) if last != kept.seq => {
                    format!("{name} was changed by place {last}, not here", last = last.0)
                }
                Some((document, _)) if document.to_text() != kept.text => {
                    format!("{name} is not what its events add up to")
                }
                Some(_) => return,
            };
            found(Disagreement::at(kept.seq, "document", message));
        })?;
        for ((projection, entity), (_, last)) in left {
            let message = format!("{projection} of {entity:?} is missing");
            found(Disagreement::at(last, "document", message));
        }
        Ok(compared)
    }
}

fn compare(kept: &StoredAdmission<'_>, event: &Event, found: &mut DisagreementSink<'_>) {
    let mut facts = Vec::new();
    json::write_object(&event.facts, &mut facts);
    differ(kept, "key", kept.key != Some(event.key), found);
    differ(kept, "digest", kept.digest != event.digest, found);
    differ(kept, "attempt", kept.attempt != event.attempt, found);
    differ(kept, "facts", kept.facts.as_bytes() != facts, found);
}

/// The facts of an envelope, which every document about it is made from.
fn envelope_facts(kept: &StoredAdmission<'_>, body: &[u8], found: &mut DisagreementSink<'_>) {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let wrong = match json::parse(kept.facts.as_bytes(), &limits) {
        Ok(json::Value::Object(facts)) => {
            ingestion_gate::audit_check::mismatched_facts(&facts, kept.principal, body)
        }
        Ok(_) | Err(_) => vec!["all of them"],
    };
    if !wrong.is_empty() {
        let message = format!("the body gives others than are kept: {}", wrong.join(", "));
        found(Disagreement::at(kept.seq, "facts", message));
    }
}

fn differ(kept: &StoredAdmission<'_>, check: &'static str, differs: bool, found: &mut DisagreementSink<'_>) {
    if differs {
        let message = "the body gives another one than is kept";
        found(Disagreement::at(kept.seq, check, message));
    }
}

/// What was found, as it is said.
struct Report {
    tag: u32,
    as_json: bool,
    found: Vec<serde_json::Value>,
    count: u64,
}

impl Report {
    fn note(&mut self, disagreement: Disagreement) {
        self.count += 1;
        let Disagreement { at, check, message } = disagreement;
        let id = at.map(|seq| ReceiptId { ledger: self.tag, seq }.to_string());
        let action = verify_advice::action(check);
        if self.as_json {
            let found = json!({
                "receipt": id, "check": check, "message": message, "action": action,
            });
            self.found.push(found);
        } else {
            let id = id.unwrap_or_else(|| "ledger".to_owned());
            // A reader that went away still gets the exit code.
            let message = printable(&message);
            print(&format!("{id}: {check}: {message}\n  {action}\n")).unwrap_or_default();
        }
    }

    fn end(self, ledger: &Verifier, checked: &Checked) -> Result<(), Failure> {
        let Checked { structure, admissions, recomputed, left_out, .. } = checked;
        let Checked { sightings, keys, documents, outside, .. } = checked;
        let Outside { artifacts, messages, others, gone, ambiguous } = outside;
        let open: u64 = left_out.values().sum();
        let skipped = &checked.skipped;
        let is_whole = skipped.is_empty() && structure.unchecked.is_none();
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
                "messages_of_others": others,
                "messages_gone": gone,
                "ambiguous": ambiguous,
                "not_recomputed": open,
                "not_recomputed_why": left_out,
                "disagreements": self.found,
            }))?;
        } else {
            print(&format!(
                "{admissions} admissions ({recomputed} recomputed from their bodies), {sightings} \
                 copies, {keys} keys and {documents} documents checked\n"
            ))?;
            if checked.inbox.rows > 0 {
                print(&format!("{} checked\n", counted(checked.inbox.rows, "inbox row")))?;
            }
            if checked.records.events > 0 {
                let RecordsChecked { records, links, .. } = checked.records;
                print(&format!("{records} records and {links} links of their events made again\n"))?;
            }
            if structure.indexes > 0 {
                print(&format!("{} indexes looked into\n", structure.indexes))?;
            }
            if let Some(why) = &structure.unchecked {
                print(&format!("indexes were not looked into: {}\n", printable(why)))?;
            }
            for why in skipped {
                print(&format!("not checked: {}\n", printable(why)))?;
            }
            if artifacts + messages > 0 {
                print(&format!("{artifacts} artifacts and {messages} messages checked\n"))?;
            }
            if *others > 0 {
                print(&format!("{others} messages on the bus are of no admission here\n"))?;
            }
            if *gone > 0 {
                print(&format!("{gone} admissions are older than what the bus keeps\n"))?;
            }
            if *ambiguous > 0 {
                print(&format!("{ambiguous} ambiguous: see admit reconcile\n"))?;
            }
            for (why, count) in left_out {
                print(&format!("not recomputed: {count} {why}\n"))?;
            }
        }
        match self.count {
            0 if self.as_json => Ok(()),
            0 if open > 0 => {
                print(&format!("everything agrees, except that {open} were not recomputed\n"))
            }
            0 if !is_whole => print("everything that was checked agrees\n"),
            0 => print("everything agrees\n"),
            count => Err(Failure::runtime(format!("{} found", counted(count, "disagreement")))),
        }
    }
}
