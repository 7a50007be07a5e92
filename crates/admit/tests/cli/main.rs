//! The command line as its users meet it: the real binary, its texts and its exit codes.

mod config;
mod help;
mod operations;
mod receipts;
mod serve;
mod world;
