//! A gateway that does as it is told: answers, refuses, hangs, cuts, answers late or twice.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::{SOON, until};

/// What it does with a call once it has read it.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Answers with this status and body.
    Answers(u16, &'static str),
    /// Answers, and closes without having said that it would.
    AnswersAndCloses,
    /// Answers twice.
    AnswersTwice,
    /// Closes without an answer.
    Cuts,
    /// Closes in the middle of an answer.
    CutsTheAnswer,
    /// Waits until it is told otherwise, then does what it is told then.
    Holds,
}

/// A good answer.
pub(crate) const GOOD: Does = Does::Answers(200, r#"{"data":{"notion_page_id":"page-1"}}"#);

/// A call as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

struct State {
    does: Does,
    calls: Vec<Seen>,
    connections: usize,
    is_over: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A running stub. Dropping it ends it.
pub(crate) struct GatewayStub {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl GatewayStub {
    pub(crate) fn start(does: Does) -> Self {
        Self::start_with(does, None)
    }

    /// One that speaks TLS for `127.0.0.1`, and the certificate to trust it by, as PEM.
    pub(crate) fn start_tls(does: Does) -> (Self, String) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let pem = made.cert.pem();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.unwrap())
            .unwrap();
        (Self::start_with(does, Some(Arc::new(config))), pem)
    }

    fn start_with(does: Does, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { does, calls: Vec::new(), connections: 0, is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = {
            let shared = Arc::clone(&shared);
            let tls = tls.clone();
            thread::spawn(move || accept(&listener, &shared, tls.as_ref()))
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        Self { address, scheme, shared, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// From now on it does this; whatever it holds goes on.
    pub(crate) fn now(&self, does: Does) {
        self.shared.lock().does = does;
        self.shared.changed.notify_all();
    }

    pub(crate) fn calls(&self) -> Vec<Seen> {
        self.shared.lock().calls.clone()
    }

    /// How many connections have been made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Waits until so many calls have come in.
    pub(crate) fn has(&self, calls: usize) {
        until("the gateway is called", SOON, || (self.calls().len() >= calls).then_some(()));
    }
}

impl Drop for GatewayStub {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap_or_default();
        }
    }
}

/// An address where nobody listens.
pub(crate) fn nobody() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{free}")
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, tls: Option<&Arc<ServerConfig>>) {
    for stream in listener.incoming() {
        if shared.lock().is_over {
            return;
        }
        let Ok(stream) = stream else { continue };
        shared.lock().connections += 1;
        // A thread without a call to serve must end with the test.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let shared = Arc::clone(shared);
        let tls = tls.map(|config| ServerConnection::new(Arc::clone(config)).unwrap());
        thread::spawn(move || match tls {
            None => serve(stream, &shared),
            Some(tls) => serve(StreamOwned::new(tls, stream), &shared),
        });
    }
}

fn serve(stream: impl Read + Write, shared: &Shared) {
    let mut stream = BufReader::new(stream);
    while let Some(seen) = read(&mut stream) {
        shared.lock().calls.push(seen);
        shared.changed.notify_all();
        if !answer(stream.get_mut(), shared) {
            return;
        }
    }
}

fn read(stream: &mut BufReader<impl Read>) -> Option<Seen> {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        Some(line.trim_end().to_owned())
    };
    let head = line()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut seen = Seen { path, headers, body: Value::Null };
    let mut body = vec![0; seen.header("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    seen.body = serde_json::from_slice(&body).expect("a call is JSON");
    Some(seen)
}

/// Does what it is told; whether the connection stays open.
fn answer(stream: &mut impl Write, shared: &Shared) -> bool {
    let mut state = shared.lock();
    while matches!(state.does, Does::Holds) && !state.is_over {
        state = shared.changed.wait(state).unwrap();
    }
    let does = state.does.clone();
    drop(state);
    let whole = |status: u16, body: &str| {
        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let good = || whole(200, r#"{"data":{"notion_page_id":"page-1"}}"#);
    let (text, stays) = match does {
        Does::Answers(status, body) => (whole(status, body), true),
        Does::AnswersAndCloses => (good(), false),
        Does::AnswersTwice => (good() + &good(), true),
        Does::Cuts | Does::Holds => (String::new(), false),
        Does::CutsTheAnswer => (good()[..60].to_owned(), false),
    };
    stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).is_ok() && stays
}
