//! JSON: strict parsing, exact values, canonical output.
//!
//! [`parse()`] reads bytes into a [`Value`] that borrows from them; [`canonical()`] writes the bytes a
//! key or digest is taken over; [`write()`] writes replies and receipts.
//!
//! Invariant: every value accepted by [`parse()`] can be written by [`canonical()`] in the `utf8`
//! and `ascii` forms, byte-identical to CPython. Input that CPython reads but other readers do not
//! agree on (`NaN`, `Infinity`, a lone surrogate, `1e400`) is rejected.

mod canonical;
mod convert;
mod error;
mod escape;
mod float;
mod number;
mod object;
mod parse;
mod scan;
mod value;
mod write;

pub use canonical::{Form, canonical, canonical_into};
pub use error::{CanonicalError, JsonError};
pub use object::{IntoIter, Iter, Object};
pub use parse::{DEPTH_CEILING, INTEGER_DIGITS_MAX, Limits, parse};
pub use value::Value;
pub use write::{write, write_object};
