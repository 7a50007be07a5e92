//! `admit intents` and `admit replay`: lists, prints and replays intents.

use std::net::SocketAddr;

use admit_contracts::intents::{DOOR, read};
use admit_core::effect::Effect;
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Receipt, ReceiptId, Seq};
use admit_ledger::ReceiptFilter;
use clap::{Subcommand, ValueEnum};
use tokio::runtime::Runtime;

use super::ConfigArgs;
use super::receipts::{check_tag, open, print_object, unreadable};
use crate::config::parse_listen;
use crate::ledger::LedgerReader;
use crate::output::{Failure, print, print_bytes, printable, table};

/// Rows read per page while filtering by status.
const PAGE: usize = 500;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List intents with their current status, oldest first
    #[command(after_help = "\
Examples:
  admit intents list --status failed
  admit intents list --status ambiguous --json")]
    List {
        /// Only intents with this status; repeatable
        #[arg(long, value_name = "STATUS")]
        status: Vec<IntentStatusArg>,
        /// Pagination cursor: only rows after this receipt (the `next` value of the previous page)
        #[arg(long, value_name = "ID")]
        after: Option<ReceiptId>,
        /// Maximum number of rows
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Print an intent with its plan and history
    #[command(after_help = "\
Example:
  admit intents show rcp-5e1f09ab-42")]
    Show {
        /// Receipt id, such as rcp-5e1f09ab-42
        id: ReceiptId,
        #[command(flatten)]
        args: ConfigArgs,
    },
}

/// Status of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum IntentStatusArg {
    Planned,
    Executed,
    Failed,
    Ambiguous,
}

impl IntentStatusArg {
    const fn word(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Executed => "executed",
            Self::Failed => "failed",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// Arguments of `admit replay`.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayArgs {
    /// Receipt id of the intent, such as rcp-5e1f09ab-42
    id: ReceiptId,
    /// Reason, stored in the history
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Execute the intent again although its last attempt succeeded
    #[arg(long)]
    again: bool,
    /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    args: ConfigArgs,
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::Show { id, args } => show(args, id, json),
        Command::List { status, after, limit, args } => {
            list(args, &status, after, usize::from(limit), json)
        }
    }
}

/// Requests another attempt from the running gate.
pub(super) fn replay(command: ReplayArgs, json: bool) -> Result<(), Failure> {
    let ReplayArgs { id, reason, again, listen, args } = command;
    let gate = args.gate(listen)?;
    let body = serde_json::json!({ "reason": reason, "again": again }).to_string();
    let reply = gate.post(&format!("/v1/intents/{id}/replay"), &body)?;
    let reply_json =
        json::parse(&reply.body, &Limits { bytes_max: usize::MAX, ..Limits::default() });
    let reply_json =
        reply_json.map_err(|_| Failure::runtime("the reply of the gate is not valid JSON"))?;
    let text = |pointer| reply_json.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let error = format!("{}: {}", text("/error/code"), text("/error/message"));
    if json {
        print_bytes(&[&reply.body[..], b"\n"].concat())?;
    } else if reply.status == 200 {
        print(&format!("{id} {}\n", printable(text("/status"))))?;
    }
    match reply.status {
        200 => Ok(()),
        _ => Err(Failure::runtime(format!("{id} not executed: {}", printable(&error)))),
    }
}

fn show(args: ConfigArgs, id: ReceiptId, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    check_tag(&*ledger, id)?;
    let missing = || Failure::runtime(format!("{id} is not an intent of this ledger"));
    let found = runtime.block_on(async {
        let mut receipt = ledger.receipt(id.seq).await?;
        if let Some(first) = receipt.as_ref().and_then(|receipt| receipt.first) {
            receipt = ledger.receipt(first.seq).await?;
        }
        let seq = receipt.as_ref().map_or(id.seq, |receipt| receipt.id.seq);
        Ok((receipt, ledger.effect(seq).await?, ledger.history(seq).await?))
    });
    let (receipt, effect, history) = found.map_err(|fault| unreadable(&fault))?;
    let is_intent = |receipt: &Receipt| receipt.door.as_str() == DOOR && receipt.verdict == "fresh";
    let receipt = receipt.filter(is_intent).ok_or_else(missing)?;
    let intent = read::intent(&receipt, effect.as_ref(), &history);
    if json { print_object(&intent) } else { print(&to_text(&intent)) }
}

