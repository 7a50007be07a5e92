//! `admit bench`: how fast this machine admits events durably, as ratios within one run.
//!
//! It starts its own gates on a temporary folder and knocks over 64 keep-alive connections from the
//! same machine. Figures of different machines, or of two runs apart, say little; the ratio of
//! `fresh` to `ceiling` in one run says what durability and deduplication cost.

mod append;
mod ceiling;
mod client;
mod edge;
mod gate;
mod grounds;
mod host;
mod ledger;
mod pace;
#[cfg(feature = "postgres")]
mod postgres;
mod report;
mod sample;
mod stream;
mod sync;
mod turns;

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
use grounds::Grounds;
use report::{Figure, Report};
use sample::Samples;
use stream::Transport;
use turns::{TURN, at_ceiling, by_turns, knocking};

/// Connections that knock at the same time.
const CONNECTIONS: usize = 64;

/// Events in a request of the line `batch`, and connections that send such requests.
const BATCH: usize = 64;
const BATCH_CONNECTIONS: usize = 8;

/// The lines that need the whole gate.
const GATE_LINES: [&str; 7] =
    ["fresh", "half_load", "duplicate", "mixed", "batch", "stream", "grpc"];

/// The others. Those of a database are there where one is measured.
const OTHER_LINES: [&str; 6] = ["sync", "ceiling", "publish", "ledger", "enqueue", "drain"];
const DATABASE_LINES: [&str; 2] = ["insert", "pgbench"];

/// The lines on which it shows how many keys are known, each beside the same with [`FEW_KEYS`].
const KNOWN_LINES: [&str; 2] = ["fresh", "ledger"];
const FEW_KEYS: u64 = 100_000;

/// Events known before duplicates are measured.
const KNOWN_FOR_DUPLICATES: u64 = 20_000;

/// What `admit bench` takes.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// How long to measure each line
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Fill a ledger with N keys first, and measure fresh and ledger beside one with 100 thousand
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(FEW_KEYS..))]
    known: Option<u64>,
    /// Measure only these lines of the table, for example ceiling,fresh
    #[arg(long, value_name = "LINES", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure a ledger in this database instead, against single inserts on the same server; the
    /// bench makes schemas of its own there and drops them
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
    /// Where the temporary folder goes; it must be on the kind of disk you want to measure
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only publish, on this bus, such as nats://127.0.0.1:4222; it leaves messages there
    #[arg(long, value_name = "URL", conflicts_with_all = ["known", "only"])]
    bus: Option<String>,
    /// The config whose settings of the bus --bus goes by
    #[arg(long, value_name = "FILE", requires = "bus")]
    config: Option<PathBuf>,
}

impl Bench {
    /// A line that is not there would be measured by nothing.
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
                Err(Failure::usage(format!("there is no line {line:?}{with}; there are: {lines}")))
            }
        }
    }
}

/// Measures and prints.
pub(crate) fn run(bench: &Bench, json: bool) -> Result<(), Failure> {
    bench.check_lines()?;
    let parent = bench.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("admit-bench-")
        .tempdir_in(&parent)
        .map_err(|error| Failure::runtime(format!("cannot use {}: {error}", parent.display())))?;
    let mut report = Report::new(json);
    let seconds = Duration::from_secs(bench.seconds);
    let grounds = Grounds::new(folder.path(), bench.ledger.as_deref())?;
    let wanted = |line: &str| bench.only.is_empty() || bench.only.iter().any(|o| o == line);
    let measured = match (bench.known, &bench.bus) {
        (Some(known), _) => measure_known(&grounds, known, seconds, &wanted, &mut report),
        (None, Some(url)) => measure_bus(bench, url, &grounds, seconds, &mut report),
        (None, None) => measure_all(&grounds, seconds, &wanted, &mut report),
    };
    #[cfg(feature = "postgres")]
    if let Some(url) = grounds.database() {
        postgres::clean_up(url)?;
    }
    measured?;
    report.print()
}

