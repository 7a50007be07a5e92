//! Command line tests with the real binary: output texts and exit codes.

mod config;
mod help;
mod operations;
mod receipts;
mod serve;
mod world;
