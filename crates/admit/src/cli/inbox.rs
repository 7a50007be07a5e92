//! `admit inbox`: what edge devices sent, and how far consumers are with it.
//!
//! Listing reads beside the gate. Claiming and finishing go through the running gate: only it writes.

use std::net::SocketAddr;

use admit_core::Seq;
use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_ledger::port::{InboxFilter, InboxRow};
use clap::{Subcommand, ValueEnum};

use super::receipts::{open, print_object, unreadable};
use super::{Place, gate};
use crate::config::parse_listen;
use crate::output::{Failure, print, print_bytes, printable, table};

/// Most bytes of payloads on one page.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the inbox in order of arrival, also while the gate runs
    #[command(after_help = "\
Examples:
  admit inbox list --status received
  admit inbox list --status failed --json")]
    List {
        /// Only events that stand so
        #[arg(long, value_name = "STATUS")]
        status: Option<RowWord>,
        /// Only what came after this row; a page says where the next one starts
        #[arg(long, value_name = "ROW", default_value_t = 0,
              value_parser = clap::value_parser!(u64).range(..=Seq::MAX.0))]
        after: u64,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        place: Place,
    },
    /// Print one event of the inbox, also while the gate runs
    #[command(after_help = "\
Examples:
  admit inbox show evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG
  admit inbox show evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG --json")]
    Show {
        /// The id of the event
        event_id: String,
        #[command(flatten)]
        place: Place,
    },
    /// Claim events under a lease, so that nobody else works on them
    #[command(after_help = "\
Examples:
  admit inbox claim --consumer planner-1 --max 10
  ADMIT_KEY=... admit inbox claim --consumer planner-1 --lease-seconds 300 --json

A gate with principals wants a key with the role consume, from the variable ADMIT_KEY;
beside its data folder none is needed.")]
    Claim {
        /// Who works on them; for people
        #[arg(long, value_name = "NAME")]
        consumer: String,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 1,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        max: u16,
        /// For how long, in seconds; then somebody else may claim them
        #[arg(long, value_name = "SECONDS", default_value_t = 60,
              value_parser = clap::value_parser!(u16).range(1..=3600))]
        lease_seconds: u16,
        /// Where the gate listens [default: by its data folder, else as its config says]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        place: Place,
    },
    /// Say what became of a claimed event
    #[command(after_help = "\
Examples:
  admit inbox done evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG --lease 5f0e...
  admit inbox done evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG --lease 5f0e... --status failed")]
    Done {
        /// The id of the event
        event_id: String,
        /// The lease that the claim gave out
        #[arg(long)]
        lease: String,
        /// What became of it; released gives it back, extended holds it for longer
        #[arg(long, value_name = "STATUS", default_value = "done")]
        status: ChangeWord,
        /// Where the gate listens [default: by its data folder, else as its config says]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        place: Place,
    },
}

/// How a row stands.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum RowWord {
    Received,
    Claimed,
    Done,
    Failed,
}

impl RowWord {
    const fn word(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Claimed => "claimed",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// What a consumer can say.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ChangeWord {
    Done,
    Failed,
    Released,
    Extended,
}

impl ChangeWord {
    const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Extended => "extended",
        }
    }
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { status, after, limit, place } => {
            let filter = InboxFilter {
                status: status.map(|status| status.word().to_owned()),
                after,
                rows_max: usize::from(limit),
                bytes_max: PAGE_BYTES_MAX,
            };
            list(place, filter, json)
        }
        Command::Show { event_id, place } => show(place, event_id, json),
        Command::Claim { consumer, max, lease_seconds, listen, place } => {
            let gate = place.gate(listen)?;
            let body = serde_json::json!({
                "consumer": consumer, "max": max, "lease_seconds": lease_seconds,
            });
            let answer = gate.post("/v1/inbox/claim", &body.to_string())?;
            claimed(&answer, json)
        }
        Command::Done { event_id, lease, status, listen, place } => {
            let gate = place.gate(listen)?;
            let body = serde_json::json!({ "status": status.word(), "lease": lease });
            let path = format!("/v1/inbox/{}", in_path(&event_id));
            let answer = gate.post(&path, &body.to_string())?;
            finished(&answer, &event_id, json)
        }
    }
}

