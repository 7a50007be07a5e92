//! The head of the ledger: one row that every writing transaction locks first.
//!
//! Whoever holds it is alone: gates write one group after the other, in the order in which they
//! commit. That makes places dense and visible in their order, and leaves nothing to deadlock on.

use std::time::Duration;

use admit_core::Seq;

use super::conn::{Ask, Columns, Conn, Result, big};
use super::sql;

/// Where the ledger stands. Read under the lock, written back before the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) last_seq: Seq,
    pub(super) admissions: u64,
    pub(super) sightings: u64,
    /// Keys ever claimed.
    pub(super) keys: u64,
    /// The number of the newest document that was issued.
    pub(super) last_issued: u64,
    /// How often something was given back to be claimed.
    pub(super) given_back: u64,
}

impl Position {
    /// The next place.
    pub(super) fn next(&mut self) -> Seq {
        self.last_seq = Seq(self.last_seq.0 + 1);
        self.last_seq
    }
}

/// Who begins a transaction.
pub(super) struct Beginner<'a> {
    pub(super) epoch: u64,
    /// What the transaction is known by.
    pub(super) token: &'a [u8],
    /// For how long the gate says that it is alive, when it is time to say so.
    pub(super) renew: Option<Duration>,
}

/// A transaction that has the lock.
pub(super) struct Begun {
    pub(super) position: Position,
    /// Whether the lease of the gate was alive once the lock was held.
    pub(super) is_alive: bool,
}

/// Begins a transaction: lock, lease and token in one round trip. The lease is looked at after the
/// lock is held, so nobody can have taken the gate for dead in between.
pub(super) fn begin(conn: &Conn, beginner: &Beginner<'_>) -> Result<Begun> {
    let (epoch, token) = (big(beginner.epoch), beginner.token);
    let lease = beginner.renew.map_or(0, millis);
    let alive = match beginner.renew {
        Some(_) => Ask::new(sql!("gate_renew"), vec![&epoch, &lease]),
        None => Ask::new(sql!("gate_alive"), vec![&epoch]),
    };
    let answers = conn.query_all(&[
        Ask::new("BEGIN", Vec::new()),
        Ask::new(sql!("head_lock"), Vec::new()),
        alive,
        Ask::new(sql!("token_clear"), vec![&epoch, &token]),
        Ask::new(sql!("token_put"), vec![&token, &epoch, &false]),
    ])?;
    let head = answers[1].first().ok_or_else(|| super::conn::Error::NotOurs(NO_HEAD.to_owned()))?;
    let position = Position {
        last_seq: head.seq("last_seq")?,
        admissions: head.num("admissions")?,
        sightings: head.num("sightings")?,
        keys: head.num("keys")?,
        last_issued: head.num("last_issued")?,
        given_back: head.num("given_back")?,
    };
    Ok(Begun { position, is_alive: !answers[2].is_empty() })
}

const NO_HEAD: &str = "the ledger has lost its head, restore it from a backup";

/// Writes back where the ledger stands.
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

/// A time as a number of milliseconds.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
