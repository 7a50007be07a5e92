//! `admit runs`: asks the running gate for a run, shows how one stands, has its message said again.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use admit_runs::runner::{self, Standing};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::receipts::unreadable;
use super::{Place, accounts, gate};
use crate::config::parse_listen;
use crate::ledger::open_reader;
use crate::output::{Failure, print, print_json, printable, table};

/// Most bytes of a request.
const REQUEST_BYTES_MAX: u64 = 256 * 1024;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Ask for a run: its pack is checked, and READY is said once it is vouched for
    #[command(after_help = "\
Examples:
  admit runs submit --request run.json
  admit runs submit --key demo-1 --manifest-fingerprint c8fd… --parameter-hash 56d4… --seed 42 \\
      --scenario-id baseline_v1 --window-start 2026-01-01T00:00:00Z \\
      --window-end 2026-01-02T00:00:00Z --engine-run-root packs/demo/engine_run

Asking again for the same run returns it as it stands. A gate with principals wants a key with the
role operate, from the variable ADMIT_KEY;
beside its data folder none is needed. The exit code is 1 when the run failed or is quarantined.")]
    Submit(Box<Submit>),
    /// Show how a run stands, also while the gate runs
    #[command(after_help = "\
Example:
  admit runs status df5647f07d4f430de9cfde91f3a454b6")]
    Status {
        /// The id of the run, 32 hex digits
        run_id: String,
        #[command(flatten)]
        place: Place,
    },
    /// Have the message about a run said again, under the id it always had
    #[command(after_help = "\
Examples:
  admit runs reemit df5647f07d4f430de9cfde91f3a454b6 --reason 'the streamer lost it'
  admit runs reemit df5647f07d4f430de9cfde91f3a454b6 --kind both --dry-run")]
    Reemit(Reemit),
    /// List every run that an envelope has named, also while the gate runs
    #[command(after_help = "\
Examples:
  admit runs list
  admit runs list --json | jq '.runs[] | select(.state == \"open\")'")]
    List {
        /// Only runs whose names come after this one
        #[arg(long, value_name = "RUN", default_value = "", hide_default_value = true)]
        after: String,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        place: Place,
    },
    /// Have the running gate report on a run: what was admitted, and what was not
    #[command(after_help = "\
Examples:
  admit runs report platform_20260212T085637Z
  admit runs report platform_20260212T085637Z --json | jq .ingress

The report is also written to obs/platform_run_report.json under the run. It is made from the ledger
and the receipts; what the streamer says it has sent stands beside it.")]
    Report(accounts::Report),
    /// Have the running gate close a run, if nothing speaks against it
    #[command(after_help = "\
Examples:
  admit runs close platform_20260212T085637Z
  admit runs close platform_20260212T085637Z --expect arrival_events_5B=200 --reason 'end of day'
  admit runs close platform_20260212T085637Z --manifest expected.json

A closed run takes nothing new, for ever. What speaks against closing is told, all of it, with exit
code 1; the run is open then as before. A gate with principals wants a key with the role operate, from
the variable ADMIT_KEY;
beside its data folder none is needed.")]
    Close(accounts::Close),
}

#[derive(Debug, Args)]
pub(super) struct Submit {
    /// The request, a JSON file; - reads it from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "flags")]
    request: Option<PathBuf>,
    #[command(flatten)]
    flags: Option<Flags>,
    #[command(flatten)]
    gate: AtGate,
}

