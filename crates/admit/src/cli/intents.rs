//! `admit intents` and `admit replay`: what became of intents, and one more attempt.

use std::net::SocketAddr;

use admit_contracts::intents::{DOOR, read};
use admit_core::effect::Effect;
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Receipt, ReceiptId, Seq};
use admit_ledger::ReceiptFilter;
use clap::{Subcommand, ValueEnum};
use tokio::runtime::Runtime;

use super::Place;
use super::receipts::{check_tag, open, print_object, unreadable};
use crate::config::parse_listen;
use crate::ledger::LedgerReader;
use crate::output::{Failure, print, print_bytes, printable, table};

/// Rows that are read at a time while looking for those that were asked for.
const PAGE: usize = 500;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List intents by how they stand now, oldest first
    #[command(after_help = "\
Examples:
  admit intents list --status failed
  admit intents list --status ambiguous --json")]
    List {
        /// Only those that stand so; may be given several times
        #[arg(long, value_name = "STATUS")]
        status: Vec<StatusWord>,
        /// Only what came after this receipt
        #[arg(long, value_name = "ID")]
        after: Option<ReceiptId>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        place: Place,
    },
    /// Print one intent with its plan and its history
    #[command(after_help = "\
Example:
  admit intents show rcp-5e1f09ab-42")]
    Show {
        /// The receipt id, such as rcp-5e1f09ab-42
        id: ReceiptId,
        #[command(flatten)]
        place: Place,
    },
}

/// How an intent stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StatusWord {
    Planned,
    Executed,
    Failed,
    Ambiguous,
}

impl StatusWord {
    const fn word(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Executed => "executed",
            Self::Failed => "failed",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// `admit replay`
#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    /// The receipt id of the intent, such as rcp-5e1f09ab-42
    id: ReceiptId,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Execute it again although its last attempt was executed
    #[arg(long)]
    again: bool,
    /// Where the gate listens [default: by its data folder, else as its config says]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::Show { id, place } => show(place, id, json),
        Command::List { status, after, limit, place } => {
            list(place, &status, after, usize::from(limit), json)
        }
    }
}

/// Asks the running gate for one more attempt.
pub(super) fn replay(command: Replay, json: bool) -> Result<(), Failure> {
    let Replay { id, reason, again, listen, place } = command;
    let gate = place.gate(listen)?;
    let body = serde_json::json!({ "reason": reason, "again": again }).to_string();
    let answer = gate.post(&format!("/v1/intents/{id}/replay"), &body)?;
    let told = json::parse(&answer.body, &Limits { bytes_max: usize::MAX, ..Limits::default() });
    let told = told.map_err(|_| Failure::runtime("the gate's answer cannot be read"))?;
    let text = |pointer| told.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let error = format!("{}: {}", text("/error/code"), text("/error/message"));
    if json {
        print_bytes(&[&answer.body[..], b"\n"].concat())?;
    } else if answer.status == 200 {
        print(&format!("{id} {}\n", printable(text("/status"))))?;
    }
    match answer.status {
        200 => Ok(()),
        _ => Err(Failure::runtime(format!("{id} was not executed: {}", printable(&error)))),
    }
}

fn show(place: Place, id: ReceiptId, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    check_tag(&*ledger, id)?;
    let missing = || Failure::runtime(format!("{id} is no intent of this ledger"));
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
    if json { print_object(&intent) } else { print(&for_people(&intent)) }
}

/// One line a member, then the history.
fn for_people(intent: &Object<'_>) -> String {
    let mut text = String::new();
    let shown = |value: &Value<'_>| match value.as_str() {
        Some(said) => printable(said),
        None => {
            let mut bytes = Vec::new();
            json::write(value, &mut bytes);
            printable(&String::from_utf8_lossy(&bytes))
        }
    };
    let told = |name: &&str| !["history", "reply", "effect"].contains(name);
    for (name, value) in intent.iter().filter(|(name, value)| told(name) && !value.is_null()) {
        text.push_str(&format!("{name:<17}{}\n", shown(value)));
    }
    text.push_str("history\n");
    for line in intent.get("history").and_then(Value::as_array).unwrap_or_default() {
        let said = |name| line.get(name).filter(|value| !value.is_null()).map(shown);
        let mut words = vec![said("at").unwrap_or_default(), said("what").unwrap_or_default()];
        words.extend(said("attempt").map(|attempt| format!("attempt {attempt}")));
        words.extend(said("by").map(|by| format!("by {by}")));
        words.extend(said("reason"));
        words.extend(said("evidence"));
        text.push_str(&format!("  {}\n", words.join("  ")));
    }
    text
}

/// An intent and where its effect stands.
type Found = (Receipt, Option<Effect>);

fn list(
    place: Place,
    wanted: &[StatusWord],
    after: Option<ReceiptId>,
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    if let Some(after) = after {
        check_tag(&*ledger, after)?;
    }
    let after = after.map_or(Seq(0), |id| id.seq);
    let found = find(&*ledger, &runtime, wanted, after, limit)?;
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

fn row((receipt, effect): &Found) -> Vec<String> {
    let error = read::error(receipt, effect.as_ref());
    let said = |name| error.as_ref().and_then(|error| error.get(name)).and_then(Value::as_str);
    vec![
        receipt.id.to_string(),
        receipt.received_at.to_string(),
        read::status(receipt, effect.as_ref()).to_owned(),
        effect.as_ref().map_or(0, |effect| effect.state.attempt()).to_string(),
        receipt.principal.to_string(),
        said("code").map_or(String::new(), |code| {
            format!("{code}: {}", said("message").unwrap_or_default())
        }),
    ]
}

fn find(
    ledger: &dyn LedgerReader,
    runtime: &Runtime,
    wanted: &[StatusWord],
    mut after: Seq,
    limit: usize,
) -> Result<Vec<Found>, Failure> {
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
                    if wanted.is_empty() || wanted.iter().any(|word| word.word() == status) {
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
