//! Pool of read-only connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use admit_core::{
    Age, Code, Digest, Door, EntityId, Fault, FaultKind, Key, Millis, Principal, Receipt,
    ReceiptId, Seq,
};
use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};
use tokio::sync::Semaphore;

use super::fault::unreadable;
use super::keys::find_anywhere;
use super::unreadable::{UnreadableCells, hide};
use super::{open, queries};
use crate::common::query_result::{QueryResult, downcast};
use crate::common::receipts::{StoredSighting, end_of, verdict};
use crate::port::{ReceiptFilter, ReceiptPage, Status};

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

    pub(super) fn tag(&self) -> u32 {
        self.tag
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
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

/// Returns the receipt at `seq`, whether of an admission or a sighting.
pub(super) fn receipt(conn: &Connection, tag: u32, seq: Seq) -> rusqlite::Result<Option<Receipt>> {
    let at = |seq: Seq| {
        conn.prepare_cached(queries::RECEIPT)?
            .query_row([seq.0], |row| receipt_row(row, tag))
            .optional()
    };
    if let Some(receipt) = at(seq)? {
        return Ok(Some(receipt));
    }
    let sighting = conn
        .prepare_cached(queries::SIGHTING)?
        .query_row([seq.0], |row| {
            Ok(StoredSighting {
                seq,
                admission: Seq(row.get("admission")?),
                other: row.get::<_, Option<u64>>("other")?.map(Seq),
                received_at: Millis(row.get("received_at")?),
                attempt: row.get("attempt")?,
            })
        })
        .optional()?;
    let Some(copy) = sighting else { return Ok(None) };
    let Some(of) = at(copy.other.unwrap_or(copy.admission))? else { return Ok(None) };
    Ok(Some(copy.receipt(of, tag)))
}

/// Returns the receipt of the admission that claimed `key`.
pub(super) fn find(conn: &Connection, tag: u32, key: &Key) -> rusqlite::Result<Option<Receipt>> {
    // One snapshot, or a key that is being merged could be in neither place.
    let tx = conn.unchecked_transaction()?;
    find_anywhere(&tx, key)?.map_or(Ok(None), |seq| receipt(&tx, tag, seq))
}

pub(super) fn body(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<Bytes>> {
    conn.prepare_cached(queries::BODY)?
        .query_row([seq.0], |row| row.get::<_, Vec<u8>>(0).map(Bytes::from))
        .optional()
}

pub(super) fn list(
    conn: &Connection,
    tag: u32,
    filter: &ReceiptFilter,
) -> rusqlite::Result<Vec<Receipt>> {
    list_to(conn, tag, filter, Seq::MAX)
}

/// Returns a page; at most `examined_max` admissions are examined.
pub(super) fn page_of(
    conn: &Connection,
    tag: u32,
    filter: &ReceiptFilter,
    examined_max: usize,
) -> rusqlite::Result<ReceiptPage> {
    let window = match is_of_quarantine(filter) {
        true => queries::LIST_QUARANTINE_WINDOW,
        false => queries::LIST_WINDOW,
    };
    // The first admission that is not examined any more.
    let beyond: Option<u64> = match filter.is_selective() {
        true => conn
            .prepare_cached(window)?
            .query_row((filter.after.0, count(examined_max)), |row| row.get(0))
            .optional()?,
        false => None,
    };
    let examined_to = beyond.map(|beyond| Seq(beyond.saturating_sub(1)));
    let receipts = list_to(conn, tag, filter, examined_to.unwrap_or(Seq::MAX))?;
    Ok(ReceiptPage::of(receipts, filter.rows_max, examined_to))
}

fn is_of_quarantine(filter: &ReceiptFilter) -> bool {
    let quarantine = |verdict: &String| verdict == "conflict" || verdict == "refused";
    !filter.verdicts.is_empty() && filter.verdicts.iter().all(quarantine)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns receipts up to the seq `to`.
fn list_to(
    conn: &Connection,
    tag: u32,
    filter: &ReceiptFilter,
    to: Seq,
) -> rusqlite::Result<Vec<Receipt>> {
    let query = if is_of_quarantine(filter) { queries::LIST_QUARANTINE } else { queries::LIST };
    let verdicts =
        (!filter.verdicts.is_empty()).then(|| format!(" {} ", filter.verdicts.join(" ")));
    let ReceiptFilter { door, principal, after, rows_max, .. } = filter;
    conn.prepare_cached(query)?
        .query_map((door, principal, verdicts, after.0, count(*rows_max), to.0), |row| {
            receipt_row(row, tag)
        })?
        .collect()
}

pub(super) fn document(conn: &Connection, id: &EntityId) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(queries::DOCUMENT_GET)?
        .query_row((id.projection, &id.entity), |row| row.get(0))
        .optional()
}

pub(super) fn documents(
    conn: &Connection,
    projection: &str,
    prefix: &str,
    after: Option<&str>,
    rows_max: usize,
) -> rusqlite::Result<Vec<(String, String)>> {
    let end = end_of(prefix);
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::DOCUMENTS)?
        .query_map((projection, prefix, end, after.unwrap_or(""), rows_max), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect()
}

pub(super) fn status(conn: &Connection, path: &Path) -> rusqlite::Result<Status> {
    let size = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |meta| meta.len())
    };
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let free_bytes = pragma("freelist_count")? * pragma("page_size")?;
    conn.prepare_cached(queries::STATUS)?.query_row([], |row| {
        let count = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<u64>>(at)?.unwrap_or(0));
        let at = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(Millis));
        let keys: Option<u64> = row.get(5)?;
        let removed_keys = count(11)?;
        Ok(Status {
            admissions: count(0)?.saturating_sub(count(8)?),
            sightings: count(1)?.saturating_sub(count(9)?),
            last_seq: Seq(count(2)?),
            oldest_at: at(3)?,
            bytes: size("") + size("-wal"),
            free_bytes,
            keys: keys.map(|keys| keys.saturating_sub(removed_keys)),
            oldest_body_at: at(4)?,
            retain: row.get::<_, Option<u64>>(6)?.map(Age::from_millis),
            forgotten_to: at(7)?,
            trusted_at: at(12)?,
            refusals: count(13)?,
            refusal_bytes: count(14)?,
            removed_bodies: count(10)?,
            removed_keys,
            gates: Vec::new(),
        })
    })
}

