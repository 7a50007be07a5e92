//! One connection: serves its requests, logs them and closes it.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use admit_core::Code;
use futures_util::FutureExt as _;
use http::{HeaderValue, Method, Request, Version, header};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use super::io_timeouts::{ConnectionActivity, GuardedStream};
use super::listen::{ConnectionPermit, ConnectionRefusal, HttpServer};
use super::peer_stream::{self, AcceptedSocket, PeerStream};
use super::response::{self, GateResponse};
use super::trace::{TraceId, X_TRACE_ID};
use super::{door, grpc_calls, head_limits, routes, trace_field};
use crate::builder::DoorMount;
use crate::peer::Peer;
use crate::unauthenticated_connections::ConnectionAuth;

/// Most concurrent requests on an unauthenticated connection. Requests with unfinished bodies are not
/// yet counted as events in flight, so this bounds them.
const UNAUTHENTICATED_REQUESTS_MAX: u32 = 32;

/// Error message above that limit.
pub(super) const TOO_MANY_REQUESTS: &str =
    "too many concurrent requests on an unauthenticated connection";

/// Executor that runs the tasks of the HTTP library in the gate's task tracker.
#[derive(Clone)]
pub(super) struct HttpExecutor(pub(super) TaskTracker);

impl<F> Executor<F> for HttpExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// State of a connection that its requests share.
pub(super) struct ConnectionContext {
    pub(super) server: Arc<HttpServer>,
    pub(super) peer: Peer,
    pub(super) activity: Arc<ConnectionActivity>,
    /// Shared with exchanges that outlive the HTTP connection, such as a WebSocket.
    pub(super) permit: Arc<ConnectionPermit>,
}

impl ConnectionContext {
    /// The reason to refuse every request on this connection, if there is one.
    pub(super) fn connection_refusal(&self) -> Option<ConnectionRefusal> {
        self.permit.connection_refusal
    }

    /// Whether the connection is unauthenticated and has too many concurrent requests.
    pub(super) fn has_too_many_requests(&self) -> bool {
        !self.auth().is_authenticated() && self.activity.running() > UNAUTHENTICATED_REQUESTS_MAX
    }

    /// Authentication state of the connection.
    pub(super) fn auth(&self) -> &Arc<ConnectionAuth> {
        &self.permit.auth
    }
}

/// Serves a connection, from the TLS handshake to its end.
pub(super) async fn run(server: Arc<HttpServer>, stream: AcceptedSocket, permit: ConnectionPermit) {
    let peer = stream.peer();
    let handshake = tokio::select! {
        done = peer_stream::tls_handshake(stream, server.gate.tls.as_ref(), &server.limits) => Some(done),
        // Shutdown does not wait for handshakes.
        () = server.closing.cancelled() => None,
        () = server.cutting.cancelled() => None,
        () = permit.auth.eviction().evicted.cancelled() => None,
    };
    match handshake {
        Some(Ok(stream)) => serve_http(&server, stream, peer, permit).await,
        Some(Err(error)) => {
            server.gate.metrics().tls_handshake_failures.add_one();
            tracing::debug!(%peer, %error, "handshake failed");
        }
        None => {}
    }
}

/// Serves HTTP on a connection until it ends.
async fn serve_http(
    server: &Arc<HttpServer>,
    stream: PeerStream,
    peer: Peer,
    permit: ConnectionPermit,
) {
    let activity = Arc::new(ConnectionActivity::new(Arc::clone(&permit.auth)));
    let io = GuardedStream::new(stream, Arc::clone(&activity), Arc::clone(&server.limits));
    // HTTP/2 has no `connection: close`, so a refused connection is closed by a timeout.
    let refused_max = permit.connection_refusal.map(|_| server.limits.answer_max());
    let permit = Arc::new(permit);
    let auth = Arc::clone(&permit.auth);
    let eviction = auth.eviction();
    let context =
        Arc::new(ConnectionContext { server: Arc::clone(server), peer, activity, permit });
    let service = service_fn(move |request| handle_request(Arc::clone(&context), request));
    let mut served = pin!(server.http.serve_connection_with_upgrades(TokioIo::new(io), service));
    // Child tokens, so that connections do not contend for one lock.
    let (closing, cutting) = (server.closing.child_token(), server.cutting.child_token());
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = closing.cancelled() => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                ended = served => ended,
                () = cutting.cancelled() => Ok(()),
            }
        }
        () = cutting.cancelled() => Ok(()),
        () = eviction.evicted.cancelled() => {
            tracing::debug!(%peer, "connection evicted: too many connections");
            served.as_mut().graceful_shutdown();
            // Running requests still get their responses; an idle connection closes immediately.
            let is_busy = eviction.running.load(Relaxed) > 0;
            let busy_max = if is_busy { server.limits.answer_max() } else { Duration::ZERO };
            tokio::select! {
                biased;
                ended = served => ended,
                () = cutting.cancelled() => Ok(()),
                () = sleep(busy_max) => Ok(()),
            }
        }
        () = sleep(refused_max.unwrap_or_default()), if refused_max.is_some() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection ended early");
    }
}

