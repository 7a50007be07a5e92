//! Shared by all ledgers: write queue, group commit, notifications, health, and the rules of records and
//! retention.

pub(crate) mod claims;
pub(crate) mod commit_batch;
pub(crate) mod hang_watch;
pub(crate) mod health;
pub(crate) mod notifier;
pub(crate) mod query_result;
pub(crate) mod queue;
mod quota;
pub(crate) mod receipts;
pub(crate) mod records;
pub(crate) mod retention;
pub(crate) mod write_command;

pub use quota::RefusalQuota;
pub(crate) use quota::refusal_cost;

/// Schema versions before and after a migration; zero is an empty database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaMigration {
    /// Number of migrations applied before.
    pub from: usize,
    /// Number of migrations applied now.
    pub to: usize,
}
