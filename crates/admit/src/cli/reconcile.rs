//! `admit reconcile`: ambiguous publishes, what the bus says of each, and what a person makes of it.
//! Those of the ingestion gate and those of rounds, each where its door keeps them.
//!
//! Nothing resolves by itself. Whoever resolves many at once sees the list first.

use std::io::{BufRead as _, IsTerminal as _};
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{Asking, Place};
use crate::config::parse_listen;
use crate::output::{Failure, aside, print, print_json, printable, table};

/// Rows that are asked for at a time.
const PAGE: usize = 500;

/// Where the doors that publish list what is ambiguous there.
const INGESTION: &str = "/v1/reconcile";
const ROUNDS: &str = "/v1/rounds/reconcile";

/// `admit reconcile`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").args(["apply", "all"]))]
pub(super) struct Reconcile {
    /// Only of this run of the ingestion gate, such as platform_20260212T085637Z
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Resolve the publish with this dedupe key; may be given several times
    #[arg(long, value_name = "KEY")]
    apply: Vec<String>,
    /// Resolve all that the bus is sure of, after showing them
    #[arg(long)]
    all: bool,
    /// It is on the bus: admitted, or published. With --all: those that the bus has once
    #[arg(long, requires = "which")]
    found: bool,
    /// It is not on the bus: a retry is fresh, a round is sent again. With --all: those it lacks
    #[arg(long, requires = "which")]
    absent: bool,
    /// Where it is, PARTITION:OFFSET, when the bus has it twice or cannot tell
    #[arg(long, value_name = "PLACE", requires = "found", conflicts_with_all = ["all", "absent"])]
    at: Option<String>,
    /// Why, for the receipt and the history
    #[arg(long, value_name = "TEXT", requires = "which")]
    reason: Option<String>,
    /// Do not ask before --all resolves
    #[arg(long, requires = "all")]
    yes: bool,
    /// Where the gate listens [default: by its data folder, else as its config says]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    place: Place,
}

/// One resolution that is to be asked for.
struct Wish {
    key: String,
    resolution: &'static str,
}

pub(super) fn run(command: Reconcile, as_json: bool) -> Result<(), Failure> {
    let Reconcile { run, apply, all, found, absent, at, reason, yes, listen, place } = command;
    let gate = place.gate(listen)?;
    if apply.is_empty() && !all {
        let listed = list(&gate, run.as_deref())?;
        return show(&listed, as_json);
    }
    let wants = "say --found or --absent, and --reason TEXT";
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.ok_or_else(|| Failure::usage(wants))?;
    let wishes = if all {
        if !found && !absent {
            return Err(Failure::usage(wants));
        }
        let listed = list(&gate, run.as_deref())?;
        let wishes = wishes(&listed, found, absent);
        // In the way of a program only when a program asked for it.
        if !as_json {
            show(&listed, false)?;
        }
        if wishes.is_empty() {
            return if listed.is_empty() {
                nothing_to_resolve(as_json)
            } else {
                Err(Failure::runtime("there is nothing here that the bus is sure of"))
            };
        }
        if !yes && !confirmed(wishes.len())? {
            return Err(Failure::runtime("nothing was resolved"));
        }
        wishes
    } else {
        let resolution = match (found, absent) {
            (true, false) => "found",
            (false, true) => "absent",
            _ => return Err(Failure::usage("say --found or --absent, one of them")),
        };
        apply.into_iter().map(|key| Wish { key, resolution }).collect()
    };
    resolve(&gate, wishes, at.as_deref(), &reason, as_json)
}

/// Not a failure: a script that runs this regularly finds nothing most of the time.
fn nothing_to_resolve(as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({ "resolved": [] }));
    }
    print("nothing to resolve: nothing is ambiguous\n")
}

/// What the bus is sure of, and may be resolved now.
fn wishes(listed: &[Value], found: bool, absent: bool) -> Vec<Wish> {
    let wish = |row: &Value| {
        let resolution = match row["bus"].as_str()? {
            "found" if found => "found",
            "absent" if absent && row["may_still_land"].is_null() => "absent",
            _ => return None,
        };
        Some(Wish { key: row["dedupe_key"].as_str()?.to_owned(), resolution })
    };
    listed.iter().filter_map(wish).collect()
}

