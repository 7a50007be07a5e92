//! Command line of `admit`: the commands, and the module that runs each.

mod attach;
mod backup;
mod bus_messages;
mod config;
mod copy;
mod edge;
mod edge_invalid;
mod edge_refused;
mod gate_client;
mod import;
mod inbox;
mod intents;
mod keys;
mod ledger;
mod ledger_files;
mod quarantine;
mod receipts;
mod reconcile;
mod repair;
mod rounds;
mod run_reports;
mod runs;
mod stream;
mod stream_progress;
mod verify;
mod verify_advice;
mod verify_artifacts;
mod verify_bus;
mod verify_prefetch;
mod verify_publications;
mod verify_records;
mod verify_stores;

pub(crate) use gate_client::{KEY_VARIABLE, connect_addr};
pub(crate) use verify::{VerifyResult, collect_disagreements};

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::{Shell, generate};

use crate::bench;
use crate::config::{CONFIG_FILE, Config, Flags, load, parse_listen};
use crate::output::{Failure, print_bytes};
use crate::serve;
use gate_client::GateClient;

/// Output of `--version`: the version and the commit of the build.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILT_FROM_COMMIT"), ")");

/// Durable front door for events: admits every event exactly once, acknowledges it only after it is on
/// disk, and stores a receipt for every decision.
#[derive(Debug, Parser)]
#[command(name = "admit", version = VERSION, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  admit serve                        a gate on 127.0.0.1:8080, data in ./admit-data
  admit receipts list --limit 5      the first five decisions
  admit quarantine list --json       events that were not admitted, as JSON
  admit config show > admit.toml     the reference config, to edit

