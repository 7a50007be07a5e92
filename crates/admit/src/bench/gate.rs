//! Gates that the bench starts in its own process, on loopback.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_bus::Bus;
use admit_bus::file::{self, FileBus};
use admit_contracts::Contract;
use admit_contracts::events::{self, EventIdentity, Events};
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_contracts::ingestion_gate::{self, IngestionGate};
use admit_contracts::pixel_control::{PixelControl, Settings};
use admit_contracts::skyra::{self, Skyra};
use admit_core::Door;
use admit_gate::gateway::EffectTarget;
use admit_gate::ingest::{Ingest, IngestParts, IngestSettings};
use admit_gate::{DoorMount, Gate, GateParts, Limits, Principals, SystemClock, serve};
use admit_ledger::{DocumentReader, Ledger};
use http::HeaderName;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::append::AppendFile;
use super::ceiling::{self, CeilingContract, NullLedger};
use super::client::{self, Load};
use super::report::Figure;
use crate::bus;
use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::Failure;
use crate::runtime;

/// Path of the pixel-control door.
pub(super) const PIXEL_PATH: &str = "/plugin/events";

/// Path of the skyra door.
pub(super) const SKYRA_PATH: &str = "/v1/ingress";

/// Path of the events stream.
pub(super) const BATCH_PATH: &str = "/v1/events/bench";

/// Path of the ingestion gate.
pub(super) const PUBLISH_PATH: &str = "/v1/ingest/push";

/// A running gate; dropping it drains and stops it.
pub(super) struct BenchGate {
    address: SocketAddr,
    runtime: Option<Runtime>,
    stop: CancellationToken,
}

impl BenchGate {
    /// Baseline without a ledger.
    pub(super) fn ceiling() -> Result<Self, Failure> {
        Self::baseline(NullLedger::default())
    }

    /// Baseline with a file that is appended to and synced before each reply.
    pub(super) fn appending(dir: &Path) -> Result<Self, Failure> {
        let append = AppendFile::create(&dir.join("append")).map_err(Failure::runtime)?;
        Self::baseline(NullLedger { append: Some(append) })
    }

    fn baseline(ledger: NullLedger) -> Result<Self, Failure> {
        Self::start(
            Arc::new(ledger),
            vec![mount("ceiling", ceiling::PATH, Arc::new(CeilingContract))],
        )
    }

    /// A complete gate with pixel-control, an events stream for batches, and skyra.
    pub(super) fn pixel(ledger: Arc<dyn GateLedger>) -> Result<Self, Failure> {
        let contract = PixelControl::new(Settings::default());
        let stream =
            events::Settings { identity: EventIdentity::Body, ..events::Settings::named("bench") };
        let stream = Events::new(stream).map_err(Failure::runtime)?;
        let doors = vec![
            mount("pixel-control", PIXEL_PATH, Arc::new(contract)),
            mount("events/bench", BATCH_PATH, Arc::new(stream)),
            mount(skyra::DOOR, SKYRA_PATH, Arc::new(Skyra::default())),
        ];
        Self::start(ledger, doors)
    }

    /// An ingestion gate with artifacts in `dir`, and a file bus there or the bus of a config.
    pub(super) fn publishing(
        dir: &Path,
        ledger: Arc<dyn GateLedger>,
        bus: Option<(&Config, &Path)>,
    ) -> Result<Self, Failure> {
        let runtime = runtime::start()?;
        let bus: Arc<dyn Bus> = match bus {
            None => {
                let opened = FileBus::open(file::Options::new(dir.join("bus")));
                Arc::new(opened.map_err(Failure::runtime)?)
            }
            Some((config, base)) => {
                let topics = bus::topics(config, base)?;
                runtime.block_on(bus::open(config, base, &topics, BTreeMap::new()))?
            }
        };
        let artifacts = local::Options::new(dir.join("artifacts"));
        let artifacts = LocalArtifacts::open(artifacts).map_err(Failure::runtime)?;
        let contract =
            IngestionGate::new(ingestion_gate::Settings::default(), IngestionPolicy::shipped());
        let contract = Arc::new(contract.map_err(Failure::runtime)?);
        let ingest = Ingest::new(IngestParts {
            contract: contract.clone(),
            ledger: ledger.clone(),
            reader: ledger.clone(),
            bus,
            artifacts: Arc::new(artifacts),
            clock: Arc::new(SystemClock),
            settings: IngestSettings::default(),
        });
        let door = mount(ingestion_gate::DOOR, PUBLISH_PATH, contract);
        Self::start_on(
            runtime,
            ledger,
            vec![DoorMount { effect_target: EffectTarget::publishing(ingest), ..door }],
        )
    }

    fn start(ledger: Arc<dyn Ledger>, doors: Vec<DoorMount>) -> Result<Self, Failure> {
        Self::start_on(runtime::start()?, ledger, doors)
    }

    fn start_on(
        runtime: Runtime,
        ledger: Arc<dyn Ledger>,
        doors: Vec<DoorMount>,
    ) -> Result<Self, Failure> {
        let parts = GateParts {
            ledger,
            doors,
            principals: Principals::open(),
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
        };
        let gate = Arc::new(Gate::new(parts).map_err(Failure::runtime)?);
        let recovered = runtime.block_on(gate.recover());
        recovered.map_err(|fault| Failure::runtime(fault.to_string()))?;
        let listener =
            runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(Failure::runtime)?;
        let address = listener.local_addr().map_err(Failure::runtime)?;
        let stop = CancellationToken::new();
        let serving = serve(listener, gate, stop.clone());
        runtime.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the benchmark gate failed");
            }
        });
        Ok(Self { address, runtime: Some(runtime), stop })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a load to the gate.
    pub(super) fn send(&self, load: &Load) -> Result<Figure, Failure> {
        client::run(self.address, load)
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

/// Checks that every delivery was admitted; a quarantined one also gets 200.
pub(super) fn check_published(ledger: &dyn DocumentReader) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::runtime)?;
    let run = runtime.block_on(ledger.run(super::sample::RUN.to_owned()));
    let run = run.map_err(|fault| Failure::runtime(fault.to_string()))?;
    match run.map(|run| run.counts) {
        Some(counts) if counts.admit == counts.deliveries && counts.admit > 0 => Ok(()),
        other => Err(Failure::runtime(format!("some events were not published: {other:?}"))),
    }
}

fn mount(door: &str, path: &str, contract: Arc<dyn Contract>) -> DoorMount {
    DoorMount {
        door: Door::new(door),
        path: path.to_owned(),
        api_key_header: HeaderName::from_static("x-api-key"),
        contract,
        effect_target: EffectTarget::default(),
    }
}
