//! `admit rounds`: what several sources told of rounds, and linking again what is not linked.

use std::net::SocketAddr;

use admit_contracts::rounds::DOOR;
use admit_core::json::{self, Limits, Object, Value};
use admit_core::entity::ProcessingState;
use admit_core::{ReceiptId, Seq};
use admit_gate::rounds as told;
use admit_ledger::port::{EventLine, RecordFilter, RecordLine};
use admit_ledger::publications::Publication;
use clap::Subcommand;
use clap::builder::PossibleValuesParser;

use super::Place;
use super::gate::Answer;
use super::receipts::{check_tag, open, print_object, unreadable};
use crate::config::parse_listen;
use crate::output::{Failure, print, print_bytes, printable, table};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List rounds, the newest first
    #[command(after_help = "\
Examples:
  admit rounds list
  admit rounds list --map supply --date 2026-02-11
  admit rounds list --state publish_failed --json")]
    List {
        /// Only rounds on this map
        #[arg(long, value_name = "NAME")]
        map: Option<String>,
        /// Only rounds of this day, by the servers' own clock
        #[arg(long, value_name = "YYYY-MM-DD")]
        date: Option<String>,
        /// Only rounds that stand so
        #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(STATES))]
        state: Option<String>,
        /// Only what comes after the page before: what it said is next
        #[arg(long, value_name = "NEXT", value_parser = parse_after)]
        after: Option<(i64, String)>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        place: Place,
    },
    /// Print one round: its fields with who told them, its sources, publications and history
    #[command(after_help = "\
Example:
  admit rounds show rnd-0123456789abcdef")]
    Show {
        /// The id of the round, such as rnd-0123456789abcdef
        id: String,
        #[command(flatten)]
        place: Place,
    },
    /// List what belongs to no round for sure, or whose rows are missing, oldest first
    #[command(after_help = "\
Examples:
  admit rounds unlinked
  admit rounds unlinked --after rcp-5e1f09ab-42 --json")]
    Unlinked {
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
    /// Have a later stats file of a round count, totals too
    #[command(after_help = "\
Example:
  admit rounds accept rcp-5e1f09ab-42 --reason \"the first file was cut off\"

Other content under the name of a stats file is kept and changes nothing. Accepting it puts what it
tells over what the file told before, whatever comes later; who did so and why is kept with the event
and shown by admit rounds show --json. Doing it again changes nothing. A gate with principals wants a key
with the role operate, from the variable ADMIT_KEY; beside its data folder none is needed.")]
    Accept {
        /// The receipt of the event, such as rcp-5e1f09ab-42
        receipt: ReceiptId,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Where the gate listens [default: by its data folder, else as its config says]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        place: Place,
    },
    /// Have the running gate look again at everything that is not linked
    #[command(after_help = "\
Examples:
  admit rounds relink --dry-run
  ADMIT_KEY=... admit rounds relink --listen 127.0.0.1:9000

A change of time_zone or match_window_minutes can link what was not; so can an index that is gone
again. Every new link is added to the history of its event. A gate with principals wants a key with
the role operate, from the variable ADMIT_KEY;
beside its data folder none is needed.")]
    Relink {
        /// Only say what would change
        #[arg(long)]
        dry_run: bool,
        /// Where the gate listens [default: by its data folder, else as its config says]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        place: Place,
    },
}

/// The states that a round can be in.
const STATES: [&str; 4] = [
    ProcessingState::Linked.word(),
    ProcessingState::Enriched.word(),
    ProcessingState::Published.word(),
    ProcessingState::PublishFailed.word(),
];

fn parse_after(text: &str) -> Result<(i64, String), String> {
    told::after(text).ok_or_else(|| "it must be what a page before said is next".to_owned())
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { map, date, state, after, limit, place } => {
            let filter = RecordFilter {
                door: DOOR.to_owned(),
                group: map.map(|map| map.trim().to_lowercase()),
                date,
                state,
                after,
                rows_max: usize::from(limit),
            };
            list(place, filter, json)
        }
        Command::Show { id, place } => show(place, id, json),
        Command::Unlinked { after, limit, place } => {
            unlinked(place, after, usize::from(limit), json)
        }
        Command::Accept { receipt, reason, listen, place } => {
            accept(place, listen, receipt, &reason, json)
        }
        Command::Relink { dry_run, listen, place } => relink(place, listen, dry_run, json),
    }
}

