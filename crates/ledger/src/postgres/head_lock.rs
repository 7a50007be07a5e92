//! Head lock: one row that every writing transaction locks first.
//!
//! Its holder is the only writer: gates write one batch after the other, in commit order. That makes seqs
//! dense and visible in order, and rules out deadlocks.

use std::time::Duration;

use admit_core::Seq;

use super::conn::{Columns, Conn, Query, Result, big};
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

/// Begins a transaction: lock, lease and token in one round trip. The lease is checked after the lock is
/// acquired, so no other gate can have treated this one as dead in between.
pub(super) fn begin(conn: &Conn, start: &TransactionStart<'_>) -> Result<LockedHead> {
    let (epoch, token) = (big(start.epoch), start.token);
    let lease = start.renew.map_or(0, millis);
    let alive = match start.renew {
        Some(_) => Query::new(sql!("gate_renew"), vec![&epoch, &lease]),
        None => Query::new(sql!("gate_alive"), vec![&epoch]),
    };
    let answers = conn.query_all(&[
        Query::new("BEGIN", Vec::new()),
        Query::new(sql!("head_lock"), Vec::new()),
        alive,
        Query::new(sql!("token_clear"), vec![&epoch, &token]),
        Query::new(sql!("token_put"), vec![&token, &epoch, &false]),
    ])?;
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
    Ok(LockedHead { position, is_alive: !answers[2].is_empty() })
}

const NO_HEAD: &str = "the head row of the ledger is missing, restore it from a backup";

/// Writes back the counters.
pub(super) fn put(conn: &Conn, position: &Position) -> Result<()> {
    conn.execute(
        sql!("head_put"),
        &[
            &big(position.last_seq.0),
            &big(position.admissions),
            &big(position.sightings),
            &big(position.keys),
            &big(position.last_issued),
            &big(position.given_back),
        ],
    )?;
    Ok(())
}

/// Converts a duration to milliseconds.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
