//! Receipts and stream pages built from stored rows.

use admit_core::{Millis, Receipt, ReceiptId, Seq};
use bytes::Bytes;

use crate::port::{Page, StreamEntry};

/// Returns the known verdict with this name.
pub(crate) fn verdict(word: &str) -> Option<&'static str> {
    ["fresh", "revision", "conflict", "refused"].into_iter().find(|known| *known == word)
}

/// A stored sighting.
pub(crate) struct StoredSighting {
    pub(crate) seq: Seq,
    /// The admission it is a copy of.
    pub(crate) admission: Seq,
    /// The admission that holds its content, if it differed.
    pub(crate) other: Option<Seq>,
    pub(crate) received_at: Millis,
    pub(crate) attempt: Option<u32>,
}

impl StoredSighting {
    /// The receipt of a copy: its admission's, seen from this delivery.
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

/// The first string after all strings that start with the prefix: its last character incremented.
pub(crate) fn end_of(prefix: &str) -> Option<String> {
    let (at, last) = prefix.char_indices().next_back()?;
    char::from_u32(u32::from(last) + 1).map(|next| format!("{}{next}", &prefix[..at]))
}

/// A stream page under construction.
pub(crate) struct PageBuilder {
    page: Page,
    bytes: usize,
    rows_max: usize,
    bytes_max: usize,
}

impl PageBuilder {
    pub(crate) fn after(after: Seq, rows_max: usize, bytes_max: usize) -> Self {
        let page = Page { next: after, ..Page::default() };
        Self { page, bytes: 0, rows_max, bytes_max }
    }

    /// Adds an entry; returns `false` if the page is full.
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
