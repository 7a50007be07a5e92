//! `backup.json`: the content of a backup. It is written last, so a folder without it is incomplete.

use std::fs;
use std::path::Path;

use admit_core::Millis;
use serde::{Deserialize, Serialize};

use super::files::{unreadable, unwritable};
use crate::output::Failure;

/// File name of the manifest.
pub(super) const FILE: &str = "backup.json";

/// Format version of the manifest.
const FORMAT: u32 = 1;

/// Content of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BackupManifest {
    format: u32,
    /// Version of the program that wrote the backup.
    version: String,
    /// Time of the backup; it contains everything that was acknowledged before.
    at: String,
    /// `None` for a ledger on PostgreSQL.
    pub(super) ledger: Option<LedgerSummary>,
    /// `None` for a bus on the network.
    pub(super) bus: Option<CopyCounts>,
    /// `None` for artifacts in a bucket.
    pub(super) artifacts: Option<CopyCounts>,
}

/// Ledger in a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LedgerSummary {
    pub(super) tag: String,
    pub(super) last_seq: u64,
    pub(super) bytes: u64,
}

/// Number of copied files and bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CopyCounts {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl BackupManifest {
    pub(super) fn new(at: Millis, ledger: Option<LedgerSummary>) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: at.to_rfc3339_millis(),
            ledger,
            bus: None,
            artifacts: None,
        }
    }

    /// Writes the manifest into a backup.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Failure> {
        let path = dir.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(Failure::runtime)?;
        fs::write(&path, text + "\n").map_err(|error| unwritable(&path, &error))
    }

    /// Reads the manifest of a backup.
    pub(super) fn read(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(FILE);
        let text = fs::read_to_string(&path).map_err(|error| {
            let why = "backup.json is written when a backup is complete";
            Failure::runtime(format!("{} is not a complete backup: {error}; {why}", dir.display()))
        })?;
        let manifest: Self = serde_json::from_str(&text)
            .map_err(|error| unreadable(&path, &std::io::Error::other(error)))?;
        if manifest.format != FORMAT {
            return Err(Failure::runtime(format!(
                "{} has format version {}, this build supports {FORMAT}\n  nothing was changed; use the \
                 version of admit that wrote it",
                path.display(),
                manifest.format
            )));
        }
        Ok(manifest)
    }

    /// Renders the manifest as text.
    pub(super) fn to_text(&self, dir: &Path, is_verified: bool) -> String {
        let mut text = format!("backup of {} in {}\n", self.at, dir.display());
        match &self.ledger {
            Some(LedgerSummary { tag, last_seq, bytes }) => {
                text += &format!("ledger {tag} up to seq {last_seq}, {bytes} bytes\n");
            }
            None => {
                text += "ledger: on PostgreSQL, not included; run pg_dump before this command, or use base \
                         backups and archived WAL\n";
            }
        }
        let parts = [("bus", &self.bus), ("artifacts", &self.artifacts)];
        for (name, part) in parts {
            text += &match part {
                Some(CopyCounts { files, bytes }) => {
                    format!("{name}: {files} files, {bytes} bytes\n")
                }
                None => format!("{name}: not on this machine, not included\n"),
            };
        }
        text + if is_verified { "verified: everything agrees\n" } else { "not verified\n" }
    }
}