fn receipt_row(row: &Row<'_>, ledger: u32) -> rusqlite::Result<Receipt> {
    let word = row.get_ref("verdict")?.as_str()?;
    let verdict = verdict(word).ok_or_else(|| {
        let unknown = format!("verdict {word:?} is unknown").into();
        rusqlite::Error::FromSqlConversionFailure(3, Type::Text, unknown)
    })?;
    let code = row.get_ref("code")?.as_str_or_null()?.and_then(Code::parse);
    let message: Option<String> = row.get("message")?;
    Ok(Receipt {
        id: ReceiptId { ledger, seq: Seq(row.get("seq")?) },
        door: Door::new(row.get_ref("door")?.as_str()?),
        principal: Principal::new(row.get_ref("principal")?.as_str()?),
        verdict,
        key: row.get::<_, Option<[u8; 32]>>("key")?.map(Key::from_bytes),
        digest: Digest::from_bytes(row.get("digest")?),
        received_at: Millis(row.get("received_at")?),
        last_seen_at: Millis(row.get("last_seen_at")?),
        duplicate_count: row.get("duplicate_count")?,
        last_attempt: row.get("last_attempt")?,
        first: row.get::<_, Option<u64>>("first")?.map(|seq| ReceiptId { ledger, seq: Seq(seq) }),
        reason: code.map(|code| (code, message.unwrap_or_default())),
        facts: Bytes::from(row.get::<_, String>("facts")?),
    })
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
