//! Receipts and pages, put together from what is stored, whatever stores it.

use admit_core::{Millis, Receipt, ReceiptId, Seq};
use bytes::Bytes;

use crate::port::{Page, StreamEntry};

/// The word of a verdict that is kept, if it is one of ours.
pub(crate) fn verdict(word: &str) -> Option<&'static str> {
    ["fresh", "revision", "conflict", "refused"].into_iter().find(|known| *known == word)
}

/// A copy, as it is stored.
pub(crate) struct Copy {
    pub(crate) seq: Seq,
    /// What it is a copy of.
    pub(crate) admission: Seq,
    /// What it said instead.
    pub(crate) other: Option<Seq>,
    pub(crate) received_at: Millis,
    pub(crate) attempt: Option<u32>,
}

impl Copy {
    /// A copy's receipt is its admission's, seen from this delivery.
    pub(crate) fn receipt(self, of: Receipt, ledger: u32) -> Receipt {
        let is_kept = of.verdict == "fresh" || of.verdict == "revision";
        Receipt {
            id: ReceiptId { ledger, seq: self.seq },
            verdict: if is_kept { "duplicate" } else { of.verdict },
            received_at: self.received_at,
            last_seen_at: self.received_at,
            duplicate_count: 0,
            last_attempt: self.attempt,
            first: Some(ReceiptId { ledger, seq: self.admission }),
            ..of
        }
    }
}

/// The first text after every text that starts with the prefix: its last character raised.
pub(crate) fn end_of(prefix: &str) -> Option<String> {
    let (at, last) = prefix.char_indices().next_back()?;
    char::from_u32(u32::from(last) + 1).map(|next| format!("{}{next}", &prefix[..at]))
}

/// A page of a stream in the making.
pub(crate) struct Paging {
    page: Page,
    bytes: usize,
    rows_max: usize,
    bytes_max: usize,
}

impl Paging {
    pub(crate) fn after(after: Seq, rows_max: usize, bytes_max: usize) -> Self {
        let page = Page { next: after, ..Page::default() };
        Self { page, bytes: 0, rows_max, bytes_max }
    }

    /// Takes an entry in; `false` when the page was full before.
    pub(crate) fn take(&mut self, entry: StreamEntry) -> bool {
        self.bytes += entry.facts.len() + entry.body.as_ref().map_or(0, Bytes::len);
        let over = self.bytes > self.bytes_max && !self.page.entries.is_empty();
        if over || self.page.entries.len() >= self.rows_max {
            self.page.more = true;
            return false;
        }
        self.page.next = entry.seq;
        self.page.entries.push(entry);
        true
    }

    pub(crate) fn done(self) -> Page {
        self.page
    }
}
