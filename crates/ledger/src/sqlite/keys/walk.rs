//! Reads the keys of earlier starts into the filter, beside the commits.
//!
//! Pages are read in the order of keys, a slice at a time, each in a short transaction of its
//! own, so that the log can start over in between. A key that is merged meanwhile behind the place
//! the walk has reached is missed by it, and is in the filter all the same since it was claimed or
//! read back.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use super::filter::{Filter, Layer};
use super::pages::{self, BEFORE_ALL, READ_ROWS};
use crate::sqlite::{open, queries};

/// How long to wait after a slice that could not be read.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Loads the filter of an index: at once where one slice is all there is, else on a thread.
pub(super) fn load(conn: &Connection, path: &Path) -> rusqlite::Result<Filter> {
    let mut walk = Walk::begin(conn)?;
    if walk.step(conn, READ_ROWS)? {
        return Ok(Filter::complete(walk.layer));
    }
    Ok(Filter::incomplete(Earlier::start(walk, path)))
}

/// The keys that are still being read.
#[derive(Debug)]
pub(super) struct Earlier {
    read: Receiver<Layer>,
    /// Nothing is ever sent; the thread ends when it is dropped.
    alive: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Earlier {
    /// Goes on with a walk on a thread of its own.
    fn start(walk: Walk, path: &Path) -> Self {
        let (done, read) = sync_channel(1);
        let (alive, gone) = sync_channel(0);
        let path = path.to_owned();
        let run = move || {
            if let Some(layer) = walk.run(&path, &gone) {
                // The writer may be gone by now; then nobody needs it.
                done.send(layer).unwrap_or_default();
            }
        };
        let thread = thread::Builder::new()
            .name("ledger-filter".to_owned())
            .spawn(run)
            .inspect_err(|error| {
                tracing::warn!(%error, "no thread to read keys on, fresh ones are looked up in the file");
            })
            .ok();
        Self { read, alive: Some(alive), thread }
    }

    /// A walk that somebody else takes, step by step.
    #[cfg(test)]
    pub(super) fn by_hand(read: Receiver<Layer>) -> Self {
        Self { read, alive: None, thread: None }
    }

    /// Everything that was there, once it is all read.
    pub(super) fn read(&self) -> Option<Layer> {
        self.read.try_recv().ok()
    }
}

impl Drop for Earlier {
    /// Its connection must be closed before anybody else may have the folder.
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads keys ended by a panic");
        }
    }
}

/// A walk through the index.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) layer: Layer,
    /// Where the last page that was read begins, or before all of them.
    after: i64,
}

impl Walk {
    /// Makes room for as many keys as the ledger counts.
    pub(super) fn begin(conn: &Connection) -> rusqlite::Result<Self> {
        let value = |name: &str| {
            let mut get = conn.prepare_cached(queries::META_GET)?;
            get.query_row([name], |row| row.get::<_, u64>(0)).optional()
        };
        let (keys, removed) = (value("keys")?.unwrap_or(0), value("removed_keys")?.unwrap_or(0));
        let keys = usize::try_from(keys.saturating_sub(removed)).unwrap_or(usize::MAX);
        Ok(Self { layer: Layer::for_keys(keys), after: BEFORE_ALL })
    }

    /// Reads the next slice; `true` when it was the last.
    pub(super) fn step(&mut self, conn: &Connection, slice: usize) -> rusqlite::Result<bool> {
        let more = pages::read(conn, self.after, slice, |key, _| self.layer.add(&key))?;
        self.after = more.unwrap_or(self.after);
        Ok(more.is_none())
    }

    /// Reads to the end, or until nobody wants it any more. It rests as long as it works, so that
    /// it never takes more than half a core from the commits.
    fn run(mut self, path: &Path, gone: &Receiver<()>) -> Option<Layer> {
        let mut conn = None;
        let mut told = false;
        loop {
            let begun = Instant::now();
            let step = match conn.take().map_or_else(|| open::reading(path), Ok) {
                Ok(open) => self.step(conn.insert(open), READ_ROWS),
                Err(error) => Err(error),
            };
            let rest = match step {
                Ok(true) => return Some(self.layer),
                Ok(false) => begun.elapsed(),
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%error, "keys could not be read, fresh ones are looked up in the file until they can");
                    }
                    AFTER_ERROR
                }
            };
            if gone.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                return None;
            }
        }
    }
}
