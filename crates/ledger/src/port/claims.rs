//! Port of claims: consumers share the work of a stream, each entry leased to one consumer at a time.
//!
//! ```text
//! waiting --claim--> held by one consumer, under a lease
//! held --finish before the lease expires--> done, for ever
//! held --release, or the lease expires--> free --claim--> held again, under a new lease
//! ```
//!
//! The caller provides the time. A lease is expired from its `expires_at` on, whether or not another
//! consumer has claimed the entry since, which a consumer can check with its own clock.

use std::fmt;
use std::str::FromStr;

use admit_core::{Age, Door, Fault, Millis, Seq, hash};

use super::{BoxFuture, StreamEntry};

/// The default status of a finished entry. Any other status is stored with the entry, and can be listed.
pub const DONE: &str = "done";

/// Maximum lifetime of a lease. A lease that seems to reach further into the future was written by a
/// wrong clock, and is treated as expired.
pub const LEASE_LIFE_MAX: Age = Age::from_secs(86_400);

/// Leases the entries of streams. As with `record`, a result means that its commit is durable, and a
/// fault never claims more than is known: after `outcome_unknown` a claim may be held until its lease
/// expires, and a change may have been made, which a retry shows.
pub trait Claims: Send + Sync {
    /// Claims entries that are free again (longest first), then new ones. Returns them in ledger order.
    /// The cost depends on the result only, not on the number of finished entries.
    fn claim(&self, wanted: ClaimRequest) -> BoxFuture<'_, Result<Vec<ClaimedEntry>, Fault>>;

    /// Finishes, extends or releases leases at `door`; returns one result each, in order.
    fn change(
        &self,
        door: Door,
        changes: Vec<LeaseChange>,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<LeaseResult>, Fault>>;

    /// Returns the progress of the consumers of a stream.
    fn claim_progress(
        &self,
        door: Door,
        now: Millis,
    ) -> BoxFuture<'_, Result<ClaimProgress, Fault>>;

    /// Returns entries finished with another status than [`DONE`], in ledger order after `after`.
    fn finished(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<FinishedEntry>, Fault>>;

    /// Finishes one entry.
    fn finish(
        &self,
        door: Door,
        seq: Seq,
        lease: Lease,
        status: &str,
        now: Millis,
    ) -> BoxFuture<'_, Result<LeaseResult, Fault>> {
        let change = LeaseAction::Finish { status: status.to_owned() };
        one(self.change(door, vec![LeaseChange { seq, lease, change }], now))
    }
}

fn one<'a>(
    changed: BoxFuture<'a, Result<Vec<LeaseResult>, Fault>>,
) -> BoxFuture<'a, Result<LeaseResult, Fault>> {
    Box::pin(async { Ok(changed.await?.remove(0)) })
}

/// Request of a consumer.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The stream.
    pub door: Door,
    /// Name of the consumer; for operators, not for access control.
    pub consumer: String,
    /// Maximum number of entries.
    pub rows_max: usize,
    /// Maximum bytes of bodies, unless the first one alone is larger.
    pub bytes_max: usize,
    /// Lease duration.
    pub lease: Age,
    /// The time now.
    pub now: Millis,
}

/// An entry leased to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedEntry {
    /// The entry.
    pub entry: StreamEntry,
    /// The lease.
    pub lease: Lease,
    /// Expiry of the lease.
    pub expires_at: Millis,
    /// Number of claims of this entry, this one included.
    pub attempt: u32,
}

/// Token of a lease: 128 random bits, as 32 lower-case hex digits.
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
    /// Constant-time comparison, so that its duration reveals nothing about a guess.
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
    /// A prefix: enough to distinguish two in a log, too little to use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({}…)", hash::hex(&self.0[..3]))
    }
}

/// Malformed lease token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a lease is 32 lower-case hex digits")]
pub struct InvalidLease;

impl FromStr for Lease {
    type Err = InvalidLease;

    fn from_str(text: &str) -> Result<Self, InvalidLease> {
        if text.len() != 32 || text.bytes().any(|digit| digit.is_ascii_uppercase()) {
            return Err(InvalidLease);
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(InvalidLease);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).map_err(|_| InvalidLease)?;
        }
        Ok(Self(bytes))
    }
}

/// Change of one leased entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseChange {
    /// Seq of the entry.
    pub seq: Seq,
    /// Its lease.
    pub lease: Lease,
    /// The change.
    pub change: LeaseAction,
}

/// What to do with a leased entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Finish it; it is never handed out again.
    Finish {
        /// [`DONE`], or a status that is stored for later listing (`failed`).
        status: String,
    },
    /// Extend the lease.
    Extend {
        /// New expiry.
        until: Millis,
    },
    /// Release it.
    Release {
        /// Time from which it may be claimed again.
        again_at: Millis,
    },
}

/// Result of a lease change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseResult {
    /// Applied.
    Done,
    /// The lease has expired, was released, or never belonged to this entry. Nothing changed.
    StaleLease,
    /// There is no such entry in this stream, or not any more.
    UnknownPlace,
    /// It was finished before, perhaps by this very call if its reply was lost.
    AlreadyDone,
}

/// Progress of the consumers of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimProgress {
    /// Everything up to here was claimed at least once.
    pub head: Seq,
    /// Newest seq of the stream.
    pub newest: Seq,
    /// Entries under a lease.
    pub held: u64,
    /// Entries that were claimed before and are free again.
    pub free: u64,
    /// Expiry of the next lease.
    pub free_at: Option<Millis>,
}

/// A finished entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedEntry {
    /// Seq of the entry.
    pub seq: Seq,
    /// Status set by the consumer.
    pub status: String,
    /// Consumer that finished it.
    pub consumer: String,
    /// Time.
    pub finished_at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_spelling_and_is_not_logged_in_full() {
        let lease = Lease::from_bytes(std::array::from_fn(|at| u8::try_from(at * 17).unwrap()));
        let text = lease.to_string();
        assert_eq!(text, "00112233445566778899aabbccddeeff");
        assert_eq!(text.parse(), Ok(lease));
        for wrong in ["", "00", &text.to_uppercase(), &text.replace("ff", "fg"), &text.repeat(2)] {
            assert_eq!(wrong.parse::<Lease>(), Err(InvalidLease), "{wrong}");
        }
        assert_eq!(format!("{lease:?}"), "Lease(001122…)");
    }
}
