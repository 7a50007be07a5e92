//! gRPC over the HTTP listener: authenticates a call and hands it to the gRPC router.

use admit_core::Code;
use axum::body::Body;
use http::{Request, Version, header};
use http_body_util::{BodyExt as _, Either};
use hyper::body::Incoming;
use tower::ServiceExt as _;

use super::connection::{ConnectionContext, TOO_MANY_REQUESTS};
use super::door::{Refusal, identify_sender};
use super::response::{self, GateResponse};
use crate::grpc::{self, Caller};

/// Whether a request is a gRPC call, by its content type.
pub(super) fn is_grpc(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Handles a gRPC call.
pub(super) async fn handle_call(
    context: &ConnectionContext,
    request: Request<Incoming>,
) -> GateResponse {
    let gate = &context.server.gate;
    if request.version() < Version::HTTP_2 {
        let message = "gRPC requires HTTP/2";
        return response::from_reply(response::refuse(gate, Code::InvalidRequest, message));
    }
    let (head, body) = request.into_parts();
    let mut request = Request::new(Body::new(body));
    if let Some(door) = grpc::door(gate).filter(|_| grpc::is_ingress(head.uri.path())) {
        match identify_sender(context, door, &head) {
            Ok(sender) => {
                let cutting = context.server.cutting.child_token();
                // Held until the call ends, so that the connection does not count as idle.
                let running = context.activity.begin_exchange();
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
    // A health watch streams its response and needs no key.
    let is_watch = head.uri.path() == grpc::WATCH;
    if is_watch && context.has_too_many_requests() {
        return grpc::status(Code::Overloaded, TOO_MANY_REQUESTS).into_http().map(Either::Right);
    }
    let watching = is_watch.then(|| context.activity.begin_exchange());
    *request.method_mut() = head.method;
    *request.uri_mut() = head.uri;
    *request.version_mut() = head.version;
    *request.headers_mut() = head.headers;
    let routed = context.server.grpc.clone().oneshot(request).await;
    match routed {
        Ok(response) => match watching {
            None => response.map(Either::Right),
            // Dropped with the body, so that the call counts as running until its end.
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
