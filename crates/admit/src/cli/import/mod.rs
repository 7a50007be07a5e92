//! `admit import rounds`: imports files from a folder through the running gate, once or continuously.
//!
//! A file is sent when it has settled, i.e. has not changed for a while, because an incomplete file would be
//! admitted as a complete one. The gate replies `replay` to a known file, so an import can be repeated, also
//! after a kill.

mod dry_run;
mod files;
mod sender;
mod settle_tracker;
mod summary;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ConfigArgs;
use super::gate_client::GateClient;
use crate::config::parse_listen;
use crate::output::{Failure, print_stderr};
use files::{FolderScan, RoundFile};
use sender::{FileOutcome, FileSender, send_all};
use settle_tracker::SettleTracker;
use summary::{ImportProgress, ImportSummary};

/// Interval between scans of the folder.
const SCAN_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Import stats files, gametime JSON and proximity files
    #[command(after_help = "\
Examples:
  admit import rounds ./stats
  admit import rounds ./stats --dry-run
  admit import rounds ./stats --watch --settle-ms 5000
  ADMIT_KEY=... admit import rounds ./stats --listen 127.0.0.1:9000 --json

The import can be repeated, also after a kill: the gate replies replay to a known file and changes
nothing. The source of a file is determined by its name:
  *_engagements.txt         proximity_file
  *.txt                     filename_trigger (but not *-endstats.txt)
  gametime*.json            gametime_fallback
  stats_ready*.json         stats_ready, sent unchanged
Other files and hidden files are skipped. Links to targets outside the folder are not followed.")]
    Rounds(RoundsArgs),
}

/// Arguments of `admit import rounds`.
#[derive(Debug, Args)]
pub(super) struct RoundsArgs {
    /// Folder, scanned recursively, or a single file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Keep watching for new files until Ctrl-C
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    /// Print what would be sent, without sending
    #[arg(long)]
    dry_run: bool,
    /// Let stats files with a known name update the metadata of their round
    #[arg(long)]
    update_metadata: bool,
    /// Milliseconds without a change after which a file is sent
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    settle_ms: u32,
    /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    args: ConfigArgs,
}

pub(super) fn run(command: Command, as_json: bool) -> Result<(), Failure> {
    let Command::Rounds(rounds) = command;
    let RoundsArgs { path, watch, dry_run, update_metadata, settle_ms, listen, args } = rounds;
    let is_folder_named = args.data.is_some();
    let (config, base) = args.load(listen)?;
    if dry_run {
        return dry_run::run((&config, &base), scan(&path)?, update_metadata, as_json);
    }
    if config.tls.is_on() && listen.is_some() {
        let message = "this command uses plain HTTP, but the config enables TLS\n  run it on the machine \
                       of the gate without --listen, which uses the socket in the data folder; or use \
                       a config without TLS for a plain listener on this machine";
        return Err(Failure::usage(message));
    }
    let client = GateClient::new(&config, listen, is_folder_named)?;
    let sender = FileSender { client, path: config.doors.rounds.path.clone(), update_metadata };
    let settle_tracker = SettleTracker::new(Duration::from_millis(settle_ms.into()));
    let import = Import { path, sender, settle_tracker, summary: ImportSummary::new(), as_json };
    if watch { import.watch() } else { import.once() }
}

fn scan(path: &Path) -> Result<FolderScan, Failure> {
    files::scan(path).map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let hint = if is_missing { "\n  give a folder of stats files, or one of them" } else { "" };
        Failure::runtime(format!("cannot read {}: {error}{hint}", path.display()))
    })
}

/// Whether the import continues after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImportFlow {
    Continue,
    Stop,
}

/// An import in progress.
struct Import {
    path: PathBuf,
    sender: FileSender,
    settle_tracker: SettleTracker,
    summary: ImportSummary,
    as_json: bool,
}

impl Import {
    /// Sends all files, and waits for files that are still being written.
    fn once(mut self) -> Result<(), Failure> {
        let FolderScan { files, skipped, outside } = scan(&self.path)?;
        self.summary.skip(skipped, outside);
        let mut left = files;
        let mut bar = ImportProgress::new(left.len(), self.as_json);
        loop {
            let (settled, unsettled) = self.settle_tracker.split(left);
            if self.send(&settled, &mut bar) == ImportFlow::Stop || unsettled.is_empty() {
                break;
            }
            std::thread::sleep(SCAN_EVERY.min(self.settle_tracker.wait()));
            left = unsettled.into_iter().filter_map(files::refresh).collect();
        }
        bar.finish();
        self.finish()
    }

    /// Sends all files and new ones until Ctrl-C.
    fn watch(mut self) -> Result<(), Failure> {
        let runtime = runtime()?;
        // From here on a Ctrl-C is kept until it is waited for, also while files are sent.
        let mut interrupts = interrupts(&runtime)?;
        if !self.as_json {
            print_stderr(&format!("watching {}; stop with Ctrl-C", self.path.display()));
        }
        loop {
            let FolderScan { files, skipped, outside } = scan(&self.path)?;
            self.summary.skip(skipped, outside);
            let unsent = files.into_iter().filter(|file| self.settle_tracker.is_new(file));
            let (settled, _) = self.settle_tracker.split(unsent.collect());
            let mut bar = ImportProgress::new(settled.len(), self.as_json);
            let next_step = self.send(&settled, &mut bar);
            bar.finish();
            if next_step == ImportFlow::Stop
                || wait_for_interrupt(&runtime, &mut interrupts, SCAN_EVERY)
            {
                return self.finish();
            }
        }
    }

    /// Prints the summary, with the link counts of the gate after the last file.
    fn finish(mut self) -> Result<(), Failure> {
        self.summary.set_link_counts(self.sender.link_counts());
        self.summary.finish(self.as_json, false)
    }

    fn send(&mut self, files: &[RoundFile], bar: &mut ImportProgress) -> ImportFlow {
        let Self { sender, settle_tracker, summary, .. } = self;
        let mut next_step = ImportFlow::Continue;
        send_all(sender, files, |file, outcome| {
            bar.step();
            match outcome {
                FileOutcome::Accepted(_) | FileOutcome::Refused(_) => {
                    settle_tracker.mark_done(file)
                }
                FileOutcome::Fatal(_) => next_step = ImportFlow::Stop,
                // Retried while watching; the last outcome counts.
                FileOutcome::Failed(_) | FileOutcome::NotSent => {}
            }
            summary.add(&file.path, outcome);
        });
        next_step
    }
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start the runtime: {error}")))
}

/// Ctrl-C from now on.
fn interrupts(runtime: &Runtime) -> Result<Signal, Failure> {
    let _inside = runtime.enter();
    signal(SignalKind::interrupt()).map_err(Failure::runtime)
}

/// Waits for `pause`. Returns whether Ctrl-C was pressed before its end.
fn wait_for_interrupt(runtime: &Runtime, interrupts: &mut Signal, pause: Duration) -> bool {
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = interrupts.recv() => true,
            () = tokio::time::sleep(pause) => false,
        }
    })
}
