//! `admit inbox`: lists, claims and completes inbox events.
//!
//! Listing reads the ledger directly. Claiming and completing go through the running gate, the only writer.

use std::net::SocketAddr;

use admit_core::Seq;
use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_ledger::port::{InboxFilter, InboxRow};
use clap::{Subcommand, ValueEnum};

use super::receipts::{open, print_object, unreadable};
use super::{ConfigArgs, gate_client};
use crate::config::parse_listen;
use crate::output::{Failure, print, print_bytes, printable, table};

/// Maximum size of all payloads on a page.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List inbox events, oldest first, also while the gate runs
    #[command(after_help = "\
Examples:
  admit inbox list --status received
  admit inbox list --status failed --json")]
    List {
        /// Only events with this status
        #[arg(long, value_name = "STATUS")]
        status: Option<InboxStatusArg>,
        /// Pagination cursor: only rows after this one (the `next_after` value of the previous page)
        #[arg(long, value_name = "ROW", default_value_t = 0,
              value_parser = clap::value_parser!(u64).range(..=Seq::MAX.0))]
        after: u64,
        /// Maximum number of rows
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Print an inbox event, also while the gate runs
    #[command(after_help = "\
Examples:
  admit inbox show evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG
  admit inbox show evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG --json")]
    Show {
        /// Id of the event
        event_id: String,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Claim events under an exclusive lease
    #[command(after_help = "\
Examples:
  admit inbox claim --consumer planner-1 --max 10
  ADMIT_KEY=... admit inbox claim --consumer planner-1 --lease-seconds 300 --json

A gate with principals requires a key with the role consume in ADMIT_KEY, except over the socket in
its data folder.")]
    Claim {
        /// Name of the consumer, for display
        #[arg(long, value_name = "NAME")]
        consumer: String,
        /// Maximum number of events
        #[arg(long, value_name = "N", default_value_t = 1,
              value_parser = clap::value_parser!(u16).range(1..=1000))]
        max: u16,
        /// Duration of the lease; after it other consumers may claim the events
        #[arg(long, value_name = "SECONDS", default_value_t = 60,
              value_parser = clap::value_parser!(u16).range(1..=3600))]
        lease_seconds: u16,
        /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Complete, fail, release or extend a claimed event
    #[command(after_help = "\
Examples:
  admit inbox done evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG --lease 5f0e...
  admit inbox done evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG --lease 5f0e... --status failed")]
    Done {
        /// Id of the event
        event_id: String,
        /// Lease id returned by the claim
        #[arg(long)]
        lease: String,
        /// New status; released returns the event to the inbox, extended renews the lease
        #[arg(long, value_name = "STATUS", default_value = "done")]
        status: InboxChangeArg,
        /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        args: ConfigArgs,
    },
}

/// Status of an inbox row.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum InboxStatusArg {
    Received,
    Claimed,
    Done,
    Failed,
}

impl InboxStatusArg {
    const fn word(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Claimed => "claimed",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// Status change by a consumer.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum InboxChangeArg {
    Done,
    Failed,
    Released,
    Extended,
}

impl InboxChangeArg {
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
        Command::List { status, after, limit, args } => {
            let filter = InboxFilter {
                status: status.map(|status| status.word().to_owned()),
                after,
                rows_max: usize::from(limit),
                bytes_max: PAGE_BYTES_MAX,
            };
            list(args, filter, json)
        }
        Command::Show { event_id, args } => show(args, event_id, json),
        Command::Claim { consumer, max, lease_seconds, listen, args } => {
            let gate = args.gate(listen)?;
            let body = serde_json::json!({
                "consumer": consumer, "max": max, "lease_seconds": lease_seconds,
            });
            let reply = gate.post("/v1/inbox/claim", &body.to_string())?;
            print_claim(&reply, json)
        }
        Command::Done { event_id, lease, status, listen, args } => {
            let gate = args.gate(listen)?;
            let body = serde_json::json!({ "status": status.word(), "lease": lease });
            let path = format!("/v1/inbox/{}", path_segment(&event_id));
            let reply = gate.post(&path, &body.to_string())?;
            print_change(&reply, &event_id, json)
        }
    }
}

