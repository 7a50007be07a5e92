//! The real binary on buses that are processes of their own: what a kill leaves is found there, the
//! control stream loses nothing, and the bench measures what is there afterwards.

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
use crate::support::ingest::{PUSH, RUN, STREAM, decided, envelope, gist, push};
use crate::support::intents::admit;
#[cfg(feature = "kafka")]
use crate::support::intents::admit_with;
use crate::support::machine::text;
use crate::support::pack::golden;
use crate::support::{self, SOON, until};

const CONTROL: &str = "fp.bus.control.v1";

/// A config with this bus, beside the data folder.
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
fn what_was_on_its_way_to_nats_when_the_gate_was_killed_is_found_there() {
    let Some(server) = Nats::start() else { return };
    let runtime = Runtime::new().unwrap();
    let direct = runtime.block_on(NatsBus::open(Options::new(server.url()), &[])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let proxy = Proxy::to(server.address(), Faults::default(), 1).unwrap();
    let gate = gate_on(&data, &config(folder.path(), &format!("nats://{}", proxy.address())));
    for n in 1..=3 {
        let (decision, receipt) = decided(&push(&mut gate.client(), &envelope(n)));
        assert_eq!(decision, "ADMIT");
        assert_eq!(receipt["eb_ref"]["offset_kind"], "nats_sequence");
        assert_eq!(receipt["eb_ref"]["offset"], n.to_string().as_str());
    }
    assert!(gate.stderr().contains("whether nats syncs before it acknowledges"), "it is said");
    proxy.set_faults(Faults { lose_answers: true, ..Faults::default() });
    thread::scope(|scope| {
        let mut client = gate.client();
        scope.spawn(move || client.send("POST", PUSH, &[], envelope(4).to_string().as_bytes()));
        until("it is on the bus", SOON, || (ids(&runtime, &direct).len() == 4).then_some(()));
        gate.kill();
    });
    let config = config(folder.path(), &server.url());
    let gate = gate_on(&data, &config);
    assert_eq!(gist(&push(&mut gate.client(), &envelope(4))), "QUARANTINE PUBLISH_AMBIGUOUS");
    let listen = gate.address().to_string();
    let (ok, listed) = admit(&["reconcile", "--run", RUN, "--listen", &listen]);
    assert!(ok && listed.contains("found"), "{listed}");
    let all = ["reconcile", "--all", "--found", "--yes", "--listen", &listen];
    let (ok, said) = admit(&[&all[..], &["--reason", "the gate was killed"]].concat());
    assert!(ok, "{said}");
    assert_eq!(gist(&push(&mut gate.client(), &envelope(4))), "DUPLICATE DUPLICATE");
    assert_eq!(ids(&runtime, &direct), ["event-1", "event-2", "event-3", "event-4"]);
    let (agrees, said) = admit(&["verify", "--data", text(&data), "--config", text(&config)]);
    assert!(agrees, "{said}");
    gate.stop();
}

#[test]
fn a_bus_that_is_not_there_is_said_at_the_start_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "nats://me:hush@127.0.0.1:9");
    let launch = Launch::on(&folder.path().join("data")).argument("--config").argument(&config);
    let ended = launch.start_in_vain();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("nats is not reachable at 127.0.0.1:9"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hush"), "{}", ended.stderr);
}

/// Says READY, of facts that are there or not.
fn announce(runtime: &Runtime, bus: &dyn Bus, facts: &str, message_id: &str) {
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

/// What one look at the control stream came to, by message.
fn looked(data: &Path, gate: &str, config: &Path) -> Vec<String> {
    let more = ["--config", text(config)];
    let output = admit_stream(data, gate, &more).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    let told = |one: &Value| {
        let id = one["message_id"].as_str().unwrap();
        format!("{} {}", &id[..2], one["status"].as_str().unwrap())
    };
    said["messages"].as_array().unwrap().iter().map(told).collect()
}

/// A message that fails and one that is deferred stay where they are, while others are dealt with.
fn nothing_is_lost_on(url: &str, bus: &dyn Bus) {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = config(folder.path(), url);
    let gate = gate_on(&data, &config);
    let address = format!("http://{}", gate.address());
    let missing = FACTS.replace("1.json", "2.json");
    put_facts(&runtime, &data, FACTS);
    announce(&runtime, bus, &missing, &"aa".repeat(32));
    announce(&runtime, bus, FACTS, &"bb".repeat(32));
    let nowhere = looked(&data, "http://127.0.0.1:9", &config);
    assert_eq!(nowhere, ["aa FAILED", "bb DEFERRED_DOWNSTREAM_NOT_READY"]);
    assert_eq!(looked(&data, &address, &config), ["aa FAILED", "bb STREAMED"]);
    announce(&runtime, bus, FACTS, &"cc".repeat(32));
    let third = looked(&data, &address, &config);
    assert_eq!(third, ["aa FAILED", "bb SKIPPED_DUPLICATE", "cc STREAMED"]);
    put_facts(&runtime, &data, &missing);
    let mended = looked(&data, &address, &config);
    assert_eq!(mended, ["aa STREAMED", "bb SKIPPED_DUPLICATE", "cc SKIPPED_DUPLICATE"]);
    assert_eq!(looked(&data, &address, &config), [""; 0], "the position has moved past them");
    gate.stop();
}

#[test]
fn the_control_stream_on_nats_loses_nothing() {
    let Some(server) = Nats::start() else { return };
    let runtime = Runtime::new().unwrap();
    let topics = [CONTROL.to_owned()];
    let opening = NatsBus::open(Options::new(server.url()), &topics);
    let bus = runtime.block_on(opening).unwrap();
    nothing_is_lost_on(&server.url(), &bus);
}

/// Every topic that a gate with the shipped policy publishes to.
fn topics() -> BTreeSet<String> {
    let policy = IngestionPolicy::shipped();
    policy.topics().into_iter().chain([AUDIT_TOPIC, CONTROL]).map(str::to_owned).collect()
}

/// Brokers in this process, with every topic.
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
    nothing_is_lost_on(&format!("kafka://{servers}"), &bus);
}

