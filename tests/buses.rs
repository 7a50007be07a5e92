//! The real binary on external buses (NATS, Kafka): reconciliation after a kill, the control stream, and
//! the bench.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_artifacts::{Artifacts as _, File};
#[cfg(feature = "kafka")]
use admit_bus::kafka::MockCluster;
use admit_bus::nats::{NatsBus, Options};
use admit_bus::{Bus, Message, PublishOutcome};
use admit_contracts::ingestion_gate::governance::AUDIT_TOPIC;
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_core::Clock as _;
use admit_gate::SystemClock;
use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::Nats;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::stream::{FACTS, RUN as STREAMED, admit_stream, synthetic};
use crate::support::gate::{Gate, Launch};
use crate::support::ingest::{PUSH, RUN, STREAM, envelope, outcome, push, read_decision};
use crate::support::intents::admit;
#[cfg(feature = "kafka")]
use crate::support::intents::admit_with;
use crate::support::machine::text;
use crate::support::pack::golden;
use crate::support::{self, TIMEOUT, wait_for};

const CONTROL: &str = "fp.bus.control.v1";

/// Writes a config with this bus.
fn config(folder: &Path, url: &str) -> PathBuf {
    let path = folder.join("admit.toml");
    let bus = format!("[bus]\nurl = \"{url}\"\ndelivery_timeout_ms = 100\n");
    let kafka = "[bus.kafka]\nrequest_timeout_ms = 1_000\n";
    fs::write(&path, format!("{bus}{kafka}")).unwrap();
    path
}

fn gate_on(data: &Path, config: &Path) -> Gate {
    Launch::on(data).argument("--config").argument(config).start()
}

fn ids(runtime: &Runtime, bus: &dyn Bus) -> Vec<String> {
    let records = runtime.block_on(bus.read(STREAM, 0, "", 100)).unwrap();
    let id = |payload: &[u8]| -> Value { serde_json::from_slice(payload).unwrap() };
    let ids = records.iter().map(|one| id(&one.payload)["event_id"].as_str().unwrap().to_owned());
    ids.collect()
}

#[test]
fn a_publish_to_nats_in_flight_when_the_gate_is_killed_is_found_by_reconciliation() {
    let Some(server) = Nats::start() else { return };
    let runtime = Runtime::new().unwrap();
    let direct = runtime.block_on(NatsBus::open(Options::new(server.url()), &[])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let proxy = Proxy::to(server.address(), Faults::default(), 1).unwrap();
    let gate = gate_on(&data, &config(folder.path(), &format!("nats://{}", proxy.address())));
    for n in 1..=3 {
        let (decision, receipt) = read_decision(&push(&mut gate.client(), &envelope(n)));
        assert_eq!(decision, "ADMIT");
        assert_eq!(receipt["eb_ref"]["offset_kind"], "nats_sequence");
        assert_eq!(receipt["eb_ref"]["offset"], n.to_string().as_str());
    }
    assert!(
        gate.stderr().contains("whether nats syncs before it acknowledges"),
        "no warning about syncs of nats"
    );
    proxy.set_faults(Faults { lose_answers: true, ..Faults::default() });
    thread::scope(|scope| {
        let mut client = gate.client();
        scope.spawn(move || client.send("POST", PUSH, &[], envelope(4).to_string().as_bytes()));
        wait_for("the message is on the bus", TIMEOUT, || {
            (ids(&runtime, &direct).len() == 4).then_some(())
        });
        gate.kill();
    });
    let config = config(folder.path(), &server.url());
    let gate = gate_on(&data, &config);
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(4))), "QUARANTINE PUBLISH_AMBIGUOUS");
    let listen = gate.address().to_string();
    let (ok, listed) = admit(&["reconcile", "--run", RUN, "--listen", &listen]);
    assert!(ok && listed.contains("found"), "{listed}");
    let all = ["reconcile", "--all", "--found", "--yes", "--listen", &listen];
    let (ok, output) = admit(&[&all[..], &["--reason", "the gate was killed"]].concat());
    assert!(ok, "{output}");
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(4))), "DUPLICATE DUPLICATE");
    assert_eq!(ids(&runtime, &direct), ["event-1", "event-2", "event-3", "event-4"]);
    let (verified, output) = admit(&["verify", "--data", text(&data), "--config", text(&config)]);
    assert!(verified, "{output}");
    gate.stop();
}

