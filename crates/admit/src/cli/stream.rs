//! `admit stream`: reads READY messages from the control bus and pushes the rows of their packs to a gate.

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
use admit_runs::streamer::progress::StreamProgress;
use admit_runs::streamer::records::ReadyRecords;
use admit_runs::streamer::{Cycle, CycleOutcome, ReadyStatus, Streamer, StreamerParts};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::stream_progress::ProgressDisplay;
use super::{ConfigArgs, KEY_VARIABLE};
use crate::artifacts;
use crate::bus::{self, BusReader};
use crate::config::{Config, Scheme, Speedup};
use crate::logs;
use crate::output::{Failure, print, print_json, table, with_cause};
use crate::packs;
use crate::serve::{StopSignals, ignore_hangups};

/// Flags of `admit stream`.
#[derive(Debug, clap::Args)]
pub(super) struct StreamArgs {
    /// Poll the control bus once, then exit
    #[arg(long)]
    once: bool,
    /// URL of the gate [default: the socket in the data folder, else the config's listen]
    #[arg(long, value_name = "URL")]
    gate: Option<String>,
    /// Maximum number of READY messages per poll; 0 is unlimited
    #[arg(long, value_name = "N", env = "WSP_READY_MAX_MESSAGES", hide_env_values = true)]
    max_messages: Option<u64>,
    /// Maximum number of rows per output, from the first; 0 is unlimited
    #[arg(long, value_name = "N", env = "WSP_MAX_EVENTS_PER_OUTPUT", hide_env_values = true)]
    max_events_per_output: Option<u64>,
    /// Replay speed as a multiple of event time; 0 does not wait [default: 600]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    speedup: Option<f64>,
    /// Rows of an output between checkpoints; a crash sends at most these again [default: 10]
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<u64>,
    /// Envelopes of an output in flight, at most checkpoint-every [default: 16]
    #[arg(long, value_name = "N")]
    in_flight: Option<usize>,
    /// Outputs streamed concurrently; 0 is all
    #[arg(long, value_name = "N", env = "WSP_OUTPUT_CONCURRENCY", hide_env_values = true)]
    concurrency: Option<usize>,
    /// Attempts per envelope before the run fails [default: 5]
    #[arg(long, value_name = "N")]
    retry_max_attempts: Option<u32>,
    /// Initial retry backoff; doubles with each attempt [default: 250]
    #[arg(long, value_name = "MS")]
    retry_base_delay_ms: Option<u64>,
    /// Maximum retry backoff [default: 5000]
    #[arg(long, value_name = "MS")]
    retry_max_delay_ms: Option<u64>,
    /// Poll interval of the control bus [default: 2000]
    #[arg(long, value_name = "MS")]
    poll_ms: Option<u64>,
    /// Only runs of this platform run
    #[arg(long, value_name = "ID", env = "PLATFORM_RUN_ID", hide_env_values = true)]
    platform_run_id: Option<String>,
    /// Also stream runs that were streamed before, from their checkpoints
    #[arg(long)]
    again: bool,
    /// Ignore checkpoints and send every row again; the gate deduplicates them
    #[arg(long, requires = "again")]
    from_start: bool,
    #[command(flatten)]
    args: ConfigArgs,
}

