//! A file layer under SQLite that writes its log in one piece for each commit.
//!
//! SQLite writes every page of a commit to its log with two calls, one for a header of 24 bytes and one
//! for the page. Here they are collected, and written when SQLite asks for a sync or looks at the file in
//! any other way; so what is on disk when a sync begins is byte for byte what it would be without us.
//! Every other file, and every other call, goes to the system's own layer.
//!
//! Invariant: a write that was collected and then fails is told by the call that made it due. SQLite
//! makes a frame known to readers only after the sync of its commit, so nobody has seen it by then.
//!
//! This is the only crate with unsafe code (docs/decisions/0036): [`layer`] is what SQLite calls, and
//! `piece`, which decides what is collected, is plain Rust.

mod layer;
mod piece;

pub use layer::{NotRegistered, register};
