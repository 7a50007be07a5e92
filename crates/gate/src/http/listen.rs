//! Accept loop, connection limits and graceful shutdown.
//!
//! The listeners stay open while the gate drains: new requests get `draining` with a retry hint until
//! the accepted ones have their replies. Some producers treat a refused connection as a permanent
//! failure within seconds.

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

use super::connection::{self, HttpExecutor};
use super::peer_stream::AcceptedSocket;
use super::{head_limits, routes};
use crate::dead_gate_recovery;
use crate::gate::Gate;
use crate::gateway_delivery;
use crate::grpc;
use crate::limits::Limits;
use crate::peer::Peer;
use crate::principals::Principals;
use crate::unauthenticated_connections::ConnectionAuth;

/// Most concurrent connections on the Unix socket in the data folder. They do not count against those
/// of the port, so that an operator can connect when the port is full.
const SOCKET_CONNECTIONS_MAX: usize = 32;

/// Most concurrent connections over the limit that are accepted to get an error reply.
const REFUSED_MAX: usize = 64;

/// How long a new connection waits for the permit of an evicted one.
const EVICTION_WAIT_MAX: Duration = Duration::from_millis(250);

/// Pause after a failed `accept`, so that a shortage of file descriptors is not a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval and timeout of HTTP/2 keep-alive pings.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Most concurrent requests on one HTTP/2 connection.
const HTTP2_STREAMS_MAX: u32 = 256;

/// Listening sockets of a gate.
#[derive(Debug)]
pub struct Listeners {
    /// The TCP port.
    pub port: TcpListener,
    /// The Unix socket in the data folder. Its file permissions restrict it to the owner of the folder,
    /// who may read and operate without a key.
    pub socket: Option<UnixListener>,
}

impl From<TcpListener> for Listeners {
    fn from(port: TcpListener) -> Self {
        Self { port, socket: None }
    }
}

impl Listeners {
    /// Accepts on all listeners, for ever.
    async fn accept(&self, server: &Arc<HttpServer>) -> Infallible {
        let at_port = accept(server, server.limits.connections_max, ListenerRef::Port(&self.port));
        let Some(socket) = &self.socket else { return at_port.await };
        tokio::select! {
            never = at_port => never,
            never = accept(server, SOCKET_CONNECTIONS_MAX, ListenerRef::Socket(socket)) => never,
        }
    }
}

/// One listening socket.
enum ListenerRef<'l> {
    Port(&'l TcpListener),
    Socket(&'l UnixListener),
}

impl ListenerRef<'_> {
    async fn next(&self) -> io::Result<AcceptedSocket> {
        match self {
            Self::Port(port) => {
                port.accept().await.map(|(stream, peer)| AcceptedSocket::Tcp(stream, peer))
            }
            Self::Socket(socket) => {
                socket.accept().await.map(|(stream, _)| AcceptedSocket::Socket(stream))
            }
        }
    }
}

/// Result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections and requests that were cut off when `limits.drain_ms_max` expired.
    pub unfinished: usize,
}

/// Reason why a gate did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No principals are configured, and the port is reachable from other machines.
    #[error("cannot listen on {0} without principals: it is not a loopback address")]
    OpenOffLoopback(SocketAddr),
    /// The address of the listener cannot be read.
    #[error("cannot read the address of the listener")]
    ListenerRef(#[from] io::Error),
}

/// State of a running server that its connections share.
pub(super) struct HttpServer {
    pub(super) gate: Arc<Gate>,
    pub(super) limits: Arc<Limits>,
    pub(super) router: Router,
    pub(super) grpc: Router,
    pub(super) tasks: TaskTracker,
    pub(super) http: auto::Builder<HttpExecutor>,
    /// Cancelled when connections must finish their current request and close.
    pub(super) closing: CancellationToken,
    /// Cancelled when connections must close immediately.
    pub(super) cutting: CancellationToken,
}

