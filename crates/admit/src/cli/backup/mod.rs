//! `admit backup` and `admit restore`: a consistent copy of a data folder, also while a gate runs.
//!
//! The order makes the parts consistent: the lengths of the bus logs, then the snapshot of the ledger, then
//! the lengths again. Every message of the snapshot was on the bus before it, so the second lengths include
//! it; later messages without an admission in the snapshot are truncated. Artifacts are copied after the
//! ledger, except documents that are not in the snapshot.

mod artifacts;
mod bus;
mod files;
mod manifest;
mod restore;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use admit_core::Clock as _;
use admit_gate::SystemClock;
use admit_ledger::sqlite::Snapshot;
use clap::Args;
use serde_json::json;

use super::{ConfigArgs, VerifyResult, collect_disagreements};
use crate::config::{ArtifactsLocation, Config, Scheme};
use crate::ledger::open_reader;
use crate::output::{Failure, counted, print, print_json, print_stderr};
use files::{private_folder, sync_folder};
use manifest::{BackupManifest, LedgerSummary};

pub(super) use restore::{RestoreArgs, run as restore};

/// Interval between lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Folders of the parts in a backup, as in a data folder.
const BUS: &str = "bus";
const ARTIFACTS: &str = "artifacts";

/// Arguments of `admit backup`.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// Target: an empty folder, or one that does not exist
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Skip verification of the copy
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    args: ConfigArgs,
}

pub(super) fn run(command: BackupArgs, as_json: bool) -> Result<(), Failure> {
    let BackupArgs { to, no_verify, args } = command;
    let (config, base) = args.load(None)?;
    config.ledger.check(&base).map_err(Failure::usage)?;
    let parts = BackupParts::new(&config)?;
    files::check_target(&to, &parts.sources(&config))?;
    private_folder(&to)?;
    let mut progress = BackupProgress::new();
    let copied = copy(&config, &base, &parts, &to, &mut progress)?;
    copied.write(&to)?;
    sync_folder(&to)?;
    if !no_verify {
        verify_copy(&config, &base, &copied, &to)?;
    }
    let is_verified = !no_verify && copied.ledger.is_some();
    if as_json {
        return print_json(&json!({ "to": to, "verified": is_verified, "backup": copied }));
    }
    print(&copied.to_text(&to, is_verified))
}

/// Parts of a config that are on this machine.
struct BackupParts {
    ledger: bool,
    bus: Option<PathBuf>,
    artifacts: Option<PathBuf>,
}

impl BackupParts {
    fn new(config: &Config) -> Result<Self, Failure> {
        let is_file_bus = config.bus.scheme().map_err(Failure::usage)? == Scheme::File;
        let root = || config.bus_root().map_err(Failure::usage);
        let bus = is_file_bus.then(root).transpose()?;
        let artifacts = match config.artifacts_location().map_err(Failure::usage)? {
            ArtifactsLocation::Folder(root) => Some(root),
            #[cfg(feature = "s3")]
            ArtifactsLocation::Bucket(_) => None,
        };
        let parts = Self { ledger: !config.ledger.url.is_postgres(), bus, artifacts };
        if !parts.ledger && parts.bus.is_none() && parts.artifacts.is_none() {
            return Err(Failure::usage(
                "nothing to copy: the ledger is on PostgreSQL, and neither the bus nor the \
                 artifacts are on this machine\n  back up the ledger with pg_dump, or with base \
                 backups and archived WAL, and bus and bucket with their own tools",
            ));
        }
        Ok(parts)
    }

    /// Folders that are copied.
    fn sources(&self, config: &Config) -> Vec<PathBuf> {
        let data = self.ledger.then(|| config.data.clone());
        data.into_iter().chain(self.bus.clone()).chain(self.artifacts.clone()).collect()
    }
}

/// Copies every part; nothing in the copy is newer than its ledger.
fn copy(
    config: &Config,
    base: &Path,
    parts: &BackupParts,
    to: &Path,
    progress: &mut BackupProgress,
) -> Result<BackupManifest, Failure> {
    let before = parts.bus.as_deref().map(bus::lengths).transpose()?;
    let at = SystemClock.now();
    let snapshot = parts.ledger.then(|| Snapshot::take(&config.data)).transpose();
    let snapshot = snapshot.map_err(Failure::runtime)?;
    let after = parts.bus.as_deref().map(bus::lengths).transpose()?;
    let ledger = match snapshot {
        None => None,
        Some(snapshot) => {
            let (tag, last_seq) = (snapshot.tag(), snapshot.last_seq());
            let report =
                &mut |done: u64, of: u64| progress.report(&format!("ledger: {done} of {of} pages"));
            let bytes = snapshot.copy_into(to, report).map_err(Failure::runtime)?;
            Some(LedgerSummary { tag: format!("{tag:08x}"), last_seq: last_seq.0, bytes })
        }
    };
    // The copied ledger decides which messages and documents belong into the copy.
    let copied_ledger = match &ledger {
        None => None,
        Some(_) => Some(open_reader(&backup_config(config, to), base)?),
    };
    let mut manifest = BackupManifest::new(at, ledger);
    if let (Some(root), Some(before), Some(after)) = (&parts.bus, before, after) {
        let copied = bus::copy(root, &to.join(BUS), &after, progress)?;
        manifest.bus = Some(copied);
        if let Some((ledger, runtime)) = &copied_ledger {
            bus::cut_unknown(
                &to.join(BUS),
                &before,
                &config.stream.control_topic,
                &**ledger,
                runtime,
            )?;
        }
    }
    if let Some(root) = &parts.artifacts {
        let copied_ledger = copied_ledger.as_ref().map(|(ledger, runtime)| (&**ledger, runtime));
        manifest.artifacts =
            Some(artifacts::copy(root, &to.join(ARTIFACTS), copied_ledger, progress)?);
    }
    if parts.ledger {
        files::copy_small(&config.data, to)?;
    }
    Ok(manifest)
}

/// Config of the gate, with the folder of a backup as data folder.
fn backup_config(config: &Config, dir: &Path) -> Config {
    let mut config = config.clone();
    dir.clone_into(&mut config.data);
    config.ledger.url = "sqlite:".into();
    if config.bus.scheme().is_ok_and(|scheme| scheme == Scheme::File) {
        "file:".clone_into(&mut config.bus.url);
    }
    if !config.artifacts.url.starts_with("s3:") {
        "file:".clone_into(&mut config.artifacts.url);
    }
    config
}

/// Runs `admit verify` on a backup, and fails if there is a disagreement.
fn verify_copy(
    config: &Config,
    base: &Path,
    manifest: &BackupManifest,
    dir: &Path,
) -> Result<(), Failure> {
    if manifest.ledger.is_none() {
        return Ok(());
    }
    let VerifyResult { disagreements, .. } =
        collect_disagreements(&backup_config(config, dir), base)?;
    if disagreements.is_empty() {
        return Ok(());
    }
    for disagreement in &disagreements {
        print_stderr(disagreement);
    }
    Err(Failure::runtime(format!(
        "{} found in {}\n  the copy was not removed; run admit verify on the original, and if \
         everything agrees there, repeat the backup",
        counted(disagreements.len() as u64, "disagreement"),
        dir.display()
    )))
}

/// Rate-limited progress lines.
struct BackupProgress {
    last: Instant,
}

impl BackupProgress {
    fn new() -> Self {
        Self { last: Instant::now() }
    }

    fn report(&mut self, line: &str) {
        if self.last.elapsed() >= PROGRESS_EVERY {
            self.last = Instant::now();
            print_stderr(line);
        }
    }
}
