//! The command line: what can be typed, and who does it.

mod accounts;
mod attach;
mod backup;
mod config;
mod copy;
mod edge;
mod edge_invalid;
mod gate;
mod import;
mod inbox;
mod intents;
mod keys;
mod ledger;
mod ledger_files;
mod outside;
mod outside_bus;
mod outside_pages;
mod published;
mod quarantine;
mod receipts;
mod reconcile;
mod repair;
mod rounds;
mod runs;
mod stream;
mod stream_progress;
mod verify;
mod verify_advice;
mod verify_records;

pub(crate) use gate::{KEY, reachable};
pub(crate) use verify::{Examined, examine};

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::{Shell, generate};

use crate::bench;
use crate::config::{CONFIG_FILE, Config, Flags, load, parse_listen};
use crate::output::{Failure, print_bytes};
use crate::serve;
use gate::Asking;

/// What `--version` says: the version, and the commit it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILT_FROM_COMMIT"), ")");

/// The front door for events: every event is let in exactly once, nothing is said to be in before
/// the disk says so, and every decision leaves a receipt.
#[derive(Debug, Parser)]
#[command(name = "admit", version = VERSION, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  admit serve                        a gate on 127.0.0.1:8080, data in ./admit-data
  admit receipts list --limit 5      what was decided
  admit quarantine list --json       what could not be admitted, for a program
  admit config show > admit.toml     the reference config, ready to change

Exit codes: 0 done, 1 something failed, 2 the command line or the config is wrong, 74 the ledger's
disk did not confirm a sync (the gate stopped itself; check the disk, then start it again).")]
pub(crate) struct Cli {
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true, display_order = 100)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Open the doors
    #[command(after_help = "\
Examples:
  admit serve
  admit serve --data /var/lib/admit --listen 127.0.0.1:9000
  admit serve --config /etc/admit.toml
  ADMIT_LOG__LEVEL=debug admit serve

SIGTERM or Ctrl-C finishes what was accepted and exits with 0.")]
    Serve {
        #[command(flatten)]
        place: Place,
        /// Where to listen, IP:PORT; port 0 takes any free one [default: 127.0.0.1:8080]
        #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
        listen: Option<SocketAddr>,
    },
    /// Keep events on this machine until a gate has them
    #[command(after_help = "\
Examples:
  admit edge
  admit edge --gate https://gate.example --data /var/lib/admit-edge
  admit edge --config /etc/admit.toml
  curl --unix-socket admit-edge/edge.sock http://localhost/v1/ingress \\
    -H 'Content-Type: application/json' -d @event.json
  admit edge status

What it has accepted is on its disk, and is sent until the gate acknowledges it. SIGTERM or Ctrl-C
stops it; what waits is sent after the next start.")]
    Edge(edge::Edge),
    /// Look at what was decided, also while the gate runs
    #[command(subcommand)]
    Receipts(receipts::Command),
    /// Look at what was kept but not applied, and let it go
    #[command(subcommand)]
    Quarantine(quarantine::Command),
    /// Look at what became of intents, also while the gate runs
    #[command(subcommand)]
    Intents(intents::Command),
    /// Look at the inbox, claim from it and finish what was claimed
    #[command(subcommand)]
    Inbox(inbox::Command),
    /// Bring files into the running gate
    #[command(subcommand)]
    Import(import::Command),
    /// Look at rounds, also while the gate runs; link again what is not linked
    #[command(subcommand)]
    Rounds(rounds::Command),
    /// Have the running gate make one more attempt at what an intent causes
    #[command(after_help = "\
Examples:
  admit replay rcp-5e1f09ab-42 --reason 'the gateway is back'
  ADMIT_KEY=... admit replay rcp-5e1f09ab-42 --listen 127.0.0.1:9000

Who asked and why is kept in the intent's history. A gate with principals wants a key with the role
operate, from the variable ADMIT_KEY;
beside its data folder none is needed.")]
    Replay(intents::Replay),
    /// Ask for scenario runs, and see what becomes of them
    #[command(subcommand)]
    Runs(runs::Command),
    /// Stream the packs of runs that are READY to a gate
    #[command(after_help = "\
Examples:
  admit stream --once --gate http://127.0.0.1:8080
  admit stream --once --max-events-per-output 200 --speedup 0
  admit stream --platform-run-id platform_20260212T085637Z

It may be killed at any time: the next one goes on from its checkpoints, and the gate knows copies.
Ctrl-C stops it in good order. A gate with principals wants a key, from the variable ADMIT_KEY or
from the file that stream.gate_key_file names.")]
    Stream(Box<stream::Stream>),
    /// Look at ambiguous publishes, and resolve them with a reason
    #[command(after_help = "\
Examples:
  admit reconcile                                    what is ambiguous, and what the bus says
  admit reconcile --run platform_20260212T085637Z
  admit reconcile --apply KEY --found --reason 'it is at 0:17, I looked'
  admit reconcile --apply KEY --absent --reason 'the bus lost it'
  admit reconcile --all --found --absent --reason 'the gate crashed at noon'

It asks the running gate. found: ADMITTED where the bus has it, with a receipt that says who found it.
absent: released, so that a retry is fresh; not before the attempt can no longer land. --all resolves
only what the bus is sure of, after showing the list. A gate with principals wants a key with the role
operate, from the variable ADMIT_KEY;
beside its data folder none is needed.")]
    Reconcile(reconcile::Reconcile),
    /// Measure how fast this machine admits events durably
    #[command(after_help = "\
