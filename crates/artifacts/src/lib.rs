//! Artifact stores: receipts, quarantine records and run files for readers outside the ledger.
//!
//! The ledger can rebuild every artifact, so an artifact need not be synced before the reply that
//! mentions it: it must be complete under its name and must never change. Every adapter passes the
//! contract suite in `admit-testkit`.

pub mod local;
pub mod path;
pub mod port;
#[cfg(feature = "s3")]
pub mod s3;
pub mod scoped;

pub use port::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};
pub use scoped::ScopedArtifacts;
