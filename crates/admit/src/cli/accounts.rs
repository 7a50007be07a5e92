//! `admit runs list`, `report` and `close`: which runs there are, an account of one, and its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use admit_ledger::Run;
use clap::Args;
use serde_json::{Value, json};

use super::Place;
use super::receipts::unreadable;
use crate::config::parse_listen;
use crate::ledger::open_reader;
use crate::output::{Failure, print, print_json, printable, table};

/// Most bytes of a manifest.
const MANIFEST_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Report {
    /// The run that envelopes name, such as platform_20260212T085637Z
    platform_run_id: String,
    /// Where the gate listens [default: by its data folder, else as its config says]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Close {
    /// The run that envelopes name, such as platform_20260212T085637Z
    platform_run_id: String,
    /// How many admitted events an output must have; may be given several times
    #[arg(long, value_name = "OUTPUT=COUNT", value_parser = expected)]
    expect: Vec<(String, u64)>,
    /// The same for many outputs: a JSON file {"OUTPUT": COUNT, ...}
    #[arg(long, value_name = "FILE", conflicts_with = "expect")]
    manifest: Option<PathBuf>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Where the gate listens [default: by its data folder, else as its config says]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    place: Place,
}

fn expected(text: &str) -> Result<(String, u64), String> {
    let wanted = || format!("{text:?} is not OUTPUT=COUNT");
    let (output, count) = text.rsplit_once('=').ok_or_else(wanted)?;
    let count = count.parse().map_err(|_| wanted())?;
    if output.is_empty() { Err(wanted()) } else { Ok((output.to_owned(), count)) }
}

/// A run may be called anything that stands in a path as it is.
fn path(run: &str, what: &str) -> Result<String, Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if run.is_empty() || !run.bytes().all(is_plain) {
        return Err(Failure::usage(format!("{} is not the name of a run", printable(run))));
    }
    Ok(format!("/v1/runs/{run}/{what}"))
}

pub(super) fn list(
    place: Place,
    after: String,
    limit: usize,
    as_json: bool,
) -> Result<(), Failure> {
    let (config, base) = place.load(None)?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let runs = runtime.block_on(ledger.runs(after, limit.max(1)));
    let runs = runs.map_err(|fault| unreadable(&fault))?;
    if as_json {
        let listed: Vec<Value> = runs.iter().map(object).collect();
        let next = runs.last().filter(|_| runs.len() == limit.max(1)).map(|run| &run.id);
        return print_json(&json!({ "runs": listed, "next": next }));
    }
    if runs.is_empty() {
        return print("no envelope has named a run\n");
    }
    let rows = runs.iter().map(|run| {
        let counts = &run.counts;
        let mut row = vec![printable(&run.id), run.state.as_str().to_owned()];
        for count in
            [counts.admit, counts.duplicate, counts.quarantine, counts.in_flight, counts.ambiguous]
        {
            row.push(count.to_string());
        }
        row.push(run.changed_at.to_rfc3339_millis());
        row
    });
    let columns = [
        "run",
        "state",
        "admit",
        "duplicate",
        "quarantine",
        "in flight",
        "ambiguous",
        "last changed",
    ];
    print(&table(&columns, rows))
}

fn object(run: &Run) -> Value {
    let counts = &run.counts;
    json!({
        "platform_run_id": run.id,
        "state": run.state.as_str(),
        "opened_at": run.opened_at.to_rfc3339_millis(),
        "changed_at": run.changed_at.to_rfc3339_millis(),
        "deliveries": counts.deliveries,
        "admit": counts.admit,
        "duplicate": counts.duplicate,
        "quarantine": counts.quarantine,
        "in_flight": counts.in_flight,
        "publish_ambiguous": counts.ambiguous,
    })
}

