//! Sender tests against a scripted peer.

// Always true for a test; needed so that lints treat all functions here as test code.
#![cfg(test)]

mod peer;
mod sending;
