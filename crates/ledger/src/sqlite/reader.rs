//! Pool of read-only connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use admit_core::{Fault, FaultKind, Key, Seq};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::fault::unreadable;
use super::keys::find_anywhere;
use super::unreadable::{UnreadableCells, hide};
use super::{SqliteLedger, SqliteReader, open};
use crate::common::query_result::{QueryResult, downcast};
use crate::db::Db as _;
use crate::port::Status;
use crate::tables::receipt::{CompleteStatus, ReceiptBackend};

/// Maximum concurrent reads; more wait.
const READERS_MAX: usize = 4;

/// Timeout of a read. An old read transaction would prevent the WAL from being reset.
const READ_MAX: Duration = Duration::from_secs(5);

/// Virtual-machine steps between two checks of the clock.
const STEPS_PER_LOOK: i32 = 10_000;

/// A query.
type Read = Box<dyn FnOnce(&Connection, u32) -> rusqlite::Result<QueryResult> + Send>;

/// Opens a connection.
type OpenConnection = dyn Fn(&Path) -> rusqlite::Result<Connection> + Send + Sync;

/// Pool of read-only connections.
#[derive(Clone)]
pub(super) struct Readers {
    path: PathBuf,
    tag: u32,
    open: Arc<OpenConnection>,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    /// Pool of the process that writes.
    pub(super) fn new(path: &Path, tag: u32) -> Self {
        Self::with_open(open::open_reader, path, tag)
    }

    /// Pool of another process, which does not checkpoint when it is the last to close.
    pub(super) fn read_only(path: &Path, tag: u32) -> Self {
        Self::with_open(open::open_read_only, path, tag)
    }

    /// The same, without the rows that have an unreadable cell.
    pub(super) fn hiding(path: &Path, tag: u32, cells: UnreadableCells) -> Self {
        let open = move |path: &Path| {
            let conn = open::open_read_only(path)?;
            hide(&conn, &cells)?;
            Ok(conn)
        };
        Self::with_open(open, path, tag)
    }

    fn with_open(
        open: impl Fn(&Path) -> rusqlite::Result<Connection> + Send + Sync + 'static,
        path: &Path,
        tag: u32,
    ) -> Self {
        Self {
            path: path.to_owned(),
            tag,
            open: Arc::new(open),
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(READERS_MAX)),
        }
    }

    /// Runs `read` on a connection, off the async threads, for at most [`READ_MAX`].
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection, u32) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let read: Read = Box::new(move |conn, tag| Ok(Box::new(read(conn, tag)?)));
        downcast(self.run(read).await?).ok_or_else(gone)
    }

    async fn run(&self, read: Read) -> Result<QueryResult, Fault> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| gone())?;
        let readers = self.clone();
        // Dropped with this future: a disconnected caller needs no result.
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let task = tokio::task::spawn_blocking(move || {
            let result = readers.run_now(read, is_wanted);
            // Not before: a read continues after its caller is gone, and counts until it has ended.
            drop(permit);
            result
        });
        task.await.map_err(|_| gone())?.map_err(unreadable)
    }

    /// Runs `read` until the timeout, or until its caller is gone.
    fn run_now(&self, read: Read, is_wanted: Weak<()>) -> rusqlite::Result<QueryResult> {
        let pooled = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut conn = match pooled {
            Some(conn) => conn,
            None => (self.open)(&self.path)?,
        };
        let started = Instant::now();
        let is_over = move || started.elapsed() > READ_MAX || is_wanted.strong_count() == 0;
        conn.progress_handler(STEPS_PER_LOOK, Some(is_over))?;
        let result = read(&conn, self.tag);
        // A connection that failed is not used again.
        if result.is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        }
        result
    }
}

fn gone() -> Fault {
    Fault::new(FaultKind::Internal, "the ledger's readers are gone")
}

impl ReceiptBackend for SqliteLedger {
    fn ledger_tag(&self) -> u32 {
        self.readers.tag
    }

    fn find_key(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
        find_in_snapshot(conn, key)
    }

    fn complete_status(&self) -> CompleteStatus<Connection> {
        Box::new(sizes(self.readers.path.clone()))
    }
}

impl ReceiptBackend for SqliteReader {
    fn ledger_tag(&self) -> u32 {
        self.readers.tag
    }

    fn find_key(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
        find_in_snapshot(conn, key)
    }

    fn complete_status(&self) -> CompleteStatus<Connection> {
        Box::new(sizes(self.readers.path.clone()))
    }
}

/// In one snapshot, or a key that is being merged could be in neither place.
fn find_in_snapshot(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    conn.snapshot(|| find_anywhere(conn, key))
}

/// Adds the sizes of the files at `path`.
fn sizes(path: PathBuf) -> impl Fn(&Connection, &mut Status) -> rusqlite::Result<()> {
    move |conn, status| {
        let size = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            std::fs::metadata(name).map_or(0, |meta| meta.len())
        };
        let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        status.bytes = size("") + size("-wal");
        status.free_bytes = pragma("freelist_count")? * pragma("page_size")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::sync_channel;
    use tokio::sync::RwLock;
    use tokio::time::timeout;

    fn readers() -> (tempfile::TempDir, Readers) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(open::FILE);
        drop(open::recover(&path).unwrap());
        let readers = Readers::new(&path, 0);
        (folder, readers)
    }

    /// An endless query.
    const ENDLESS: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) \
                           SELECT count(*) FROM n";

    /// Including reads whose callers are gone and that do not notice.
    #[tokio::test]
    async fn no_more_reads_run_at_a_time_than_may() {
        let (_folder, readers) = readers();
        let (begun, free) = (Arc::new(AtomicUsize::new(0)), Arc::new(RwLock::new(())));
        let held = free.write().await;
        for _ in 0..2 * READERS_MAX {
            let (begun, free) = (begun.clone(), free.clone());
            let read = readers.read(move |_, _| {
                begun.fetch_add(1, Ordering::SeqCst);
                drop(free.blocking_read());
                Ok(())
            });
            timeout(Duration::from_millis(50), read).await.expect_err("it is blocked");
        }
        while begun.load(Ordering::SeqCst) < READERS_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(begun.load(Ordering::SeqCst), READERS_MAX);
        drop(held);
        readers.read(|_, _| Ok(())).await.unwrap();
        assert_eq!(begun.load(Ordering::SeqCst), READERS_MAX, "the callers of the others are gone");
    }

    #[tokio::test]
    async fn a_disconnected_caller_leaves_no_read_behind() {
        let (_folder, readers) = readers();
        let (report, reports) = sync_channel(4 * READERS_MAX);
        for _ in 0..4 * READERS_MAX {
            let (report, begun) = (report.clone(), Instant::now());
            let read = readers.read(move |conn, _| {
                let ended = conn.query_row(ENDLESS, [], |row| row.get::<_, u64>(0));
                report.send((ended.is_err(), begun.elapsed())).unwrap();
                ended
            });
            timeout(Duration::from_millis(20), read).await.expect_err("it is endless");
        }
        let seven =
            |conn: &Connection, _| conn.query_row("SELECT 7", [], |row| row.get::<_, u64>(0));
        assert_eq!(readers.read(seven).await.unwrap(), 7);
        while readers.permits.available_permits() < READERS_MAX {
            tokio::task::yield_now().await;
        }
        drop(report);
        for (failed, took) in reports {
            assert!(failed && took < READ_MAX, "it ran on for {took:?}");
        }
    }
}
