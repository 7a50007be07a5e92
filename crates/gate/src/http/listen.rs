//! Accepting connections, and the shutdown that goes on listening while it drains.
//!
//! A refused port tells a producer nothing; some give up within seconds. So a gate that drains
//! keeps accepting and answers `draining` with a retry hint, until what it had let in is answered.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, Tasks};
use super::wire::Accepted;
use super::{head, routes};
use crate::gate::Gate;
use crate::grpc;
use crate::limits::Limits;
use crate::peer::Peer;
use crate::perform;
use crate::principals::Principals;
use crate::standing::Standing;
use crate::takeover;

/// Connections at once at the socket in the data folder, beside those at the port: whoever operates gets
/// in also when the port is full.
const OWNERS_MAX: usize = 32;

/// How many connections over the limit are accepted at once, only to be told so.
const TURNED_AWAY_MAX: usize = 64;

/// How long a new connection waits for the place of one that is closed for it.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(250);

/// The pause after the system could not give us a connection, so that a shortage is not a loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// HTTP/2 peers are asked for a sign of life so often, and must give it within as long.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Most requests at once on one HTTP/2 connection.
const HTTP2_STREAMS_MAX: u32 = 256;

/// Where a gate is to be found.
#[derive(Debug)]
pub struct Listeners {
    /// The port, for everybody.
    pub port: TcpListener,
    /// The socket in the data folder. Whoever can open it is the folder's owner, who needs no key to
    /// read and to operate.
    pub socket: Option<UnixListener>,
}

impl From<TcpListener> for Listeners {
    fn from(port: TcpListener) -> Self {
        Self { port, socket: None }
    }
}

impl Listeners {
    /// Accepts for ever, wherever somebody comes in.
    async fn accept(&self, server: &Arc<Server>) -> Infallible {
        let at_port = accept(server, server.limits.connections_max, Listener::Port(&self.port));
        let Some(socket) = &self.socket else { return at_port.await };
        tokio::select! {
            never = at_port => never,
            never = accept(server, OWNERS_MAX, Listener::Socket(socket)) => never,
        }
    }
}

/// One of them.
enum Listener<'l> {
    Port(&'l TcpListener),
    Socket(&'l UnixListener),
}

impl Listener<'_> {
    async fn next(&self) -> io::Result<Accepted> {
        match self {
            Self::Port(port) => {
                port.accept().await.map(|(stream, peer)| Accepted::Tcp(stream, peer))
            }
            Self::Socket(socket) => {
                socket.accept().await.map(|(stream, _)| Accepted::Socket(stream))
            }
        }
    }
}

/// How a gate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections and requests that were cut off because `drain_ms_max` was over.
    pub unfinished: usize,
}

/// Why a gate did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Everybody who reaches the port would be let in.
    #[error("without principals the gate serves loopback only, and {0} is not")]
    OpenOffLoopback(SocketAddr),
    /// The listener is not one.
    #[error("the listener has no address")]
    Listener(#[from] io::Error),
}

/// A running server, shared by its connections.
pub(super) struct Server {
    pub(super) gate: Arc<Gate>,
    pub(super) limits: Arc<Limits>,
    pub(super) router: Router,
    pub(super) grpc: Router,
    pub(super) tasks: TaskTracker,
    pub(super) http: auto::Builder<Tasks>,
    /// Connections finish their present request and close.
    pub(super) closing: CancellationToken,
    /// Connections are cut off.
    pub(super) cutting: CancellationToken,
}

