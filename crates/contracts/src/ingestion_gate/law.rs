//! The existing-row law: what an event means whose name is known already.

use admit_core::Digest;
use admit_core::effect::Standing;

use super::words::Reason;

/// What is to be said to an event that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is on the bus: nothing is published, and the first eb_ref is handed out again.
    Duplicate,
    /// It may not be told to be on the bus.
    Quarantine(Reason),
}

/// Decides about a copy, given the payload hash that was admitted and how that admission stands.
/// `None` is an admission whose effect is not there, which no ledger of ours writes.
///
/// The payload is looked at first: a contradiction is one whatever became of the first.
pub fn existing(stored: &Digest, standing: Option<&Standing>, payload_hash: &Digest) -> Known {
    if stored != payload_hash {
        return Known::Quarantine(Reason::PayloadHashMismatch);
    }
    match standing {
        Some(Standing::Done(_)) => Known::Duplicate,
        Some(Standing::Intended(_) | Standing::InFlight(_)) => {
            Known::Quarantine(Reason::PublishInFlight)
        }
        Some(Standing::Ambiguous(_)) => Known::Quarantine(Reason::PublishAmbiguous),
        Some(Standing::Withheld(_) | Standing::Refused(_)) | None => {
            Known::Quarantine(Reason::AdmissionStateInvalid)
        }
    }
}