#[test]
fn an_unreachable_bus_fails_the_start_without_logging_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "nats://me:hush@127.0.0.1:9");
    let launch = Launch::on(&folder.path().join("data")).argument("--config").argument(&config);
    let exit = launch.start_expecting_exit();
    assert_eq!(exit.status.code(), Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains("nats is not reachable at 127.0.0.1:9"), "{}", exit.stderr);
    assert!(!exit.stderr.contains("hush"), "{}", exit.stderr);
}

/// Publishes a READY message; its facts need not exist.
fn publish_ready(runtime: &Runtime, bus: &dyn Bus, facts: &str, message_id: &str) {
    let pack = golden();
    let message = Message {
        topic: Arc::from(CONTROL),
        partition_key: "r".to_owned(),
        dedupe_key: message_id.to_owned(),
        payload: synthetic::ready(STREAMED, facts, pack.to_str().unwrap(), message_id).into(),
        at: SystemClock.now(),
    };
    let published = runtime.block_on(bus.publish(vec![message])).remove(0);
    assert!(matches!(published, PublishOutcome::Committed(_)), "{published:?}");
}

fn put_facts(runtime: &Runtime, data: &Path, name: &str) {
    let artifacts = LocalArtifacts::open(local::Options::new(data.join("artifacts"))).unwrap();
    let facts = File::new(name, synthetic::facts(STREAMED, golden().to_str().unwrap()));
    runtime.block_on(artifacts.put_if_absent(vec![facts])).remove(0).unwrap();
}

/// Runs `admit stream` once over the control stream; returns the status of each message.
fn stream_once(data: &Path, gate: &str, config: &Path) -> Vec<String> {
    let more = ["--config", text(config)];
    let output = admit_stream(data, gate, &more).output().unwrap();
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    let describe = |message: &Value| {
        let id = message["message_id"].as_str().unwrap();
        format!("{} {}", &id[..2], message["status"].as_str().unwrap())
    };
    reply["messages"].as_array().unwrap().iter().map(describe).collect()
}

/// Asserts that failed and deferred messages are retried while others are processed.
fn assert_nothing_lost(url: &str, bus: &dyn Bus) {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = config(folder.path(), url);
    let gate = gate_on(&data, &config);
    let address = format!("http://{}", gate.address());
    let missing = FACTS.replace("1.json", "2.json");
    put_facts(&runtime, &data, FACTS);
    publish_ready(&runtime, bus, &missing, &"aa".repeat(32));
    publish_ready(&runtime, bus, FACTS, &"bb".repeat(32));
    let unreachable = stream_once(&data, "http://127.0.0.1:9", &config);
    assert_eq!(unreachable, ["aa FAILED", "bb DEFERRED_DOWNSTREAM_NOT_READY"]);
    assert_eq!(stream_once(&data, &address, &config), ["aa FAILED", "bb STREAMED"]);
    publish_ready(&runtime, bus, FACTS, &"cc".repeat(32));
    let third = stream_once(&data, &address, &config);
    assert_eq!(third, ["aa FAILED", "bb SKIPPED_DUPLICATE", "cc STREAMED"]);
    put_facts(&runtime, &data, &missing);
    let retried = stream_once(&data, &address, &config);
    assert_eq!(retried, ["aa STREAMED", "bb SKIPPED_DUPLICATE", "cc SKIPPED_DUPLICATE"]);
    assert_eq!(
        stream_once(&data, &address, &config),
        [""; 0],
        "the saved position is past all messages"
    );
    gate.stop();
}

#[test]
fn the_control_stream_on_nats_loses_nothing() {
    let Some(server) = Nats::start() else { return };
    let runtime = Runtime::new().unwrap();
    let topics = [CONTROL.to_owned()];
    let opening = NatsBus::open(Options::new(server.url()), &topics);
    let bus = runtime.block_on(opening).unwrap();
    assert_nothing_lost(&server.url(), &bus);
}

/// All topics of a gate with the built-in policy.
fn topics() -> BTreeSet<String> {
    let policy = IngestionPolicy::shipped();
    policy.topics().into_iter().chain([AUDIT_TOPIC, CONTROL]).map(str::to_owned).collect()
}