Examples:
  admit bench
  admit bench --seconds 20 --json
  admit bench --known 10000000 --dir /var/lib
  admit bench --bus nats://127.0.0.1:4222

Compare ratios within one run only: disks and neighbours change from run to run.")]
    Bench(bench::Bench),
    /// Check that ledger, bodies, receipts and bus agree with each other
    #[command(after_help = "\
Examples:
  admit verify
  admit verify --data /var/lib/admit --json
  admit verify --ledger postgres://admit@db.example/admit

It only reads, also while the gate runs. Every disagreement is named; any makes the exit code 1.")]
    Verify {
        #[command(flatten)]
        place: LedgerPlace,
    },
    /// Write files again that the ledger can make again, such as receipts
    #[command(after_help = "\
Examples:
  admit repair --dry-run
  admit repair --data /var/lib/admit
  admit repair --ledger postgres://admit@db.example/admit

Files that are missing are written, files that say something else are replaced, governance lines that
are missing are appended; of closed runs too. The ledger is only read, and the gate may run. What the
ledger itself has lost comes from a backup; admit verify says which is which.")]
    Repair(repair::Repair),
    /// Copy a gate's data folder as it stands at one moment, also while the gate runs
    #[command(after_help = "\
Examples:
  admit backup /backup/2026-02-19 --data /var/lib/admit
  admit backup /backup/2026-02-19 --config /etc/admit.toml --json

Ledger, file bus and local artifacts are copied so that they agree, and the copy is verified. Whatever
was acknowledged before the command began is in it. A ledger on PostgreSQL is not: run pg_dump first,
then this command for the bus and the artifacts, where they are on this machine.")]
    Backup(backup::Backup),
    /// Make a data folder out of a backup
    #[command(after_help = "\
Examples:
  admit restore /backup/2026-02-19 /var/lib/admit
  admit restore /backup/2026-02-19 /var/lib/admit --config /etc/admit.toml

The folder must be empty or not there. The copy is verified before the command ends.")]
    Restore(backup::Restore),
    /// Look at the ledger as a whole, bring it up to date, copy it elsewhere
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Draw or hash keys of principals
    #[command(subcommand)]
    Keys(keys::Command),
    /// Print or check configs
    #[command(subcommand)]
    Config(config::Command),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  admit completions bash > /usr/share/bash-completion/completions/admit
  source <(admit completions zsh)")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Which gate's folder and config a command is about.
#[derive(Debug, Args)]
struct Place {
    /// The config file [env: ADMIT_CONFIG] [default: none, what `admit config show` prints]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder [default: ./admit-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Place {
    /// The config that this command line and the environment lead to, and where paths in it start.
    fn load(self, listen: Option<SocketAddr>) -> Result<(Config, PathBuf), Failure> {
        let by_variable = std::env::var_os(CONFIG_FILE).filter(|path| !path.is_empty());
        let config = self.config.or(by_variable.map(PathBuf::from));
        let flags = Flags { config, data: self.data, listen };
        let config = load(&flags, std::env::vars_os()).map_err(Failure::usage)?;
        Ok((config, flags.base()))
    }

    /// The running gate, for commands that ask it.
    fn gate(self, listen: Option<SocketAddr>) -> Result<Asking, Failure> {
        let is_folder_named = self.data.is_some();
        let (config, _) = self.load(listen)?;
        Asking::of(&config, listen, is_folder_named)
    }
}

/// Which ledger a command is about.
#[derive(Debug, Args)]
struct LedgerPlace {
    #[command(flatten)]
    place: Place,
    /// The ledger: sqlite: (in the data folder) or postgres://USER@HOST/DATABASE; its password is
    /// better in ADMIT_LEDGER__PASSWORD or in the file that the config names [default: the
    /// config's ledger.url]
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
}

impl LedgerPlace {
    /// As [`Place::load`], with the ledger that was named.
    fn load(self) -> Result<(Config, PathBuf), Failure> {
        let (mut config, base) = self.place.load(None)?;
        if let Some(url) = &self.ledger {
            config.ledger.url = url.as_str().into();
        }
        config.ledger.check(&base).map_err(Failure::usage)?;
        Ok((config, base))
    }
}

/// Does what was typed.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    let json = cli.json;
    match cli.command {
        Command::Serve { place, listen } => {
            let (config, base) = place.load(listen)?;
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
        Command::Verify { place } => verify::run(place, json),
        Command::Repair(command) => repair::run(command, json),
        Command::Backup(command) => backup::run(command, json),
        Command::Restore(command) => backup::restore(command, json),
        Command::Ledger(command) => ledger::run(command, json),
        Command::Keys(command) => keys::run(command, json),
        Command::Config(command) => config::run(command, json),
        Command::Completions { shell } => completions(shell),
    }
}

/// A run that was named on the command line and that the ledger does not have.
fn unknown_run(run: &str) -> Failure {
    Failure::runtime(format!(
        "no event has named the run {run}: compare the spelling with the platform_run_id of a \
         receipt (admit receipts list --door ingestion-gate --json)"
    ))
}

fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "admit", &mut script);
    print_bytes(&script)
}
