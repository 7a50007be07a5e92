//! Decision rule for submissions under a known key.
//!
//! Pure and shared by all ledgers, so that they return the same verdicts.

use bytes::Bytes;

use crate::Code;
use crate::event::{Event, Principal};
use crate::hash::Digest;
use crate::receipt::Seq;
use crate::time::Millis;

/// Admission that first claimed a key, as stored in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorAdmission {
    /// Ledger position.
    pub seq: Seq,
    /// Content digest; for a contract with revisions, that of the newest one.
    pub digest: Digest,
    /// Time of receipt.
    pub received_at: Millis,
    /// Sender; for keys that belong to principals, the owner of the key.
    pub principal: Principal,
    /// Contract facts as compact JSON.
    pub facts: Bytes,
}

/// Meaning of a known key with a different digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOtherContent {
    /// Error: kept as evidence, not applied.
    Conflict,
    /// Error, for keys owned by the principal of the first admission: other principals are also
    /// refused.
    OwnedConflict,
    /// Newer content, kept and applied.
    Revision,
}

/// Message of [`Code::EventIdTaken`].
const TAKEN: &str = "this id belongs to another principal, which sent other content under it";

/// The outcome of [`decide`], with the first admission under the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Unknown key: admit and apply side effects.
    Fresh,
    /// Known key, same content: append a sighting, do nothing else.
    Duplicate(PriorAdmission),
    /// Known key, newer content where the contract allows it: keep and apply.
    Revision(PriorAdmission),
    /// Known key, different content: keep, do not apply.
    Conflict(PriorAdmission),
}

/// Returns the decision for an event, given the first admission under its key.
pub fn decide(
    first: Option<PriorAdmission>,
    digest: &Digest,
    on_other: OnOtherContent,
) -> Decision {
    match (first, on_other) {
        (None, _) => Decision::Fresh,
        (Some(first), _) if first.digest == *digest => Decision::Duplicate(first),
        (Some(first), OnOtherContent::Revision) => Decision::Revision(first),
        (Some(first), OnOtherContent::Conflict | OnOtherContent::OwnedConflict) => {
            Decision::Conflict(first)
        }
    }
}

/// Returns code and message for refusing a conflict with `first`; `None` if the sender owns the key
/// or keys have no owner, and the conflict is acknowledged in the contract's wire format.
pub fn refusal_of_conflict(first: &PriorAdmission, event: &Event) -> Option<(Code, &'static str)> {
    let is_owned = event.on_other_content == OnOtherContent::OwnedConflict;
    let is_foreign = is_owned && first.principal != event.principal;
    is_foreign.then_some((Code::EventIdTaken, TAKEN))
}

/// Principal under which conflict evidence is deduplicated; `None` if the same content is kept once
/// for all principals.
pub fn evidence_of(event: &Event) -> Option<&Principal> {
    (event.on_other_content == OnOtherContent::OwnedConflict).then_some(&event.principal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [OnOtherContent; 3] =
        [OnOtherContent::Conflict, OnOtherContent::OwnedConflict, OnOtherContent::Revision];

    fn first(content: &[u8]) -> PriorAdmission {
        PriorAdmission {
            seq: Seq(1),
            digest: Digest::of(content),
            received_at: Millis(0),
            principal: Principal::new("a"),
            facts: Bytes::new(),
        }
    }

    #[test]
    fn an_unknown_key_is_fresh_for_every_rule() {
        for on_other in ALL {
            assert_eq!(decide(None, &Digest::of(b"a"), on_other), Decision::Fresh);
        }
    }

    #[test]
    fn the_same_content_is_a_duplicate_for_every_rule() {
        for on_other in ALL {
            assert_eq!(
                decide(Some(first(b"a")), &Digest::of(b"a"), on_other),
                Decision::Duplicate(first(b"a"))
            );
        }
    }

    #[test]
    fn other_content_follows_the_rule_of_the_contract() {
        let known = first(b"a");
        let other = Digest::of(b"b");
        for conflict in [OnOtherContent::Conflict, OnOtherContent::OwnedConflict] {
            assert_eq!(
                decide(Some(known.clone()), &other, conflict),
                Decision::Conflict(known.clone())
            );
        }
        assert_eq!(
            decide(Some(known.clone()), &other, OnOtherContent::Revision),
            Decision::Revision(known)
        );
    }
}