/// Handles one request and adds the common response headers.
async fn handle_request(
    context: Arc<ConnectionContext>,
    request: Request<Incoming>,
) -> Result<GateResponse, Infallible> {
    let running = context.activity.begin();
    let (trace, is_from_caller) = TraceId::from_headers(request.headers());
    let mut response = trace.scope(dispatch(&context, request, running.since)).await;
    // Browsers must not guess another content type.
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_from_caller || response.status().is_server_error() {
        // A contract may have set the header itself.
        response.headers_mut().entry(X_TRACE_ID).or_insert_with(|| trace.header());
    }
    Ok(response)
}

/// Selects the handler of a request; a panic in it becomes `internal_error`.
async fn dispatch(
    context: &ConnectionContext,
    request: Request<Incoming>,
    begun: Instant,
) -> GateResponse {
    let gate = &context.server.gate;
    let method = request.method().clone();
    let is_http1 = request.version() < Version::HTTP_2;
    // GET on a stream path reads the stream; it is not a submission.
    let is_read = matches!(method, Method::GET | Method::HEAD);
    let path = request.uri().path();
    let door = gate.door_at(path).filter(|_| !is_read || !routes::is_stream_route(path));
    // Avoids copying the path of a submission.
    let route_path = door.is_none().then(|| request.uri().path().to_owned());
    let handled = AssertUnwindSafe(async {
        match door {
            _ if !is_http1 && head_limits::is_too_large(&request, &context.server.limits) => {
                head_limits::refuse(context, request).await
            }
            _ if grpc_calls::is_grpc(&request) => grpc_calls::handle_call(context, request).await,
            Some(door) => door::handle_submission(context, door, request, begun).await,
            None => routes::handle_request(context, request, begun).await,
        }
    });
    let handled = handled.catch_unwind().await;
    let mut response = handled.unwrap_or_else(|_| panic_response(context, door.map(AsRef::as_ref)));
    if is_http1 && (context.connection_refusal().is_some() || gate.is_draining()) {
        close_after(&mut response);
    }
    let path = route_path.as_deref().or(door.map(|door| door.path.as_str())).unwrap_or_default();
    log_request(context, &method, path, &response, begun);
    response
}

/// Access log: every request at level debug, server errors at level info with a rate limit.
fn log_request(
    context: &ConnectionContext,
    method: &Method,
    path: &str,
    response: &GateResponse,
    begun: Instant,
) {
    let (peer, status) = (context.peer, response.status().as_u16());
    let micros = || u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                trace_id = trace_field(), %peer, %method, path, status, micros = micros(), "request completed"
            )
        };
    }
    if status >= 500 && context.server.gate.may_log_fault() { line!(info) } else { line!(debug) }
}

/// Announces with `connection: close` that the connection ends after this response.
pub(super) fn close_after(response: &mut GateResponse) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Returns the reply to a request whose handler panicked, in the format of the contract unless that
/// panics too.
fn panic_response(context: &ConnectionContext, door: Option<&DoorMount>) -> GateResponse {
    const MESSAGE: &str = "internal error; the event may be stored, retry to get its outcome";
    let gate = &context.server.gate;
    gate.metrics().panics.add_one();
    tracing::error!(
        trace_id = trace_field(),
        door = door.map(|door| door.door.as_str()),
        "request handler panicked"
    );
    let seed = gate.next_hint_seed();
    let contract_reply = door.and_then(|door| {
        catch_unwind(AssertUnwindSafe(|| gate.refuse(door, Code::InternalError, MESSAGE, seed)))
            .ok()
    });
    let reply =
        contract_reply.unwrap_or_else(|| response::refuse(gate, Code::InternalError, MESSAGE));
    response::from_reply(reply)
}
