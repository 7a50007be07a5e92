//! Rules of stream claims shared by all ledgers: the size limits of a batch, and lease checks.

use admit_core::{Millis, Seq};

use crate::port::{ClaimRequest, Lease, LeaseAction, LeaseChange, LeaseResult};

/// Entry granted to a consumer.
pub(crate) struct GrantedClaim {
    pub(crate) seq: Seq,
    pub(crate) lease: Lease,
    pub(crate) attempt: u32,
}

/// Entries to grant, within the limits of the request.
pub(crate) struct ClaimBatch {
    rows_max: usize,
    bytes_max: u64,
    bytes: u64,
    is_full: bool,
    /// With the number of earlier claims of each.
    places: Vec<(Seq, u32)>,
}

impl ClaimBatch {
    pub(crate) fn new(wanted: &ClaimRequest) -> Self {
        let bytes_max = wanted.bytes_max as u64;
        Self { rows_max: wanted.rows_max, bytes_max, bytes: 0, is_full: false, places: Vec::new() }
    }

    /// Number of entries that may still be added.
    pub(crate) fn left(&self) -> i64 {
        if self.is_full {
            return 0;
        }
        i64::try_from(self.rows_max - self.places.len()).unwrap_or(i64::MAX)
    }

    /// Adds an entry with a body of `bytes`; returns `false` if it does not fit.
    pub(crate) fn take(&mut self, seq: Seq, before: u32, bytes: u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max && !self.places.is_empty() {
            self.is_full = true;
            return false;
        }
        self.places.push((seq, before));
        true
    }

    /// Grants the entries in ledger order, with leases that cannot be guessed.
    pub(crate) fn grant(mut self) -> Result<Vec<GrantedClaim>, getrandom::Error> {
        self.places.sort_unstable();
        let mut bits = vec![[0; 16]; self.places.len()];
        getrandom::fill(bits.as_flattened_mut())?;
        let leases = bits.into_iter().map(Lease::from_bytes);
        let places = self.places.into_iter().zip(leases);
        Ok(places
            .map(|((seq, before), lease)| GrantedClaim {
                seq,
                lease,
                attempt: before.saturating_add(1),
            })
            .collect())
    }
}

/// Stored lease of an entry.
#[derive(Clone, Debug)]
pub(crate) struct HeldLease {
    /// `None` once released.
    pub(crate) lease: Option<Lease>,
    pub(crate) consumer: String,
    pub(crate) expires_at: Millis,
}

impl HeldLease {
    /// Whether `lease` may change it now.
    pub(crate) fn is_held_by(&self, lease: Lease, now: Millis) -> bool {
        self.lease == Some(lease) && now < self.expires_at
    }
}

/// Result for an entry that has no stored lease.
pub(crate) fn result_without_lease(seq: Seq, head: Seq, is_in_stream: bool) -> LeaseResult {
    if !is_in_stream {
        LeaseResult::UnknownPlace
    } else if seq > head {
        LeaseResult::StaleLease
    } else {
        LeaseResult::AlreadyDone
    }
}

/// The first entry that these changes released, which consumers must be notified of.
pub(crate) fn given_back(changes: &[LeaseChange], results: &[LeaseResult]) -> Option<Seq> {
    let mut both = changes.iter().zip(results);
    let is_back = |(change, result): &(&LeaseChange, &LeaseResult)| {
        **result == LeaseResult::Done && matches!(change.change, LeaseAction::Release { .. })
    };
    both.find(is_back).map(|(change, _)| change.seq)
}
