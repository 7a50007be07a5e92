//! `admit rounds`: lists and prints rounds merged from several sources; accepts and relinks their events.

use std::net::SocketAddr;

use admit_contracts::rounds::DOOR;
use admit_core::entity::ProcessingState;
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{ReceiptId, Seq};
use admit_gate::rounds as json_view;
use admit_ledger::port::{EventLine, RecordFilter, RecordLine};
use admit_ledger::publications::Publication;
use clap::Subcommand;
use clap::builder::PossibleValuesParser;

use super::ConfigArgs;
use super::gate_client::GateReply;
use super::receipts::{check_tag, open, print_object, unreadable};
use crate::config::parse_listen;
use crate::output::{Failure, print, print_bytes, printable, table};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List rounds, newest first
    #[command(after_help = "\
Examples:
  admit rounds list
  admit rounds list --map supply --date 2026-02-11
  admit rounds list --state publish_failed --json")]
    List {
        /// Only rounds on this map
        #[arg(long, value_name = "NAME")]
        map: Option<String>,
        /// Only rounds of this day, in the time zone of the game server
        #[arg(long, value_name = "YYYY-MM-DD")]
        date: Option<String>,
        /// Only rounds in this state
        #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(STATES))]
        state: Option<String>,
        /// Pagination cursor (the `next` value of the previous page)
        #[arg(long, value_name = "NEXT", value_parser = parse_cursor)]
        after: Option<(i64, String)>,
        /// Maximum number of rows
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Print a round: fields with their sources, events, publications and history
    #[command(after_help = "\
Example:
  admit rounds show rnd-0123456789abcdef")]
    Show {
        /// Id of the round, such as rnd-0123456789abcdef
        id: String,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// List events without a certain round, or with missing rows, oldest first
    #[command(after_help = "\
Examples:
  admit rounds unlinked
  admit rounds unlinked --after rcp-5e1f09ab-42 --json")]
    Unlinked {
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
    /// Accept a later stats file of a round, including its totals
    #[command(after_help = "\
Example:
  admit rounds accept rcp-5e1f09ab-42 --reason \"the first file was cut off\"

Different content under the name of a known stats file is stored but not applied. Accepting it
overrides the values of the earlier file, whatever arrives later. Principal and reason are stored
with the event and printed by admit rounds show --json. Accepting twice changes nothing. A gate
with principals requires a key with the role operate in ADMIT_KEY, except over the socket in its
data folder.")]
    Accept {
        /// Receipt id of the event, such as rcp-5e1f09ab-42
        receipt: ReceiptId,
        /// Reason, stored with the event
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Relink all unlinked events through the running gate
    #[command(after_help = "\
Examples:
  admit rounds relink --dry-run
  ADMIT_KEY=... admit rounds relink --listen 127.0.0.1:9000

Use it after changing time_zone or match_window_minutes, or after repairing an index. Every new
link is added to the history of its event. A gate with principals requires a key with the role
operate in ADMIT_KEY, except over the socket in its data folder.")]
    Relink {
        /// Print what would change, without changing it
        #[arg(long)]
        dry_run: bool,
        /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        args: ConfigArgs,
    },
}

/// States of a round.
const STATES: [&str; 4] = [
    ProcessingState::Linked.word(),
    ProcessingState::Enriched.word(),
    ProcessingState::Published.word(),
    ProcessingState::PublishFailed.word(),
];

fn parse_cursor(text: &str) -> Result<(i64, String), String> {
    json_view::parse_cursor(text)
        .ok_or_else(|| "invalid cursor: use the `next` value of the previous page".to_owned())
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { map, date, state, after, limit, args } => {
            let filter = RecordFilter {
                door: DOOR.to_owned(),
                group: map.map(|map| map.trim().to_lowercase()),
                date,
                state,
                after,
                rows_max: usize::from(limit),
            };
            list(args, filter, json)
        }
        Command::Show { id, args } => show(args, id, json),
        Command::Unlinked { after, limit, args } => unlinked(args, after, usize::from(limit), json),
        Command::Accept { receipt, reason, listen, args } => {
            accept(args, listen, receipt, &reason, json)
        }
        Command::Relink { dry_run, listen, args } => relink(args, listen, dry_run, json),
    }
}

fn list(args: ConfigArgs, filter: RecordFilter, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    let rows_max = filter.rows_max;
    let lines = runtime.block_on(ledger.records(filter)).map_err(|fault| unreadable(&fault))?;
    let next = lines.last().filter(|_| lines.len() >= rows_max).map(json_view::page_cursor);
    if json {
        let rounds: Value<'_> = lines.iter().map(json_view::line).collect();
        return print_object(&Object::from_iter([("rounds", rounds), ("next", next.into())]));
    }
    if lines.is_empty() {
        return print("nothing found\n");
    }
    let columns =
        ["round", "map", "number", "date", "time", "state", "revision", "winner", "end", "players"];
    print(&table(&columns, lines.iter().map(row)))?;
    match next {
        Some(next) => print(&format!("\nthere may be more: --after {next}\n")),
        None => Ok(()),
    }
}

fn row(line: &RecordLine) -> Vec<String> {
    let short = json_view::line(line);
    let text = |name| short.get(name).map(value_text).unwrap_or_default();
    vec![
        line.record_id.clone(),
        line.group.clone(),
        line.number.to_string(),
        line.date.clone().unwrap_or_default(),
        line.time.clone().unwrap_or_default(),
        line.state.clone(),
        line.revision.to_string(),
        text("winner_team"),
        text("end_reason"),
        text("player_count"),
    ]
}

fn value_text(value: &Value<'_>) -> String {
    match value.as_str() {
        Some(text) => printable(text),
        None if value.is_null() => String::new(),
        None => {
            let mut bytes = Vec::new();
            json::write(value, &mut bytes);
            printable(&String::from_utf8_lossy(&bytes))
        }
    }
}

/// Maximum length of a value in text output; `--json` prints all of it.
const SHOWN_CHARS_MAX: usize = 80;

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn show(args: ConfigArgs, id: String, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    let missing = Failure::runtime(format!("no round {} in this ledger", printable(&id)));
    let found = runtime.block_on(ledger.record_of(DOOR.to_owned(), id.clone()));
    let detail = found.map_err(|fault| unreadable(&fault))?.ok_or(missing)?;
    let published = runtime.block_on(ledger.publications_of(DOOR.to_owned(), id));
    let published = published.map_err(|fault| unreadable(&fault))?;
    let round = json_view::detail(&detail, &published, ledger.tag());
    if json {
        return print_object(&round);
    }
    let mut text = String::new();
    let members = ["fields", "sources", "publications", "history", "fingerprints"];
    for (name, value) in round.iter().filter(|(name, _)| !members.contains(name)) {
        text.push_str(&format!("{name:<14}{}\n", value_text(value)));
    }
    if let Some(Value::Object(kinds)) = round.get("fingerprints") {
        for (kind, values) in kinds {
            text.push_str(&format!("{:<14}{}\n", format!("by {kind}"), value_text(values)));
        }
    }
    print(&text)?;
    let of = |value: &Value<'_>, name: &str| value.get(name).map(value_text).unwrap_or_default();
    if let Some(Value::Object(fields)) = round.get("fields") {
        let rows = fields.iter().map(|(name, field)| {
            vec![name.to_owned(), cut(&of(field, "value")), of(field, "source"), of(field, "event")]
        });
        print(&format!("\n{}", table(&["field", "value", "source", "event"], rows)))?;
    }
    print(&format!("\n{}", events(&detail.events, ledger.tag())))?;
    if !published.is_empty() {
        print(&format!("\n{}", publications(&published)))?;
    }
    let steps = round.get("history").and_then(Value::as_array).unwrap_or_default();
    let columns = ["at", "event", "source", "transition", "link", "confidence", "reason"];
    let rows = steps.iter().map(|step| {
        let transition = format!("{} > {}", of(step, "from"), of(step, "to"));
        let [at, event, source] = ["at", "event", "source"].map(|name| of(step, name));
        let [link, confidence, why] =
            ["link_status", "confidence", "reason_code"].map(|name| of(step, name));
        vec![at, event, source, transition, link, confidence, why]
    });
    print(&format!("\n{}", table(&columns, rows)))
}

fn publications(published: &[Publication]) -> String {
    let columns = ["revision", "state", "changed", "attempt", "topic", "dedupe key", "reason"];
    let rows = published.iter().map(|publication| {
        vec![
            publication.revision.to_string(),
            publication.state.word().to_owned(),
            publication.changed_at.to_rfc3339_millis(),
            publication.state.attempt().to_string(),
            printable(&publication.topic),
            publication.dedupe_key.clone(),
            publication.reason.clone().unwrap_or_default(),
        ]
    });
    table(&columns, rows)
}

fn events(events: &[EventLine], ledger: u32) -> String {
    let columns =
        ["event", "received", "source", "map", "number", "state", "link", "reason", "key"];
    let rows = events.iter().map(|event| {
        let source = json_view::source(event, ledger);
        let of = |name: &str| source.get(name).map(value_text).unwrap_or_default();
        let why = match &event.drift {
            Some(drift) => format!("{}: {}", event.reason_code, cut(drift)),
            None => event.reason_code.clone(),
        };
        vec![
            of("event"),
            of("received_at"),
            event.source.clone(),
            of("map_name"),
            of("round_number"),
            event.state.clone(),
            event.link_status.clone(),
            why,
            of("hard_key"),
        ]
    });
    table(&columns, rows)
}

fn unlinked(
    args: ConfigArgs,
    after: Option<ReceiptId>,
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    if let Some(after) = after {
        check_tag(&*ledger, after)?;
    }
    let seq = after.map_or(Seq(0), |id| id.seq);
    let found = runtime.block_on(ledger.open_events(DOOR.to_owned(), seq, limit));
    let found = found.map_err(|fault| unreadable(&fault))?;
    let tag = ledger.tag();
    let next = found.last().filter(|_| found.len() >= limit);
    let next = next.map(|last| ReceiptId { ledger: tag, seq: last.seq }.to_string());
    if json {
        let listed: Value<'_> = found.iter().map(|event| json_view::source(event, tag)).collect();
        return print_object(&Object::from_iter([("unlinked", listed), ("next", next.into())]));
    }
    if found.is_empty() {
        return print("nothing found\n");
    }
    print(&events(&found, tag))?;
    match next {
        Some(next) => print(&format!("\nthere may be more: --after {next}\n")),
        None => Ok(()),
    }
}

fn accept(
    args: ConfigArgs,
    listen: Option<SocketAddr>,
    receipt: ReceiptId,
    reason: &str,
    json: bool,
) -> Result<(), Failure> {
    let body = Object::from_iter([("reason", Value::from(reason.to_owned()))]);
    let mut text = Vec::new();
    json::write_object(&body, &mut text);
    let path = format!("/v1/rounds/accept/{receipt}");
    let reply = args.gate(listen)?.post(&path, &String::from_utf8_lossy(&text))?;
    let reply_json = body_of(&reply, "not accepted")?;
    if json {
        return print_bytes(&[&reply.body[..], b"\n"].concat());
    }
    let round = reply_json.get("round_id").map(value_text).unwrap_or_default();
    let is_old = reply_json.get("accepted_before").and_then(Value::as_bool) == Some(true);
    let outcome = if is_old { "was already accepted" } else { "accepted" };
    print(&format!("{receipt} {outcome} for {round}\n"))
}

/// Parses the body of a reply; an error reply becomes a failure that starts with `prefix`.
fn body_of(reply: &GateReply, prefix: &str) -> Result<Value<'static>, Failure> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let reply_json = json::parse(&reply.body, &limits);
    let reply_json =
        reply_json.map_err(|_| Failure::runtime("the reply of the gate is not valid JSON"))?;
    if reply.status != 200 {
        let text =
            |pointer| reply_json.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let error = format!("{}: {}", text("/error/code"), text("/error/message"));
        return Err(Failure::runtime(format!("{prefix}: {}", printable(&error))));
    }
    Ok(reply_json.into_owned())
}

fn relink(
    args: ConfigArgs,
    listen: Option<SocketAddr>,
    is_dry: bool,
    json: bool,
) -> Result<(), Failure> {
    let path = format!("/v1/rounds/relink?dry_run={is_dry}");
    let reply = args.gate(listen)?.post(&path, "")?;
    let reply_json = body_of(&reply, "not relinked")?;
    if json {
        return print_bytes(&[&reply.body[..], b"\n"].concat());
    }
    let count = |name| reply_json.get(name).and_then(Value::as_u64).unwrap_or_default();
    let changed = if is_dry { "would change (dry run)" } else { "changed" };
    print(&format!("{} events scanned, {} {changed}\n", count("scanned"), count("updated")))
}
