//! `admit serve`: the one place where parts are put together, and how a gate ends.

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
use admit_gate::gateway::Outward;
use admit_gate::publisher::{Publisher, PublisherParts};
use admit_gate::reserve::DiskReserve;
use admit_gate::retention::RetentionSweep;
use admit_gate::{DoorMount, Drained, Gate, Listeners, Parts, Principals, ServeError, SystemClock};
use admit_ledger::{Ledger, Retention, RetentionGuard, sqlite};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::{Examined, examine};
use crate::config::{Config, check, load_tls, warnings};
use crate::ledger::{GateLedger, open_ledger};
use crate::output::{self, Failure, counted};
use crate::runner::{self, Runs};
use crate::socket::SocketFile;
use crate::stores::NamedStore;
use crate::{accounts, bus, ingestion, logs, socket, welcome, workers};

/// Connections the system keeps for us while we are busy accepting others.
pub(crate) const BACKLOG: u32 = 1024;

/// The commit this binary was built from.
pub(crate) const COMMIT: &str = env!("BUILT_FROM_COMMIT");

/// Disagreements of a copied folder that are printed; `admit verify` names all.
const DISAGREEMENTS_SHOWN_MAX: usize = 20;

/// After the ledger has stopped, how long the gate still tells waiting producers that the outcome
/// of their events is unknown.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long reads that nobody waits for any more may go on at the end; a pack on a share that hangs is
/// read for ever.
const LAST_READS: Duration = Duration::from_secs(2);

/// Runs a gate until it is told to stop.
pub(crate) fn run(config: &Config, base: &Path, json: bool) -> Result<(), Failure> {
    // Before anything that takes long: a start that recovers a ledger may take minutes.
    let runtime = workers::runtime()?;
    ignore_hangups(&runtime)?;
    let principals = check(config, base).map_err(Failure::usage)?;
    logs::start(&config.log)?;
    // The port is taken first and opened last: a wrong address is reported at once, and nobody can
    // connect before the ledger has recovered.
    let port = bind(config.listen)?;
    check_copy(config, base)?;
    let ledger = open_ledger(config, base)?;
    // Dropped before the ledger, with every task that holds on to it.
    let runtime = runtime;
    let ingests = config.doors.ingestion_gate.enabled;
    let publishes = config.doors.rounds.publishes();
    let bus = runtime.block_on(open_stores(config, base, &*ledger))?;
    let ingest_bus = bus.clone().filter(|_| ingests);
    let gate = assemble(config, base, principals, ledger.clone(), ingest_bus.clone())?;
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
        gate = gate.with_accounts(accounts::open(config, base, ledger.clone(), bus, COMMIT)?);
    }
    if let Some(tls) = load_tls(&config.tls, base).map_err(Failure::usage)? {
        gate = gate.with_tls(tls);
    }
    let (gate, retention, reserve) = guarded(gate, config, &ledger)?;
    let gate = Arc::new(gate);
    let (ended, file) = runtime.block_on(async {
        // Whoever reads the first words may send a signal at once.
        let stop = StopSignals::new()?;
        gate.recover().await.map_err(|fault| not_recovered(&fault))?;
        let port = port.listen(BACKLOG).map_err(|error| cannot_listen(config.listen, &error))?;
        let address = address_of(&port)?;
        let (socket, file) = for_the_owner(&config.socket()).unzip();
        let listeners = Listeners { port, socket };
        welcome::say(config, address, json)?;
        let ended = tokio::select! {
            ended = until_stopped(listeners, gate, must_stop(&*ledger, bus.as_deref()), stop) => ended,
            never = sweep(&retention) => match never {},
            never = watch(reserve.as_deref()) => match never {},
            never = look_after(runs.as_deref(), config) => match never {},
        };
        ended.map(|ended| (ended, file))
    })?;
    match ended {
        Ended::Drained(Drained { unfinished: 0 }) => {
            // One that is left behind is replaced by the next gate, so only here.
            file.iter().for_each(SocketFile::remove);
            runtime.shutdown_timeout(LAST_READS);
            drop(runs);
            drop(ingest_bus);
            drop(bus);
            drop(ledger);
            tracing::info!("stopped");
            Ok(())
        }
        // Closing would wait for whatever hangs, perhaps for ever. The ledger needs no closing.
        Ended::Drained(Drained { unfinished }) => {
            tracing::warn!(unfinished, "stopped before everything was answered");
            output::exit_in_order()
        }
        // Nothing may be closed in good order: that would write to a disk that is not trusted.
        Ended::LedgerStopped(fault) => output::exit_at_once(&ledger_stopped(&fault)),
    }
}

