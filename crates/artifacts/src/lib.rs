//! Artifacts: receipts, quarantine records and run files, for people and programs outside the
//! ledger.
//!
//! The ledger can rebuild every artifact, so an artifact need not be synced before the reply that
//! mentions it: it must be complete under its name, and it must never change. Every adapter passes
//! the one contract suite in `admit-testkit`.

pub mod limited;
pub mod local;
pub mod path;
pub mod port;
#[cfg(feature = "s3")]
pub mod s3;

pub use limited::Limited;
pub use port::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};
