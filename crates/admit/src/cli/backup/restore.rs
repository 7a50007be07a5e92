//! `admit restore`: restores a data folder from a backup.

use std::path::PathBuf;

use admit_ledger::sqlite;
use clap::Args;
use serde_json::json;

use super::files::{check_target, copy_all, sync_folder};
use super::manifest::{self, BackupManifest};
use super::{backup_config, verify_copy};
use crate::cli::ConfigArgs;
use crate::output::{Failure, print, print_json};

/// Arguments of `admit restore`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    /// Folder of the backup
    #[arg(value_name = "BACKUP")]
    from: PathBuf,
    /// Target data folder: empty, or one that does not exist
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Skip verification; the first start of a gate then verifies the copy
    #[arg(long)]
    no_verify: bool,
    /// Config of the gate, used by verification
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(in crate::cli) fn run(command: RestoreArgs, as_json: bool) -> Result<(), Failure> {
    let RestoreArgs { from, to, no_verify, config } = command;
    let manifest = BackupManifest::read(&from)?;
    let (config, base) = ConfigArgs { config, data: Some(to.clone()) }.load(None)?;
    check_target(&to, std::slice::from_ref(&from))?;
    let (files, bytes) = copy_all(&from, &to)?;
    let leftover = to.join(manifest::FILE);
    std::fs::remove_file(&leftover)
        .map_err(|error| Failure::runtime(format!("{}: {error}", leftover.display())))?;
    let has_ledger = manifest.ledger.is_some();
    if has_ledger {
        // Removed after verification.
        sqlite::mark_as_copy(&to).map_err(Failure::runtime)?;
    }
    sync_folder(&to)?;
    if has_ledger && !no_verify {
        verify_copy(&backup_config(&config, &to), &base, &manifest, &to)?;
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
        (true, false) => "not verified; the first start of a gate verifies it\n".to_owned(),
        (false, _) => {
            "the backup contains no ledger: load the dump into PostgreSQL before starting a gate\n"
                .to_owned()
        }
    };
    print(&format!("{files} files, {bytes} bytes restored to {shown}\n{next}"))
}
