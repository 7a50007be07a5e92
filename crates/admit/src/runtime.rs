//! Async runtime that serves connections.

use std::num::NonZero;
use std::thread;

use tokio::runtime::{Builder, Runtime};

use crate::output::Failure;

/// Starts the runtime of a gate with one worker thread per core. On two cores one thread next to the
/// ledger's writer would be enough, but if the scheduler puts both on one core, the other stays idle
/// (decision 0038).
pub(crate) fn start() -> Result<Runtime, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread()
        .worker_threads(cores)
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("failed to start the async runtime: {error}")))
}
