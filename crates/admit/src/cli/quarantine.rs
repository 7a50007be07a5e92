//! `admit quarantine`: lists, prints and releases quarantined events.

use std::net::SocketAddr;

use admit_core::{DocumentKind, ReceiptId, StoredDocument};
use admit_gate::receipt_detail::IngestDetail;
use admit_ledger::DocumentFilter;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::receipts::{PageArgs, check_tag, list, open, print_receipt, unreadable};
use super::{ConfigArgs, GateClient};
use crate::config::parse_listen;
use crate::ledger::LedgerReader;
use crate::output::{Failure, print, print_json, printable, table};

/// Verdicts of events that are stored but not applied.
const QUARANTINED: &[&str] = &["conflict", "refused"];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List refusals and conflicts, oldest first; with --run the records of the ingestion gate
    #[command(after_help = "\
Examples:
  admit quarantine list
  admit quarantine list --door pixel-control --limit 5
  admit quarantine list --run platform_20260212T085637Z --open
  admit quarantine list --run unscoped           events without a run
  admit receipts get rcp-5e1f09ab-42 --body     the raw body of an event")]
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Only quarantine records of this run (unscoped: without a run)
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// With --run: only records that are neither superseded nor released
        #[arg(long, requires = "run")]
        open: bool,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Print a refusal or conflict, or the quarantine record of the ingestion gate with its state
    #[command(after_help = "\
Examples:
  admit quarantine show rcp-5e1f09ab-42
  admit quarantine show 6f5a6bc0ddcc94fce77d146e971628d2")]
    Show {
        /// Receipt id, or quarantine id (32 hex digits), as printed by quarantine list
        id: String,
        /// Run, if several runs have the id
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Release a quarantined event through the running gate
    #[command(after_help = "\
Examples:
  admit quarantine release rcp-5e1f09ab-42 --how dismissed --reason 'a test event'
  admit quarantine release 6f5a6bc0ddcc94fce77d146e971628d2 --how resubmitted --reason 'policy fixed'

dismissed: the event is never admitted. resubmitted: the stored body is submitted again, and must
pass. Principal and reason are stored. Ambiguous publishes are resolved with admit reconcile. Only
the ingestion gate supports release; at other doors the producer sends a corrected event. A gate
with principals requires a key with the role operate in ADMIT_KEY, except over the socket in its
data folder.")]
    Release {
        /// Receipt id, or quarantine id (32 hex digits), as printed by quarantine list
        id: String,
        /// Kind of release
        #[arg(long)]
        how: ReleaseKind,
        /// Reason, stored with the release
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Run, if several runs have the id
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        args: ConfigArgs,
    },
}

/// Kind of release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReleaseKind {
    /// Never admit the event
    Dismissed,
    /// Submit the stored body again
    Resubmitted,
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { page, run: None, args, .. } => {
            let verdicts = QUARANTINED.iter().map(|&verdict| verdict.to_owned()).collect();
            list("quarantine", args, page, verdicts, json)
        }
        Command::List { page, run: Some(run), open, args } => {
            list_records(args, &run, open, page.limit(), json)
        }
        Command::Show { id, run, args } => show(args, &id, run.as_deref(), json),
        Command::Release { id, how, reason, run, listen, args } => {
            release(&args.gate(listen)?, &id, how, &reason, run.as_deref(), json)
        }
    }
}

/// Run id as stored in the ledger: empty for `unscoped`.
fn run_in_ledger(run: &str) -> String {
    if run == "unscoped" { String::new() } else { run.to_owned() }
}