Exit codes: 0 success, 1 failure, 2 error in the command line or the config, 74 the disk of the
ledger did not confirm a sync (the gate stopped; check the disk, then start it again).")]
pub(crate) struct Cli {
    /// Print JSON instead of text
    #[arg(long, global = true, display_order = 100)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a gate
    #[command(after_help = "\
Examples:
  admit serve
  admit serve --data /var/lib/admit --listen 127.0.0.1:9000
  admit serve --config /etc/admit.toml
  ADMIT_LOG__LEVEL=debug admit serve

SIGTERM or Ctrl-C completes the accepted requests and exits with 0.")]
    Serve {
        #[command(flatten)]
        args: ConfigArgs,
        /// Listen address, IP:PORT; port 0 picks a free port [default: 127.0.0.1:8080]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
    },
    /// Run an agent that stores events on this machine until a gate acknowledges them
    #[command(after_help = "\
Examples:
  admit edge
  admit edge --gate https://gate.example --data /var/lib/admit-edge
  admit edge --config /etc/admit.toml
  curl --unix-socket admit-edge/edge.sock http://localhost/v1/ingress \\
    -H 'Content-Type: application/json' -d @event.json
  admit edge status

Accepted events are stored on disk and sent until the gate acknowledges them. SIGTERM or Ctrl-C
stops the agent; events that are still waiting are sent after the next start.")]
    Edge(edge::EdgeArgs),
    /// List and print receipts, also while the gate runs
    #[command(subcommand)]
    Receipts(receipts::Command),
    /// List and resolve quarantined events
    #[command(subcommand)]
    Quarantine(quarantine::Command),
    /// List and print intents, also while the gate runs
    #[command(subcommand)]
    Intents(intents::Command),
    /// List, claim and complete inbox events
    #[command(subcommand)]
    Inbox(inbox::Command),
    /// Import files through the running gate
    #[command(subcommand)]
    Import(import::Command),
    /// List and print rounds, also while the gate runs; accept or relink their events
    #[command(subcommand)]
    Rounds(rounds::Command),
    /// Execute an intent again through the running gate
    #[command(after_help = "\
Examples:
  admit replay rcp-5e1f09ab-42 --reason 'the gateway is back'
  ADMIT_KEY=... admit replay rcp-5e1f09ab-42 --listen 127.0.0.1:9000

Principal and reason are stored in the history of the intent. A gate with principals requires a key
with the role operate in ADMIT_KEY, except over the socket in its data folder.")]
    Replay(intents::ReplayArgs),
    /// Submit, list, report and close runs
    #[command(subcommand)]
    Runs(runs::Command),
    /// Stream the packs of READY runs to a gate
    #[command(after_help = "\
Examples:
  admit stream --once --gate http://127.0.0.1:8080
  admit stream --once --max-events-per-output 200 --speedup 0
  admit stream --platform-run-id platform_20260212T085637Z

It may be killed at any time: the next start continues from the checkpoints, and the gate
deduplicates rows that are sent again. Ctrl-C stops it cleanly. A gate with principals requires a
key in ADMIT_KEY or in the file stream.gate_key_file.")]
    Stream(Box<stream::StreamArgs>),
    /// List and resolve ambiguous publishes
    #[command(after_help = "\
Examples:
  admit reconcile                                    list ambiguous publishes
  admit reconcile --run platform_20260212T085637Z
  admit reconcile --apply KEY --found --reason 'checked by hand: it is at 0:17'
  admit reconcile --apply KEY --absent --reason 'the bus lost it'
  admit reconcile --all --found --absent --reason 'the gate crashed at noon'

The running gate resolves. found: admitted at its offset on the bus, with a receipt that names the
principal. absent: released, so that a retry is fresh; refused while the attempt may still reach
the bus. --all resolves only publishes whose state on the bus is certain, after listing them. A
gate with principals requires a key with the role operate in ADMIT_KEY, except over the socket in
its data folder.")]
    Reconcile(reconcile::ReconcileArgs),
    /// Benchmark durable admission on this machine
    #[command(after_help = "\
Examples:
  admit bench
  admit bench --seconds 20 --json
  admit bench --known 10000000 --dir /var/lib
  admit bench --bus nats://127.0.0.1:4222

Compare ratios within one run only: disks and other load change from run to run.")]
    Bench(bench::Bench),
    /// Verify the ledger against bodies, receipts, artifacts and bus
    #[command(after_help = "\
Examples:
  admit verify
  admit verify --data /var/lib/admit --json
  admit verify --ledger postgres://admit@db.example/admit

It only reads, also while the gate runs. It prints every disagreement; the exit code is 1 if there
is any.")]
    Verify {
        #[command(flatten)]
        args: LedgerArgs,
    },
    /// Restore artifact files from the ledger, such as receipts
    #[command(after_help = "\
Examples:
  admit repair --dry-run
  admit repair --data /var/lib/admit
  admit repair --ledger postgres://admit@db.example/admit

Missing files are written, differing files are replaced and missing governance lines are appended,
also for closed runs. The ledger is only read, and the gate may run. Rows missing in the ledger
itself need a backup; admit verify prints what to do for each disagreement.")]
    Repair(repair::RepairArgs),
    /// Make a consistent copy of a data folder, also while the gate runs
    #[command(after_help = "\
Examples:
  admit backup /backup/2026-02-19 --data /var/lib/admit
  admit backup /backup/2026-02-19 --config /etc/admit.toml --json

Ledger, file bus and local artifacts are copied consistently, and the copy is verified. It contains
everything that was acknowledged before the command started. A ledger on PostgreSQL is not
included: run pg_dump first, then this command for a bus and artifacts on this machine.")]
    Backup(backup::BackupArgs),
    /// Restore a data folder from a backup
    #[command(after_help = "\
Examples:
  admit restore /backup/2026-02-19 /var/lib/admit
  admit restore /backup/2026-02-19 /var/lib/admit --config /etc/admit.toml

The folder must be empty or missing. The copy is verified before the command ends.")]
    Restore(backup::RestoreArgs),
    /// Show the status of the ledger, migrate it, copy it, attach stores
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Generate or hash keys of principals
    #[command(subcommand)]
    Keys(keys::Command),
    /// Print or check a config
    #[command(subcommand)]
    Config(config::Command),
    /// Print shell completions
    #[command(after_help = "\
Examples:
  admit completions bash > /usr/share/bash-completion/completions/admit
  source <(admit completions zsh)")]
    Completions {
        /// Shell
        shell: Shell,
    },
}