/// Serves `gate` on its listeners until `shutdown` is cancelled, then drains.
pub async fn serve(
    listeners: impl Into<Listeners>,
    gate: Arc<Gate>,
    shutdown: CancellationToken,
) -> Result<DrainReport, ServeError> {
    let listeners = listeners.into();
    check_loopback(&gate.principals, listeners.port.local_addr()?)?;
    let server = Arc::new(HttpServer::new(gate));
    for effect in server.gate.take_unfinished() {
        let gate = Arc::clone(&server.gate);
        server.tasks.spawn(async move { gateway_delivery::resume(&gate, &effect).await });
    }
    for ingest in server.gate.ingests() {
        ingest.start(&server.tasks);
    }
    server.tasks.spawn(dead_gate_recovery::run(Arc::clone(&server.gate)));
    if let Some(publisher) = &server.gate.publisher {
        publisher.start();
    }
    // Connections must not outlive this future.
    let _cut_when_dropped = server.cutting.clone().drop_guard();
    let draining = async {
        shutdown.cancelled().await;
        server.gate.start_draining();
        tracing::info!(in_flight = server.gate.events_in_flight(), "draining");
        // Wait for gateway calls too: an aborted call has an unknown outcome.
        let drain_max = server.gate.limits.drain_max().max(server.gate.call_max());
        let deadline = Instant::now() + drain_max;
        // Connections are closed next, also after a timeout.
        let emptied =
            timeout_at(deadline, server.gate.admission_limiter.wait_until_empty()).await.is_ok();
        tracing::debug!(emptied, "stopped listening");
        deadline
    };
    let deadline = tokio::select! {
        deadline = draining => deadline,
        never = listeners.accept(&server) => match never {},
    };
    drop(listeners);
    server.closing.cancel();
    for ingest in server.gate.ingests() {
        // After a timeout, unsettled publishes are ambiguous at the next start.
        drop(timeout_at(deadline, ingest.end()).await);
    }
    if let Some(publisher) = &server.gate.publisher {
        drop(timeout_at(deadline, publisher.end()).await);
    }
    server.tasks.close();
    let finished = timeout_at(deadline, server.tasks.wait()).await.is_ok();
    let unfinished = if finished { 0 } else { server.tasks.len() };
    Ok(DrainReport { unfinished })
}

fn check_loopback(principals: &Principals, address: SocketAddr) -> Result<(), ServeError> {
    if principals.is_open() && !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::OpenOffLoopback(address));
    }
    Ok(())
}

impl HttpServer {
    fn new(gate: Arc<Gate>) -> Self {
        let tasks = gate.tasks.clone();
        Self {
            limits: Arc::new(gate.limits.clone()),
            router: routes::router(Arc::clone(&gate)),
            grpc: grpc::router(&gate),
            http: http_builder(&gate.limits, &tasks),
            closing: CancellationToken::new(),
            cutting: CancellationToken::new(),
            tasks,
            gate,
        }
    }
}

/// Configuration of the HTTP library. Head and idle timeouts are in `io_timeouts`. Responses are not
/// collected for one flush, because a response would then wait for the rest of the next request.
fn http_builder(limits: &Limits, tasks: &TaskTracker) -> auto::Builder<HttpExecutor> {
    let mut http = auto::Builder::new(HttpExecutor(tasks.clone()));
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(limits.headers_bytes_max)
        // A peer that has shut down its sending half still reads its response.
        .half_close(true)
        // Responses are small: one buffer and one write are cheaper than a vectored write.
        .writev(false);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_INTERVAL)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(head_limits::library_head_bytes_max(limits));
    http
}

/// Reason why every request on a connection gets `overloaded`.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionRefusal {
    /// `limits.connections_max` is reached.
    Full,
    /// `limits.unauthenticated_connections_per_address_max` is reached.
    Address,
}

impl ConnectionRefusal {
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

/// Permit of one connection. Dropping it frees the permit and counts the connection as ended.
pub(super) struct ConnectionPermit {
    gate: Arc<Gate>,
    _permit: OwnedSemaphorePermit,
    /// Set if every request on the connection gets `overloaded`.
    pub(super) connection_refusal: Option<ConnectionRefusal>,
    pub(super) auth: Arc<ConnectionAuth>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.gate.metrics().connections_ended.add_one();
    }
}

