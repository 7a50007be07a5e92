//! `admit serve`: start-up, composition and shutdown of a gate.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::Bus;
use admit_contracts::Contract;
use admit_contracts::pixel_control::{self, PixelControl, Settings};
use admit_contracts::skyra;
use admit_core::{Door, Fault, FaultKind};
use admit_gate::gateway::EffectTarget;
use admit_gate::publisher::{Publisher, PublisherParts};
use admit_gate::reserve::DiskReserve;
use admit_gate::retention::RetentionSweep;
use admit_gate::{
    DoorMount, DrainReport, Gate, GateParts, Listeners, Principals, ServeError, SystemClock,
};
use admit_ledger::{Ledger, Retention, RetentionGuard, sqlite};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::{VerifyResult, collect_disagreements};
use crate::config::{Config, check, load_tls, warnings};
use crate::ledger::{GateLedger, open_ledger};
use crate::output::{self, Failure};
use crate::runner::{self, RunnerService};
use crate::socket::SocketFile;
use crate::stores::NamedStore;
use crate::{bus, ingestion, logs, run_reports, runtime, socket, startup_banner};

/// Length of the accept queue.
pub(crate) const BACKLOG: u32 = 1024;

/// The commit this binary was built from.
pub(crate) const COMMIT: &str = env!("BUILT_FROM_COMMIT");

/// Inconsistencies of a copied folder that are printed; `admit verify` prints all.
const DISAGREEMENTS_SHOWN_MAX: usize = 20;

/// After the ledger has stopped, time to send `outcome_unknown` to waiting producers.
const FINAL_REPLIES_MAX: Duration = Duration::from_secs(2);

/// Longest wait for blocking reads at shutdown; a read from a network share may hang forever.
const BLOCKING_READS_MAX: Duration = Duration::from_secs(2);

/// Runs a gate until a stop signal.
pub(crate) fn run(config: &Config, base: &Path, json: bool) -> Result<(), Failure> {
    // Signal handlers come first: recovery of a ledger may take minutes.
    let runtime = runtime::start()?;
    ignore_hangups(&runtime)?;
    let principals = check(config, base).map_err(Failure::usage)?;
    logs::start(&config.log)?;
    // The address is bound first, so that an invalid one fails immediately, and listened on last,
    // after the ledger's recovery.
    let port = bind(config.listen)?;
    check_copy(config, base)?;
    let ledger = open_ledger(config, base)?;
    // Dropped before the ledger, with all tasks that use it.
    let runtime = runtime;
    let ingests = config.doors.ingestion_gate.enabled;
    let publishes = config.doors.rounds.publishes();
    let bus = runtime.block_on(open_stores(config, base, &*ledger))?;
    let ingest_bus = bus.clone().filter(|_| ingests);
    let gate = build_gate(config, base, principals, ledger.clone(), ingest_bus.clone())?;
    let mut gate = gate.built_from(COMMIT);
    if let Some(bus) = bus.clone().filter(|_| publishes) {
        gate = gate.with_publisher(publisher(config, &ledger, bus));
    }
    let runs = match &ingest_bus {
        Some(bus) if config.runner.enabled => {
            Some(runner::open(config, base, ledger.clone(), bus.clone())?)
        }
        _ => None,
    };
    if let Some(runs) = &runs {
        gate = gate.with_runner(runs.clone());
    }
    if let Some(bus) = ingest_bus.clone() {
        gate = gate.with_run_reports(run_reports::open(config, base, ledger.clone(), bus, COMMIT)?);
    }
    if let Some(tls) = load_tls(&config.tls, base).map_err(Failure::usage)? {
        gate = gate.with_tls(tls);
    }
    let (gate, retention, reserve) = with_retention_and_reserve(gate, config, &ledger)?;
    let gate = Arc::new(gate);
    let (ended, file) = runtime.block_on(async {
        // Installed before the banner, because its reader may send a signal immediately.
        let stop = StopSignals::new()?;
        gate.recover().await.map_err(|fault| recovery_failed(&fault))?;
        let port = port.listen(BACKLOG).map_err(|error| cannot_listen(config.listen, &error))?;
        let address = address_of(&port)?;
        let (socket, file) = listen_on_socket(&config.socket()).unzip();
        let listeners = Listeners { port, socket };
        startup_banner::print(config, address, json)?;
        let ended = tokio::select! {
            ended = until_stopped(listeners, gate, must_stop(&*ledger, bus.as_deref()), stop) => ended,
            never = run_retention(&retention) => match never {},
            never = watch_reserve(reserve.as_deref()) => match never {},
            never = run_runner(runs.as_deref(), config) => match never {},
        };
        ended.map(|ended| (ended, file))
    })?;
    match ended {
        ServeOutcome::Drained(DrainReport { unfinished: 0 }) => {
            // Removed only after a clean shutdown; the next gate replaces a stale file.
            file.iter().for_each(SocketFile::remove);
            runtime.shutdown_timeout(BLOCKING_READS_MAX);
            drop(runs);
            drop(ingest_bus);
            drop(bus);
            drop(ledger);
            tracing::info!("stopped");
            Ok(())
        }
        // A clean shutdown could wait forever for a hanging request. The ledger does not need one.
        ServeOutcome::Drained(DrainReport { unfinished }) => {
            tracing::warn!(unfinished, "stopped with unfinished requests (drain timeout)");
            output::exit_without_cleanup()
        }
        // No clean shutdown: it would write to a disk that is not trusted.
        ServeOutcome::LedgerStopped(fault) => output::exit_at_once(&ledger_stopped(&fault)),
    }
}

