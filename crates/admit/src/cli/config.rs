//! `admit config`: prints the reference or effective config, or checks a file.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::ConfigArgs;
use crate::config::{Config, REFERENCE, check_file};
use crate::output::{Failure, print, print_json};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the reference config, or with --effective the config of a gate started here
    #[command(after_help = "\
Examples:
  admit config show > admit.toml
  ADMIT_LOG__LEVEL=debug admit config show --effective --config admit.toml

Keys of principals are never printed.")]
    Show {
        /// Merge file, environment and flags; without comments
        #[arg(long)]
        effective: bool,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Check a config file, without the environment
    #[command(after_help = "\
Example:
  admit config check admit.toml && systemctl restart admit")]
    Check {
        /// Config file
        file: PathBuf,
    },
}

pub(super) fn run(command: Command, json: bool) -> Result<(), Failure> {
    match command {
        Command::Show { effective: false, args } => {
            if args.config.is_some() || args.data.is_some() {
                return Err(Failure::usage(
                    "the reference config does not depend on --config or --data; add --effective to \
                     print the merged config",
                ));
            }
            if json { print_json(&Config::default()) } else { print(REFERENCE) }
        }
        Command::Show { effective: true, args } => {
            let (config, _) = args.load(None)?;
            if json {
                let text = serde_json::to_string_pretty(&config).map_err(Failure::runtime)?;
                return print(&format!("{}\n", without_credentials(&text)));
            }
            let text = toml::to_string(&config).map_err(Failure::runtime)?;
            print(&without_credentials(&text))
        }
        Command::Check { file } => {
            let warnings = check_file(&file).map_err(Failure::usage)?;
            if json {
                let mut checked = json!({ "file": file, "valid": true });
                if !warnings.is_empty() {
                    checked["warnings"] = json!(warnings);
                }
                return print_json(&checked);
            }
            let mut text = format!("{} is a valid config\n", file.display());
            for warning in warnings {
                text.push_str(&format!("warning: {warning}\n"));
            }
            print(&text)
        }
    }
}

/// Hides the credentials in every URL of the text: the part before `@`, and parameters with secret names.
fn without_credentials(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + "://".len());
        redacted.push_str(before);
        // URLs are quoted, in TOML and in JSON.
        let end = url.find(['"', '\'', '\n']).unwrap_or(url.len());
        let (url, after) = url.split_at(end);
        let (origin, query) = url.split_once('?').map_or((url, None), |(a, b)| (a, Some(b)));
        match origin.rsplit_once('@') {
            Some((_, host)) => redacted.push_str(&format!("(hidden)@{host}")),
            None => redacted.push_str(origin),
        }
        if let Some(query) = query {
            let parameters: Vec<String> = query.split('&').map(without_secret).collect();
            redacted.push_str(&format!("?{}", parameters.join("&")));
        }
        rest = after;
    }
    redacted.push_str(rest);
    redacted
}

fn without_secret(parameter: &str) -> String {
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["password", "secret", "token", "key"].iter().any(|word| name.contains(word))
    };
    match parameter.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=(hidden)"),
        _ => parameter.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_credentials_of_urls_are_hidden() {
        for (text, wanted) in [
            ("u = \"http://me:hush@h:1/p\"\nv = 1\n", "u = \"http://(hidden)@h:1/p\"\nv = 1\n"),
            ("{\"u\": \"nats://a:hush@b,nats://c:hush@d\"}", "{\"u\": \"nats://(hidden)@d\"}"),
            ("'s3://b?token=hush&region=eu'", "'s3://b?token=(hidden)&region=eu'"),
            ("\"http://h/a\" \"me@h\"", "\"http://h/a\" \"me@h\""),
            ("\"http://h/?q=a@b\"", "\"http://h/?q=a@b\""),
        ] {
            assert_eq!(without_credentials(text), wanted, "{text}");
        }
    }
}
