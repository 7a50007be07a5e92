//! `admit receipts`: prints or lists receipts. Reads the ledger, also while the gate runs.

use std::error::Error as _;

use admit_core::json::{self, Object, Value};
use admit_core::{Fault, Receipt, ReceiptId, Seq};
use admit_gate::receipt::{ShownReason, detailed, object};
use admit_gate::receipt_detail::{self, IngestDetail};
use admit_gate::receipt_lookup::{ReceiptLookup, ReceiptLookupError, find_receipt};
use admit_ledger::ReceiptFilter;
use clap::{Args, Subcommand, ValueEnum};
use tokio::runtime::Runtime;

use super::ConfigArgs;
use crate::config::door_names;
use crate::ledger::{LedgerReader, open_reader};
use crate::output::{Failure, print, print_bytes, printable, table};

/// Maximum number of receipts per page.
const ROWS_MAX: u16 = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print a receipt
    #[command(after_help = "\
Examples:
  admit receipts get rcp-5e1f09ab-42
  admit receipts get rcp-5e1f09ab-42 --json
  admit receipts get rcp-5e1f09ab-42 --body > event.json
  admit receipts get rcp-5e1f09ab-42 --document
  admit receipts get DEDUPE_KEY --door pixel-control
  admit receipts get RECEIPT_ID --door ingestion-gate --run platform_20260212T085637Z")]
    Get {
        /// Receipt id, such as rcp-5e1f09ab-42, or with --door an id of that door
        id: String,
        /// Door of the id: a dedupe_key of pixel-control, an event_id of skyra, a receipt_id or
        /// dedupe_key of ingestion-gate
        #[arg(long)]
        door: Option<String>,
        /// Run of an id of ingestion-gate
        #[arg(long, requires = "door")]
        run: Option<String>,
        /// Print the raw body instead, byte for byte
        #[arg(long)]
        body: bool,
        /// Print the document that the ingestion gate issued instead, byte for byte
        #[arg(long, conflicts_with = "body")]
        document: bool,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// List receipts in ledger order, oldest first
    #[command(after_help = "\
Examples:
  admit receipts list
  admit receipts list --verdict conflict --verdict refused
  admit receipts list --principal arena-1 --after rcp-5e1f09ab-42 --json")]
    List {
        /// Only this verdict; repeatable
        #[arg(long, value_name = "VERDICT")]
        verdict: Vec<VerdictArg>,
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        args: ConfigArgs,
    },
}

/// Filters and pagination of a list.
#[derive(Debug, Args)]
pub(super) struct PageArgs {
    /// Only submissions at this door, such as pixel-control
    #[arg(long)]
    door: Option<String>,
    /// Only submissions of this principal
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Pagination cursor: only rows after this receipt (the `next` value of the previous page)
    #[arg(long, value_name = "ID")]
    after: Option<ReceiptId>,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(ROWS_MAX)))]
    limit: u16,
}

impl PageArgs {
    /// Maximum number of rows.
    pub(super) fn limit(&self) -> usize {
        usize::from(self.limit)
    }
}

/// Verdicts with a receipt. Duplicates are sightings, counted on the receipt of the first admission.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum VerdictArg {
    Fresh,
    Revision,
    Conflict,
    Refused,
}

impl VerdictArg {
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
        Command::Get { id, door, run, body, document, args } => {
            let wanted = ReceiptLookup { id: &id, door: door.as_deref(), run: run.as_deref() };
            let part = match (body, document) {
                (true, _) => ReceiptPart::Body,
                (false, true) => ReceiptPart::Document,
                (false, false) => ReceiptPart::Receipt,
            };
            get(args, wanted, part, json)
        }
        Command::List { verdict, page, args } => {
            let verdicts = verdict.iter().map(|verdict| verdict.word().to_owned()).collect();
            list("receipts", args, page, verdicts, json)
        }
    }
}

/// Part of a receipt to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiptPart {
    Receipt,
    Body,
    Document,
}