/// Verifies a copy of a data folder before a door opens. One that was made while a gate wrote may be
/// torn, and what is missing would be admitted a second time.
fn check_copy(config: &Config, base: &Path) -> Result<(), Failure> {
    if config.ledger.url.is_postgres()
        || !sqlite::is_copy(&config.data).map_err(Failure::runtime)?
    {
        return Ok(());
    }
    let data = config.data.display();
    tracing::warn!(%data, "the data folder is a copy, all of it is verified before a door opens");
    // Recovers the file and brings it to this version, and closes it again.
    drop(open_ledger(config, base)?);
    let Examined { found, are_repairable } = examine(config, base)?;
    if found.is_empty() {
        tracing::info!(%data, "the copy agrees with itself");
        return sqlite::accept_copy(&config.data).map_err(Failure::runtime);
    }
    found.iter().take(DISAGREEMENTS_SHOWN_MAX).for_each(|one| output::aside(one));
    let how_many = counted(found.len() as u64, "disagreement");
    let were = if found.len() == 1 { "was" } else { "were" };
    let repair = if are_repairable {
        "all of it is about files: admit repair writes those again that the ledger can make, then \
         start again. "
    } else {
        ""
    };
    Err(Failure::runtime(format!(
        "{data} is a copy of a data folder and {how_many} {were} found in it\n  no door was opened; \
         {repair}a copy of a folder that a gate is serving may be torn: make it with admit backup, \
         or with the gate stopped. admit verify names every disagreement; to serve the folder as it \
         is, remove {data}/ledger.place"
    )))
}

/// Opens the bus, where this gate publishes. Refuses a bus or an artifact store that belongs to another
/// ledger, where this gate uses it.
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
    let mut first = Vec::new();
    for store in stores {
        match store.check(ledger).await? {
            // Before the bus is opened: what another gate has published since is not in this one.
            true => store.hold(ledger, lease).await?,
            false => first.push(store),
        }
    }
    // After the stores: the logs of another bus say nothing about this ledger's messages.
    let topics = bus::topics(config, base)?;
    let ends = ledger.bus_ends().await.map_err(|fault| not_recovered(&fault))?;
    let bus = bus::open(config, base, &topics, ends).await?;
    for store in first {
        store.attach(ledger).await?;
        store.hold(ledger, lease).await?;
    }
    Ok(Some(bus))
}

/// The socket for commands on this machine. A gate without one serves all the same: then commands ask
/// at its port.
fn for_the_owner(path: &Path) -> Option<(UnixListener, SocketFile)> {
    let listening = socket::listen(path);
    listening
        .inspect_err(|error| {
            let path = path.display();
            tracing::info!(%path, %error, "no socket for commands, they must ask at the port");
        })
        .ok()
}

/// How long the ledger waits for a lock that another program holds, in milliseconds.
const LOCK_MS_MAX: u64 = 5_000;

/// Puts the parts together.
fn assemble(
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
                "doors.skyra.answer_ms_max is not above the {LOCK_MS_MAX} ms for which the ledger \
                 waits for a lock; events that wait for one are refused although they may be stored"
            );
        }
        doors.push(mount(skyra::DOOR, &skyra.path, &skyra.api_key_header, contract)?);
    }
    let intents = &config.doors.intents;
    if intents.enabled {
        let contract = intents.contract(depth_max).map_err(Failure::usage)?;
        let gateway = intents.gateway(base).map_err(Failure::usage)?;
        let outward = Outward::new(gateway, Duration::from_millis(intents.in_work_wait_ms));
        let door = mount("intents", &intents.path, &intents.api_key_header, contract)?;
        doors.push(DoorMount { outward, ..door });
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
    let (way_out, records) = (Arc::clone(&ledger), Arc::clone(&ledger));
    let publications = Arc::clone(&ledger);
    let parts = Parts { ledger, doors, principals, limits, clock: Arc::new(SystemClock) };
    let gate = Gate::new(parts).map_err(Failure::usage)?;
    Ok(gate.with_way_out(way_out).with_records(records).with_publications(publications))
}

/// A door whose events stay inside the ledger.
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
        outward: Outward::default(),
    })
}

/// Publishes the records of rounds.
fn publisher(config: &Config, ledger: &Arc<dyn GateLedger>, bus: Arc<dyn Bus>) -> Arc<Publisher> {
    Publisher::new(PublisherParts {
        ledger: Arc::<dyn GateLedger>::clone(ledger),
        bus,
        clock: Arc::new(SystemClock),
        settings: config.doors.rounds.publishing(),
    })
}

