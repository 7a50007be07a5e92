//! The ledger port alone: batches of 256 events, each batch one durable commit or part of one.

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
use super::grounds::Grounds;
use super::report::Figure;
use super::sample;
use crate::ledger::GateLedger;
use crate::output::{self, Failure};

/// Events in a batch.
const BATCH: u64 = 256;

/// Batches handed in ahead of the one being committed.
const AHEAD: usize = 4;

/// How large the bodies are: filling is about keys, and tiny bodies spare the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Whole,
}

/// A ledger that is filled and measured in turns.
pub(super) struct Filled<'g> {
    grounds: &'g Grounds,
    name: &'static str,
    ledger: Arc<dyn GateLedger>,
    runtime: Runtime,
    next: u64,
}

impl<'g> Filled<'g> {
    pub(super) fn open(grounds: &'g Grounds, name: &'static str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(Failure::runtime)?;
        Ok(Self { grounds, name, ledger: grounds.open(name)?, runtime, next: 0 })
    }

    /// The ledger, for a gate.
    pub(super) fn ledger(&self) -> Arc<dyn GateLedger> {
        self.ledger.clone()
    }

    /// Adds events until `known` keys are known, with a line of progress for every tenth.
    pub(super) fn fill_to(&mut self, known: u64) -> Result<(), Failure> {
        let step = (known / 10).max(1_000_000);
        while self.next < known {
            let until = (self.next + step).min(known);
            self.run(Size::Small, |next, _| next >= until)?;
            output::aside(&format!("{} keys known", self.next));
        }
        Ok(())
    }

    /// How fast it is now.
    pub(super) fn measure(&mut self, seconds: Duration) -> Result<Figure, Failure> {
        self.run(Size::Whole, |_, elapsed| elapsed >= seconds)
    }

    /// How long a start takes with what it holds now.
    pub(super) fn measure_restart(self) -> Result<Figure, Failure> {
        let Self { grounds, name, ledger, runtime, .. } = self;
        drop((runtime, ledger));
        let started = Instant::now();
        let ledger = grounds.open(name)?;
        let elapsed = started.elapsed();
        drop(ledger);
        let mut latencies = histogram();
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        latencies.record(micros).map_err(Failure::runtime)?;
        Ok(Figure::timed(elapsed, latencies))
    }

    /// Records batches until `enough`; a thread of its own makes them, so that their making does not
    /// count as the ledger's time.
    fn run(
        &mut self,
        size: Size,
        enough: impl Fn(u64, Duration) -> bool,
    ) -> Result<Figure, Failure> {
        let (made, mut batches) = mpsc::channel(AHEAD);
        let from = self.next;
        let maker = std::thread::spawn(move || make(size, from, &made));
        let ledger = self.ledger.clone();
        let started = Instant::now();
        let figure = self.runtime.block_on(async {
            let mut latencies = histogram();
            let mut next = from;
            let mut waiting = std::collections::VecDeque::new();
            loop {
                let full = enough(next, started.elapsed());
                if !full && waiting.len() < AHEAD {
                    let batch = batches.recv().await.ok_or("no more batches")?;
                    waiting.push_back((Instant::now(), ledger.record(batch)));
                    next += BATCH;
                    continue;
                }
                let Some((sent, answer)) = waiting.pop_front() else { break };
                for recorded in answer.await {
                    recorded.map_err(|_| "the ledger met a fault")?;
                }
                let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
                latencies.record(micros.max(1)).map_err(|_| "a latency off the scale")?;
            }
            drop(batches);
            Ok((next, latencies))
        });
        let (next, latencies) = figure.map_err(|error: &str| Failure::runtime(error))?;
        let elapsed = started.elapsed();
        maker.join().map_err(|_| Failure::runtime("making events failed"))?;
        self.next = next;
        Ok(Figure::stepped(next - from, elapsed, latencies))
    }
}

/// Makes batches from `from` on until nobody wants more.
fn make(size: Size, mut from: u64, made: &mpsc::Sender<Vec<Entry>>) {
    let Some(mut template) = template() else { return };
    if size == Size::Small {
        template.body = Bytes::from_static(b"{}");
    }
    loop {
        let batch = (from..from + BATCH).map(|number| event(&template, number)).collect();
        from += BATCH;
        if made.blocking_send(batch).is_err() {
            return;
        }
    }
}

/// One vetted event, to make many of.
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
