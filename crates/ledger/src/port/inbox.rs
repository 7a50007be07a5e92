//! Port of the inbox: events by the contract's own ids, with their processing status.
//!
//! A row is inserted in the commit of its admission and follows the [`Claims`](super::Claims) of its door:
//! `received` until it is claimed, `claimed` while it is leased (and after the lease has expired, until
//! it is claimed again), then the status it was finished with.

use admit_core::Fault;

use super::BoxFuture;

/// Statuses that the ledger itself writes; a consumer finishes with its own.
pub mod inbox_status {
    /// Never claimed.
    pub const RECEIVED: &str = "received";
    /// Claimed by a consumer; the lease may have expired.
    pub const CLAIMED: &str = "claimed";
}

/// Reads the inbox.
pub trait Inbox: Send + Sync {
    /// Lists rows in order of arrival.
    fn inbox(&self, filter: InboxFilter) -> BoxFuture<'_, Result<InboxPage, Fault>>;

    /// Returns the row of one event.
    fn in_inbox(&self, event_id: String) -> BoxFuture<'_, Result<Option<InboxRow>, Fault>>;
}

/// Which rows to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxFilter {
    /// Only in this status.
    pub status: Option<String>,
    /// Only after this row.
    pub after: u64,
    /// Maximum number of rows.
    pub rows_max: usize,
    /// Maximum bytes of payloads, unless the first one alone is larger.
    pub bytes_max: usize,
}

/// A page of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxPage {
    /// In order of arrival.
    pub rows: Vec<InboxRow>,
    /// Cursor of the next page.
    pub next: u64,
    /// `true` if a limit ended the page and there is more.
    pub more: bool,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// Row number.
    pub place: u64,
    /// Event id.
    pub event_id: String,
    /// Processing status.
    pub status: String,
    /// Arrival, RFC 3339.
    pub received_at: String,
    /// Last status change, RFC 3339.
    pub last_updated_at: String,
    /// Event as received, JSON.
    pub payload: String,
    /// Principal that sent it first; `None` if the row has no admission.
    pub principal: Option<String>,
}
