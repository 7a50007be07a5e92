//! Streams one run: opens its pack, then streams all outputs concurrently.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::StreamerParts;
use super::checkpoint::RunLock;
use super::envelope::Envelopes;
use super::facts::Facts;
use super::identity::checkpoint_pack_key;
use super::output::{self, OutputResult, OutputStream};
use super::pack::store::PackStore;
use super::pack::{Pack, PackRequest, StreamView};
use super::progress::{Counts, OutputProgress};
use super::ready::Ready;
use super::reason::{Reason, RunFailure};
use super::session::SessionLog;

/// A run to stream.
pub(super) struct ReadyRun {
    pub(super) ready: Ready,
    pub(super) facts: Facts,
    pub(super) platform_run_id: String,
    pub(super) scenario_run_id: String,
    pub(super) scenario_id: String,
    pub(super) engine_root: String,
}

/// Result of streaming a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamResult {
    /// Results by output, traffic first.
    pub outputs: Vec<OutputResult>,
}

impl StreamResult {
    /// Rows the gate has decided on.
    pub fn emitted(&self) -> u64 {
        self.outputs.iter().map(|output| output.rows).sum()
    }

    /// Its decisions.
    pub fn counts(&self) -> Counts {
        self.outputs.iter().fold(Counts::default(), |all, output| all.plus(output.counts))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.outputs.iter().any(|output| output.is_stopped)
    }
}

/// How streaming a run ended, unless it failed.
pub(super) enum RunEnd {
    Streamed(StreamResult),
    Stopped(StreamResult),
    InUse,
}

/// Streams a run from its checkpoints.
pub(super) async fn stream(
    parts: &Arc<StreamerParts>,
    run: ReadyRun,
    stop: &CancellationToken,
) -> Result<RunEnd, RunFailure> {
    check_producer(parts)?;
    let run = Arc::new(run);
    let pack = {
        let (parts, run) = (Arc::clone(parts), Arc::clone(&run));
        let opened = spawn_blocking(move || open(&parts, &run)).await;
        opened.map_err(|error| panicked("opening the pack", error))??
    };
    let key = checkpoint_pack_key(&pack.key, &run.platform_run_id, &run.scenario_run_id);
    let Some(lock) = lock(parts, &key).await? else { return Ok(RunEnd::InUse) };
    let session = SessionLog::new(&parts.sessions, &run.platform_run_id, Arc::clone(&parts.clock));
    let session = Arc::new(session);
    session.write(
        "engine_world_selected",
        [
            ("run_id", run.ready.run_id.as_str().into()),
            ("engine_run_root", run.engine_root.as_str().into()),
            ("pack_key", pack.key.as_str().into()),
            ("scenario_id", run.scenario_id.as_str().into()),
        ],
    );
    let streamed = outputs(parts, &run, &pack, &key, &session, stop).await?;
    drop(lock);
    session.write(
        "engine_world_streamed",
        [("run_id", run.ready.run_id.as_str().into()), ("emitted", streamed.emitted().into())],
    );
    Ok(if streamed.is_stopped() { RunEnd::Stopped(streamed) } else { RunEnd::Streamed(streamed) })
}

fn panicked(doing: &str, error: impl std::error::Error + Send + Sync + 'static) -> RunFailure {
    RunFailure::caused(Reason::StreamFailed, format!("{doing} panicked"), error)
}

fn check_producer(parts: &StreamerParts) -> Result<(), RunFailure> {
    let producer = &parts.settings.producer;
    if parts.settings.producers_allowed.contains(producer) {
        return Ok(());
    }
    let detail = format!("producer {producer} is not in the list of allowed producers");
    Err(RunFailure::new(Reason::ProducerNotAllowed, detail))
}

async fn lock(parts: &StreamerParts, key: &str) -> Result<Option<RunLock>, RunFailure> {
    let (checkpoints, key) = (Arc::clone(&parts.checkpoints), key.to_owned());
    let locked = spawn_blocking(move || checkpoints.lock(&key)).await;
    let locked = locked.map_err(|error| panicked("locking the run", error))?;
    locked
        .map_err(|error| RunFailure::caused(Reason::StreamFailed, "failed to lock the run", error))
}

fn open(parts: &StreamerParts, run: &ReadyRun) -> Result<Pack, RunFailure> {
    let store = |location: &str, reason| {
        (parts.packs)(location)
            .map_err(|error| RunFailure::new(reason, format!("{location}: {error}")))
    };
    let pack = store(&run.engine_root, Reason::RunReceiptUnreadable)?;
    let view_root = run.ready.pack.stream_view_root.as_ref();
    let view_root = view_root.or(run.facts.pack.stream_view_root.as_ref());
    let views: Option<Arc<dyn PackStore>> =
        view_root.map(|location| store(location, Reason::StreamViewMissing)).transpose()?;
    let request = PackRequest {
        ready: &run.ready,
        facts: &run.facts,
        scenario_id: &run.scenario_id,
        engine_root: &run.engine_root,
        catalogue: &parts.settings.catalogue,
        must_be_sealed: parts.settings.must_be_sealed(),
        mode: &parts.settings.mode,
        only: &parts.settings.outputs,
        views,
    };
    Pack::open(&pack, &request)
}

