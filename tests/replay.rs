//! The same 2,000 events, with copies, collisions and disconnects, get the same decisions, receipts and
//! ambiguities on every bus.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use admit_artifacts::local::{LocalArtifacts, Options as ArtifactOptions};
use admit_bus::file::{FileBus, Options as FileOptions};
use admit_bus::{Bus, BusError};
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_contracts::ingestion_gate::{DOOR, IngestionGate, Settings, names};
use admit_core::{Clock as _, Door};
use admit_gate::gateway::EffectTarget;
use admit_gate::ingest::{Ingest, IngestParts, IngestSettings};
use admit_gate::{DoorMount, Gate, GateParts, Limits, Principals, SystemClock, serve};
use admit_ledger::DocumentReader as _;
use admit_ledger::sqlite::{Options, SqliteLedger};
use admit_testkit::clock::ManualClock;
use admit_testkit::faulty_bus::{FaultyBus, MessageFault};
use http::HeaderName;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::support::http::Client;
use crate::support::ingest::{PUSH, RUN, STREAM, envelope, golden};

/// Number of pushes, including copies and collisions.
const PUSHES: u64 = 2_000;
/// Of each group of this many pushes, the last is a copy of an earlier one, and the one before it collides
/// with one.
const ROUND: u64 = 5;
/// Number of concurrent producers.
const PRODUCERS: usize = 8;
/// The clock of the gate is fixed; that of a server is not.
const CLOCK_SLACK: Duration = Duration::from_secs(3_600);
/// How late an abandoned publish may still arrive.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// A bus with its name.
struct BusUnderTest {
    name: &'static str,
    bus: Arc<dyn Bus>,
    /// Values that must live as long as the bus.
    _home: Box<dyn std::any::Any>,
}

/// The real ingest path on a bus with injected faults.
struct World {
    address: SocketAddr,
    bus: Arc<FaultyBus>,
    ledger: Arc<SqliteLedger>,
    clock: Arc<ManualClock>,
    stop: CancellationToken,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

fn contract() -> IngestionGate {
    IngestionGate::new(Settings::default(), IngestionPolicy::shipped()).unwrap()
}

impl World {
    fn on(bus: Arc<dyn Bus>) -> Self {
        let start = SystemClock.now();
        let folder = tempfile::tempdir().unwrap();
        let bus = Arc::new(FaultyBus::over(bus));
        bus.set_delivery_timeout(Some(DELIVERY_TIMEOUT));
        let options = Options::new(folder.path().join("data"), start);
        let ledger = Arc::new(SqliteLedger::open(options).unwrap());
        let clock = Arc::new(ManualClock::at(start));
        let artifacts = ArtifactOptions::new(folder.path().join("artifacts"));
        let contract = Arc::new(contract());
        let ingest = Ingest::new(IngestParts {
            contract: contract.clone(),
            ledger: ledger.clone(),
            reader: ledger.clone(),
            bus: bus.clone(),
            artifacts: Arc::new(LocalArtifacts::open(artifacts).unwrap()),
            clock: clock.clone(),
            settings: IngestSettings {
                publish_wait: Duration::from_secs(60),
                probe_every: Duration::from_secs(3_600),
                // Failures are intended here and must not close the door.
                rules: admit_contracts::ingestion_gate::health::HealthThresholds {
                    publish_failures_max: u32::MAX,
                    ..Default::default()
                },
                ..IngestSettings::default()
            },
        });
        let gate = Gate::new(GateParts {
            ledger: ledger.clone(),
            doors: vec![DoorMount {
                door: Door::new(DOOR),
                path: PUSH.to_owned(),
                api_key_header: HeaderName::from_static("x-ig-api-key"),
                contract,
                effect_target: EffectTarget::publishing(ingest),
            }],
            principals: Principals::open(),
            limits: Limits { answer_ms_max: 120_000, ..Limits::default() },
            clock: clock.clone(),
        });
        let gate = Arc::new(gate.unwrap());
        let runtime = Runtime::new().unwrap();
        let stop = CancellationToken::new();
        let address = runtime.block_on(async {
            gate.recover().await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let serving = serve(listener, gate, stop.clone());
            runtime.spawn(async move { serving.await.unwrap() });
            address
        });
        Self { address, bus, ledger, clock, stop, runtime, _folder: folder }
    }

    /// Pushes envelopes concurrently, and returns the outcome of each.
    fn push(&self, envelopes: &[Value]) -> Vec<String> {
        let answers = Mutex::new(vec![String::new(); envelopes.len()]);
        thread::scope(|scope| {
            for first in 0..PRODUCERS {
                let answers = &answers;
                scope.spawn(move || {
                    let mut client = Client::to(self.address);
                    for place in (first..envelopes.len()).step_by(PRODUCERS) {
                        let body = envelopes[place].to_string();
                        let answer = client.send("POST", PUSH, &[], body.as_bytes()).unwrap();
                        let reply = answer.json();
                        assert_eq!(answer.status, 200, "{reply}");
                        answers.lock().unwrap()[place] = outcome(&reply);
                    }
                });
            }
        });
        answers.into_inner().unwrap()
    }

