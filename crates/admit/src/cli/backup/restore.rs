//! `admit restore`: a backup becomes a data folder.

use std::path::PathBuf;

use admit_ledger::sqlite;
use clap::Args;
use serde_json::json;

use super::files::{check_target, copy_all, synced};
use super::manifest::{self, Manifest};
use super::{of_backup, verify_copy};
use crate::cli::Place;
use crate::output::{Failure, print, print_json};

/// Which backup, and where to.
#[derive(Debug, Args)]
pub(in crate::cli) struct Restore {
    /// The folder of the backup
    #[arg(value_name = "BACKUP")]
    from: PathBuf,
    /// The data folder to be: empty, or not there yet
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Do not verify the copy; the first start of a gate does it then
    #[arg(long)]
    no_verify: bool,
    /// The gate's config, for what verifying needs of it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(in crate::cli) fn run(command: Restore, as_json: bool) -> Result<(), Failure> {
    let Restore { from, to, no_verify, config } = command;
    let manifest = Manifest::read(&from)?;
    let (config, base) = Place { config, data: Some(to.clone()) }.load(None)?;
    check_target(&to, std::slice::from_ref(&from))?;
    let (files, bytes) = copy_all(&from, &to)?;
    let leftover = to.join(manifest::FILE);
    std::fs::remove_file(&leftover)
        .map_err(|error| Failure::runtime(format!("{}: {error}", leftover.display())))?;
    let has_ledger = manifest.ledger.is_some();
    if has_ledger {
        // Until the copy has been verified.
        sqlite::mark_as_copy(&to).map_err(Failure::runtime)?;
    }
    synced(&to)?;
    if has_ledger && !no_verify {
        verify_copy(&of_backup(&config, &to), &base, &manifest, &to)?;
        sqlite::accept_copy(&to).map_err(Failure::runtime)?;
    }
    let is_verified = has_ledger && !no_verify;
    if as_json {
        return print_json(&json!({
            "to": to, "files": files, "bytes": bytes, "verified": is_verified, "backup": manifest,
        }));
    }
    let shown = to.display();
    let next = match (has_ledger, is_verified) {
        (true, true) => {
            format!("verified: everything agrees\nserve it: admit serve --data {shown}\n")
        }
        (true, false) => "not verified; the first start does it\n".to_owned(),
        (false, _) => {
            "it holds no ledger: load the dump into PostgreSQL before a gate starts\n".to_owned()
        }
    };
    print(&format!("{files} files, {bytes} bytes restored to {shown}\n{next}"))
}
