//! `admit stream`: takes READY off the control bus and pushes the rows of its pack to a gate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_gate::SystemClock;
#[cfg(feature = "postgres")]
use admit_runs::streamer::checkpoint::PostgresCheckpoints;
use admit_runs::streamer::checkpoint::{Checkpoints, FileCheckpoints};
use admit_runs::streamer::control::{Control, FileControl};
use admit_runs::streamer::gate::system_chance;
use admit_runs::streamer::http::{GateSocket, HttpGate, HttpGateConfig};
use admit_runs::streamer::progress::Progress;
use admit_runs::streamer::records::ReadyRecords;
use admit_runs::streamer::{Cycle, Outcome, Parts, Status, Streamer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::stream_progress::Shown;
use super::{KEY, Place};
use crate::artifacts;
use crate::bus::{self, Reading};
use crate::config::{Config, Scheme, Speedup};
use crate::logs;
use crate::output::{Failure, print, print_json, table, with_cause};
use crate::packs;
use crate::serve::{StopSignals, ignore_hangups};

/// `admit stream`
#[derive(Debug, clap::Args)]
pub(super) struct Stream {
    /// Look at the control bus once, then end
    #[arg(long)]
    once: bool,
    /// Where the gate is [default: by its data folder, else as its config says]
    #[arg(long, value_name = "URL")]
    gate: Option<String>,
    /// READY messages to take on in one look; 0 is all
    #[arg(long, value_name = "N", env = "WSP_READY_MAX_MESSAGES", hide_env_values = true)]
    max_messages: Option<u64>,
    /// Rows of each output to stream, from its first; 0 is all
    #[arg(long, value_name = "N", env = "WSP_MAX_EVENTS_PER_OUTPUT", hide_env_values = true)]
    max_events_per_output: Option<u64>,
    /// Seconds of the rows' own time that pass in one; 0 does not wait [default: 600]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    speedup: Option<f64>,
    /// Rows of an output between two checkpoints: what a crash sends again at most [default: 10]
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<u64>,
    /// Envelopes of one output on the way at once, at most checkpoint-every [default: 16]
    #[arg(long, value_name = "N")]
    in_flight: Option<usize>,
    /// Outputs at once; 0 is all
    #[arg(long, value_name = "N", env = "WSP_OUTPUT_CONCURRENCY", hide_env_values = true)]
    concurrency: Option<usize>,
    /// How often an envelope is sent before the run has failed [default: 5]
    #[arg(long, value_name = "N")]
    retry_max_attempts: Option<u32>,
    /// The first delay between two attempts; it doubles [default: 250]
    #[arg(long, value_name = "MS")]
    retry_base_delay_ms: Option<u64>,
    /// The longest delay between two attempts [default: 5000]
    #[arg(long, value_name = "MS")]
    retry_max_delay_ms: Option<u64>,
    /// How often the control bus is looked at [default: 2000]
    #[arg(long, value_name = "MS")]
    poll_ms: Option<u64>,
    /// Only runs of this platform run
    #[arg(long, value_name = "ID", env = "PLATFORM_RUN_ID", hide_env_values = true)]
    platform_run_id: Option<String>,
    /// Also stream runs that were streamed before, from their checkpoints on
    #[arg(long)]
    again: bool,
    /// Send every row again, also those that checkpoints say are answered for; the gate knows copies
    #[arg(long, requires = "again")]
    from_start: bool,
    #[command(flatten)]
    place: Place,
}

impl Stream {
    /// Lays the flags over the config.
    fn over(&mut self, config: &mut Config) -> Result<(), Failure> {
        let stream = &mut config.stream;
        set(&mut stream.gate, self.gate.take());
        set(&mut stream.max_messages, self.max_messages);
        set(&mut stream.max_events_per_output, self.max_events_per_output);
        set(&mut stream.checkpoint_every, self.checkpoint_every);
        set(&mut stream.in_flight, self.in_flight);
        set(&mut stream.concurrency, self.concurrency);
        set(&mut stream.retry_max_attempts, self.retry_max_attempts);
        set(&mut stream.retry_base_delay_ms, self.retry_base_delay_ms);
        set(&mut stream.retry_max_delay_ms, self.retry_max_delay_ms);
        set(&mut stream.poll_ms, self.poll_ms);
        set(&mut stream.platform_run_id, self.platform_run_id.take());
        match self.speedup {
            Some(speedup) if !speedup.is_finite() => {
                Err(Failure::usage("--speedup wants a number"))
            }
            Some(speedup) => {
                stream.speedup = Speedup(speedup);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn set<T>(key: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *key = flag;
    }
}

pub(super) fn run(mut command: Stream, json: bool) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start: {error}")))?;
    ignore_hangups(&runtime)?;
    let place = Place { config: command.place.config.take(), data: command.place.data.take() };
    let is_folder_named = place.data.is_some();
    let (mut config, base) = place.load(None)?;
    command.over(&mut config)?;
    has_bus(&config)?;
    let socket = config
        .stream
        .gate
        .is_empty()
        .then(|| GateSocket { path: config.socket(), is_only: is_folder_named });
    logs::start(&config.log)?;
    let progress = Progress::default();
    runtime.block_on(async {
        let parts = parts(&config, &base, &command, socket, progress.clone()).await?;
        let stop = CancellationToken::new();
        let mut signals = StopSignals::new()?;
        let halt = async {
            let signal = signals.next().await;
            tracing::info!(signal, "stopping; it goes on from its checkpoints next time");
            stop.cancel();
            std::future::pending::<()>().await
        };
        let mut streamer = Streamer::new(parts);
        let work = async {
            if command.once {
                let cycle = streamer.cycle(&stop).await.map_err(|error| with_cause(&error))?;
                return ended(&cycle, json);
            }
            streamer.run(&stop, &mut |cycle| told(cycle, json)).await
        };
        tokio::select! {
            done = work => done,
            () = halt => Ok(()),
            () = Shown::new(progress).keep_shown() => Ok(()),
        }
    })
}

/// A data folder that no gate has published from is a mistake on the command line: nothing would ever
/// be found there.
fn has_bus(config: &Config) -> Result<(), Failure> {
    if config.bus.scheme().map_err(Failure::usage)? != Scheme::File {
        return Ok(());
    }
    let root = config.bus_root().map_err(Failure::usage)?;
    if root.is_dir() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} does not exist, so no gate publishes there: name the data folder of the gate with --data, \
         or its config with --config",
        root.display()
    )))
}

