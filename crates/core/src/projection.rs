//! In-ledger side effects: a fold over one named document, applied inside the record commit.
//!
//! A contract hands the ledger a [`Projection`] with each event. The ledger loads the document,
//! lets the projection change it and stores it in the same transaction as the admission, so the
//! effect happens exactly once or not at all. Many events of one batch on one document cost one
//! write. A ledger with concurrent writers locks the entities in sorted order first.

use std::any::Any;
use std::fmt;

/// Names one document of one projection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId {
    /// The kind of document: `pixel.server`.
    pub projection: &'static str,
    /// Which one, unambiguous within its kind.
    pub entity: String,
}

/// A document while a batch works on it: parsed once, changed by many events, written once.
pub trait Document: Any + Send {
    /// The document as JSON text, the way it is stored.
    fn to_text(&self) -> String;
}

/// A pure change of one document.
///
/// `apply` either changes the document or fails without having changed it; then only the event it
/// belongs to fails.
pub trait Projection: Send + Sync + fmt::Debug {
    /// The document it changes.
    fn entity(&self) -> EntityId;

    /// Reads the stored text, or makes the document that stands before the first event.
    fn load(&self, stored: Option<&str>) -> Result<Box<dyn Document>, ProjectionError>;

    /// Changes the document, which came from [`Self::load`] of a projection of the same kind.
    fn apply(&self, document: &mut dyn Document) -> Result<(), ProjectionError>;
}

/// A projection that could not be applied, which is a defect of ours or a damaged document.
#[derive(Debug, thiserror::Error)]
#[error("projection {projection} of {entity} failed: {message}")]
pub struct ProjectionError {
    /// The kind of document.
    pub projection: &'static str,
    /// Which one.
    pub entity: String,
    /// What went wrong.
    pub message: String,
}
