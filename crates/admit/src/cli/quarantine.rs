//! `admit quarantine`: what was kept but not applied, and why.

use clap::Subcommand;

use super::Place;
use super::receipts::{Page, list};
use crate::output::Failure;

/// The verdicts that keep something without applying it.
const QUARANTINED: &[&str] = &["conflict", "refused"];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List refusals and conflicts in ledger order
    #[command(after_help = "\
Examples:
  admit quarantine list
  admit quarantine list --door pixel-control --limit 5
  admit receipts get rcp-5e1f09ab-42 --body     the body of one of them, byte for byte")]
    List {
        #[command(flatten)]
        page: Page,
        #[command(flatten)]
        place: Place,
    },
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::List { page, place } => {
            let verdicts = QUARANTINED.iter().map(|&verdict| verdict.to_owned()).collect();
            list("quarantine", place, page, verdicts, json)
        }
    }
}
