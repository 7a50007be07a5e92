//! Write operations of trusted time.

use admit_core::Millis;

use crate::port::ClockConfirmation;

/// Name of the stored trusted time.
pub(crate) const TRUSTED_AT: &str = "trusted_at";

/// Stores a trusted time.
pub(crate) struct NoteTime(pub(crate) Millis);

/// Records a confirmation and the trusted time it sets.
pub(crate) struct ConfirmTime(pub(crate) ClockConfirmation);