fn get(
    args: ConfigArgs,
    wanted: ReceiptLookup<'_>,
    part: ReceiptPart,
    json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open_for_door(args, wanted.door)?;
    let found = match runtime.block_on(find_receipt(&*ledger, Some(&*ledger), wanted)) {
        Ok(found) => found,
        Err(ReceiptLookupError::Fault(fault)) => return Err(unreadable(&fault)),
        Err(ReceiptLookupError::OtherLedger(id)) => return Err(other_ledger(&*ledger, id)),
        Err(ReceiptLookupError::RunWithoutItsDoor) => {
            return Err(Failure::usage("--run requires --door ingestion-gate"));
        }
        Err(ReceiptLookupError::NotAnId) => {
            return Err(Failure::usage(
                "invalid receipt id: expected one such as rcp-5e1f09ab-42\n  for an id of a contract, \
                 such as a dedupe_key, give its door with --door",
            ));
        }
    };
    let missing = || Failure::runtime(format!("no receipt {} in this ledger", wanted.id));
    let receipt = found.ok_or_else(missing)?;
    if part == ReceiptPart::Body {
        let body = runtime.block_on(ledger.body(receipt.id.seq));
        let missing = || Failure::runtime(format!("no body stored for {}", receipt.id));
        return print_bytes(&body.map_err(|fault| unreadable(&fault))?.ok_or_else(missing)?);
    }
    let detail = runtime.block_on(IngestDetail::read(&*ledger, &*ledger, &receipt));
    let detail = detail.map_err(|fault| unreadable(&fault))?;
    if part == ReceiptPart::Document {
        let document = detail.as_ref().and_then(IngestDetail::document);
        let missing =
            || Failure::runtime(format!("{}: {}", receipt.id, receipt_detail::missing(&receipt)));
        return print(&format!("{}\n", document.ok_or_else(missing)?.document.text));
    }
    print_receipt(&receipt, detail.as_ref(), json)
}

/// Prints a receipt with the details of its door.
pub(super) fn print_receipt(
    receipt: &Receipt,
    detail: Option<&IngestDetail>,
    json: bool,
) -> Result<(), Failure> {
    let detailed = detailed(receipt, detail);
    if json { print_object(&detailed) } else { print(&to_text(receipt, &detailed)) }
}

/// Prints a page of receipts; `name` is the JSON member. Also used by `admit quarantine list`.
pub(super) fn list(
    name: &'static str,
    args: ConfigArgs,
    page: PageArgs,
    verdicts: Vec<String>,
    json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open_for_door(args, page.door.as_deref())?;
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

/// Reason, with the code of the reply, and the code of the ledger if it differs.
fn reason(receipt: &Receipt) -> Option<String> {
    let ShownReason { code, reply_code, message } = ShownReason::of(receipt)?;
    let code = code.as_str();
    Some(match reply_code.filter(|reply_code| reply_code != code) {
        Some(reply_code) => format!("{reply_code} ({code}): {message}"),
        None => format!("{code}: {message}"),
    })
}

/// Renders one line per member, then the facts of the contract.
fn to_text(receipt: &Receipt, detailed: &Object<'_>) -> String {
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
            let shown = value.as_str().map_or_else(|| json_text(value), printable);
            text.push_str(&format!("{name:<14}{shown}\n"));
        }
    }
    if let Some(Value::Object(facts)) = detailed.get("facts") {
        text.push_str("facts\n");
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_null()) {
            let shown = value.as_str().map_or_else(|| json_text(value), printable);
            text.push_str(&format!("  {}: {shown}\n", printable(name)));
        }
    }
    text
}

fn json_text(value: &Value<'_>) -> String {
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

/// Opens the ledger for reading, with a runtime for its futures.
pub(super) fn open(args: ConfigArgs) -> Result<(Box<dyn LedgerReader>, Runtime), Failure> {
    let (config, base) = args.load(None)?;
    open_reader(&config, &base)
}

/// As [`open`]. Fails if `door` is neither in the config nor in the ledger (under an earlier config).
fn open_for_door(
    args: ConfigArgs,
    door: Option<&str>,
) -> Result<(Box<dyn LedgerReader>, Runtime), Failure> {
    let (config, base) = args.load(None)?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let doors = door_names(&config);
    if let Some(door) = door.filter(|door| !doors.iter().any(|known| known == door)) {
        let any =
            ReceiptFilter { door: Some(door.to_owned()), rows_max: 1, ..ReceiptFilter::default() };
        let receipts = runtime.block_on(ledger.list(any)).map_err(|fault| unreadable(&fault))?;
        if receipts.is_empty() {
            let known = doors.join(", ");
            let message = format!("no door {door:?}; doors of this gate: {known}");
            return Err(Failure::usage(message));
        }
    }
    Ok((ledger, runtime))
}

/// Fails for an id of another ledger, which would match the wrong receipt.
pub(super) fn check_tag(ledger: &dyn LedgerReader, id: ReceiptId) -> Result<(), Failure> {
    if id.ledger == ledger.tag() { Ok(()) } else { Err(other_ledger(ledger, id)) }
}

fn other_ledger(ledger: &dyn LedgerReader, id: ReceiptId) -> Failure {
    let own = ledger.tag();
    Failure::runtime(format!(
        "{id} is a receipt of another ledger; ids of this one start with rcp-{own:08x}-"
    ))
}

/// Failure of a ledger read, with its cause.
pub(super) fn unreadable(fault: &Fault) -> Failure {
    let cause = fault.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::runtime(format!("{fault}{cause}"))
}