    /// Every ambiguity, without positions and times, which differ between buses.
    fn doubts(&self) -> Vec<Value> {
        let listed = Client::to(self.address).get(&format!("/v1/reconcile?run={RUN}&limit=500"));
        let mut doubts: Vec<Value> = listed["ambiguous"].as_array().unwrap().clone();
        for doubt in &mut doubts {
            let found = doubt["eb_refs"].as_array().unwrap().len();
            let doubt = doubt.as_object_mut().unwrap();
            for name in ["seq", "in_flight_at", "ambiguous_at"] {
                doubt.remove(name).unwrap();
            }
            doubt.insert("eb_refs".to_owned(), json!(found));
        }
        doubts.sort_by_key(|doubt| doubt["dedupe_key"].as_str().unwrap().to_owned());
        doubts
    }

    fn resolve(&self, doubt: &Value) -> String {
        let key = doubt["dedupe_key"].as_str().unwrap();
        let body = json!({ "resolution": doubt["bus"], "reason": "replayed" }).to_string();
        let path = format!("/v1/reconcile/{key}");
        let answer = Client::to(self.address).send("POST", &path, &[], body.as_bytes()).unwrap();
        format!("{} {} {}", key, answer.status, answer.json()["state"])
    }

    /// Number of messages on the bus per event.
    fn on_the_bus(&self) -> BTreeMap<String, usize> {
        let mut seen = BTreeMap::new();
        for partition in 0.. {
            let mut last = String::new();
            loop {
                let read = self.bus.read(STREAM, partition, &last, 1_000);
                let page = match self.runtime.block_on(read) {
                    Ok(page) => page,
                    Err(BusError::NoSuchPartition { .. }) => return seen,
                    Err(error) => panic!("{error}"),
                };
                let new = page.iter().filter(|record| record.reference.offset != last);
                let keys: Vec<String> = new.map(|one| one.dedupe_key.clone().unwrap()).collect();
                if keys.is_empty() {
                    break;
                }
                for key in keys {
                    *seen.entry(key).or_default() += 1;
                }
                last.clone_from(&page[page.len() - 1].reference.offset);
            }
        }
        seen
    }

