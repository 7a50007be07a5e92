//! Stub of the HTTP gateway with scripted behaviour: reply, refuse, hang, disconnect, reply late or twice.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::{TIMEOUT, wait_for};

/// Action of the stub on a call it has read.
#[derive(Clone, Debug)]
pub(crate) enum StubAction {
    /// Replies with this status and body.
    Reply(u16, &'static str),
    /// Replies, then closes without `Connection: close`.
    ReplyAndClose,
    /// Sends the reply twice.
    ReplyTwice,
    /// Closes without a reply.
    Close,
    /// Closes in the middle of a reply.
    CloseMidReply,
    /// Waits for another action, then performs that.
    Hold,
}

/// Successful reply.
pub(crate) const GOOD: StubAction =
    StubAction::Reply(200, r#"{"data":{"notion_page_id":"page-1"}}"#);

/// A received call.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCall {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl RecordedCall {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

struct State {
    action: StubAction,
    calls: Vec<RecordedCall>,
    connections: usize,
    is_stopped: bool,
}

struct StubState {
    state: Mutex<State>,
    changed: Condvar,
}

impl StubState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A running stub; stops when dropped.
pub(crate) struct GatewayStub {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<StubState>,
    accepting: Option<JoinHandle<()>>,
}

impl GatewayStub {
    pub(crate) fn start(action: StubAction) -> Self {
        Self::start_with(action, None)
    }

    /// Starts a stub with TLS for `127.0.0.1`; returns its certificate as PEM too.
    pub(crate) fn start_tls(action: StubAction) -> (Self, String) {
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
        (Self::start_with(action, Some(Arc::new(config))), pem)
    }

    fn start_with(action: StubAction, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { action, calls: Vec::new(), connections: 0, is_stopped: false };
        let shared = Arc::new(StubState { state: Mutex::new(state), changed: Condvar::new() });
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

    /// Sets the action; calls on hold continue with it.
    pub(crate) fn set_action(&self, action: StubAction) {
        self.shared.lock().action = action;
        self.shared.changed.notify_all();
    }

    pub(crate) fn calls(&self) -> Vec<RecordedCall> {
        self.shared.lock().calls.clone()
    }

    /// Number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Waits until `calls` calls have arrived.
    pub(crate) fn wait_for_calls(&self, calls: usize) {
        wait_for("calls at the gateway stub", TIMEOUT, || {
            (self.calls().len() >= calls).then_some(())
        });
    }
}

impl Drop for GatewayStub {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_all();
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap_or_default();
        }
    }
}

/// A URL at which no server listens.
pub(crate) fn unused_url() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{free}")
}

fn accept(listener: &TcpListener, shared: &Arc<StubState>, tls: Option<&Arc<ServerConfig>>) {
    for stream in listener.incoming() {
        if shared.lock().is_stopped {
            return;
        }
        let Ok(stream) = stream else { continue };
        shared.lock().connections += 1;
        // An idle thread must not outlive the test by much.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let shared = Arc::clone(shared);
        let tls = tls.map(|config| ServerConnection::new(Arc::clone(config)).unwrap());
        thread::spawn(move || match tls {
            None => serve(stream, &shared),
            Some(tls) => serve(StreamOwned::new(tls, stream), &shared),
        });
    }
}

fn serve(stream: impl Read + Write, shared: &StubState) {
    let mut stream = BufReader::new(stream);
    while let Some(call) = read_call(&mut stream) {
        shared.lock().calls.push(call);
        shared.changed.notify_all();
        if !perform_action(stream.get_mut(), shared) {
            return;
        }
    }
}

fn read_call(stream: &mut BufReader<impl Read>) -> Option<RecordedCall> {
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
    let mut call = RecordedCall { path, headers, body: Value::Null };
    let mut body = vec![0; call.header("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    call.body = serde_json::from_slice(&body).expect("the body of a call is JSON");
    Some(call)
}

/// Performs the current action; returns whether the connection stays open.
fn perform_action(stream: &mut impl Write, shared: &StubState) -> bool {
    let mut state = shared.lock();
    while matches!(state.action, StubAction::Hold) && !state.is_stopped {
        state = shared.changed.wait(state).unwrap();
    }
    let action = state.action.clone();
    drop(state);
    let whole = |status: u16, body: &str| {
        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let good = || whole(200, r#"{"data":{"notion_page_id":"page-1"}}"#);
    let (text, stays_open) = match action {
        StubAction::Reply(status, body) => (whole(status, body), true),
        StubAction::ReplyAndClose => (good(), false),
        StubAction::ReplyTwice => (good() + &good(), true),
        StubAction::Close | StubAction::Hold => (String::new(), false),
        StubAction::CloseMidReply => (good()[..60].to_owned(), false),
    };
    stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).is_ok() && stays_open
}
