//! `admit receipts`: one receipt, or many in ledger order, read beside the running gate.

use std::error::Error as _;

use admit_core::json::{self, Object, Value};
use admit_core::{Fault, Receipt, ReceiptId, Seq};
use admit_gate::find::{Unfindable, Wanted, find};
use admit_gate::receipt::{ShownReason, detailed, object};
use admit_gate::receipt_detail::{self, IngestDetail};
use admit_ledger::ReceiptFilter;
use clap::{Args, Subcommand, ValueEnum};
use tokio::runtime::Runtime;

use super::Place;
use crate::config::door_names;
use crate::ledger::{LedgerReader, open_reader};
use crate::output::{Failure, print, print_bytes, printable, table};

/// Most receipts of one answer; more are a matter of asking again with `--after`.
const ROWS_MAX: u16 = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print one receipt
    #[command(after_help = "\
Examples:
  admit receipts get rcp-5e1f09ab-42
  admit receipts get rcp-5e1f09ab-42 --json
  admit receipts get rcp-5e1f09ab-42 --body > event.json
  admit receipts get rcp-5e1f09ab-42 --document
  admit receipts get DEDUPE_KEY --door pixel-control
  admit receipts get RECEIPT_ID --door ingestion-gate --run platform_20260212T085637Z")]
    Get {
        /// The receipt id, such as rcp-5e1f09ab-42, or with --door an id that its own answers give
        id: String,
        /// The door that has given the id: the dedupe_key of pixel-control, the event_id of skyra, the
        /// receipt_id or dedupe_key of ingestion-gate
        #[arg(long)]
        door: Option<String>,
        /// The run of an id of ingestion-gate
        #[arg(long, requires = "door")]
        run: Option<String>,
        /// Print the raw body instead, byte for byte as it was received
        #[arg(long)]
        body: bool,
        /// Print the document that the ingestion gate issued instead, as it was stored
        #[arg(long, conflicts_with = "body")]
        document: bool,
        #[command(flatten)]
        place: Place,
    },
    /// List receipts in ledger order, oldest first
    #[command(after_help = "\
Examples:
  admit receipts list
  admit receipts list --verdict conflict --verdict refused
  admit receipts list --principal arena-1 --after rcp-5e1f09ab-42 --json")]
    List {
        /// Only this verdict; may be given several times
        #[arg(long, value_name = "VERDICT")]
        verdict: Vec<VerdictWord>,
        #[command(flatten)]
        page: Page,
        #[command(flatten)]
        place: Place,
    },
}

/// Which part of the ledger to list.
#[derive(Debug, Args)]
pub(super) struct Page {
    /// Only what came in at this door, such as pixel-control
    #[arg(long)]
    door: Option<String>,
    /// Only what this principal sent
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Only what came after this receipt
    #[arg(long, value_name = "ID")]
    after: Option<ReceiptId>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(ROWS_MAX)))]
    limit: u16,
}

impl Page {
    /// At most so many.
    pub(super) fn limit(&self) -> usize {
        usize::from(self.limit)
    }
}

/// Verdicts that keep content. Copies are sightings, counted on the receipt they are copies of.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum VerdictWord {
    Fresh,
    Revision,
    Conflict,
    Refused,
}

impl VerdictWord {
    const fn word(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Revision => "revision",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
        }
    }
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::Get { id, door, run, body, document, place } => {
            let wanted = Wanted { id: &id, door: door.as_deref(), run: run.as_deref() };
            let part = match (body, document) {
                (true, _) => Part::Body,
                (false, true) => Part::Document,
                (false, false) => Part::Receipt,
            };
            get(place, wanted, part, json)
        }
        Command::List { verdict, page, place } => {
            let verdicts = verdict.iter().map(|verdict| verdict.word().to_owned()).collect();
            list("receipts", place, page, verdicts, json)
        }
    }
}

/// What is printed of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Receipt,
    Body,
    Document,
}

