//! `grpc.health.v1.Health`: the readiness of `/readyz`, for load balancers that support only gRPC.
//!
//! Like `/readyz`, it needs no key and exposes nothing but the readiness.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::gate::Gate;
use crate::http::is_ready;

/// Poll interval of a watched status.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Name of the ingress service.
const INGRESS: &str = "admit.v1.Ingress";

/// Health service for [`super::router`].
pub(super) fn server(gate: &Arc<Gate>) -> HealthServer<Readiness> {
    HealthServer::new(Readiness { gate: Arc::clone(gate) })
}

/// Reads the readiness of the gate for each call.
pub(super) struct Readiness {
    gate: Arc<Gate>,
}

fn status(gate: &Gate, service: &str) -> ServingStatus {
    let is_known = service.is_empty() || (service == INGRESS && super::door(gate).is_some());
    match (is_known, is_ready(gate)) {
        (false, _) => ServingStatus::ServiceUnknown,
        (true, true) => ServingStatus::Serving,
        (true, false) => ServingStatus::NotServing,
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Readiness {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = status(&self.gate, &request.get_ref().service);
        if status == ServingStatus::ServiceUnknown {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(response(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let health_watch = HealthWatch {
            gate: Arc::clone(&self.gate),
            service: request.into_inner().service,
            until: Instant::now() + self.gate.limits.watch_max(),
            sent: None,
        };
        let statuses = stream::unfold(health_watch, |mut health_watch| async move {
            let status = health_watch.next().await?;
            Some((Ok(response(status)), health_watch))
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}

/// One call of `Watch`. It ends after `watch_max` or when the gate drains; a client calls again.
struct HealthWatch {
    gate: Arc<Gate>,
    service: String,
    until: Instant,
    sent: Option<ServingStatus>,
}

impl HealthWatch {
    /// Waits for a status that differs from the one last sent.
    async fn next(&mut self) -> Option<ServingStatus> {
        loop {
            let status = status(&self.gate, &self.service);
            if self.sent != Some(status) {
                self.sent = Some(status);
                return Some(status);
            }
            if self.gate.is_draining() {
                return None;
            }
            tokio::select! {
                () = self.gate.drain.cancelled() => {}
                () = sleep_until(self.until) => return None,
                () = sleep(POLL_INTERVAL) => {}
            }
        }
    }
}
