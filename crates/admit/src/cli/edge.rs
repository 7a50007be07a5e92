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

use super::{Place, edge_invalid};
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
pub(super) struct At {
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
ever; `sqlite3 FILE 'SELECT * FROM event_outbox'` shows all of it. `refused` counts those that the gate
refused for good, `invalid` the envelopes that `admit edge invalid list` shows.")]
    Status {
        #[command(flatten)]
        at: At,
    },
    /// Envelopes that were refused as invalid and kept: list, retry or delete them
    Invalid {
        #[command(subcommand)]
        command: edge_invalid::Command,
    },
}

impl At {
    pub(super) fn load(self) -> Result<(Config, PathBuf), Failure> {
        let (mut config, base) = Place { config: self.config, data: None }.load(None)?;
        if let Some(data) = self.data {
            config.edge.data = data;
        }
        Ok((config, base))
    }
}

pub(super) fn run(command: Edge, json: bool) -> Result<(), Failure> {
    let Edge { command, at, listen, gate } = command;
    match command {
        Some(Command::Status { at }) => {
            let (config, _) = at.load()?;
            return status(&config.edge.data, json);
        }
        Some(Command::Invalid { command }) => return edge_invalid::run(command, json),
        None => {}
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

/// An outbox, or the reason why it cannot be read.
struct OutboxReport {
    door: String,
    producer: String,
    file: PathBuf,
    status: Result<Status, String>,
}

fn status(data: &Path, json: bool) -> Result<(), Failure> {
    let now = SystemClock.now();
    let all: Vec<OutboxReport> = outboxes(data)?
        .into_iter()
        .map(|file| {
            let (door, producer) = names(data, &file);
            let status = Status::read(&file, now).map_err(|error| error.to_string());
            OutboxReport { door, producer, file, status }
        })
        .collect();
    if json {
        print_json(&json!({ "outboxes": all.iter().map(object).collect::<Vec<_>>() }))?;
    } else if all.is_empty() {
        print(&format!("no outbox in {} yet\n", data.display()))?;
    } else {
        let header = [
            "door",
            "producer",
            "waiting",
            "oldest",
            "failed before",
            "attempts",
            "refused",
            "invalid",
            "bytes",
            "last error",
        ];
        print(&table(&header, all.iter().map(line)))?;
    }
    let damaged = all.iter().find_map(|one| one.status.as_ref().err().map(|error| (one, error)));
    match damaged {
        None => Ok(()),
        Some((one, error)) => Err(Failure::runtime(format!(
            "cannot read {}: {error}\n  nothing was changed; its door is closed until the file is \
             mended, or moved away",
            one.file.display()
        ))),
    }
}

fn object(one: &OutboxReport) -> serde_json::Value {
    let OutboxReport { door, producer, file, status } = one;
    match status {
        Ok(status) => {
            json!({ "door": door, "producer": producer, "file": file, "status": status })
        }
        Err(error) => json!({ "door": door, "producer": producer, "file": file, "error": error }),
    }
}

fn line(one: &OutboxReport) -> Vec<String> {
    let mut line = vec![one.door.clone(), one.producer.clone()];
    match &one.status {
        Ok(status) => line.extend([
            status.depth.to_string(),
            status.oldest_age_seconds.map_or_else(|| "-".to_owned(), age),
            status.retrying.to_string(),
            status.attempts_max.to_string(),
            status.refused.to_string(),
            status.invalid.to_string(),
            status.bytes.to_string(),
            status.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        ]),
        Err(error) => {
            line.extend(["-"; 7].map(str::to_owned));
            line.push(format!("cannot be read: {error}"));
        }
    }
    line
}

/// The files of the outboxes in an agent's folder, which must be there.
pub(super) fn outboxes(data: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    find(data, DEPTH_MAX, &mut files).map_err(|error| {
        let data = data.display();
        if error.kind() == io::ErrorKind::NotFound {
            return Failure::runtime(format!(
                "there is no folder {data}\n  name the agent's folder with --data, or edge.data in \
                 its config"
            ));
        }
        Failure::runtime(format!("cannot read {data}: {error}"))
    })?;
    files.sort();
    Ok(files)
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
pub(super) fn names(data: &Path, file: &Path) -> (String, String) {
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
