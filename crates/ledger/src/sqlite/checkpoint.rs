//! Keeps the log short, away from the commit path.
//!
//! A thread of its own copies the log into the file while commits go on. The log can start over
//! only at a moment when every page of it is copied, and under load there is always a newer one; so
//! once the thread has caught up except for a few pages, the writer copies those itself between two
//! commits, and the next commit starts the log from its beginning. A reader that holds on to an old
//! state keeps the log from starting over, which is why readers have a maximum life. One of another
//! program has none: it is reported, and what the log has grown to is given back when it has gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admit_core::{Fault, FaultKind, unwound};
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::fault::{Severity, severity};
use super::{open, queries};
use crate::common::health::Health;
use crate::gauges::Gauges;

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

/// A log longer than this that cannot start over is reported.
const HELD_BACK_FROM_BYTES: u64 = 64 << 20;

/// So long nothing more of it can be copied before that; a reader of the gate's own has ended by then.
const HELD_BACK_FOR: Duration = Duration::from_secs(6);

/// The same as numbers of pages, which is what SQLite counts the log in. A file keeps the size of
/// page it was made with.
#[derive(Clone, Copy)]
struct Pages {
    copy_from: i32,
    start_over_from: i32,
    left_for_writer: i32,
    max: i32,
    held_back_from: i32,
}

impl Pages {
    fn of(page_bytes: u64) -> Self {
        let pages = |bytes| i32::try_from(bytes / page_bytes).unwrap_or(i32::MAX);
        Self {
            copy_from: pages(COPY_FROM_BYTES),
            start_over_from: pages(START_OVER_FROM_BYTES),
            left_for_writer: pages(LEFT_FOR_WRITER_BYTES),
            max: pages(LOG_BYTES_MAX),
            held_back_from: pages(HELD_BACK_FROM_BYTES),
        }
    }
}

/// The writer's hand on the log.
pub(super) struct Log {
    wake: SyncSender<()>,
    shared: Arc<Shared>,
    limits: Pages,
    /// The log's file.
    file: PathBuf,
    /// The log's length after the commit before.
    before: i32,
}

/// What the writer and the copying thread tell each other.
struct Shared {
    /// The log's length after the last commit, as SQLite reports it.
    pages: AtomicI32,
    /// How much of it is copied.
    copied: AtomicI32,
    /// So little is left that the writer may copy it.
    caught_up: AtomicBool,
    /// How much was copied when it last moved, and since when that is all.
    stalled: Mutex<(i32, Instant)>,
    page_bytes: u64,
    gauges: Arc<Gauges>,
}

impl Shared {
    fn new(page_bytes: u64, gauges: &Arc<Gauges>) -> Self {
        Self {
            pages: AtomicI32::new(0),
            copied: AtomicI32::new(0),
            caught_up: AtomicBool::new(false),
            stalled: Mutex::new((0, Instant::now())),
            page_bytes,
            gauges: Arc::clone(gauges),
        }
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.pages.load(Ordering::Relaxed)).unwrap_or(0) * self.page_bytes
    }

    /// After a copy: whether a reader is why more could not be copied. `before` was the log's length when the
    /// copy began.
    fn look_for_reader(&self, before: i32, now: Copied, limits: Pages, health: &Health) {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that is shorter than before has started over meanwhile.
        let is_free = now.pages < before || now.copied >= before || before < limits.held_back_from;
        if is_free {
            self.gauges.log_is_held_back(false);
            health.log_is_held_back(false, self.bytes());
        }
        if is_free || now.copied != stalled.0 {
            *stalled = (now.copied, Instant::now());
        } else if stalled.1.elapsed() >= HELD_BACK_FOR {
            self.gauges.log_is_held_back(true);
            health.log_is_held_back(true, self.bytes());
        }
    }
}

/// What a copy has come to.
#[derive(Clone, Copy)]
struct Copied {
    /// The log's length.
    pages: i32,
    /// How much of it is copied by now.
    copied: i32,
}

