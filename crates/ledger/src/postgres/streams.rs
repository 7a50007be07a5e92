//! Reading a stream on from a place, over the index that holds its order; and hearing of news, also
//! of what other gates commit.

use std::sync::Weak;
use std::time::Duration;

use admit_core::{Door, Fault, Key, Principal, Seq};
use bytes::Bytes;
use tokio::sync::watch;
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Error, Result, big, rows};
use super::reader::Asking;
use super::{PostgresLedger, PostgresReader, sql};
use crate::common::news;
use crate::common::receipts::{Paging, verdict};
use crate::port::{BoxFuture, News, Page, StreamEntry, Streams};

/// How often somebody looks for what other gates have committed, while anybody waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);

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

impl News for PostgresLedger {
    fn news(&self, door: &Door) -> watch::Receiver<Seq> {
        self.news.subscribe(door)
    }
}

/// The rows that one question may bring into memory before the limit of bytes is looked at.
const READ_ROWS: usize = 64;

fn page(conn: &Conn, door: &Door, after: Seq, rows_max: usize, bytes_max: usize) -> Result<Page> {
    let mut paging = Paging::after(after, rows_max, bytes_max);
    // One row more than wanted tells whether there is more.
    let (mut left, mut after) = (rows_max.saturating_add(1), after);
    while left > 0 {
        let limit = left.min(READ_ROWS);
        let read = conn.query(sql!("stream"), &[&door.as_str(), &big(after.0), &rows(limit)])?;
        for row in &read {
            let entry = entry(row)?;
            after = entry.seq;
            if !paging.take(entry) {
                return Ok(paging.done());
            }
        }
        if read.len() < limit {
            break;
        }
        left -= read.len();
    }
    Ok(paging.done())
}

/// One entry of a stream.
pub(super) fn entry(row: &Row) -> Result<StreamEntry> {
    let word: String = row.val("verdict")?;
    let verdict = verdict(&word)
        .filter(|word| ["fresh", "revision"].contains(word))
        .ok_or_else(|| Error::not_ours("verdict in a stream", &word))?;
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

/// Tells local waiters what other gates commit, for as long as it is polled. Local commits are told
/// by the writer at once. A notification by the database would come sooner, but every commit that
/// sends one waits for a lock that all of them share.
pub(super) async fn look_for_news(asking: Asking, news: Weak<news::News>, opened_at: Turn) {
    let mut seen = opened_at;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(doors) = news.upgrade().map(|news| news.listened_to()) else { return };
        if doors.is_empty() {
            continue;
        }
        let before = seen;
        let look = move |conn: &Conn, _| newest(conn, &doors, before);
        // A database that is away has no news; the next look finds what it had.
        let Ok((turn, found)) = asking.read(look).await else { continue };
        let Some(news) = news.upgrade() else { return };
        for (door, seq) in found {
            news.heard(&door, seq, turn.given_back != seen.given_back);
        }
        news.known_to(turn.last_seq);
        seen = turn;
    }
}

/// What tells that something happened in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) last_seq: Seq,
    pub(super) given_back: u64,
}

impl Turn {
    pub(super) fn read(row: &Row) -> Result<Self> {
        Ok(Self { last_seq: row.seq("last_seq")?, given_back: row.num("given_back")? })
    }
}

/// How the ledger has turned, and the newest place of each stream if it has.
fn newest(conn: &Conn, doors: &[Door], before: Turn) -> Result<(Turn, Vec<(Door, Seq)>)> {
    let turn = Turn::read(&conn.query_one(sql!("head_get"), &[])?)?;
    if turn == before {
        return Ok((turn, Vec::new()));
    }
    let mut found = Vec::new();
    for door in doors {
        let newest = conn.query_opt(sql!("stream_newest"), &[&door.as_str()])?;
        let seq = newest.map(|row| row.seq("seq")).transpose()?.unwrap_or_default();
        found.push((door.clone(), seq));
    }
    Ok((turn, found))
}
