//! Head lock: one row that every writing transaction locks first.
//!
//! Its holder is the only writer: gates write one batch after the other, in commit order. That makes seqs
//! dense and visible in order, and rules out deadlocks.

use std::time::Duration;

use admit_core::Seq;

use tokio_postgres::Row;

use super::conn::{Columns, Conn, OwnedParam, OwnedQuery, Result, big};
use super::sql;

/// Counters of the ledger. Read under the lock, written back before the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) last_seq: Seq,
    pub(super) admissions: u64,
    pub(super) sightings: u64,
    /// Keys ever claimed.
    pub(super) keys: u64,
    /// Number of the newest document.
    pub(super) last_issued: u64,
    /// Number of released claims, as a change marker.
    pub(super) given_back: u64,
}

impl Position {
    /// Returns the next seq.
    pub(super) fn next(&mut self) -> Seq {
        self.last_seq = Seq(self.last_seq.0 + 1);
        self.last_seq
    }
}

/// Parameters of a transaction.
pub(super) struct TransactionStart<'a> {
    pub(super) epoch: u64,
    /// Commit token.
    pub(super) token: &'a [u8],
    /// New lease duration, if the lease is due for renewal.
    pub(super) renew: Option<Duration>,
}

/// A transaction that holds the lock.
pub(super) struct LockedHead {
    pub(super) position: Position,
    /// Whether the lease of the gate was alive when the lock was acquired.
    pub(super) is_alive: bool,
}

/// Begins a transaction: lock, lease, token and `lookups` in one round trip. Returns the results of the
/// lookups. The lease is checked after the lock is acquired, so no other gate can have treated this one as
/// dead in between, and the lookups see everything that was committed before.
pub(super) fn begin(
    conn: &Conn,
    start: &TransactionStart<'_>,
    lookups: Vec<OwnedQuery<'_>>,
) -> Result<(LockedHead, Vec<Vec<Row>>)> {
    let (epoch, token) = (big(start.epoch), start.token);
    let lease = start.renew.map_or(0, millis);
    let alive = match start.renew {
        Some(_) => OwnedQuery::new(sql!("gate_renew"), vec![Box::new(epoch), Box::new(lease)]),
        None => OwnedQuery::new(sql!("gate_alive"), vec![Box::new(epoch)]),
    };
    let mut queries = vec![
        OwnedQuery::new("BEGIN", Vec::new()),
        OwnedQuery::new(sql!("head_lock"), Vec::new()),
        alive,
        OwnedQuery::new(sql!("token_clear"), vec![Box::new(epoch), Box::new(token)]),
        OwnedQuery::new(sql!("token_put"), vec![Box::new(token), Box::new(epoch), Box::new(false)]),
    ];
    let own = queries.len();
    queries.extend(lookups);
    let mut answers = conn.query_all(&queries)?;
    let looked_up = answers.split_off(own);
    let head =
        answers[1].first().ok_or_else(|| super::conn::Error::Unexpected(NO_HEAD.to_owned()))?;
    let position = Position {
        last_seq: head.seq("last_seq")?,
        admissions: head.num("admissions")?,
        sightings: head.num("sightings")?,
        keys: head.num("keys")?,
        last_issued: head.num("last_issued")?,
        given_back: head.num("given_back")?,
    };
    Ok((LockedHead { position, is_alive: !answers[2].is_empty() }, looked_up))
}

const NO_HEAD: &str = "the head row of the ledger is missing, restore it from a backup";

/// The statement that writes back the counters.
pub(super) fn put(position: &Position) -> OwnedQuery<'static> {
    let Position { last_seq, admissions, sightings, keys, last_issued, given_back } = *position;
    let counters = [last_seq.0, admissions, sightings, keys, last_issued, given_back];
    let params = counters.map(|counter| Box::new(big(counter)) as OwnedParam<'static>);
    OwnedQuery::new(sql!("head_put"), Vec::from(params))
}

/// Converts a duration to milliseconds.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
