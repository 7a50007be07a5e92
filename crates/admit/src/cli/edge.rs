//! `admit edge`: runs the agent on the producer's machine, or prints the status of its outboxes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use admit_core::Clock as _;
use admit_edge::OutboxStatus;
use admit_gate::SystemClock;
use clap::{Args, Subcommand};
use serde_json::json;

use super::{ConfigArgs, edge_invalid, edge_refused};
use crate::config::{Config, parse_listen};
use crate::edge::{self, FILE};
use crate::output::{Failure, print, print_json, table};

/// Maximum depth of an outbox below the agent's folder: `events/NAME/PRODUCER`.
const DEPTH_MAX: usize = 3;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct EdgeArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    args: EdgeConfigArgs,
    /// Listen address, a loopback IP:PORT; port 0 picks a free port [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// URL of the gate [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    gate: Option<String>,
}

/// Config file and agent's folder of a command.
#[derive(Debug, Args)]
pub(super) struct EdgeConfigArgs {
    /// Config file [env: ADMIT_CONFIG] [default: none; `admit config show` prints the defaults]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Agent's folder [default: ./admit-edge]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the status of the outboxes, also while the agent runs
    #[command(after_help = "\
Examples:
  admit edge status
  admit edge status --data /var/lib/admit-edge --json

It only reads the files. A refused event stays in the outbox with its error and is retried forever;
`sqlite3 FILE 'SELECT * FROM event_outbox'` prints all events. `refused` counts the events that
`admit edge refused list` lists, `invalid` the envelopes that `admit edge invalid list` lists.")]
    Status {
        #[command(flatten)]
        args: EdgeConfigArgs,
    },
    /// List, retry or delete envelopes that were refused as invalid
    Invalid {
        #[command(subcommand)]
        command: edge_invalid::Command,
    },
    /// List or delete events that the gate refused permanently
    Refused {
        #[command(subcommand)]
        command: edge_refused::Command,
    },
}

impl EdgeConfigArgs {
    pub(super) fn load(self) -> Result<(Config, PathBuf), Failure> {
        let (mut config, base) = ConfigArgs { config: self.config, data: None }.load(None)?;
        if let Some(data) = self.data {
            config.edge.data = data;
        }
        Ok((config, base))
    }
}

pub(super) fn run(command: EdgeArgs, json: bool) -> Result<(), Failure> {
    let EdgeArgs { command, args, listen, gate } = command;
    match command {
        Some(Command::Status { args }) => {
            let (config, _) = args.load()?;
            return status(&config.edge.data, json);
        }
        Some(Command::Invalid { command }) => return edge_invalid::run(command, json),
        Some(Command::Refused { command }) => return edge_refused::run(command, json),
        None => {}
    }
    let (mut config, base) = args.load()?;
    if let Some(listen) = listen {
        config.edge.listen = listen;
    }
    if let Some(gate) = gate {
        config.edge.gate = gate;
    }
    edge::run(&config, &base, json)
}

/// Status of an outbox, or the error of reading it.
struct OutboxReport {
    door: String,
    producer: String,
    file: PathBuf,
    status: Result<OutboxStatus, String>,
}

fn status(data: &Path, json: bool) -> Result<(), Failure> {
    let now = SystemClock.now();
    let all: Vec<OutboxReport> = outboxes(data)?
        .into_iter()
        .map(|file| {
            let (door, producer) = door_and_producer(data, &file);
            let status = OutboxStatus::read(&file, now).map_err(|error| error.to_string());
            OutboxReport { door, producer, file, status }
        })
        .collect();
    if json {
        print_json(&json!({ "outboxes": all.iter().map(object).collect::<Vec<_>>() }))?;
    } else if all.is_empty() {
        print(&format!("no outbox in {}\n", data.display()))?;
    } else {
        let header = [
            "door",
            "producer",
            "waiting",
            "oldest",
            "retrying",
            "attempts",
            "refused",
            "invalid",
            "bytes",
            "last error",
        ];
        print(&table(&header, all.iter().map(line)))?;
    }
    let damaged =
        all.iter().find_map(|report| report.status.as_ref().err().map(|error| (report, error)));
    match damaged {
        None => Ok(()),
        Some((report, error)) => Err(Failure::runtime(format!(
            "cannot read {}: {error}\n  nothing was changed; its door stays closed until the file \
             is repaired or moved away",
            report.file.display()
        ))),
    }
}

fn object(report: &OutboxReport) -> serde_json::Value {
    let OutboxReport { door, producer, file, status } = report;
    match status {
        Ok(status) => {
            json!({ "door": door, "producer": producer, "file": file, "status": status })
        }
        Err(error) => json!({ "door": door, "producer": producer, "file": file, "error": error }),
    }
}

fn line(report: &OutboxReport) -> Vec<String> {
    let mut line = vec![report.door.clone(), report.producer.clone()];
    match &report.status {
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

/// Paths of the outboxes in an agent's folder. Fails if the folder does not exist.
pub(super) fn outboxes(data: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    find_outboxes(data, DEPTH_MAX, &mut files).map_err(|error| {
        let data = data.display();
        if error.kind() == io::ErrorKind::NotFound {
            return Failure::runtime(format!(
                "no folder {data}\n  give the agent's folder with --data, or as edge.data in \
                 its config"
            ));
        }
        Failure::runtime(format!("cannot read {data}: {error}"))
    })?;
    files.sort();
    Ok(files)
}

/// Adds the outboxes in `folder` and below to `files`.
fn find_outboxes(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
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
            find_outboxes(&entry.path(), depth - 1, files)?;
        }
    }
    Ok(())
}

/// Door and producer of an outbox, from its path.
pub(super) fn door_and_producer(data: &Path, file: &Path) -> (String, String) {
    let folder = file.parent().and_then(|folder| folder.strip_prefix(data).ok());
    let text = folder.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    let (door, producer) = text.rsplit_once('/').unwrap_or(("", &text));
    let producer = producer.strip_prefix("%2E").map(|rest| format!(".{rest}"));
    (door.to_owned(), producer.unwrap_or_else(|| text.rsplit('/').next().unwrap_or("").to_owned()))
}

/// Duration in its two largest units, such as `1h5m`.
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
        let door_and_producer = |folder: &str| {
            door_and_producer(Path::new("edge"), &Path::new("edge").join(folder).join(FILE))
        };
        let pair = |door: &str, producer: &str| (door.to_owned(), producer.to_owned());
        assert_eq!(door_and_producer("skyra/pi-1"), pair("skyra", "pi-1"));
        assert_eq!(door_and_producer("events/orders/a"), pair("events/orders", "a"));
        assert_eq!(door_and_producer("skyra/%2E."), pair("skyra", ".."));
    }

    #[test]
    fn ages_are_short() {
        let ages: Vec<String> = [5, 65, 3_700, 90_000].map(age).to_vec();
        assert_eq!(ages, ["5s", "1m5s", "1h1m", "1d1h"]);
    }
}