/// Puts the streamer together.
async fn parts(
    config: &Config,
    base: &Path,
    command: &Stream,
    socket: Option<GateSocket>,
    progress: Progress,
) -> Result<Parts, Failure> {
    let mut settings = config.stream.settings(base).map_err(Failure::usage)?;
    (settings.again, settings.from_start) = (command.again, command.from_start);
    let paths = config.artifacts_place().map_err(Failure::usage)?.paths();
    let opened = artifacts::open(config)?;
    let checkpoints = checkpoints(config, base)?;
    let key = match std::env::var(KEY) {
        Ok(key) if !key.is_empty() => Some(key),
        _ => config.stream.key(base).map_err(Failure::usage)?,
    };
    let gate = HttpGate::new(&HttpGateConfig {
        url: config.gate_url(),
        key_header: config.stream.gate_key_header.clone(),
        key,
        push_max: Duration::from_millis(config.stream.push_timeout_ms),
        socket,
        require_alive: config.stream.require_alive.clone(),
    })
    .map_err(|error| Failure::usage(format!("the gate: {error}")))?;
    let control: Arc<dyn Control> = match bus::open_reading(config, base).await? {
        Reading::Beside(reader) => Arc::new(FileControl::new(reader)),
        Reading::Bus(bus) => Arc::new(bus),
    };
    Ok(Parts {
        settings: Arc::new(settings),
        control,
        records: ReadyRecords::new(opened, paths),
        checkpoints,
        gate: Arc::new(gate),
        packs: packs::opener(config, config.stream.packs.clone()),
        sessions: config.data.join("stream"),
        clock: Arc::new(SystemClock),
        chance: Arc::new(system_chance),
        progress,
    })
}

