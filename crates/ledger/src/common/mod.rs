//! What every ledger does alike, whatever database it keeps its rows in: the calls that wait, who
//! shares a commit, who is told of it, how the ledger is doing, and what is decided inside.

pub(crate) mod answer;
pub(crate) mod claims;
pub(crate) mod clock;
pub(crate) mod group;
pub(crate) mod hang_watch;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod news;
pub(crate) mod queue;
mod quota;
pub(crate) mod receipts;
pub(crate) mod records;
pub(crate) mod retention;

pub use quota::RefusalQuota;
pub(crate) use quota::refusal_cost;

/// From which version to which the tables were brought; zero is none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// How many migrations were in.
    pub from: usize,
    /// How many are in now.
    pub to: usize,
}