/// Mock Kafka brokers with all topics.
#[cfg(feature = "kafka")]
fn cluster() -> MockCluster {
    let cluster = MockCluster::new(1).unwrap();
    for topic in topics() {
        cluster.create_topic(&topic, 1, 1).unwrap();
    }
    cluster
}

#[cfg(feature = "kafka")]
#[test]
fn the_control_stream_on_kafka_loses_nothing() {
    use admit_bus::kafka::{KafkaBus, Options};
    let cluster = cluster();
    let servers = cluster.bootstrap_servers();
    let runtime = Runtime::new().unwrap();
    let bus = runtime.block_on(KafkaBus::open(Options::new(&servers), &[])).unwrap();
    assert_nothing_lost(&format!("kafka://{servers}"), &bus);
}

/// Runs `admit bench --bus` for a second; returns its JSON.
fn bench(url: &str, config: &Path) -> Value {
    let arguments = ["bench", "--bus", url, "--config", text(config), "--seconds", "1", "--json"];
    let exit = support::gate::admit(arguments).output().unwrap();
    assert_eq!(exit.status.code(), Some(0), "{}", String::from_utf8_lossy(&exit.stderr));
    serde_json::from_slice(&exit.stdout).unwrap()
}

/// Asserts that the bench measures the file bus and this bus, and that all counted messages are on it.
fn assert_bench(url: &str, bus: &dyn Bus) {
    let folder = tempfile::tempdir().unwrap();
    let measured = bench(url, &config(folder.path(), url));
    for line in ["publish", "publish_bus"] {
        assert!(measured[line]["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{measured}");
    }
    let counted = measured["publish_bus"]["count"].as_u64().unwrap();
    let runtime = Runtime::new().unwrap();
    let stored: u64 = topics().iter().map(|topic| message_count(&runtime, bus, topic)).sum();
    assert!(counted > 0 && stored >= counted, "{stored} messages are on the bus: {measured}");
}

/// Counts the messages in the first partition of a topic.
fn message_count(runtime: &Runtime, bus: &dyn Bus, topic: &str) -> u64 {
    let (mut count, mut from) = (0, String::new());
    loop {
        let records = runtime.block_on(bus.read(topic, 0, &from, 10_000)).unwrap();
        let Some(last) = records.last() else { return count };
        count += records.len() as u64;
        from = (last.reference.offset.parse::<u64>().unwrap() + 1).to_string();
    }
}

#[test]
fn the_bench_on_nats_counts_only_published_messages() {
    let Some(server) = Nats::start() else { return };
    let runtime = Runtime::new().unwrap();
    let bus = runtime.block_on(NatsBus::open(Options::new(server.url()), &[])).unwrap();
    assert_bench(&server.url(), &bus);
}

#[cfg(feature = "kafka")]
#[test]
fn the_bench_on_kafka_counts_only_published_messages() {
    use admit_bus::kafka::{KafkaBus, Options};
    let cluster = cluster();
    let servers = cluster.bootstrap_servers();
    let runtime = Runtime::new().unwrap();
    let bus = runtime.block_on(KafkaBus::open(Options::new(&servers), &[])).unwrap();
    assert_bench(&format!("kafka://{servers}"), &bus);
}

#[cfg(feature = "kafka")]
#[test]
fn a_bench_without_its_topics_reports_the_missing_one_and_the_remedy() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("some.other.v1", 1, 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("kafka://{}", cluster.bootstrap_servers());
    let config = config(folder.path(), &url);
    let (ok, output) =
        admit(&["bench", "--bus", &url, "--config", text(&config), "--seconds", "1"]);
    assert!(!ok && output.contains("does not exist; create it"), "{output}");
    assert!(output.contains("bus.kafka.create_topics"), "{output}");
    assert!(!output.contains("per second"), "measured despite the missing topic: {output}");
}

#[cfg(feature = "kafka")]
#[test]
fn a_bench_without_brokers_reports_their_address() {
    let variables = [("ADMIT_BUS__KAFKA__REQUEST_TIMEOUT_MS", "1000".to_owned())];
    let url = "kafka://127.0.0.1:9";
    let (ok, output) = admit_with(&["bench", "--bus", url, "--seconds", "1"], &variables);
    assert!(!ok && output.contains("no kafka broker responds at 127.0.0.1:9"), "{output}");
}