    fn end(self) {
        self.stop.cancel();
        self.runtime.shutdown_timeout(Duration::from_secs(10));
    }
}

/// Decision, reason, key and receipt, without the bus position.
fn outcome(reply: &Value) -> String {
    let receipt = &reply["receipt"];
    format!(
        "{} {} {} {}",
        reply["decision"], receipt["reason_codes"], receipt["dedupe_key"], receipt["receipt_id"]
    )
}

/// The pushes in waves; each event occurs at most once in a wave.
fn waves() -> Vec<Vec<Value>> {
    let (mut waves, mut wave, mut fresh) = (Vec::new(), Vec::new(), 0);
    for n in 0..PUSHES {
        let is_late = fresh > 100;
        wave.push(match n % ROUND {
            4 if is_late => envelope(fresh - 100),
            3 if is_late => {
                let mut other = envelope(fresh - 90);
                other["payload"]["amount"] = 99.into();
                other
            }
            _ => {
                fresh += 1;
                envelope(fresh)
            }
        });
        if wave.len() == 50 {
            waves.push(std::mem::take(&mut wave));
        }
    }
    waves
}

/// Injects faults for some events, by their number.
fn trouble(bus: &FaultyBus) {
    let class = golden()["event_class"].as_str().unwrap().to_owned();
    for n in 1..PUSHES {
        let key = names::dedupe_key(RUN, &class, &format!("event-{n}"));
        match n % 60 {
            7 => bus.on(&key, MessageFault::AcceptThenCut),
            23 => bus.on(&key, MessageFault::Refuse),
            41 => bus.on(&key, MessageFault::LandLater),
            _ => {}
        }
    }
}

/// Everything that must not depend on the bus.
#[derive(Debug, PartialEq)]
struct Transcript {
    answers: Vec<String>,
    doubts: Vec<Value>,
    resolved: Vec<String>,
    again: Vec<String>,
    counts: String,
    on_the_bus: BTreeMap<String, usize>,
}

fn replay(substrate: &BusUnderTest) -> Transcript {
    let world = World::on(Arc::clone(&substrate.bus));
    trouble(&world.bus);
    let waves = waves();
    let answers: Vec<String> = waves.iter().flat_map(|wave| world.push(wave)).collect();
    world.runtime.block_on(world.bus.land());
    world.bus.calm();
    world.clock.advance(i64::try_from(DELIVERY_TIMEOUT.as_millis()).unwrap() + 1);
    let doubts = world.doubts();
    let resolved = doubts.iter().map(|doubt| world.resolve(doubt)).collect();
    let doubtful = |event: &Value| doubts.iter().any(|one| one["event_id"] == event["event_id"]);
    let again: Vec<Value> =
        waves.iter().flatten().filter(|event| doubtful(event)).cloned().collect();
    // Sequentially: an event may occur twice, unchanged and with other content.
    let again = again.iter().flat_map(|event| world.push(std::slice::from_ref(event))).collect();
    let run = world.runtime.block_on(world.ledger.run(RUN.to_owned())).unwrap().unwrap();
    let transcript = Transcript {
        answers,
        doubts,
        resolved,
        again,
        counts: format!("{:?}", run.counts),
        on_the_bus: world.on_the_bus(),
    };
    world.end();
    transcript
}

fn file() -> BusUnderTest {
    let folder = tempfile::tempdir().unwrap();
    let bus = Arc::new(FileBus::open(FileOptions::new(folder.path())).unwrap());
    BusUnderTest { name: "file", bus, _home: Box::new(folder) }
}

#[cfg(feature = "nats")]
fn nats() -> Option<BusUnderTest> {
    use admit_bus::nats::{NatsBus, Options};
    let server = admit_testkit::servers::Nats::start()?;
    let topics = contract().topics();
    let options = Options { clock_slack: CLOCK_SLACK, ..Options::new(server.url()) };
    let opening = NatsBus::open(options, &topics);
    let bus = Runtime::new().unwrap().block_on(opening).unwrap();
    Some(BusUnderTest { name: "nats", bus: Arc::new(bus), _home: Box::new(server) })
}

#[cfg(feature = "kafka")]
fn kafka() -> BusUnderTest {
    use admit_bus::kafka::{KafkaBus, MockCluster, Options};
    let cluster = MockCluster::new(3).unwrap();
    let topics = contract().topics();
    for topic in &topics {
        cluster.create_topic(topic, 3, 2).unwrap();
    }
    let options = Options {
        request_timeout: Duration::from_secs(1),
        ..Options::new(cluster.bootstrap_servers())
    };
    let opening = KafkaBus::open(options, &topics);
    let bus = Runtime::new().unwrap().block_on(opening).unwrap();
    BusUnderTest { name: "kafka", bus: Arc::new(bus), _home: Box::new(cluster) }
}

#[cfg(feature = "kinesis")]
fn kinesis(runtime: &Runtime) -> Option<BusUnderTest> {
    use admit_bus::kinesis::{KinesisBus, KinesisKeys, Options};
    let server = admit_testkit::servers::KinesisLocal::start()?;
    let options = Options {
        region: Some("eu-central-1".to_owned()),
        endpoint: Some(format!("http://{}", server.address())),
        keys: Some(KinesisKeys::new("suite-access-key", "suite-secret-key")),
        create_streams: true,
        shards: 3,
        clock_slack: CLOCK_SLACK,
        ..Options::new(Arc::new(SystemClock))
    };
    let bus = runtime.block_on(KinesisBus::open(options, &contract().topics())).unwrap();
    Some(BusUnderTest { name: "kinesis", bus: Arc::new(bus), _home: Box::new(server) })
}

#[test]
fn the_same_events_get_the_same_decisions_on_every_bus() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let expected = replay(&file());
    assert!(expected.doubts.len() > 60, "{}", expected.doubts.len());
    assert!(expected.on_the_bus.values().all(|count| *count == 1), "nothing is there twice");
    let count_of = |word: &str| expected.answers.iter().filter(|one| one.contains(word)).count();
    assert!(
        count_of("\"ADMIT\"") > 1_000 && count_of("\"DUPLICATE\"") > 300,
        "{:?}",
        count_of("\"ADMIT\"")
    );
    assert!(count_of("PAYLOAD_HASH_MISMATCH") > 300 && count_of("PUBLISH_AMBIGUOUS") > 60);
    let others: Vec<Option<BusUnderTest>> = vec![
        #[cfg(feature = "nats")]
        nats(),
        #[cfg(feature = "kafka")]
        Some(kafka()),
        #[cfg(feature = "kinesis")]
        kinesis(&runtime),
    ];
    for substrate in others.into_iter().flatten() {
        let transcript = replay(&substrate);
        let name = substrate.name;
        assert_eq!(transcript.answers, expected.answers, "decisions and receipts on {name}");
        assert_eq!(transcript.doubts, expected.doubts, "what is ambiguous on {name}");
        assert_eq!(transcript.resolved, expected.resolved, "what was resolved on {name}");
        assert_eq!(transcript.again, expected.again, "retries on {name}");
        assert_eq!(transcript.counts, expected.counts, "counters on {name}");
        assert_eq!(transcript.on_the_bus, expected.on_the_bus, "what is on {name}");
    }
}