impl Log {
    /// Starts the copying thread for a file of pages of this size. It ends when the returned value is
    /// dropped.
    pub(super) fn start(
        path: &Path,
        page_bytes: u64,
        health: &Arc<Health>,
        gauges: &Arc<Gauges>,
    ) -> Result<(Self, JoinHandle<()>), io::Error> {
        let limits = Pages::of(page_bytes);
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(Shared::new(page_bytes, gauges));
        let thread = {
            let (path, health, shared) = (path.to_owned(), health.clone(), shared.clone());
            thread::Builder::new().name("ledger-checkpoint".to_owned()).spawn(move || {
                let copy = || copy_when_woken(&path, &woken, limits, &shared, &health);
                unwound::or_tell(copy, || health.panicked());
            })?
        };
        let file = open::log_of(path);
        Ok((Self { wake, shared, limits, file, before: 0 }, thread))
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
        self.shared.bytes()
    }

    /// After the last commit: copies what is left; whether that was all of it.
    pub(super) fn finish(&self, conn: &Connection, health: &Health) -> bool {
        copy(conn, health).is_some_and(|now| now.copied == now.pages)
    }

    /// Whether another program has brought all of it into the file and emptied it.
    pub(super) fn is_emptied(&self, conn: &Connection, health: &Health) -> bool {
        // The index as well: a log that was cut by hand is empty, but not in the file.
        std::fs::metadata(&self.file).is_ok_and(|log| log.len() == 0)
            && copy(conn, health).is_some_and(|now| now.pages <= 0)
    }

    /// Whether a reader has made it longer than it gets under load.
    pub(super) fn is_long(&self) -> bool {
        self.shared.pages.load(Ordering::Relaxed) > self.limits.held_back_from
    }

    /// Where no event comes: shortens a log that a reader has made long, once that reader has gone. Most of it
    /// is the thread's to copy. `before_emptied` comes when all of it is copied.
    pub(super) fn give_back(
        &mut self,
        conn: &Connection,
        health: &Health,
        before_emptied: impl FnOnce() -> io::Result<()>,
    ) {
        let is_long = |log: std::fs::Metadata| log.len() > open::LOG_FILE_BYTES_MAX;
        if !std::fs::metadata(&self.file).is_ok_and(is_long) {
            return;
        }
        let pages = self.shared.pages.load(Ordering::Relaxed);
        if pages - self.shared.copied.load(Ordering::Relaxed) > self.limits.left_for_writer {
            self.shared.caught_up.store(false, Ordering::Release);
            self.wake.try_send(()).unwrap_or_default();
            return;
        }
        let Some(now) = copy(conn, health) else { return };
        self.shared.look_for_reader(pages, now, self.limits, health);
        if now.copied != now.pages {
            return;
        }
        match before_emptied().map(|()| empty(conn)) {
            Ok(Ok(true)) => {
                self.shared.pages.store(0, Ordering::Relaxed);
                self.shared.copied.store(0, Ordering::Relaxed);
                self.before = 0;
            }
            // A reader of the newest state is in the way; it is tried again.
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the log could not be emptied"),
            Err(error) => tracing::debug!(%error, "the mark could not be cleared"),
        }
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
            if let Some(now) = copy(conn, health) {
                self.shared.copied.store(now.copied, Ordering::Relaxed);
                self.shared.look_for_reader(pages, now, self.limits, health);
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
            let before = shared.pages.load(Ordering::Relaxed);
            let Some(now) = copy(conn, health) else { break };
            let copied = now.copied;
            shared.copied.store(copied, Ordering::Relaxed);
            shared.look_for_reader(before, now, limits, health);
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

/// Empties a log that is copied; `false` when a reader is in the way. Waits for nothing, because commits would
/// wait with it.
fn empty(conn: &Connection) -> rusqlite::Result<bool> {
    conn.busy_timeout(Duration::ZERO)?;
    let busy = conn.query_row(queries::CHECKPOINT_TRUNCATE, [], |row| row.get::<_, i64>(0));
    conn.busy_timeout(open::BUSY_TIMEOUT)?;
    Ok(busy? == 0)
}

/// Copies what it can; says how much of the log is copied by now, or `None` when it failed.
fn copy(conn: &Connection, health: &Health) -> Option<Copied> {
    let result = conn.prepare_cached(queries::CHECKPOINT_PASSIVE).and_then(|mut copy| {
        copy.query_row([], |row| Ok(Copied { pages: row.get(1)?, copied: row.get(2)? }))
    });
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
