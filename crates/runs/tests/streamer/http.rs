//! The gate client over HTTP, against a scripted server.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_runs::streamer::gate::{EnvelopeTarget as _, PushResult, push};
use admit_runs::streamer::http::{HttpGate, HttpGateConfig};
use admit_runs::streamer::{Reason, RetryPolicy};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// Scripted behaviour for one request.
#[derive(Clone, Debug)]
enum ServerAction {
    /// Reply with a status, further header lines, and a body.
    Reply(u16, &'static str, &'static str),
    /// Send half a reply and close the connection.
    Disconnect,
    /// Never reply.
    Hang,
}

const ADMIT: ServerAction = ServerAction::Reply(200, "", "{\"decision\":\"ADMIT\",\"receipt\":{}}");

#[derive(Default)]
struct RequestLog {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

struct ScriptedServer {
    url: String,
    log: Arc<RequestLog>,
    _task: AbortOnDropHandle<()>,
}

impl ScriptedServer {
    async fn new(script: impl IntoIterator<Item = ServerAction>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(RequestLog::default());
        let script: Vec<ServerAction> = script.into_iter().collect();
        let script = Arc::new(Mutex::new(script.into_iter()));
        let tasks = TaskTracker::new();
        let server_log = Arc::clone(&log);
        let serve = async move {
            let connections = TaskTracker::new();
            while let Ok((stream, _)) = listener.accept().await {
                server_log.connections.fetch_add(1, SeqCst);
                let (log, script) = (Arc::clone(&server_log), Arc::clone(&script));
                connections.spawn(serve(stream, log, script));
            }
        };
        let task = AbortOnDropHandle::new(tasks.spawn(serve));
        Self { url, log, _task: task }
    }

    fn gate(&self) -> HttpGate {
        HttpGate::new(&HttpGateConfig {
            url: self.url.clone(),
            key_header: "X-IG-Api-Key".to_owned(),
            key: Some("a-key-of-sixteen".to_owned()),
            push_max: Duration::from_millis(300),
            socket: None,
            require_alive: Vec::new(),
        })
        .unwrap()
    }

