//! What the binary `admit` does: the command line, and the only place where parts are put together.

mod accounts;
mod artifacts;
mod bench;
mod bus;
mod cli;
mod config;
mod edge;
mod ingestion;
mod ledger;
mod logs;
mod output;
mod packs;
mod runner;
mod serve;
mod socket;
mod stores;
mod welcome;
mod workers;

use std::process::ExitCode;

use clap::Parser as _;

/// Does what the command line says.
pub fn main() -> ExitCode {
    // Before anything speaks TLS: two providers may be linked in, and this one is meant.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return output::finish(Err(output::Failure::runtime("TLS was set up twice")));
    }
    output::finish(cli::run(cli::Cli::parse()))
}
