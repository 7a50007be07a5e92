//! The file bus in a backup: its logs up to a length, without messages that are not in the copied ledger.

use std::io;
use std::path::Path;

use admit_bus::file::{FileReader, LogLengths, copy_log, cut_unknown_end};
use admit_contracts::ingestion_gate::{self, names};
use admit_contracts::rounds;
use admit_core::Door;
use tokio::runtime::Runtime;

use super::BackupProgress;
use super::files::{copy_file, exists, unreadable};
use super::manifest::CopyCounts;
use crate::ledger::LedgerReader;
use crate::output::Failure;
use crate::stores::BUS_FILE;

/// Current lengths of all logs.
pub(super) fn lengths(root: &Path) -> Result<LogLengths, Failure> {
    LogLengths::of(&FileReader::new(root)).map_err(|error| unreadable(root, &error))
}

/// Copies every log up to its length in `lengths`.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    lengths: &LogLengths,
    progress: &mut BackupProgress,
) -> Result<CopyCounts, Failure> {
    let mut copied = CopyCounts::default();
    super::private_folder(to)?;
    let id = from.join(BUS_FILE);
    if exists(&id)? {
        copy_file(&id, &to.join(BUS_FILE))?;
    }
    for (topic, bytes) in lengths.iter() {
        progress.report(&format!("bus: {topic}, {bytes} bytes"));
        let written = copy_log(from, to, topic, bytes);
        copied.bytes += written.map_err(|error| unreadable(&from.join(topic), &error))?;
        copied.files += 1;
    }
    Ok(copied)
}

/// Truncates each log after the `before` length at the first message without an admission in the copy. Its
/// producer got no acknowledgement and sends it again; then it is published again.
pub(super) fn cut_unknown(
    root: &Path,
    before: &LogLengths,
    control_topic: &str,
    ledger: &dyn LedgerReader,
    runtime: &Runtime,
) -> Result<(), Failure> {
    for (topic, _) in lengths(root)?.iter().filter(|(topic, _)| *topic != control_topic) {
        let known = |key: &str| {
            let known = runtime.block_on(is_known(ledger, key));
            known.map_err(|fault| {
                io::Error::other(format!("cannot read the copied ledger: {fault}"))
            })
        };
        let cut_unknown = cut_unknown_end(root, topic, before.get(topic), known);
        cut_unknown.map_err(|error| unreadable(&root.join(topic), &error))?;
    }
    Ok(())
}

/// Whether the dedupe key of a message is in the ledger.
async fn is_known(ledger: &dyn LedgerReader, dedupe_key: &str) -> Result<bool, admit_core::Fault> {
    let key = names::key(&Door::new(ingestion_gate::DOOR), dedupe_key);
    if ledger.find(key).await?.is_some() {
        return Ok(true);
    }
    let publication = ledger.publication(rounds::DOOR.to_owned(), dedupe_key.to_owned()).await?;
    Ok(publication.is_some())
}