    fn requests(&self) -> usize {
        self.log.requests.lock().unwrap().len()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: Arc<RequestLog>,
    script: Arc<Mutex<std::vec::IntoIter<ServerAction>>>,
) {
    let mut read = Vec::new();
    loop {
        let Some(request) = request(&mut stream, &mut read).await else { return };
        log.requests.lock().unwrap().push(request);
        let action = script.lock().unwrap().next().unwrap_or(ADMIT);
        match action {
            ServerAction::Reply(status, headers, body) => {
                let length = body.len();
                let reply = format!(
                    "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\n\r\n{body}"
                );
                if stream.write_all(reply.as_bytes()).await.is_err() {
                    return;
                }
            }
            ServerAction::Disconnect => {
                let half = b"HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\n{";
                stream.write_all(half).await.unwrap_or_default();
                return;
            }
            ServerAction::Hang => std::future::pending().await,
        }
    }
}

/// Reads the next request with its body; `None` at the end of the connection.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(head) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |text| text.parse().unwrap());
            let end = head + 4 + length;
            if read.len() >= end {
                let whole = String::from_utf8_lossy(&read[..end]).into_owned();
                read.drain(..end);
                return Some(whole);
            }
        }
        if stream.read_buf(read).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn fast_retry(max_attempts: u32) -> RetryPolicy {
    let base_delay = Duration::from_millis(1);
    RetryPolicy { max_attempts, base_delay, max_delay: base_delay, ..RetryPolicy::default() }
}

async fn push_to(
    server: &ScriptedServer,
    attempts: u32,
) -> Result<ReceiptDecision, admit_runs::streamer::RunFailure> {
    let body = Bytes::from_static(b"{}");
    push(&server.gate(), &fast_retry(attempts), &|| 0.0, &body, &|| ()).await
}

#[tokio::test]
async fn temporary_errors_are_retried_until_the_gate_decides() {
    let busy = |status| ServerAction::Reply(status, "", "busy");
    let script = [busy(500), busy(408), busy(429), busy(503), ServerAction::Disconnect, ADMIT];
    let server = ScriptedServer::new(script).await;
    assert_eq!(push_to(&server, 6).await.unwrap(), ReceiptDecision::Admit);
    assert_eq!(server.requests(), 6);
}

#[tokio::test]
async fn a_refusal_is_not_retried() {
    for status in [400, 401, 403, 404, 409, 413, 422] {
        let server =
            ScriptedServer::new([ServerAction::Reply(status, "", "{\"error\":\"X\"}")]).await;
        let failure = push_to(&server, 5).await.unwrap_err();
        assert_eq!(failure.reason, Reason::IgPushRejected, "{status}");
        assert!(failure.detail.contains(&status.to_string()), "{failure}");
        assert_eq!(server.requests(), 1, "{status}");
    }
}

#[tokio::test]
async fn retries_end_after_the_maximum_attempts() {
    let server = ScriptedServer::new(vec![ServerAction::Reply(503, "", "down"); 20]).await;
    let failure = push_to(&server, 3).await.unwrap_err();
    assert_eq!(failure.reason, Reason::IgPushRetryExhausted);
    assert!(failure.detail.contains("3 attempts") && failure.detail.contains("503"), "{failure}");
    assert_eq!(server.requests(), 3);
    assert_eq!(push_to(&server, 0).await.unwrap_err().reason, Reason::IgPushRetryExhausted);
    assert_eq!(server.requests(), 4, "there is always one attempt");
}

#[tokio::test]
async fn a_timeout_counts_as_an_attempt() {
    let server = ScriptedServer::new([ServerAction::Hang, ADMIT]).await;
    assert_eq!(push_to(&server, 2).await.unwrap(), ReceiptDecision::Admit);
    let server = ScriptedServer::new([ServerAction::Hang]).await;
    let failure = push_to(&server, 1).await.unwrap_err();
    assert!(failure.detail.contains("no response within 300 ms"), "{failure}");
}

#[tokio::test]
async fn an_unreachable_gate_is_reported_with_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut server = ScriptedServer::new([]).await;
    server.url = url;
    let failure = push_to(&server, 2).await.unwrap_err();
    assert_eq!(failure.reason, Reason::IgPushRetryExhausted);
    assert!(failure.detail.contains("cannot connect to 127.0.0.1"), "{failure}");
    assert!(server.gate().alive().await.unwrap_err().contains("cannot connect"));
}

#[tokio::test]
async fn a_push_carries_the_api_key_and_respects_retry_after() {
    let server = ScriptedServer::new([ServerAction::Reply(503, "Retry-After: 7\r\n", "{}")]).await;
    let result = server.gate().push(Bytes::from_static(b"{\"a\":1}")).await;
    let PushResult::Retry { hint, .. } = result else { panic!("{result:?}") };
    assert_eq!(hint, Some(Duration::from_secs(7)));
    let requests = server.log.requests.lock().unwrap();
    let request = requests[0].to_lowercase();
    assert!(request.starts_with("post /v1/ingest/push http/1.1"), "{request}");
    assert!(request.contains("x-ig-api-key: a-key-of-sixteen"), "{request}");
    assert!(request.contains("content-type: application/json"), "{request}");
    assert!(request.ends_with("{\"a\":1}"), "{request}");
}

#[tokio::test]
async fn connections_are_reused() {
    let server = ScriptedServer::new(vec![ADMIT; 5]).await;
    let gate = server.gate();
    for _ in 0..5 {
        assert_eq!(
            gate.push(Bytes::from_static(b"{}")).await,
            PushResult::Decided(ReceiptDecision::Admit)
        );
    }
    assert_eq!(server.log.connections.load(SeqCst), 1, "one connection for all");
}

#[tokio::test]
async fn an_unhealthy_gate_is_not_alive() {
    let red = ServerAction::Reply(200, "", "{\"state\":\"RED\",\"reasons\":[\"BUS_UNHEALTHY\"]}");
    let amber = ServerAction::Reply(200, "", "{\"state\":\"AMBER\",\"reasons\":[]}");
    for (action, is_alive) in [
        (red, false),
        (amber, true),
        (ServerAction::Reply(503, "", "{}"), false),
        (ServerAction::Reply(404, "", "not mine"), true),
        (ServerAction::Hang, false),
    ] {
        let server = ScriptedServer::new([action.clone()]).await;
        assert_eq!(server.gate().alive().await.is_ok(), is_alive, "{action:?}");
    }
}
