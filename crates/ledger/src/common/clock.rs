//! The writes of trusted time, as tasks of the writer.

use admit_core::Millis;

use crate::port::ClockConfirmation;

/// The single value that says which time is trusted.
pub(crate) const TRUSTED_AT: &str = "trusted_at";

/// Notes a trusted time.
pub(crate) struct NoteTime(pub(crate) Millis);

/// Records a confirmation, and the time it makes trusted.
pub(crate) struct ConfirmTime(pub(crate) ClockConfirmation);
