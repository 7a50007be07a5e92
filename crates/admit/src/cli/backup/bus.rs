//! The file bus in a backup: its logs up to a length, without what the copied ledger does not know.

use std::io;
use std::path::Path;

use admit_bus::file::{FileReader, LogLengths, copy_log, cut_unknown_end};
use admit_contracts::ingestion_gate::{self, names};
use admit_contracts::rounds;
use admit_core::Door;
use tokio::runtime::Runtime;

use super::Progress;
use super::files::{copy_file, exists, unreadable};
use super::manifest::Copied;
use crate::ledger::LedgerReader;
use crate::output::Failure;
use crate::stores::BUS_FILE;

/// How long every log is now.
pub(super) fn lengths(root: &Path) -> Result<LogLengths, Failure> {
    LogLengths::of(&FileReader::new(root)).map_err(|error| unreadable(root, &error))
}

/// Copies every log up to these lengths.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    lengths: &LogLengths,
    progress: &mut Progress,
) -> Result<Copied, Failure> {
    let mut copied = Copied::default();
    super::private_folder(to)?;
    let id = from.join(BUS_FILE);
    if exists(&id)? {
        copy_file(&id, &to.join(BUS_FILE))?;
    }
    for (topic, bytes) in lengths.iter() {
        progress.tell(&format!("bus: {topic}, {bytes} bytes"));
        let written = copy_log(from, to, topic, bytes);
        copied.bytes += written.map_err(|error| unreadable(&from.join(topic), &error))?;
        copied.files += 1;
    }
    Ok(copied)
}

/// Cuts off what was published between the earlier lengths and the moment of the ledger, as far as it
/// is of no admission in the copy: its producer will send it again, and it is published then.
pub(super) fn cut(
    root: &Path,
    before: &LogLengths,
    control_topic: &str,
    ledger: &dyn LedgerReader,
    runtime: &Runtime,
) -> Result<(), Failure> {
    for (topic, _) in lengths(root)?.iter().filter(|(topic, _)| *topic != control_topic) {
        let known = |key: &str| {
            let known = runtime.block_on(is_known(ledger, key));
            known.map_err(|fault| io::Error::other(format!("the copied ledger: {fault}")))
        };
        let cut = cut_unknown_end(root, topic, before.get(topic), known);
        cut.map_err(|error| unreadable(&root.join(topic), &error))?;
    }
    Ok(())
}

/// Whether a message is of something in the ledger.
async fn is_known(ledger: &dyn LedgerReader, dedupe_key: &str) -> Result<bool, admit_core::Fault> {
    let key = names::key(&Door::new(ingestion_gate::DOOR), dedupe_key);
    if ledger.find(key).await?.is_some() {
        return Ok(true);
    }
    let publication = ledger.publication(rounds::DOOR.to_owned(), dedupe_key.to_owned()).await?;
    Ok(publication.is_some())
}
