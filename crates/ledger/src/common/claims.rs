//! Claims on streams as every ledger decides them: what fits into an answer, and whose lease counts.

use admit_core::{Millis, Seq};

use crate::port::{Change, Lease, LeaseAnswer, LeaseChange, Wanted};

/// A place as it is handed out.
pub(crate) struct Taken {
    pub(crate) seq: Seq,
    pub(crate) lease: Lease,
    pub(crate) attempt: u32,
}

/// Places to hand out, within the limits of the call.
pub(crate) struct Found {
    rows_max: usize,
    bytes_max: u64,
    bytes: u64,
    is_full: bool,
    /// With how often each was handed out before.
    places: Vec<(Seq, u32)>,
}

impl Found {
    pub(crate) fn new(wanted: &Wanted) -> Self {
        let bytes_max = wanted.bytes_max as u64;
        Self { rows_max: wanted.rows_max, bytes_max, bytes: 0, is_full: false, places: Vec::new() }
    }

    /// So many more may be taken.
    pub(crate) fn left(&self) -> i64 {
        if self.is_full {
            return 0;
        }
        i64::try_from(self.rows_max - self.places.len()).unwrap_or(i64::MAX)
    }

    /// Takes a place whose body has so many bytes; `false` when it does not fit any more.
    pub(crate) fn take(&mut self, seq: Seq, before: u32, bytes: u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max && !self.places.is_empty() {
            self.is_full = true;
            return false;
        }
        self.places.push((seq, before));
        true
    }

    /// Hands them out, in ledger order and under leases that nobody can guess.
    pub(crate) fn hand_out(mut self) -> Result<Vec<Taken>, getrandom::Error> {
        self.places.sort_unstable();
        let mut bits = vec![[0; 16]; self.places.len()];
        getrandom::fill(bits.as_flattened_mut())?;
        let leases = bits.into_iter().map(Lease::from_bytes);
        let places = self.places.into_iter().zip(leases);
        Ok(places
            .map(|((seq, before), lease)| Taken { seq, lease, attempt: before.saturating_add(1) })
            .collect())
    }
}

/// Who holds a place, as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// None once it was given back.
    pub(crate) lease: Option<Lease>,
    pub(crate) consumer: String,
    pub(crate) expires_at: Millis,
}

impl Held {
    /// Whether `lease` may change it now.
    pub(crate) fn is_by(&self, lease: Lease, now: Millis) -> bool {
        self.lease == Some(lease) && now < self.expires_at
    }
}

/// What is said about a place that nobody holds and that was not given back.
pub(crate) fn unheld(seq: Seq, head: Seq, is_in_stream: bool) -> LeaseAnswer {
    if !is_in_stream {
        LeaseAnswer::UnknownPlace
    } else if seq > head {
        LeaseAnswer::StaleLease
    } else {
        LeaseAnswer::AlreadyDone
    }
}

/// Something that these changes gave back, which is news for whoever waits.
pub(crate) fn given_back(changes: &[LeaseChange], answers: &[LeaseAnswer]) -> Option<Seq> {
    let mut both = changes.iter().zip(answers);
    let is_back = |(change, answer): &(&LeaseChange, &LeaseAnswer)| {
        **answer == LeaseAnswer::Done && matches!(change.change, Change::Release { .. })
    };
    both.find(is_back).map(|(change, _)| change.seq)
}
