//! `admit quarantine`: what was kept but not applied, why, and letting it go.

use std::net::SocketAddr;

use admit_core::{StoredDocument, DocumentKind, ReceiptId};
use admit_gate::receipt_detail::IngestDetail;
use admit_ledger::DocumentFilter;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::receipts::{Page, check_tag, list, open, print_receipt, unreadable};
use super::{Asking, Place};
use crate::config::parse_listen;
use crate::ledger::LedgerReader;
use crate::output::{Failure, print, print_json, printable, table};

/// The verdicts that keep something without applying it.
const QUARANTINED: &[&str] = &["conflict", "refused"];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List refusals and conflicts in ledger order; with --run the records of the ingestion gate
    #[command(after_help = "\
Examples:
  admit quarantine list
  admit quarantine list --door pixel-control --limit 5
  admit quarantine list --run platform_20260212T085637Z --open
  admit quarantine list --run unscoped           what names no run
  admit receipts get rcp-5e1f09ab-42 --body     the body of one of them, byte for byte")]
    List {
        #[command(flatten)]
        page: Page,
        /// Only quarantine records of this run (unscoped: of none)
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// With --run: only those that are neither superseded nor released
        #[arg(long, requires = "run")]
        open: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Print one refusal or conflict; at the ingestion gate the quarantine record, with what became of it
    #[command(after_help = "\
Examples:
  admit quarantine show rcp-5e1f09ab-42
  admit quarantine show 6f5a6bc0ddcc94fce77d146e971628d2")]
    Show {
        /// The receipt id, as quarantine list prints it; or a quarantine id, 32 hex digits
        id: String,
        /// The run, where several have the id
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Have the running gate let a quarantine go
    #[command(after_help = "\
Examples:
  admit quarantine release rcp-5e1f09ab-42 --how dismissed --reason 'a test event'
  admit quarantine release 6f5a6bc0ddcc94fce77d146e971628d2 --how resubmitted --reason 'policy mended'

dismissed: it will not be admitted. resubmitted: what was kept goes through the door again, and must
pass. Who did it and why is kept. A gate with principals wants a key with the role operate, from the
variable ADMIT_KEY;
beside its data folder none is needed. What is ambiguous is resolved with admit reconcile. Only the
ingestion gate has a release; at other doors the producer sends a corrected event.")]
    Release {
        /// The receipt id, as quarantine list prints it; or a quarantine id, 32 hex digits
        id: String,
        /// How it is let go
        #[arg(long)]
        how: How,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// The run, where several have the id
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Where the gate listens [default: by its data folder, else as its config says]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        place: Place,
    },
}

/// How a quarantine is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum How {
    /// It will not be admitted, and that is well.
    Dismissed,
    /// What was kept of it goes through the door again.
    Resubmitted,
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { page, run: None, place, .. } => {
            let verdicts = QUARANTINED.iter().map(|&verdict| verdict.to_owned()).collect();
            list("quarantine", place, page, verdicts, json)
        }
        Command::List { page, run: Some(run), open, place } => {
            records(place, &run, open, page.limit(), json)
        }
        Command::Show { id, run, place } => show(place, &id, run.as_deref(), json),
        Command::Release { id, how, reason, run, listen, place } => {
            release(&place.gate(listen)?, &id, how, &reason, run.as_deref(), json)
        }
    }
}

/// A run as the ledger spells it.
fn spelt(run: &str) -> String {
    if run == "unscoped" { String::new() } else { run.to_owned() }
}

fn records(
    place: Place,
    run: &str,
    is_open: bool,
    limit: usize,
    as_json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    if run != "unscoped" {
        let known = runtime.block_on(ledger.run(run.to_owned()));
        known.map_err(|fault| unreadable(&fault))?.ok_or_else(|| super::unknown_run(run))?;
    }
    let filter = DocumentFilter {
        kind: Some(DocumentKind::Quarantine),
        run: Some(spelt(run)),
        is_open,
        rows_max: limit,
        ..DocumentFilter::default()
    };
    let found = runtime.block_on(ledger.filed(filter)).map_err(|fault| unreadable(&fault))?;
    if as_json {
        let listed: Vec<Value> = found.iter().map(object).collect();
        return print_json(&json!({ "quarantine": listed }));
    }
    if found.is_empty() {
        return print("nothing found\n");
    }
    let rows = found.iter().map(|filed| {
        vec![
            filed.document.id.clone(),
            filed.at.to_string(),
            filed.document.reason.as_deref().unwrap_or_default().to_owned(),
            printable(filed.document.event_id.as_deref().unwrap_or_default()),
            standing(filed).to_owned(),
        ]
    });
    print(&table(&["quarantine id", "since", "reason", "event", "stands"], rows))
}