pub(super) fn report(asked: Report, as_json: bool) -> Result<(), Failure> {
    let path = path(&asked.platform_run_id, "report")?;
    let said = asked.place.gate(asked.listen)?.get_account(&path)?;
    if as_json {
        return print_json(&said);
    }
    let plain = |value: &Value| match value.as_str() {
        Some(text) => printable(text),
        None if value.is_null() => String::new(),
        None => value.to_string(),
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in ["platform_run_id", "state", "generated_at_utc", "deliveries", "in_flight"] {
        rows.push(vec![name.to_owned(), plain(&said[name])]);
    }
    rows.extend(members(&said["ingress"]).map(|(name, count)| vec![name.clone(), plain(count)]));
    for name in ["open", "superseded"] {
        rows.push(vec![format!("quarantine {name}"), plain(&said["quarantine"][name])]);
    }
    for (how, count) in members(&said["quarantine"]["released"]) {
        rows.push(vec![format!("quarantine {}", printable(how)), plain(count)]);
    }
    for (reason, count) in members(&said["reasons"]) {
        rows.push(vec![printable(reason), plain(count)]);
    }
    print(&table(&["what", "value"], rows))?;
    for (title, name) in [("producer", "producers"), ("output", "outputs")] {
        let rows = members(&said[name]).map(|(name, split)| {
            let count = |decision: &str| plain(&split[decision]);
            vec![printable(name), count("admit"), count("duplicate"), count("quarantine")]
        });
        print("\n")?;
        print(&table(&[title, "admit", "duplicate", "quarantine"], rows))?;
    }
    let refs = said["artifact_refs"].as_array().map(Vec::as_slice).unwrap_or_default();
    refs.iter().try_for_each(|place| print(&format!("\nwritten to {}\n", plain(place))))
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub(super) fn close(asked: Close, as_json: bool) -> Result<(), Failure> {
    let path = path(&asked.platform_run_id, "close")?;
    let run = printable(&asked.platform_run_id);
    let manifest = match asked.manifest {
        Some(file) => Some(read(&file)?),
        None if asked.expect.is_empty() => None,
        None => Some(json!(asked.expect.into_iter().collect::<BTreeMap<_, _>>())),
    };
    let body = json!({ "manifest": manifest, "reason": asked.reason }).to_string();
    let answer = asked.place.gate(asked.listen)?.post_account(&path, &body)?;
    let said: Value = serde_json::from_slice(&answer.body)
        .map_err(|_| Failure::runtime("the gate's answer cannot be read"))?;
    if as_json {
        print_json(&said)?;
    }
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    if answer.status == 200 {
        let line = format!("{run} is closed, see {}\n", text(&said["closure_ref"]));
        return if as_json { Ok(()) } else { print(&line) };
    }
    let mut why = format!("{run} was not closed: {}", text(&said["error"]["message"]));
    for reason in said["reasons"].as_array().map(Vec::as_slice).unwrap_or_default() {
        why.push_str(&format!("\n  {}: {}", text(&reason["code"]), text(&reason["message"])));
        for named in
            reason["sample"].as_array().map(Vec::as_slice).unwrap_or_default().iter().take(5)
        {
            why.push_str(&format!("\n    {}", text(named)));
        }
    }
    Err(Failure::runtime(why))
}

fn read(path: &Path) -> Result<Value, Failure> {
    use std::io::Read as _;
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the manifest {}: {error}", path.display()))
    };
    let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
    let mut text = String::new();
    file.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).map_err(|error| cannot(&error))?;
    serde_json::from_str(&text).map_err(|error| cannot(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_is_an_output_and_a_count() {
        assert_eq!(expected("a=3"), Ok(("a".to_owned(), 3)));
        assert_eq!(expected("a=b=0"), Ok(("a=b".to_owned(), 0)));
        for wrong in ["a", "=3", "a=", "a=-1", "a=x"] {
            assert!(expected(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_is_not_a_path() {
        assert_eq!(path("platform_1", "close").unwrap(), "/v1/runs/platform_1/close");
        for wrong in ["", "a/b", "a b", "a?b", "ä"] {
            assert!(path(wrong, "close").is_err(), "{wrong}");
        }
    }
}
