//! Reads streams over the index of their order, and notifies subscribers, including of entries committed by
//! other gates.

use std::sync::Weak;
use std::time::Duration;

use admit_core::{Door, Fault, Key, Principal, Seq};
use bytes::Bytes;
use tokio::sync::watch;
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Error, Result, big, rows};
use super::reader::ReadPool;
use super::{PostgresLedger, PostgresReader, sql};
use crate::common::notifier;
use crate::common::receipts::{PageBuilder, verdict};
use crate::port::{BoxFuture, Page, StreamEntry, StreamNotifier, Streams};

/// How often the commits of other gates are polled, while there are subscribers.
const POLL_EVERY: Duration = Duration::from_millis(250);

macro_rules! read_streams {
    ($($ledger:ty),+) => {$(
        impl Streams for $ledger {
            fn read(
                &self,
                door: Door,
                after: Seq,
                rows_max: usize,
                bytes_max: usize,
            ) -> BoxFuture<'_, std::result::Result<Page, Fault>> {
                Box::pin(self.readers.read(move |conn, _| {
                    page(conn, &door, after, rows_max, bytes_max)
                }))
            }
        }
    )+};
}

read_streams!(PostgresLedger, PostgresReader);

impl StreamNotifier for PostgresLedger {
    fn subscribe(&self, door: &Door) -> watch::Receiver<Seq> {
        self.notifier.subscribe(door)
    }
}

/// Rows read per query before the byte limit is checked.
const READ_ROWS: usize = 64;

fn page(conn: &Conn, door: &Door, after: Seq, rows_max: usize, bytes_max: usize) -> Result<Page> {
    let mut builder = PageBuilder::after(after, rows_max, bytes_max);
    // One row more than requested shows whether there is more.
    let (mut left, mut after) = (rows_max.saturating_add(1), after);
    while left > 0 {
        let limit = left.min(READ_ROWS);
        let read = conn.query(sql!("stream"), &[&door.as_str(), &big(after.0), &rows(limit)])?;
        for row in &read {
            let entry = entry(row)?;
            after = entry.seq;
            if !builder.take(entry) {
                return Ok(builder.done());
            }
        }
        if read.len() < limit {
            break;
        }
        left -= read.len();
    }
    Ok(builder.done())
}

/// One entry of a stream.
pub(super) fn entry(row: &Row) -> Result<StreamEntry> {
    let word: String = row.val("verdict")?;
    let verdict = verdict(&word)
        .filter(|word| ["fresh", "revision"].contains(word))
        .ok_or_else(|| Error::unexpected("verdict in a stream", &word))?;
    Ok(StreamEntry {
        seq: row.seq("seq")?,
        key: Key::from_bytes(row.bytes32("key")?),
        verdict,
        principal: Principal::new(&row.text("principal")?),
        received_at: row.millis("received_at")?,
        facts: Bytes::from(row.text("facts")?),
        body: row.val::<Option<Vec<u8>>>("bytes")?.map(Bytes::from),
    })
}

/// Notifies local subscribers of commits by other gates, for as long as it is polled. The writer notifies of
/// local commits directly. NOTIFY would be faster, but every commit that sends one waits for a lock that
/// all of them share.
pub(super) async fn poll_other_gates(
    pool: ReadPool,
    notifier: Weak<notifier::Notifier>,
    initial: ChangeMarker,
) {
    let mut seen = initial;
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        let Some(doors) = notifier.upgrade().map(|notifier| notifier.subscribed_doors()) else {
            return;
        };
        if doors.is_empty() {
            continue;
        }
        let before = seen;
        let query = move |conn: &Conn, _| newest(conn, &doors, before);
        // If the database is unavailable the next poll finds what it had.
        let Ok((marker, newest_seqs)) = pool.read(query).await else { continue };
        let Some(notifier) = notifier.upgrade() else { return };
        for (door, seq) in newest_seqs {
            notifier.notify_remote(&door, seq, marker.given_back != seen.given_back);
        }
        notifier.advance_newest(marker.last_seq);
        seen = marker;
    }
}

/// Changes whenever a stream may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangeMarker {
    pub(super) last_seq: Seq,
    pub(super) given_back: u64,
}

impl ChangeMarker {
    pub(super) fn read(row: &Row) -> Result<Self> {
        Ok(Self { last_seq: row.seq("last_seq")?, given_back: row.num("given_back")? })
    }
}

/// Returns the change marker, and the newest seq of each stream if it has changed.
fn newest(
    conn: &Conn,
    doors: &[Door],
    before: ChangeMarker,
) -> Result<(ChangeMarker, Vec<(Door, Seq)>)> {
    let marker = ChangeMarker::read(&conn.query_one(sql!("head_get"), &[])?)?;
    if marker == before {
        return Ok((marker, Vec::new()));
    }
    let mut newest_seqs = Vec::new();
    for door in doors {
        let newest = conn.query_opt(sql!("stream_newest"), &[&door.as_str()])?;
        let seq = newest.map(|row| row.seq("seq")).transpose()?.unwrap_or_default();
        newest_seqs.push((door.clone(), seq));
    }
    Ok((marker, newest_seqs))
}
