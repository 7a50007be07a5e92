//! Keeps the log short, away from the commit path.
//!
//! A thread of its own copies the log into the file while commits go on. The log can start over
//! only at a moment when every page of it is copied, and under load there is always a newer one; so
//! once the thread has caught up except for a few pages, the writer copies those itself between two
//! commits, and the next commit starts the log from its beginning. A reader that holds on to an old
//! state keeps the log from starting over, which is why readers have a maximum life.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use admit_core::{Fault, FaultKind};
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::fault::{Severity, severity};
use super::health::Health;
use super::{open, queries};

/// The size of a page, SQLite's own default.
const PAGE_BYTES: u64 = 4096;

/// The log may have so many pages (4 MiB) before copying starts. Small steps: a large one keeps the
/// disk busy for so long that commits have to wait for it.
const COPY_FROM_PAGES: i32 = 1024;

/// So few pages (half a MiB) the writer copies itself; more would hold up commits too long.
const LEFT_FOR_WRITER_PAGES: i64 = 128;

/// Rounds of copying before the thread gives up catching up with a busy writer for now.
const ROUNDS_MAX: usize = 8;

/// Past this (1 GiB) the writer copies whatever it costs, at every commit.
const LOG_PAGES_MAX: i32 = 262_144;

/// The writer's hand on the log.
pub(super) struct Log {
    wake: SyncSender<()>,
    caught_up: Arc<AtomicBool>,
    /// The log's length after the last commit, as SQLite reports it.
    pages: Arc<AtomicI32>,
}

impl Log {
    /// Starts the copying thread. It ends when the returned value is dropped.
    pub(super) fn start(
        path: &Path,
        health: &Arc<Health>,
    ) -> Result<(Self, JoinHandle<()>), std::io::Error> {
        let (wake, woken) = sync_channel(1);
        let caught_up = Arc::new(AtomicBool::new(false));
        let thread = {
            let (path, health, caught_up) = (path.to_owned(), health.clone(), caught_up.clone());
            thread::Builder::new()
                .name("ledger-checkpoint".to_owned())
                .spawn(move || copy_when_woken(&path, &woken, &caught_up, &health))?
        };
        Ok((Self { wake, caught_up, pages: Arc::default() }, thread))
    }

    /// Has SQLite report the log's length at every commit of this connection.
    pub(super) fn watch(&self, conn: &mut Connection) -> rusqlite::Result<()> {
        let pages = self.pages.clone();
        conn.wal_hook(Some(move |_: &mut Wal, now: i32| {
            pages.store(now, Ordering::Relaxed);
            Ok(())
        }))
    }

    /// How many bytes of pages the log held after the last commit.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.pages.load(Ordering::Relaxed)).unwrap_or(0) * PAGE_BYTES
    }

    /// After a commit: wakes the thread, or finishes what it left.
    pub(super) fn after_commit(&self, conn: &Connection, health: &Health) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < COPY_FROM_PAGES {
            return;
        }
        if self.caught_up.swap(false, Ordering::Acquire) || pages > LOG_PAGES_MAX {
            copy(conn, health);
        } else {
            // Full means it is awake already.
            self.wake.try_send(()).unwrap_or_default();
        }
    }
}

fn copy_when_woken(path: &Path, woken: &Receiver<()>, caught_up: &AtomicBool, health: &Health) {
    let mut conn = None;
    while woken.recv().is_ok() {
        if caught_up.load(Ordering::Acquire) {
            continue;
        }
        if conn.is_none() {
            conn = open::writing(path)
                .inspect_err(|error| tracing::warn!(%error, "no connection to shorten the log"))
                .ok();
        }
        // Each round is shorter than the one before, because less was written during it.
        for _ in 0..ROUNDS_MAX {
            let left = conn.as_ref().and_then(|conn| copy(conn, health));
            if left.is_none_or(|left| left <= LEFT_FOR_WRITER_PAGES) {
                caught_up.store(left.is_some(), Ordering::Release);
                break;
            }
        }
    }
}

/// Copies what it can; returns how many pages are left, or `None` when it failed.
fn copy(conn: &Connection, health: &Health) -> Option<i64> {
    let result = conn.prepare_cached(queries::CHECKPOINT_PASSIVE).and_then(|mut copy| {
        copy.query_row([], |row| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?))
    });
    match result {
        Ok(left) => Some(left),
        Err(error) => {
            tracing::warn!(%error, "the log could not be copied into the ledger's file");
            if severity(&error) != Severity::Passing {
                let message = "the disk did not confirm a sync, the gate stops";
                health.must_stop(&Fault::caused_by(FaultKind::OutcomeUnknown, message, error));
            }
            None
        }
    }
}