/// The same gate with what limits what it keeps: retention, and the reserve of its disk.
fn guarded(
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

/// Retention of the gate's ledger, by trusted time.
fn retention(config: &Config, ledger: &Arc<dyn GateLedger>) -> Result<RetentionSweep, Failure> {
    let gap_max = config.ledger.clock_gap_max().map_err(Failure::usage)?;
    let swept: Arc<dyn Retention> = Arc::<dyn GateLedger>::clone(ledger);
    Ok(RetentionSweep::new(RetentionGuard::new(gap_max), swept, Arc::new(SystemClock)))
}

/// The reserve of the data folder's disk, where one is wanted.
fn reserve(config: &Config) -> Option<Arc<DiskReserve>> {
    let min = Some(config.ledger.free_bytes_min).filter(|min| *min > 0)?;
    let folder = config.data.clone();
    let free = move || {
        let disk = rustix::fs::statvfs(&folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    };
    Some(Arc::new(DiskReserve::new(min, Arc::new(free))))
}

/// Looks at the reserve, as long as the gate runs.
async fn watch(reserve: Option<&DiskReserve>) -> Infallible {
    if let Some(reserve) = reserve {
        reserve.watch().await;
    }
    std::future::pending().await
}

/// Removes what is too old, as long as the gate runs.
async fn sweep(retention: &RetentionSweep) -> Infallible {
    retention.run().await;
    std::future::pending().await
}

/// Advances unfinished scenario runs and writes lost files of the others again, as long as the gate runs.
async fn look_after(runs: Option<&Runs>, config: &Config) -> Infallible {
    let Some(runs) = runs else { return std::future::pending().await };
    let look_every = Duration::from_secs(config.runner.look_every_seconds);
    let restore_every = Duration::from_secs(config.runner.restore_every_seconds);
    tokio::select! {
        never = runs.look_after(look_every) => never,
        never = runs.restore_files(restore_every) => never,
    }
}

/// Resolves when what the process believes about a disk can no longer be trusted.
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

/// How a gate ended.
pub(crate) enum Ended {
    /// It was told to, and finished what it had accepted.
    Drained(Drained),
    /// The ledger can no longer be trusted.
    LedgerStopped(Fault),
}

pub(crate) async fn until_stopped(
    listeners: impl Into<Listeners>,
    gate: Arc<Gate>,
    must_stop: impl Future<Output = Fault>,
    mut stop: StopSignals,
) -> Result<Ended, Failure> {
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
            // Whether they all heard it or not, the process ends.
            drop(tokio::time::timeout(LAST_WORDS, serving).await);
            return Ok(Ended::LedgerStopped(fault));
        }
    };
    tracing::info!(signal, "stopping, once more stops at once");
    shutdown.cancel();
    tokio::select! {
        ended = &mut serving => drained(ended),
        fault = &mut must_stop => Ok(Ended::LedgerStopped(fault)),
        _ = stop.next() => {
            let message = "stopped at once; whatever was acknowledged is in the ledger";
            output::exit_at_once(&Failure::runtime(message))
        }
    }
}

fn drained(ended: Result<Drained, ServeError>) -> Result<Ended, Failure> {
    ended.map(Ended::Drained).map_err(Failure::runtime)
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

/// The signals that end a gate in good order.
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

/// Takes the address without listening yet.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpSocket, Failure> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Without it a restarted gate would have to wait for the system to forget old connections.
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

fn not_recovered(fault: &Fault) -> Failure {
    let cause = fault.source.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::runtime(format!(
        "what was in flight before cannot be looked after: {fault}{cause}\n  no door was opened; \
         mend what is named here (a disk, a database, a bucket, a bus), then start again"
    ))
}

fn ledger_stopped(fault: &Fault) -> Failure {
    let cause = fault.source.as_ref().map_or_else(|| fault.to_string(), |cause| cause.to_string());
    if fault.kind == FaultKind::OutcomeUnknown {
        return Failure::ledger_stopped(format!(
            "the gate has stopped itself: {cause}\n  what the disk holds is only known after a \
             restart: check the disk, then start the gate again"
        ));
    }
    if fault.kind == FaultKind::LedgerUnavailable {
        return Failure::runtime(format!("the gate has stopped itself: {cause}"));
    }
    Failure::runtime(format!(
        "the gate has stopped itself: {fault}: {cause}\n  starting again does not help: keep a \
         copy of the data folder, then restore a backup or rescue what is readable with sqlite3's \
         .recover"
    ))
}