/// Runs `admit bench --bus` for a second; what it measured, by line.
fn bench(url: &str, config: &Path) -> Value {
    let arguments = ["bench", "--bus", url, "--config", text(config), "--seconds", "1", "--json"];
    let ended = support::gate::admit(arguments).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).unwrap()
}

/// The bench measured files and this bus, and whatever it counted is there.
fn is_measured_on(url: &str, bus: &dyn Bus) {
    let folder = tempfile::tempdir().unwrap();
    let measured = bench(url, &config(folder.path(), url));
    for line in ["publish", "publish_bus"] {
        assert!(measured[line]["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{measured}");
    }
    let counted = measured["publish_bus"]["count"].as_u64().unwrap();
    let runtime = Runtime::new().unwrap();
    let there: u64 = topics().iter().map(|topic| length(&runtime, bus, topic)).sum();
    assert!(counted > 0 && there >= counted, "{there} are on the bus: {measured}");
}

/// How many messages the first partition of a topic has, read in pieces.
fn length(runtime: &Runtime, bus: &dyn Bus, topic: &str) -> u64 {
    let (mut length, mut from) = (0, String::new());
    loop {
        let records = runtime.block_on(bus.read(topic, 0, &from, 10_000)).unwrap();
        let Some(last) = records.last() else { return length };
        length += records.len() as u64;
        from = (last.reference.offset.parse::<u64>().unwrap() + 1).to_string();
    }
}

#[test]
fn the_bench_on_nats_measures_what_is_there_afterwards() {
    let Some(server) = Nats::start() else { return };
    let runtime = Runtime::new().unwrap();
    let bus = runtime.block_on(NatsBus::open(Options::new(server.url()), &[])).unwrap();
    is_measured_on(&server.url(), &bus);
}

#[cfg(feature = "kafka")]
#[test]
fn the_bench_on_kafka_measures_what_is_there_afterwards() {
    use admit_bus::kafka::{KafkaBus, Options};
    let cluster = cluster();
    let servers = cluster.bootstrap_servers();
    let runtime = Runtime::new().unwrap();
    let bus = runtime.block_on(KafkaBus::open(Options::new(&servers), &[])).unwrap();
    is_measured_on(&format!("kafka://{servers}"), &bus);
}

#[cfg(feature = "kafka")]
#[test]
fn a_bench_without_its_topics_says_which_one_is_missing_and_what_to_do() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("some.other.v1", 1, 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("kafka://{}", cluster.bootstrap_servers());
    let config = config(folder.path(), &url);
    let (ok, said) = admit(&["bench", "--bus", &url, "--config", text(&config), "--seconds", "1"]);
    assert!(!ok && said.contains("does not exist; create it"), "{said}");
    assert!(said.contains("bus.kafka.create_topics"), "{said}");
    assert!(!said.contains("per second"), "nothing was measured before: {said}");
}

#[cfg(feature = "kafka")]
#[test]
fn a_bench_without_brokers_says_where_it_looked_for_them() {
    let variables = [("ADMIT_BUS__KAFKA__REQUEST_TIMEOUT_MS", "1000".to_owned())];
    let url = "kafka://127.0.0.1:9";
    let (ok, said) = admit_with(&["bench", "--bus", url, "--seconds", "1"], &variables);
    assert!(!ok && said.contains("no kafka broker answers at 127.0.0.1:9"), "{said}");
}
