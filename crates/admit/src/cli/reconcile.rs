//! `admit reconcile`: lists ambiguous publishes of all doors with their state on the bus, and resolves them.
//!
//! Nothing is resolved automatically. `--all` prints the list and prompts before it resolves.

use std::io::{BufRead as _, IsTerminal as _};
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{ConfigArgs, GateClient};
use crate::config::parse_listen;
use crate::output::{Failure, print, print_json, print_stderr, printable, table};

/// Rows requested per page.
const PAGE: usize = 500;

/// Paths of the ambiguous publishes of each publishing door.
const INGESTION: &str = "/v1/reconcile";
const ROUNDS: &str = "/v1/rounds/reconcile";

/// Arguments of `admit reconcile`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").args(["apply", "all"]))]
pub(super) struct ReconcileArgs {
    /// Only publishes of this run of the ingestion gate, such as platform_20260212T085637Z
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Resolve the publish with this dedupe key; repeatable
    #[arg(long, value_name = "KEY")]
    apply: Vec<String>,
    /// Resolve all publishes whose state on the bus is certain, after listing them
    #[arg(long)]
    all: bool,
    /// Resolve as found on the bus: admitted or published. With --all: those found exactly once
    #[arg(long, requires = "which")]
    found: bool,
    /// Resolve as absent: a retry is fresh, a round is published again. With --all: those not found
    #[arg(long, requires = "which")]
    absent: bool,
    /// Position on the bus, PARTITION:OFFSET, if it was found twice or is unknown
    #[arg(long, value_name = "POSITION", requires = "found", conflicts_with_all = ["all", "absent"])]
    at: Option<String>,
    /// Reason, stored in the receipt and the history
    #[arg(long, value_name = "TEXT", requires = "which")]
    reason: Option<String>,
    /// Skip the prompt of --all
    #[arg(long, requires = "all")]
    yes: bool,
    /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    args: ConfigArgs,
}

/// Requested resolution of a publish.
struct PublishResolution {
    key: String,
    resolution: &'static str,
}

pub(super) fn run(command: ReconcileArgs, as_json: bool) -> Result<(), Failure> {
    let ReconcileArgs { run, apply, all, found, absent, at, reason, yes, listen, args } = command;
    let gate = args.gate(listen)?;
    if apply.is_empty() && !all {
        let listed = list(&gate, run.as_deref())?;
        return show(&listed, as_json);
    }
    let hint = "give --found or --absent, and --reason TEXT";
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.ok_or_else(|| Failure::usage(hint))?;
    let resolutions = if all {
        if !found && !absent {
            return Err(Failure::usage(hint));
        }
        let listed = list(&gate, run.as_deref())?;
        let resolutions = resolutions(&listed, found, absent);
        if !as_json {
            show(&listed, false)?;
        }
        if resolutions.is_empty() {
            return if listed.is_empty() {
                nothing_to_resolve(as_json)
            } else {
                Err(Failure::runtime(
                    "nothing to resolve: the bus state of every listed publish is uncertain",
                ))
            };
        }
        if !yes && !confirm(resolutions.len())? {
            return Err(Failure::runtime("not confirmed; nothing was resolved"));
        }
        resolutions
    } else {
        let resolution = match (found, absent) {
            (true, false) => "found",
            (false, true) => "absent",
            _ => return Err(Failure::usage("give either --found or --absent")),
        };
        apply.into_iter().map(|key| PublishResolution { key, resolution }).collect()
    };
    resolve(&gate, resolutions, at.as_deref(), &reason, as_json)
}

/// Prints that the list is empty. Not a failure, so that the command can run periodically.
fn nothing_to_resolve(as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({ "resolved": [] }));
    }
    print("nothing to resolve: nothing is ambiguous\n")
}

/// Resolutions of the publishes whose state on the bus is certain and that may be resolved now.
fn resolutions(listed: &[Value], found: bool, absent: bool) -> Vec<PublishResolution> {
    let to_resolution = |row: &Value| {
        let resolution = match row["bus"].as_str()? {
            "found" if found => "found",
            "absent" if absent && row["may_still_land"].is_null() => "absent",
            _ => return None,
        };
        Some(PublishResolution { key: row["dedupe_key"].as_str()?.to_owned(), resolution })
    };
    listed.iter().filter_map(to_resolution).collect()
}

fn confirm(count: usize) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage("no terminal to prompt on: check the list, then add --yes"));
    }
    print_stderr(&format!("resolve these {count} publishes? type yes:"));
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(Failure::runtime)?;
    Ok(line.trim().eq_ignore_ascii_case("yes"))
}

