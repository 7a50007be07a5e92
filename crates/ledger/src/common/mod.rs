//! What every ledger with a writer of its own shares: the calls that wait, who shares a commit, who
//! is told of it, and how the ledger is doing.

pub(crate) mod group;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod news;
mod quota;
pub(crate) mod receipts;
pub(crate) mod retention;

pub use quota::RefusalQuota;