fn list(place: Place, filter: RecordFilter, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    let rows_max = filter.rows_max;
    let lines = runtime.block_on(ledger.records(filter)).map_err(|fault| unreadable(&fault))?;
    let next = lines.last().filter(|_| lines.len() >= rows_max).map(told::next);
    if json {
        let rounds: Value<'_> = lines.iter().map(told::line).collect();
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
    let short = told::line(line);
    let said = |name| short.get(name).map(shown).unwrap_or_default();
    vec![
        line.record_id.clone(),
        line.group.clone(),
        line.number.to_string(),
        line.date.clone().unwrap_or_default(),
        line.time.clone().unwrap_or_default(),
        line.state.clone(),
        line.revision.to_string(),
        said("winner_team"),
        said("end_reason"),
        said("player_count"),
    ]
}

fn shown(value: &Value<'_>) -> String {
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

/// Longer values are cut for people, who can have all of it with `--json`.
const SHOWN_CHARS_MAX: usize = 80;

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn show(place: Place, id: String, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    let missing = Failure::runtime(format!("there is no round {} in this ledger", printable(&id)));
    let found = runtime.block_on(ledger.record_of(DOOR.to_owned(), id.clone()));
    let detail = found.map_err(|fault| unreadable(&fault))?.ok_or(missing)?;
    let published = runtime.block_on(ledger.publications_of(DOOR.to_owned(), id));
    let published = published.map_err(|fault| unreadable(&fault))?;
    let round = told::detail(&detail, &published, ledger.tag());
    if json {
        return print_object(&round);
    }
    let mut text = String::new();
    let members = ["fields", "sources", "publications", "history", "fingerprints"];
    for (name, value) in round.iter().filter(|(name, _)| !members.contains(name)) {
        text.push_str(&format!("{name:<14}{}\n", shown(value)));
    }
    if let Some(Value::Object(kinds)) = round.get("fingerprints") {
        for (kind, values) in kinds {
            text.push_str(&format!("{:<14}{}\n", format!("by {kind}"), shown(values)));
        }
    }
    print(&text)?;
    let of = |value: &Value<'_>, name: &str| value.get(name).map(shown).unwrap_or_default();
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
    let columns = ["at", "event", "source", "step", "link", "confidence", "reason"];
    let rows = steps.iter().map(|step| {
        let moved = format!("{} > {}", of(step, "from"), of(step, "to"));
        let [at, event, source] = ["at", "event", "source"].map(|name| of(step, name));
        let [link, sure, why] =
            ["link_status", "confidence", "reason_code"].map(|name| of(step, name));
        vec![at, event, source, moved, link, sure, why]
    });
    print(&format!("\n{}", table(&columns, rows)))
}

fn publications(published: &[Publication]) -> String {
    let columns = ["revision", "published", "since", "attempt", "topic", "dedupe key", "reason"];
    let rows = published.iter().map(|one| {
        vec![
            one.revision.to_string(),
            one.state.word().to_owned(),
            one.changed_at.to_rfc3339_millis(),
            one.state.attempt().to_string(),
            printable(&one.topic),
            one.dedupe_key.clone(),
            one.reason.clone().unwrap_or_default(),
        ]
    });
    table(&columns, rows)
}

fn events(events: &[EventLine], ledger: u32) -> String {
    let columns =
        ["event", "received", "source", "map", "number", "state", "link", "reason", "key"];
    let rows = events.iter().map(|event| {
        let source = told::source(event, ledger);
        let of = |name: &str| source.get(name).map(shown).unwrap_or_default();
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
    place: Place,
    after: Option<ReceiptId>,
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
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
        let listed: Value<'_> = found.iter().map(|event| told::source(event, tag)).collect();
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
    place: Place,
    listen: Option<SocketAddr>,
    receipt: ReceiptId,
    reason: &str,
    json: bool,
) -> Result<(), Failure> {
    let body = Object::from_iter([("reason", Value::from(reason.to_owned()))]);
    let mut text = Vec::new();
    json::write_object(&body, &mut text);
    let path = format!("/v1/rounds/accept/{receipt}");
    let answer = place.gate(listen)?.post(&path, &String::from_utf8_lossy(&text))?;
    let said = body_of(&answer, "nothing was accepted")?;
    if json {
        return print_bytes(&[&answer.body[..], b"\n"].concat());
    }
    let round = said.get("round_id").map(shown).unwrap_or_default();
    let is_old = said.get("accepted_before").and_then(Value::as_bool) == Some(true);
    let now = if is_old { "counts already" } else { "counts now" };
    print(&format!("what {receipt} tells {now} in {round}\n"))
}

/// The body of an answer, unless it is an error; `kept` says what has not happened then.
fn body_of(answer: &Answer, kept: &str) -> Result<Value<'static>, Failure> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let said = json::parse(&answer.body, &limits);
    let said = said.map_err(|_| Failure::runtime("the gate's answer cannot be read"))?;
    if answer.status != 200 {
        let text = |pointer| said.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let error = format!("{}: {}", text("/error/code"), text("/error/message"));
        return Err(Failure::runtime(format!("{kept}: {}", printable(&error))));
    }
    Ok(said.into_owned())
}

fn relink(
    place: Place,
    listen: Option<SocketAddr>,
    is_dry: bool,
    json: bool,
) -> Result<(), Failure> {
    let path = format!("/v1/rounds/relink?dry_run={is_dry}");
    let answer = place.gate(listen)?.post(&path, "")?;
    let said = body_of(&answer, "nothing was linked")?;
    if json {
        return print_bytes(&[&answer.body[..], b"\n"].concat());
    }
    let count = |name| said.get(name).and_then(Value::as_u64).unwrap_or_default();
    let would = if is_dry { "would change, nothing was" } else { "changed" };
    print(&format!("{} events looked at, {} {would}\n", count("scanned"), count("updated")))
}
