//! `admit keys`: generates a key for a principal, or hashes one for the config.

use std::io::{self, Read as _};

use admit_core::hash::{hex, sha256_hex};
use clap::Subcommand;
use serde_json::json;

use crate::config::KEY_CHARS_MIN;
use crate::output::{Failure, print, print_json, print_stderr};

/// Random bytes in a key. With 256 bits an unsalted SHA-256 does not weaken it.
const KEY_BYTES: usize = 32;

/// Prefix of generated keys, so that secret scanners find leaked ones.
const PREFIX: &str = "admit_";

/// Maximum length of a key on standard input.
const KEY_CHARS_MAX: u64 = 4_096;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Generate a key, and print it once with its config entry
    #[command(after_help = "\
Examples:
  admit keys new --name arena-1
  admit keys new --json
  (umask 077; admit keys new > arena-1.key)   # then keys = [\"file:arena-1.key\"]

The producer gets the key, the config gets its sha256: form. The key is printed once and not
stored. To rotate, list both forms in `keys`, switch the producer to the new key, then remove the
old form.")]
    New {
        /// Principal of the key
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
        return Err(Failure::usage(
            "invalid principal name: use 1 to 128 characters of A-Z a-z 0-9 . _ - @ +",
        ));
    }
    let mut random = [0; KEY_BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::runtime(format!("cannot read random bytes: {error}")))?;
    let key = format!("{PREFIX}{}", hex(&random));
    let sha256_form = sha256_form(&key);
    if json {
        return print_json(&json!({ "name": name, "key": key, "config": sha256_form }));
    }
    let name = name.unwrap_or("NAME");
    // Only the key goes to stdout, so that it can be redirected into a key file.
    print_stderr("key for the producer, printed only once:\n");
    print(&format!("{key}\n"))?;
    print_stderr(&format!(
        "\nentry for the config:\n\n[[principals]]\nname = \"{name}\"\nkeys = [\"{sha256_form}\"]"
    ));
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
        return Err(Failure::usage(
            "expected a key on standard input: one word without spaces or control characters",
        ));
    }
    if key.chars().count() < KEY_CHARS_MIN {
        let reason = format!("the key is shorter than {KEY_CHARS_MIN} characters");
        return Err(Failure::usage(format!("{reason}: generate one with `admit keys new`")));
    }
    let sha256_form = sha256_form(key);
    if json {
        print_json(&json!({ "config": sha256_form }))
    } else {
        print(&format!("{sha256_form}\n"))
    }
}

fn sha256_form(key: &str) -> String {
    format!("sha256:{}", sha256_hex(key.as_bytes()))
}
