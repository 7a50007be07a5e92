//! `admit bench`: throughput and latency of durable admission, as ratios within one run.
//!
//! The bench starts its own gates in a temporary folder and sends over 64 keep-alive connections from
//! the same machine. Compare lines within one run only, not across machines or runs: the ratio of
//! `fresh` to the baseline `ceiling` is the cost of durability and deduplication.

mod append;
mod ceiling;
mod client;
mod edge;
mod gate;
mod host;
mod ledger;
mod pacer;
#[cfg(feature = "postgres")]
mod postgres;
mod report;
mod rounds;
mod sample;
mod stream;
mod sync;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admit_core::Clock as _;
use admit_gate::SystemClock;
use clap::Args;

use crate::config::{Config, Flags, load};
use crate::ledger::GateLedger;
use crate::output::Failure;
use client::Load;
use gate::BenchGate;
use report::{Figure, Report};
use rounds::{BenchLine, ROUND, baseline_load, gate_line, run_rounds};
use sample::Samples;
use stream::StreamTransport;
use workspace::BenchWorkspace;

/// Concurrent client connections.
const CONNECTIONS: usize = 64;

/// Events per request and connections of the line `batch`.
const BATCH: usize = 64;
const BATCH_CONNECTIONS: usize = 8;

/// Lines that need a complete gate.
const GATE_LINES: [&str; 7] =
    ["fresh", "half_load", "duplicate", "mixed", "batch", "stream", "grpc"];

/// Other lines. Those of a database exist with `--ledger` only.
const OTHER_LINES: [&str; 6] = ["sync", "ceiling", "publish", "ledger", "enqueue", "drain"];
const DATABASE_LINES: [&str; 2] = ["insert", "pgbench"];

/// Lines of `--known`, each measured in comparison with the same line at [`FEW_KEYS`].
const KNOWN_LINES: [&str; 2] = ["fresh", "ledger"];
const FEW_KEYS: u64 = 100_000;

/// Events stored before duplicates are measured.
const KNOWN_FOR_DUPLICATES: u64 = 20_000;

/// Arguments of `admit bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Duration of each line, in seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Fill a ledger with N keys first, and compare fresh and ledger with a ledger of 100 thousand keys
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(FEW_KEYS..))]
    known: Option<u64>,
    /// Compare with a third ledger of N keys whose keys are in a unique index of SQLite, as lines of their own
    #[arg(long, requires = "known", conflicts_with = "ledger")]
    unique_index: bool,
    /// Measure only these lines of the table, for example ceiling,fresh
    #[arg(long, value_name = "LINES", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure a ledger in this PostgreSQL database instead, against single inserts on the same server;
    /// the bench creates its own schemas and drops them
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
    /// Parent of the temporary folder; it must be on the disk to be measured
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only publish, on this bus, such as nats://127.0.0.1:4222; its messages stay on the bus
    #[arg(long, value_name = "URL", conflicts_with_all = ["known", "only"])]
    bus: Option<String>,
    /// Config file with the bus settings for --bus
    #[arg(long, value_name = "FILE", requires = "bus")]
    config: Option<PathBuf>,
}

impl Bench {
    /// Rejects unknown lines in `--only`.
    fn check_lines(&self) -> Result<(), Failure> {
        let lines = match (self.known, &self.ledger) {
            (Some(_), _) => KNOWN_LINES.to_vec(),
            (None, Some(_)) => [&GATE_LINES[..], &OTHER_LINES, &DATABASE_LINES].concat(),
            (None, None) => [&GATE_LINES[..], &OTHER_LINES].concat(),
        };
        match self.only.iter().find(|line| !lines.contains(&line.as_str())) {
            None => Ok(()),
            Some(line) => {
                let (with, lines) = (self.known.map_or("", |_| " with --known"), lines.join(", "));
                Err(Failure::usage(format!("no line {line:?}{with}; there are: {lines}")))
            }
        }
    }
}