/// What became of a quarantine.
fn standing(filed: &StoredDocument) -> &str {
    match (&filed.released, filed.superseded_by) {
        (Some(released), _) => &released.how,
        (None, Some(_)) => "superseded",
        (None, None) => "open",
    }
}

fn object(filed: &StoredDocument) -> Value {
    let record: Value = serde_json::from_str(&filed.document.text).unwrap_or_default();
    let released = filed.released.as_ref().map(|released| {
        json!({
            "how": released.how, "by": released.by.who, "reason": released.by.why,
            "at": released.at.to_string(),
        })
    });
    json!({
        "quarantine_id": filed.document.id,
        "platform_run_id": filed.document.run,
        "reason": filed.document.reason,
        "event_id": filed.document.event_id,
        "ref": filed.document.path,
        "stands": standing(filed),
        "released": released,
        "record": record,
    })
}

fn show(place: Place, id: &str, run: Option<&str>, as_json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    if let Ok(receipt_id) = id.parse::<ReceiptId>() {
        return show_receipt(&*ledger, &runtime, receipt_id, as_json);
    }
    let named =
        runtime.block_on(ledger.named(id.to_owned())).map_err(|fault| unreadable(&fault))?;
    let mut found = named.into_iter().filter(|filed| {
        filed.document.kind == DocumentKind::Quarantine
            && run.is_none_or(|run| filed.document.run.clone().unwrap_or_default() == spelt(run))
    });
    let missing = || Failure::runtime(format!("there is no quarantine {}", printable(id)));
    let filed = found.next().ok_or_else(missing)?;
    if found.next().is_some() {
        return Err(Failure::usage("several runs have this id: say which with --run"));
    }
    print_record(&filed, as_json)
}

/// Prints the quarantine record of the delivery that left this receipt; at doors without records the receipt.
fn show_receipt(
    ledger: &dyn LedgerReader,
    runtime: &Runtime,
    id: ReceiptId,
    as_json: bool,
) -> Result<(), Failure> {
    check_tag(ledger, id)?;
    let found = runtime.block_on(ledger.receipt(id.seq)).map_err(|fault| unreadable(&fault))?;
    let missing = || Failure::runtime(format!("there is no receipt {id} in this ledger"));
    let receipt = found.ok_or_else(missing)?;
    let detail = runtime.block_on(IngestDetail::read(ledger, ledger, &receipt));
    let detail = detail.map_err(|fault| unreadable(&fault))?;
    if let Some(record) = detail.as_ref().and_then(IngestDetail::quarantine) {
        return print_record(record, as_json);
    }
    if !QUARANTINED.contains(&receipt.verdict) {
        let verdict = receipt.verdict;
        return Err(Failure::runtime(format!(
            "{id} is not in quarantine, its verdict is {verdict}"
        )));
    }
    print_receipt(&receipt, detail.as_ref(), as_json)?;
    match as_json {
        true => Ok(()),
        false => print(&format!("\nthe body: admit receipts get {id} --body\n")),
    }
}

fn print_record(filed: &StoredDocument, as_json: bool) -> Result<(), Failure> {
    let object = object(filed);
    if as_json {
        return print_json(&object);
    }
    let text = serde_json::to_string_pretty(&object).map_err(Failure::runtime)?;
    print(&format!("{text}\n"))
}

fn release(
    gate: &Asking,
    id: &str,
    how: How,
    reason: &str,
    run: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    let is_quarantine_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_quarantine_id && id.parse::<ReceiptId>().is_err() {
        let message = format!(
            "{:?} is neither a receipt id such as rcp-5e1f09ab-42 nor a quarantine id",
            printable(id)
        );
        return Err(Failure::usage(message));
    }
    let how = match how {
        How::Dismissed => "dismissed",
        How::Resubmitted => "resubmitted",
    };
    let body = json!({ "how": how, "reason": reason, "run": run.map(spelt) }).to_string();
    let answer = gate.post(&format!("/v1/quarantine/{id}/release"), &body)?;
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if as_json {
        print_json(&said)?;
    } else if answer.status == 200 {
        print(&format!("{id} {how}\n"))?;
    }
    match answer.status {
        200 => Ok(()),
        _ => {
            let message = printable(said["error"]["message"].as_str().unwrap_or_default());
            Err(Failure::runtime(format!("{id} was not released: {message}")))
        }
    }
}
