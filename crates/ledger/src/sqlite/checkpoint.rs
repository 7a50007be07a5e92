//! Checkpoints: keep the WAL short, outside the commit path.
//!
//! A thread copies the WAL into the file while commits continue. The WAL can be reset only at a moment when
//! every page of it is copied, and under load there is always a newer one; so once the thread has caught up
//! except for a few pages, the writer copies those itself between two commits, and the next commit resets
//! the WAL. A read transaction on an old state prevents the reset, which is why the gate's own reads have a
//! timeout. One of another program has none: it is reported, and the WAL is truncated when it has ended.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admit_core::{Fault, FaultKind, panic_guard};
use admit_sqlite_log::WalConnection;
use admit_sqlite_log::mark::Mark;
use rusqlite::Connection;

use super::fault::{Severity, severity};
use super::{open, queries};
use crate::common::health::Health;
use crate::gauges::Gauges;

/// Bytes of the WAL copied per step, more if commits are faster. Small steps: a large one keeps the disk busy
/// for so long that commits have to wait for it.
const COPY_FROM_BYTES: u64 = 2 << 20;

/// Length from which the WAL is to be reset. Not earlier, because the last pages are copied by the writer and
/// delay its commits.
const START_OVER_FROM_BYTES: u64 = 32 << 20;

/// Maximum that the writer copies itself; more would delay commits too long.
const WRITER_COPY_BYTES_MAX: u64 = 512 << 10;

/// Copy rounds before the thread stops catching up with a busy writer for now.
const ROUNDS_MAX: usize = 8;

/// Beyond this the writer copies at every commit, whatever it costs.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// A longer WAL that cannot be reset is reported.
const HELD_BACK_FROM_BYTES: u64 = 64 << 20;

/// Pause between attempts to copy the rest of the WAL while another checkpoint is under way.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Time without copy progress before that; the gate's own readers have ended by then.
const HELD_BACK_FOR: Duration = Duration::from_secs(6);

/// The same limits in pages, SQLite's unit of WAL length. A file keeps the page size it was created
/// with.
#[derive(Clone, Copy)]
struct Pages {
    copy_from: i32,
    start_over_from: i32,
    writer_copy_max: i32,
    max: i32,
    held_back_from: i32,
}

impl Pages {
    fn of(page_bytes: u64) -> Self {
        let pages = |bytes| i32::try_from(bytes / page_bytes).unwrap_or(i32::MAX);
        Self {
            copy_from: pages(COPY_FROM_BYTES),
            start_over_from: pages(START_OVER_FROM_BYTES),
            writer_copy_max: pages(WRITER_COPY_BYTES_MAX),
            max: pages(LOG_BYTES_MAX),
            held_back_from: pages(HELD_BACK_FROM_BYTES),
        }
    }
}

/// The writer's handle of the WAL.
pub(super) struct WalHandle {
    wake: SyncSender<()>,
    shared: Arc<CheckpointState>,
    limits: Pages,
    /// Path of the WAL file.
    file: PathBuf,
    /// Length of the WAL after the previous commit.
    before: i32,
}

/// State shared by the writer and the checkpointer.
struct CheckpointState {
    /// Notes each copy of the WAL into the file.
    mark: Arc<Mark>,
    /// Length of the WAL after the last commit, as reported by SQLite.
    pages: AtomicI32,
    /// Pages of it that are copied.
    copied: AtomicI32,
    /// The rest is short enough for the writer to copy.
    caught_up: AtomicBool,
    /// Number of copied pages when it last changed, and the time of that.
    stalled: Mutex<(i32, Instant)>,
    page_bytes: u64,
    gauges: Arc<Gauges>,
}