/// Runs the benchmark and prints the report.
pub(crate) fn run(bench: &Bench, json: bool) -> Result<(), Failure> {
    bench.check_lines()?;
    let parent = bench.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("admit-bench-")
        .tempdir_in(&parent)
        .map_err(|error| Failure::runtime(format!("cannot use {}: {error}", parent.display())))?;
    let mut report = Report::new(json);
    let seconds = Duration::from_secs(bench.seconds);
    let workspace = BenchWorkspace::new(folder.path(), bench.ledger.as_deref())?;
    let selected = |line: &str| bench.only.is_empty() || bench.only.iter().any(|o| o == line);
    let measured = match (bench.known, &bench.bus) {
        (Some(known), _) => {
            let compared = KeyComparison { known, has_unique_index: bench.unique_index };
            measure_known(&workspace, &compared, seconds, &selected, &mut report)
        }
        (None, Some(url)) => measure_bus(bench, url, &workspace, seconds, &mut report),
        (None, None) => measure_all(&workspace, seconds, &selected, &mut report),
    };
    #[cfg(feature = "postgres")]
    if let Some(url) = workspace.database() {
        postgres::clean_up(url)?;
    }
    measured?;
    report.print()
}

/// Measures all selected lines.
fn measure_all(
    workspace: &BenchWorkspace,
    seconds: Duration,
    selected: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    if selected("sync") {
        report.add("sync", sync::measure(&workspace.dir(""))?);
    }
    let load = |samples, rate| Load { rate, ..Load::new(gate::PIXEL_PATH, seconds, samples) };
    #[cfg(feature = "postgres")]
    if let Some(url) = workspace.database() {
        postgres::measure(url, &workspace.dir(""), seconds, selected, report)?;
    }
    let ceiling = selected("ceiling").then(BenchGate::ceiling).transpose()?;
    if GATE_LINES.into_iter().any(selected) {
        let gate = BenchGate::pixel(workspace.open("gate")?)?;
        measure_full(&gate, ceiling.as_ref(), &load, selected, report)?;
        if selected("half_load") {
            let appending = BenchGate::appending(&workspace.dir(""))?;
            measure_half(&gate, ceiling.as_ref(), &appending, &load, report)?;
        }
        measure_streams(&gate, &load, selected, report)?;
    } else if let Some(ceiling) = &ceiling {
        let all = baseline_load(&load(Samples::fresh(0), None));
        run_rounds(seconds, vec![gate_line("ceiling", ceiling, &all)], report)?;
    }
    if selected("publish") {
        PublishBench::open("publish", workspace, None)?.measure(seconds, report)?;
    }
    if selected("ledger") {
        let mut filled = ledger::FilledLedger::open(workspace, "ledger")?;
        let measure = Box::new(|| filled.measure(ROUND));
        run_rounds(seconds, vec![("ledger", measure)], report)?;
    }
    if selected("enqueue") {
        report.add("enqueue", edge::enqueue(&workspace.dir("outbox"), seconds)?);
    }
    if selected("drain") {
        let gate = BenchGate::pixel(workspace.open("drain")?)?;
        report.add("drain", edge::drain(&workspace.dir("backlog"), gate.address())?);
    }
    Ok(())
}

/// Measures publishing on a network bus, with the file bus as the baseline.
fn measure_bus(
    bench: &Bench,
    url: &str,
    workspace: &BenchWorkspace,
    seconds: Duration,
    report: &mut Report,
) -> Result<(), Failure> {
    let (config, base) = bus_config(bench, url)?;
    // The bus is opened first, so that an unusable one fails before anything is measured.
    let on_bus = PublishBench::open("publish_bus", workspace, Some((&config, &*base)))?;
    // The file bus is the baseline.
    PublishBench::open("publish", workspace, None)?.measure(seconds, report)?;
    on_bus.measure(seconds, report)
}