fn confirmed(count: usize) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage("nobody is there to ask: look at the list, then add --yes"));
    }
    aside(&format!("resolve these {count}? type yes:"));
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(Failure::runtime)?;
    Ok(line.trim().eq_ignore_ascii_case("yes"))
}

fn resolve(
    gate: &Asking,
    wishes: Vec<Wish>,
    at: Option<&str>,
    reason: &str,
    as_json: bool,
) -> Result<(), Failure> {
    let mut told = Vec::new();
    let mut failed = 0;
    for Wish { key, resolution } in wishes {
        let mut body = json!({ "resolution": resolution, "reason": reason });
        if let Some(at) = at {
            let parsed = at.split_once(':').and_then(|(partition, offset)| {
                Some((partition.parse::<u32>().ok()?, offset.to_owned()))
            });
            let (partition, offset) =
                parsed.filter(|(_, offset)| !offset.is_empty()).ok_or_else(|| {
                    Failure::usage(format!("--at {at:?} is no PARTITION:OFFSET such as 0:42"))
                })?;
            (body["partition"], body["offset"]) = (partition.into(), offset.into());
        }
        let is_key = key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_key {
            return Err(Failure::usage(format!("{key:?} is no dedupe key (64 hex digits)")));
        }
        let body = body.to_string();
        let mut answer = gate.post(&format!("{INGESTION}/{key}"), &body)?;
        // Only one of the doors knows the key, and it may be the only one there is.
        if answer.status != 200 {
            let there = gate.post(&format!("{ROUNDS}/{key}"), &body)?;
            answer = if there.status == 404 { answer } else { there };
        }
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let is_done = answer.status == 200;
        failed += u64::from(!is_done);
        if !as_json {
            let line = match is_done {
                true => format!("{key} {}", said["state"].as_str().unwrap_or_default()),
                false => {
                    let message = said["error"]["message"].as_str().unwrap_or_default();
                    format!("{key} not resolved: {message}")
                }
            };
            print(&format!("{}\n", printable(&line)))?;
        }
        told.push(json!({ "dedupe_key": key, "status": answer.status, "answer": said }));
    }
    if as_json {
        print_json(&json!({ "resolved": told }))?;
    }
    match failed {
        0 => Ok(()),
        count => Err(Failure::runtime(format!("{count} could not be resolved"))),
    }
}

/// Everything ambiguous, of every door that publishes here.
fn list(gate: &Asking, run: Option<&str>) -> Result<Vec<Value>, Failure> {
    let asked = run.map(|run| format!("&run={run}")).unwrap_or_default();
    let ingestion = pages(gate, INGESTION, &asked)?;
    if let (None, Some(run)) = (&ingestion, run) {
        return Err(super::unknown_run(run));
    }
    let rounds = if run.is_none() { pages(gate, ROUNDS, "")? } else { None };
    if ingestion.is_none() && rounds.is_none() {
        return Err(Failure::runtime("no door of this gate publishes"));
    }
    Ok(ingestion.into_iter().chain(rounds).flatten().collect())
}

/// What one door lists, page by page; `None` if it does not publish here.
fn pages(gate: &Asking, path: &str, asked: &str) -> Result<Option<Vec<Value>>, Failure> {
    let mut listed = Vec::new();
    let mut after = 0;
    loop {
        let page = gate.find(&format!("{path}?after={after}&limit={PAGE}{asked}"))?;
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
        let places = row["eb_refs"].as_array().or(row["references"].as_array());
        let mut places = places.into_iter().flatten();
        let place = |at: &Value| format!("{}:{}", at["partition"], text(at, "offset"));
        let bus = match text(row, "bus").as_str() {
            "found" | "found_twice" => {
                let at: Vec<String> = places.by_ref().map(place).collect();
                format!("{} at {}", text(row, "bus").replace('_', " "), at.join(" and "))
            }
            "absent" => match row["may_still_land"].as_str() {
                None => "not found".to_owned(),
                Some(why) => format!("not found, but {why}"),
            },
            _ => format!("cannot tell: {}", text(row, "bus_reason")),
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
    print(&table(&["dedupe key", "of", "topic", "ambiguous since", "the bus says"], rows))
}
