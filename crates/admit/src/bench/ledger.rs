//! Benchmark of the ledger port alone, with batches of 256 events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admit_contracts::Contract;
use admit_contracts::pixel_control::{PixelControl, Settings};
use admit_core::{Clock as _, Digest, Door, Entry, Event, Key, Principal, Submission};
use admit_gate::SystemClock;
use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::client::histogram;
use super::report::Figure;
use super::sample;
use super::workspace::BenchWorkspace;
use crate::ledger::GateLedger;
use crate::output::{self, Failure};

/// Events per batch.
const BATCH: u64 = 256;

/// Batches in flight.
const IN_FLIGHT: usize = 4;

/// Body size. Filling uses small bodies, because it is about keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodySize {
    Small,
    Full,
}

/// A ledger to fill and measure.
pub(super) struct FilledLedger<'g> {
    workspace: &'g BenchWorkspace,
    name: &'static str,
    ledger: Arc<dyn GateLedger>,
    runtime: Runtime,
    next: u64,
}

impl<'g> FilledLedger<'g> {
    pub(super) fn open(workspace: &'g BenchWorkspace, name: &'static str) -> Result<Self, Failure> {
        Self::open_with(workspace, name, || workspace.open(name))
    }

    /// The same with a ledger that is opened another way.
    pub(super) fn open_with(
        workspace: &'g BenchWorkspace,
        name: &'static str,
        open: impl FnOnce() -> Result<Arc<dyn GateLedger>, Failure>,
    ) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(Failure::runtime)?;
        Ok(Self { workspace, name, ledger: open()?, runtime, next: 0 })
    }

    /// The ledger, for a gate.
    pub(super) fn ledger(&self) -> Arc<dyn GateLedger> {
        self.ledger.clone()
    }

    /// Adds events until the ledger has `known` keys, and prints progress.
    pub(super) fn fill_to(&mut self, known: u64) -> Result<(), Failure> {
        let step = (known / 10).max(1_000_000);
        while self.next < known {
            let until = (self.next + step).min(known);
            self.run(BodySize::Small, |next, _| next >= until)?;
            output::print_stderr(&format!("{} keys stored", self.next));
        }
        Ok(())
    }

    /// Measures recording for `seconds`.
    pub(super) fn measure(&mut self, seconds: Duration) -> Result<Figure, Failure> {
        self.run(BodySize::Full, |_, elapsed| elapsed >= seconds)
    }

    /// Measures how long opening the ledger takes.
    pub(super) fn measure_restart(self) -> Result<Figure, Failure> {
        let Self { workspace, name, ledger, runtime, .. } = self;
        drop((runtime, ledger));
        let started = Instant::now();
        let ledger = workspace.open(name)?;
        let elapsed = started.elapsed();
        drop(ledger);
        let mut latencies = histogram();
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        latencies.record(micros).map_err(Failure::runtime)?;
        Ok(Figure::timed(elapsed, latencies))
    }

    /// Records batches until `is_done`. A separate thread generates them, so that generating is not
    /// measured.
    fn run(
        &mut self,
        size: BodySize,
        is_done: impl Fn(u64, Duration) -> bool,
    ) -> Result<Figure, Failure> {
        let (sender, mut batches) = mpsc::channel(IN_FLIGHT);
        let from = self.next;
        let generator = std::thread::spawn(move || generate(size, from, &sender));
        let ledger = self.ledger.clone();
        let started = Instant::now();
        let figure = self.runtime.block_on(async {
            let mut latencies = histogram();
            let mut next = from;
            let mut waiting = std::collections::VecDeque::new();
            loop {
                let is_done = is_done(next, started.elapsed());
                if !is_done && waiting.len() < IN_FLIGHT {
                    let batch = batches.recv().await.ok_or("the event generator stopped")?;
                    waiting.push_back((Instant::now(), ledger.record(batch)));
                    next += BATCH;
                    continue;
                }
                let Some((sent_at, reply)) = waiting.pop_front() else { break };
                for recorded in reply.await {
                    recorded.map_err(|_| "the ledger failed to record an event")?;
                }
                let micros = u64::try_from(sent_at.elapsed().as_micros()).unwrap_or(u64::MAX);
                latencies.record(micros.max(1)).map_err(|_| "latency out of range")?;
            }
            drop(batches);
            Ok((next, latencies))
        });
        let (next, latencies) = figure.map_err(|error: &str| Failure::runtime(error))?;
        let elapsed = started.elapsed();
        generator.join().map_err(|_| Failure::runtime("the event generator panicked"))?;
        self.next = next;
        Ok(Figure::batched(next - from, elapsed, latencies))
    }
}

/// Generates batches from number `from` on, until the receiver is dropped.
fn generate(size: BodySize, mut from: u64, sender: &mpsc::Sender<Vec<Entry>>) {
    let Some(mut template) = template() else { return };
    if size == BodySize::Small {
        template.body = Bytes::from_static(b"{}");
    }
    loop {
        let batch = (from..from + BATCH).map(|number| event(&template, number)).collect();
        from += BATCH;
        if sender.blocking_send(batch).is_err() {
            return;
        }
    }
}

/// Template event, which passed its contract.
fn template() -> Option<Event> {
    let submission = Submission {
        principal: Principal::new("bench"),
        received_at: SystemClock.now(),
        body: Bytes::from(sample::body(0)),
        headers: Vec::new(),
        nonce: [0; 16],
    };
    match PixelControl::new(Settings::default()).vet(&Door::new("bench"), submission) {
        Entry::Event(event) => Some(Event { projections: Vec::new(), ..event }),
        Entry::Refused(_) => None,
    }
}

fn event(template: &Event, number: u64) -> Entry {
    let own = number.to_be_bytes();
    Entry::Event(Event {
        key: Key::derive("bench", &[&own]),
        digest: Digest::of(&own),
        ..template.clone()
    })
}