fn get(place: Place, wanted: Wanted<'_>, part: Part, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open_at(place, wanted.door)?;
    let found = match runtime.block_on(find(&*ledger, Some(&*ledger), wanted)) {
        Ok(found) => found,
        Err(Unfindable::Fault(fault)) => return Err(unreadable(&fault)),
        Err(Unfindable::OtherLedger(id)) => return Err(of_another(&*ledger, id)),
        Err(Unfindable::RunWithoutItsDoor) => {
            return Err(Failure::usage("--run goes with --door ingestion-gate"));
        }
        Err(Unfindable::NotAnId) => {
            return Err(Failure::usage(
                "a receipt id looks like rcp-5e1f09ab-42\n  for an id that a contract has given, such \
                 as a dedupe_key, name its door with --door",
            ));
        }
    };
    let missing = || Failure::runtime(format!("there is no receipt {} in this ledger", wanted.id));
    let receipt = found.ok_or_else(missing)?;
    if part == Part::Body {
        let body = runtime.block_on(ledger.body(receipt.id.seq));
        let missing = || Failure::runtime(format!("no body is kept under {}", receipt.id));
        return print_bytes(&body.map_err(|fault| unreadable(&fault))?.ok_or_else(missing)?);
    }
    let detail = runtime.block_on(IngestDetail::read(&*ledger, &*ledger, &receipt));
    let detail = detail.map_err(|fault| unreadable(&fault))?;
    if part == Part::Document {
        let document = detail.as_ref().and_then(IngestDetail::document);
        let missing =
            || Failure::runtime(format!("{}: {}", receipt.id, receipt_detail::missing(&receipt)));
        return print(&format!("{}\n", document.ok_or_else(missing)?.document.text));
    }
    print_receipt(&receipt, detail.as_ref(), json)
}

/// Prints a receipt with what its door knows besides.
pub(super) fn print_receipt(
    receipt: &Receipt,
    detail: Option<&IngestDetail>,
    json: bool,
) -> Result<(), Failure> {
    let detailed = detailed(receipt, detail);
    if json { print_object(&detailed) } else { print(&for_people(receipt, &detailed)) }
}

/// Lists a page of the ledger under `name`; also what `admit quarantine list` does.
pub(super) fn list(
    name: &'static str,
    place: Place,
    page: Page,
    verdicts: Vec<String>,
    json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open_at(place, page.door.as_deref())?;
    if let Some(after) = page.after {
        check_tag(&*ledger, after)?;
    }
    let rows_max = usize::from(page.limit);
    let filter = ReceiptFilter {
        door: page.door,
        principal: page.principal,
        verdicts,
        after: page.after.map_or(Seq(0), |id| id.seq),
        rows_max,
    };
    let receipts = runtime.block_on(ledger.list(filter)).map_err(|fault| unreadable(&fault))?;
    let next = receipts.last().filter(|_| receipts.len() >= rows_max).map(|last| last.id);
    if json {
        let listed: Value<'_> = receipts.iter().map(object).collect();
        let next = Value::from(next.map(|id| id.to_string()));
        return print_object(&Object::from_iter([(name, listed), ("next", next)]));
    }
    if receipts.is_empty() {
        return print("nothing found\n");
    }
    print(&table(COLUMNS, receipts.iter().map(row)))?;
    match next {
        Some(id) => print(&format!("\nthere may be more: --after {id}\n")),
        None => Ok(()),
    }
}

const COLUMNS: &[&str] =
    &["receipt", "received", "verdict", "door", "principal", "copies", "reason"];

fn row(receipt: &Receipt) -> Vec<String> {
    vec![
        receipt.id.to_string(),
        receipt.received_at.to_string(),
        receipt.verdict.to_owned(),
        receipt.door.to_string(),
        receipt.principal.to_string(),
        receipt.duplicate_count.to_string(),
        reason(receipt).unwrap_or_default(),
    ]
}

/// Reason under the code that the producer was answered, and the code of the ledger where it differs.
fn reason(receipt: &Receipt) -> Option<String> {
    let ShownReason { code, reply_code, message } = ShownReason::of(receipt)?;
    let code = code.as_str();
    Some(match reply_code.filter(|reply_code| reply_code != code) {
        Some(reply_code) => format!("{reply_code} ({code}): {message}"),
        None => format!("{code}: {message}"),
    })
}

