//! Claims: consumers share the work of a stream, each entry in one pair of hands at a time.
//!
//! ```text
//! waiting --claim--> held by one consumer, under a lease
//! held --finish before the lease expires--> done, for ever
//! held --release, or the lease expires--> free --claim--> held again, under a new lease
//! ```
//!
//! Time is what the caller says it is. A lease is expired from its `expires_at` on, whether or not
//! somebody else has claimed the entry since: a consumer can tell from its own clock.

use std::fmt;
use std::str::FromStr;

use admit_core::{Age, Door, Fault, Millis, Seq, hash};

use super::{BoxFuture, StreamEntry};

/// The status that needs no further word. Any other is kept with its entry, and can be listed.
pub const DONE: &str = "done";

/// The longest life of a lease. One that seems to reach further into the future was written by a clock
/// that was wrong, and holds nothing.
pub const LEASE_LIFE_MAX: Age = Age::from_secs(86_400);

/// Hands out the entries of streams. As with `record`, an answer means that its commit is durable,
/// and a fault never claims more than is known: after `outcome_unknown` a claim may be held until
/// its lease expires, and a change may have happened, which asking again shows.
pub trait Claims: Send + Sync {
    /// Claims what is free first (longest first), then what was never claimed, in ledger order; the
    /// answer is in ledger order. It takes as long as the answer is, however much is done already.
    fn claim(&self, wanted: Wanted) -> BoxFuture<'_, Result<Vec<Claimed>, Fault>>;

    /// Finishes, extends or releases what the leases hold at `door`; one answer each, in order.
    fn change(
        &self,
        door: Door,
        changes: Vec<LeaseChange>,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<LeaseAnswer>, Fault>>;

    /// How far the consumers of a stream are.
    fn standing(&self, door: Door, now: Millis) -> BoxFuture<'_, Result<Standing, Fault>>;

    /// What was finished with another word than [`DONE`], in ledger order after `after`.
    fn finished(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Finished>, Fault>>;

    /// Finishes one entry.
    fn finish(
        &self,
        door: Door,
        seq: Seq,
        lease: Lease,
        status: &str,
        now: Millis,
    ) -> BoxFuture<'_, Result<LeaseAnswer, Fault>> {
        let change = Change::Finish { status: status.to_owned() };
        one(self.change(door, vec![LeaseChange { seq, lease, change }], now))
    }
}

fn one<'a>(
    changed: BoxFuture<'a, Result<Vec<LeaseAnswer>, Fault>>,
) -> BoxFuture<'a, Result<LeaseAnswer, Fault>> {
    Box::pin(async { Ok(changed.await?.remove(0)) })
}

/// What a consumer wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// From which stream.
    pub door: Door,
    /// Who wants it; for people, not for access.
    pub consumer: String,
    /// At most so many entries.
    pub rows_max: usize,
    /// At most so many bytes of bodies, unless the first one alone is larger.
    pub bytes_max: usize,
    /// For how long.
    pub lease: Age,
    /// The time now.
    pub now: Millis,
}

/// An entry in the hands of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// What it is.
    pub entry: StreamEntry,
    /// Proves that it is held.
    pub lease: Lease,
    /// From then on it is not.
    pub expires_at: Millis,
    /// How often it was claimed, this time included.
    pub attempt: u32,
}

/// The proof of a claim: 128 random bits, as 32 lower-case hex digits.
#[derive(Clone, Copy)]
pub struct Lease([u8; 16]);

impl Lease {
    /// The lease with these bits.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bits.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl PartialEq for Lease {
    /// In constant time: how long it takes must not tell how much of a guess was right.
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl Eq for Lease {}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hash::hex(&self.0))
    }
}

impl fmt::Debug for Lease {
    /// Enough to tell two apart in a log, too little to use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({}…)", hash::hex(&self.0[..3]))
    }
}

/// A text that is not a lease.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a lease is 32 lower-case hex digits")]
pub struct NotALease;

impl FromStr for Lease {
    type Err = NotALease;

    fn from_str(text: &str) -> Result<Self, NotALease> {
        if text.len() != 32 || text.bytes().any(|digit| digit.is_ascii_uppercase()) {
            return Err(NotALease);
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(NotALease);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).map_err(|_| NotALease)?;
        }
        Ok(Self(bytes))
    }
}

/// What to do with one held entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseChange {
    /// Its place.
    pub seq: Seq,
    /// The proof that it is held.
    pub lease: Lease,
    /// What to do.
    pub change: Change,
}

/// A change of a held entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is finished and never handed out again.
    Finish {
        /// [`DONE`], or a word that is kept for whoever looks later (`failed`).
        status: String,
    },
    /// It is held for longer.
    Extend {
        /// Until then.
        until: Millis,
    },
    /// It is given back.
    Release {
        /// From then on it may be claimed.
        again_at: Millis,
    },
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseAnswer {
    /// It is done as asked.
    Done,
    /// The lease has expired, was given back, or was never one of this entry. Nothing changed.
    StaleLease,
    /// There is no such entry in this stream, or no more.
    UnknownPlace,
    /// It was finished before, perhaps by this very call when its answer was lost.
    AlreadyDone,
}

/// How far the consumers of a stream are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Everything up to here was handed out at least once.
    pub head: Seq,
    /// The newest place of the stream.
    pub newest: Seq,
    /// So many are held.
    pub held: u64,
    /// So many were handed out and are free again.
    pub free: u64,
    /// When the next held one becomes free, if nothing is done.
    pub free_at: Option<Millis>,
}

/// How an entry was finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its place.
    pub seq: Seq,
    /// The consumer's word.
    pub status: String,
    /// Who finished it.
    pub consumer: String,
    /// When.
    pub finished_at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_spelling_and_logs_do_not_tell_it() {
        let lease = Lease::from_bytes(std::array::from_fn(|at| u8::try_from(at * 17).unwrap()));
        let text = lease.to_string();
        assert_eq!(text, "00112233445566778899aabbccddeeff");
        assert_eq!(text.parse(), Ok(lease));
        for wrong in ["", "00", &text.to_uppercase(), &text.replace("ff", "fg"), &text.repeat(2)] {
            assert_eq!(wrong.parse::<Lease>(), Err(NotALease), "{wrong}");
        }
        assert_eq!(format!("{lease:?}"), "Lease(001122…)");
    }
}