/// Config of the bus, and the folder of its relative paths.
fn bus_config(bench: &Bench, url: &str) -> Result<(Config, PathBuf), Failure> {
    let flags = Flags { config: bench.config.clone(), ..Flags::default() };
    let mut config = load(&flags, std::env::vars_os()).map_err(Failure::usage)?;
    config.bus.url = url.to_owned();
    config.bus.scheme().map_err(Failure::usage)?;
    Ok((config, flags.base()))
}

/// Benchmark of the ingestion gate, on a file bus or on the bus of a config.
struct PublishBench {
    line: &'static str,
    gate: BenchGate,
    ledger: Arc<dyn GateLedger>,
    samples: Samples,
}

impl PublishBench {
    fn open(
        line: &'static str,
        workspace: &BenchWorkspace,
        bus: Option<(&Config, &Path)>,
    ) -> Result<Self, Failure> {
        // Messages stay on the bus, so every run publishes different events.
        let from = bus.map_or(6 << 40, |_| SystemClock.now().0.unsigned_abs() << 20);
        let samples = Samples::fresh(from).enveloped();
        let ledger = workspace.open(line)?;
        let gate = BenchGate::publishing(&workspace.dir(line), ledger.clone(), bus)?;
        Ok(Self { line, gate, ledger, samples })
    }

    fn measure(self, seconds: Duration, report: &mut Report) -> Result<(), Failure> {
        let Self { line, gate, ledger, samples } = self;
        let load = Load::new(gate::PUBLISH_PATH, seconds, samples);
        let figure = gate.send(&load)?;
        drop(gate);
        gate::check_published(&*ledger)?;
        report.add(line, figure);
        Ok(())
    }
}

/// Measures the closed-loop lines (each connection waits for its reply), with the baseline `ceiling`.
fn measure_full(
    gate: &BenchGate,
    ceiling: Option<&BenchGate>,
    load: &dyn Fn(Samples, Option<f64>) -> Load,
    selected: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    let fresh = load(Samples::fresh(1 << 40), None);
    let mut lines = Vec::new();
    if let Some(ceiling) = ceiling {
        lines.push(gate_line("ceiling", ceiling, &baseline_load(&fresh)));
    }
    // `half_load` needs the rate of `fresh`.
    if selected("fresh") || selected("half_load") {
        lines.push(gate_line("fresh", gate, &fresh));
    }
    if selected("duplicate") || selected("mixed") {
        fill(gate, KNOWN_FOR_DUPLICATES)?;
    }
    if selected("duplicate") {
        let samples = Samples::known(3 << 40, KNOWN_FOR_DUPLICATES);
        lines.push(gate_line("duplicate", gate, &load(samples, None)));
    }
    if selected("mixed") {
        let samples = Samples::mixed(3 << 40, KNOWN_FOR_DUPLICATES, 4 << 40);
        lines.push(gate_line("mixed", gate, &load(samples, None)));
    }
    if selected("batch") {
        let one = load(Samples::fresh(5 << 40), None);
        let (path, connections) = (gate::BATCH_PATH, BATCH_CONNECTIONS);
        lines.push(gate_line(
            "batch",
            gate,
            &Load { path, connections, per_request: BATCH, ..one },
        ));
    }
    run_rounds(fresh.seconds, lines, report)
}

/// Measures fresh events at half their maximum rate, in comparison with a door that only appends to a
/// file and syncs.
fn measure_half(
    gate: &BenchGate,
    ceiling: Option<&BenchGate>,
    appending: &BenchGate,
    load: &dyn Fn(Samples, Option<f64>) -> Load,
    report: &mut Report,
) -> Result<(), Failure> {
    let half = report.per_second("fresh").map(|fresh| fresh / 2.0);
    let half_load = load(Samples::fresh(2 << 40), half);
    let mut lines = Vec::new();
    if let Some(ceiling) = ceiling {
        lines.push(gate_line("half_ceiling", ceiling, &baseline_load(&half_load)));
    }
    lines.push(gate_line("half_append", appending, &baseline_load(&half_load)));
    lines.push(gate_line("half_load", gate, &half_load));
    run_rounds(half_load.seconds, lines, report)
}