/// One line a member, then the contract's facts.
fn for_people(receipt: &Receipt, detailed: &Object<'_>) -> String {
    let mut lines = vec![
        ("receipt", receipt.id.to_string()),
        ("verdict", receipt.verdict.to_owned()),
        ("reason", reason(receipt).unwrap_or_default()),
        ("first", receipt.first.map(|first| first.to_string()).unwrap_or_default()),
        ("door", receipt.door.to_string()),
        ("principal", receipt.principal.to_string()),
        ("received", receipt.received_at.to_string()),
        ("last seen", receipt.last_seen_at.to_string()),
        ("copies", receipt.duplicate_count.to_string()),
        ("last attempt", receipt.last_attempt.map(|n| n.to_string()).unwrap_or_default()),
        ("key", receipt.key.map(|key| key.to_string()).unwrap_or_default()),
        ("digest", receipt.digest.to_string()),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    let mut text: String =
        lines.iter().map(|(name, value)| format!("{name:<14}{}\n", printable(value))).collect();
    for name in ["state", "decision", "eb_ref", "document", "quarantine"] {
        if let Some(value) = detailed.get(name).filter(|value| !value.is_null()) {
            let shown = value.as_str().map_or_else(|| written(value), printable);
            text.push_str(&format!("{name:<14}{shown}\n"));
        }
    }
    if let Some(Value::Object(facts)) = detailed.get("facts") {
        text.push_str("facts\n");
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_null()) {
            let shown = value.as_str().map_or_else(|| written(value), printable);
            text.push_str(&format!("  {}: {shown}\n", printable(name)));
        }
    }
    text
}

fn written(value: &Value<'_>) -> String {
    let mut bytes = Vec::new();
    json::write(value, &mut bytes);
    printable(&String::from_utf8_lossy(&bytes))
}

pub(super) fn print_object(object: &Object<'_>) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    json::write_object(object, &mut bytes);
    bytes.push(b'\n');
    print_bytes(&bytes)
}

/// Opens the ledger for questions, and a runtime to ask them on.
pub(super) fn open(place: Place) -> Result<(Box<dyn LedgerReader>, Runtime), Failure> {
    let (config, base) = place.load(None)?;
    open_reader(&config, &base)
}

/// The same, for a question about one door, which must exist: in the config, or in the ledger under a
/// name that the config had once.
fn open_at(place: Place, door: Option<&str>) -> Result<(Box<dyn LedgerReader>, Runtime), Failure> {
    let (config, base) = place.load(None)?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let doors = door_names(&config);
    if let Some(door) = door.filter(|door| !doors.iter().any(|known| known == door)) {
        let any = ReceiptFilter { door: Some(door.to_owned()), rows_max: 1, ..ReceiptFilter::default() };
        let kept = runtime.block_on(ledger.list(any)).map_err(|fault| unreadable(&fault))?;
        if kept.is_empty() {
            let known = doors.join(", ");
            let message = format!("there is no door {door:?}; this gate has: {known}");
            return Err(Failure::usage(message));
        }
    }
    Ok((ledger, runtime))
}

/// An id of another ledger would name the wrong receipt.
pub(super) fn check_tag(ledger: &dyn LedgerReader, id: ReceiptId) -> Result<(), Failure> {
    if id.ledger == ledger.tag() { Ok(()) } else { Err(of_another(ledger, id)) }
}

fn of_another(ledger: &dyn LedgerReader, id: ReceiptId) -> Failure {
    let own = ledger.tag();
    Failure::runtime(format!(
        "{id} is a receipt of another ledger; ids of this one start with rcp-{own:08x}-"
    ))
}

/// Why a question to the ledger has no answer.
pub(super) fn unreadable(fault: &Fault) -> Failure {
    let cause = fault.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::runtime(format!("{fault}{cause}"))
}
