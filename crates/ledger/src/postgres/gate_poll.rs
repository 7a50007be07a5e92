//! Notifies subscribers of streams, including of entries committed by other gates.

use std::sync::Weak;
use std::time::Duration;

use admit_core::{Door, Seq};
use tokio::sync::watch;
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Result};
use super::reader::ReadPool;
use super::{PostgresLedger, sql};
use crate::common::notifier;
use crate::port::StreamNotifier;

/// How often the commits of other gates are polled, while there are subscribers.
const POLL_EVERY: Duration = Duration::from_millis(250);

impl StreamNotifier for PostgresLedger {
    fn subscribe(&self, door: &Door) -> watch::Receiver<Seq> {
        self.notifier.subscribe(door)
    }
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
