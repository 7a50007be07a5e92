//! The load: keep-alive connections that each send one request after the other.
//!
//! Written against the socket, because a full HTTP client would take more of the two cores than the
//! gate it measures.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::CONNECTIONS;
use super::report::Figure;
use super::sample::{self, Samples};
use crate::output::Failure;

/// What to send, where to, from how many connections, for how long.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) path: &'static str,
    pub(super) connections: usize,
    pub(super) seconds: Duration,
    /// All connections together, per second; `None` is as fast as answers come back.
    pub(super) rate: Option<f64>,
    pub(super) samples: Samples,
    /// Events in a request, one on a line; a single one goes as plain JSON.
    pub(super) per_request: usize,
}

impl Load {
    /// One event a request over all connections, as fast as answers come back.
    pub(super) fn new(path: &'static str, seconds: Duration, samples: Samples) -> Self {
        Self { path, connections: CONNECTIONS, seconds, rate: None, samples, per_request: 1 }
    }
}

/// Runs the load from one thread and reports what was answered. Every answer must be 200.
pub(super) fn run(address: SocketAddr, load: &Load) -> Result<Figure, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::runtime)?;
    runtime.block_on(run_all(address, load)).map_err(Failure::runtime)
}

async fn run_all(address: SocketAddr, load: &Load) -> Result<Figure, String> {
    let path = load.path;
    let media = if load.per_request == 1 { "json" } else { "x-ndjson" };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/{media}\r\ncontent-length: "
    );
    let mut connections = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        connections.push(Connection::open(address, head.clone()).await?);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (index, connection) in connections.into_iter().enumerate() {
        let pace = load.rate.map(|rate| Pace::new(started, rate, load.connections, index));
        let (samples, until) = (load.samples.clone(), started + load.seconds);
        tasks.spawn(connection.knock(samples, load.per_request, until, pace));
    }
    let mut all = histogram();
    while let Some(done) = tasks.join_next().await {
        let latencies = done.map_err(|error| error.to_string())??;
        all.add(latencies).map_err(|error| error.to_string())?;
    }
    let events = all.len() * load.per_request as u64;
    Ok(Figure::stepped(events, started.elapsed(), all))
}

/// Microseconds up to a minute, three digits.
pub(super) fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits are allowed");
    histogram.auto(true);
    histogram
}

/// When a connection may send next, whatever the answers do.
struct Pace {
    next: Instant,
    every: Duration,
}

impl Pace {
    #[expect(clippy::cast_precision_loss, reason = "a few dozen connections")]
    fn new(started: Instant, rate: f64, connections: usize, index: usize) -> Self {
        let every = Duration::from_secs_f64(connections as f64 / rate.max(1.0));
        let offset = every.mul_f64(index as f64 / connections as f64);
        Self { next: started + offset, every }
    }

    /// Waits for the next turn and returns when it began. A turn that the answer before it has
    /// swallowed began when it was due, so that lateness counts as latency; a timer that is coarse
    /// does not count.
    async fn wait(&mut self) -> Instant {
        let due = self.next;
        self.next += self.every;
        if Instant::now() > due {
            return due;
        }
        sleep_until(due).await;
        Instant::now()
    }
}

struct Connection {
    stream: TcpStream,
    head: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr, head: String) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, head, request: Vec::new(), answer: Vec::with_capacity(4096) })
    }

    async fn knock(
        mut self,
        samples: Samples,
        per_request: usize,
        until: Instant,
        mut pace: Option<Pace>,
    ) -> Result<Histogram<u64>, String> {
        let mut latencies = histogram();
        while Instant::now() < until {
            let body = match per_request {
                1 => samples.next_body(),
                many => sample::lines(&samples, many),
            };
            let Some(body) = body else { break };
            let sent_at = match &mut pace {
                None => Instant::now(),
                Some(pace) => pace.wait().await,
            };
            self.exchange(&body).await?;
            let micros = u64::try_from(sent_at.elapsed().as_micros()).unwrap_or(u64::MAX);
            latencies.record(micros.max(1)).map_err(|error| error.to_string())?;
        }
        Ok(latencies)
    }

    async fn exchange(&mut self, body: &str) -> Result<(), String> {
        self.request.clear();
        self.request.extend_from_slice(self.head.as_bytes());
        self.request.extend_from_slice(format!("{}\r\n\r\n", body.len()).as_bytes());
        self.request.extend_from_slice(body.as_bytes());
        self.stream.write_all(&self.request).await.map_err(|error| error.to_string())?;
        self.answer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.answer).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the gate closed the connection".to_owned());
            }
            if let Some(length) = answer_length(&self.answer)
                && self.answer.len() >= length
            {
                break;
            }
        }
        if self.answer.starts_with(b"HTTP/1.1 200") {
            Ok(())
        } else {
            Err(format!("the gate answered {}", String::from_utf8_lossy(&self.answer)))
        }
    }
}

/// The length of a whole answer, once its head is there.
fn answer_length(answer: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length: ";
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let at = answer[..head].windows(NAME.len()).position(|w| w.eq_ignore_ascii_case(NAME))?;
    let digits = &answer[at + NAME.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let length: usize = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    Some(head + length)
}
