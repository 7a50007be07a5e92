//! A gRPC client made of the generated code and a plain HTTP/2 connection, behind blocking calls.

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

const PATIENCE: Duration = Duration::from_secs(15);

/// Envelopes that wait to be sent.
const AHEAD_MAX: usize = 8_192;

type Channel =
    BoxCloneService<http::Request<Body>, http::Response<hyper::body::Incoming>, hyper::Error>;

/// A connection to the gate.
pub(crate) struct Caller {
    runtime: Runtime,
    client: IngressClient<Channel>,
    health: HealthClient<Channel>,
    key: Option<String>,
}

/// A stream of envelopes and their answers.
pub(crate) struct Call {
    envelopes: Option<mpsc::Sender<Envelope>>,
    answers: Streaming<Answer>,
}

impl Caller {
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

    /// What `grpc.health.v1.Health/Check` answers for a service.
    pub(crate) fn health(&mut self, service: &str) -> Result<ServingStatus, Status> {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answered = self.health.check(request);
        Ok(self.runtime.block_on(soon(answered))?.into_inner().status())
    }

    /// Hands on what `grpc.health.v1.Health/Watch` sends, so many statuses.
    pub(crate) fn watch_health(&mut self, count: usize, mut seen: impl FnMut(ServingStatus)) {
        let request = HealthCheckRequest::default();
        let watching = self.health.watch(request);
        let mut statuses = self.runtime.block_on(soon(watching)).unwrap().into_inner();
        for _ in 0..count {
            let next = self.runtime.block_on(soon(statuses.message()));
            seen(next.unwrap().unwrap().status());
        }
    }

    /// Opens so many `Health/Watch` at once; how many were refused, and how the last of the others
    /// ended.
    pub(crate) fn watch_health_to_the_end(&mut self, count: usize) -> (usize, Result<(), Status>) {
        let (mut streams, mut refused) = (Vec::new(), 0);
        for _ in 0..count {
            let watching = self.health.watch(HealthCheckRequest::default());
            match self.runtime.block_on(soon(watching)) {
                Ok(stream) => streams.push(stream.into_inner()),
                Err(_) => refused += 1,
            }
        }
        let mut last = streams.pop().expect("one is served");
        let ended = loop {
            match self.runtime.block_on(soon(last.message())) {
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

    /// One envelope, one answer.
    pub(crate) fn submit(&mut self, body: &[u8]) -> Result<Value, Status> {
        let request = self.request(Envelope { json: body.to_vec().into() });
        let answered = self.client.submit(request);
        let answer = self.runtime.block_on(soon(answered))?;
        Ok(told(answer.into_inner()))
    }

    /// Opens a stream.
    pub(crate) fn call(&mut self) -> Result<Call, Status> {
        let (envelopes, mut receiver) = mpsc::channel(AHEAD_MAX);
        let request = self.request(stream::poll_fn(move |cx| receiver.poll_recv(cx)));
        let answers = self.runtime.block_on(soon(self.client.stream(request)))?;
        Ok(Call { envelopes: Some(envelopes), answers: answers.into_inner() })
    }

    /// The next answer of a stream; `None` is its end.
    pub(crate) fn answer(&self, call: &mut Call) -> Result<Option<Value>, Status> {
        let answer = self.runtime.block_on(soon(call.answers.message()))?;
        Ok(answer.map(told))
    }

    /// Sends one body on a stream and reads its answer.
    pub(crate) fn say(&self, call: &mut Call, body: &[u8]) -> Value {
        call.send(body);
        self.answer(call).expect("the stream goes on").expect("the gate answers")
    }
}

impl Call {
    pub(crate) fn send(&self, body: &[u8]) {
        let envelopes = self.envelopes.as_ref().expect("the stream is open");
        let envelope = Envelope { json: body.to_vec().into() };
        envelopes.blocking_send(envelope).expect("the stream is read");
    }

    /// Nothing more is sent.
    pub(crate) fn end(&mut self) {
        self.envelopes = None;
    }
}

/// What comes of a call that must come to something.
async fn soon<T>(call: impl Future<Output = T>) -> T {
    timeout(PATIENCE, call).await.expect("the gate answers")
}

/// An answer in the words of the other transports.
fn told(answer: Answer) -> Value {
    match answer.answer.expect("an answer says something") {
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