/// Serves `gate` on its listeners until `shutdown`, then drains.
pub async fn serve(
    listeners: impl Into<Listeners>,
    gate: Arc<Gate>,
    shutdown: CancellationToken,
) -> Result<Drained, ServeError> {
    let listeners = listeners.into();
    check_reach(&gate.principals, listeners.port.local_addr()?)?;
    let server = Arc::new(Server::new(gate));
    for effect in server.gate.take_unfinished() {
        let gate = Arc::clone(&server.gate);
        server.tasks.spawn(async move { perform::resume(&gate, &effect).await });
    }
    for ingest in server.gate.ingests() {
        ingest.start(&server.tasks);
    }
    server.tasks.spawn(takeover::keep_watch(Arc::clone(&server.gate)));
    if let Some(publisher) = &server.gate.publisher {
        publisher.start();
    }
    // Whoever drops this future wants no connection to go on without it.
    let _cut_when_dropped = server.cutting.clone().drop_guard();
    let draining = async {
        shutdown.cancelled().await;
        server.gate.start_draining();
        tracing::info!(in_flight = server.gate.events_in_flight(), "draining");
        // A call that is cut off is one whose outcome nobody knows; it is worth waiting for.
        let drain_max = server.gate.limits.drain_max().max(server.gate.call_max());
        let deadline = Instant::now() + drain_max;
        // Late or not, the connections are asked to end next.
        let emptied = timeout_at(deadline, server.gate.room.empty()).await.is_ok();
        tracing::debug!(emptied, "no longer listening");
        deadline
    };
    let deadline = tokio::select! {
        deadline = draining => deadline,
        never = listeners.accept(&server) => match never {},
    };
    drop(listeners);
    server.closing.cancel();
    for ingest in server.gate.ingests() {
        // Late or not: what is not settled by then is ambiguous at the next start.
        drop(timeout_at(deadline, ingest.end()).await);
    }
    if let Some(publisher) = &server.gate.publisher {
        drop(timeout_at(deadline, publisher.end()).await);
    }
    server.tasks.close();
    let finished = timeout_at(deadline, server.tasks.wait()).await.is_ok();
    let unfinished = if finished { 0 } else { server.tasks.len() };
    Ok(Drained { unfinished })
}

fn check_reach(principals: &Principals, address: SocketAddr) -> Result<(), ServeError> {
    if principals.is_open() && !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::OpenOffLoopback(address));
    }
    Ok(())
}

impl Server {
    fn new(gate: Arc<Gate>) -> Self {
        let tasks = gate.tasks.clone();
        Self {
            limits: Arc::new(gate.limits.clone()),
            router: routes::router(Arc::clone(&gate)),
            grpc: grpc::router(&gate),
            http: http(&gate.limits, &tasks),
            closing: CancellationToken::new(),
            cutting: CancellationToken::new(),
            tasks,
            gate,
        }
    }
}

/// How HTTP is spoken. Waits for heads and idle peers are the watcher's business. Answers are not
/// held back to be flushed together: one would then wait for the rest of the next request.
fn http(limits: &Limits, tasks: &TaskTracker) -> auto::Builder<Tasks> {
    let mut http = auto::Builder::new(Tasks(tasks.clone()));
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(limits.headers_bytes_max)
        // A peer that has said all it wanted may close its half and still wants its answer.
        .half_close(true)
        // Answers are small: one buffer and one write are cheaper than a list of them.
        .writev(false);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_INTERVAL)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(head::bytes_max(limits));
    http
}

/// Why a connection is accepted only to be refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum TurnedAway {
    /// `connections_max`.
    Full,
    /// `unauthenticated_connections_per_address_max`.
    Address,
}

impl TurnedAway {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Full => "too many connections (limits.connections_max)",
            Self::Address => {
                "too many unauthenticated connections from this address \
                 (limits.unauthenticated_connections_per_address_max)"
            }
        }
    }
}

/// A place for a connection. It is free again when this is dropped, and the connection counts as
/// ended.
pub(super) struct Slot {
    gate: Arc<Gate>,
    _permit: OwnedSemaphorePermit,
    /// Set where every request is only answered `overloaded`.
    pub(super) turned_away: Option<TurnedAway>,
    pub(super) standing: Arc<Standing>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gate.metrics().connections_ended.add_one();
    }
}