/// Renders one line per member, then the history.
fn to_text(intent: &Object<'_>) -> String {
    let mut text = String::new();
    let shown = |value: &Value<'_>| match value.as_str() {
        Some(text) => printable(text),
        None => {
            let mut bytes = Vec::new();
            json::write(value, &mut bytes);
            printable(&String::from_utf8_lossy(&bytes))
        }
    };
    let is_listed = |name: &&str| !["history", "reply", "effect"].contains(name);
    for (name, value) in intent.iter().filter(|(name, value)| is_listed(name) && !value.is_null()) {
        text.push_str(&format!("{name:<17}{}\n", shown(value)));
    }
    text.push_str("history\n");
    for line in intent.get("history").and_then(Value::as_array).unwrap_or_default() {
        let text_of = |name| line.get(name).filter(|value| !value.is_null()).map(shown);
        let mut words =
            vec![text_of("at").unwrap_or_default(), text_of("what").unwrap_or_default()];
        words.extend(text_of("attempt").map(|attempt| format!("attempt {attempt}")));
        words.extend(text_of("by").map(|by| format!("by {by}")));
        words.extend(text_of("reason"));
        words.extend(text_of("evidence"));
        text.push_str(&format!("  {}\n", words.join("  ")));
    }
    text
}

/// Receipt and effect of an intent.
type IntentRow = (Receipt, Option<Effect>);

fn list(
    args: ConfigArgs,
    statuses: &[IntentStatusArg],
    after: Option<ReceiptId>,
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    if let Some(after) = after {
        check_tag(&*ledger, after)?;
    }
    let after = after.map_or(Seq(0), |id| id.seq);
    let found = find_intents(&*ledger, &runtime, statuses, after, limit)?;
    let next = found.last().filter(|_| found.len() >= limit).map(|(receipt, _)| receipt.id);
    if json {
        let listed: Value<'_> = found
            .iter()
            .map(|(receipt, effect)| {
                Object::from_iter([
                    ("receipt_id", Value::from(receipt.id.to_string())),
                    ("status", read::status(receipt, effect.as_ref()).into()),
                    ("attempt", effect.as_ref().map(|e| e.state.attempt()).into()),
                    ("received_at", receipt.received_at.to_rfc3339_millis().into()),
                    ("principal", receipt.principal.as_str().into()),
                    ("error", read::error(receipt, effect.as_ref()).into()),
                ])
            })
            .collect();
        let next = Value::from(next.map(|id| id.to_string()));
        return print_object(&Object::from_iter([("intents", listed), ("next", next)]));
    }
    if found.is_empty() {
        return print("nothing found\n");
    }
    let columns = ["receipt", "received", "status", "attempts", "principal", "error"];
    print(&table(&columns, found.iter().map(row)))?;
    match next {
        Some(id) => print(&format!("\nthere may be more: --after {id}\n")),
        None => Ok(()),
    }
}

fn row((receipt, effect): &IntentRow) -> Vec<String> {
    let error = read::error(receipt, effect.as_ref());
    let text_of = |name| error.as_ref().and_then(|error| error.get(name)).and_then(Value::as_str);
    vec![
        receipt.id.to_string(),
        receipt.received_at.to_string(),
        read::status(receipt, effect.as_ref()).to_owned(),
        effect.as_ref().map_or(0, |effect| effect.state.attempt()).to_string(),
        receipt.principal.to_string(),
        text_of("code").map_or(String::new(), |code| {
            format!("{code}: {}", text_of("message").unwrap_or_default())
        }),
    ]
}

fn find_intents(
    ledger: &dyn LedgerReader,
    runtime: &Runtime,
    statuses: &[IntentStatusArg],
    mut after: Seq,
    limit: usize,
) -> Result<Vec<IntentRow>, Failure> {
    let mut found = Vec::new();
    runtime
        .block_on(async {
            loop {
                let filter = ReceiptFilter {
                    door: Some(DOOR.to_owned()),
                    verdicts: vec!["fresh".to_owned()],
                    after,
                    rows_max: PAGE,
                    ..ReceiptFilter::default()
                };
                let page = ledger.list(filter).await?;
                let is_last = page.len() < PAGE;
                for receipt in page {
                    after = receipt.id.seq;
                    let effect = ledger.effect(after).await?;
                    let status = read::status(&receipt, effect.as_ref());
                    if statuses.is_empty() || statuses.iter().any(|word| word.word() == status) {
                        found.push((receipt, effect));
                    }
                    if found.len() == limit {
                        return Ok(());
                    }
                }
                if is_last {
                    return Ok(());
                }
            }
        })
        .map_err(|fault| unreadable(&fault))?;
    Ok(found)
}