/// Verifies a copied data folder before any door opens. A copy made while a gate was writing may be
/// torn, and events missing from it would be admitted a second time.
fn check_copy(config: &Config, base: &Path) -> Result<(), Failure> {
    if config.ledger.url.is_postgres()
        || !sqlite::is_copy(&config.data).map_err(Failure::runtime)?
    {
        return Ok(());
    }
    let data = config.data.display();
    tracing::warn!(%data, "the data folder is a copy; verifying all of it before any door opens");
    // Opened and closed once, for recovery and schema migration.
    drop(open_ledger(config, base)?);
    let VerifyResult { disagreements: found, are_repairable } =
        collect_disagreements(config, base)?;
    if found.is_empty() {
        tracing::info!(%data, "copy verified, no inconsistencies");
        return sqlite::accept_copy(&config.data).map_err(Failure::runtime);
    }
    found.iter().take(DISAGREEMENTS_SHOWN_MAX).for_each(|one| output::print_stderr(one));
    let count = match found.len() {
        1 => "1 inconsistency".to_owned(),
        count => format!("{count} inconsistencies"),
    };
    let repair = if are_repairable {
        "only files are affected: run admit repair, which restores them from the ledger, then start \
         the gate again. "
    } else {
        ""
    };
    Err(Failure::runtime(format!(
        "{data} is a copy of a data folder, and verification found {count}\n  no door was opened; \
         {repair}a copy of a folder that a gate is serving may be torn: make it with admit backup, \
         or with the gate stopped. admit verify prints every inconsistency; to serve the folder as \
         it is, remove {data}/ledger.place"
    )))
}

/// Opens the bus, if this gate publishes. Fails if the bus or the artifact store is attached to another
/// ledger.
async fn open_stores(
    config: &Config,
    base: &Path,
    ledger: &dyn GateLedger,
) -> Result<Option<Arc<dyn Bus>>, Failure> {
    let ingests = config.doors.ingestion_gate.enabled;
    if !ingests && !config.doors.rounds.publishes() {
        return Ok(None);
    }
    let mut stores = vec![NamedStore::bus(config)?];
    if ingests {
        stores.push(NamedStore::artifacts(config)?);
    }
    let lease = Duration::from_secs(config.ledger.lease_seconds);
    let mut unattached = Vec::new();
    for store in stores {
        match store.check(ledger).await? {
            // The hold comes before the bus is opened: another gate may still be publishing to it.
            true => store.hold(ledger, lease).await?,
            false => unattached.push(store),
        }
    }
    // After the store check: log lengths are comparable only on the bus of this ledger.
    let topics = bus::topics(config, base)?;
    let ends = ledger.bus_ends().await.map_err(|fault| recovery_failed(&fault))?;
    let bus = bus::open(config, base, &topics, ends).await?;
    for store in unattached {
        store.attach(ledger).await?;
        store.hold(ledger, lease).await?;
    }
    Ok(Some(bus))
}

