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
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, Tasks};
use super::wire::Accepted;
use super::{head, routes};
use crate::gate::Gate;
use crate::grpc;
use crate::limits::Limits;
use crate::perform;
use crate::principals::Principals;
use crate::takeover;

/// Connections at once at the socket in the data folder, beside those at the port: whoever operates gets
/// in also when the port is full.
const OWNERS_MAX: usize = 32;

/// How many connections over the limit are accepted at once, only to be told so.
const TURNED_AWAY_MAX: usize = 64;

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

/// A place for a connection. It is free again when this is dropped, and the connection counts as
/// ended.
pub(super) struct Slot {
    gate: Arc<Gate>,
    _permit: OwnedSemaphorePermit,
    /// Accepted over the limit: it is only told so.
    pub(super) is_turned_away: bool,
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
    let places = Arc::new(Semaphore::new(connections_max));
    let spare = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
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
        let slot = place(&server.gate, &places, &spare).await;
        start(server, stream, slot);
    }
}

async fn place(gate: &Arc<Gate>, places: &Arc<Semaphore>, spare: &Arc<Semaphore>) -> Slot {
    let (permit, is_turned_away) = match Arc::clone(places).try_acquire_owned() {
        Ok(permit) => (permit, false),
        Err(_) => {
            let permit = Arc::clone(spare).acquire_owned().await;
            (permit.expect("nobody closes this semaphore"), true)
        }
    };
    gate.metrics().connections.add_one();
    Slot { gate: Arc::clone(gate), _permit: permit, is_turned_away }
}

fn start(server: &Arc<Server>, stream: Accepted, slot: Slot) {
    if slot.is_turned_away {
        server.gate.metrics().connections_turned_away.add_one();
    }
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
