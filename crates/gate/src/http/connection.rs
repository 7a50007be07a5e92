//! One peer's connection: its requests one after the other, and how it ends.

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

use super::answer::{self, Answer};
use super::listen::{Server, Slot, TurnedAway};
use super::trace::{TraceId, X_TRACE_ID};
use super::watch::{Traffic, Watched};
use super::wire::{self, Accepted, Wire};
use super::{calls, door, head, routes, trace_field};
use crate::parts::DoorMount;
use crate::peer::Peer;
use crate::standing::Standing;

/// Most requests at once on a connection that has not authenticated: none of them, with a body that
/// never ends, counts as an event in flight.
const UNAUTHENTICATED_REQUESTS_MAX: u32 = 32;

/// The answer to more of them.
pub(super) const TOO_MANY_REQUESTS: &str =
    "too many requests at once on a connection without a key";

/// Runs the HTTP library's own tasks in the supervised set.
#[derive(Clone)]
pub(super) struct Tasks(pub(super) TaskTracker);

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// What is known of a connection while it lasts.
pub(super) struct Visit {
    pub(super) server: Arc<Server>,
    pub(super) peer: Peer,
    pub(super) traffic: Arc<Traffic>,
    /// Held by whatever is left of the connection.
    pub(super) slot: Arc<Slot>,
}

impl Visit {
    /// Why the connection was accepted only to be refused, if it was.
    pub(super) fn turned_away(&self) -> Option<TurnedAway> {
        self.slot.turned_away
    }

    /// Whether requests that overlap are more than a connection may have before it authenticates.
    pub(super) fn has_too_many_requests(&self) -> bool {
        !self.standing().is_authenticated() && self.traffic.running() > UNAUTHENTICATED_REQUESTS_MAX
    }

    /// Whether the connection has authenticated.
    pub(super) fn standing(&self) -> &Arc<Standing> {
        &self.slot.standing
    }
}

/// Carries a connection from its first byte to its last.
pub(super) async fn run(server: Arc<Server>, stream: Accepted, slot: Slot) {
    let peer = stream.peer();
    let agreed = tokio::select! {
        agreed = wire::agree(stream, server.gate.tls.as_ref(), &server.limits) => Some(agreed),
        // Whoever has not even said hello when the gate closes is not waited for.
        () = server.closing.cancelled() => None,
        () = server.cutting.cancelled() => None,
        () = slot.standing.activity().evicted.cancelled() => None,
    };
    match agreed {
        Some(Ok(stream)) => speak(&server, stream, peer, slot).await,
        Some(Err(error)) => {
            server.gate.metrics().tls_handshake_failures.add_one();
            tracing::debug!(%peer, %error, "connection ended before it began");
        }
        None => {}
    }
}

/// Speaks HTTP on a connection until it ends.
async fn speak(server: &Arc<Server>, stream: Wire, peer: Peer, slot: Slot) {
    let traffic = Arc::new(Traffic::new(Arc::clone(&slot.standing)));
    let io = Watched::new(stream, Arc::clone(&traffic), Arc::clone(&server.limits));
    // Over HTTP/2 no answer says that it is the last.
    let refused_max = slot.turned_away.map(|_| server.limits.answer_max());
    let slot = Arc::new(slot);
    let standing = Arc::clone(&slot.standing);
    let activity = standing.activity();
    let visit = Arc::new(Visit { server: Arc::clone(server), peer, traffic, slot });
    let service = service_fn(move |request| respond(Arc::clone(&visit), request));
    let mut served = pin!(server.http.serve_connection_with_upgrades(TokioIo::new(io), service));
    // Tokens of its own, so that connections do not all queue at one lock.
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
        () = activity.evicted.cancelled() => {
            tracing::debug!(%peer, "connection closed to make room for another");
            served.as_mut().graceful_shutdown();
            // Requests that have begun are still answered; an idle peer is not waited for.
            let is_busy = activity.running.load(Relaxed) > 0;
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

/// Answers one request, whatever happens while doing so.
async fn respond(visit: Arc<Visit>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let running = visit.traffic.begin();
    let (trace, is_asked_for) = TraceId::of(request.headers());
    let mut answer = trace.scope(answered(&visit, request, running.since)).await;
    // No browser is to make anything else of an answer than what it says it is.
    answer
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_asked_for || answer.status().is_server_error() {
        // A contract that names a trace in its own answer means that one.
        answer.headers_mut().entry(X_TRACE_ID).or_insert_with(|| trace.header());
    }
    Ok(answer)
}

async fn answered(visit: &Visit, request: Request<Incoming>, begun: Instant) -> Answer {
    let gate = &visit.server.gate;
    let method = request.method().clone();
    let is_http1 = request.version() < Version::HTTP_2;
    // What can be read back is read where it is sent.
    let is_read = matches!(method, Method::GET | Method::HEAD);
    let path = request.uri().path();
    let door = gate.door_at(path).filter(|_| !is_read || !routes::is_stream_route(path));
    // A door's path is known without a copy; elsewhere nobody is in such a hurry.
    let elsewhere = door.is_none().then(|| request.uri().path().to_owned());
    let handled = AssertUnwindSafe(async {
        match door {
            _ if !is_http1 && head::is_too_large(&request, &visit.server.limits) => {
                head::refuse(visit, request).await
            }
            _ if calls::is_grpc(&request) => calls::answer(visit, request).await,
            Some(door) => door::knock(visit, door, request, begun).await,
            None => routes::answer(visit, request, begun).await,
        }
    });
    let handled = handled.catch_unwind().await;
    let mut answer = handled.unwrap_or_else(|_| panicked(visit, door.map(AsRef::as_ref)));
    if is_http1 && (visit.turned_away().is_some() || gate.is_draining()) {
        close_after(&mut answer);
    }
    let path = elsewhere.as_deref().or(door.map(|door| door.path.as_str())).unwrap_or_default();
    note(visit, &method, path, &answer, begun);
    answer
}

/// The access log: every request for whoever debugs, failures of ours for everybody, though not
/// more than one a moment, so that an outage is not also a flood.
fn note(visit: &Visit, method: &Method, path: &str, answer: &Answer, begun: Instant) {
    let (peer, status) = (visit.peer, answer.status().as_u16());
    let micros = || u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                trace_id = trace_field(), %peer, %method, path, status, micros = micros(), "answered"
            )
        };
    }
    if status >= 500 && visit.server.gate.may_log_fault() { line!(info) } else { line!(debug) }
}

/// Tells the peer that this is the last answer on its connection.
pub(super) fn close_after(answer: &mut Answer) {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// The answer to a request that ended in a defect of ours. The contract may be the defect.
fn panicked(visit: &Visit, door: Option<&DoorMount>) -> Answer {
    const MESSAGE: &str = "a defect of this gate; the event may be kept, a retry finds out";
    let gate = &visit.server.gate;
    gate.metrics().panics.add_one();
    tracing::error!(
        trace_id = trace_field(),
        door = door.map(|door| door.door.as_str()),
        "a request panicked"
    );
    let seed = gate.ticket();
    let in_its_words = door.and_then(|door| {
        catch_unwind(AssertUnwindSafe(|| gate.refuse(door, Code::InternalError, MESSAGE, seed)))
            .ok()
    });
    let reply = in_its_words.unwrap_or_else(|| answer::refuse(gate, Code::InternalError, MESSAGE));
    answer::from_reply(reply)
}
