//! `grpc.health.v1.Health`: what `/readyz` answers, for load balancers that speak gRPC only.
//!
//! Like `/readyz` it needs no key and tells nothing but whether events can be sent.

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

/// How often a watched status is looked up.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The service that events are sent to.
const INGRESS: &str = "admit.v1.Ingress";

/// The service, for [`super::router`].
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
            return Err(Status::not_found("there is no such service"));
        }
        Ok(Response::new(response(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let watching = Watching {
            gate: Arc::clone(&self.gate),
            service: request.into_inner().service,
            until: Instant::now() + self.gate.limits.watch_max(),
            sent: None,
        };
        let statuses = stream::unfold(watching, |mut watching| async move {
            let status = watching.next().await?;
            Some((Ok(response(status)), watching))
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}

/// One call of `Watch`. It ends when its time is up and when the gate drains; a client calls again.
struct Watching {
    gate: Arc<Gate>,
    service: String,
    until: Instant,
    sent: Option<ServingStatus>,
}

impl Watching {
    /// The next status that differs from the one sent before.
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
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }
}
