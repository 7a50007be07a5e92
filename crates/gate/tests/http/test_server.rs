//! Test fixture: a gate on a loopback port.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use admit_contracts::Contract;
use admit_core::{Code, Door, Millis};
use admit_gate::gateway::EffectTarget;
use admit_gate::principals::PrincipalConfig;
use admit_gate::{
    DoorMount, DrainReport, Gate, GateParts, Limits, Listeners, Principals, ServeError, serve,
};
use admit_testkit::clock::ManualClock;
use http::HeaderName;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Response};
use crate::fakes::{FakeContract, MemoryLedger, PanickingContract};
use crate::vetting::BlockingContract;

/// A running gate. Dropping it stops the gate.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Arc<Gate>,
    pub(crate) ledger: Arc<MemoryLedger>,
    /// Contract of the door at `/blocking`.
    pub(crate) blocking: Arc<BlockingContract>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) shutdown: CancellationToken,
    served: JoinSet<Result<DrainReport, ServeError>>,
}

impl TestServer {
    /// Starts a gate without principals, with the default limits.
    pub(crate) async fn open() -> Self {
        Self::with(Limits::default(), &[]).await
    }

    /// Starts a gate without principals, with limits changed by `change`.
    pub(crate) async fn limited(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        Self::with(limits, &[]).await
    }

    /// Starts a gate with the principals in `configs`, each a JSON object.
    pub(crate) async fn with(limits: Limits, configs: &[&str]) -> Self {
        Self::with_change(limits, configs, |gate| gate).await
    }

    /// Same, with a change of the gate before it starts.
    pub(crate) async fn with_change(
        limits: Limits,
        configs: &[&str],
        change: impl FnOnce(Gate) -> Gate,
    ) -> Self {
        Self::start(limits, configs, change, None).await
    }

    /// Starts a gate that also listens on a Unix socket.
    pub(crate) async fn with_socket(configs: &[&str], socket: &Path) -> Self {
        Self::with_socket_and(|_| {}, configs, socket).await
    }

    /// Same, with limits changed by `change`.
    pub(crate) async fn with_socket_and(
        change: impl FnOnce(&mut Limits),
        configs: &[&str],
        socket: &Path,
    ) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        let socket = UnixListener::bind(socket).expect("a free name");
        Self::start(limits, configs, |gate| gate, Some(socket)).await
    }

    async fn start(
        limits: Limits,
        configs: &[&str],
        change: impl FnOnce(Gate) -> Gate,
        socket: Option<UnixListener>,
    ) -> Self {
        let configs: Vec<PrincipalConfig> =
            configs.iter().map(|config| serde_json::from_str(config).expect("a config")).collect();
        let ledger = Arc::new(MemoryLedger::default());
        let blocking = Arc::new(BlockingContract::default());
        let clock = Arc::new(ManualClock::at(Millis(1_771_524_842_123)));
        let gate = Gate::new(GateParts {
            ledger: Arc::<MemoryLedger>::clone(&ledger),
            doors: vec![
                mount("test", "/door", Arc::new(FakeContract)),
                mount("other", "/other", Arc::new(FakeContract)),
                mount("panicking", "/panicking", Arc::new(PanickingContract)),
                mount("blocking", "/blocking", Arc::<BlockingContract>::clone(&blocking)),
            ],
            principals: Principals::load(&configs, Path::new(".")).expect("usable principals"),
            limits,
            clock: Arc::<ManualClock>::clone(&clock),
        });
        let gate = Arc::new(change(gate.expect("parts that fit")));
        let port = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = port.local_addr().expect("an address");
        let listeners = Listeners { port, socket };
        let shutdown = CancellationToken::new();
        let mut served = JoinSet::new();
        served.spawn(serve(listeners, Arc::clone(&gate), shutdown.clone()));
        Self { address, gate, ledger, blocking, clock, shutdown, served }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Sends one request on a new connection.
    pub(crate) async fn request(&self, request: impl AsRef<[u8]>) -> Response {
        self.client().await.request(request).await
    }

    /// Waits for the gate to stop.
    pub(crate) async fn stopped(mut self) -> DrainReport {
        let served = self.served.join_next().await.expect("it was started");
        served.expect("no panic").expect("it served")
    }

    /// Returns the admissions counter of `verdict` at the test door.
    pub(crate) fn counted(&self, verdict: &str) -> u64 {
        let counters = self.gate.metrics().door(&Door::new("test")).expect("the test door");
        counters.admissions().find(|(word, _)| *word == verdict).expect("a verdict").1
    }

    /// Returns the refusals counter of `code` at the test door.
    pub(crate) fn refused(&self, code: Code) -> u64 {
        let counters = self.gate.metrics().door(&Door::new("test")).expect("the test door");
        counters.refusals.of(code).get()
    }
}

fn mount(name: &str, path: &str, contract: Arc<dyn Contract>) -> DoorMount {
    DoorMount {
        door: Door::new(name),
        path: path.to_owned(),
        api_key_header: HeaderName::from_static("x-door-key"),
        contract,
        effect_target: EffectTarget::default(),
    }
}

/// Polls until `condition` holds. The test runner's timeout applies.
pub(crate) async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
