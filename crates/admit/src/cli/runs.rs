//! `admit runs`: submits a run, prints its state, publishes its message again.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use admit_runs::runner::{self, RunStatus};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::receipts::unreadable;
use super::{ConfigArgs, gate_client, run_reports};
use crate::config::parse_listen;
use crate::ledger::open_reader;
use crate::output::{Failure, print, print_json, printable, table};

/// Maximum size of a request.
const REQUEST_BYTES_MAX: u64 = 256 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Submit a run: its pack is validated, then READY is published
    #[command(after_help = "\
Examples:
  admit runs submit --request run.json
  admit runs submit --key demo-1 --manifest-fingerprint c8fd… --parameter-hash 56d4… --seed 42 \\
      --scenario-id baseline_v1 --window-start 2026-01-01T00:00:00Z \\
      --window-end 2026-01-02T00:00:00Z --engine-run-root packs/demo/engine_run

Submitting the same run again returns its current state. The exit code is 1 if the run failed or is
quarantined. A gate with principals requires a key with the role operate in ADMIT_KEY, except over
the socket in its data folder.")]
    Submit(Box<SubmitArgs>),
    /// Print the state of a run, also while the gate runs
    #[command(after_help = "\
Example:
  admit runs status df5647f07d4f430de9cfde91f3a454b6")]
    Status {
        /// Id of the run, 32 hex digits
        run_id: String,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Re-publish a run's READY or terminal message
    #[command(after_help = "\
Examples:
  admit runs reemit df5647f07d4f430de9cfde91f3a454b6 --reason 'the streamer lost it'
  admit runs reemit df5647f07d4f430de9cfde91f3a454b6 --kind both --dry-run")]
    Reemit(ReemitArgs),
    /// List the runs of all admitted envelopes, also while the gate runs
    #[command(after_help = "\
Examples:
  admit runs list
  admit runs list --json | jq '.runs[] | select(.state == \"open\")'")]
    List {
        /// Pagination cursor: only runs after this id (the `next` value of the previous page)
        #[arg(long, value_name = "RUN", default_value = "", hide_default_value = true)]
        after: String,
        /// Maximum number of rows
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Report on a run: admitted, duplicate and quarantined events
    #[command(after_help = "\
Examples:
  admit runs report platform_20260212T085637Z
  admit runs report platform_20260212T085637Z --json | jq .ingress

The report is also written to obs/platform_run_report.json under the run. It is computed from the
ledger and the receipts; the counts of the streamer are listed for comparison.")]
    Report(run_reports::ReportArgs),
    /// Close a run, unless there is an objection
    #[command(after_help = "\
Examples:
  admit runs close platform_20260212T085637Z
  admit runs close platform_20260212T085637Z --expect arrival_events_5B=200 --reason 'end of day'
  admit runs close platform_20260212T085637Z --manifest expected.json

A closed run admits no new events and cannot be opened again. With an objection the run stays open,
all reasons are printed, and the exit code is 1. A gate with principals requires a key with the
role operate in ADMIT_KEY, except over the socket in its data folder.")]
    Close(run_reports::CloseArgs),
}

#[derive(Debug, Args)]
pub(super) struct SubmitArgs {
    /// Request as a JSON file; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "flags")]
    request: Option<PathBuf>,
    #[command(flatten)]
    flags: Option<RunRequestFlags>,
    #[command(flatten)]
    gate: GateArgs,
}

/// Fields of a request, as flags.
#[derive(Debug, Args)]
#[group(id = "flags", multiple = true)]
struct RunRequestFlags {
    /// Run equivalence key: requests with the same key submit the same run
    #[arg(long, value_name = "TEXT", required_unless_present = "request")]
    key: Option<String>,
    /// Fingerprint of the manifest, 64 hex digits
    #[arg(long, value_name = "HEX")]
    manifest_fingerprint: Option<String>,
    /// Hash of the parameters, 64 hex digits
    #[arg(long, value_name = "HEX")]
    parameter_hash: Option<String>,
    /// Seed of the generated data
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Scenario
    #[arg(long, value_name = "ID", conflicts_with = "scenario_set")]
    scenario_id: Option<String>,
    /// Scenario of a set; repeatable
    #[arg(long, value_name = "ID")]
    scenario_set: Vec<String>,
    /// Start of the window, with UTC offset, such as 2026-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    window_start: Option<String>,
    /// End of the window
    #[arg(long, value_name = "TIME")]
    window_end: Option<String>,
    /// Time zone of the window
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    window_tz: String,
    /// Strategy: AUTO, FORCE_INVOKE or FORCE_REUSE
    #[arg(long, value_name = "WORD")]
    strategy: Option<String>,
    /// Output; repeatable [default: those of the configured mode]
    #[arg(long, value_name = "ID")]
    output_id: Vec<String>,
    /// Path of the pack, as the gate sees it
    #[arg(long, value_name = "PATH")]
    engine_run_root: Option<String>,
    /// Free text, stored with the run
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ReemitArgs {
    /// Id of the run, 32 hex digits
    run_id: String,
    /// Messages to publish again
    #[arg(long, value_name = "KIND", default_value = "ready-only")]
    kind: ReemitWhich,
    /// Reason, stored in the run record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Actor, stored in the run record [default: the principal of the key]
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Print what would be published, without publishing
    #[arg(long)]
    dry_run: bool,
    /// Platform run of the message [default: the active one]
    #[arg(long, value_name = "RUN")]
    platform_run_id: Option<String>,
    /// Permits a run of another platform run: one of runner.override_reasons
    #[arg(long, value_name = "CODE")]
    override_reason: Option<String>,
    #[command(flatten)]
    gate: GateArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReemitWhich {
    ReadyOnly,
    TerminalOnly,
    Both,
}

#[derive(Debug, Args)]
struct GateArgs {
    /// Address of the gate, IP:PORT [default: the socket in the data folder, else the config's listen]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    args: ConfigArgs,
}

pub(super) fn run(command: Command, as_json: bool) -> Result<(), Failure> {
    match command {
        Command::Submit(submit) => self::submit(*submit, as_json),
        Command::Status { run_id, args } => status(&run_id, args, as_json),
        Command::Reemit(reemit) => self::reemit(reemit, as_json),
        Command::List { after, limit, args } => run_reports::list(args, after, limit, as_json),
        Command::Report(command) => run_reports::report(command, as_json),
        Command::Close(command) => run_reports::close(command, as_json),
    }
}

fn submit(submit: SubmitArgs, as_json: bool) -> Result<(), Failure> {
    let SubmitArgs { request, flags, gate: GateArgs { listen, args } } = submit;
    let body = match (request, flags) {
        (Some(path), _) => read(&path)?,
        (None, Some(flags)) => flags.request().to_string(),
        (None, None) => {
            return Err(Failure::usage("give --request FILE, or --key and the other fields"));
        }
    };
    let body = reply_body(args.gate(listen)?.post("/runs", &body)?)?;
    show(&body, as_json)?;
    match body["state"].as_str() {
        Some("FAILED" | "QUARANTINED") => {
            let reason = body["reason_code"].as_str().unwrap_or("no reason code");
            Err(Failure::runtime(format!("the run did not become ready: {}", printable(reason))))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let cannot =
        |error| Failure::usage(format!("cannot read the request {}: {error}", path.display()));
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().take(REQUEST_BYTES_MAX).read_to_string(&mut text).map_err(cannot)?;
    } else {
        let file = std::fs::File::open(path).map_err(cannot)?;
        file.take(REQUEST_BYTES_MAX).read_to_string(&mut text).map_err(cannot)?;
    }
    Ok(text)
}

impl RunRequestFlags {
    /// Builds the request. The gate reports missing fields.
    fn request(self) -> Value {
        let mut request = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                request.insert(name.to_owned(), value);
            }
        };
        let scenario = match (self.scenario_id, self.scenario_set) {
            (Some(id), _) => json!({ "scenario_id": id }),
            (None, set) if set.is_empty() => json!({}),
            (None, set) => json!({ "scenario_set": set }),
        };
        put("run_equivalence_key", self.key.map(Into::into));
        put("manifest_fingerprint", self.manifest_fingerprint.map(Into::into));
        put("parameter_hash", self.parameter_hash.map(Into::into));
        put("seed", self.seed.map(Into::into));
        put("scenario", Some(scenario));
        put(
            "window",
            Some(json!({
                "window_start_utc": self.window_start,
                "window_end_utc": self.window_end,
                "window_tz": self.window_tz,
            })),
        );
        put("requested_strategy", self.strategy.map(Into::into));
        put("output_ids", (!self.output_id.is_empty()).then(|| self.output_id.into()));
        put("engine_run_root", self.engine_run_root.map(Into::into));
        put("notes", self.notes.map(Into::into));
        Value::Object(request)
    }
}

fn status(run_id: &str, args: ConfigArgs, as_json: bool) -> Result<(), Failure> {
    let (config, base) = args.load(None)?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let run = runtime.block_on(ledger.scenario_run(run_id.to_owned()));
    let run = run.map_err(|fault| unreadable(&fault))?;
    let none = || Failure::runtime(format!("no run {} in this ledger", printable(run_id)));
    let paths = config.artifacts_location().map_err(Failure::usage)?.paths();
    let reply = runner::status_reply(&RunStatus::new(run.ok_or_else(none)?), &paths);
    show(&parsed(&reply.body)?, as_json)
}

fn reemit(reemit: ReemitArgs, as_json: bool) -> Result<(), Failure> {
    let ReemitArgs {
        run_id,
        kind,
        reason,
        actor,
        dry_run,
        platform_run_id,
        override_reason,
        gate: at,
    } = reemit;
    if !run_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::usage(format!(
            "invalid run id {}: expected 32 hex digits",
            printable(&run_id)
        )));
    }
    let kind = match kind {
        ReemitWhich::ReadyOnly => "READY_ONLY",
        ReemitWhich::TerminalOnly => "TERMINAL_ONLY",
        ReemitWhich::Both => "BOTH",
    };
    let mut body = json!({ "reemit_kind": kind, "dry_run": dry_run, "reason": reason });
    body["emit_platform_run_id"] = platform_run_id.into();
    if let Some(code) = override_reason {
        body["cross_run_override"] = json!({ "reason_code": code });
    }
    let gate = at.args.gate(at.listen)?;
    let path = format!("/runs/{run_id}/reemit");
    let header = actor.as_deref().map(|actor| ("x-sr-actor", actor));
    let reply = gate.post_with(&path, header, &body.to_string())?;
    let body = reply_body(reply)?;
    if as_json {
        return print_json(&body);
    }
    let text = |name: &str| printable(body[name].as_str().unwrap_or_default());
    let published = if dry_run { "would be published" } else { "published" };
    print(&format!("{} {published} again, message {}\n", text("kind"), text("message_id")))
}