fn list(args: ConfigArgs, filter: InboxFilter, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
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
    let columns = ["event id", "status", "received", "last updated", "principal", "type", "device"];
    print(&table(&columns, page.rows.iter().map(row)))?;
    if page.more {
        print(&format!("\nthere is more: --after {}\n", page.next))?;
    }
    Ok(())
}

fn show(args: ConfigArgs, event_id: String, json: bool) -> Result<(), Failure> {
    let (ledger, runtime) = open(args)?;
    let found = runtime.block_on(ledger.in_inbox(event_id.clone()));
    let Some(row) = found.map_err(|fault| unreadable(&fault))? else {
        let event_id = printable(&event_id);
        return Err(Failure::runtime(format!("no event {event_id} in the inbox")));
    };
    if json {
        return print_object(&object(&row));
    }
    let principal = row.principal.as_deref().unwrap_or("-");
    print(&format!(
        "event id      {}\nstatus        {}\nreceived      {}\nlast updated  {}\nprincipal     {}\n\
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
    let text_of = |name| envelope.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    vec![
        row.event_id.clone(),
        row.status.clone(),
        row.received_at.clone(),
        row.last_updated_at.clone(),
        row.principal.clone().unwrap_or_else(|| "-".to_owned()),
        text_of("type"),
        text_of("device_id"),
    ]
}

fn print_claim(reply: &gate_client::GateReply, json: bool) -> Result<(), Failure> {
    let reply_json = reply_json(reply)?;
    if json {
        return print_bytes(&[&reply.body[..], b"\n"].concat());
    }
    let events = reply_json.get("events").and_then(Value::as_array).unwrap_or_default();
    if events.is_empty() {
        return print("no events to claim\n");
    }
    let text_of = |event: &Value<'_>, name: &str| {
        event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let row = |event: &Value<'_>| {
        ["event_id", "lease", "lease_expires_at"].map(|name| text_of(event, name)).to_vec()
    };
    print(&table(&["event id", "lease", "lease until"], events.iter().map(row)))
}

fn print_change(reply: &gate_client::GateReply, event_id: &str, json: bool) -> Result<(), Failure> {
    let reply_json = reply_json(reply)?;
    if json {
        return print_bytes(&[&reply.body[..], b"\n"].concat());
    }
    let status = reply_json.get("status").and_then(Value::as_str).unwrap_or_default();
    print(&format!("{} {}\n", printable(event_id), printable(status)))
}

/// Parses the reply of the gate; a refusal becomes a failure.
fn reply_json(reply: &gate_client::GateReply) -> Result<Value<'_>, Failure> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let reply_json = json::parse(&reply.body, &limits)
        .map_err(|_| Failure::runtime("the reply of the gate is not valid JSON"))?;
    if reply.status == 200 {
        return Ok(reply_json);
    }
    let text = |pointer| reply_json.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (code, message) = (text("/error/code"), text("/error/message"));
    Err(Failure::runtime(format!("nothing was changed: {code}: {}", printable(message))))
}

/// Percent-encodes an id as one segment of a path.
fn path_segment(event_id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let step = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    match event_id {
        // Escaped, because `claim` is the path of the claim request.
        "claim" => "%63laim".to_owned(),
        other => other.bytes().map(step).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_one_segment_of_a_path() {
        assert_eq!(path_segment("evt_01JZ-a.b~c"), "evt_01JZ-a.b~c");
        assert_eq!(path_segment("a/b?c d%ä"), "a%2Fb%3Fc%20d%25%C3%A4");
        assert_eq!(path_segment("claim"), "%63laim");
    }
}
