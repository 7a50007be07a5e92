//! The sender against a peer that does as it is told.

// Always true for a test; it tells the lints so, also in functions that are not marked as one.
#![cfg(test)]

mod peer;
mod sending;
