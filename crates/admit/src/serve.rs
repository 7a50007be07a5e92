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
use admit_contracts::skyra::{self, Skyra};
use admit_core::{Door, Fault, FaultKind};
use admit_gate::gateway::Outward;
use admit_gate::publisher::{Publisher, PublisherParts};
use admit_gate::{DoorMount, Drained, Gate, Listeners, Parts, Principals, ServeError, SystemClock};
use admit_ledger::port::keep_swept;
use admit_ledger::{Ledger, Retention};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, check, load_tls};
use crate::ledger::{GateLedger, open_ledger};
use crate::output::{self, Failure};
use crate::runner::{self, Runs};
use crate::socket::SocketFile;
use crate::{accounts, bus, ingestion, logs, socket, welcome, workers};

/// Connections the system keeps for us while we are busy accepting others.
pub(crate) const BACKLOG: u32 = 1024;

/// The commit this binary was built from.
pub(crate) const COMMIT: &str = env!("BUILT_FROM_COMMIT");

/// After the ledger has stopped, how long the gate still tells waiting producers that the outcome
/// of their events is unknown.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long reads that nobody waits for any more may go on at the end; a pack on a share that hangs is
/// read for ever.
const LAST_READS: Duration = Duration::from_secs(2);

/// Runs a gate until it is told to stop.
pub(crate) fn run(config: &Config, base: &Path, json: bool) -> Result<(), Failure> {
    let principals = check(config, base).map_err(Failure::usage)?;
    logs::start(&config.log)?;
    // The port is taken first and opened last: a wrong address is reported at once, and nobody can
    // connect before the ledger has recovered.
    let port = bind(config.listen)?;
    let ledger = open_ledger(config, base)?;
    let runtime = workers::runtime()?;
    let ingests = config.doors.ingestion_gate.enabled;
    let publishes = config.doors.rounds.publishes();
    let bus = match ingests || publishes {
        true => Some(runtime.block_on(bus::open(config, base, &bus::topics(config, base)?))?),
        false => None,
    };
    let ingest_bus = bus.clone().filter(|_| ingests);
    let gate = assemble(config, base, principals, ledger.clone(), ingest_bus.clone())?;
    let mut gate = gate.built_from(COMMIT);
    if let Some(bus) = bus.clone().filter(|_| publishes) {
        gate = gate.with_publisher(Publisher::new(PublisherParts {
            ledger: ledger.clone(),
            bus,
            clock: Arc::new(SystemClock),
            settings: config.doors.rounds.publishing(),
        }));
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
    if ingests {
        gate = gate.with_accounts(accounts::open(config, base, ledger.clone(), COMMIT)?);
    }
    if let Some(tls) = load_tls(&config.tls, base).map_err(Failure::usage)? {
        gate = gate.with_tls(tls);
    }
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
            never = sweep(&*ledger) => match never {},
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

/// Puts the parts together.
fn assemble(
    config: &Config,
    base: &Path,
    principals: Principals,
    ledger: Arc<dyn GateLedger>,
    bus: Option<Arc<dyn Bus>>,
) -> Result<Gate, Failure> {
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
        let contract = Skyra::new(skyra::Settings { json_depth_max: depth_max });
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

/// Removes what is too old, as long as the gate runs.
async fn sweep(ledger: &dyn Retention) -> Infallible {
    keep_swept(ledger, &SystemClock).await;
    std::future::pending().await
}

/// Looks after scenario runs that are not finished, as long as the gate runs.
async fn look_after(runs: Option<&Runs>, config: &Config) -> Infallible {
    let every = Duration::from_secs(config.runner.look_every_seconds);
    match runs {
        Some(runs) => runs.look_after(every).await,
        None => std::future::pending().await,
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
