//! A gate in a few lines: it takes envelopes over a WebSocket and answers as a script says.

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

/// What the peer does with a frame.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Say(String),
    Silence,
    Hang,
}

pub(crate) fn ack(id: &str) -> Act {
    let ack = json!({ "event_id": id, "ack_ts": "2026-02-16T23:10:22Z", "status": "stored" });
    Act::Say(ack.to_string())
}

pub(crate) fn nack(id: Option<&str>, code: &str, retryable: bool) -> Act {
    let error = json!({ "code": code, "message": "as the script says", "retryable": retryable });
    let nack = json!({ "event_id": id, "nack_ts": "2026-02-16T23:10:22Z", "status": "rejected",
        "error": error });
    Act::Say(nack.to_string())
}

type Script = dyn Fn(&str, usize) -> Act + Send + Sync;

/// A frame that came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) id: String,
    pub(crate) envelope: Value,
    pub(crate) at: Instant,
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
    runtime: Option<Runtime>,
}

impl Peer {
    /// A peer that asks `script` what to do with each frame, by its id and how often that came.
    pub(crate) fn with(script: impl Fn(&str, usize) -> Act + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let came = Arc::<Mutex<Vec<Came>>>::default();
        let script: Arc<Script> = Arc::new(script);
        let told = Arc::clone(&came);
        runtime.spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tasks.spawn(talk(stream, Arc::clone(&told), Arc::clone(&script)));
            }
        });
        Self { address, came, runtime: Some(runtime) }
    }

    pub(crate) fn came(&self) -> Vec<Came> {
        self.came.lock().expect("no panic").clone()
    }

    /// How often the event `id` came.
    pub(crate) fn count(&self, id: &str) -> usize {
        self.came().iter().filter(|came| came.id == id).count()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn talk(stream: TcpStream, came: Arc<Mutex<Vec<Came>>>, script: Arc<Script>) {
    let Ok(mut socket) = accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let envelope: Value = serde_json::from_str(&text).unwrap_or_default();
        let id = envelope["event_id"].as_str().unwrap_or_default().to_owned();
        let often = {
            let mut came = came.lock().expect("no panic");
            came.push(Came { id: id.clone(), envelope, at: Instant::now() });
            came.iter().filter(|other| other.id == id).count()
        };
        match script(&id, often) {
            Act::Say(answer) => {
                if socket.send(Message::Text(answer.into())).await.is_err() {
                    return;
                }
            }
            Act::Silence => {}
            Act::Hang => return,
        }
    }
}

/// Looks again and again until there is something to see.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A gate over HTTP that acknowledges every envelope, and takes `time` for each.
pub(crate) fn one_by_one(time: Duration) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    // It ends with the test's process; nobody waits for it.
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || answer_each(stream, time));
        }
    });
    address
}

/// Answers requests until the peer has no more.
fn answer_each(stream: std::net::TcpStream, time: Duration) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while {
            line.clear();
            requests.read_line(&mut line).ok()? > 2
        } {
            if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = said.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body).ok()?;
        let envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
        thread::sleep(time);
        let Act::Say(said) = ack(envelope["event_id"].as_str().unwrap_or_default()) else {
            continue;
        };
        let length = said.len();
        // In one piece, or the system waits for the peer to take the first.
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{said}");
        answers.write_all(answer.as_bytes()).ok()?;
    }
}
