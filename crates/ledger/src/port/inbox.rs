//! The inbox: what a contract's consumers find under its own id, with how far they are with it.
//!
//! A row is born with its admission, in the same commit, and moves on with [`Claims`](super::Claims)
//! of its door: `received` until it is claimed, `claimed` while somebody holds it (and after a lease
//! has expired, until somebody takes it over), then the word it was finished with.

use admit_core::Fault;

use super::BoxFuture;

/// The words of a row that the ledger itself writes; a consumer finishes with its own.
pub mod inbox_status {
    /// Nobody holds it.
    pub const RECEIVED: &str = "received";
    /// Somebody holds it, or held it last.
    pub const CLAIMED: &str = "claimed";
}

/// Reads the inbox.
pub trait Inbox: Send + Sync {
    /// Rows in order of arrival.
    fn inbox(&self, filter: InboxFilter) -> BoxFuture<'_, Result<InboxPage, Fault>>;

    /// The row of one event.
    fn in_inbox(&self, event_id: String) -> BoxFuture<'_, Result<Option<InboxRow>, Fault>>;
}

/// Which rows to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxFilter {
    /// Only in this status.
    pub status: Option<String>,
    /// Only after the row at this place.
    pub after: u64,
    /// At most so many.
    pub rows_max: usize,
    /// At most so many bytes of payloads, unless the first one alone is larger.
    pub bytes_max: usize,
}

/// Some rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxPage {
    /// In order of arrival.
    pub rows: Vec<InboxRow>,
    /// Where to read on.
    pub next: u64,
    /// `true` when a limit ended the page; there is more at once.
    pub more: bool,
}

/// One row, in the words of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// Its place among the rows.
    pub place: u64,
    /// Whose row it is.
    pub event_id: String,
    /// How far consumers are with it.
    pub status: String,
    /// When it came, RFC 3339.
    pub received_at: String,
    /// When it last moved on, RFC 3339.
    pub last_updated_at: String,
    /// The event as it came, JSON.
    pub payload: String,
    /// Principal that sent it first; `None` where the row has no admission.
    pub principal: Option<String>,
}
