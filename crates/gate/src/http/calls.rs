//! From HTTP to gRPC: who calls, and the way back when nobody may.

use admit_core::Code;
use axum::body::Body;
use http::{Request, Version, header};
use http_body_util::{BodyExt as _, Either};
use hyper::body::Incoming;
use tower::ServiceExt as _;

use super::answer::{self, Answer};
use super::connection::{TOO_MANY_REQUESTS, Visit};
use super::door::{Refusal, sender};
use crate::grpc::{self, Caller};

/// Whether a request is a call.
pub(super) fn is_grpc(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Answers a call.
pub(super) async fn answer(visit: &Visit, request: Request<Incoming>) -> Answer {
    let gate = &visit.server.gate;
    if request.version() < Version::HTTP_2 {
        let message = "gRPC is spoken over HTTP/2";
        return answer::from_reply(answer::refuse(gate, Code::InvalidRequest, message));
    }
    let (head, body) = request.into_parts();
    let mut request = Request::new(Body::new(body));
    if let Some(door) = grpc::door(gate).filter(|_| grpc::is_ingress(head.uri.path())) {
        match sender(visit, door, &head) {
            Ok(sender) => {
                let cutting = visit.server.cutting.child_token();
                // Held until the call ends, so that its connection is not taken for an idle one.
                let running = visit.traffic.begin_for_long();
                request.extensions_mut().insert(Caller::new(sender, cutting, Box::new(running)));
            }
            Err(Refusal { code, message, .. }) => {
                if let Some(counters) = gate.metrics().door(&door.door) {
                    counters.refusals.of(code).add_one();
                }
                return grpc::status(code, message).into_http().map(Either::Right);
            }
        }
    }
    // Its answer goes on after its head, and needs no key.
    let is_watch = head.uri.path() == grpc::WATCH;
    if is_watch && visit.has_too_many_requests() {
        return grpc::status(Code::Overloaded, TOO_MANY_REQUESTS).into_http().map(Either::Right);
    }
    let watching = is_watch.then(|| visit.traffic.begin_for_long());
    *request.method_mut() = head.method;
    *request.uri_mut() = head.uri;
    *request.version_mut() = head.version;
    *request.headers_mut() = head.headers;
    let routed = visit.server.grpc.clone().oneshot(request).await;
    match routed {
        Ok(response) => match watching {
            None => response.map(Either::Right),
            // Dropped with the body, so that it counts until its end.
            Some(running) => response.map(|body| {
                Either::Right(Body::new(body.map_frame(move |frame| {
                    let _held = &running;
                    frame
                })))
            }),
        },
        Err(never) => match never {},
    }
}
