//! What a gate needs of a scenario runner to answer for it.

use std::pin::Pin;
use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::Fault;
use bytes::Bytes;

/// Work that outlives whoever asked for it.
pub type Work = Pin<Box<dyn Future<Output = Result<Reply, Fault>> + Send>>;

/// Says what runs are, in the words of their wire. Everything it begins may be finished without
/// whoever asked for it.
pub trait ScenarioRunner: Send + Sync {
    /// Asks for a run.
    fn submit(self: Arc<Self>, request: Bytes) -> Work;

    /// Has a run's message said again.
    fn reemit(self: Arc<Self>, run_id: String, by: Actor, request: Bytes) -> Work;

    /// How a run stands.
    fn status(self: Arc<Self>, run_id: String) -> Work;

    /// The run that a request asks for, if it is one.
    fn run_of(&self, request: &[u8]) -> Option<String>;
}

/// Who has it said again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Who they say they are; whoever says nothing is the principal.
    pub name: String,
    /// Whose key they showed.
    pub principal: String,
}
