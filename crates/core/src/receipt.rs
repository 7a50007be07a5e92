//! Verdicts and receipts.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::decide::PriorAdmission;
use crate::event::{Door, Entry, Principal};
use crate::hash::{Digest, Key};
use crate::time::Millis;
use crate::{Code, hash, json};

/// Position in the ledger. Every stored verdict takes the next one, so positions give the ledger
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Highest position: both databases store positions as signed 64-bit integers.
    pub const MAX: Self = Self(i64::MAX.unsigned_abs());
}

/// Text that is not a ledger position.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid ledger position: expected a number from 0 to {}", Seq::MAX.0)]
pub struct InvalidSeq;

impl FromStr for Seq {
    type Err = InvalidSeq;

    fn from_str(text: &str) -> Result<Self, InvalidSeq> {
        let place = text.parse().map(Self).map_err(|_| InvalidSeq)?;
        if place <= Self::MAX { Ok(place) } else { Err(InvalidSeq) }
    }
}

/// Receipt id: ledger tag and position. `rcp-5e1f09ab-42`.
///
/// The tag is random per ledger, so receipts of two ledgers cannot be mixed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiptId {
    /// Ledger tag.
    pub ledger: u32,
    /// Position in the ledger.
    pub seq: Seq,
}

impl fmt::Display for ReceiptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rcp-{:08x}-{}", self.ledger, self.seq.0)
    }
}

/// Text that is not a receipt id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid receipt id: expected a form like rcp-5e1f09ab-42")]
pub struct InvalidReceiptId;

impl FromStr for ReceiptId {
    type Err = InvalidReceiptId;

    fn from_str(text: &str) -> Result<Self, InvalidReceiptId> {
        let (tag, seq) = text
            .strip_prefix("rcp-")
            .and_then(|rest| rest.split_once('-'))
            .ok_or(InvalidReceiptId)?;
        let ledger = u32::from_str_radix(tag, 16).map_err(|_| InvalidReceiptId)?;
        let seq = seq.parse().map_err(|_| InvalidReceiptId)?;
        let id = Self { ledger, seq };
        if id.to_string() == text { Ok(id) } else { Err(InvalidReceiptId) }
    }
}

/// Result of recording one entry. Its commit is durable when it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Admitted for the first time.
    Fresh {
        /// Ledger position.
        seq: Seq,
    },
    /// Known key, same content; a sighting was appended.
    Duplicate {
        /// Position of the sighting.
        seq: Seq,
        /// First admission under the key.
        first: PriorAdmission,
    },
    /// Known key, newer content, kept and applied.
    Revision {
        /// Position of the revision.
        seq: Seq,
        /// Newest admission before it.
        first: PriorAdmission,
    },
    /// Known key, different content, kept and not applied.
    Conflict {
        /// Position of this delivery.
        seq: Seq,
        /// First admission under the key.
        first: PriorAdmission,
    },
    /// Kept with its reason, claims no key. `seq` is `None` if the door's quota of kept refusals is
    /// used up: then it is counted, not kept.
    Refused {
        /// Position, if it was kept.
        seq: Option<Seq>,
    },
}

impl Verdict {
    /// Name in SQL, metrics and receipts.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Fresh { .. } => "fresh",
            Self::Duplicate { .. } => "duplicate",
            Self::Revision { .. } => "revision",
            Self::Conflict { .. } => "conflict",
            Self::Refused { .. } => "refused",
        }
    }

    /// Ledger position of this verdict.
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

/// Recorded entry with its verdict.
///
/// Returns the entry itself, so that the reply can be rendered from validated data without a copy.
#[derive(Clone, Debug)]
pub struct RecordedEntry {
    /// Recorded entry.
    pub entry: Entry,
    /// Verdict.
    pub verdict: Verdict,
    /// Tag of the ledger.
    pub ledger: u32,
    /// Outcome of entity resolution, for doors that merge entities.
    pub outcome: Option<json::Object<'static>>,
}

impl RecordedEntry {
    /// Receipt id of this delivery, if it was kept.
    pub fn receipt_id(&self) -> Option<ReceiptId> {
        self.verdict.seq().map(|seq| ReceiptId { ledger: self.ledger, seq })
    }
}

/// Receipt of an admission or other delivery, for later lookups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Receipt id.
    pub id: ReceiptId,
    /// Door.
    pub door: Door,
    /// Sender.
    pub principal: Principal,
    /// `fresh`, `duplicate`, `revision`, `conflict` or `refused`.
    pub verdict: &'static str,
    /// Key; a refused submission has none.
    pub key: Option<Key>,
    /// Digest of its content (of its raw body if it was refused).
    pub digest: Digest,
    /// Time of receipt.
    pub received_at: Millis,
    /// Time of the last copy; equals `received_at` if there was none.
    pub last_seen_at: Millis,
    /// Number of copies.
    pub duplicate_count: u64,
    /// Producer's attempt counter of the last delivery, if on the wire.
    pub last_attempt: Option<u32>,
    /// First admission under the key, for a duplicate, revision or conflict.
    pub first: Option<ReceiptId>,
    /// Reason of a refusal.
    pub reason: Option<(Code, String)>,
    /// Contract facts as compact JSON.
    pub facts: Bytes,
}

impl Receipt {
    /// Hash of id, key, digest, time and verdict, reproducible from the ledger.
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
    fn a_receipt_id_round_trips() {
        let id = ReceiptId { ledger: 0x5e1f_09ab, seq: Seq(42) };
        assert_eq!(id.to_string(), "rcp-5e1f09ab-42");
        assert_eq!("rcp-5e1f09ab-42".parse(), Ok(id));
    }

    #[test]
    fn an_id_has_one_spelling() {
        for text in ["", "42", "rcp-5e1f09ab-042", "rcp-5E1F09AB-42", "rcp-1-2", "rcp-5e1f09ab-+4"]
        {
            assert_eq!(text.parse::<ReceiptId>(), Err(InvalidReceiptId), "{text}");
        }
    }

    #[test]
    fn a_position_beyond_the_maximum_is_rejected() {
        let last = Seq::MAX.0.to_string();
        assert_eq!(last.parse(), Ok(Seq::MAX));
        assert_eq!(format!("rcp-5e1f09ab-{last}").parse::<ReceiptId>().unwrap().seq, Seq::MAX);
        for beyond in ["9223372036854775808", "18446744073709551615", "18446744073709551616", "-1"]
        {
            assert_eq!(beyond.parse::<Seq>(), Err(InvalidSeq), "{beyond}");
            let id = format!("rcp-5e1f09ab-{beyond}");
            assert_eq!(id.parse::<ReceiptId>(), Err(InvalidReceiptId), "{id}");
        }
    }
}
