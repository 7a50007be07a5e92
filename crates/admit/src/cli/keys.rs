//! `admit keys`: a new key for a producer, or the form of one that a config may hold.

use std::io::{self, Read as _};

use admit_core::hash::{hex, sha256_hex};
use clap::Subcommand;
use serde_json::json;

use crate::config::KEY_CHARS_MIN;
use crate::output::{Failure, aside, print, print_json};

/// Bytes of randomness in a key: nobody guesses it, and its plain SHA-256 gives nothing away.
const KEY_BYTES: usize = 32;

/// What keys of ours start with, so that they are found where they should not be.
const PREFIX: &str = "admit_";

/// The longest text that is taken for a key.
const KEY_CHARS_MAX: u64 = 4_096;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Draw a new key, and print it once with what goes into the config
    #[command(after_help = "\
Examples:
  admit keys new --name arena-1
  admit keys new --json
  (umask 077; admit keys new > arena-1.key)   # then keys = [\"file:arena-1.key\"]

The producer gets the key, the config gets its sha256: form. The key is shown once and kept nowhere.
To rotate, list both forms in `keys`, move the producer over, then remove the old one.")]
    New {
        /// The principal it is for
        #[arg(long)]
        name: Option<String>,
    },
    /// Print the sha256: form of a key, read from standard input
    #[command(after_help = "\
Examples:
  admit keys hash < arena-1.key
  pass show arena-1 | admit keys hash")]
    Hash,
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::New { name } => new(name.as_deref(), json),
        Command::Hash => hash(json),
    }
}

fn new(name: Option<&str>, json: bool) -> Result<(), Failure> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-@+".contains(c);
    if name.is_some_and(|name| name.is_empty() || name.len() > 128 || !name.chars().all(is_name)) {
        return Err(Failure::usage("a name has 1 to 128 characters of A-Z a-z 0-9 . _ - @ +"));
    }
    let mut drawn = [0; KEY_BYTES];
    getrandom::fill(&mut drawn)
        .map_err(|error| Failure::runtime(format!("no randomness: {error}")))?;
    let key = format!("{PREFIX}{}", hex(&drawn));
    let form = form(&key);
    if json {
        return print_json(&json!({ "name": name, "key": key, "config": form }));
    }
    let name = name.unwrap_or("NAME");
    // Only the key is on standard output, so that a file that is made of it holds a key.
    aside("the key, for the producer, shown this once:\n");
    print(&format!("{key}\n"))?;
    aside(&format!("\nfor the config:\n\n[[principals]]\nname = \"{name}\"\nkeys = [\"{form}\"]"));
    Ok(())
}

fn hash(json: bool) -> Result<(), Failure> {
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(KEY_CHARS_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Failure::runtime(format!("cannot read the key: {error}")))?;
    let key = text.trim();
    if key.is_empty() || key.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Failure::usage("a key is one word on standard input"));
    }
    if key.chars().count() < KEY_CHARS_MIN {
        let few = format!("a key of fewer than {KEY_CHARS_MIN} characters could be guessed");
        return Err(Failure::usage(format!("{few}: draw one with `admit keys new`")));
    }
    let form = form(key);
    if json { print_json(&json!({ "config": form })) } else { print(&format!("{form}\n")) }
}

fn form(key: &str) -> String {
    format!("sha256:{}", sha256_hex(key.as_bytes()))
}
