//! Blocking gRPC client: the generated code over a plain HTTP/2 connection.

use std::net::SocketAddr;
use std::time::Duration;

use admit_proto::v1::answer::Answer as Kind;
use admit_proto::v1::ingress_client::IngressClient;
use admit_proto::v1::{Answer, Envelope};
use futures_util::stream;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::util::{BoxCloneService, ServiceExt as _};

const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// Capacity of the send queue, in envelopes.
const SEND_QUEUE_MAX: usize = 8_192;

type Channel =
    BoxCloneService<http::Request<Body>, http::Response<hyper::body::Incoming>, hyper::Error>;

/// A gRPC connection to the gate.
pub(crate) struct GrpcClient {
    runtime: Runtime,
    client: IngressClient<Channel>,
    health: HealthClient<Channel>,
    key: Option<String>,
}

/// A bidirectional stream of envelopes and replies.
pub(crate) struct GrpcStream {
    envelopes: Option<mpsc::Sender<Envelope>>,
    replies: Streaming<Answer>,
}

impl GrpcClient {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, connection) = runtime.block_on(async {
            let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
            http2::Builder::new(TokioExecutor::new()).handshake::<_, Body>(io).await.unwrap()
        });
        runtime.spawn(async move { connection.await.unwrap_or_default() });
        let send = tower::service_fn(move |request: http::Request<Body>| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        });
        let origin: http::Uri = format!("http://{address}").parse().unwrap();
        let channel = send.boxed_clone();
        let client = IngressClient::with_origin(channel.clone(), origin.clone());
        let health = HealthClient::with_origin(channel, origin);
        Self { runtime, client, health, key: None }
    }

    /// Calls `grpc.health.v1.Health/Check` for a service.
    pub(crate) fn health(&mut self, service: &str) -> Result<ServingStatus, Status> {
        let request = HealthCheckRequest { service: service.to_owned() };
        let call = self.health.check(request);
        Ok(self.runtime.block_on(with_timeout(call))?.into_inner().status())
    }

    /// Calls `seen` with the first `count` statuses of `grpc.health.v1.Health/Watch`.
    pub(crate) fn watch_health(&mut self, count: usize, mut seen: impl FnMut(ServingStatus)) {
        let request = HealthCheckRequest::default();
        let watching = self.health.watch(request);
        let mut statuses = self.runtime.block_on(with_timeout(watching)).unwrap().into_inner();
        for _ in 0..count {
            let next = self.runtime.block_on(with_timeout(statuses.message()));
            seen(next.unwrap().unwrap().status());
        }
    }

    /// Opens `count` concurrent `Health/Watch` streams; returns how many were refused, and how the last
    /// accepted one ended.
    pub(crate) fn watch_health_to_the_end(&mut self, count: usize) -> (usize, Result<(), Status>) {
        let (mut streams, mut refused) = (Vec::new(), 0);
        for _ in 0..count {
            let watching = self.health.watch(HealthCheckRequest::default());
            match self.runtime.block_on(with_timeout(watching)) {
                Ok(stream) => streams.push(stream.into_inner()),
                Err(_) => refused += 1,
            }
        }
        let mut last = streams.pop().expect("one stream was accepted");
        let ended = loop {
            match self.runtime.block_on(with_timeout(last.message())) {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            }
        };
        (refused, ended)
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.key {
            let value = MetadataValue::try_from(format!("Bearer {key}")).unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    /// Submits one envelope with a unary call.
    pub(crate) fn submit(&mut self, body: &[u8]) -> Result<Value, Status> {
        let request = self.request(Envelope { json: body.to_vec().into() });
        let call = self.client.submit(request);
        let reply = self.runtime.block_on(with_timeout(call))?;
        Ok(to_json(reply.into_inner()))
    }

    /// Opens a stream.
    pub(crate) fn open_stream(&mut self) -> Result<GrpcStream, Status> {
        let (envelopes, mut receiver) = mpsc::channel(SEND_QUEUE_MAX);
        let request = self.request(stream::poll_fn(move |cx| receiver.poll_recv(cx)));
        let replies = self.runtime.block_on(with_timeout(self.client.stream(request)))?;
        Ok(GrpcStream { envelopes: Some(envelopes), replies: replies.into_inner() })
    }

    /// Reads the next reply of a stream; `None` at its end.
    pub(crate) fn next_reply(&self, stream: &mut GrpcStream) -> Result<Option<Value>, Status> {
        let reply = self.runtime.block_on(with_timeout(stream.replies.message()))?;
        Ok(reply.map(to_json))
    }

    /// Sends one envelope on a stream and reads its reply.
    pub(crate) fn submit_on(&self, stream: &mut GrpcStream, body: &[u8]) -> Value {
        stream.send(body);
        self.next_reply(stream).expect("the stream is open").expect("response from the gate")
    }
}

impl GrpcStream {
    pub(crate) fn send(&self, body: &[u8]) {
        let envelopes = self.envelopes.as_ref().expect("the stream is open");
        let envelope = Envelope { json: body.to_vec().into() };
        envelopes.blocking_send(envelope).expect("the stream is read");
    }

    /// Half-closes the stream: no more envelopes are sent.
    pub(crate) fn end(&mut self) {
        self.envelopes = None;
    }
}

/// Awaits a call; panics on a timeout.
async fn with_timeout<T>(call: impl Future<Output = T>) -> T {
    timeout(REPLY_TIMEOUT, call).await.expect("response from the gate")
}

/// Converts a reply to the JSON form of the other transports.
fn to_json(reply: Answer) -> Value {
    match reply.answer.expect("the reply has a kind") {
        Kind::Ack(ack) => {
            json!({ "event_id": ack.event_id, "ack_ts": ack.ack_ts, "status": ack.status })
        }
        Kind::Nack(nack) => {
            let error = nack.error.expect("a nack has an error");
            json!({
                "event_id": nack.event_id,
                "nack_ts": nack.nack_ts,
                "status": nack.status,
                "error": {
                    "code": error.code, "message": error.message, "retryable": error.retryable,
                },
            })
        }
    }
}
