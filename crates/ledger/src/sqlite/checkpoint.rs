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

use admit_core::{Fault, FaultKind, unwound};
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::fault::{Severity, severity};
use super::{open, queries};
use crate::common::health::Health;

/// So much is copied at a time, more when commits come faster than that. Small steps: a large one
/// keeps the disk busy for so long that commits have to wait for it.
const COPY_FROM_BYTES: u64 = 2 << 20;

/// From here on the log is brought to start over. Not sooner, because the last pages are the
/// writer's to copy and hold up its commits.
const START_OVER_FROM_BYTES: u64 = 32 << 20;

/// So little the writer copies itself; more would hold up commits too long.
const LEFT_FOR_WRITER_BYTES: u64 = 512 << 10;

/// Rounds of copying before the thread gives up catching up with a busy writer for now.
const ROUNDS_MAX: usize = 8;

/// Past this the writer copies whatever it costs, at every commit.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// The same as numbers of pages, which is what SQLite counts the log in. A file keeps the size of
/// page it was made with.
#[derive(Clone, Copy)]
struct Pages {
    page_bytes: u64,
    copy_from: i32,
    start_over_from: i32,
    left_for_writer: i32,
    max: i32,
}

impl Pages {
    fn of(page_bytes: u64) -> Self {
        let pages = |bytes| i32::try_from(bytes / page_bytes).unwrap_or(i32::MAX);
        Self {
            page_bytes,
            copy_from: pages(COPY_FROM_BYTES),
            start_over_from: pages(START_OVER_FROM_BYTES),
            left_for_writer: pages(LEFT_FOR_WRITER_BYTES),
            max: pages(LOG_BYTES_MAX),
        }
    }
}

/// The writer's hand on the log.
pub(super) struct Log {
    wake: SyncSender<()>,
    shared: Arc<Shared>,
    limits: Pages,
    /// The log's length after the commit before.
    before: i32,
}

/// What the writer and the copying thread tell each other.
#[derive(Default)]
struct Shared {
    /// The log's length after the last commit, as SQLite reports it.
    pages: AtomicI32,
    /// How much of it is copied.
    copied: AtomicI32,
    /// So little is left that the writer may copy it.
    caught_up: AtomicBool,
}

impl Log {
    /// Starts the copying thread for a file of pages of this size. It ends when the returned value is
    /// dropped.
    pub(super) fn start(
        path: &Path,
        page_bytes: u64,
        health: &Arc<Health>,
    ) -> Result<(Self, JoinHandle<()>), std::io::Error> {
        let limits = Pages::of(page_bytes);
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(Shared::default());
        let thread = {
            let (path, health, shared) = (path.to_owned(), health.clone(), shared.clone());
            thread::Builder::new().name("ledger-checkpoint".to_owned()).spawn(move || {
                let copy = || copy_when_woken(&path, &woken, limits, &shared, &health);
                unwound::or_tell(copy, || health.panicked());
            })?
        };
        Ok((Self { wake, shared, limits, before: 0 }, thread))
    }

    /// Has SQLite report the log's length at every commit of this connection.
    pub(super) fn watch(&self, conn: &mut Connection) -> rusqlite::Result<()> {
        let shared = self.shared.clone();
        conn.wal_hook(Some(move |_: &mut Wal, now: i32| {
            shared.pages.store(now, Ordering::Relaxed);
            Ok(())
        }))
    }

    /// How many bytes of pages the log held after the last commit.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.shared.pages.load(Ordering::Relaxed)).unwrap_or(0)
            * self.limits.page_bytes
    }

    /// After the last commit: copies what is left.
    pub(super) fn finish(&self, conn: &Connection, health: &Health) {
        copy(conn, health);
    }

    /// After a commit: wakes the thread, or finishes what it left.
    pub(super) fn after_commit(&mut self, conn: &Connection, health: &Health) {
        let pages = self.shared.pages.load(Ordering::Relaxed);
        if pages < self.before {
            // It has started over. The thread may still say how much of the old one it has copied,
            // which does no more than delay its next step.
            self.shared.copied.store(0, Ordering::Relaxed);
        }
        self.before = pages;
        let long = pages >= self.limits.start_over_from;
        // What was left of a log that has started over is no longer worth knowing.
        let caught_up = self.shared.caught_up.swap(false, Ordering::Acquire);
        if long && caught_up || pages > self.limits.max {
            if let Some(copied) = copy(conn, health) {
                self.shared.copied.store(copied, Ordering::Relaxed);
            }
        } else if long
            || pages - self.shared.copied.load(Ordering::Relaxed) >= self.limits.copy_from
        {
            // Full means it is awake already.
            self.wake.try_send(()).unwrap_or_default();
        }
    }
}

fn copy_when_woken(
    path: &Path,
    woken: &Receiver<()>,
    limits: Pages,
    shared: &Shared,
    health: &Health,
) {
    let mut conn = None;
    while woken.recv().is_ok() {
        if shared.caught_up.load(Ordering::Acquire) {
            continue;
        }
        if conn.is_none() {
            conn = open::mending(path)
                .inspect_err(|error| tracing::warn!(%error, "no connection to shorten the log"))
                .ok();
        }
        let Some(conn) = &conn else { continue };
        // Each round is shorter than the one before, because less was written during it.
        for _ in 0..ROUNDS_MAX {
            let Some(copied) = copy(conn, health) else { break };
            shared.copied.store(copied, Ordering::Relaxed);
            let pages = shared.pages.load(Ordering::Relaxed);
            if pages < limits.start_over_from {
                break;
            }
            if pages - copied <= limits.left_for_writer {
                shared.caught_up.store(true, Ordering::Release);
                break;
            }
        }
    }
}

/// Copies what it can; returns how much of the log is copied by now, or `None` when it failed.
fn copy(conn: &Connection, health: &Health) -> Option<i32> {
    let result = conn
        .prepare_cached(queries::CHECKPOINT_PASSIVE)
        .and_then(|mut copy| copy.query_row([], |row| row.get(2)));
    match result {
        Ok(copied) => {
            health.copied();
            Some(copied)
        }
        Err(error) => {
            health.not_copied(&error);
            let (kind, message) = match severity(&error) {
                Severity::Passing => return None,
                Severity::SyncFailed => {
                    (FaultKind::OutcomeUnknown, "the disk did not confirm a sync, the gate stops")
                }
                Severity::Broken => {
                    (FaultKind::Internal, "the ledger's file is damaged, the gate stops")
                }
            };
            health.must_stop(&Fault::caused_by(kind, message, error));
            None
        }
    }
}
