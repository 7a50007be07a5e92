//! Verdicts and the receipts they leave.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::decide::First;
use crate::event::{Door, Entry, Principal};
use crate::hash::{Digest, Key};
use crate::time::Millis;
use crate::{Code, hash, json};

/// A place in the ledger. Every verdict takes the next one, so places are the ledger's own order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The last place a ledger can have: both databases keep places as signed 64-bit integers.
    pub const MAX: Self = Self(i64::MAX.unsigned_abs());
}

/// A text that is not a place in a ledger.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a place in the ledger is a number from 0 to {}", Seq::MAX.0)]
pub struct NotASeq;

impl FromStr for Seq {
    type Err = NotASeq;

    fn from_str(text: &str) -> Result<Self, NotASeq> {
        let place = text.parse().map(Self).map_err(|_| NotASeq)?;
        if place <= Self::MAX { Ok(place) } else { Err(NotASeq) }
    }
}

/// The ledger-wide name of a receipt: which ledger, which place. `rcp-5e1f09ab-42`.
///
/// The tag is drawn when a ledger is created, so receipts of two ledgers cannot be mixed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiptId {
    /// Names the ledger.
    pub ledger: u32,
    /// The place in it.
    pub seq: Seq,
}

impl fmt::Display for ReceiptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rcp-{:08x}-{}", self.ledger, self.seq.0)
    }
}

/// A text that is not a receipt id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a receipt id looks like rcp-5e1f09ab-42")]
pub struct NotAReceiptId;

impl FromStr for ReceiptId {
    type Err = NotAReceiptId;

    fn from_str(text: &str) -> Result<Self, NotAReceiptId> {
        let (tag, seq) =
            text.strip_prefix("rcp-").and_then(|rest| rest.split_once('-')).ok_or(NotAReceiptId)?;
        let ledger = u32::from_str_radix(tag, 16).map_err(|_| NotAReceiptId)?;
        let seq = seq.parse().map_err(|_| NotAReceiptId)?;
        let id = Self { ledger, seq };
        if id.to_string() == text { Ok(id) } else { Err(NotAReceiptId) }
    }
}

/// What `record` made of one entry. The commit that holds it is durable when it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Admitted for the first time.
    Fresh {
        /// Its place.
        seq: Seq,
    },
    /// Known key, known content; a sighting was appended.
    Duplicate {
        /// The place of the sighting.
        seq: Seq,
        /// What was admitted first.
        first: First,
    },
    /// Known key, newer content, kept and applied.
    Revision {
        /// The place of the revision.
        seq: Seq,
        /// What was known before.
        first: First,
    },
    /// Known key, other content, kept and not applied.
    Conflict {
        /// The place of this delivery.
        seq: Seq,
        /// What was admitted first.
        first: First,
    },
    /// Kept with its reason, claims no key. `seq` is `None` when the door's quota of kept refusals
    /// is used up: then it is counted, not kept.
    Refused {
        /// Its place, if it was kept.
        seq: Option<Seq>,
    },
}

impl Verdict {
    /// The word for it in SQL, metrics and receipts.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Fresh { .. } => "fresh",
            Self::Duplicate { .. } => "duplicate",
            Self::Revision { .. } => "revision",
            Self::Conflict { .. } => "conflict",
            Self::Refused { .. } => "refused",
        }
    }

    /// The place in the ledger that this verdict took.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Self::Fresh { seq }
            | Self::Duplicate { seq, .. }
            | Self::Revision { seq, .. }
            | Self::Conflict { seq, .. } => Some(*seq),
            Self::Refused { seq } => *seq,
        }
    }
}

/// An entry that has been through the record commit, with what became of it.
///
/// It carries the entry back, so that the reply can be written from what was vetted without a copy.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What was handed in.
    pub entry: Entry,
    /// What became of it.
    pub verdict: Verdict,
    /// Names the ledger that holds it.
    pub ledger: u32,
    /// How the record stands that the event tells of, where its door keeps records.
    pub outcome: Option<json::Object<'static>>,
}

impl Recorded {
    /// The receipt this delivery left, if it was kept.
    pub fn receipt_id(&self) -> Option<ReceiptId> {
        self.verdict.seq().map(|seq| ReceiptId { ledger: self.ledger, seq })
    }
}

/// What is known of one admission, for whoever asks later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its ledger-wide name.
    pub id: ReceiptId,
    /// Where it came in.
    pub door: Door,
    /// Who sent it.
    pub principal: Principal,
    /// `fresh`, `duplicate`, `revision`, `conflict` or `refused`.
    pub verdict: &'static str,
    /// Its identity; a refused submission has none.
    pub key: Option<Key>,
    /// The digest of its content (of its raw body, when it was refused).
    pub digest: Digest,
    /// When it was received.
    pub received_at: Millis,
    /// When a copy was last received; equals `received_at` when there was none.
    pub last_seen_at: Millis,
    /// How many copies came after it.
    pub duplicate_count: u64,
    /// The producer's count at the last delivery, where the wire carries one.
    pub last_attempt: Option<u32>,
    /// The admission that first claimed the key, for a duplicate, revision or conflict.
    pub first: Option<ReceiptId>,
    /// Why it was refused.
    pub reason: Option<(Code, String)>,
    /// The contract's own facts, as compact JSON.
    pub facts: Bytes,
}

impl Receipt {
    /// The hash that a second look at the ledger must find again: id, key, digest and time.
    pub fn fingerprint(&self) -> String {
        let key = self.key.map(|key| key.to_string()).unwrap_or_default();
        hash::sha256_hex(
            format!("{}|{key}|{}|{}|{}", self.id, self.digest, self.received_at.0, self.verdict)
                .as_bytes(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_id_reads_back() {
        let id = ReceiptId { ledger: 0x5e1f_09ab, seq: Seq(42) };
        assert_eq!(id.to_string(), "rcp-5e1f09ab-42");
        assert_eq!("rcp-5e1f09ab-42".parse(), Ok(id));
    }

    #[test]
    fn an_id_has_one_spelling() {
        for text in ["", "42", "rcp-5e1f09ab-042", "rcp-5E1F09AB-42", "rcp-1-2", "rcp-5e1f09ab-+4"]
        {
            assert_eq!(text.parse::<ReceiptId>(), Err(NotAReceiptId), "{text}");
        }
    }

    #[test]
    fn a_place_that_no_ledger_can_have_is_no_place() {
        let last = Seq::MAX.0.to_string();
        assert_eq!(last.parse(), Ok(Seq::MAX));
        assert_eq!(format!("rcp-5e1f09ab-{last}").parse::<ReceiptId>().unwrap().seq, Seq::MAX);
        for beyond in ["9223372036854775808", "18446744073709551615", "18446744073709551616", "-1"]
        {
            assert_eq!(beyond.parse::<Seq>(), Err(NotASeq), "{beyond}");
            let id = format!("rcp-5e1f09ab-{beyond}");
            assert_eq!(id.parse::<ReceiptId>(), Err(NotAReceiptId), "{id}");
        }
    }
}