/// Every wanted line of the table.
fn measure_all(
    grounds: &Grounds,
    seconds: Duration,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    if wanted("sync") {
        report.add("sync", sync::measure(&grounds.dir(""))?);
    }
    let load = |samples, rate| Load { rate, ..Load::new(gate::PIXEL_PATH, seconds, samples) };
    #[cfg(feature = "postgres")]
    if let Some(url) = grounds.database() {
        postgres::measure(url, &grounds.dir(""), seconds, wanted, report)?;
    }
    let ceiling = wanted("ceiling").then(BenchGate::ceiling).transpose()?;
    if GATE_LINES.into_iter().any(wanted) {
        let gate = BenchGate::pixel(grounds.open("gate")?)?;
        measure_full(&gate, ceiling.as_ref(), &load, wanted, report)?;
        if wanted("half_load") {
            let appending = BenchGate::appending(&grounds.dir(""))?;
            measure_half(&gate, ceiling.as_ref(), &appending, &load, report)?;
        }
        measure_streams(&gate, &load, wanted, report)?;
    } else if let Some(ceiling) = &ceiling {
        let all = at_ceiling(&load(Samples::fresh(0), None));
        by_turns(seconds, vec![knocking("ceiling", ceiling, &all)], report)?;
    }
    if wanted("publish") {
        Publishing::open("publish", grounds, None)?.measure(seconds, report)?;
    }
    if wanted("ledger") {
        let mut filled = ledger::Filled::open(grounds, "ledger")?;
        let measure = Box::new(|| filled.measure(TURN));
        by_turns(seconds, vec![("ledger", measure)], report)?;
    }
    if wanted("enqueue") {
        report.add("enqueue", edge::enqueue(&grounds.dir("outbox"), seconds)?);
    }
    if wanted("drain") {
        let gate = BenchGate::pixel(grounds.open("drain")?)?;
        report.add("drain", edge::drain(&grounds.dir("backlog"), gate.address())?);
    }
    Ok(())
}

/// Publishing on a bus that is somewhere else, beside the same on files.
fn measure_bus(
    bench: &Bench,
    url: &str,
    grounds: &Grounds,
    seconds: Duration,
    report: &mut Report,
) -> Result<(), Failure> {
    let (config, base) = bus_config(bench, url)?;
    // A bus that cannot be used is said before anything is measured.
    let on_bus = Publishing::open("publish_bus", grounds, Some((&config, &*base)))?;
    // The same on files: what the bus costs is their ratio.
    Publishing::open("publish", grounds, None)?.measure(seconds, report)?;
    on_bus.measure(seconds, report)
}

/// The config of that bus, and where its files are.
fn bus_config(bench: &Bench, url: &str) -> Result<(Config, PathBuf), Failure> {
    let flags = Flags { config: bench.config.clone(), ..Flags::default() };
    let mut config = load(&flags, std::env::vars_os()).map_err(Failure::usage)?;
    config.bus.url = url.to_owned();
    config.bus.scheme().map_err(Failure::usage)?;
    Ok((config, flags.base()))
}

/// The ingestion gate from the request to the receipt, on a file bus or on the one of a config.
struct Publishing {
    line: &'static str,
    gate: BenchGate,
    ledger: Arc<dyn GateLedger>,
    samples: Samples,
}

impl Publishing {
    fn open(
        line: &'static str,
        grounds: &Grounds,
        bus: Option<(&Config, &Path)>,
    ) -> Result<Self, Failure> {
        // A bus keeps what it got: every run publishes other events.
        let from = bus.map_or(6 << 40, |_| SystemClock.now().0.unsigned_abs() << 20);
        let samples = Samples::fresh(from).enveloped();
        let ledger = grounds.open(line)?;
        let gate = BenchGate::publishing(&grounds.dir(line), ledger.clone(), bus)?;
        Ok(Self { line, gate, ledger, samples })
    }

    fn measure(self, seconds: Duration, report: &mut Report) -> Result<(), Failure> {
        let Self { line, gate, ledger, samples } = self;
        let load = Load::new(gate::PUBLISH_PATH, seconds, samples);
        let figure = gate.knock(&load)?;
        drop(gate);
        gate::check_published(&*ledger)?;
        report.add(line, figure);
        Ok(())
    }
}

