//! `admit config`: the reference, what is in effect here, and whether a file is right.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::Place;
use crate::config::{Config, REFERENCE, check_file};
use crate::output::{Failure, print, print_json};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the reference config, or with --effective what a gate started here would use
    #[command(after_help = "\
Examples:
  admit config show > admit.toml
  ADMIT_LOG__LEVEL=debug admit config show --effective --config admit.toml

Keys of principals are never shown.")]
    Show {
        /// File, environment and flags put together, without comments
        #[arg(long)]
        effective: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Check a config file alone, without the environment
    #[command(after_help = "\
Example:
  admit config check admit.toml && systemctl restart admit")]
    Check {
        /// The config file
        file: PathBuf,
    },
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::Show { effective: false, place } => {
            if place.config.is_some() || place.data.is_some() {
                return Err(Failure::usage(
                    "the reference config is the same everywhere; add --effective to see what \
                     your file, environment and flags make of it",
                ));
            }
            if json { print_json(&Config::default()) } else { print(REFERENCE) }
        }
        Command::Show { effective: true, place } => {
            let (config, _) = place.load(None)?;
            if json {
                return print_json(&config);
            }
            let text = toml::to_string(&config).map_err(Failure::runtime)?;
            print(&text)
        }
        Command::Check { file } => {
            check_file(&file).map_err(Failure::usage)?;
            if json {
                return print_json(&json!({ "file": file, "valid": true }));
            }
            print(&format!("{} is a valid config\n", file.display()))
        }
    }
}
