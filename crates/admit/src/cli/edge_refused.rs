//! `admit edge refused`: lists and deletes rows that the gate refused permanently. Works on the files, also
//! while the agent runs.

use std::path::Path;

use admit_edge::{RefusedRow, RefusedRows};
use clap::Subcommand;
use serde_json::{Value, json};

use super::edge::{EdgeConfigArgs, door_and_producer, outboxes};
use crate::output::{Failure, print, print_json, printable, table};

/// Maximum number of listed rows per outbox.
const ROWS_MAX: usize = 1_000;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the events of all outboxes that the gate refused permanently
    #[command(after_help = "\
Examples:
  admit edge refused list
  admit edge refused list --data /var/lib/admit-edge --json

Prints at most 1000 events per outbox, the oldest first.")]
    List {
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
    /// Print the payload of a refused event
    #[command(after_help = "\
Examples:
  admit edge refused show skyra/local/evt_1")]
    Show {
        /// Event as printed by `list`: DOOR/PRODUCER/EVENT_ID
        event: String,
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
    /// Delete a refused event, which the gate then never receives
    #[command(after_help = "\
Examples:
  admit edge refused delete skyra/local/evt_1

Only events that `list` prints can be deleted: all others are still being delivered.")]
    Delete {
        /// Event as printed by `list`: DOOR/PRODUCER/EVENT_ID
        event: String,
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { args } => {
            let (config, _) = args.load()?;
            list(&config.edge.data, json)
        }
        Command::Show { event, args } => {
            let (config, _) = args.load()?;
            let (_, row) = open(&config.edge.data, &event)?;
            match json {
                true => print_json(&object(&event, &row)),
                false => print(&format!("{}\n", printable(&row.payload_json))),
            }
        }
        Command::Delete { event, args } => {
            let (config, _) = args.load()?;
            let (file, row) = open(&config.edge.data, &event)?;
            let shown = printable(&event);
            let deleted = file
                .delete(&row)
                .map_err(|error| Failure::runtime(format!("cannot delete {shown}: {error}")))?;
            if !deleted {
                return Err(Failure::runtime(format!(
                    "{shown} was sent again meanwhile; nothing was deleted\n  \
                     `admit edge refused list` prints it if it was refused again"
                )));
            }
            match json {
                true => print_json(&json!({ "event": event, "done": "deleted" })),
                false => print(&format!("{shown} deleted\n")),
            }
        }
    }
}

fn list(data: &Path, json: bool) -> Result<(), Failure> {
    let mut found = Vec::new();
    for file in outboxes(data)? {
        let (door, producer) = door_and_producer(data, &file);
        let rows = RefusedRows::open(&file).and_then(|file| file.list(ROWS_MAX));
        let rows = rows.map_err(|error| unreadable(&file, &error))?;
        let name = |row: &RefusedRow| format!("{door}/{producer}/{}", row.event_id);
        found.extend(rows.into_iter().map(|row| (name(&row), row)));
    }
    if json {
        let all: Vec<Value> = found.iter().map(|(name, row)| object(name, row)).collect();
        return print_json(&json!({ "refused": all }));
    }
    if found.is_empty() {
        return print("nothing found\n");
    }
    let rows = found.iter().map(|(name, row)| {
        vec![
            name.clone(),
            row.created_at.clone(),
            row.attempt_count.to_string(),
            row.next_attempt_at.clone(),
            row.last_error.clone(),
        ]
    });
    print(&table(&["event", "stored", "attempts", "next attempt", "last error"], rows))
}

fn object(name: &str, row: &RefusedRow) -> Value {
    json!({
        "event": name,
        "event_id": row.event_id,
        "created_at": row.created_at,
        "attempt_count": row.attempt_count,
        "next_attempt_at": row.next_attempt_at,
        "last_error": row.last_error,
        "payload": row.payload_json,
    })
}

/// Opens the outbox of an event and reads its row. Ids may contain slashes, so the outboxes that exist decide
/// which part is the id.
fn open(data: &Path, event: &str) -> Result<(RefusedRows, RefusedRow), Failure> {
    for file in outboxes(data)? {
        let (door, producer) = door_and_producer(data, &file);
        let Some(event_id) = event.strip_prefix(&format!("{door}/{producer}/")) else { continue };
        let opened = RefusedRows::open(&file).and_then(|opened| {
            let row = opened.get(event_id)?;
            Ok(row.map(|row| (opened, row)))
        });
        if let Some(found) = opened.map_err(|error| unreadable(&file, &error))? {
            return Ok(found);
        }
    }
    Err(Failure::runtime(format!(
        "no refused event {}\n  `admit edge refused list` lists them as DOOR/PRODUCER/EVENT_ID",
        printable(event)
    )))
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::runtime(format!("cannot read {}: {error}", file.display()))
}
