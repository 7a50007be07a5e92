//! `admit edge`: run the agent on the producer's side, or look at its outboxes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use admit_core::Clock as _;
use admit_edge::Status;
use admit_gate::SystemClock;
use clap::{Args, Subcommand};
use serde_json::json;

use super::Place;
use crate::config::{Config, parse_listen};
use crate::edge::{self, FILE};
use crate::output::{Failure, print, print_json, table};

/// The deepest that an outbox is below the agent's folder: `events/NAME/PRODUCER`.
const DEPTH_MAX: usize = 3;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Edge {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    at: At,
    /// Where to listen, a loopback IP:PORT; port 0 takes any free one [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// The gate to send to [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    gate: Option<String>,
}

/// Which agent's folder and config a command is about.
#[derive(Debug, Args)]
struct At {
    /// The config file [env: ADMIT_CONFIG] [default: none, what `admit config show` prints]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The agent's folder [default: ./admit-edge]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what waits in the outboxes, also while the agent runs
    #[command(after_help = "\
Examples:
  admit edge status
  admit edge status --data /var/lib/admit-edge --json

It reads the files only. An event that the gate refuses stays, with its error, and is sent again for
ever; `sqlite3 FILE 'SELECT * FROM event_outbox'` shows all of it.")]
    Status {
        #[command(flatten)]
        at: At,
    },
}

impl At {
    fn load(self) -> Result<(Config, PathBuf), Failure> {
        let (mut config, base) = Place { config: self.config, data: None }.load(None)?;
        if let Some(data) = self.data {
            config.edge.data = data;
        }
        Ok((config, base))
    }
}

pub(super) fn run(command: Edge, json: bool) -> Result<(), Failure> {
    let Edge { command, at, listen, gate } = command;
    if let Some(Command::Status { at }) = command {
        let (config, _) = at.load()?;
        return status(&config.edge.data, json);
    }
    let (mut config, base) = at.load()?;
    if let Some(listen) = listen {
        config.edge.listen = listen;
    }
    if let Some(gate) = gate {
        config.edge.gate = gate;
    }
    edge::run(&config, &base, json)
}

fn status(data: &Path, json: bool) -> Result<(), Failure> {
    let mut files = Vec::new();
    match find(data, DEPTH_MAX, &mut files) {
        // No agent has been here yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => found.map_err(|error| {
            Failure::runtime(format!("cannot read {}: {error}", data.display()))
        })?,
    }
    files.sort();
    let now = SystemClock.now();
    let mut all = Vec::new();
    for file in files {
        let status = Status::read(&file, now).map_err(|error| {
            Failure::runtime(format!("cannot read {}: {error}", file.display()))
        })?;
        let (door, producer) = names(data, &file);
        all.push((door, producer, file, status));
    }
    if json {
        let all: Vec<_> = all
            .iter()
            .map(|(door, producer, file, status)| {
                json!({ "door": door, "producer": producer, "file": file, "status": status })
            })
            .collect();
        return print_json(&json!({ "outboxes": all }));
    }
    if all.is_empty() {
        return print(&format!("no outbox in {} yet\n", data.display()));
    }
    let header = [
        "door",
        "producer",
        "waiting",
        "oldest",
        "failed before",
        "attempts",
        "bytes",
        "last error",
    ];
    let rows = all.iter().map(|(door, producer, _, status)| {
        let oldest = status.oldest_age_seconds.map_or_else(|| "-".to_owned(), age);
        vec![
            door.clone(),
            producer.clone(),
            status.depth.to_string(),
            oldest,
            status.retrying.to_string(),
            status.attempts_max.to_string(),
            status.bytes.to_string(),
            status.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    print(&table(&header, rows))
}

/// The outboxes below `folder`.
fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let file = folder.join(FILE);
    if file.is_file() {
        files.push(file);
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), depth - 1, files)?;
        }
    }
    Ok(())
}

/// The door and the producer that an outbox belongs to, by its folder.
fn names(data: &Path, file: &Path) -> (String, String) {
    let folder = file.parent().and_then(|folder| folder.strip_prefix(data).ok());
    let text = folder.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    let (door, producer) = text.rsplit_once('/').unwrap_or(("", &text));
    let producer = producer.strip_prefix("%2E").map(|rest| format!(".{rest}"));
    (door.to_owned(), producer.unwrap_or_else(|| text.rsplit('/').next().unwrap_or("").to_owned()))
}

/// Seconds as people say them.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_named_by_its_folder() {
        let names =
            |folder: &str| names(Path::new("edge"), &Path::new("edge").join(folder).join(FILE));
        let pair = |door: &str, producer: &str| (door.to_owned(), producer.to_owned());
        assert_eq!(names("skyra/pi-1"), pair("skyra", "pi-1"));
        assert_eq!(names("events/orders/a"), pair("events/orders", "a"));
        assert_eq!(names("skyra/%2E."), pair("skyra", ".."));
    }

    #[test]
    fn ages_are_short() {
        let ages: Vec<String> = [5, 65, 3_700, 90_000].map(age).to_vec();
        assert_eq!(ages, ["5s", "1m5s", "1h1m", "1d1h"]);
    }
}
