//! The threads that serve connections.

use std::num::NonZero;
use std::thread;

use tokio::runtime::{Builder, Runtime};

use crate::output::Failure;

/// The runtime a gate serves on: one thread for each core. A single one would do on two cores, beside the
/// ledger's writer; but where it has to share a core with the writer, the other core stands idle
/// (decision 0038).
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread()
        .worker_threads(cores)
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start: {error}")))
}
