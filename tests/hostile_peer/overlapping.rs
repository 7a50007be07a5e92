//! Concurrent requests without a key on one HTTP/2 connection: they are limited, and do not block
//! requests with a key or probes.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor as _;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::bodies::gate;
use crate::support::TIMEOUT;
use crate::support::gate::Gate;
use crate::support::grpc::GrpcClient;

const LIMITS: &str = "body_read_ms_max = 15000\nanswer_ms_max = 16000\n";

/// A short request body that may never end.
struct TestBody {
    bytes: Option<Bytes>,
    is_endless: bool,
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match (self.bytes.take(), self.is_endless) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, true) => Poll::Pending,
            (None, false) => Poll::Ready(None),
        }
    }
}

async fn connect(gate: &Gate) -> SendRequest<TestBody> {
    let io = TokioIo::new(TcpStream::connect(gate.address()).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    TokioExecutor::new().execute(async move { connection.await.unwrap_or_default() });
    sender
}

fn request(method: &str, path: &str, key: Option<&str>, is_endless: bool) -> Request<TestBody> {
    let bytes = (method == "POST").then(|| Bytes::from_static(b"{}"));
    let request = Request::builder()
        .method(method)
        .uri(format!("http://localhost{path}"))
        .header("content-type", "application/json")
        .header("idempotency-key", "overlapping");
    let request = match key {
        Some(key) => request.header("authorization", key),
        None => request,
    };
    request.body(TestBody { bytes, is_endless }).unwrap()
}

async fn send(
    sender: &mut SendRequest<TestBody>,
    request: Request<TestBody>,
) -> Response<Incoming> {
    timeout(TIMEOUT, sender.send_request(request)).await.expect("timeout").expect("a response")
}

#[test]
fn unfinished_requests_without_a_key_do_not_block_keys_and_probes_on_their_connection() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), LIMITS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut sender = connect(&gate).await;
        for _ in 0..40 {
            // Run in the background; the response is not read.
            let sent = sender.send_request(request("POST", "/v1/events/hooks", None, true));
            TokioExecutor::new().execute(sent);
        }
        let refused = loop {
            let unsigned = request("POST", "/v1/events/hooks", None, false);
            let response = send(&mut sender, unsigned).await;
            if response.status() != 401 {
                break response;
            }
        };
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
        let mut body = refused.into_body();
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let text = frame.expect("a body").expect("a complete frame").into_data().expect("data");
        assert!(String::from_utf8_lossy(&text).contains("overloaded"), "{text:?}");
        for probe in ["/livez", "/readyz", "/healthz"] {
            let response = send(&mut sender, request("GET", probe, None, false)).await;
            assert_eq!(response.status(), 200, "{probe}");
        }
        let key = Some("Bearer shop-key-long-enough");
        let response = send(&mut sender, request("POST", "/v1/events/orders", key, false)).await;
        assert_eq!(response.status(), 201);
    });
}

#[test]
fn a_health_watch_without_a_key_counts_as_a_request_and_ends_with_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "watch_ms_max = 3000\nunauthenticated_idle_ms_max = 300\n");
    let (refused, ended) = GrpcClient::to(gate.address()).watch_health_to_the_end(1);
    assert_eq!(refused, 0);
    ended.expect("the watch is not cut while it is served");
    let gate = {
        drop(gate);
        super::bodies::gate(folder.path(), "watch_ms_max = 3000\n")
    };
    let (refused, _) = GrpcClient::to(gate.address()).watch_health_to_the_end(40);
    assert_eq!(refused, 8, "the limit for requests without a key");
}