/// Streams all outputs; when one fails the others stop, with their checkpoints saved.
async fn outputs(
    parts: &Arc<StreamerParts>,
    run: &ReadyRun,
    pack: &Pack,
    key: &str,
    session: &Arc<SessionLog>,
    stop: &CancellationToken,
) -> Result<StreamResult, RunFailure> {
    let rows_max = parts.settings.max_events_per_output.unwrap_or(u64::MAX);
    let all: Vec<Arc<OutputProgress>> = pack
        .views
        .iter()
        .map(|view| OutputProgress::new(&view.output.output_id, view.rows().min(rows_max)))
        .map(Arc::new)
        .collect();
    parts.progress.begin(all.clone());
    let at_once = match parts.settings.concurrency {
        0 => pack.views.len(),
        some => some,
    };
    let permits = Arc::new(Semaphore::new(at_once.max(1)));
    let stop = stop.child_token();
    let mut tasks = JoinSet::new();
    for (index, (view, progress)) in pack.views.iter().zip(all).enumerate() {
        let output_stream =
            Arc::new(output_stream(parts, run, pack, key, session, view, progress, stop.clone()));
        let (permits, run_id) = (Arc::clone(&permits), run.ready.run_id.clone());
        tasks.spawn(async move {
            let _permit = permits.acquire_owned().await;
            (index, stream_output(&run_id, output_stream).await)
        });
    }
    let mut done = Vec::new();
    let mut failure = None;
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok((index, Ok(emitted))) => done.push((index, emitted)),
            Ok((_, Err(found))) => {
                stop.cancel();
                failure.get_or_insert(found);
            }
            Err(error) => {
                stop.cancel();
                failure.get_or_insert(panicked("streaming an output", error));
            }
        }
    }
    parts.progress.begin(Vec::new());
    done.sort_by_key(|(index, _)| *index);
    let streamed = StreamResult { outputs: done.into_iter().map(|(_, emitted)| emitted).collect() };
    failure.map_or(Ok(streamed), Err)
}

#[expect(clippy::too_many_arguments, reason = "called once, with all dependencies of an output")]
fn output_stream(
    parts: &StreamerParts,
    run: &ReadyRun,
    pack: &Pack,
    key: &str,
    session: &Arc<SessionLog>,
    view: &Arc<StreamView>,
    progress: Arc<OutputProgress>,
    stop: CancellationToken,
) -> OutputStream {
    OutputStream {
        view: Arc::clone(view),
        envelopes: Envelopes {
            output: view.output.clone(),
            world: pack.world.clone(),
            engine_run_id: pack.engine_run_id.clone(),
            platform_run_id: run.platform_run_id.clone(),
            scenario_run_id: run.scenario_run_id.clone(),
            producer: parts.settings.producer.clone(),
            pack_key: pack.key.clone(),
            engine_release: pack.engine_release.clone(),
        },
        checkpoint_key: key.to_owned(),
        settings: Arc::clone(&parts.settings),
        gate: Arc::clone(&parts.gate),
        checkpoints: Arc::clone(&parts.checkpoints),
        chance: Arc::clone(&parts.chance),
        clock: Arc::clone(&parts.clock),
        session: Arc::clone(session),
        progress,
        stop,
    }
}

/// Streams one output, with the log lines that operators of the reference system search for.
async fn stream_output(
    run_id: &str,
    output_stream: Arc<OutputStream>,
) -> Result<OutputResult, RunFailure> {
    let output_id = output_stream.view.output.output_id.clone();
    tracing::info!("WSP stream start run_id={run_id} output_id={output_id}");
    let fields = [("run_id", run_id.into()), ("output_id", output_id.as_str().into())];
    output_stream.session.write("stream_start", fields.clone());
    let emitted = output::stream(Arc::clone(&output_stream)).await?;
    let rows = emitted.rows;
    let end_reason = if emitted.is_capped {
        tracing::info!(
            "WSP stream stop run_id={run_id} output_id={output_id} emitted={rows} reason=max_events"
        );
        "max_events"
    } else if emitted.is_stopped {
        "stopped"
    } else {
        "output_complete"
    };
    if !emitted.is_stopped {
        tracing::info!("WSP stream complete run_id={run_id} output_id={output_id} emitted={rows}");
        let ended = [("emitted", rows.into()), ("reason", end_reason.into())];
        output_stream.session.write("stream_complete", fields.into_iter().chain(ended));
    }
    Ok(emitted)
}