/// Accepts for ever. Errors of the system are waited out: a gate that stops listening because it
/// was out of file descriptors for a moment would be worse than one that is slow.
async fn accept(
    server: &Arc<Server>,
    connections_max: usize,
    listener: Listener<'_>,
) -> Infallible {
    let places = Places {
        gate: Arc::clone(&server.gate),
        open: Arc::new(Semaphore::new(connections_max)),
        spare: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
        refused: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
    };
    loop {
        let stream = match listener.next().await {
            Ok(accepted) => accepted,
            Err(error) if is_the_peers(&error) => continue,
            Err(error) => {
                if server.gate.may_log_fault() {
                    tracing::warn!(%error, "cannot accept connections");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match places.take(stream.peer()).await {
            Some(slot) => start(server, stream, slot),
            None => server.gate.metrics().connections_closed_at_once.add_one(),
        }
    }
}

/// The places of one listener.
struct Places {
    gate: Arc<Gate>,
    open: Arc<Semaphore>,
    /// For connections over `connections_max`.
    spare: Arc<Semaphore>,
    /// For connections of addresses that have too many.
    refused: Arc<Semaphore>,
}

impl Places {
    /// A place for a connection of `peer`; none when its address has too many connections and it is
    /// not even worth an answer.
    async fn take(&self, peer: Peer) -> Option<Slot> {
        let is_full = self.open.available_permits() == 0;
        let (mut is_room_made, mut number) = (false, None);
        let standing = match peer {
            Peer::At(address) if !self.gate.principals.is_open() => {
                match self.gate.unauthenticated.add(address.ip()) {
                    Some(permit) => {
                        number = Some(permit.number());
                        is_room_made = self.gate.unauthenticated.make_room(&permit, is_full);
                        Standing::unauthenticated(Some(permit))
                    }
                    None => return self.refused_address(),
                }
            }
            Peer::At(_) | Peer::Owner => Standing::trusted(),
        };
        if is_room_made {
            self.gate.metrics().connections_closed_at_once.add_one();
        }
        if is_room_made && is_full {
            let opened = timeout(ROOM_WAIT_MAX, Arc::clone(&self.open).acquire_owned()).await;
            if let Ok(permit) = opened {
                return Some(self.slot(permit.expect("never closed"), None, standing));
            }
        }
        let (permit, turned_away) = tokio::select! {
            biased;
            permit = Arc::clone(&self.open).acquire_owned() => (permit, None),
            permit = Arc::clone(&self.spare).acquire_owned() => (permit, Some(TurnedAway::Full)),
        };
        if let (Some(number), Some(_)) = (number, turned_away) {
            self.gate.unauthenticated.unlist(number);
        }
        Some(self.slot(permit.expect("these semaphores are never closed"), turned_away, standing))
    }

    /// A place only to be refused. It is not waited for: other addresses would wait too. And no
    /// handshake is made for it: that would cost more than the connection it refuses.
    fn refused_address(&self) -> Option<Slot> {
        if self.gate.tls.is_some() {
            return None;
        }
        let permit = Arc::clone(&self.refused).try_acquire_owned().ok()?;
        Some(self.slot(permit, Some(TurnedAway::Address), Standing::unauthenticated(None)))
    }

    fn slot(
        &self,
        permit: OwnedSemaphorePermit,
        turned_away: Option<TurnedAway>,
        standing: Arc<Standing>,
    ) -> Slot {
        let metrics = self.gate.metrics();
        metrics.connections.add_one();
        if turned_away.is_some() {
            metrics.connections_turned_away.add_one();
        }
        Slot { gate: Arc::clone(&self.gate), _permit: permit, turned_away, standing }
    }
}

fn start(server: &Arc<Server>, stream: Accepted, slot: Slot) {
    // Without this an answer may wait for an acknowledgement that the peer is delaying.
    if let Accepted::Tcp(stream, _) = &stream
        && let Err(error) = stream.set_nodelay(true)
    {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    server.tasks.spawn(connection::run(Arc::clone(server), stream, slot));
}

fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_gate_stays_on_this_machine() {
        let open = Principals::open();
        for reachable in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
            let refused = check_reach(&open, reachable.parse().unwrap());
            assert!(matches!(refused, Err(ServeError::OpenOffLoopback(_))), "{reachable}");
        }
        for local in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            assert!(check_reach(&open, local.parse().unwrap()).is_ok(), "{local}");
        }
    }
}