/// Where progress is kept: beside the ledger where that is a database, else in a file.
fn checkpoints(config: &Config, base: &Path) -> Result<Arc<dyn Checkpoints>, Failure> {
    config.ledger.check(base).map_err(Failure::usage)?;
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        let options = crate::ledger::postgres_options(config, base)?;
        let checkpoints = PostgresCheckpoints::open(&options);
        return Ok(Arc::new(checkpoints.map_err(|error| with_cause(&error))?));
    }
    let checkpoints = FileCheckpoints::open(&config.data);
    Ok(Arc::new(checkpoints.map_err(|error| with_cause(&error))?))
}

/// Prints what one look came to, and whether all of it is done.
fn ended(cycle: &Cycle, as_json: bool) -> Result<(), Failure> {
    if as_json {
        print_json(&of_cycle(cycle))?;
    } else if cycle.outcomes.is_empty() {
        print("nothing to stream\n")?;
    } else {
        print(&summary(&cycle.outcomes))?;
    }
    let left = cycle.outcomes.iter().filter(|outcome| !outcome.status.is_settled()).count();
    if left == 0 {
        return Ok(());
    }
    let all = cycle.outcomes.len();
    Err(Failure::runtime(format!(
        "{left} of {all} READY messages are not done\n  none is lost: the next `admit stream` takes \
         them on again, from their checkpoints"
    )))
}

/// Prints what a look of many came to, if anything happened.
fn told(cycle: Cycle, as_json: bool) -> Result<(), Failure> {
    let happened =
        |outcome: &Outcome| !matches!(outcome.status, Status::Waiting | Status::SkippedDuplicate);
    let outcomes: Vec<Outcome> = cycle.outcomes.into_iter().filter(happened).collect();
    if outcomes.is_empty() {
        return Ok(());
    }
    if as_json {
        let line = of_cycle(&Cycle { outcomes, dropped: cycle.dropped });
        return print(&format!("{line}\n"));
    }
    print(&summary(&outcomes))
}

fn summary(outcomes: &[Outcome]) -> String {
    let columns =
        ["run", "status", "reason", "emitted", "admitted", "duplicate", "quarantined", "detail"];
    let rows = outcomes.iter().map(|outcome| {
        let counts = outcome.streamed.counts();
        vec![
            outcome.ready.run_id.chars().take(12).collect(),
            outcome.status.as_str().to_owned(),
            outcome.reason.clone().unwrap_or_default(),
            outcome.streamed.emitted().to_string(),
            counts.admitted.to_string(),
            counts.duplicates.to_string(),
            counts.quarantined.to_string(),
            outcome.detail.clone().unwrap_or_default(),
        ]
    });
    table(&columns, rows)
}

fn of_cycle(cycle: &Cycle) -> serde_json::Value {
    let messages: Vec<serde_json::Value> = cycle.outcomes.iter().map(of_outcome).collect();
    json!({ "messages": messages, "dropped": cycle.dropped })
}

fn of_outcome(outcome: &Outcome) -> serde_json::Value {
    let outputs: Vec<serde_json::Value> = outcome
        .streamed
        .outputs
        .iter()
        .map(|output| {
            json!({
                "output_id": output.output_id,
                "emitted": output.rows,
                "admitted": output.counts.admitted,
                "duplicate": output.counts.duplicates,
                "quarantined": output.counts.quarantined,
                "capped": output.is_capped,
            })
        })
        .collect();
    let counts = outcome.streamed.counts();
    json!({
        "message_id": outcome.ready.message_id,
        "run_id": outcome.ready.run_id,
        "platform_run_id": outcome.ready.platform_run_id,
        "status": outcome.status.as_str(),
        "reason": outcome.reason,
        "detail": outcome.detail,
        "emitted": outcome.streamed.emitted(),
        "admitted": counts.admitted,
        "duplicate": counts.duplicates,
        "quarantined": counts.quarantined,
        "outputs": outputs,
    })
}