/// Opens the Unix socket for commands on this machine. On failure the gate serves without it, and
/// commands connect to its port.
fn listen_on_socket(path: &Path) -> Option<(UnixListener, SocketFile)> {
    let listening = socket::listen(path);
    listening
        .inspect_err(|error| {
            let path = path.display();
            tracing::info!(%path, %error, "failed to open the Unix socket for commands; they must connect to the port");
        })
        .ok()
}

/// Lock timeout of the ledger, in milliseconds.
const LOCK_MS_MAX: u64 = 5_000;

/// Builds the gate with its doors.
fn build_gate(
    config: &Config,
    base: &Path,
    principals: Principals,
    ledger: Arc<dyn GateLedger>,
    bus: Option<Arc<dyn Bus>>,
) -> Result<Gate, Failure> {
    warnings(config, &principals).iter().for_each(|warning| tracing::warn!("{warning}"));
    let depth_max = config.limits.json_depth_max;
    let mut doors = Vec::new();
    let pixel = &config.doors.pixel_control;
    if pixel.enabled {
        let settings = Settings { schema: pixel.schema, json_depth_max: depth_max };
        let contract = PixelControl::new(settings).within(ledger.horizon());
        doors.push(mount(pixel_control::DOOR, &pixel.path, &pixel.api_key_header, contract)?);
    }
    let skyra = &config.doors.skyra;
    if skyra.enabled {
        let contract = skyra.contract(depth_max, !config.principals.is_empty());
        if skyra.answer_ms_max.max(config.limits.answer_ms_max) <= LOCK_MS_MAX {
            tracing::warn!(
                answer_ms_max = skyra.answer_ms_max,
                "doors.skyra.answer_ms_max is not above the ledger's lock timeout of {LOCK_MS_MAX} ms; \
                 events that wait for a lock may be refused although they are stored"
            );
        }
        doors.push(mount(skyra::DOOR, &skyra.path, &skyra.api_key_header, contract)?);
    }
    let intents = &config.doors.intents;
    if intents.enabled {
        let contract = intents.contract(depth_max).map_err(Failure::usage)?;
        let gateway = intents.gateway(base).map_err(Failure::usage)?;
        let effect_target =
            EffectTarget::new(gateway, Duration::from_millis(intents.in_work_wait_ms));
        let door = mount("intents", &intents.path, &intents.api_key_header, contract)?;
        doors.push(DoorMount { effect_target, ..door });
    }
    if let Some(bus) = bus {
        doors.push(ingestion::mount(config, base, &ledger, bus)?);
    }
    let rounds = &config.doors.rounds;
    if rounds.enabled {
        let contract = rounds.contract(depth_max).map_err(Failure::usage)?;
        doors.push(mount("rounds", &rounds.path, &rounds.api_key_header, contract)?);
    }
    for stream in config.doors.events.iter().filter(|stream| stream.enabled) {
        let contract = stream.contract(base, depth_max);
        let contract = contract.map_err(Failure::usage)?.within(ledger.horizon());
        doors.push(mount(&stream.door(), &stream.path(), &stream.api_key_header, contract)?);
    }
    let limits = config.limits.clone();
    let (stream_ports, records) = (Arc::clone(&ledger), Arc::clone(&ledger));
    let publications = Arc::clone(&ledger);
    let parts = GateParts { ledger, doors, principals, limits, clock: Arc::new(SystemClock) };
    let gate = Gate::new(parts).map_err(Failure::usage)?;
    Ok(gate.with_stream_ports(stream_ports).with_records(records).with_publications(publications))
}

