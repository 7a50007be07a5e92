//! Local artifacts in a backup: every file, except documents that the copied ledger does not know.

use std::fs;
use std::path::Path;

use admit_core::Fault;
use tokio::runtime::Runtime;

use super::Progress;
use super::files::{copy_file, copy_lines, exists, private_folder, unreadable};
use super::manifest::Copied;
use crate::ledger::LedgerReader;
use crate::output::Failure;
use crate::stores::ARTIFACTS_FILE;

/// What the copied ledger knows, and where it is asked.
type Known<'a> = Option<(&'a dyn LedgerReader, &'a Runtime)>;

pub(super) fn copy(
    from: &Path,
    to: &Path,
    known: Known<'_>,
    progress: &mut Progress,
) -> Result<Copied, Failure> {
    let mut copied = Copied::default();
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

/// Copies a folder, as deep as paths are long.
fn folder(
    from: &Path,
    to: &Path,
    path: &str,
    known: Known<'_>,
    copied: &mut Copied,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let source = from.join(path);
    let entries = fs::read_dir(&source).map_err(|error| unreadable(&source, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(&source, &error))?;
        // What begins with a dot is no artifact: files that are being written, and the id.
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'));
        let Some(name) = name else { continue };
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let kind = entry.file_type().map_err(|error| unreadable(&source, &error))?;
        if kind.is_dir() {
            private_folder(&to.join(&path))?;
            folder(from, to, &path, known, copied, progress)?;
        } else if kind.is_file() && belongs(&path, known)? {
            let (from, to) = (from.join(&path), to.join(&path));
            // Lines are appended to while they are copied; every other file is whole when it has its name.
            let is_log = path.ends_with(".jsonl");
            copied.bytes += if is_log { copy_lines(&from, &to)? } else { copy_file(&from, &to)? };
            copied.files += 1;
            progress.tell(&format!("artifacts: {} files", copied.files));
        }
    }
    Ok(())
}

/// Whether a file is one that the copied ledger knows, or that no ledger has to know.
fn belongs(path: &str, known: Known<'_>) -> Result<bool, Failure> {
    let is_document = path.contains("/ig/receipts/") || path.contains("/ig/quarantine/");
    let id = path.rsplit('/').next().and_then(|name| name.strip_suffix(".json"));
    let (Some((ledger, runtime)), Some(id)) = (known, id.filter(|_| is_document)) else {
        return Ok(true);
    };
    let unreadable =
        |fault: Fault| Failure::runtime(format!("the copied ledger cannot be read: {fault}"));
    let named = runtime.block_on(ledger.named(id.to_owned())).map_err(unreadable)?;
    Ok(named.iter().any(|filed| filed.document.path == path))
}
