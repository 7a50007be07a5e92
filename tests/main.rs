//! Black-box tests: the real binary on a folder and a port of its own, held to its promises.
//!
//! A test that lacks a capability of the machine (no strace, no root, no loop devices) is skipped with a
//! line `skipped: …` on standard error; `ADMIT_TEST_STRICT=1` makes that a failure.
//! `ADMIT_TEST_SEED` repeats what was random in an earlier run;
//! `ADMIT_TEST_PIXEL_CONTROL_SCHEMAS` names a folder with the published schemas of `pixel-control`;
//! `ADMIT_TEST_LOAD_SECONDS` says how long the mixed load lasts (20). `ADMIT_TEST_LEDGER=postgres` has
//! the gates of all tests use the database that `ADMIT_TEST_POSTGRES` names.

// Always true for a test; it configures the lints, also for functions without `#\[test\]`.
#![cfg(test)]

mod abuse;
mod backup;
mod bench;
mod bus_damage;
#[cfg(feature = "nats")]
mod buses;
mod clients;
mod closure;
mod crash;
mod deploy;
mod deploy_chart;
mod deploy_files;
mod disk;
mod disk_gone;
mod disk_hang;
mod docs;
mod edge;
mod edge_crash;
mod edge_doors;
mod events;
mod events_clients;
mod events_out;
mod hostile_peer;
mod ingest;
mod ingest_crash;
mod ingest_rules;
mod intents;
mod intents_crash;
mod intents_rules;
#[cfg(feature = "kinesis")]
mod kinesis;
mod ledger_copy;
mod limits;
mod log_lost;
mod logs;
mod many_gates;
mod many_gates_crash;
mod many_gates_failover;
#[cfg(feature = "nats")]
mod many_gates_rounds;
mod many_gates_seen;
mod many_gates_vacuum;
mod mixed_load;
mod monitoring;
mod operations;
mod operators;
mod pixel_control;
mod pixel_control_strict;
mod power_cut;
mod receipts;
mod replay;
mod retention;
mod rounds;
mod rounds_accept;
mod rounds_files;
mod rounds_import;
mod rounds_published;
mod rounds_tables;
mod runs;
#[cfg(feature = "s3")]
mod s3;
mod serving;
mod skyra;
mod skyra_clients;
mod skyra_crash;
mod skyra_inbox;
mod stores;
mod stream;
mod support;
mod sync_error;
mod syncs;
mod upgrade;
mod verify;