impl CheckpointState {
    fn new(page_bytes: u64, mark: &Arc<Mark>, gauges: &Arc<Gauges>) -> Self {
        Self {
            mark: Arc::clone(mark),
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

    /// After a copy: detects whether a reader prevented a complete one. `before` was the length of the WAL when
    /// the copy began.
    fn detect_blocking_reader(
        &self,
        before: i32,
        now: CheckpointProgress,
        limits: Pages,
        health: &Health,
    ) {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        // A WAL that is shorter than before was reset meanwhile.
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

/// Result of a copy.
#[derive(Clone, Copy)]
struct CheckpointProgress {
    /// Length of the WAL.
    pages: i32,
    /// Pages of it that are copied now.
    copied: i32,
}

impl CheckpointProgress {
    /// Whether nothing was copied, because another checkpoint is under way. SQLite reports that as -1 pages.
    fn is_busy(self) -> bool {
        self.pages < 0
    }
}

impl WalHandle {
    /// Starts the copying thread for a file of pages of this size. It ends when the returned value is
    /// dropped.
    pub(super) fn start(
        path: &Path,
        page_bytes: u64,
        mark: &Arc<Mark>,
        health: &Arc<Health>,
        gauges: &Arc<Gauges>,
    ) -> Result<(Self, JoinHandle<()>), io::Error> {
        let limits = Pages::of(page_bytes);
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(CheckpointState::new(page_bytes, mark, gauges));
        let thread = {
            let (path, health, shared) = (path.to_owned(), health.clone(), shared.clone());
            thread::Builder::new().name("ledger-checkpoint".to_owned()).spawn(move || {
                let copy = || run_checkpointer(&path, &woken, limits, &shared, &health);
                panic_guard::run(copy, || health.panicked());
            })?
        };
        let file = open::log_of(path);
        Ok((Self { wake, shared, limits, file, before: 0 }, thread))
    }

    /// Lets SQLite report the length of the WAL at every commit of this connection.
    pub(super) fn watch(&self, conn: &mut WalConnection) -> rusqlite::Result<()> {
        let shared = self.shared.clone();
        conn.on_commit(move |pages| shared.pages.store(pages, Ordering::Relaxed))
    }

    /// Bytes of pages in the WAL after the last commit.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes()
    }

    /// After the last commit: copies the rest; returns whether that was all of it.
    pub(super) fn finish(&self, conn: &Connection, health: &Health) -> bool {
        // The thread may be in the middle of its last copy.
        let until = Instant::now() + open::BUSY_TIMEOUT;
        loop {
            match copy(conn, &self.shared.mark, health) {
                Some(now) if now.is_busy() && Instant::now() < until => {
                    thread::sleep(BUSY_PAUSE);
                }
                now => return now.is_some_and(|now| !now.is_busy() && now.copied == now.pages),
            }
        }
    }

    /// Whether another program has checkpointed and emptied it.
    pub(super) fn is_emptied(&self, conn: &Connection, health: &Health) -> bool {
        // Checks the WAL index too: a WAL that was truncated by hand is empty, but not in the file.
        std::fs::metadata(&self.file).is_ok_and(|log| log.len() == 0)
            && copy(conn, &self.shared.mark, health).is_some_and(|now| now.pages == 0)
    }

    /// Whether a reader has made it longer than it gets under load.
    pub(super) fn is_long(&self) -> bool {
        self.shared.pages.load(Ordering::Relaxed) > self.limits.held_back_from
    }

    /// When idle: truncates a WAL that a reader has made long, once that reader has ended. Most of it is copied by
    /// the thread. `before_emptied` is called when all of it is copied.
    pub(super) fn shrink(
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
        if pages - self.shared.copied.load(Ordering::Relaxed) > self.limits.writer_copy_max {
            self.shared.caught_up.store(false, Ordering::Release);
            self.wake.try_send(()).unwrap_or_default();
            return;
        }
        let Some(now) = copy(conn, &self.shared.mark, health).filter(|now| !now.is_busy()) else {
            return;
        };
        self.shared.detect_blocking_reader(pages, now, self.limits, health);
        if now.copied != now.pages {
            return;
        }
        match before_emptied().map(|()| empty(conn)) {
            Ok(Ok(true)) => {
                self.shared.pages.store(0, Ordering::Relaxed);
                self.shared.copied.store(0, Ordering::Relaxed);
                self.before = 0;
            }
            // A reader of the newest state is in the way; retried later.
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the WAL could not be truncated"),
            Err(error) => tracing::debug!(%error, "the mark could not be cleared"),
        }
    }

    /// After a commit: wakes the thread, or copies the pages that it left.
    pub(super) fn after_commit(&mut self, conn: &Connection, health: &Health) {
        let pages = self.shared.pages.load(Ordering::Relaxed);
        if pages < self.before {
            // It was reset. The thread may still report its progress on the old one, which only delays its next
            // step.
            self.shared.copied.store(0, Ordering::Relaxed);
        }
        self.before = pages;
        let long = pages >= self.limits.start_over_from;
        // Outdated if the WAL was reset.
        let caught_up = self.shared.caught_up.swap(false, Ordering::Acquire);
        if long && caught_up || pages > self.limits.max {
            if let Some(now) = copy(conn, &self.shared.mark, health)
                && !now.is_busy()
            {
                self.shared.copied.store(now.copied, Ordering::Relaxed);
                self.shared.detect_blocking_reader(pages, now, self.limits, health);
            }
        } else if long
            || pages - self.shared.copied.load(Ordering::Relaxed) >= self.limits.copy_from
        {
            // If the channel is full the thread is awake already.
            self.wake.try_send(()).unwrap_or_default();
        }
    }
}

fn run_checkpointer(
    path: &Path,
    woken: &Receiver<()>,
    limits: Pages,
    shared: &CheckpointState,
    health: &Health,
) {
    let mut conn = None;
    while woken.recv().is_ok() {
        if shared.caught_up.load(Ordering::Acquire) {
            continue;
        }
        if conn.is_none() {
            conn = open::open_maintenance(path)
                .inspect_err(
                    |error| tracing::warn!(%error, "cannot open a connection for checkpoints"),
                )
                .ok();
        }
        let Some(conn) = &conn else { continue };
        // Each round is shorter than the one before, because less was written during it.
        for _ in 0..ROUNDS_MAX {
            let before = shared.pages.load(Ordering::Relaxed);
            let Some(now) = copy(conn, &shared.mark, health).filter(|now| !now.is_busy()) else {
                break;
            };
            let copied = now.copied;
            shared.copied.store(copied, Ordering::Relaxed);
            shared.detect_blocking_reader(before, now, limits, health);
            let pages = shared.pages.load(Ordering::Relaxed);
            if pages < limits.start_over_from {
                break;
            }
            if pages - copied <= limits.writer_copy_max {
                shared.caught_up.store(true, Ordering::Release);
                break;
            }
        }
    }
}

/// Empties a WAL that is copied; returns `false` if a reader is in the way. Does not wait, because commits
/// would wait with it.
fn empty(conn: &Connection) -> rusqlite::Result<bool> {
    conn.busy_timeout(Duration::ZERO)?;
    let busy = conn.query_row(queries::CHECKPOINT_TRUNCATE, [], |row| row.get::<_, i64>(0));
    conn.busy_timeout(open::BUSY_TIMEOUT)?;
    Ok(busy? == 0)
}

/// Copies as much as possible; returns the progress, or `None` if it failed.
fn copy(conn: &Connection, mark: &Mark, health: &Health) -> Option<CheckpointProgress> {
    // While pages are copied the file may hold a part of a commit: a loss of the WAL is then never harmless.
    if let Err(error) = mark.begin_copy() {
        tracing::warn!(%error, path = %mark.path().display(), "checkpoint skipped: the mark cannot be written");
        mark.end_copy(true).unwrap_or_default();
        return None;
    }
    let result = conn.prepare_cached(queries::CHECKPOINT_PASSIVE).and_then(|mut copy| {
        copy.query_row([], |row| Ok(CheckpointProgress { pages: row.get(1)?, copied: row.get(2)? }))
    });
    let noted = match &result {
        Ok(now) if now.is_busy() => mark.skip_copy(),
        result => mark.end_copy(result.is_ok()),
    };
    if let Err(error) = noted {
        tracing::warn!(%error, path = %mark.path().display(), "the end of a checkpoint could not be noted");
    }
    match result {
        Ok(now) if now.is_busy() => Some(now),
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

#[cfg(test)]
mod tests {
    use super::*;
    use admit_sqlite_log::mark;

    static IS_COPYING: AtomicBool = AtomicBool::new(false);
    static MAY_END: AtomicBool = AtomicBool::new(false);

    /// Called while a checkpoint holds its lock and waits for a reader.
    fn wait_for_reader(_: i32) -> bool {
        IS_COPYING.store(true, Ordering::SeqCst);
        while !MAY_END.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        false
    }

    #[test]
    fn a_checkpoint_beside_another_one_counts_as_no_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "journal_mode", "WAL").unwrap();
        conn.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        conn.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        let place = folder.path().join(mark::NAME);
        let mark = Mark::open(&place, Default::default()).unwrap();
        let other = thread::spawn(move || {
            let mut other = Connection::open(&path).unwrap();
            other.busy_handler(Some(wait_for_reader)).unwrap();
            other.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(())).unwrap();
        });
        while !IS_COPYING.load(Ordering::SeqCst) {
            assert!(!other.is_finished(), "the other checkpoint waits for the reader");
            thread::yield_now();
        }
        let now = copy(&conn, &mark, &Health::new()).unwrap();
        assert!(now.is_busy(), "{} of {} pages", now.copied, now.pages);
        MAY_END.store(true, Ordering::SeqCst);
        other.join().unwrap();
        reader.execute_batch("COMMIT").unwrap();
        let now = copy(&conn, &mark, &Health::new()).unwrap();
        assert_eq!((now.copied, now.is_busy()), (now.pages, false));
    }
}
