//! The gate over HTTP: a scripted peer, and the law of retries against it.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_runs::streamer::gate::{Gate as _, PushResult, push};
use admit_runs::streamer::http::{HttpGate, HttpGateConfig};
use admit_runs::streamer::{Reason, Retry};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// What the peer does with one request.
#[derive(Clone, Debug)]
enum Act {
    /// A status, further header lines, and a body.
    Answer(u16, &'static str, &'static str),
    /// Half an answer, then the end of the connection.
    Break,
    /// Nothing, for ever.
    Silence,
}

const ADMIT: Act = Act::Answer(200, "", "{\"decision\":\"ADMIT\",\"receipt\":{}}");

#[derive(Default)]
struct Heard {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

struct Peer {
    url: String,
    heard: Arc<Heard>,
    _task: AbortOnDropHandle<()>,
}

impl Peer {
    async fn new(script: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Heard::default());
        let script: Vec<Act> = script.into_iter().collect();
        let script = Arc::new(Mutex::new(script.into_iter()));
        let tasks = TaskTracker::new();
        let told = Arc::clone(&heard);
        let serve = async move {
            let connections = TaskTracker::new();
            while let Ok((stream, _)) = listener.accept().await {
                told.connections.fetch_add(1, SeqCst);
                let (told, script) = (Arc::clone(&told), Arc::clone(&script));
                connections.spawn(serve(stream, told, script));
            }
        };
        let task = AbortOnDropHandle::new(tasks.spawn(serve));
        Self { url, heard, _task: task }
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
        self.heard.requests.lock().unwrap().len()
    }
}

async fn serve(
    mut stream: TcpStream,
    heard: Arc<Heard>,
    script: Arc<Mutex<std::vec::IntoIter<Act>>>,
) {
    let mut read = Vec::new();
    loop {
        let Some(request) = request(&mut stream, &mut read).await else { return };
        heard.requests.lock().unwrap().push(request);
        let act = script.lock().unwrap().next().unwrap_or(ADMIT);
        match act {
            Act::Answer(status, headers, body) => {
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\n\r\n{body}"
                );
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            Act::Break => {
                let half = b"HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\n{";
                stream.write_all(half).await.unwrap_or_default();
                return;
            }
            Act::Silence => std::future::pending().await,
        }
    }
}

/// The next request with its body; `None` at the end.
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

fn quick(max_attempts: u32) -> Retry {
    let base_delay = Duration::from_millis(1);
    Retry { max_attempts, base_delay, max_delay: base_delay, ..Retry::default() }
}

async fn pushed(
    peer: &Peer,
    attempts: u32,
) -> Result<ReceiptDecision, admit_runs::streamer::Failure> {
    let body = Bytes::from_static(b"{}");
    push(&peer.gate(), &quick(attempts), &|| 0.0, &body, &|| ()).await
}

#[tokio::test]
async fn what_may_pass_is_sent_again_until_the_gate_decides() {
    let busy = |status| Act::Answer(status, "", "busy");
    let script = [busy(500), busy(408), busy(429), busy(503), Act::Break, ADMIT];
    let peer = Peer::new(script).await;
    assert_eq!(pushed(&peer, 6).await.unwrap(), ReceiptDecision::Admit);
    assert_eq!(peer.requests(), 6);
}

#[tokio::test]
async fn a_refusal_ends_it_at_once() {
    for status in [400, 401, 403, 404, 409, 413, 422] {
        let peer = Peer::new([Act::Answer(status, "", "{\"error\":\"X\"}")]).await;
        let failure = pushed(&peer, 5).await.unwrap_err();
        assert_eq!(failure.reason, Reason::IgPushRejected, "{status}");
        assert!(failure.detail.contains(&status.to_string()), "{failure}");
        assert_eq!(peer.requests(), 1, "{status}");
    }
}

#[tokio::test]
async fn attempts_are_counted_and_then_spent() {
    let peer = Peer::new(vec![Act::Answer(503, "", "down"); 20]).await;
    let failure = pushed(&peer, 3).await.unwrap_err();
    assert_eq!(failure.reason, Reason::IgPushRetryExhausted);
    assert!(failure.detail.contains("3 attempts") && failure.detail.contains("503"), "{failure}");
    assert_eq!(peer.requests(), 3);
    assert_eq!(pushed(&peer, 0).await.unwrap_err().reason, Reason::IgPushRetryExhausted);
    assert_eq!(peer.requests(), 4, "one attempt is always made");
}

#[tokio::test]
async fn silence_is_a_timeout_and_counts_as_an_attempt() {
    let peer = Peer::new([Act::Silence, ADMIT]).await;
    assert_eq!(pushed(&peer, 2).await.unwrap(), ReceiptDecision::Admit);
    let peer = Peer::new([Act::Silence]).await;
    let failure = pushed(&peer, 1).await.unwrap_err();
    assert!(failure.detail.contains("no answer within 300 ms"), "{failure}");
}

#[tokio::test]
async fn a_gate_that_is_not_there_is_said_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut peer = Peer::new([]).await;
    peer.url = url;
    let failure = pushed(&peer, 2).await.unwrap_err();
    assert_eq!(failure.reason, Reason::IgPushRetryExhausted);
    assert!(failure.detail.contains("cannot connect to 127.0.0.1"), "{failure}");
    assert!(peer.gate().alive().await.unwrap_err().contains("cannot connect"));
}

#[tokio::test]
async fn the_gate_is_told_who_we_are_and_heard_when_it_asks_for_patience() {
    let peer = Peer::new([Act::Answer(503, "Retry-After: 7\r\n", "{}")]).await;
    let answer = peer.gate().push(Bytes::from_static(b"{\"a\":1}")).await;
    let PushResult::Retry { hint, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(hint, Some(Duration::from_secs(7)));
    let requests = peer.heard.requests.lock().unwrap();
    let said = requests[0].to_lowercase();
    assert!(said.starts_with("post /v1/ingest/push http/1.1"), "{said}");
    assert!(said.contains("x-ig-api-key: a-key-of-sixteen"), "{said}");
    assert!(said.contains("content-type: application/json"), "{said}");
    assert!(said.ends_with("{\"a\":1}"), "{said}");
}

#[tokio::test]
async fn connections_are_kept_and_replaced_when_they_are_gone() {
    let peer = Peer::new(vec![ADMIT; 5]).await;
    let gate = peer.gate();
    for _ in 0..5 {
        assert_eq!(
            gate.push(Bytes::from_static(b"{}")).await,
            PushResult::Decided(ReceiptDecision::Admit)
        );
    }
    assert_eq!(peer.heard.connections.load(SeqCst), 1, "one connection for all");
}

#[tokio::test]
async fn a_gate_that_is_unwell_is_not_alive() {
    let red = Act::Answer(200, "", "{\"state\":\"RED\",\"reasons\":[\"BUS_UNHEALTHY\"]}");
    let amber = Act::Answer(200, "", "{\"state\":\"AMBER\",\"reasons\":[]}");
    for (act, is_alive) in [
        (red, false),
        (amber, true),
        (Act::Answer(503, "", "{}"), false),
        (Act::Answer(404, "", "not mine"), true),
        (Act::Silence, false),
    ] {
        let peer = Peer::new([act.clone()]).await;
        assert_eq!(peer.gate().alive().await.is_ok(), is_alive, "{act:?}");
    }
}
