//! Events over gRPC: `admit.v1.Ingress`, on the same port as everything else, with reflection and
//! `grpc.health.v1.Health`.
//!
//! The result for an event is an ACK or a NACK, as on every other transport. A gRPC status concerns only
//! the call itself: authentication, and how it ended.

mod health;
mod ingress;

use std::sync::Arc;

use admit_core::Code;
use admit_proto::v1::ingress_server::IngressServer;
use axum::Router;
use tonic::Status;
use tonic::service::Routes;
use tonic_reflection::server::Builder;

use crate::builder::DoorMount;
use crate::gate::Gate;
use ingress::Ingress;

pub(crate) use ingress::Caller;

/// Protobuf overhead of an envelope's message, in bytes.
const MESSAGE_FRAME_BYTES: usize = 64;

/// Door of the ingress calls.
pub(crate) fn door(gate: &Gate) -> Option<&Arc<DoorMount>> {
    gate.doors.iter().find(|mount| mount.contract.takes_messages())
}

/// Path of the streaming call of the health service.
pub(crate) const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Whether `path` is an ingress call. All other services are public.
pub(crate) fn is_ingress(path: &str) -> bool {
    path.starts_with("/admit.v1.Ingress/")
}

/// Routes of all gRPC services.
pub(crate) fn router(gate: &Arc<Gate>) -> Router {
    let mut routes = Routes::new(health::server(gate));
    let mut described = vec![tonic_health::pb::FILE_DESCRIPTOR_SET];
    if let Some(door) = door(gate) {
        let limits = &gate.limits;
        let bytes_max = limits.body_bytes_max.saturating_add(limits.excess_bytes_max);
        let ingress = IngressServer::new(Ingress::new(Arc::clone(gate), Arc::clone(door)))
            .max_decoding_message_size(bytes_max.saturating_add(MESSAGE_FRAME_BYTES));
        routes = routes.add_service(ingress);
        described.push(admit_proto::FILE_DESCRIPTOR_SET);
    }
    let builder = || {
        let sets = described.iter().copied();
        sets.fold(Builder::configure(), Builder::register_encoded_file_descriptor_set)
    };
    // Both are in use: most tools still try the older version first.
    match (builder().build_v1(), builder().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes = routes.add_service(v1).add_service(v1alpha),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "cannot build the gRPC reflection service");
        }
    }
    routes.into_axum_router()
}

/// Status of a rejected call.
pub(crate) fn status(code: Code, message: &str) -> Status {
    let code = match code {
        Code::Unauthorized => tonic::Code::Unauthenticated,
        Code::Forbidden => tonic::Code::PermissionDenied,
        Code::RateLimited => tonic::Code::ResourceExhausted,
        Code::Overloaded
        | Code::Draining
        | Code::LedgerUnavailable
        | Code::OutcomeUnknown
        | Code::IdempotencyKeyInUse
        | Code::InWork
        | Code::Unhealthy
        | Code::RunClosing
        | Code::RequestTimeout => tonic::Code::Unavailable,
        Code::InternalError => tonic::Code::Internal,
        Code::NotFound | Code::MethodNotAllowed => tonic::Code::Unimplemented,
        Code::InvalidJson
        | Code::InvalidEnvelope
        | Code::SchemaVersionUnsupported
        | Code::OutsideHorizon
        | Code::IdempotencyKeyMissing
        | Code::IdempotencyKeyReused
        | Code::EventIdTaken
        | Code::UnsupportedMediaType
        | Code::BodyTooLarge
        | Code::InvalidRequest => tonic::Code::InvalidArgument,
        Code::LeaseLost
        | Code::NotReplayable
        | Code::NotReconcilable
        | Code::ClosureRefused
        | Code::RunClosed => tonic::Code::FailedPrecondition,
    };
    Status::new(code, message)
}
