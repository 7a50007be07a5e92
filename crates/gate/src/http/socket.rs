//! From HTTP to a WebSocket: the checks of a door, the answer that opens it, and who carries it on.

use std::sync::Arc;

use admit_core::Code;
use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::answer::Answer;
use super::connection::Visit;
use super::door::{Refusal, refusal, sender};
use super::trace;
use crate::lane::Lane;
use crate::parts::DoorMount;
use crate::ws::{self, Session};

/// Opens a socket at a door.
pub(super) fn open(
    visit: &Visit,
    door: &Arc<DoorMount>,
    head: &Parts,
    upgrade: OnUpgrade,
) -> Result<Answer, Refusal> {
    let sender = sender(visit, door, head)?;
    let headers = ws::accept(head).map_err(|message| refusal(Code::InvalidRequest, message))?;
    let gate = Arc::clone(&visit.server.gate);
    let lane = Lane::new(Arc::clone(&gate), Arc::clone(door), sender);
    let session = Session { gate, lane, cutting: visit.server.cutting.child_token() };
    // The connection keeps its place, and nobody but the session judges its silence.
    let (slot, running) = (Arc::clone(&visit.slot), visit.traffic.begin_for_long());
    visit.server.tasks.spawn(trace::kept(async move {
        match upgrade.await {
            Ok(upgraded) => ws::run(session, TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "a websocket was not opened after all"),
        }
        drop((slot, running));
    }));
    visit.traffic.upgrade();
    let mut answer = Response::new(Either::Left(Full::new(Bytes::new())));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().extend(headers);
    Ok(answer)
}
