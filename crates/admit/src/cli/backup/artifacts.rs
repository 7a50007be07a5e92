//! Local artifacts in a backup: all files, except documents that are not in the copied ledger.

use std::fs;
use std::path::Path;

use admit_core::Fault;
use tokio::runtime::Runtime;

use super::BackupProgress;
use super::files::{copy_file, copy_lines, exists, private_folder, unreadable};
use super::manifest::CopyCounts;
use crate::ledger::LedgerReader;
use crate::output::Failure;
use crate::stores::ARTIFACTS_FILE;

/// The copied ledger with a runtime for its futures; `None` if the ledger is not copied.
type LedgerLookup<'a> = Option<(&'a dyn LedgerReader, &'a Runtime)>;

pub(super) fn copy(
    from: &Path,
    to: &Path,
    known: LedgerLookup<'_>,
    progress: &mut BackupProgress,
) -> Result<CopyCounts, Failure> {
    let mut copied = CopyCounts::default();
    private_folder(to)?;
    let id = from.join(ARTIFACTS_FILE);
    if exists(&id)? {
        copy_file(&id, &to.join(ARTIFACTS_FILE))?;
    }
    if exists(from)? {
        folder(from, to, "", known, &mut copied, progress)?;
    }
    Ok(copied)
}

/// Copies a folder recursively.
fn folder(
    from: &Path,
    to: &Path,
    path: &str,
    known: LedgerLookup<'_>,
    copied: &mut CopyCounts,
    progress: &mut BackupProgress,
) -> Result<(), Failure> {
    let source = from.join(path);
    let entries = fs::read_dir(&source).map_err(|error| unreadable(&source, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(&source, &error))?;
        // Files with a leading dot are incomplete ones and the id of the store.
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'));
        let Some(name) = name else { continue };
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let kind = entry.file_type().map_err(|error| unreadable(&source, &error))?;
        if kind.is_dir() {
            private_folder(&to.join(&path))?;
            folder(from, to, &path, known, copied, progress)?;
        } else if kind.is_file() && belongs_in_backup(&path, known)? {
            let (from, to) = (from.join(&path), to.join(&path));
            // Logs are appended to during the copy; other files are complete once they have their name.
            let is_log = path.ends_with(".jsonl");
            copied.bytes += if is_log { copy_lines(&from, &to)? } else { copy_file(&from, &to)? };
            copied.files += 1;
            progress.report(&format!("artifacts: {} files", copied.files));
        }
    }
    Ok(())
}

/// Whether a file is no document, or a document of the copied ledger.
fn belongs_in_backup(path: &str, known: LedgerLookup<'_>) -> Result<bool, Failure> {
    let is_document = path.contains("/ig/receipts/") || path.contains("/ig/quarantine/");
    let id = path.rsplit('/').next().and_then(|name| name.strip_suffix(".json"));
    let (Some((ledger, runtime)), Some(id)) = (known, id.filter(|_| is_document)) else {
        return Ok(true);
    };
    let unreadable =
        |fault: Fault| Failure::runtime(format!("cannot read the copied ledger: {fault}"));
    let named = runtime.block_on(ledger.named(id.to_owned())).map_err(unreadable)?;
    Ok(named.iter().any(|stored| stored.document.path == path))
}