impl StreamArgs {
    /// Overrides the config with the flags.
    fn apply_to(&mut self, config: &mut Config) -> Result<(), Failure> {
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
                Err(Failure::usage("invalid --speedup: expected a finite number"))
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

pub(super) fn run(mut command: StreamArgs, json: bool) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start the runtime: {error}")))?;
    ignore_hangups(&runtime)?;
    let args = ConfigArgs { config: command.args.config.take(), data: command.args.data.take() };
    let is_folder_named = args.data.is_some();
    let (mut config, base) = args.load(None)?;
    command.apply_to(&mut config)?;
    check_bus(&config)?;
    let socket = config
        .stream
        .gate
        .is_empty()
        .then(|| GateSocket { path: config.socket(), is_only: is_folder_named });
    logs::start(&config.log)?;
    let progress = StreamProgress::default();
    runtime.block_on(async {
        let streamer_parts =
            streamer_parts(&config, &base, &command, socket, progress.clone()).await?;
        let stop = CancellationToken::new();
        let mut signals = StopSignals::new()?;
        let halt = async {
            let signal = signals.next().await;
            tracing::info!(signal, "stopping; the next start continues from the checkpoints");
            stop.cancel();
            std::future::pending::<()>().await
        };
        let mut streamer = Streamer::new(streamer_parts);
        let work = async {
            if command.once {
                let cycle = streamer.cycle(&stop).await.map_err(|error| with_cause(&error))?;
                return print_once(&cycle, json);
            }
            streamer.run(&stop, &mut |cycle| print_cycle(cycle, json)).await
        };
        tokio::select! {
            done = work => done,
            () = halt => Ok(()),
            () = ProgressDisplay::new(progress).run() => Ok(()),
        }
    })
}

/// Fails if the folder of a file bus does not exist: no gate publishes there, so nothing would ever arrive.
fn check_bus(config: &Config) -> Result<(), Failure> {
    if config.bus.scheme().map_err(Failure::usage)? != Scheme::File {
        return Ok(());
    }
    let root = config.bus_root().map_err(Failure::usage)?;
    if root.is_dir() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the bus folder {} does not exist: give the data folder of the gate with --data, or its config \
         with --config",
        root.display()
    )))
}

/// Builds the parts of the streamer.
async fn streamer_parts(
    config: &Config,
    base: &Path,
    command: &StreamArgs,
    socket: Option<GateSocket>,
    progress: StreamProgress,
) -> Result<StreamerParts, Failure> {
    let mut settings = config.stream.settings(base).map_err(Failure::usage)?;
    (settings.again, settings.from_start) = (command.again, command.from_start);
    let paths = config.artifacts_location().map_err(Failure::usage)?.paths();
    let opened = artifacts::open(config)?;
    let checkpoints = checkpoints(config, base)?;
    let key = match std::env::var(KEY_VARIABLE) {
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
    .map_err(|error| Failure::usage(format!("cannot use the gate: {error}")))?;
    let control: Arc<dyn Control> = match bus::open_read_only(config, base).await? {
        BusReader::File(reader) => Arc::new(FileControl::new(reader)),
        BusReader::Network(bus) => Arc::new(bus),
    };
    Ok(StreamerParts {
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

/// Opens the checkpoint store: in the database of a PostgreSQL ledger, else a file.
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

/// Prints the result of a single poll. Fails if a message is not done.
fn print_once(cycle: &Cycle, as_json: bool) -> Result<(), Failure> {
    if as_json {
        print_json(&cycle_json(cycle))?;
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
        "{left} of {all} READY messages are not done\n  none is lost: the next `admit stream` retries \
         them from their checkpoints"
    )))
}

/// Prints the result of a poll, if anything happened.
fn print_cycle(cycle: Cycle, as_json: bool) -> Result<(), Failure> {
    let happened = |outcome: &CycleOutcome| {
        !matches!(outcome.status, ReadyStatus::Waiting | ReadyStatus::SkippedDuplicate)
    };
    let outcomes: Vec<CycleOutcome> = cycle.outcomes.into_iter().filter(happened).collect();
    if outcomes.is_empty() {
        return Ok(());
    }
    if as_json {
        let line = cycle_json(&Cycle { outcomes, dropped: cycle.dropped });
        return print(&format!("{line}\n"));
    }
    print(&summary(&outcomes))
}

fn summary(outcomes: &[CycleOutcome]) -> String {
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

fn cycle_json(cycle: &Cycle) -> serde_json::Value {
    let messages: Vec<serde_json::Value> = cycle.outcomes.iter().map(outcome_json).collect();
    json!({ "messages": messages, "dropped": cycle.dropped })
}

fn outcome_json(outcome: &CycleOutcome) -> serde_json::Value {
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
