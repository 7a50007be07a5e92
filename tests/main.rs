//! Black-box tests: the real binary on a folder and a port of its own, held to its promises.
//!
//! Whatever a machine cannot do (no strace, no root, no loop devices) is skipped with a line
//! `skipped: …` on standard error. `ADMIT_TEST_REQUIRE_STRACE`, `ADMIT_TEST_REQUIRE_MOUNT`,
//! `ADMIT_TEST_REQUIRE_POWER_CUT`, `ADMIT_TEST_REQUIRE_PYTHON` and `ADMIT_TEST_REQUIRE_WRK` turn such
//! a skip into a failure; `ADMIT_TEST_SEED` repeats what was random in an earlier run;
//! `ADMIT_TEST_LOAD_SECONDS` says how long the mixed load lasts (20). `ADMIT_TEST_LEDGER=postgres` has
//! the gates of all tests use the database that `ADMIT_TEST_POSTGRES` names.

// Always true for a test; it tells the lints so, also in functions that are not marked as one.
#![cfg(test)]

mod abuse;
mod bench;
#[cfg(feature = "nats")]
mod buses;
mod closure;
mod crash;
mod deploy;
mod disk;
mod disk_gone;
mod edge;
mod edge_crash;
mod edge_doors;
mod events;
mod events_clients;
mod events_out;
mod ingest;
mod ingest_crash;
mod intents;
mod intents_crash;
#[cfg(feature = "kinesis")]
mod kinesis;
mod ledger_copy;
mod limits;
mod logs;
mod many_gates;
mod many_gates_crash;
mod many_gates_failover;
#[cfg(feature = "nats")]
mod many_gates_rounds;
mod many_gates_seen;
mod many_gates_vacuum;
mod mixed_load;
mod operations;
mod pixel_control;
mod power_cut;
mod replay;
mod rounds;
mod rounds_files;
mod rounds_import;
mod rounds_published;
mod runs;
#[cfg(feature = "s3")]
mod s3;
mod serving;
mod skyra;
mod skyra_clients;
mod skyra_crash;
mod skyra_inbox;
mod stream;
mod support;
mod sync_error;
mod syncs;