/// Config file and data folder of a command.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// Config file [env: ADMIT_CONFIG] [default: none; `admit config show` prints the defaults]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder [default: ./admit-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl ConfigArgs {
    /// Loads the config from file, environment and flags. Returns it with the base of its relative paths.
    fn load(self, listen: Option<SocketAddr>) -> Result<(Config, PathBuf), Failure> {
        let from_env = std::env::var_os(CONFIG_FILE).filter(|path| !path.is_empty());
        let config = self.config.or(from_env.map(PathBuf::from));
        let flags = Flags { config, data: self.data, listen };
        let config = load(&flags, std::env::vars_os()).map_err(Failure::usage)?;
        Ok((config, flags.base()))
    }

    /// Client of the running gate.
    fn gate(self, listen: Option<SocketAddr>) -> Result<GateClient, Failure> {
        let is_folder_named = self.data.is_some();
        let (config, _) = self.load(listen)?;
        GateClient::new(&config, listen, is_folder_named)
    }
}

/// Config, data folder and ledger of a command.
#[derive(Debug, Args)]
struct LedgerArgs {
    #[command(flatten)]
    args: ConfigArgs,
    /// Ledger: sqlite: (in the data folder) or postgres://USER@HOST/DATABASE; put the password into
    /// ADMIT_LEDGER__PASSWORD or the configured password file [default: the config's ledger.url]
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
}

impl LedgerArgs {
    /// As [`ConfigArgs::load`], with the ledger of `--ledger`.
    fn load(self) -> Result<(Config, PathBuf), Failure> {
        let (mut config, base) = self.args.load(None)?;
        if let Some(url) = &self.ledger {
            config.ledger.url = url.as_str().into();
        }
        config.ledger.check(&base).map_err(Failure::usage)?;
        Ok((config, base))
    }
}

/// Runs the command.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    let json = cli.json;
    match cli.command {
        Command::Serve { args, listen } => {
            let (config, base) = args.load(listen)?;
            serve::run(&config, &base, json)
        }
        Command::Edge(command) => edge::run(command, json),
        Command::Receipts(command) => receipts::run(command, json),
        Command::Quarantine(command) => quarantine::run(command, json),
        Command::Intents(command) => intents::run(command, json),
        Command::Inbox(command) => inbox::run(command, json),
        Command::Import(command) => import::run(command, json),
        Command::Rounds(command) => rounds::run(command, json),
        Command::Replay(command) => intents::replay(command, json),
        Command::Runs(command) => runs::run(command, json),
        Command::Stream(command) => stream::run(*command, json),
        Command::Reconcile(command) => reconcile::run(command, json),
        Command::Bench(command) => bench::run(&command, json),
        Command::Verify { args } => verify::run(args, json),
        Command::Repair(command) => repair::run(command, json),
        Command::Backup(command) => backup::run(command, json),
        Command::Restore(command) => backup::restore(command, json),
        Command::Ledger(command) => ledger::run(command, json),
        Command::Keys(command) => keys::run(command, json),
        Command::Config(command) => config::run(command, json),
        Command::Completions { shell } => completions(shell),
    }
}

/// Error for a run that is not in the ledger.
fn unknown_run(run: &str) -> Failure {
    Failure::runtime(format!(
        "no event of run {run}: compare the spelling with the platform_run_id of a receipt (admit \
         receipts list --door ingestion-gate --json)"
    ))
}

fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "admit", &mut script);
    print_bytes(&script)
}
