//! WebSocket upgrade at a door: authenticates the request, replies with 101 and starts the session.

use std::sync::Arc;

use admit_core::Code;
use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::connection::ConnectionContext;
use super::door::{Refusal, identify_sender, refusal};
use super::response::GateResponse;
use super::trace;
use crate::builder::DoorMount;
use crate::pipelined_session::PipelinedSession;
use crate::ws::{self, SocketContext};

/// Opens a WebSocket at a door.
pub(super) fn open(
    context: &ConnectionContext,
    door: &Arc<DoorMount>,
    head: &Parts,
    upgrade: OnUpgrade,
) -> Result<GateResponse, Refusal> {
    let sender = identify_sender(context, door, head)?;
    let headers = ws::accept(head).map_err(|message| refusal(Code::InvalidRequest, message))?;
    let gate = Arc::clone(&context.server.gate);
    let session = PipelinedSession::new(Arc::clone(&gate), Arc::clone(door), sender);
    let socket = SocketContext { gate, session, cutting: context.server.cutting.child_token() };
    // The session keeps the connection permit and has its own timeouts.
    let (permit, running) = (Arc::clone(&context.permit), context.activity.begin_exchange());
    context.server.tasks.spawn(trace::in_current_scope(async move {
        match upgrade.await {
            Ok(upgraded) => ws::run(socket, TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "websocket upgrade failed"),
        }
        drop((permit, running));
    }));
    context.activity.upgrade();
    let mut response = Response::new(Either::Left(Full::new(Bytes::new())));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend(headers);
    Ok(response)
}
