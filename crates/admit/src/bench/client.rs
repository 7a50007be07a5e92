//! The load: keep-alive connections that each send one request after the other.
//!
//! Written against the socket, because a full HTTP client would take more of the two cores than the
//! gate it measures.

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::CONNECTIONS;
use super::pace::{Pace, Turns};
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
    let pace = load.rate.map(Pace::new).transpose().map_err(Failure::runtime)?;
    let knock = || {
        if pace.is_none() {
            keep_to_one_core();
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::runtime)?;
        runtime.block_on(run_all(address, load, pace.as_ref())).map_err(Failure::runtime)
    };
    // A thread of its own, because a thread inherits the cores of the one that starts it.
    thread::scope(|scope| {
        let client = thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, knock);
        client.map_err(Failure::runtime)?.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Keeps this thread to the last core it may use, where there are several. When all of them are busy, an
/// answer over loopback has the system move whoever waits for it to the core it came from, where it
/// interrupts the gate after every answer; producers are on other machines.
#[cfg(target_os = "linux")]
fn keep_to_one_core() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(may) = sched_getaffinity(None) else { return };
    let cores = (0..CpuSet::MAX_CPU).filter(|core| may.is_set(*core));
    if let Some(last) = cores.skip(1).last() {
        let mut one = CpuSet::new();
        one.set(last);
        // Where it is not allowed the system chooses.
        sched_setaffinity(None, &one).unwrap_or_default();
    }
}

#[cfg(not(target_os = "linux"))]
fn keep_to_one_core() {}

async fn run_all(address: SocketAddr, load: &Load, pace: Option<&Pace>) -> Result<Figure, String> {
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
    for connection in connections {
        let turns = pace.map(Pace::begin);
        let (samples, until) = (load.samples.clone(), started + load.seconds);
        tasks.spawn(connection.knock(samples, load.per_request, until, turns));
    }
    let mut all = histogram();
    while let Some(done) = tasks.join_next().await {
        for micros in done.map_err(|error| error.to_string())?? {
            all.record(u64::from(micros)).map_err(|error| error.to_string())?;
        }
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
        turns: Option<Arc<Turns>>,
    ) -> Result<Vec<u32>, String> {
        // Sorted out at the end: every connection's own histogram would be another piece of cold memory.
        let mut latencies = Vec::new();
        while Instant::now() < until {
            let body = match per_request {
                1 => samples.next_body(),
                many => sample::lines(&samples, many),
            };
            let Some(body) = body else { break };
            let sent_at = match &turns {
                None => Instant::now(),
                Some(turns) => match timeout_at(until, turns.next()).await {
                    Ok(began) => began,
                    Err(_) => break,
                },
            };
            self.exchange(&body).await?;
            let micros = u32::try_from(sent_at.elapsed().as_micros()).unwrap_or(u32::MAX);
            latencies.push(micros.max(1));
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
