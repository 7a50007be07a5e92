//! `session.jsonl`: log of a run's streaming, one line per event, for operators and log shippers.
//!
//! Only a log: it is never read back, and a failed write is only logged in the process log.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use admit_contracts::ingestion_gate::utc;
use admit_core::Clock;
use admit_core::json::{self, Object, Value};

use super::checkpoint::{CheckpointReason, Cursor};

/// File name.
pub const FILE: &str = "session.jsonl";

/// Rotation size; one older file is kept.
const BYTES_MAX: u64 = 64 << 20;

/// The session log of one run.
pub struct SessionLog {
    path: PathBuf,
    run: String,
    clock: Arc<dyn Clock>,
    open: Mutex<Option<(File, u64)>>,
}

impl SessionLog {
    /// The log of a platform run, below `folder`.
    pub fn new(folder: &Path, platform_run_id: &str, clock: Arc<dyn Clock>) -> Self {
        let path = folder.join(platform_run_id).join(FILE);
        Self { path, run: platform_run_id.to_owned(), clock, open: Mutex::new(None) }
    }

    /// Writes a line of this kind.
    pub fn write<'a>(
        &'a self,
        kind: &'a str,
        fields: impl IntoIterator<Item = (&'a str, Value<'a>)>,
    ) {
        let mut line = Object::from_iter([
            ("kind", Value::from(kind)),
            ("platform_run_id", self.run.as_str().into()),
            ("ts_utc", utc(self.clock.now()).into()),
        ]);
        line.extend(fields);
        let mut text = Vec::with_capacity(256);
        json::write_object(&line, &mut text);
        text.push(b'\n');
        if let Err(error) = self.append(&text) {
            tracing::warn!(path = %self.path.display(), %error, "failed to write the session log");
        }
    }

    pub(super) fn checkpoint_saved(
        &self,
        output_id: &str,
        cursor: &Cursor,
        reason: CheckpointReason,
    ) {
        self.write(
            "checkpoint_saved",
            [
                ("output_id", output_id.into()),
                ("last_file", cursor.last_file.as_str().into()),
                ("last_row_index", cursor.last_row_index.into()),
                ("last_ts_utc", cursor.last_ts_utc.as_str().into()),
                ("reason", reason.as_str().into()),
            ],
        );
    }

    fn append(&self, line: &[u8]) -> std::io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|(_, bytes)| *bytes >= BYTES_MAX) {
            *open = None;
            fs::rename(&self.path, self.path.with_extension("1.jsonl"))?;
        }
        if open.is_none() {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            let file = OpenOptions::new().append(true).create(true).open(&self.path)?;
            let bytes = file.metadata()?.len();
            *open = Some((file, bytes));
        }
        let Some((file, bytes)) = open.as_mut() else { return Ok(()) };
        *bytes += line.len() as u64;
        file.write_all(line)
    }
}
