//! Files that are copies of what the ledger keeps, beside those of documents: closures, and what there is
//! about scenario runs.

use admit_artifacts::{Artifacts, File};
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_ledger::verify::{Disagreement, DisagreementSink, DocumentFile, Verifier, VerifyError};
use admit_runs::runner;

use super::outside::OutsideError;
use crate::ledger::LedgerReader;

/// A file as the ledger has it, and the check that it belongs to.
pub(super) struct LedgerFile {
    pub(super) check: &'static str,
    pub(super) file: File,
}

/// What is to be made into files. Read before anything is awaited: the check of a ledger blocks.
pub(super) struct Sources {
    kept: Vec<DocumentFile>,
    scenario_runs: Vec<String>,
}

impl Sources {
    pub(super) fn read(verifier: &Verifier) -> Result<Self, VerifyError> {
        Ok(Self { kept: verifier.files()?, scenario_runs: verifier.scenario_runs()? })
    }
}

/// All of them. Documents of a scenario run that contradict each other are found on the way.
pub(super) async fn all(
    ledger: &dyn LedgerReader,
    sources: Sources,
    paths: &ArtifactPaths,
    found: &mut DisagreementSink<'_>,
) -> Result<Vec<LedgerFile>, OutsideError> {
    let mut files: Vec<LedgerFile> = sources
        .kept
        .into_iter()
        .map(|kept| LedgerFile {
            check: if kept.kind == "closure" { "closure" } else { "scenario" },
            file: File::new(kept.path, format!("{}\n", kept.text)),
        })
        .collect();
    for run_id in sources.scenario_runs {
        let Some(run) = ledger.scenario_run(run_id).await? else { continue };
        for message in runner::contradictions(&run) {
            found(Disagreement { at: None, check: "scenario", message });
        }
        let shown = runner::files_of(&run, paths).into_iter();
        files.extend(shown.map(|file| LedgerFile { check: "scenario", file }));
    }
    Ok(files)
}

/// Compares each with what is in the store. Returns how many there were.
pub(super) async fn check(
    files: &[LedgerFile],
    store: &dyn Artifacts,
    found: &mut DisagreementSink<'_>,
) -> Result<u64, OutsideError> {
    for LedgerFile { check, file } in files {
        let message = match store.get(&file.path).await? {
            None => format!("{} is missing", file.path),
            Some(there) if there != file.bytes => {
                format!("{} is not what the ledger says", file.path)
            }
            Some(_) => continue,
        };
        found(Disagreement { at: None, check, message });
    }
    Ok(files.len() as u64)
}
