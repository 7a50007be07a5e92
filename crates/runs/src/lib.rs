//! Runs of a data platform: the scenario runner, the streamer, and run reports and closures.
//!
//! The runner checks the evidence of a run and publishes READY. The streamer reads the sealed pack of the
//! run and pushes its rows to an ingestion gate; the gate decides about admission, and the streamer stores
//! only its progress. Reports and closures are computed from the ledger.

pub mod catalogue;
pub mod closure;
pub mod id_format;
pub mod report;
pub mod runner;
pub mod streamer;