/// Accept loop. It retries after system errors, because a shortage of file descriptors may be brief.
async fn accept(
    server: &Arc<HttpServer>,
    connections_max: usize,
    listener: ListenerRef<'_>,
) -> Infallible {
    let permits = ConnectionPermits {
        gate: Arc::clone(&server.gate),
        open: Arc::new(Semaphore::new(connections_max)),
        overflow: Arc::new(Semaphore::new(REFUSED_MAX)),
        refused: Arc::new(Semaphore::new(REFUSED_MAX)),
    };
    loop {
        let stream = match listener.next().await {
            Ok(accepted) => accepted,
            Err(error) if is_peer_error(&error) => continue,
            Err(error) => {
                if server.gate.may_log_fault() {
                    tracing::warn!(%error, "accept failed; will retry");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match permits.acquire(stream.peer()).await {
            Some(permit) => start(server, stream, permit),
            None => server.gate.metrics().connections_closed_at_once.add_one(),
        }
    }
}

/// Connection permits of one listener.
struct ConnectionPermits {
    gate: Arc<Gate>,
    open: Arc<Semaphore>,
    /// For connections over `connections_max`, which get `overloaded`.
    overflow: Arc<Semaphore>,
    /// For connections of addresses with too many connections, which get `overloaded`.
    refused: Arc<Semaphore>,
}

impl ConnectionPermits {
    /// Returns a permit for a connection of `peer`. `None` closes it without a reply: its address has too
    /// many connections.
    async fn acquire(&self, peer: Peer) -> Option<ConnectionPermit> {
        let is_full = self.open.available_permits() == 0;
        let (mut has_evicted, mut number) = (false, None);
        let auth = match peer {
            Peer::At(address) if !self.gate.principals.is_open() => {
                match self.gate.unauthenticated.add(address.ip()) {
                    Some(permit) => {
                        number = Some(permit.number());
                        has_evicted = self.gate.unauthenticated.evict_for(&permit, is_full);
                        ConnectionAuth::unauthenticated(Some(permit))
                    }
                    None => return self.refused_address(),
                }
            }
            Peer::At(_) | Peer::Owner => ConnectionAuth::trusted(),
        };
        if has_evicted {
            self.gate.metrics().connections_closed_at_once.add_one();
        }
        if has_evicted && is_full {
            let opened = timeout(EVICTION_WAIT_MAX, Arc::clone(&self.open).acquire_owned()).await;
            if let Ok(permit) = opened {
                return Some(self.permit(permit.expect("never closed"), None, auth));
            }
        }
        let (permit, connection_refusal) = tokio::select! {
            biased;
            permit = Arc::clone(&self.open).acquire_owned() => (permit, None),
            permit = Arc::clone(&self.overflow).acquire_owned() => (permit, Some(ConnectionRefusal::Full)),
        };
        if let (Some(number), Some(_)) = (number, connection_refusal) {
            self.gate.unauthenticated.unlist(number);
        }
        Some(self.permit(
            permit.expect("these semaphores are never closed"),
            connection_refusal,
            auth,
        ))
    }

    /// Returns a permit that only serves `overloaded` replies. It never waits, because that would delay
    /// other addresses, and there is none with TLS, because the handshake costs more than it protects.
    fn refused_address(&self) -> Option<ConnectionPermit> {
        if self.gate.tls.is_some() {
            return None;
        }
        let permit = Arc::clone(&self.refused).try_acquire_owned().ok()?;
        Some(self.permit(
            permit,
            Some(ConnectionRefusal::Address),
            ConnectionAuth::unauthenticated(None),
        ))
    }

    fn permit(
        &self,
        permit: OwnedSemaphorePermit,
        connection_refusal: Option<ConnectionRefusal>,
        auth: Arc<ConnectionAuth>,
    ) -> ConnectionPermit {
        let metrics = self.gate.metrics();
        metrics.connections.add_one();
        if connection_refusal.is_some() {
            metrics.connections_turned_away.add_one();
        }
        ConnectionPermit { gate: Arc::clone(&self.gate), _permit: permit, connection_refusal, auth }
    }
}

fn start(server: &Arc<HttpServer>, stream: AcceptedSocket, permit: ConnectionPermit) {
    // Nagle's algorithm would delay a response until the peer acknowledges the previous one.
    if let AcceptedSocket::Tcp(stream, _) = &stream
        && let Err(error) = stream.set_nodelay(true)
    {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    server.tasks.spawn(connection::run(Arc::clone(server), stream, permit));
}

fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_without_principals_listens_on_loopback_only() {
        let open = Principals::open();
        for reachable in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
            let refused = check_loopback(&open, reachable.parse().unwrap());
            assert!(matches!(refused, Err(ServeError::OpenOffLoopback(_))), "{reachable}");
        }
        for local in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            assert!(check_loopback(&open, local.parse().unwrap()).is_ok(), "{local}");
        }
    }
}
