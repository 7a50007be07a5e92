//! The rule the product is sold on: what a submission under a known key means.
//!
//! Pure, and shared by every ledger, so that all of them give the same verdicts.

use bytes::Bytes;

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
    /// Its contract facts, as compact JSON.
    pub facts: Bytes,
}

/// What the same key with another digest means to a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOtherContent {
    /// Not normal: kept as evidence, not applied.
    Conflict,
    /// Normal: newer content, kept and applied.
    Revision,
}

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
        (Some(_), OnOtherContent::Conflict) => Decision::Conflict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(content: &[u8]) -> First {
        First {
            seq: Seq(1),
            digest: Digest::of(content),
            received_at: Millis(0),
            facts: Bytes::new(),
        }
    }

    #[test]
    fn an_unknown_key_is_fresh_whatever_other_content_would_mean() {
        for on_other in [OnOtherContent::Conflict, OnOtherContent::Revision] {
            assert_eq!(decide(None, &Digest::of(b"a"), on_other), Decision::Fresh);
        }
    }

    #[test]
    fn the_same_content_is_a_duplicate_whatever_other_content_would_mean() {
        for on_other in [OnOtherContent::Conflict, OnOtherContent::Revision] {
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
        assert_eq!(decide(Some(&known), &other, OnOtherContent::Conflict), Decision::Conflict);
        assert_eq!(decide(Some(&known), &other, OnOtherContent::Revision), Decision::Revision);
    }
}
