//! Library of the `admit` binary: the command line, and the composition root of gate, ledger, bus and
//! artifacts.

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
mod run_reports;
mod runner;
mod runtime;
mod serve;
mod socket;
mod startup_banner;
mod stores;

use std::process::ExitCode;

use clap::Parser as _;

/// Entry point: parses the command line and runs the command.
pub fn main() -> ExitCode {
    // Two TLS providers may be linked in; the default must be chosen before the first TLS connection.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return output::finish(Err(output::Failure::runtime(
            "the default TLS provider is already installed",
        )));
    }
    output::finish(cli::run(cli::Cli::parse()))
}
