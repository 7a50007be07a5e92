//! gRPC transport: one envelope per message, replies in any order.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use ::http::Uri;
use admit_proto::v1::answer::Answer as ProtoAnswer;
use admit_proto::v1::ingress_client::IngressClient;
use admit_proto::v1::{Answer, Envelope};
use futures_util::stream::poll_fn;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Status, Streaming};
use tower::service_fn;

use super::connect::{Endpoint, Protocol};
use super::{
    AckResult, BoxFuture, GateLink, LinkEnds, SenderIdentity, Wire, WireReply, reply_parser,
};
use crate::store::OutboxRow;

/// How long to wait for the response headers before the first row is sent.
const OPENING_MAX: Duration = Duration::from_secs(1);

/// The skyra door over gRPC.
#[derive(Debug)]
pub struct GrpcWire {
    gate: Endpoint,
    identity: SenderIdentity,
}

impl GrpcWire {
    /// The door of `gate`.
    pub fn new(gate: Endpoint, identity: SenderIdentity) -> Self {
        Self { gate, identity }
    }

    fn metadata(&self) -> Result<MetadataMap, String> {
        let mut metadata = MetadataMap::new();
        let not_text = |_| "the key or principal is not valid in a header".to_owned();
        if let Some(key) = &self.identity.key {
            let mut value = MetadataValue::try_from(format!("Bearer {key}")).map_err(not_text)?;
            value.set_sensitive(true);
            metadata.insert("authorization", value);
        }
        if let Some(name) = &self.identity.speaks_for {
            metadata.insert("admit-principal", MetadataValue::try_from(name).map_err(not_text)?);
        }
        Ok(metadata)
    }
}

impl fmt::Display for GrpcWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by grpc", self.gate)
    }
}

/// Runs the HTTP library's tasks in the sender's task set.
#[derive(Clone)]
struct TaskExecutor(TaskTracker);

impl<F: Future + Send + 'static> Executor<F> for TaskExecutor
where
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

impl Wire for GrpcWire {
    fn connect<'a>(
        &'a self,
        tasks: &'a TaskTracker,
        in_flight_max: usize,
    ) -> BoxFuture<'a, Result<GateLink, String>> {
        Box::pin(async move {
            let stream = self.gate.connect(Protocol::Http2).await;
            let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
            let (sender, connection) =
                http2::handshake(TaskExecutor(tasks.clone()), TokioIo::new(stream))
                    .await
                    .map_err(|error| format!("cannot connect: {error}"))?;
            tasks.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the gate ended");
                }
            });
            let origin = format!("{}://{}", self.gate.scheme(), self.gate.authority);
            let origin: Uri =
                origin.parse().map_err(|_| "invalid address of the gate".to_owned())?;
            let service = service_fn(move |request| {
                let mut sender = sender.clone();
                async move { sender.send_request(request).await }
            });
            let mut client = IngressClient::with_origin(service, origin);
            let (link, link_ends) = GateLink::with_capacity(in_flight_max);
            let LinkEnds { mut outgoing, incoming, cancel } = link_ends;
            let envelopes = poll_fn(move |context| {
                outgoing.poll_recv(context).map(|row| {
                    row.map(|row| Envelope { json: row.payload_json.into_bytes().into() })
                })
            });
            let mut request = Request::new(envelopes);
            *request.metadata_mut() = self.metadata()?;
            let mut opening = Box::pin(async move { client.stream(request).await });
            // A proxy without a gate behind it is detected before a row is sent. Some gates send no
            // headers before the first message; after the timeout rows are sent anyway.
            let opened_stream = match timeout(OPENING_MAX, &mut opening).await {
                Ok(Err(status)) => return Err(status_text(&status)),
                Ok(Ok(replies)) => Some(replies),
                Err(_) => None,
            };
            tasks.spawn(async move {
                let exchange = async {
                    let replies = match opened_stream {
                        Some(replies) => Ok(replies),
                        None => opening.await,
                    };
                    match replies {
                        Ok(replies) => forward_replies(replies.into_inner(), &incoming).await,
                        Err(status) => status_text(&status),
                    }
                };
                let reason = tokio::select! {
                    reason = exchange => reason,
                    () = cancel.cancelled() => return,
                };
                incoming.send(Err(reason)).await.unwrap_or_default();
            });
            Ok(link)
        })
    }

    fn reply_name(&self, row: &OutboxRow) -> String {
        reply_parser::skyra_event_id(&row.payload_json).unwrap_or_else(|| row.event_id.clone())
    }
}

/// Forwards replies until the stream ends. Returns the reason.
async fn forward_replies(
    mut replies: Streaming<Answer>,
    incoming: &tokio::sync::mpsc::Sender<Result<WireReply, String>>,
) -> String {
    loop {
        match replies.message().await {
            Ok(Some(Answer { answer: Some(reply) })) => {
                if incoming.send(Ok(wire_reply(reply))).await.is_err() {
                    return "closed".to_owned();
                }
            }
            Ok(Some(Answer { answer: None })) => {}
            Ok(None) => return "the gate closed the stream".to_owned(),
            Err(status) => return status_text(&status),
        }
    }
}

fn status_text(status: &Status) -> String {
    format!("the gate ended the stream: {:?}: {}", status.code(), status.message())
}

fn wire_reply(reply: ProtoAnswer) -> WireReply {
    match reply {
        ProtoAnswer::Ack(ack) if ack.status == "stored" => {
            WireReply { name: Some(ack.event_id), result: AckResult::Ack }
        }
        ProtoAnswer::Ack(ack) => {
            let error = format!("an ack with status {:?} instead of stored", ack.status);
            let result = AckResult::Nack { error, retryable: true, retry_after: Duration::ZERO };
            WireReply { name: Some(ack.event_id), result }
        }
        ProtoAnswer::Nack(nack) => {
            let cause = nack.error.unwrap_or_default();
            let error = format!("{}: {}", cause.code, cause.message);
            let retryable = cause.retryable;
            WireReply {
                name: nack.event_id,
                result: AckResult::Nack { error, retryable, retry_after: Duration::ZERO },
            }
        }
    }
}