/// Parses the body of a reply; an error reply becomes a failure.
fn reply_body(reply: gate_client::GateReply) -> Result<Value, Failure> {
    let body = parsed(&reply.body)?;
    if reply.status < 300 {
        return Ok(body);
    }
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    Err(Failure::runtime(match body["error"].is_string() {
        true => format!("{}: {}", text(&body["error"]), text(&body["detail"])),
        false => format!("{}: {}", text(&body["error"]["code"]), text(&body["error"]["message"])),
    }))
}

fn parsed(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body)
        .map_err(|_| Failure::runtime("the reply of the gate is not valid JSON"))
}

/// Prints the state of a run.
fn show(body: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(body);
    }
    let names = [
        ("run", "run_id"),
        ("platform run", "platform_run_id"),
        ("state", "state"),
        ("reason", "reason_code"),
        ("changed", "updated_at_utc"),
        ("message id", "message_id"),
        ("facts", "facts_view_ref"),
        ("record", "record_ref"),
        ("message", "message"),
    ];
    let row = |(label, name): (&str, &str)| {
        let text = body[name].as_str()?;
        Some(vec![label.to_owned(), printable(text)])
    };
    print(&table(&["field", "value"], names.into_iter().filter_map(row)))?;
    let published = body["publications"].as_array().map(Vec::as_slice).unwrap_or_default();
    if published.is_empty() {
        return Ok(());
    }
    let cell = |row: &Value, name: &str| match row[name].as_str() {
        Some(text) => printable(text),
        None => row[name].as_u64().map(|number| number.to_string()).unwrap_or_default(),
    };
    let names = ["attempt", "kind", "state", "evidence", "at_utc"];
    let rows = published.iter().map(|row| names.iter().map(|name| cell(row, name)).collect());
    print("\n")?;
    print(&table(&["attempt", "kind", "state", "evidence", "changed"], rows))
}
