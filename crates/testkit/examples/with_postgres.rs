//! Runs a command with a PostgreSQL server for its lifetime.
//!
//! `cargo run -p admit-testkit --example with_postgres -- cargo test …`: the command finds the
//! server in `ADMIT_TEST_POSTGRES`; `ADMIT_TEST_LEDGER=postgres` makes the black-box tests use it.
#![expect(clippy::print_stderr, reason = "a command-line program prints why it fails")]

use std::process::{Command, ExitCode};

use admit_testkit::postgres::Server;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("with_postgres: name the command to run");
        return ExitCode::from(2);
    };
    let Some(server) = Server::start() else {
        eprintln!("with_postgres: install the Debian package postgresql, then run this again");
        return ExitCode::FAILURE;
    };
    let status = Command::new(program)
        .args(words)
        .env("ADMIT_TEST_POSTGRES", server.url("postgres"))
        .env("ADMIT_TEST_LEDGER", "postgres")
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("with_postgres: the command could not start: {error}");
            ExitCode::FAILURE
        }
    }
}