fn list_records(
    args: ConfigArgs,
    run: &str,
    is_open: bool,
    limit: usize,
    as_json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    if run != "unscoped" {
        let known = runtime.block_on(ledger.run(run.to_owned()));
        known.map_err(|fault| unreadable(&fault))?.ok_or_else(|| super::unknown_run(run))?;
    }
    let filter = DocumentFilter {
        kind: Some(DocumentKind::Quarantine),
        run: Some(run_in_ledger(run)),
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
    let rows = found.iter().map(|stored| {
        vec![
            stored.document.id.clone(),
            stored.at.to_string(),
            stored.document.reason.as_deref().unwrap_or_default().to_owned(),
            printable(stored.document.event_id.as_deref().unwrap_or_default()),
            release_state(stored).to_owned(),
        ]
    });
    print(&table(&["quarantine id", "received", "reason", "event id", "state"], rows))
}

/// State of a quarantine record.
fn release_state(stored: &StoredDocument) -> &str {
    match (&stored.released, stored.superseded_by) {
        (Some(released), _) => &released.how,
        (None, Some(_)) => "superseded",
        (None, None) => "open",
    }
}

fn object(stored: &StoredDocument) -> Value {
    let record: Value = serde_json::from_str(&stored.document.text).unwrap_or_default();
    let released = stored.released.as_ref().map(|released| {
        json!({
            "how": released.how, "by": released.by.who, "reason": released.by.why,
            "at": released.at.to_string(),
        })
    });
    json!({
        "quarantine_id": stored.document.id,
        "platform_run_id": stored.document.run,
        "reason": stored.document.reason,
        "event_id": stored.document.event_id,
        "ref": stored.document.path,
        "stands": release_state(stored),
        "released": released,
        "record": record,
    })
}

fn show(args: ConfigArgs, id: &str, run: Option<&str>, as_json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    if let Ok(receipt_id) = id.parse::<ReceiptId>() {
        return show_receipt(&*ledger, &runtime, receipt_id, as_json);
    }
    let named =
        runtime.block_on(ledger.named(id.to_owned())).map_err(|fault| unreadable(&fault))?;
    let mut found = named.into_iter().filter(|stored| {
        stored.document.kind == DocumentKind::Quarantine
            && run.is_none_or(|run| {
                stored.document.run.clone().unwrap_or_default() == run_in_ledger(run)
            })
    });
    let missing =
        || Failure::runtime(format!("no quarantine record {} in this ledger", printable(id)));
    let stored = found.next().ok_or_else(missing)?;
    if found.next().is_some() {
        return Err(Failure::usage("several runs have this id: choose one with --run"));
    }
    print_record(&stored, as_json)
}

/// Prints the quarantine record of a receipt, or the receipt itself at doors without records.
fn show_receipt(
    ledger: &dyn LedgerReader,
    runtime: &Runtime,
    id: ReceiptId,
    as_json: bool,
) -> Result<(), Failure> {
    check_tag(ledger, id)?;
    let found = runtime.block_on(ledger.receipt(id.seq)).map_err(|fault| unreadable(&fault))?;
    let missing = || Failure::runtime(format!("no receipt {id} in this ledger"));
    let receipt = found.ok_or_else(missing)?;
    let detail = runtime.block_on(IngestDetail::read(ledger, ledger, &receipt));
    let detail = detail.map_err(|fault| unreadable(&fault))?;
    if let Some(record) = detail.as_ref().and_then(IngestDetail::quarantine) {
        return print_record(record, as_json);
    }
    if !QUARANTINED.contains(&receipt.verdict) {
        let verdict = receipt.verdict;
        return Err(Failure::runtime(format!("{id} is not quarantined: its verdict is {verdict}")));
    }
    print_receipt(&receipt, detail.as_ref(), as_json)?;
    match as_json {
        true => Ok(()),
        false => print(&format!("\nraw body: admit receipts get {id} --body\n")),
    }
}

fn print_record(stored: &StoredDocument, as_json: bool) -> Result<(), Failure> {
    let object = object(stored);
    if as_json {
        return print_json(&object);
    }
    let text = serde_json::to_string_pretty(&object).map_err(Failure::runtime)?;
    print(&format!("{text}\n"))
}

fn release(
    gate: &GateClient,
    id: &str,
    how: ReleaseKind,
    reason: &str,
    run: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    let is_quarantine_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_quarantine_id && id.parse::<ReceiptId>().is_err() {
        let message = format!(
            "{:?} is neither a receipt id such as rcp-5e1f09ab-42 nor a quarantine id (hex digits)",
            printable(id)
        );
        return Err(Failure::usage(message));
    }
    let how = match how {
        ReleaseKind::Dismissed => "dismissed",
        ReleaseKind::Resubmitted => "resubmitted",
    };
    let body = json!({ "how": how, "reason": reason, "run": run.map(run_in_ledger) }).to_string();
    let reply = gate.post(&format!("/v1/quarantine/{id}/release"), &body)?;
    let reply_body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if as_json {
        print_json(&reply_body)?;
    } else if reply.status == 200 {
        print(&format!("{id} {how}\n"))?;
    }
    match reply.status {
        200 => Ok(()),
        _ => {
            let message = printable(reply_body["error"]["message"].as_str().unwrap_or_default());
            Err(Failure::runtime(format!("{id} was not released: {message}")))
        }
    }
}
