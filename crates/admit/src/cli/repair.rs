//! `admit repair`: restores artifact files from the ledger. The ledger is only read.

use std::collections::{BTreeMap, HashSet};

use admit_artifacts::{Artifacts, File, Line, Markers};
use admit_core::{Digest, DocumentKind, StoredDocument};
use admit_ledger::DocumentFilter;
use admit_ledger::sqlite::unreadable::UnreadableCell;
use bytes::Bytes;
use clap::Args;
use serde_json::json;

use super::ledger_files::FileSources;
use super::verify_stores::StoreCheckError;
use super::{LedgerArgs, ledger_files, verify_artifacts};
use crate::artifacts;
use crate::ledger::{LedgerReader, open_readable_rows, open_verifier};
use crate::output::{Failure, counted, print, print_json, printable};

/// Documents read per page.
const PAGE: usize = 256;

#[derive(Debug, Args)]
pub(super) struct RepairArgs {
    /// Print what would be written, without writing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    args: LedgerArgs,
}

/// Digests of the lines of each governance log, read once per log.
type LogLines = BTreeMap<String, HashSet<Digest>>;

/// Results of a repair.
#[derive(Debug, Default)]
struct RepairCounts {
    checked: u64,
    written: Vec<String>,
    replaced: Vec<String>,
    lines: u64,
    /// Raw bodies that retention has removed from the ledger.
    bodies_gone: u64,
}

pub(super) fn run(command: RepairArgs, as_json: bool) -> Result<(), Failure> {
    let RepairArgs { dry_run, args } = command;
    let (config, base) = args.load()?;
    let (reader, runtime, unreadable) = open_readable_rows(&config, &base)?;
    let verifier = open_verifier(&config, &base, true)?;
    let store =
        if dry_run { artifacts::open_read_only(&config)? } else { artifacts::open(&config)? };
    let paths = config.artifacts_location().map_err(Failure::usage)?.paths();
    let sources = FileSources::read(&verifier).map_err(Failure::runtime)?;
    let work = async {
        let mut counts = RepairCounts::default();
        documents(&*reader, &*store, dry_run, &mut counts).await?;
        let files = ledger_files::render(&*reader, sources, &paths, &mut |_| {}).await?;
        let files = files.into_iter().map(|file| file.file).collect();
        restore_files(&*store, files, dry_run, &mut counts).await?;
        if !dry_run {
            store.sync().await?;
        }
        Ok::<_, StoreCheckError>(counts)
    };
    let counts = runtime.block_on(work).map_err(Failure::runtime)?;
    let unreadable: Vec<String> = unreadable.iter().map(UnreadableCell::place).collect();
    report(&counts, &unreadable, dry_run, as_json)
}

/// Restores the file, raw body or governance line of every document.
async fn documents(
    ledger: &dyn LedgerReader,
    store: &dyn Artifacts,
    is_dry_run: bool,
    counts: &mut RepairCounts,
) -> Result<(), StoreCheckError> {
    let (mut after, mut logs) = (0, LogLines::new());
    loop {
        let filter = DocumentFilter { after, rows_max: PAGE, ..DocumentFilter::default() };
        let page = ledger.filed(filter).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.n;
        let mut files = Vec::with_capacity(page.len());
        for stored in page.iter().filter(|stored| stored.document.kind != DocumentKind::Governance)
        {
            if let Some(path) = verify_artifacts::raw_body_path(stored) {
                match verify_artifacts::read_body(ledger, stored).await? {
                    Some(body) => files.push(File::new(path, body)),
                    None => counts.bodies_gone += 1,
                }
            }
            files.push(file_of(stored));
        }
        restore_files(store, files, is_dry_run, counts).await?;
        append_missing(store, &page, &mut logs, is_dry_run, counts).await?;
    }
}

/// Writes the files that are missing or differ.
async fn restore_files(
    store: &dyn Artifacts,
    files: Vec<File>,
    is_dry_run: bool,
    counts: &mut RepairCounts,
) -> Result<(), StoreCheckError> {
    let mut differing = Vec::new();
    for file in files {
        counts.checked += 1;
        match store.get(&file.path).await? {
            Some(present) if present == file.bytes => continue,
            Some(_) => counts.replaced.push(file.path.clone()),
            None => counts.written.push(file.path.clone()),
        }
        differing.push(file);
    }
    if !is_dry_run {
        for restored in store.restore(differing).await {
            restored?;
        }
    }
    Ok(())
}

/// Appends the governance lines that are missing in their logs.
async fn append_missing(
    store: &dyn Artifacts,
    page: &[StoredDocument],
    logs: &mut LogLines,
    is_dry_run: bool,
    counts: &mut RepairCounts,
) -> Result<(), StoreCheckError> {
    let mut expected: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    for stored in page.iter().filter(|stored| stored.document.kind == DocumentKind::Governance) {
        let Some(log) = verify_artifacts::governance_log_path(stored) else { continue };
        let text = Bytes::from(stored.document.text.clone());
        expected.entry(log).or_default().push(Line { text, marker: file_of(stored) });
    }
    for (log, lines) in expected {
        counts.checked += lines.len() as u64;
        if !logs.contains_key(&log) {
            let text = store.get(&log).await?.unwrap_or_default();
            let present = text.split(|byte| *byte == b'\n').map(Digest::of).collect();
            logs.insert(log.clone(), present);
        }
        let Some(present) = logs.get(&log) else { continue };
        let missing: Vec<Line> =
            lines.into_iter().filter(|line| !present.contains(&Digest::of(&line.text))).collect();
        counts.lines += missing.len() as u64;
        if is_dry_run || missing.is_empty() {
            continue;
        }
        for put in store.append_lines(&log, missing, Markers::Verified).await {
            put?;
        }
        store.compose(&log).await?;
    }
    Ok(())
}

fn file_of(stored: &StoredDocument) -> File {
    File::new(stored.document.path.clone(), format!("{}\n", stored.document.text))
}

fn report(
    counts: &RepairCounts,
    unreadable: &[String],
    is_dry_run: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let RepairCounts { checked, written, replaced, lines, bodies_gone } = counts;
    if as_json {
        return print_json(&json!({
            "dry_run": is_dry_run,
            "checked": checked,
            "written": written,
            "replaced": replaced,
            "governance_lines": lines,
            "bodies_gone": bodies_gone,
            "unreadable_cells": unreadable,
        }));
    }
    for place in unreadable {
        print(&format!("{}: not UTF-8 text, nothing is written from it\n", printable(place)))?;
    }
    let would = if is_dry_run { "would be written" } else { "written" };
    for path in written {
        print(&format!("{path}: was missing, {would} from the ledger\n"))?;
    }
    for path in replaced {
        print(&format!("{path}: differed, {would} from the ledger\n"))?;
    }
    if *bodies_gone > 0 {
        print(&format!(
            "{bodies_gone} raw bodies are no longer in the ledger; their files are unchanged\n"
        ))?;
    }
    let files = counted((written.len() + replaced.len()) as u64, "file");
    let lines = counted(*lines, "governance line");
    print(&format!("{checked} checked: {files} and {lines} {would}\n"))
}
