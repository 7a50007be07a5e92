//! Port to the scenario runner, for the run routes of the gate.

use std::pin::Pin;
use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::Fault;
use bytes::Bytes;

/// A run request in progress. It completes even if the client disconnects.
pub type RunnerFuture = Pin<Box<dyn Future<Output = Result<Reply, Fault>> + Send>>;

/// Submits runs and reports their state, with replies in the wire format of the runner. Every returned
/// future may be completed after the client has disconnected.
pub trait ScenarioRunner: Send + Sync {
    /// Submits a run.
    fn submit(self: Arc<Self>, request: Bytes) -> RunnerFuture;

    /// Re-publishes the READY message of a run.
    fn reemit(self: Arc<Self>, run_id: String, by: Actor, request: Bytes) -> RunnerFuture;

    /// Returns the state of a run.
    fn status(self: Arc<Self>, run_id: String) -> RunnerFuture;

    /// Returns the run id of a submission, if the request is valid.
    fn run_of(&self, request: &[u8]) -> Option<String>;
}

/// Initiator of a re-publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Name given in the request; the principal's name by default.
    pub name: String,
    /// Authenticated principal.
    pub principal: String,
}
