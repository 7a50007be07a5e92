//! `admit ledger copy`: copies a ledger from SQLite into PostgreSQL.

use std::path::{Path, PathBuf};

use admit_ledger::sqlite;
use clap::Args;

use super::ConfigArgs;
#[cfg(not(feature = "postgres"))]
use crate::config::Config;
use crate::output::Failure;

/// Source and target of a copy.
#[derive(Debug, Args)]
pub(super) struct CopyArgs {
    /// Source: sqlite:DIR, a data folder [default: the config's data folder]
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Target: an empty postgres://USER@HOST/DATABASE [default: the config's ledger.url]
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    #[command(flatten)]
    args: ConfigArgs,
}

pub(super) fn run(command: CopyArgs, json: bool) -> Result<(), Failure> {
    let (mut config, base) = command.args.load(None)?;
    let from = match &command.from {
        None => config.data.clone(),
        Some(url) => folder(url)?,
    };
    if let Some(url) = &command.to {
        config.ledger.url = url.as_str().into();
    }
    config.ledger.check(&base).map_err(Failure::usage)?;
    if !config.ledger.url.is_postgres() {
        let message = "the target of a copy must be PostgreSQL: give it with --to \
                       postgres://USER@HOST/DATABASE, or as ledger.url in the config";
        return Err(Failure::usage(message));
    }
    refuse_unverified(&from)?;
    copy(&from, &config, &base, json)
}

/// Refuses a copied data folder that is not verified yet: it may be torn, and missing events would be
/// admitted a second time.
pub(super) fn refuse_unverified(data: &Path) -> Result<(), Failure> {
    if !sqlite::is_copy(data).map_err(Failure::runtime)? {
        return Ok(());
    }
    let data = data.display();
    Err(Failure::runtime(format!(
        "{data} is a copy of a data folder and was not verified yet\n  nothing was changed; start a gate \
         on it once with admit serve --data {data}, which verifies it first, or run admit verify --data \
         {data} and, if everything agrees, remove {data}/ledger.place"
    )))
}

/// Data folder of a `sqlite:` URL, which may also name the file in it.
fn folder(url: &str) -> Result<PathBuf, Failure> {
    let path = url.strip_prefix("sqlite:").filter(|path| !path.is_empty());
    let Some(path) = path.map(Path::new) else {
        let message = format!("invalid source {url:?}: expected sqlite:DIR, a data folder");
        return Err(Failure::usage(message));
    };
    if path.file_name().is_some_and(|name| name == "ledger.db") {
        return Ok(path.parent().map(Path::to_owned).unwrap_or_default());
    }
    Ok(path.to_owned())
}

#[cfg(not(feature = "postgres"))]
fn copy(_: &Path, _: &Config, _: &Path, _: bool) -> Result<(), Failure> {
    Err(Failure::usage("this build does not include PostgreSQL"))
}

#[cfg(feature = "postgres")]
use to_postgres::copy;

#[cfg(feature = "postgres")]
mod to_postgres {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use admit_ledger::copy::{CopiedLedger, CopiedTable, Progress, copy as copy_ledger};
    use serde_json::json;

    use crate::config::Config;
    use crate::ledger::postgres_options;
    use crate::output::{Failure, print, print_json, print_stderr, table, with_cause};

    /// Interval between lines of progress.
    const PROGRESS_EVERY: Duration = Duration::from_secs(2);

    pub(super) fn copy(
        from: &Path,
        config: &Config,
        base: &Path,
        as_json: bool,
    ) -> Result<(), Failure> {
        let options = postgres_options(config, base)?;
        let mut last = Instant::now();
        let mut report_progress = |now: Progress<'_>| {
            if last.elapsed() >= PROGRESS_EVERY {
                last = Instant::now();
                print_stderr(&line(now));
            }
        };
        let copied = copy_ledger(from, &options, &mut report_progress)
            .map_err(|error| with_cause(&error))?;
        if as_json { print_json(&to_json(&copied)) } else { print(&to_text(&copied)) }
    }

    fn line(now: Progress<'_>) -> String {
        let Progress { table, is_checking, rows, of } = now;
        let action = if is_checking { "verified" } else { "copied" };
        format!("{table}: {rows} of {of} rows {action}")
    }

    fn to_json(copied: &CopiedLedger) -> serde_json::Value {
        let one = |table: &CopiedTable| {
            json!({
                "table": table.name,
                "rows": table.rows,
                "digest": table.digest,
                "unfit_values": table.unfit_values,
                "unfit_rows": table.unfit_rows,
            })
        };
        json!({
            "tag": format!("{:08x}", copied.tag),
            "last_seq": copied.last_seq.0,
            "to": copied.place,
            "tables": copied.tables.iter().map(one).collect::<Vec<_>>(),
        })
    }

    fn to_text(copied: &CopiedLedger) -> String {
        let filled = copied.tables.iter().filter(|table| table.rows > 0);
        let row =
            |it: &CopiedTable| vec![it.name.to_owned(), it.rows.to_string(), it.digest.clone()];
        let mut text = table(&["table", "rows", "digest"], filled.map(row));
        let unfit = |it: &&CopiedTable| it.unfit_values + it.unfit_rows > 0;
        for it in copied.tables.iter().filter(unfit) {
            text.push_str(&format!(
                "\n{}: {} values and {} rows were left out, because they are not numbers as \
                 PostgreSQL requires; the raw bodies of their events are complete\n",
                it.name, it.unfit_values, it.unfit_rows
            ));
        }
        text.push_str(&format!(
            "\nledger {:08x} copied to {}, up to seq {}; every table was read back and agrees\nserve \
             it with ledger.url, and do not serve the folder again\n",
            copied.tag, copied.place, copied.last_seq.0
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_and_the_file_in_it_name_the_same_ledger() {
        assert_eq!(folder("sqlite:/var/lib/admit").ok(), Some(PathBuf::from("/var/lib/admit")));
        let file = folder("sqlite:/var/lib/admit/ledger.db").ok();
        assert_eq!(file, Some(PathBuf::from("/var/lib/admit")));
        assert!(folder("sqlite:").is_err() && folder("/var/lib/admit").is_err());
    }
}
