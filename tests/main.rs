//! Black-box tests: the real binary on a folder and a port of its own, held to its promises.
//!
//! Whatever a machine cannot do (no strace, no root, no loop devices) is skipped with a line
//! `skipped: …` on standard error. `ADMIT_TEST_REQUIRE_STRACE`, `ADMIT_TEST_REQUIRE_MOUNT` and
//! `ADMIT_TEST_REQUIRE_POWER_CUT` turn such a skip into a failure; `ADMIT_TEST_SEED` repeats what
//! was random in an earlier run.

// Always true for a test; it tells the lints so, also in functions that are not marked as one.
#![cfg(test)]

mod crash;
mod disk;
mod intents;
mod intents_crash;
mod limits;
mod pixel_control;
mod power_cut;
mod serving;
mod support;
mod sync_error;
mod syncs;