/// What is sent as fast as it is answered, beside the ceiling.
fn measure_full(
    gate: &BenchGate,
    ceiling: Option<&BenchGate>,
    load: &dyn Fn(Samples, Option<f64>) -> Load,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    let fresh = load(Samples::fresh(1 << 40), None);
    let mut lines = Vec::new();
    if let Some(ceiling) = ceiling {
        lines.push(knocking("ceiling", ceiling, &at_ceiling(&fresh)));
    }
    // Half of a rate wants to know the rate.
    if wanted("fresh") || wanted("half_load") {
        lines.push(knocking("fresh", gate, &fresh));
    }
    if wanted("duplicate") || wanted("mixed") {
        fill(gate, KNOWN_FOR_DUPLICATES)?;
    }
    if wanted("duplicate") {
        let samples = Samples::known(3 << 40, KNOWN_FOR_DUPLICATES);
        lines.push(knocking("duplicate", gate, &load(samples, None)));
    }
    if wanted("mixed") {
        let samples = Samples::mixed(3 << 40, KNOWN_FOR_DUPLICATES, 4 << 40);
        lines.push(knocking("mixed", gate, &load(samples, None)));
    }
    if wanted("batch") {
        let one = load(Samples::fresh(5 << 40), None);
        let (path, connections) = (gate::BATCH_PATH, BATCH_CONNECTIONS);
        lines.push(knocking("batch", gate, &Load { path, connections, per_request: BATCH, ..one }));
    }
    by_turns(fresh.seconds, lines, report)
}

/// Fresh events at half of the rate that they were just answered at, beside a door that only appends and
/// syncs.
fn measure_half(
    gate: &BenchGate,
    ceiling: Option<&BenchGate>,
    appending: &BenchGate,
    load: &dyn Fn(Samples, Option<f64>) -> Load,
    report: &mut Report,
) -> Result<(), Failure> {
    let half = report.per_second("fresh").map(|fresh| fresh / 2.0);
    let paced = load(Samples::fresh(2 << 40), half);
    let mut lines = Vec::new();
    if let Some(ceiling) = ceiling {
        lines.push(knocking("half_ceiling", ceiling, &at_ceiling(&paced)));
    }
    lines.push(knocking("half_append", appending, &at_ceiling(&paced)));
    lines.push(knocking("half_load", gate, &paced));
    by_turns(paced.seconds, lines, report)
}

/// Envelopes over streams.
fn measure_streams(
    gate: &BenchGate,
    load: &dyn Fn(Samples, Option<f64>) -> Load,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    for (line, transport, from) in
        [("stream", Transport::WebSocket, 6 << 40), ("grpc", Transport::Grpc, 7 << 40)]
    {
        if wanted(line) {
            let Load { seconds, samples, .. } = load(Samples::fresh(from), None);
            report.add(line, stream::run(gate.address(), transport, &samples, seconds)?);
        }
    }
    Ok(())
}

/// Sends what duplicates will repeat.
fn fill(gate: &BenchGate, events: u64) -> Result<Figure, Failure> {
    let samples = Samples::fresh(3 << 40).at_most(events);
    let seconds = Duration::from_secs(120);
    let load = Load::new(gate::PIXEL_PATH, seconds, samples);
    gate.knock(&load)
}

/// The gate and its ledger alone with `known` keys and with few: two of each, by turns. The second has a
/// large file behind it, and on a machine whose host hands out memory at the first touch whatever comes
/// later is slower for that alone.
fn measure_known(
    grounds: &Grounds,
    known: u64,
    seconds: Duration,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut many = ledger::Filled::open(grounds, "many")?;
    many.fill_to(known)?;
    // What is measured adds keys, which shows where there are few: each line has its own.
    let with_few = |line| {
        let mut few = ledger::Filled::open(grounds, line)?;
        few.fill_to(FEW_KEYS)?;
        Ok::<_, Failure>(few)
    };
    if wanted("fresh") {
        let few = with_few("few_fresh")?;
        let gates = (BenchGate::pixel(few.ledger())?, BenchGate::pixel(many.ledger())?);
        let load = |from| Load::new(gate::PIXEL_PATH, seconds, Samples::fresh(from));
        let few = knocking("fresh_100k_known", &gates.0, &load(1 << 40));
        let many = knocking("fresh", &gates.1, &load(2 << 40));
        by_turns(seconds, vec![few, many], report)?;
    }
    if wanted("ledger") {
        let mut few = with_few("few_ledger")?;
        let few = Box::new(|| few.measure(TURN));
        let many = Box::new(|| many.measure(TURN));
        by_turns(seconds, vec![("ledger_100k_known", few), ("ledger", many)], report)?;
    }
    report.add("restart", many.measure_restart()?);
    Ok(())
}
