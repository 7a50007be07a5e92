//! Port for calls to an external gateway, and its HTTP adapter.
//!
//! Invariant: a gateway never sends a request twice and never follows a redirect. "Never sent" means
//! that no byte of the request was written.

mod connect;
mod http;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admit_contracts::{CallOutcome, GatewayCall};
use admit_ledger::BoxFuture;
use tokio::sync::Semaphore;

use crate::ingest::Ingest;

pub use http::{GatewayError, HttpGateway, HttpGatewayConfig};

/// Maximum number of concurrent calls of a door.
const CALLS_MAX: usize = 64;

/// Client of an external gateway.
pub trait Gateway: Send + Sync {
    /// Makes one call. Completes within [`Self::call_max`].
    fn call(&self, call: GatewayCall) -> BoxFuture<'_, CallResult>;

    /// Maximum duration of a call.
    fn call_max(&self) -> Duration;
}

/// Result of a call.
pub struct CallResult {
    /// Outcome at the timeout, or before it.
    pub outcome: CallOutcome,
    /// Outcome that may still arrive after a timeout, as evidence.
    pub late: Option<BoxFuture<'static, CallOutcome>>,
}

impl fmt::Debug for CallResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallResult").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// Target of a door's effects: a gateway, or the bus.
#[derive(Clone)]
pub struct EffectTarget {
    /// Gateway to call. Without one, effects stay intended.
    pub gateway: Option<Arc<dyn Gateway>>,
    /// How long a duplicate waits for the outcome of the first delivery, before it gets its current state.
    pub in_flight_wait: Duration,
    /// Ingestion gate, for a door that publishes instead of calling.
    pub(crate) ingest: Option<Arc<Ingest>>,
    /// Limits the concurrent calls.
    pub(crate) calls: Arc<Semaphore>,
}

impl EffectTarget {
    /// Effects are calls to `gateway`.
    pub fn new(gateway: Option<Arc<dyn Gateway>>, in_flight_wait: Duration) -> Self {
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        Self { gateway, in_flight_wait, ingest: None, calls }
    }

    /// Effects are published to the bus.
    pub fn publishing(ingest: Arc<Ingest>) -> Self {
        Self { ingest: Some(ingest), ..Self::default() }
    }

    /// Additional time that a reply may take because of its effects.
    pub(crate) fn effect_wait_max(&self) -> Duration {
        if let Some(ingest) = &self.ingest {
            return ingest.effect_wait_max();
        }
        if self.gateway.is_some() { self.call_max() + self.in_flight_wait } else { Duration::ZERO }
    }

    /// Maximum duration of a call.
    pub(crate) fn call_max(&self) -> Duration {
        if let Some(ingest) = &self.ingest {
            return ingest.publish_max();
        }
        self.gateway.as_ref().map_or(Duration::ZERO, |gateway| gateway.call_max())
    }
}

impl Default for EffectTarget {
    fn default() -> Self {
        Self::new(None, Duration::ZERO)
    }
}
