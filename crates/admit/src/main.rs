//! The binary `admit`: the command line, and the only place where parts are put together.

mod bench;
mod cli;
mod config;
mod logs;
mod output;
mod serve;
mod welcome;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    output::finish(cli::run(cli::Cli::parse()))
}
