//! Stream view of an output: its part files in order, with a manifest and a sort receipt.

use std::sync::Arc;

use admit_core::json::Value;

use super::rows::PartReader;
use super::store::PackStore;
use super::{parse_json, read_small};
use crate::catalogue::Output;
use crate::streamer::reason::{Reason, RunFailure};

const MANIFEST: &str = "_stream_view_manifest.json";
const SORT_RECEIPT: &str = "_stream_sort_receipt.json";

/// A part file and its row count, from its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFile {
    /// Its name; parts are streamed in the order of their names.
    pub name: String,
    /// Its rows.
    pub rows: u64,
}

/// A stream view that passed all checks.
pub struct StreamView {
    /// The output it is of.
    pub output: Output,
    /// Its parts in order.
    pub parts: Vec<PartFile>,
    store: Arc<dyn PackStore>,
    folder: String,
}

impl StreamView {
    /// Opens the view of an output below `root`, and opens every part to check it.
    ///
    /// # Errors
    /// With the reason why it cannot be streamed.
    pub(super) fn open(
        store: &Arc<dyn PackStore>,
        root: &str,
        output: &Output,
    ) -> Result<Self, RunFailure> {
        let id = &output.output_id;
        let slash = if root.is_empty() { "" } else { "/" };
        let folder = format!("{root}{slash}output_id={id}");
        let missing = Reason::StreamViewMissing;
        let names = store.names(&folder).map_err(|error| {
            RunFailure::caused(missing, format!("{folder} cannot be read"), error)
        })?;
        let Some(names) = names else {
            return Err(RunFailure::new(missing, format!("{folder} does not exist")));
        };
        check(&**store, &folder, id)?;
        let is_part = |name: &String| name.starts_with("part-") && name.ends_with(".parquet");
        let mut view =
            Self { output: output.clone(), parts: Vec::new(), store: Arc::clone(store), folder };
        for name in names.into_iter().filter(is_part) {
            let rows = view.part(&name)?.len();
            view.parts.push(PartFile { name, rows });
        }
        if view.parts.is_empty() {
            let detail = format!("{} has no part-*.parquet", view.folder);
            return Err(RunFailure::new(Reason::StreamViewEmpty, detail));
        }
        Ok(view)
    }

    /// Opens one part.
    ///
    /// # Errors
    /// `STREAM_FAILED` with the file and the cause.
    pub fn part(&self, name: &str) -> Result<PartReader, RunFailure> {
        let path = format!("{}/{name}", self.folder);
        let file = self.store.open(&path).map_err(|error| {
            RunFailure::caused(Reason::StreamFailed, format!("{path} cannot be opened"), error)
        })?;
        PartReader::open(file).map_err(|error| {
            RunFailure::caused(Reason::StreamFailed, format!("{path} cannot be streamed"), error)
        })
    }

    /// Total rows.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Number of rows up to and including a position. A missing file counts as not streamed at all.
    pub fn rows_until(&self, last_file: &str, last_row_index: u64) -> u64 {
        let before = self.parts.iter().filter(|part| part.name.as_str() < last_file);
        let before: u64 = before.map(|part| part.rows).sum();
        let within = self.parts.iter().find(|part| part.name == last_file);
        before + within.map_or(0, |part| part.rows.min(last_row_index.saturating_add(1)))
    }
}

/// Checks that the manifest belongs to this output and that the rows are sorted.
fn check(store: &dyn PackStore, folder: &str, output_id: &str) -> Result<(), RunFailure> {
    let path = format!("{folder}/{MANIFEST}");
    let Some(bytes) = read_small(store, &path, Reason::StreamViewMissing)? else {
        return Err(RunFailure::new(Reason::StreamViewMissing, format!("{path} does not exist")));
    };
    let manifest = parse_json(&bytes, &path, Reason::StreamViewMissing)?;
    if manifest.get("output_id").and_then(Value::as_str) != Some(output_id) {
        let detail = format!("{path} belongs to another output");
        return Err(RunFailure::new(Reason::StreamViewOutputMismatch, detail));
    }
    let path = format!("{folder}/{SORT_RECEIPT}");
    let receipt_bad = Reason::StreamViewReceiptBad;
    let Some(bytes) = read_small(store, &path, receipt_bad)? else {
        return Err(RunFailure::new(receipt_bad, format!("{path} does not exist")));
    };
    let receipt = parse_json(&bytes, &path, receipt_bad)?;
    if receipt.get("status").and_then(Value::as_str) != Some("OK") {
        return Err(RunFailure::new(receipt_bad, format!("the status in {path} is not OK")));
    }
    let ids = [&manifest, &receipt].map(|one| one.get("stream_view_id").and_then(Value::as_str));
    if let [Some(one), Some(other)] = ids
        && one != other
    {
        let detail = format!("{path} belongs to another view");
        return Err(RunFailure::new(Reason::StreamViewIdMismatch, detail));
    }
    Ok(())
}
