//! Benchmark of the edge agent: enqueueing into an outbox, and draining a backlog to a gate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use admit_edge::{Endpoint, Options, Outbox, Sender, SenderIdentity, SenderOptions, WebSocketWire};
use hdrhistogram::Histogram;

use super::client::histogram;
use super::gate::SKYRA_PATH;
use super::report::Figure;
use super::sample::device_envelope;
use crate::output::Failure;

/// Threads that enqueue concurrently and share commits.
const THREADS: u64 = 32;

/// Events in the backlog.
const BACKLOG: u64 = 20_000;

/// Number of the first event.
const FIRST: u64 = 8 << 40;

/// Timeout of draining the backlog.
const DRAIN_MAX: Duration = Duration::from_secs(120);

fn open(path: &Path) -> Result<Outbox, Failure> {
    let options = Options { bytes_max: 16 << 30, ..Options::default() };
    Outbox::open(path, options).map_err(Failure::runtime)
}

fn store(outbox: &Outbox, number: u64) -> Result<(), Failure> {
    let stored = outbox.enqueue(&format!("evt_{number:026}"), &device_envelope(number));
    stored.map(drop).map_err(Failure::runtime)
}

/// Enqueues from several threads; each waits for its event to be synced.
pub(super) fn enqueue(dir: &Path, seconds: Duration) -> Result<Figure, Failure> {
    let outbox = open(&dir.join("listener_outbox.db"))?;
    let next = AtomicU64::new(FIRST);
    let started = Instant::now();
    let run = || -> Result<Histogram<u64>, Failure> {
        let mut latencies = histogram();
        while started.elapsed() < seconds {
            let enqueued_at = Instant::now();
            store(&outbox, next.fetch_add(1, Ordering::Relaxed))?;
            let micros = u64::try_from(enqueued_at.elapsed().as_micros()).unwrap_or(u64::MAX);
            latencies.record(micros.max(1)).map_err(Failure::runtime)?;
        }
        Ok(latencies)
    };
    let mut latencies = histogram();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            let measured =
                thread.join().map_err(|_| Failure::runtime("an enqueue thread panicked"))??;
            latencies.add(measured).map_err(Failure::runtime)?;
        }
        Ok(Figure::timed(started.elapsed(), latencies))
    })
}

/// Sends a backlog to a gate over a WebSocket, until all events are acknowledged and removed.
pub(super) fn drain(dir: &Path, gate: SocketAddr) -> Result<Figure, Failure> {
    let outbox = Arc::new(open(&dir.join("listener_outbox.db"))?);
    let next = AtomicU64::new(FIRST + (1 << 39));
    let last = next.load(Ordering::Relaxed) + BACKLOG;
    let fill = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= last {
            return Ok(());
        }
        store(&outbox, number)?;
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(fill)).collect();
        let filled = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::runtime("an enqueue thread panicked")))
        });
        filled.collect::<Result<(), Failure>>()
    })?;
    let gate = Endpoint::parse(&format!("http://{gate}"), None).map_err(Failure::runtime)?;
    let wire = Arc::new(WebSocketWire::new(gate, SKYRA_PATH, SenderIdentity::default()));
    let started = Instant::now();
    let sender = Sender::start(Arc::clone(&outbox), wire, SenderOptions::default())
        .map_err(Failure::runtime)?;
    while outbox.counters().depth.load(Ordering::Relaxed) > 0 {
        if started.elapsed() > DRAIN_MAX {
            return Err(Failure::runtime("the backlog was not drained before the timeout"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let elapsed = started.elapsed();
    sender.stop();
    Ok(Figure::counted(BACKLOG, elapsed))
}