/// A request in flags.
#[derive(Debug, Args)]
#[group(id = "flags", multiple = true)]
struct Flags {
    /// What makes two requests ask for the same run
    #[arg(long, value_name = "TEXT", required_unless_present = "request")]
    key: Option<String>,
    /// 64 hex digits
    #[arg(long, value_name = "HEX")]
    manifest_fingerprint: Option<String>,
    /// 64 hex digits
    #[arg(long, value_name = "HEX")]
    parameter_hash: Option<String>,
    /// The seed of the world
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The scenario
    #[arg(long, value_name = "ID", conflicts_with = "scenario_set")]
    scenario_id: Option<String>,
    /// One of several scenarios; may be given several times
    #[arg(long, value_name = "ID")]
    scenario_set: Vec<String>,
    /// From, with its offset from UTC, such as 2026-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    window_start: Option<String>,
    /// To
    #[arg(long, value_name = "TIME")]
    window_end: Option<String>,
    /// The time zone of the window
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    window_tz: String,
    /// AUTO, FORCE_INVOKE or FORCE_REUSE
    #[arg(long, value_name = "WORD")]
    strategy: Option<String>,
    /// An output; may be given several times [default: those of the configured mode]
    #[arg(long, value_name = "ID")]
    output_id: Vec<String>,
    /// Where the pack is, for the gate
    #[arg(long, value_name = "PLACE")]
    engine_run_root: Option<String>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Reemit {
    /// The id of the run, 32 hex digits
    run_id: String,
    /// What is said again
    #[arg(long, value_name = "KIND", default_value = "ready-only")]
    kind: Kind,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who asks, for the record [default: the principal of the key]
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// The platform run it is said for [default: the active one]
    #[arg(long, value_name = "RUN")]
    platform_run_id: Option<String>,
    /// Why a run of another platform run is said all the same, one of runner.override_reasons
    #[arg(long, value_name = "CODE")]
    override_reason: Option<String>,
    #[command(flatten)]
    gate: AtGate,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    ReadyOnly,
    TerminalOnly,
    Both,
}

#[derive(Debug, Args)]
struct AtGate {
    /// Where the gate listens [default: by its data folder, else as its config says]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(command: Command, as_json: bool) -> Result<(), Failure> {
    match command {
        Command::Submit(submit) => self::submit(*submit, as_json),
        Command::Status { run_id, place } => status(&run_id, place, as_json),
        Command::Reemit(reemit) => self::reemit(reemit, as_json),
        Command::List { after, limit, place } => accounts::list(place, after, limit, as_json),
        Command::Report(asked) => accounts::report(asked, as_json),
        Command::Close(asked) => accounts::close(asked, as_json),
    }
}

fn submit(submit: Submit, as_json: bool) -> Result<(), Failure> {
    let Submit { request, flags, gate: AtGate { listen, place } } = submit;
    let body = match (request, flags) {
        (Some(path), _) => read(&path)?,
        (None, Some(flags)) => flags.request().to_string(),
        (None, None) => return Err(Failure::usage("name --request FILE, or --key and the others")),
    };
    let said = answered(place.gate(listen)?.post("/runs", &body)?)?;
    show(&said, as_json)?;
    match said["state"].as_str() {
        Some("FAILED" | "QUARANTINED") => {
            let reason = said["reason_code"].as_str().unwrap_or("no reason was given");
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

impl Flags {
    /// The request. What is missing in it, the gate says.
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

fn status(run_id: &str, place: Place, as_json: bool) -> Result<(), Failure> {
    let (config, base) = place.load(None)?;
    let (ledger, runtime) = open_reader(&config, &base)?;
    let run = runtime.block_on(ledger.scenario_run(run_id.to_owned()));
    let run = run.map_err(|fault| unreadable(&fault))?;
    let none = || Failure::runtime(format!("there is no run {}", printable(run_id)));
    let paths = config.artifacts_place().map_err(Failure::usage)?.paths();
    let reply = runner::standing(&Standing::of(run.ok_or_else(none)?), &paths);
    show(&parsed(&reply.body)?, as_json)
}

fn reemit(reemit: Reemit, as_json: bool) -> Result<(), Failure> {
    let Reemit { run_id, kind, reason, actor, dry_run, platform_run_id, override_reason, gate: at } =
        reemit;
    if !run_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::usage(format!("{} is not the id of a run", printable(&run_id))));
    }
    let kind = match kind {
        Kind::ReadyOnly => "READY_ONLY",
        Kind::TerminalOnly => "TERMINAL_ONLY",
        Kind::Both => "BOTH",
    };
    let mut body = json!({ "reemit_kind": kind, "dry_run": dry_run, "reason": reason });
    body["emit_platform_run_id"] = platform_run_id.into();
    if let Some(code) = override_reason {
        body["cross_run_override"] = json!({ "reason_code": code });
    }
    let gate = at.place.gate(at.listen)?;
    let path = format!("/runs/{run_id}/reemit");
    let header = actor.as_deref().map(|actor| ("x-sr-actor", actor));
    let answer = gate.post_with(&path, header, &body.to_string())?;
    let said = answered(answer)?;
    if as_json {
        return print_json(&said);
    }
    let text = |name: &str| printable(said[name].as_str().unwrap_or_default());
    let did = if dry_run { "would say" } else { "said" };
    print(&format!("{did} {} again, message {}\n", text("kind"), text("message_id")))
}

/// What the gate said, or why it refused.
fn answered(answer: gate::Answer) -> Result<Value, Failure> {
    let said = parsed(&answer.body)?;
    if answer.status < 300 {
        return Ok(said);
    }
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    Err(Failure::runtime(match said["error"].is_string() {
        true => format!("{}: {}", text(&said["error"]), text(&said["detail"])),
        false => format!("{}: {}", text(&said["error"]["code"]), text(&said["error"]["message"])),
    }))
}

fn parsed(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|_| Failure::runtime("the gate's answer cannot be read"))
}

/// How a run stands, line by line.
fn show(said: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(said);
    }
    let names = [
        ("run", "run_id"),
        ("platform run", "platform_run_id"),
        ("state", "state"),
        ("reason", "reason_code"),
        ("since", "updated_at_utc"),
        ("message id", "message_id"),
        ("facts", "facts_view_ref"),
        ("record", "record_ref"),
        ("about it", "message"),
    ];
    let row = |(label, name): (&str, &str)| {
        let text = said[name].as_str()?;
        Some(vec![label.to_owned(), printable(text)])
    };
    print(&table(&["what", "value"], names.into_iter().filter_map(row)))?;
    let published = said["publications"].as_array().map(Vec::as_slice).unwrap_or_default();
    if published.is_empty() {
        return Ok(());
    }
    let cell = |row: &Value, name: &str| match row[name].as_str() {
        Some(text) => printable(text),
        None => row[name].as_u64().map(|number| number.to_string()).unwrap_or_default(),
    };
    let columns = ["attempt", "kind", "state", "evidence", "at_utc"];
    let rows = published.iter().map(|row| columns.iter().map(|name| cell(row, name)).collect());
    print("\n")?;
    print(&table(&columns, rows))
}
