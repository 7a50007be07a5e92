//! The threads that serve connections.

use std::num::NonZero;
use std::thread;

use tokio::runtime::{Builder, Runtime};

use crate::output::Failure;

/// The runtime a gate serves on: one thread for each core but one, at least one. The core that is
/// left is the ledger's writer's, which is as busy as any of them and holds up everybody when it has
/// to wait for a core (decision 0030).
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread()
        .worker_threads((cores - 1).max(1))
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start: {error}")))
}
