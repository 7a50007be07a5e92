//! Gates the bench starts in its own process, on loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admit_contracts::Contract;
use admit_contracts::pixel_control::{PixelControl, Settings};
use admit_core::{Clock as _, Door, Principal, Submission};
use admit_gate::gateway::Outward;
use admit_gate::{DoorMount, Gate, Limits, Parts, Principals, SystemClock, pipeline, serve};
use admit_ledger::Ledger;
use admit_ledger::sqlite::{Options, SqliteLedger};
use bytes::Bytes;
use http::HeaderName;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ceiling::{self, Ceiling, Nothing};
use super::client::histogram;
use super::report::Figure;
use super::sample::{self, Samples};
use crate::output::Failure;

/// Where the pixel door stands.
pub(super) const PIXEL_PATH: &str = "/plugin/events";

/// Submissions handed to the pipeline at once.
const BATCH: usize = 64;

/// Callers that hand in batches at the same time.
const BATCH_CALLERS: usize = 4;

/// A running gate; dropping it drains and stops it.
pub(super) struct BenchGate {
    address: SocketAddr,
    gate: Arc<Gate>,
    mount: DoorMount,
    runtime: Option<Runtime>,
    stop: CancellationToken,
}

impl BenchGate {
    /// The ceiling: no ledger.
    pub(super) fn ceiling() -> Result<Self, Failure> {
        Self::start(Arc::new(Nothing), mount("ceiling", ceiling::PATH, Arc::new(Ceiling)))
    }

    /// The real thing: pixel-control on a ledger in `dir`.
    pub(super) fn pixel(dir: &Path) -> Result<Self, Failure> {
        let options = Options::new(dir, SystemClock.now());
        let ledger = SqliteLedger::open(options).map_err(Failure::runtime)?;
        let contract = PixelControl::new(Settings::default());
        Self::start(Arc::new(ledger), mount("pixel-control", PIXEL_PATH, Arc::new(contract)))
    }

    fn start(ledger: Arc<dyn Ledger>, mount: DoorMount) -> Result<Self, Failure> {
        let parts = Parts {
            ledger,
            doors: vec![mount.clone()],
            principals: Principals::open(),
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
        };
        let gate = Arc::new(Gate::new(parts).map_err(Failure::runtime)?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(Failure::runtime)?;
        let listener =
            runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(Failure::runtime)?;
        let address = listener.local_addr().map_err(Failure::runtime)?;
        let stop = CancellationToken::new();
        let serving = serve(listener, gate.clone(), stop.clone());
        runtime.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the bench's gate ended");
            }
        });
        Ok(Self { address, gate, mount, runtime: Some(runtime), stop })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The pipeline itself in batches, without HTTP: what a door that takes many at once can reach.
    pub(super) fn measure_batches(
        &self,
        seconds: Duration,
        samples: Samples,
    ) -> Result<Figure, Failure> {
        let runtime = self.runtime.as_ref().expect("it runs until it is dropped");
        let started = Instant::now();
        let (count, latencies) = runtime.block_on(async {
            let mut callers = JoinSet::new();
            for _ in 0..BATCH_CALLERS {
                let (gate, mount, samples) =
                    (self.gate.clone(), self.mount.clone(), samples.clone());
                callers.spawn(async move {
                    let mut latencies = histogram();
                    while started.elapsed() < seconds {
                        let batch = (0..BATCH).filter_map(|_| samples.next()).map(submission);
                        let one = Instant::now();
                        pipeline::admit(&gate, &mount, batch.collect()).await;
                        let micros = u64::try_from(one.elapsed().as_micros()).unwrap_or(u64::MAX);
                        latencies.record(micros.max(1)).unwrap_or_default();
                    }
                    latencies
                });
            }
            let mut all = histogram();
            while let Some(done) = callers.join_next().await {
                all.add(done.map_err(Failure::runtime)?).map_err(Failure::runtime)?;
            }
            Ok::<_, Failure>((all.len() * BATCH as u64, all))
        })?;
        Ok(Figure::stepped(count, started.elapsed(), latencies))
    }
}

impl Drop for BenchGate {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

fn mount(door: &str, path: &str, contract: Arc<dyn Contract>) -> DoorMount {
    DoorMount {
        door: Door::new(door),
        path: path.to_owned(),
        api_key_header: HeaderName::from_static("x-api-key"),
        contract,
        outward: Outward::default(),
    }
}

fn submission(number: u64) -> Submission {
    Submission {
        principal: Principal::new("bench"),
        received_at: SystemClock.now(),
        body: Bytes::from(sample::body(number)),
        headers: Vec::new(),
        nonce: [0; 16],
    }
}
