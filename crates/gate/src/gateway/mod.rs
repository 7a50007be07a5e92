//! The port through which effects leave the gate, and its adapter over HTTP.
//!
//! Invariant: a gateway never sends a request twice and never follows a redirect. What it does not
//! know it does not claim: "never sent" means that not a byte of the request left.

mod connect;
mod http;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admit_contracts::{GatewayCall, CallOutcome};
use admit_ledger::BoxFuture;
use tokio::sync::Semaphore;

use crate::ingest::Ingest;

pub use http::{GatewayError, HttpGateway, HttpGatewayConfig};

/// Calls at once, over all requests of a door.
const CALLS_MAX: usize = 64;

/// Makes calls.
pub trait Gateway: Send + Sync {
    /// Makes one call. Resolves within [`Self::call_max`].
    fn call(&self, call: GatewayCall) -> BoxFuture<'_, Called>;

    /// The longest a call takes.
    fn call_max(&self) -> Duration;
}

/// A call that has been made.
pub struct Called {
    /// What is known when its time is up.
    pub outcome: CallOutcome,
    /// What may still become known afterwards.
    pub late: Option<BoxFuture<'static, CallOutcome>>,
}

impl fmt::Debug for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Called").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// What a door's effects need.
#[derive(Clone)]
pub struct Outward {
    /// Who is called. Without one, what is intended stays so.
    pub gateway: Option<Arc<dyn Gateway>>,
    /// How long a copy waits for the outcome of the first, before it is told how far that has come.
    pub in_work_wait: Duration,
    /// Where a door publishes, instead of calling.
    pub(crate) ingest: Option<Arc<Ingest>>,
    /// A place for each call under way.
    pub(crate) calls: Arc<Semaphore>,
}

impl Outward {
    /// Effects go to `gateway`.
    pub fn new(gateway: Option<Arc<dyn Gateway>>, in_work_wait: Duration) -> Self {
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        Self { gateway, in_work_wait, ingest: None, calls }
    }

    /// Effects are published.
    pub fn publishing(ingest: Arc<Ingest>) -> Self {
        Self { ingest: Some(ingest), ..Self::default() }
    }

    /// How much longer than usual an answer may take, because of what it waits for.
    pub(crate) fn patience(&self) -> Duration {
        if let Some(ingest) = &self.ingest {
            return ingest.patience();
        }
        if self.gateway.is_some() { self.call_max() + self.in_work_wait } else { Duration::ZERO }
    }

    /// The longest a call takes.
    pub(crate) fn call_max(&self) -> Duration {
        if let Some(ingest) = &self.ingest {
            return ingest.publish_max();
        }
        self.gateway.as_ref().map_or(Duration::ZERO, |gateway| gateway.call_max())
    }
}

impl Default for Outward {
    fn default() -> Self {
        Self::new(None, Duration::ZERO)
    }
}
