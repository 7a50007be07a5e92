//! Minimal gate: accepts envelopes over a WebSocket and replies as scripted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

/// Action of the peer on a frame.
#[derive(Clone, Debug)]
pub(crate) enum PeerAction {
    Reply(String),
    Ignore,
    HangUp,
}

pub(crate) fn ack(id: &str) -> PeerAction {
    let ack = json!({ "event_id": id, "ack_ts": "2026-02-16T23:10:22Z", "status": "stored" });
    PeerAction::Reply(ack.to_string())
}

pub(crate) fn nack(id: Option<&str>, code: &str, retryable: bool) -> PeerAction {
    let error = json!({ "code": code, "message": "as scripted", "retryable": retryable });
    let nack = json!({ "event_id": id, "nack_ts": "2026-02-16T23:10:22Z", "status": "rejected",
        "error": error });
    PeerAction::Reply(nack.to_string())
}

type Script = dyn Fn(&str, usize) -> PeerAction + Send + Sync;

/// A received frame.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedFrame {
    pub(crate) id: String,
    pub(crate) envelope: Value,
    pub(crate) at: Instant,
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedFrame>>>,
    runtime: Option<Runtime>,
}

impl Peer {
    /// A peer that calls `script` for each frame, with its id and how often it was received.
    pub(crate) fn with(script: impl Fn(&str, usize) -> PeerAction + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let received = Arc::<Mutex<Vec<ReceivedFrame>>>::default();
        let script: Arc<Script> = Arc::new(script);
        let frames = Arc::clone(&received);
        runtime.spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tasks.spawn(serve_socket(stream, Arc::clone(&frames), Arc::clone(&script)));
            }
        });
        Self { address, received, runtime: Some(runtime) }
    }

    pub(crate) fn received(&self) -> Vec<ReceivedFrame> {
        self.received.lock().expect("no panic").clone()
    }

    /// How often the event `id` was received.
    pub(crate) fn count(&self, id: &str) -> usize {
        self.received().iter().filter(|received| received.id == id).count()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve_socket(
    stream: TcpStream,
    received: Arc<Mutex<Vec<ReceivedFrame>>>,
    script: Arc<Script>,
) {
    let Ok(mut socket) = accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let envelope: Value = serde_json::from_str(&text).unwrap_or_default();
        let id = envelope["event_id"].as_str().unwrap_or_default().to_owned();
        let times = {
            let mut received = received.lock().expect("no panic");
            received.push(ReceivedFrame { id: id.clone(), envelope, at: Instant::now() });
            received.iter().filter(|other| other.id == id).count()
        };
        match script(&id, times) {
            PeerAction::Reply(reply) => {
                if socket.send(Message::Text(reply.into())).await.is_err() {
                    return;
                }
            }
            PeerAction::Ignore => {}
            PeerAction::HangUp => return,
        }
    }
}

/// Polls until the closure returns a value.
pub(crate) fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// An HTTP gate that acknowledges every envelope after `time`.
pub(crate) fn serial_http_gate(time: Duration) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    // It ends with the test process and is never joined.
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || serve_http(stream, time));
        }
    });
    address
}

/// Serves requests until the client closes the connection.
fn serve_http(stream: std::net::TcpStream, time: Duration) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while {
            line.clear();
            reader.read_line(&mut line).ok()? > 2
        } {
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
        thread::sleep(time);
        let PeerAction::Reply(text) = ack(envelope["event_id"].as_str().unwrap_or_default()) else {
            continue;
        };
        let length = text.len();
        // Written at once; otherwise Nagle's algorithm delays the second part.
        let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}");
        writer.write_all(reply.as_bytes()).ok()?;
    }
}
