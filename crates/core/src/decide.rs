//! The rule the product is sold on: what a submission under a known key means.
//!
//! Pure, and shared by every ledger, so that all of them give the same verdicts.

use bytes::Bytes;

use crate::Code;
use crate::event::{Event, Principal};
use crate::hash::Digest;
use crate::receipt::Seq;
use crate::time::Millis;

/// What the ledger knows of the admission that first claimed a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    /// Its place in the ledger.
    pub seq: Seq,
    /// Its digest; for a contract with revisions, that of the newest one.
    pub digest: Digest,
    /// When it was received.
    pub received_at: Millis,
    /// Principal that sent it; where keys belong to principals, the owner of the key.
    pub principal: Principal,
    /// Its contract facts, as compact JSON.
    pub facts: Bytes,
}

/// What the same key with another digest means to a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOtherContent {
    /// Not normal: kept as evidence, not applied.
    Conflict,
    /// A conflict, in a key that belongs to the principal of the first admission: from any other
    /// principal it is refused as well.
    OwnedConflict,
    /// Normal: newer content, kept and applied.
    Revision,
}

/// Message of [`Code::EventIdTaken`].
const TAKEN: &str = "this id belongs to another principal, which sent other content under it";

/// The outcome of [`decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody has claimed the key: admit, apply side effects.
    Fresh,
    /// Known key, known content: note the sighting, do nothing again.
    Duplicate,
    /// Known key, newer content where that is normal: keep and apply.
    Revision,
    /// Known key, other content where that is not: keep, do not apply.
    Conflict,
}

/// Decides what an event means, given what is known under its key.
pub fn decide(first: Option<&First>, digest: &Digest, on_other: OnOtherContent) -> Decision {
    match (first, on_other) {
        (None, _) => Decision::Fresh,
        (Some(first), _) if first.digest == *digest => Decision::Duplicate,
        (Some(_), OnOtherContent::Revision) => Decision::Revision,
        (Some(_), OnOtherContent::Conflict | OnOtherContent::OwnedConflict) => Decision::Conflict,
    }
}

/// Code and message that a conflict with `first` is refused with; `None` where the sender owns the
/// key, or keys have no owner, and the conflict is acknowledged in the contract's words.
pub fn refusal_of_conflict(first: &First, event: &Event) -> Option<(Code, &'static str)> {
    let is_owned = event.on_other_content == OnOtherContent::OwnedConflict;
    let is_foreign = is_owned && first.principal != event.principal;
    is_foreign.then_some((Code::EventIdTaken, TAKEN))
}

/// Principal whose evidence of a conflict is looked for before it is kept again; `None` where the
/// same content is kept once for all principals.
pub fn evidence_of(event: &Event) -> Option<&Principal> {
    (event.on_other_content == OnOtherContent::OwnedConflict).then_some(&event.principal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [OnOtherContent; 3] =
        [OnOtherContent::Conflict, OnOtherContent::OwnedConflict, OnOtherContent::Revision];

    fn first(content: &[u8]) -> First {
        First {
            seq: Seq(1),
            digest: Digest::of(content),
            received_at: Millis(0),
            principal: Principal::new("a"),
            facts: Bytes::new(),
        }
    }

    #[test]
    fn an_unknown_key_is_fresh_whatever_other_content_would_mean() {
        for on_other in ALL {
            assert_eq!(decide(None, &Digest::of(b"a"), on_other), Decision::Fresh);
        }
    }

    #[test]
    fn the_same_content_is_a_duplicate_whatever_other_content_would_mean() {
        for on_other in ALL {
            assert_eq!(
                decide(Some(&first(b"a")), &Digest::of(b"a"), on_other),
                Decision::Duplicate
            );
        }
    }

    #[test]
    fn other_content_is_what_the_contract_says_it_is() {
        let known = first(b"a");
        let other = Digest::of(b"b");
        for conflict in [OnOtherContent::Conflict, OnOtherContent::OwnedConflict] {
            assert_eq!(decide(Some(&known), &other, conflict), Decision::Conflict);
        }
        assert_eq!(decide(Some(&known), &other, OnOtherContent::Revision), Decision::Revision);
    }
}
