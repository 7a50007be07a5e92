//! In-ledger side effects: changes to a named state document, applied inside the record commit.
//!
//! A contract attaches [`Projection`]s to each event. The ledger loads the state, applies the
//! projection and stores it in the same transaction as the admission, so the effect happens exactly
//! once or not at all. Many events of one batch on one state cost one write. A ledger with
//! concurrent writers locks the states in sorted order first.

use std::any::Any;
use std::fmt;

/// Id of one projection state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId {
    /// Projection kind: `pixel.server`.
    pub projection: &'static str,
    /// Entity within the kind.
    pub entity: String,
}

/// Projection state in memory: parsed once per batch, changed by many events, written once.
pub trait ProjectionState: Any + Send {
    /// Serialises the state as JSON text for storage.
    fn to_text(&self) -> String;
}

/// Pure change of one state.
///
/// `apply` either changes the state or fails without changing it; then only the event it belongs to
/// fails.
pub trait Projection: Send + Sync + fmt::Debug {
    /// Id of the state it changes.
    fn entity(&self) -> EntityId;

    /// Parses the stored text, or creates the initial state.
    fn load(&self, stored: Option<&str>) -> Result<Box<dyn ProjectionState>, ProjectionError>;

    /// Changes the state, which was loaded by [`Self::load`] of the same kind.
    fn apply(&self, document: &mut dyn ProjectionState) -> Result<(), ProjectionError>;
}

/// Projection failure: a defect, or damaged stored state.
#[derive(Debug, thiserror::Error)]
#[error("projection {projection} of {entity} failed: {message}")]
pub struct ProjectionError {
    /// Projection kind.
    pub projection: &'static str,
    /// Entity within the kind.
    pub entity: String,
    /// Cause.
    pub message: String,
}
