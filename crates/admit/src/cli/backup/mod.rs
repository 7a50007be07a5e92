//! `admit backup` and `admit restore`: a consistent copy of a data folder, made beside a running gate.
//!
//! Order decides whether the parts agree: first the lengths of the bus, then the moment of the ledger,
//! then the lengths again. What the ledger holds at that moment was on the bus before it, so it lies
//! within the second lengths; what came in between and is of no admission in the copy is cut off.
//! Artifacts are copied after the ledger, except documents that the copied ledger does not know.

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

use super::{Examined, Place, examine};
use crate::config::{ArtifactsPlace, Config, Scheme};
use crate::ledger::open_reader;
use crate::output::{Failure, aside, counted, print, print_json};
use files::{private_folder, synced};
use manifest::{Ledger, Manifest};

pub(super) use restore::{Restore, run as restore};

/// Between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Where the parts of a backup lie in it: as in a data folder.
const BUS: &str = "bus";
const ARTIFACTS: &str = "artifacts";

/// What is backed up, and where to.
#[derive(Debug, Args)]
pub(super) struct Backup {
    /// An empty folder, or one that is not there yet
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Do not verify the copy
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(command: Backup, as_json: bool) -> Result<(), Failure> {
    let Backup { to, no_verify, place } = command;
    let (config, base) = place.load(None)?;
    config.ledger.check(&base).map_err(Failure::usage)?;
    let parts = Parts::of(&config)?;
    files::check_target(&to, &parts.sources(&config))?;
    private_folder(&to)?;
    let mut progress = Progress::new();
    let copied = copy(&config, &base, &parts, &to, &mut progress)?;
    copied.write(&to)?;
    synced(&to)?;
    if !no_verify {
        verify_copy(&config, &base, &copied, &to)?;
    }
    let is_verified = !no_verify && copied.ledger.is_some();
    if as_json {
        return print_json(&json!({ "to": to, "verified": is_verified, "backup": copied }));
    }
    print(&copied.for_people(&to, is_verified))
}

/// What of a config lies on this machine.
struct Parts {
    ledger: bool,
    bus: Option<PathBuf>,
    artifacts: Option<PathBuf>,
}

impl Parts {
    fn of(config: &Config) -> Result<Self, Failure> {
        let is_file_bus = config.bus.scheme().map_err(Failure::usage)? == Scheme::File;
        let root = || config.bus_root().map_err(Failure::usage);
        let bus = is_file_bus.then(root).transpose()?;
        let artifacts = match config.artifacts_place().map_err(Failure::usage)? {
            ArtifactsPlace::Folder(root) => Some(root),
            #[cfg(feature = "s3")]
            ArtifactsPlace::Bucket(_) => None,
        };
        let parts = Self { ledger: !config.ledger.url.is_postgres(), bus, artifacts };
        if !parts.ledger && parts.bus.is_none() && parts.artifacts.is_none() {
            return Err(Failure::usage(
                "the ledger is on PostgreSQL and neither the bus nor the artifacts are on this \
                 machine, so there is nothing to copy here\n  back the ledger up with pg_dump, or \
                 with base backups and archived WAL; the bus and the bucket by their own means",
            ));
        }
        Ok(parts)
    }

    /// The folders that are read.
    fn sources(&self, config: &Config) -> Vec<PathBuf> {
        let data = self.ledger.then(|| config.data.clone());
        data.into_iter().chain(self.bus.clone()).chain(self.artifacts.clone()).collect()
    }
}

/// Copies every part; nothing in the result is newer than the ledger.
fn copy(
    config: &Config,
    base: &Path,
    parts: &Parts,
    to: &Path,
    progress: &mut Progress,
) -> Result<Manifest, Failure> {
    let before = parts.bus.as_deref().map(bus::lengths).transpose()?;
    let at = SystemClock.now();
    let snapshot = parts.ledger.then(|| Snapshot::take(&config.data)).transpose();
    let snapshot = snapshot.map_err(Failure::runtime)?;
    let after = parts.bus.as_deref().map(bus::lengths).transpose()?;
    let ledger = match snapshot {
        None => None,
        Some(snapshot) => {
            let (tag, last_seq) = (snapshot.tag(), snapshot.last_seq());
            let told =
                &mut |done: u64, of: u64| progress.tell(&format!("ledger: {done} of {of} pages"));
            let bytes = snapshot.copy_into(to, told).map_err(Failure::runtime)?;
            Some(Ledger { tag: format!("{tag:08x}"), last_seq: last_seq.0, bytes })
        }
    };
    // What the copy knows decides what belongs into it.
    let known = match &ledger {
        None => None,
        Some(_) => Some(open_reader(&of_backup(config, to), base)?),
    };
    let mut manifest = Manifest::new(at, ledger);
    if let (Some(root), Some(before), Some(after)) = (&parts.bus, before, after) {
        let copied = bus::copy(root, &to.join(BUS), &after, progress)?;
        manifest.bus = Some(copied);
        if let Some((ledger, runtime)) = &known {
            bus::cut(&to.join(BUS), &before, &config.stream.control_topic, &**ledger, runtime)?;
        }
    }
    if let Some(root) = &parts.artifacts {
        let known = known.as_ref().map(|(ledger, runtime)| (&**ledger, runtime));
        manifest.artifacts = Some(artifacts::copy(root, &to.join(ARTIFACTS), known, progress)?);
    }
    if parts.ledger {
        files::copy_small(&config.data, to)?;
    }
    Ok(manifest)
}

/// The config of the gate, on the folder of a backup.
fn of_backup(config: &Config, dir: &Path) -> Config {
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

/// Runs `admit verify` on a backup, and fails with what disagrees.
fn verify_copy(
    config: &Config,
    base: &Path,
    manifest: &Manifest,
    dir: &Path,
) -> Result<(), Failure> {
    if manifest.ledger.is_none() {
        return Ok(());
    }
    let Examined { found, .. } = examine(&of_backup(config, dir), base)?;
    if found.is_empty() {
        return Ok(());
    }
    for one in &found {
        aside(one);
    }
    Err(Failure::runtime(format!(
        "{} found in {}\n  the copy was kept; run admit verify on the original: where \
         that agrees, make the backup again",
        counted(found.len() as u64, "disagreement"),
        dir.display()
    )))
}

/// Lines about long work, not too many of them.
struct Progress {
    last: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { last: Instant::now() }
    }

    fn tell(&mut self, line: &str) {
        if self.last.elapsed() >= TELL_EVERY {
            self.last = Instant::now();
            aside(line);
        }
    }
}
