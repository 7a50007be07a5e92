//! Rows over a gRPC stream: one envelope per message, answers in any order.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use ::http::Uri;
use admit_proto::v1::answer::Answer as Told;
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
use super::{BoxFuture, Ends, Heard, Identity, Link, Said, Wire, answer};
use crate::store::Row;

/// How long the head of an answer is waited for before the first row is sent.
const OPENING_MAX: Duration = Duration::from_secs(1);

/// The skyra door over gRPC.
#[derive(Debug)]
pub struct GrpcWire {
    gate: Endpoint,
    identity: Identity,
}

impl GrpcWire {
    /// The door of `gate`.
    pub fn new(gate: Endpoint, identity: Identity) -> Self {
        Self { gate, identity }
    }

    fn metadata(&self) -> Result<MetadataMap, String> {
        let mut metadata = MetadataMap::new();
        let not_text = |_| "the key or the name cannot be sent".to_owned();
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

/// Runs the HTTP library's tasks in the sender's own set.
#[derive(Clone)]
struct Tasks(TaskTracker);

impl<F: Future + Send + 'static> Executor<F> for Tasks
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
    ) -> BoxFuture<'a, Result<Link, String>> {
        Box::pin(async move {
            let stream = self.gate.connect(Protocol::Http2).await;
            let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
            let (sender, connection) = http2::handshake(Tasks(tasks.clone()), TokioIo::new(stream))
                .await
                .map_err(|error| format!("cannot connect: {error}"))?;
            tasks.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the gate ended");
                }
            });
            let origin = format!("{}://{}", self.gate.scheme(), self.gate.authority);
            let origin: Uri = origin.parse().map_err(|_| "the gate has no address".to_owned())?;
            let service = service_fn(move |request| {
                let mut sender = sender.clone();
                async move { sender.send_request(request).await }
            });
            let mut client = IngressClient::with_origin(service, origin);
            let (link, ends) = Link::with_room(in_flight_max);
            let Ends { mut outgoing, incoming, cut } = ends;
            let envelopes = poll_fn(move |context| {
                outgoing.poll_recv(context).map(|row| {
                    row.map(|row| Envelope { json: row.payload_json.into_bytes().into() })
                })
            });
            let mut request = Request::new(envelopes);
            *request.metadata_mut() = self.metadata()?;
            let mut opening = Box::pin(async move { client.stream(request).await });
            // Whoever takes connections and has no gate behind it is found out before a row is
            // sent. A gate that says nothing before it has a first row gets one all the same.
            let opened = match timeout(OPENING_MAX, &mut opening).await {
                Ok(Err(status)) => return Err(said(&status)),
                Ok(Ok(answers)) => Some(answers),
                Err(_) => None,
            };
            tasks.spawn(async move {
                let talk = async {
                    let answers = match opened {
                        Some(answers) => Ok(answers),
                        None => opening.await,
                    };
                    match answers {
                        Ok(answers) => listen(answers.into_inner(), &incoming).await,
                        Err(status) => said(&status),
                    }
                };
                let reason = tokio::select! {
                    reason = talk => reason,
                    () = cut.cancelled() => return,
                };
                incoming.send(Err(reason)).await.unwrap_or_default();
            });
            Ok(link)
        })
    }

    fn name_of(&self, row: &Row) -> String {
        answer::skyra_name(&row.payload_json).unwrap_or_else(|| row.event_id.clone())
    }
}

/// Hands answers on until there are no more; returns why.
async fn listen(
    mut answers: Streaming<Answer>,
    incoming: &tokio::sync::mpsc::Sender<Result<Heard, String>>,
) -> String {
    loop {
        match answers.message().await {
            Ok(Some(Answer { answer: Some(told) })) => {
                if incoming.send(Ok(heard(told))).await.is_err() {
                    return "closed".to_owned();
                }
            }
            Ok(Some(Answer { answer: None })) => {}
            Ok(None) => return "the gate closed the stream".to_owned(),
            Err(status) => return said(&status),
        }
    }
}

fn said(status: &Status) -> String {
    format!("the gate ended the stream: {:?}: {}", status.code(), status.message())
}

fn heard(told: Told) -> Heard {
    match told {
        Told::Ack(ack) if ack.status == "stored" => {
            Heard { name: Some(ack.event_id), said: Said::Ack }
        }
        Told::Ack(ack) => {
            let error = format!("an ack that does not say stored but {:?}", ack.status);
            let said = Said::Nack { error, retryable: true, retry_after: Duration::ZERO };
            Heard { name: Some(ack.event_id), said }
        }
        Told::Nack(nack) => {
            let why = nack.error.unwrap_or_default();
            let error = format!("{}: {}", why.code, why.message);
            let retryable = why.retryable;
            Heard {
                name: nack.event_id,
                said: Said::Nack { error, retryable, retry_after: Duration::ZERO },
            }
        }
    }
}
