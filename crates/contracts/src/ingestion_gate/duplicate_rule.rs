//! Duplicate rule: decides about an event whose key is already known.

use admit_core::Digest;
use admit_core::effect::EffectState;

use super::enums::Reason;

/// Decision about a known event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateDecision {
    /// Already on the bus: nothing is published, and the reply repeats the first eb_ref.
    Duplicate,
    /// Not confirmed to be on the bus.
    Quarantine(Reason),
}

/// Decides about a copy from the admitted payload hash and the state of that admission's effect.
/// `None` is an admission without its effect, which no ledger of ours writes.
///
/// The payload is compared first: a mismatch is a conflict in every state.
pub fn decide_duplicate(
    stored: &Digest,
    state: Option<&EffectState>,
    payload_hash: &Digest,
) -> DuplicateDecision {
    if stored != payload_hash {
        return DuplicateDecision::Quarantine(Reason::PayloadHashMismatch);
    }
    match state {
        Some(EffectState::Done(_)) => DuplicateDecision::Duplicate,
        Some(EffectState::Intended(_) | EffectState::InFlight(_)) => {
            DuplicateDecision::Quarantine(Reason::PublishInFlight)
        }
        Some(EffectState::Ambiguous(_)) => DuplicateDecision::Quarantine(Reason::PublishAmbiguous),
        Some(EffectState::Withheld(_) | EffectState::Refused(_)) | None => {
            DuplicateDecision::Quarantine(Reason::AdmissionStateInvalid)
        }
    }
}
