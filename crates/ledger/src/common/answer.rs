//! The answer to a question, whatever it is.
//!
//! Boxed on purpose: the runtime's code for a task is compiled once for every type of task, and a
//! ledger has a type for each question it can be asked. Beside the read of a database, a box costs
//! nothing.

use std::any::Any;

/// An answer on its way between two threads.
pub(crate) type Answer = Box<dyn Any + Send>;

/// The answer as what it was; `None` if it was something else.
pub(crate) fn opened<T: 'static>(answer: Answer) -> Option<T> {
    answer.downcast().ok().map(|answer| *answer)
}
