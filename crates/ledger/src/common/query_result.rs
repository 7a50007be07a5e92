//! Type-erased query result.
//!
//! Boxed on purpose: the runtime compiles its task code once per future type, and a ledger has one type
//! per query. The cost of a box is negligible next to a database read.

use std::any::Any;

/// Query result passed between two threads.
pub(crate) type QueryResult = Box<dyn Any + Send>;

/// Returns the value if it has the type `T`.
pub(crate) fn downcast<T: 'static>(result: QueryResult) -> Option<T> {
    result.downcast().ok().map(|result| *result)
}
