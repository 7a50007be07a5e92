//! `admit edge invalid`: envelopes that an agent refused as invalid and kept, for a person to decide
//! on. It works on the files, also while the agent runs.

use std::path::Path;

use admit_core::{Clock as _, Door, Principal};
use admit_edge::{InvalidEnvelope, InvalidEnvelopes};
use admit_gate::SystemClock;
use clap::Subcommand;
use serde_json::{Value, json};

use super::edge::{At, names, outboxes};
use crate::edge;
use crate::output::{Failure, print, print_json, printable, table};

/// Most envelopes of one outbox that are listed.
const ROWS_MAX: usize = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List them, over all outboxes
    #[command(after_help = "\
Examples:
  admit edge invalid list
  admit edge invalid list --data /var/lib/admit-edge --json")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Print one, as it came
    #[command(after_help = "\
Examples:
  admit edge invalid show skyra/local/3")]
    Show {
        /// The envelope, as `list` prints it: DOOR/PRODUCER/NUMBER
        envelope: Name,
        #[command(flatten)]
        at: At,
    },
    /// Vet one again, and send it if it is valid now
    #[command(after_help = "\
Examples:
  admit edge invalid retry skyra/local/3

It is vetted by the rules of this program and config. If it is valid now it moves into the outbox, and
a running agent sends it within seconds; otherwise it stays where it is.")]
    Retry {
        /// The envelope, as `list` prints it: DOOR/PRODUCER/NUMBER
        envelope: Name,
        #[command(flatten)]
        at: At,
    },
    /// Delete one: it will never be sent
    #[command(after_help = "\
Examples:
  admit edge invalid delete skyra/local/3")]
    Delete {
        /// The envelope, as `list` prints it: DOOR/PRODUCER/NUMBER
        envelope: Name,
        #[command(flatten)]
        at: At,
    },
}

/// The name of an invalid envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    door: String,
    producer: String,
    number: i64,
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.rsplitn(3, '/');
        let number = parts.next().and_then(|number| number.parse().ok());
        let (producer, door) = (parts.next(), parts.next());
        match (door, producer, number) {
            (Some(door), Some(producer), Some(number)) => {
                Ok(Self { door: door.to_owned(), producer: producer.to_owned(), number })
            }
            _ => Err("an envelope is named DOOR/PRODUCER/NUMBER, such as skyra/local/3".to_owned()),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.door, self.producer, self.number)
    }
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { at } => {
            let (config, _) = at.load()?;
            list(&config.edge.data, json)
        }
        Command::Show { envelope, at } => {
            let (config, _) = at.load()?;
            let (_, kept) = open(&config.edge.data, &envelope)?;
            match json {
                true => print_json(&object(&envelope.door, &envelope.producer, &kept)),
                false => print(&format!("{}\n", printable(&text(&kept)))),
            }
        }
        Command::Retry { envelope, at } => {
            let (config, base) = at.load()?;
            let (mut file, kept) = open(&config.edge.data, &envelope)?;
            let Name { door, producer, number } = &envelope;
            let (id, payload) = edge::vet(&config, &base, door, producer, kept.payload)?;
            let moved = file.retry(*number, &id, &payload, SystemClock.now());
            if !moved.map_err(|error| unchanged(&envelope, &error))? {
                return Err(gone(&envelope));
            }
            print_result(
                json,
                &envelope,
                "retried",
                &format!("{envelope} waits to be sent as {id}"),
            )
        }
        Command::Delete { envelope, at } => {
            let (config, _) = at.load()?;
            let (file, _) = open(&config.edge.data, &envelope)?;
            let deleted = file.delete(envelope.number);
            if !deleted.map_err(|error| unchanged(&envelope, &error))? {
                return Err(gone(&envelope));
            }
            print_result(json, &envelope, "deleted", &format!("{envelope} is deleted"))
        }
    }
}

fn list(data: &Path, json: bool) -> Result<(), Failure> {
    let mut found = Vec::new();
    for file in outboxes(data)? {
        let (door, producer) = names(data, &file);
        let kept = InvalidEnvelopes::open(&file).and_then(|file| file.list(0, ROWS_MAX));
        let kept = kept.map_err(|error| unreadable(&file, &error))?;
        found.extend(kept.into_iter().map(|kept| (door.clone(), producer.clone(), kept)));
    }
    if json {
        let all: Vec<Value> =
            found.iter().map(|(door, producer, kept)| object(door, producer, kept)).collect();
        return print_json(&json!({ "invalid": all }));
    }
    if found.is_empty() {
        return print("nothing found\n");
    }
    let rows = found.iter().map(|(door, producer, kept)| {
        vec![
            format!("{door}/{producer}/{}", kept.number),
            kept.event_id.clone().unwrap_or_else(|| "-".to_owned()),
            kept.created_at.clone(),
            kept.last_seen_at.clone(),
            kept.seen_count.to_string(),
            kept.last_error.clone(),
        ]
    });
    print(&table(&["envelope", "event_id", "received", "last seen", "times", "error"], rows))
}

fn object(door: &str, producer: &str, kept: &InvalidEnvelope) -> Value {
    json!({
        "envelope": format!("{door}/{producer}/{}", kept.number),
        "event_id": kept.event_id,
        "created_at": kept.created_at,
        "last_seen_at": kept.last_seen_at,
        "seen_count": kept.seen_count,
        "last_error": kept.last_error,
        "payload": text(kept),
    })
}

fn text(kept: &InvalidEnvelope) -> String {
    String::from_utf8_lossy(&kept.payload).into_owned()
}

/// The outbox an envelope is kept in, and the envelope.
fn open(data: &Path, name: &Name) -> Result<(InvalidEnvelopes, InvalidEnvelope), Failure> {
    let file = edge::file_of(data, &Door::new(&name.door), &Principal::new(&name.producer));
    if !outboxes(data)?.contains(&file) {
        return Err(gone(name));
    }
    let opened = InvalidEnvelopes::open(&file).and_then(|opened| {
        let kept = opened.get(name.number)?;
        Ok((opened, kept))
    });
    let (opened, kept) = opened.map_err(|error| unreadable(&file, &error))?;
    kept.map(|kept| (opened, kept)).ok_or_else(|| gone(name))
}

fn print_result(json: bool, name: &Name, done: &str, text: &str) -> Result<(), Failure> {
    match json {
        true => print_json(&json!({ "envelope": name.to_string(), "done": done })),
        false => print(&format!("{text}\n")),
    }
}

fn gone(name: &Name) -> Failure {
    let name = name.to_string();
    Failure::runtime(format!(
        "there is no invalid envelope {}\n  `admit edge invalid list` prints those there are",
        printable(&name)
    ))
}

fn unchanged(name: &Name, error: &dyn std::fmt::Display) -> Failure {
    Failure::runtime(format!("{name} was not changed: {error}"))
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
            assert_eq!(text.parse::<Name>().unwrap().to_string(), text);
        }
        for text in ["", "3", "local/3", "skyra/local", "skyra/local/x"] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }
}