fn resolve(
    gate: &GateClient,
    resolutions: Vec<PublishResolution>,
    at: Option<&str>,
    reason: &str,
    as_json: bool,
) -> Result<(), Failure> {
    let mut resolved = Vec::new();
    let mut failed = 0;
    for PublishResolution { key, resolution } in resolutions {
        let mut body = json!({ "resolution": resolution, "reason": reason });
        if let Some(at) = at {
            let parsed = at.split_once(':').and_then(|(partition, offset)| {
                Some((partition.parse::<u32>().ok()?, offset.to_owned()))
            });
            let (partition, offset) =
                parsed.filter(|(_, offset)| !offset.is_empty()).ok_or_else(|| {
                    Failure::usage(format!(
                        "invalid --at {at:?}: expected PARTITION:OFFSET, such as 0:42"
                    ))
                })?;
            (body["partition"], body["offset"]) = (partition.into(), offset.into());
        }
        let is_key = key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_key {
            return Err(Failure::usage(format!(
                "invalid dedupe key {key:?}: expected 64 hex digits"
            )));
        }
        let body = body.to_string();
        let mut reply = gate.post(&format!("{INGESTION}/{key}"), &body)?;
        // Only one of the doors has the key, and the other door may not be configured.
        if reply.status != 200 {
            let rounds_reply = gate.post(&format!("{ROUNDS}/{key}"), &body)?;
            reply = if rounds_reply.status == 404 { reply } else { rounds_reply };
        }
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let is_done = reply.status == 200;
        failed += u64::from(!is_done);
        if !as_json {
            let line = match is_done {
                true => format!("{key} {}", body["state"].as_str().unwrap_or_default()),
                false => {
                    let message = body["error"]["message"].as_str().unwrap_or_default();
                    format!("{key} not resolved: {message}")
                }
            };
            print(&format!("{}\n", printable(&line)))?;
        }
        resolved.push(json!({ "dedupe_key": key, "status": reply.status, "answer": body }));
    }
    if as_json {
        print_json(&json!({ "resolved": resolved }))?;
    }
    match failed {
        0 => Ok(()),
        count => Err(Failure::runtime(format!("{count} publishes could not be resolved"))),
    }
}

/// Lists the ambiguous publishes of all doors.
fn list(gate: &GateClient, run: Option<&str>) -> Result<Vec<Value>, Failure> {
    let query = run.map(|run| format!("&run={run}")).unwrap_or_default();
    let ingestion = pages(gate, INGESTION, &query)?;
    if let (None, Some(run)) = (&ingestion, run) {
        return Err(super::unknown_run(run));
    }
    let rounds = if run.is_none() { pages(gate, ROUNDS, "")? } else { None };
    if ingestion.is_none() && rounds.is_none() {
        return Err(Failure::runtime("no door of this gate publishes to a bus"));
    }
    Ok(ingestion.into_iter().chain(rounds).flatten().collect())
}

/// Reads all pages of a door; `None` if the door does not publish.
fn pages(gate: &GateClient, path: &str, query: &str) -> Result<Option<Vec<Value>>, Failure> {
    let mut listed = Vec::new();
    let mut after = 0;
    loop {
        let page = gate.get_if_found(&format!("{path}?after={after}&limit={PAGE}{query}"))?;
        let Some(page) = page else { return Ok(None) };
        listed.extend(page["ambiguous"].as_array().cloned().unwrap_or_default());
        match page["next"].as_u64() {
            Some(next) if next > after => after = next,
            _ => return Ok(Some(listed)),
        }
    }
}

fn show(listed: &[Value], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({ "ambiguous": listed }));
    }
    if listed.is_empty() {
        return print("nothing is ambiguous\n");
    }
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let rows = listed.iter().map(|row| {
        let positions = row["eb_refs"].as_array().or(row["references"].as_array());
        let mut positions = positions.into_iter().flatten();
        let position = |at: &Value| format!("{}:{}", at["partition"], text(at, "offset"));
        let bus = match text(row, "bus").as_str() {
            "found" | "found_twice" => {
                let at: Vec<String> = positions.by_ref().map(position).collect();
                format!("{} at {}", text(row, "bus").replace('_', " "), at.join(" and "))
            }
            "absent" => match row["may_still_land"].as_str() {
                None => "not found".to_owned(),
                Some(why) => format!("not found, but {why}"),
            },
            _ => format!("unknown: {}", text(row, "bus_reason")),
        };
        vec![
            text(row, "dedupe_key"),
            match row["revision"].as_u64() {
                Some(revision) => format!("{} revision {revision}", text(row, "round_id")),
                None => text(row, "platform_run_id"),
            },
            text(row, "topic"),
            text(row, "ambiguous_at"),
            printable(&bus),
        ]
    });
    print(&table(&["dedupe key", "run or round", "topic", "ambiguous since", "bus state"], rows))
}
