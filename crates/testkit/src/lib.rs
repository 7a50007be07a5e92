//! Test support: event builders, a manual clock, and the contract suite of each port.
//!
//! A suite is a plain function over the port. Every adapter runs it, and so does every fake, so
//! that tests against a fake are valid for the real implementation.

pub mod artifacts_suite;
pub mod attachments_suite;
pub mod bus_suite;
pub mod claim_model;
pub mod claim_suite;
pub mod clock;
pub mod closures_suite;
pub mod commands_suite;
pub mod effects_suite;
pub mod event;
pub mod faulty_bus;
pub mod gates_suite;
pub mod inbox_suite;
pub mod issuance_suite;
pub mod ledger_suite;
pub mod postgres;
pub mod proxy;
pub mod publications_suite;
pub mod records_suite;
pub mod retention_guard_suite;
pub mod retention_suite;
pub mod rng;
pub mod runs_suite;
pub mod servers;
pub mod skip;
pub mod stream_suite;