/// Mount of a door without outgoing effects.
fn mount(
    name: &str,
    path: &str,
    api_key_header: &str,
    contract: impl Contract + 'static,
) -> Result<DoorMount, Failure> {
    let header = api_key_header.parse();
    Ok(DoorMount {
        door: Door::new(name),
        path: path.to_owned(),
        api_key_header: header.map_err(|error| Failure::usage(format!("{error}")))?,
        contract: Arc::new(contract),
        effect_target: EffectTarget::default(),
    })
}

/// Publisher of round records.
fn publisher(config: &Config, ledger: &Arc<dyn GateLedger>, bus: Arc<dyn Bus>) -> Arc<Publisher> {
    Publisher::new(PublisherParts {
        ledger: Arc::<dyn GateLedger>::clone(ledger),
        bus,
        clock: Arc::new(SystemClock),
        settings: config.doors.rounds.publishing(),
    })
}

/// Adds retention and the disk reserve to the gate.
fn with_retention_and_reserve(
    mut gate: Gate,
    config: &Config,
    ledger: &Arc<dyn GateLedger>,
) -> Result<(Gate, RetentionSweep, Option<Arc<DiskReserve>>), Failure> {
    let retention = retention(config, ledger)?;
    gate = gate.with_retention(retention.clone());
    let reserve = reserve(config);
    if let Some(reserve) = &reserve {
        gate = gate.with_reserve(Arc::clone(reserve));
    }
    Ok((gate, retention, reserve))
}

/// Retention sweep of the ledger, based on trusted time.
fn retention(config: &Config, ledger: &Arc<dyn GateLedger>) -> Result<RetentionSweep, Failure> {
    let gap_max = config.ledger.clock_gap_max().map_err(Failure::usage)?;
    let swept: Arc<dyn Retention> = Arc::<dyn GateLedger>::clone(ledger);
    Ok(RetentionSweep::new(RetentionGuard::new(gap_max), swept, Arc::new(SystemClock)))
}

