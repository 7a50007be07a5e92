//! `admit import rounds`: artifacts from a folder into the running gate, once or as they come.
//!
//! A file is sent when it has settled, that is when it has not changed for a while: half a file
//! would be taken for what its source has to say. Files that were taken before are answered
//! `replay`, so running it again is safe, also after a kill.

mod dry;
mod files;
mod report;
mod send;
mod settle;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::runtime::Runtime;

use super::Place;
use super::gate::Asking;
use crate::config::parse_listen;
use crate::output::{Failure, aside};
use files::{Artifact, Found};
use report::{Progress, Tally};
use send::{Fate, Sending, send_all};
use settle::Settling;

/// Between two looks at a folder.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Import stats files, gametime JSON and proximity files
    #[command(after_help = "\
Examples:
  admit import rounds ./stats
  admit import rounds ./stats --dry-run
  admit import rounds ./stats --watch --settle-ms 5000
  ADMIT_KEY=... admit import rounds ./stats --listen 127.0.0.1:9000 --json

Run it as often as you like: a file that was taken before is answered replay and changes nothing,
also after a run that was killed. Which source a file is from is told by its name:
  *_engagements.txt         proximity_file
  *.txt                     filename_trigger (but not *-endstats.txt)
  gametime*.json            gametime_fallback
  stats_ready*.json         stats_ready, the message as it came
Other files, and hidden ones, are skipped. Links that lead out of the folder are not followed.")]
    Rounds(Rounds),
}

/// `admit import rounds`
#[derive(Debug, Args)]
pub(super) struct Rounds {
    /// A folder, looked through with those below it, or a single file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Go on with files as they come, until Ctrl-C
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    /// Only say what would be sent and how it reads
    #[arg(long)]
    dry_run: bool,
    /// Let stats files that are known by their name change what is known of their round
    #[arg(long)]
    update_metadata: bool,
    /// How long a file must not have changed before it is sent, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    settle_ms: u32,
    /// Where the gate listens [default: by its data folder, else as its config says]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(command: Command, as_json: bool) -> Result<(), Failure> {
    let Command::Rounds(rounds) = command;
    let Rounds { path, watch, dry_run, update_metadata, settle_ms, listen, place } = rounds;
    let is_folder_named = place.data.is_some();
    let (config, base) = place.load(listen)?;
    if dry_run {
        return dry::run((&config, &base), look(&path)?, update_metadata, as_json);
    }
    if config.tls.is_on() && listen.is_some() {
        let message = "this command speaks plain HTTP, but the config has TLS\n  run it where the \
                       gate's data folder is, without --listen; or give it the address of a listener \
                       without TLS, on this machine, with its own config";
        return Err(Failure::usage(message));
    }
    let asking = Asking::of(&config, listen, is_folder_named)?;
    let sending = Sending { asking, path: config.doors.rounds.path.clone(), update_metadata };
    let settling = Settling::new(Duration::from_millis(settle_ms.into()));
    let import = Import { path, sending, settling, tally: Tally::new(), as_json };
    if watch { import.watch() } else { import.once() }
}

fn look(path: &Path) -> Result<Found, Failure> {
    files::find(path).map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let hint = if is_missing { "\n  name a folder of artifacts, or one of them" } else { "" };
        Failure::runtime(format!("cannot look at {}: {error}{hint}", path.display()))
    })
}

/// Whether there is a point in going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    GoOn,
    End,
}

/// An import under way.
struct Import {
    path: PathBuf,
    sending: Sending,
    settling: Settling,
    tally: Tally,
    as_json: bool,
}

impl Import {
    /// Sends what is there, waiting for files that are still being written.
    fn once(mut self) -> Result<(), Failure> {
        let Found { artifacts, skipped, outside } = look(&self.path)?;
        self.tally.skip(skipped, outside);
        let mut left = artifacts;
        let mut bar = Progress::of(left.len(), self.as_json);
        loop {
            let (settled, unsettled) = self.settling.split(left);
            if self.send(&settled, &mut bar) == After::End || unsettled.is_empty() {
                break;
            }
            std::thread::sleep(LOOK_EVERY.min(self.settling.wait()));
            left = unsettled.into_iter().filter_map(files::again).collect();
        }
        bar.end();
        self.end()
    }

    /// Sends what is there and what comes, until somebody ends it.
    fn watch(mut self) -> Result<(), Failure> {
        let runtime = runtime()?;
        if !self.as_json {
            aside(&format!("watching {}, Ctrl-C ends it", self.path.display()));
        }
        loop {
            let Found { artifacts, skipped, outside } = look(&self.path)?;
            self.tally.skip(skipped, outside);
            let unsent = artifacts.into_iter().filter(|artifact| self.settling.is_new(artifact));
            let (settled, _) = self.settling.split(unsent.collect());
            let mut bar = Progress::of(settled.len(), self.as_json);
            let after = self.send(&settled, &mut bar);
            bar.end();
            if after == After::End || is_ended(&runtime, LOOK_EVERY)? {
                return self.end();
            }
        }
    }

    /// Says what became of the files, and how everything stands after the last of them.
    fn end(mut self) -> Result<(), Failure> {
        self.tally.stands(self.sending.standing());
        self.tally.end(self.as_json, false)
    }

    fn send(&mut self, artifacts: &[Artifact], bar: &mut Progress) -> After {
        let Self { sending, settling, tally, .. } = self;
        let mut after = After::GoOn;
        send_all(sending, artifacts, |artifact, fate| {
            bar.step();
            match fate {
                Fate::Taken(_) | Fate::Refused(_) => settling.is_done_with(artifact),
                Fate::Hopeless(_) => after = After::End,
                // While watching, it is tried again; the last word on it is what counts.
                Fate::Failed(_) | Fate::Untried => {}
            }
            tally.add(&artifact.path, fate);
        });
        after
    }
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start: {error}")))
}

/// Waits a while; whether somebody ended the watch meanwhile.
fn is_ended(runtime: &Runtime, pause: Duration) -> Result<bool, Failure> {
    runtime.block_on(async {
        tokio::select! {
            ended = tokio::signal::ctrl_c() => ended.map(|()| true).map_err(Failure::runtime),
            () = tokio::time::sleep(pause) => Ok(false),
        }
    })
}
