//! HTTP load generator: keep-alive connections, one request at a time on each.
//!
//! Uses the socket directly, because a complete HTTP client would take more CPU than the gate.

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
use super::pacer::{Pacer, SendSchedule};
use super::report::Figure;
use super::sample::{self, Samples};
use crate::output::Failure;

/// Description of a load.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) path: &'static str,
    pub(super) connections: usize,
    pub(super) seconds: Duration,
    /// Requests per second over all connections; `None` for a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) samples: Samples,
    /// Events per request: one as JSON, several as JSON lines.
    pub(super) per_request: usize,
}

impl Load {
    /// A closed loop with one event per request, over all connections.
    pub(super) fn new(path: &'static str, seconds: Duration, samples: Samples) -> Self {
        Self { path, connections: CONNECTIONS, seconds, rate: None, samples, per_request: 1 }
    }
}

/// Runs the load on one thread. Every response must be 200.
pub(super) fn run(address: SocketAddr, load: &Load) -> Result<Figure, Failure> {
    let pacer = load.rate.map(Pacer::new).transpose().map_err(Failure::runtime)?;
    let client = || {
        if pacer.is_none() {
            pin_to_one_core();
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::runtime)?;
        runtime.block_on(run_all(address, load, pacer.as_ref())).map_err(Failure::runtime)
    };
    // A separate thread, because threads inherit the CPU affinity of their parent.
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, client);
        thread.map_err(Failure::runtime)?.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Pins this thread to the last core of its CPU affinity, if there are several. Without that, a response
/// over loopback makes the scheduler move the client to the gate's core, where it preempts the gate
/// after every response. Real producers are on other machines.
#[cfg(target_os = "linux")]
fn pin_to_one_core() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    if let Some(last) = cores.skip(1).last() {
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).unwrap_or_default();
    }
}

#[cfg(not(target_os = "linux"))]
fn pin_to_one_core() {}

async fn run_all(
    address: SocketAddr,
    load: &Load,
    pacer: Option<&Pacer>,
) -> Result<Figure, String> {
    let path = load.path;
    let media = if load.per_request == 1 { "json" } else { "x-ndjson" };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/{media}\r\ncontent-length: "
    );
    let mut connections = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        connections.push(BenchConnection::open(address, head.clone()).await?);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for connection in connections {
        let schedule = pacer.map(Pacer::start);
        let (samples, until) = (load.samples.clone(), started + load.seconds);
        tasks.spawn(connection.send_all(samples, load.per_request, until, schedule));
    }
    let mut all = histogram();
    while let Some(done) = tasks.join_next().await {
        for micros in done.map_err(|error| error.to_string())?? {
            all.record(u64::from(micros)).map_err(|error| error.to_string())?;
        }
    }
    let events = all.len() * load.per_request as u64;
    Ok(Figure::batched(events, started.elapsed(), all))
}

/// Latency histogram in microseconds, with three significant digits.
pub(super) fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits are allowed");
    histogram.auto(true);
    histogram
}

struct BenchConnection {
    stream: TcpStream,
    head: String,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl BenchConnection {
    async fn open(address: SocketAddr, head: String) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, head, request: Vec::new(), response: Vec::with_capacity(4096) })
    }

    async fn send_all(
        mut self,
        samples: Samples,
        per_request: usize,
        until: Instant,
        schedule: Option<Arc<SendSchedule>>,
    ) -> Result<Vec<u32>, String> {
        // A plain list, because a histogram per connection would cause cache misses.
        let mut latencies = Vec::new();
        while Instant::now() < until {
            let body = match per_request {
                1 => samples.next_body(),
                many => sample::lines(&samples, many),
            };
            let Some(body) = body else { break };
            let sent_at = match &schedule {
                None => Instant::now(),
                Some(schedule) => match timeout_at(until, schedule.next()).await {
                    Ok(scheduled_at) => scheduled_at,
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
        self.response.clear();
        loop {
            let read = self.stream.read_buf(&mut self.response).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the gate closed the connection".to_owned());
            }
            if let Some(length) = response_length(&self.response)
                && self.response.len() >= length
            {
                break;
            }
        }
        if self.response.starts_with(b"HTTP/1.1 200") {
            Ok(())
        } else {
            Err(format!("unexpected response: {}", String::from_utf8_lossy(&self.response)))
        }
    }
}

/// Length of the complete response, once its head is complete.
fn response_length(response: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length: ";
    let head = response.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let at = response[..head].windows(NAME.len()).position(|w| w.eq_ignore_ascii_case(NAME))?;
    let digits = &response[at + NAME.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let length: usize = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    Some(head + length)
}