/// Measures envelopes over WebSocket and gRPC streams.
fn measure_streams(
    gate: &BenchGate,
    load: &dyn Fn(Samples, Option<f64>) -> Load,
    selected: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    for (line, transport, from) in
        [("stream", StreamTransport::WebSocket, 6 << 40), ("grpc", StreamTransport::Grpc, 7 << 40)]
    {
        if selected(line) {
            let Load { seconds, samples, .. } = load(Samples::fresh(from), None);
            report.add(line, stream::run(gate.address(), transport, &samples, seconds)?);
        }
    }
    Ok(())
}

/// Stores the events that the duplicates repeat.
fn fill(gate: &BenchGate, events: u64) -> Result<Figure, Failure> {
    let samples = Samples::fresh(3 << 40).at_most(events);
    let seconds = Duration::from_secs(120);
    let load = Load::new(gate::PIXEL_PATH, seconds, samples);
    gate.send(&load)
}

/// What `--known` compares.
struct KeyComparison {
    known: u64,
    has_unique_index: bool,
}

impl KeyComparison {
    /// A ledger with as many keys in a unique index.
    fn open_unique<'w>(
        &self,
        workspace: &'w BenchWorkspace,
    ) -> Result<Option<ledger::FilledLedger<'w>>, Failure> {
        if !self.has_unique_index {
            return Ok(None);
        }
        let mut unique = ledger::FilledLedger::open_with(workspace, "unique_index", || {
            workspace.open_with_unique_index("unique_index")
        })?;
        unique.fill_to(self.known)?;
        Ok(Some(unique))
    }
}

/// Measures the gate, and the ledger alone, with many keys and with few, in interleaved rounds:
/// measured one after the other, the later one would be slower on hosts that allocate guest memory at
/// its first access.
fn measure_known(
    workspace: &BenchWorkspace,
    compared: &KeyComparison,
    seconds: Duration,
    selected: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut many = ledger::FilledLedger::open(workspace, "many")?;
    many.fill_to(compared.known)?;
    let mut unique = compared.open_unique(workspace)?;
    // Each line has its own small ledger, because measuring adds keys.
    let with_few = |line| {
        let mut few = ledger::FilledLedger::open(workspace, line)?;
        few.fill_to(FEW_KEYS)?;
        Ok::<_, Failure>(few)
    };
    if selected("fresh") {
        let few = with_few("few_fresh")?;
        let gates = (BenchGate::pixel(few.ledger())?, BenchGate::pixel(many.ledger())?);
        let load = |from| Load::new(gate::PIXEL_PATH, seconds, Samples::fresh(from));
        let few = gate_line("fresh_100k_known", &gates.0, &load(1 << 40));
        let many = gate_line("fresh", &gates.1, &load(2 << 40));
        let unique = unique.as_ref().map(|unique| BenchGate::pixel(unique.ledger())).transpose()?;
        let mut lines = vec![few, many];
        let all = load(2 << 40);
        lines.extend(unique.as_ref().map(|gate| gate_line("fresh_unique_index", gate, &all)));
        run_rounds(seconds, lines, report)?;
    }
    if selected("ledger") {
        let mut few = with_few("few_ledger")?;
        let few = Box::new(|| few.measure(ROUND));
        let many = Box::new(|| many.measure(ROUND));
        let mut lines: Vec<BenchLine<'_>> = vec![("ledger_100k_known", few), ("ledger", many)];
        if let Some(unique) = &mut unique {
            lines.push(("ledger_unique_index", Box::new(|| unique.measure(ROUND))));
        }
        run_rounds(seconds, lines, report)?;
    }
    report.add("restart", many.measure_restart()?);
    Ok(())
}
