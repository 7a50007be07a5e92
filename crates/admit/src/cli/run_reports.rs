//! `admit runs list`, `report` and `close`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use admit_ledger::Run;
use clap::Args;
use serde_json::{Value, json};

use super::ConfigArgs;
use super::receipts::unreadable;
use crate::config::parse_listen;
use crate::ledger::open_reader;
use crate::output::{Failure, print, print_json, printable, table};

/// Maximum size of a manifest.
const MANIFEST_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Run id (platform_run_id of its envelopes), such as platform_20260212T085637Z
    platform_run_id: String,
    /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    args: ConfigArgs,
}

#[derive(Debug, Args)]
pub(super) struct CloseArgs {
    /// Run id (platform_run_id of its envelopes), such as platform_20260212T085637Z
    platform_run_id: String,
    /// Expected number of admitted events of an output; repeatable
    #[arg(long, value_name = "OUTPUT=COUNT", value_parser = parse_expectation)]
    expect: Vec<(String, u64)>,
    /// Expected numbers as a JSON file {"OUTPUT": COUNT, ...}
    #[arg(long, value_name = "FILE", conflicts_with = "expect")]
    manifest: Option<PathBuf>,
    /// Reason, stored with the closure
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    args: ConfigArgs,
}

fn parse_expectation(text: &str) -> Result<(String, u64), String> {
    let invalid = || format!("invalid value {text:?}: expected OUTPUT=COUNT");
    let (output, count) = text.rsplit_once('=').ok_or_else(invalid)?;
    let count = count.parse().map_err(|_| invalid())?;
    if output.is_empty() { Err(invalid()) } else { Ok((output.to_owned(), count)) }
}

/// Path of `resource` of a run. Fails if the id has characters that need escaping.
fn path(run: &str, resource: &str) -> Result<String, Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if run.is_empty() || !run.bytes().all(is_plain) {
        return Err(Failure::usage(format!(
            "invalid run id {}: allowed are A-Z a-z 0-9 _ - .",
            printable(run)
        )));
    }
    Ok(format!("/v1/runs/{run}/{resource}"))
}

pub(super) fn list(
    args: ConfigArgs,
    after: String,
    limit: usize,
    as_json: bool,
) -> Result<(), Failure> {
    let (config, base) = args.load(None)?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let runs = runtime.block_on(ledger.runs(after, limit.max(1)));
    let runs = runs.map_err(|fault| unreadable(&fault))?;
    if as_json {
        let listed: Vec<Value> = runs.iter().map(object).collect();
        let next = runs.last().filter(|_| runs.len() == limit.max(1)).map(|run| &run.id);
        return print_json(&json!({ "runs": listed, "next": next }));
    }
    if runs.is_empty() {
        return print("no runs\n");
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
    let columns =
        ["run", "state", "admit", "duplicate", "quarantine", "in flight", "ambiguous", "changed"];
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

pub(super) fn report(command: ReportArgs, as_json: bool) -> Result<(), Failure> {
    let path = path(&command.platform_run_id, "report")?;
    let body = command.args.gate(command.listen)?.get_report(&path)?;
    if as_json {
        return print_json(&body);
    }
    let plain = |value: &Value| match value.as_str() {
        Some(text) => printable(text),
        None if value.is_null() => String::new(),
        None => value.to_string(),
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in ["platform_run_id", "state", "generated_at_utc", "deliveries", "in_flight"] {
        rows.push(vec![name.to_owned(), plain(&body[name])]);
    }
    rows.extend(members(&body["ingress"]).map(|(name, count)| vec![name.clone(), plain(count)]));
    for name in ["open", "superseded"] {
        rows.push(vec![format!("quarantine {name}"), plain(&body["quarantine"][name])]);
    }
    for (how, count) in members(&body["quarantine"]["released"]) {
        rows.push(vec![format!("quarantine {}", printable(how)), plain(count)]);
    }
    for (reason, count) in members(&body["reasons"]) {
        rows.push(vec![printable(reason), plain(count)]);
    }
    print(&table(&["field", "value"], rows))?;
    for (title, name) in [("producer", "producers"), ("output", "outputs")] {
        let rows = members(&body[name]).map(|(name, split)| {
            let count = |decision: &str| plain(&split[decision]);
            vec![printable(name), count("admit"), count("duplicate"), count("quarantine")]
        });
        print("\n")?;
        print(&table(&[title, "admit", "duplicate", "quarantine"], rows))?;
    }
    let refs = body["artifact_refs"].as_array().map(Vec::as_slice).unwrap_or_default();
    refs.iter().try_for_each(|path| print(&format!("\nwritten to {}\n", plain(path))))
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub(super) fn close(command: CloseArgs, as_json: bool) -> Result<(), Failure> {
    let path = path(&command.platform_run_id, "close")?;
    let run = printable(&command.platform_run_id);
    let manifest = match command.manifest {
        Some(file) => Some(read(&file)?),
        None if command.expect.is_empty() => None,
        None => Some(json!(command.expect.into_iter().collect::<BTreeMap<_, _>>())),
    };
    let body = json!({ "manifest": manifest, "reason": command.reason }).to_string();
    let reply = command.args.gate(command.listen)?.post_close(&path, &body)?;
    let body: Value = serde_json::from_slice(&reply.body)
        .map_err(|_| Failure::runtime("the reply of the gate is not valid JSON"))?;
    if as_json {
        print_json(&body)?;
    }
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    if reply.status == 200 {
        let line = format!("{run} is closed, see {}\n", text(&body["closure_ref"]));
        return if as_json { Ok(()) } else { print(&line) };
    }
    let mut why = format!("{run} was not closed: {}", text(&body["error"]["message"]));
    for reason in body["reasons"].as_array().map(Vec::as_slice).unwrap_or_default() {
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
        assert_eq!(parse_expectation("a=3"), Ok(("a".to_owned(), 3)));
        assert_eq!(parse_expectation("a=b=0"), Ok(("a=b".to_owned(), 0)));
        for wrong in ["a", "=3", "a=", "a=-1", "a=x"] {
            assert!(parse_expectation(wrong).is_err(), "{wrong}");
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
