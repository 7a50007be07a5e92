//! `admit edge invalid`: lists, retries and deletes envelopes that an agent refused as invalid and stored.
//! Works on the files, also while the agent runs.

use std::path::Path;

use admit_core::{Clock as _, Door, Principal};
use admit_edge::{InvalidEnvelope, InvalidEnvelopes};
use admit_gate::SystemClock;
use clap::Subcommand;
use serde_json::{Value, json};

use super::edge::{EdgeConfigArgs, door_and_producer, outboxes};
use crate::edge;
use crate::output::{Failure, print, print_json, printable, table};

/// Maximum number of listed envelopes per outbox.
const ROWS_MAX: usize = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List invalid envelopes of all outboxes
    #[command(after_help = "\
Examples:
  admit edge invalid list
  admit edge invalid list --data /var/lib/admit-edge --json")]
    List {
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
    /// Print an invalid envelope as it was received
    #[command(after_help = "\
Examples:
  admit edge invalid show skyra/local/3")]
    Show {
        /// Envelope as printed by `list`: DOOR/PRODUCER/NUMBER
        envelope: EnvelopeName,
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
    /// Validate an envelope again, and send it if it is valid now
    #[command(after_help = "\
Examples:
  admit edge invalid retry skyra/local/3

It is validated with this program and config. If it is valid it moves into the outbox, and a
running agent sends it within seconds; otherwise nothing changes.")]
    Retry {
        /// Envelope as printed by `list`: DOOR/PRODUCER/NUMBER
        envelope: EnvelopeName,
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
    /// Delete an envelope without sending it
    #[command(after_help = "\
Examples:
  admit edge invalid delete skyra/local/3")]
    Delete {
        /// Envelope as printed by `list`: DOOR/PRODUCER/NUMBER
        envelope: EnvelopeName,
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
}

/// Name of an invalid envelope: DOOR/PRODUCER/NUMBER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EnvelopeName {
    door: String,
    producer: String,
    number: i64,
}

impl std::str::FromStr for EnvelopeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.rsplitn(3, '/');
        let number = parts.next().and_then(|number| number.parse().ok());
        let (producer, door) = (parts.next(), parts.next());
        match (door, producer, number) {
            (Some(door), Some(producer), Some(number)) => {
                Ok(Self { door: door.to_owned(), producer: producer.to_owned(), number })
            }
            _ => Err("expected DOOR/PRODUCER/NUMBER, such as skyra/local/3".to_owned()),
        }
    }
}

impl std::fmt::Display for EnvelopeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.door, self.producer, self.number)
    }
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { args } => {
            let (config, _) = args.load()?;
            list(&config.edge.data, json)
        }
        Command::Show { envelope, args } => {
            let (config, _) = args.load()?;
            let (_, stored) = open(&config.edge.data, &envelope)?;
            match json {
                true => print_json(&object(&envelope.door, &envelope.producer, &stored)),
                false => print(&format!("{}\n", printable(&text(&stored)))),
            }
        }
        Command::Retry { envelope, args } => {
            let (config, base) = args.load()?;
            let (mut file, stored) = open(&config.edge.data, &envelope)?;
            let EnvelopeName { door, producer, number } = &envelope;
            let (id, payload) = edge::vet(&config, &base, door, producer, stored.payload)?;
            let moved = file.retry(*number, &id, &payload, SystemClock.now());
            if !moved.map_err(|error| not_changed(&envelope, &error))? {
                return Err(not_found(&envelope));
            }
            print_result(json, &envelope, "retried", &format!("{envelope} will be sent as {id}"))
        }
        Command::Delete { envelope, args } => {
            let (config, _) = args.load()?;
            let (file, _) = open(&config.edge.data, &envelope)?;
            let deleted = file.delete(envelope.number);
            if !deleted.map_err(|error| not_changed(&envelope, &error))? {
                return Err(not_found(&envelope));
            }
            print_result(json, &envelope, "deleted", &format!("{envelope} deleted"))
        }
    }
}

fn list(data: &Path, json: bool) -> Result<(), Failure> {
    let mut found = Vec::new();
    for file in outboxes(data)? {
        let (door, producer) = door_and_producer(data, &file);
        let stored = InvalidEnvelopes::open(&file).and_then(|file| file.list(0, ROWS_MAX));
        let stored = stored.map_err(|error| unreadable(&file, &error))?;
        found.extend(stored.into_iter().map(|stored| (door.clone(), producer.clone(), stored)));
    }
    if json {
        let all: Vec<Value> =
            found.iter().map(|(door, producer, stored)| object(door, producer, stored)).collect();
        return print_json(&json!({ "invalid": all }));
    }
    if found.is_empty() {
        return print("nothing found\n");
    }
    let rows = found.iter().map(|(door, producer, stored)| {
        vec![
            format!("{door}/{producer}/{}", stored.number),
            stored.event_id.clone().unwrap_or_else(|| "-".to_owned()),
            stored.created_at.clone(),
            stored.last_seen_at.clone(),
            stored.seen_count.to_string(),
            stored.last_error.clone(),
        ]
    });
    print(&table(
        &["envelope", "event id", "received", "last seen", "deliveries", "last error"],
        rows,
    ))
}

fn object(door: &str, producer: &str, stored: &InvalidEnvelope) -> Value {
    json!({
        "envelope": format!("{door}/{producer}/{}", stored.number),
        "event_id": stored.event_id,
        "created_at": stored.created_at,
        "last_seen_at": stored.last_seen_at,
        "seen_count": stored.seen_count,
        "last_error": stored.last_error,
        "payload": text(stored),
    })
}

fn text(stored: &InvalidEnvelope) -> String {
    String::from_utf8_lossy(&stored.payload).into_owned()
}

/// Opens the outbox of an envelope and reads the envelope.
fn open(data: &Path, name: &EnvelopeName) -> Result<(InvalidEnvelopes, InvalidEnvelope), Failure> {
    let file = edge::file_of(data, &Door::new(&name.door), &Principal::new(&name.producer));
    if !outboxes(data)?.contains(&file) {
        return Err(not_found(name));
    }
    let opened = InvalidEnvelopes::open(&file).and_then(|opened| {
        let stored = opened.get(name.number)?;
        Ok((opened, stored))
    });
    let (opened, stored) = opened.map_err(|error| unreadable(&file, &error))?;
    stored.map(|stored| (opened, stored)).ok_or_else(|| not_found(name))
}

fn print_result(json: bool, name: &EnvelopeName, done: &str, text: &str) -> Result<(), Failure> {
    match json {
        true => print_json(&json!({ "envelope": name.to_string(), "done": done })),
        false => print(&format!("{text}\n")),
    }
}

fn not_found(name: &EnvelopeName) -> Failure {
    let name = name.to_string();
    Failure::runtime(format!(
        "no invalid envelope {}\n  `admit edge invalid list` lists them",
        printable(&name)
    ))
}

fn not_changed(name: &EnvelopeName, error: &dyn std::fmt::Display) -> Failure {
    Failure::runtime(format!("cannot change {name}: {error}"))
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::runtime(format!("cannot read {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_named_by_its_outbox_and_number() {
        for text in ["skyra/local/3", "events/orders/arena-1/17"] {
            assert_eq!(text.parse::<EnvelopeName>().unwrap().to_string(), text);
        }
        for text in ["", "3", "local/3", "skyra/local", "skyra/local/x"] {
            assert!(text.parse::<EnvelopeName>().is_err(), "{text}");
        }
    }
}
