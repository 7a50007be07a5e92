//! Loads the keys of earlier starts into the filter, concurrently with commits.
//!
//! Pages are read in key order, a slice at a time, each in a short transaction of its own, so that the
//! WAL can be reset in between. A key merged meanwhile behind the position of the loader is missed by it,
//! but was added to the filter when it was claimed or loaded.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use super::filter::{KeyFilter, Layer};
use super::pages::{self, BEFORE_ALL, READ_ROWS};
use crate::sqlite::{open, queries};

/// Pause after a slice that could not be read.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Loads the filter of an index: at once if it is a single slice, else on a thread.
pub(super) fn load(conn: &Connection, path: &Path) -> rusqlite::Result<KeyFilter> {
    let mut loader = FilterLoader::begin(conn)?;
    if loader.step(conn, READ_ROWS)? {
        return Ok(KeyFilter::complete(loader.layer));
    }
    Ok(KeyFilter::incomplete(BackgroundLoad::start(loader, path)))
}

/// Background load of a filter layer.
#[derive(Debug)]
pub(super) struct BackgroundLoad {
    read: Receiver<Layer>,
    /// Nothing is ever sent; the thread ends when it is dropped.
    alive: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundLoad {
    /// Continues loading on a thread.
    fn start(loader: FilterLoader, path: &Path) -> Self {
        let (done, read) = sync_channel(1);
        let (alive, stopped) = sync_channel(0);
        let path = path.to_owned();
        let run = move || {
            if let Some(layer) = loader.run(&path, &stopped) {
                // The writer may be gone by now.
                done.send(layer).unwrap_or_default();
            }
        };
        let thread = thread::Builder::new()
            .name("ledger-filter".to_owned())
            .spawn(run)
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot start the thread that loads the key filter; fresh keys are looked up in the file");
            })
            .ok();
        Self { read, alive: Some(alive), thread }
    }

    /// For tests that run the loader step by step.
    #[cfg(test)]
    pub(super) fn for_test(read: Receiver<Layer>) -> Self {
        Self { read, alive: None, thread: None }
    }

    /// Returns the layer once it is loaded.
    pub(super) fn read(&self) -> Option<Layer> {
        self.read.try_recv().ok()
    }
}

impl Drop for BackgroundLoad {
    /// Its connection must be closed before another process may lock the folder.
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that loads the key filter panicked");
        }
    }
}

/// Reads the index into a filter layer.
#[derive(Debug)]
pub(super) struct FilterLoader {
    pub(super) layer: Layer,
    /// Start of the last page that was read.
    after: i64,
}

impl FilterLoader {
    /// Allocates a layer for as many keys as the ledger has.
    pub(super) fn begin(conn: &Connection) -> rusqlite::Result<Self> {
        let value = |name: &str| {
            let mut get = conn.prepare_cached(queries::META_GET)?;
            get.query_row([name], |row| row.get::<_, u64>(0)).optional()
        };
        let (keys, removed) = (value("keys")?.unwrap_or(0), value("removed_keys")?.unwrap_or(0));
        let keys = usize::try_from(keys.saturating_sub(removed)).unwrap_or(usize::MAX);
        Ok(Self { layer: Layer::for_keys(keys), after: BEFORE_ALL })
    }

    /// Reads the next slice; returns `true` if it was the last.
    pub(super) fn step(&mut self, conn: &Connection, slice: usize) -> rusqlite::Result<bool> {
        let more = pages::read(conn, self.after, slice, |key, _| self.layer.add(&key))?;
        self.after = more.unwrap_or(self.after);
        Ok(more.is_none())
    }

    /// Reads to the end, or until stopped. It sleeps as long as it works, so that it never takes more than half
    /// a core from the commits.
    fn run(mut self, path: &Path, stopped: &Receiver<()>) -> Option<Layer> {
        let mut conn = None;
        let mut is_logged = false;
        loop {
            let begun = Instant::now();
            let step = match conn.take().map_or_else(|| open::open_reader(path), Ok) {
                Ok(open) => self.step(conn.insert(open), READ_ROWS),
                Err(error) => Err(error),
            };
            let rest = match step {
                Ok(true) => return Some(self.layer),
                Ok(false) => begun.elapsed(),
                Err(error) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(%error, "loading the key filter failed; fresh keys are looked up in the file until a retry succeeds");
                    }
                    AFTER_ERROR
                }
            };
            if stopped.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                return None;
            }
        }
    }
}
