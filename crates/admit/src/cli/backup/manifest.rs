//! `backup.json`: what a backup holds. It is written last, so a folder without it is no backup.

use std::fs;
use std::path::Path;

use admit_core::Millis;
use serde::{Deserialize, Serialize};

use super::files::{unreadable, unwritable};
use crate::output::Failure;

/// The name of the file.
pub(super) const FILE: &str = "backup.json";

/// The form of this file.
const FORMAT: u32 = 1;

/// What a backup holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// The version of the program that made it.
    version: String,
    /// Everything that was acknowledged before is in it.
    at: String,
    /// `None` for a ledger on PostgreSQL.
    pub(super) ledger: Option<Ledger>,
    /// `None` for a bus on the network.
    pub(super) bus: Option<Copied>,
    /// `None` for a bucket.
    pub(super) artifacts: Option<Copied>,
}

/// The ledger in a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ledger {
    pub(super) tag: String,
    pub(super) last_seq: u64,
    pub(super) bytes: u64,
}

/// How much was copied.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Copied {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Manifest {
    pub(super) fn new(at: Millis, ledger: Option<Ledger>) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: at.to_rfc3339_millis(),
            ledger,
            bus: None,
            artifacts: None,
        }
    }

    /// Writes it into a backup.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Failure> {
        let path = dir.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(Failure::runtime)?;
        fs::write(&path, text + "\n").map_err(|error| unwritable(&path, &error))
    }

    /// Reads that of a backup.
    pub(super) fn read(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(FILE);
        let text = fs::read_to_string(&path).map_err(|error| {
            let why = "a backup has it from the moment it is complete";
            Failure::runtime(format!("{} is no whole backup: {error}; {why}", dir.display()))
        })?;
        let manifest: Self = serde_json::from_str(&text)
            .map_err(|error| unreadable(&path, &std::io::Error::other(error)))?;
        if manifest.format != FORMAT {
            return Err(Failure::runtime(format!(
                "{} has the form {}, this build knows {FORMAT}\n  nothing was changed; use the newer \
                 admit that made it",
                path.display(),
                manifest.format
            )));
        }
        Ok(manifest)
    }

    /// What was copied, in lines.
    pub(super) fn for_people(&self, dir: &Path, is_verified: bool) -> String {
        let mut text = format!("backup of {} in {}\n", self.at, dir.display());
        match &self.ledger {
            Some(Ledger { tag, last_seq, bytes }) => {
                text += &format!("ledger {tag} up to place {last_seq}, {bytes} bytes\n");
            }
            None => {
                text += "the ledger is on PostgreSQL and not in it: run pg_dump before this command, \
                         or use base backups and archived WAL\n";
            }
        }
        let parts = [("bus", &self.bus), ("artifacts", &self.artifacts)];
        for (name, part) in parts {
            text += &match part {
                Some(Copied { files, bytes }) => format!("{name}: {files} files, {bytes} bytes\n"),
                None => format!("{name}: not on this machine and not in it\n"),
            };
        }
        text + if is_verified { "verified: everything agrees\n" } else { "not verified\n" }
    }
}