fn list(place: Place, filter: InboxFilter, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    let page = runtime.block_on(ledger.inbox(filter)).map_err(|fault| unreadable(&fault))?;
    if json {
        let events: Value<'_> = page.rows.iter().map(object).collect();
        return print_object(&Object::from_iter([
            ("events", events),
            ("next_after", page.next.into()),
            ("more", page.more.into()),
        ]));
    }
    if page.rows.is_empty() {
        return print("nothing found\n");
    }
    let columns = ["event_id", "status", "received", "last updated", "principal", "type", "device"];
    print(&table(&columns, page.rows.iter().map(row)))?;
    if page.more {
        print(&format!("\nthere is more: --after {}\n", page.next))?;
    }
    Ok(())
}

fn show(place: Place, event_id: String, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(place)?;
    let found = runtime.block_on(ledger.in_inbox(event_id.clone()));
    let Some(row) = found.map_err(|fault| unreadable(&fault))? else {
        let event_id = printable(&event_id);
        return Err(Failure::runtime(format!("there is no event {event_id} in the inbox")));
    };
    if json {
        return print_object(&object(&row));
    }
    let principal = row.principal.as_deref().unwrap_or("-");
    print(&format!(
        "event_id      {}\nstatus        {}\nreceived      {}\nlast updated  {}\nprincipal     {}\n\
         payload       {}\n",
        printable(&row.event_id),
        printable(&row.status),
        printable(&row.received_at),
        printable(&row.last_updated_at),
        printable(principal),
        printable(&row.payload),
    ))
}

fn object(row: &InboxRow) -> Object<'static> {
    Object::from_iter([
        ("event_id", Value::from(row.event_id.clone())),
        ("status", row.status.clone().into()),
        ("received_at", row.received_at.clone().into()),
        ("last_updated_at", row.last_updated_at.clone().into()),
        ("principal", Value::from(row.principal.as_deref()).into_owned()),
        ("payload", payload(row)),
    ])
}

fn payload(row: &InboxRow) -> Value<'static> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    json::parse(row.payload.as_bytes(), &limits).map_or(Value::Null, Value::into_owned)
}

fn row(row: &InboxRow) -> Vec<String> {
    let envelope = payload(row);
    let said = |name| envelope.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    vec![
        row.event_id.clone(),
        row.status.clone(),
        row.received_at.clone(),
        row.last_updated_at.clone(),
        row.principal.clone().unwrap_or_else(|| "-".to_owned()),
        said("type"),
        said("device_id"),
    ]
}

fn claimed(answer: &gate::Answer, json: bool) -> Result<(), Failure> {
    let told = told(answer)?;
    if json {
        return print_bytes(&[&answer.body[..], b"\n"].concat());
    }
    let events = told.get("events").and_then(Value::as_array).unwrap_or_default();
    if events.is_empty() {
        return print("there is nothing to claim\n");
    }
    let said = |event: &Value<'_>, name: &str| {
        event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let row = |event: &Value<'_>| {
        ["event_id", "lease", "lease_expires_at"].map(|name| said(event, name)).to_vec()
    };
    print(&table(&["event_id", "lease", "held until"], events.iter().map(row)))
}

fn finished(answer: &gate::Answer, event_id: &str, json: bool) -> Result<(), Failure> {
    let told = told(answer)?;
    if json {
        return print_bytes(&[&answer.body[..], b"\n"].concat());
    }
    let status = told.get("status").and_then(Value::as_str).unwrap_or_default();
    print(&format!("{} {}\n", printable(event_id), printable(status)))
}

/// What the gate answered, unless that is a refusal.
fn told(answer: &gate::Answer) -> Result<Value<'_>, Failure> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let told = json::parse(&answer.body, &limits)
        .map_err(|_| Failure::runtime("the gate's answer cannot be read"))?;
    if answer.status == 200 {
        return Ok(told);
    }
    let text = |pointer| told.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (code, message) = (text("/error/code"), text("/error/message"));
    Err(Failure::runtime(format!("nothing was changed: {code}: {}", printable(message))))
}

/// An id as one step of a path.
fn in_path(event_id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let step = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    match event_id {
        // The path of claiming itself.
        "claim" => "%63laim".to_owned(),
        other => other.bytes().map(step).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_one_step_of_a_path() {
        assert_eq!(in_path("evt_01JZ-a.b~c"), "evt_01JZ-a.b~c");
        assert_eq!(in_path("a/b?c d%ä"), "a%2Fb%3Fc%20d%25%C3%A4");
        assert_eq!(in_path("claim"), "%63laim");
    }
}