/// Free space reserve of the data folder's disk, if configured.
fn reserve(config: &Config) -> Option<Arc<DiskReserve>> {
    let min = Some(config.ledger.free_bytes_min).filter(|min| *min > 0)?;
    let folder = config.data.clone();
    let free = move || {
        let disk = rustix::fs::statvfs(&folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    };
    Some(Arc::new(DiskReserve::new(min, Arc::new(free))))
}

/// Monitors the disk reserve while the gate runs.
async fn watch_reserve(reserve: Option<&DiskReserve>) -> Infallible {
    if let Some(reserve) = reserve {
        reserve.watch().await;
    }
    std::future::pending().await
}

/// Runs retention while the gate runs.
async fn run_retention(retention: &RetentionSweep) -> Infallible {
    retention.run().await;
    std::future::pending().await
}

/// Advances unfinished scenario runs and restores lost files of final ones, while the gate runs.
async fn run_runner(runs: Option<&RunnerService>, config: &Config) -> Infallible {
    let Some(runs) = runs else { return std::future::pending().await };
    let advance_interval = Duration::from_secs(config.runner.look_every_seconds);
    let restore_interval = Duration::from_secs(config.runner.restore_every_seconds);
    tokio::select! {
        never = runs.advance_unfinished(advance_interval) => never,
        never = runs.restore_files(restore_interval) => never,
    }
}

/// Completes when the ledger or the bus must stop because of a disk failure.
async fn must_stop(ledger: &dyn Ledger, bus: Option<&dyn Bus>) -> Fault {
    let Some(bus) = bus else { return ledger.must_stop().await };
    tokio::select! {
        fault = ledger.must_stop() => fault,
        reason = bus.must_stop() => {
            tracing::error!(reason, "the bus has stopped");
            let source = std::io::Error::other(reason);
            Fault::caused_by(FaultKind::OutcomeUnknown, "the bus has stopped", source)
        }
    }
}

/// Outcome of serving.
pub(crate) enum ServeOutcome {
    /// Stop signal, and accepted requests were drained.
    Drained(DrainReport),
    /// Disk failure of ledger or bus.
    LedgerStopped(Fault),
}

/// Serves until a stop signal or a disk failure.
pub(crate) async fn until_stopped(
    listeners: impl Into<Listeners>,
    gate: Arc<Gate>,
    must_stop: impl Future<Output = Fault>,
    mut stop: StopSignals,
) -> Result<ServeOutcome, Failure> {
    let shutdown = CancellationToken::new();
    let serving = admit_gate::serve(listeners, gate, shutdown.clone());
    tokio::pin!(serving);
    tokio::pin!(must_stop);
    let signal = tokio::select! {
        ended = &mut serving => return drained(ended),
        signal = stop.next() => signal,
        fault = &mut must_stop => {
            tracing::error!(%fault, "the ledger has stopped");
            shutdown.cancel();
            drop(tokio::time::timeout(FINAL_REPLIES_MAX, serving).await);
            return Ok(ServeOutcome::LedgerStopped(fault));
        }
    };
    tracing::info!(signal, "stopping; a second signal exits immediately");
    shutdown.cancel();
    tokio::select! {
        ended = &mut serving => drained(ended),
        fault = &mut must_stop => Ok(ServeOutcome::LedgerStopped(fault)),
        _ = stop.next() => {
            let message = "exited on a second signal; every acknowledged event is in the ledger";
            output::exit_at_once(&Failure::runtime(message))
        }
    }
}

fn drained(ended: Result<DrainReport, ServeError>) -> Result<ServeOutcome, Failure> {
    ended.map(ServeOutcome::Drained).map_err(Failure::runtime)
}

/// Logs every SIGHUP as long as the runtime lives; the signal no longer ends the process.
pub(crate) fn ignore_hangups(runtime: &Runtime) -> Result<(), Failure> {
    let _entered = runtime.enter();
    let mut hangups = signal(SignalKind::hangup()).map_err(Failure::runtime)?;
    runtime.spawn(async move {
        while hangups.recv().await.is_some() {
            tracing::info!("SIGHUP ignored: the config is not reloaded, restart to apply changes");
        }
    });
    Ok(())
}

/// Signals for a graceful shutdown.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::runtime);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Binds the address without listening.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpSocket, Failure> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Otherwise a restart would have to wait for old connections in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bound().map_err(|error: io::Error| cannot_listen(address, &error))
}

pub(crate) fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::runtime(format!("cannot listen: {error}")))
}

pub(crate) fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let known = [
        (
            AddrInUse,
            "another program listens there\n  \
             stop it, or choose another port with --listen (port 0 takes any free one)",
        ),
        (
            PermissionDenied,
            "this user may not use that port\n  \
             ports below 1024 belong to root; choose a higher one with --listen",
        ),
        (
            AddrNotAvailable,
            "this machine has no such address\n  \
             choose one of this machine's own addresses with --listen",
        ),
    ];
    let why = match known.iter().find(|(kind, _)| *kind == error.kind()) {
        Some((_, why)) => (*why).to_owned(),
        None => error.to_string(),
    };
    Failure::runtime(format!("cannot listen on {address}: {why}"))
}

fn recovery_failed(fault: &Fault) -> Failure {
    let cause = fault.source.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::runtime(format!(
        "start-up recovery failed: {fault}{cause}\n  no door was opened; fix the cause (disk, database, \
         bucket or bus), then start again"
    ))
}

fn ledger_stopped(fault: &Fault) -> Failure {
    let cause = fault.source.as_ref().map_or_else(|| fault.to_string(), |cause| cause.to_string());
    if fault.kind == FaultKind::OutcomeUnknown {
        return Failure::ledger_stopped(format!(
            "the gate has stopped itself: {cause}\n  the state of the disk is unknown until a \
             restart: check the disk, then start the gate again"
        ));
    }
    if fault.kind == FaultKind::LedgerUnavailable {
        return Failure::runtime(format!("the gate has stopped itself: {cause}"));
    }
    Failure::runtime(format!(
        "the gate has stopped itself: {fault}: {cause}\n  a restart does not help: keep a copy of the \
         data folder, then restore a backup or recover readable rows with sqlite3's .recover"
    ))
}
