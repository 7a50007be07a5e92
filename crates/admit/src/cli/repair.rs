//! `admit repair`: writes again what the ledger can make again. The ledger itself is only read.

use std::collections::{BTreeMap, HashSet};

use admit_artifacts::{Artifacts, File, Line, Markers};
use admit_core::{Digest, StoredDocument, DocumentKind};
use admit_ledger::DocumentFilter;
use bytes::Bytes;
use clap::Args;
use serde_json::json;

use super::ledger_files::Sources;
use super::outside::{self, OutsideError};
use super::{LedgerPlace, ledger_files};
use crate::artifacts;
use crate::ledger::{LedgerReader, open_reader, open_verifier};
use crate::output::{Failure, counted, print, print_json};

/// Documents that are looked at at a time.
const PAGE: usize = 256;

#[derive(Debug, Args)]
pub(super) struct Repair {
    /// Only say what would be written
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    place: LedgerPlace,
}

/// The lines that each governance log had when it was first looked at.
type Logs = BTreeMap<String, HashSet<Digest>>;

/// What was done.
#[derive(Debug, Default)]
struct Repaired {
    looked_at: u64,
    written: Vec<String>,
    replaced: Vec<String>,
    lines: u64,
    /// Raw bodies that the ledger does not have any more.
    gone: u64,
}

pub(super) fn run(command: Repair, as_json: bool) -> Result<(), Failure> {
    let Repair { dry_run, place } = command;
    let (config, base) = place.load()?;
    let (reader, runtime) = open_reader(&config, &base)?;
    let verifier = open_verifier(&config, &base, true)?;
    let store = if dry_run { artifacts::open_reading(&config)? } else { artifacts::open(&config)? };
    let paths = config.artifacts_place().map_err(Failure::usage)?.paths();
    let sources = Sources::read(&verifier).map_err(Failure::runtime)?;
    let work = async {
        let mut repaired = Repaired::default();
        documents(&*reader, &*store, dry_run, &mut repaired).await?;
        let files = ledger_files::all(&*reader, sources, &paths, &mut |_| {}).await?;
        let files = files.into_iter().map(|file| file.file).collect();
        put_right(&*store, files, dry_run, &mut repaired).await?;
        if !dry_run {
            store.sync().await?;
        }
        Ok::<_, OutsideError>(repaired)
    };
    let repaired = runtime.block_on(work).map_err(Failure::runtime)?;
    report(&repaired, dry_run, as_json)
}

/// Every document with its file, its body beside it, or its line.
async fn documents(
    ledger: &dyn LedgerReader,
    store: &dyn Artifacts,
    is_dry: bool,
    repaired: &mut Repaired,
) -> Result<(), OutsideError> {
    let (mut after, mut logs) = (0, Logs::new());
    loop {
        let filter = DocumentFilter { after, rows_max: PAGE, ..DocumentFilter::default() };
        let page = ledger.filed(filter).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.n;
        let mut files = Vec::with_capacity(page.len());
        for filed in page.iter().filter(|filed| filed.document.kind != DocumentKind::Governance) {
            if let Some(path) = outside::raw_path(filed) {
                match outside::body_of(ledger, filed).await? {
                    Some(body) => files.push(File::new(path, body)),
                    None => repaired.gone += 1,
                }
            }
            files.push(file_of(filed));
        }
        put_right(store, files, is_dry, repaired).await?;
        append_missing(store, &page, &mut logs, is_dry, repaired).await?;
    }
}

/// Writes the files that are missing or say something else.
async fn put_right(
    store: &dyn Artifacts,
    files: Vec<File>,
    is_dry: bool,
    repaired: &mut Repaired,
) -> Result<(), OutsideError> {
    let mut wrong = Vec::new();
    for file in files {
        repaired.looked_at += 1;
        match store.get(&file.path).await? {
            Some(there) if there == file.bytes => continue,
            Some(_) => repaired.replaced.push(file.path.clone()),
            None => repaired.written.push(file.path.clone()),
        }
        wrong.push(file);
    }
    if !is_dry {
        for restored in store.restore(wrong).await {
            restored?;
        }
    }
    Ok(())
}

/// Appends the governance lines that are not in their logs.
async fn append_missing(
    store: &dyn Artifacts,
    page: &[StoredDocument],
    logs: &mut Logs,
    is_dry: bool,
    repaired: &mut Repaired,
) -> Result<(), OutsideError> {
    let mut wanted: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    for filed in page.iter().filter(|filed| filed.document.kind == DocumentKind::Governance) {
        let Some(log) = outside::log_of(filed) else { continue };
        let text = Bytes::from(filed.document.text.clone());
        wanted.entry(log).or_default().push(Line { text, marker: file_of(filed) });
    }
    for (log, lines) in wanted {
        repaired.looked_at += lines.len() as u64;
        if !logs.contains_key(&log) {
            let text = store.get(&log).await?.unwrap_or_default();
            let there = text.split(|byte| *byte == b'\n').map(Digest::of).collect();
            logs.insert(log.clone(), there);
        }
        let Some(there) = logs.get(&log) else { continue };
        let missing: Vec<Line> =
            lines.into_iter().filter(|line| !there.contains(&Digest::of(&line.text))).collect();
        repaired.lines += missing.len() as u64;
        if is_dry || missing.is_empty() {
            continue;
        }
        for put in store.append_lines(&log, missing, Markers::Verified).await {
            put?;
        }
        store.compose(&log).await?;
    }
    Ok(())
}

fn file_of(filed: &StoredDocument) -> File {
    File::new(filed.document.path.clone(), format!("{}\n", filed.document.text))
}

fn report(repaired: &Repaired, is_dry: bool, as_json: bool) -> Result<(), Failure> {
    let Repaired { looked_at, written, replaced, lines, gone } = repaired;
    if as_json {
        return print_json(&json!({
            "dry_run": is_dry,
            "checked": looked_at,
            "written": written,
            "replaced": replaced,
            "governance_lines": lines,
            "bodies_gone": gone,
        }));
    }
    let would = if is_dry { "would be written" } else { "written" };
    for path in written {
        print(&format!("{path}: was missing, {would} from the ledger\n"))?;
    }
    for path in replaced {
        print(&format!("{path}: was not what the ledger says, {would} again\n"))?;
    }
    if *gone > 0 {
        print(&format!(
            "{gone} raw bodies are not in the ledger any more, their files stay as they are\n"
        ))?;
    }
    let files = counted((written.len() + replaced.len()) as u64, "file");
    let lines = counted(*lines, "governance line");
    print(&format!("{looked_at} checked: {files} and {lines} {would}\n"))
}
