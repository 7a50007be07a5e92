//! JSON as this house needs it: strict to read, exact to keep, byte-for-byte to write.
//!
//! [`parse()`] reads bytes into a [`Value`] that borrows from them; [`canonical()`] writes the bytes a
//! key or digest is taken over; [`write()`] writes replies and receipts.
//!
//! Invariant: what [`parse()`] lets through, [`canonical()`] can write in the `utf8` and `ascii` forms,
//! and the bytes are those CPython would have written. What CPython reads but no other reader could
//! agree on (`NaN`, `Infinity`, a lone surrogate, `1e400`) is refused at the door.

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
