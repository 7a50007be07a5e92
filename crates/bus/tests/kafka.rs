//! Kafka bus on librdkafka's mock cluster: real clients and sockets, brokers without a disk.
//! Behaviour specific to a real cluster is not covered.
#![cfg(feature = "kafka")]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use admit_bus::kafka::{KafkaBus, MockCluster as Cluster, OpenError, Options};
use admit_bus::{Bus, BusHealth, Message, OffsetKind, PublishOutcome, SearchResult};
use admit_testkit::bus_suite::{self, AT, BusHome, commit, message, sought};
use futures_util::FutureExt as _;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::{RDKafkaApiKey as ApiKey, RDKafkaRespErr as Error};

/// Separate topics per home on a shared cluster.
struct OnKafka {
    cluster: Rc<Cluster>,
    prefix: String,
}

impl BusHome for OnKafka {
    fn open(&self) -> Arc<dyn Bus> {
        let options = Options {
            topic_prefix: self.prefix.clone(),
            // The mock does not support reading topic settings.
            request_timeout: Duration::from_secs(1),
            ..Options::new(self.cluster.bootstrap_servers())
        };
        let opened = KafkaBus::open(options, &[]).now_or_never().expect("it waits for nothing");
        Arc::new(opened.expect("a bus"))
    }

    fn topic(&self, name: &str) -> String {
        let topic = format!("suite.{name}.v1");
        // It may exist already.
        drop(self.cluster.create_topic(&format!("{}{topic}", self.prefix), 3, 2));
        topic
    }
}

#[tokio::test]
async fn the_kafka_bus_passes_the_contract_suite() {
    let cluster = Rc::new(Cluster::new(3).unwrap());
    let homes = AtomicU32::new(0);
    bus_suite::all(|| {
        let prefix = format!("home{}.", homes.fetch_add(1, Ordering::Relaxed));
        Box::new(OnKafka { cluster: Rc::clone(&cluster), prefix })
    })
    .await;
}

const TOPIC: &str = "suite.trouble.v1";

fn cluster() -> Cluster {
    let cluster = Cluster::new(1).expect("a cluster");
    cluster.create_topic(TOPIC, 1, 1).expect("a topic");
    cluster
}

async fn open(cluster: &Cluster) -> KafkaBus {
    let options = Options {
        delivery_timeout: Duration::from_secs(3),
        request_timeout: Duration::from_secs(2),
        ..Options::new(cluster.bootstrap_servers())
    };
    KafkaBus::open(options, &[TOPIC.to_owned()]).await.expect("a bus")
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_missing_acknowledgement_is_unknown_and_the_message_is_found_once() {
    let cluster = cluster();
    let bus = open(&cluster).await;
    commit(&bus, vec![message(TOPIC, "k", "before", AT)]).await;
    // The broker stores it at once and acknowledges long after the timeout.
    cluster.broker_round_trip_time(1, Duration::from_secs(4)).unwrap();
    let outcomes = bus.publish(vec![message(TOPIC, "k", "cut", AT)]).await;
    assert!(matches!(&outcomes[..], [PublishOutcome::Unknown { .. }]), "{outcomes:?}");
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    let query = || bus.find(vec![sought(TOPIC, "k", "cut", AT)]);
    until("the broker outcomes again", async || {
        matches!(&query().await[..], [SearchResult::Found(_)])
    })
    .await;
    match &query().await[..] {
        [SearchResult::Found(there)] => {
            let place = (there[0].offset.as_str(), there[0].offset_kind);
            assert_eq!((there.len(), place), (1, ("1", OffsetKind::KafkaOffset)));
        }
        other => panic!("{other:?}"),
    }
    let all = bus.read(TOPIC, 0, "", 10).await.unwrap();
    assert_eq!(all.len(), 2, "nothing was published twice");
}

#[tokio::test]
async fn retriable_broker_errors_store_each_message_once() {
    let cluster = cluster();
    let bus = open(&cluster).await;
    let errors = [
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
    ];
    cluster.request_errors(ApiKey::Produce, &errors);
    let batch: Vec<Message> = (0..20).map(|n| message(TOPIC, "k", &format!("n{n}"), AT)).collect();
    let references = commit(&bus, batch).await;
    let offsets: Vec<&str> = references.iter().map(|one| one.offset.as_str()).collect();
    let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(offsets, expected, "the library retries, the broker deduplicates");
}

#[tokio::test]
async fn an_error_after_enqueueing_is_unknown() {
    let cluster = cluster();
    let bus = open(&cluster).await;
    cluster.broker_down(1).unwrap();
    let outcomes = bus.publish(vec![message(TOPIC, "k", "a", AT)]).await;
    assert!(matches!(&outcomes[..], [PublishOutcome::Unknown { .. }]), "{outcomes:?}");
    assert!(matches!(bus.health(&[TOPIC.to_owned()]).await, BusHealth::Down { .. }));
    let found = bus.find(vec![sought(TOPIC, "k", "a", AT)]).await;
    assert!(matches!(&found[..], [SearchResult::Unknown { .. }]), "{found:?}");
    cluster.broker_up(1).unwrap();
    let topics = [TOPIC.to_owned()];
    until("the bus is up again", async || bus.health(&topics).await == BusHealth::Up).await;
    commit(&bus, vec![message(TOPIC, "k", "b", AT)]).await;
    let found = bus.find(vec![sought(TOPIC, "k", "a", AT)]).await;
    assert_eq!(found, [SearchResult::Absent], "it timed out before a broker had it");
}

#[tokio::test]
async fn messages_rejected_by_the_library_are_not_written_and_fail_alone() {
    let cluster = cluster();
    let bus = open(&cluster).await;
    let large = Message { payload: vec![b' '; 2 << 20].into(), ..message(TOPIC, "k", "l", AT) };
    let batch = vec![message(TOPIC, "k", "a", AT), large, message(TOPIC, "k", "b", AT)];
    let outcomes = bus.publish(batch).await;
    let [
        PublishOutcome::Committed(_),
        PublishOutcome::NotWritten { .. },
        PublishOutcome::Committed(_),
    ] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
}

#[tokio::test]
async fn tls_is_built_in_or_refused() {
    let options = Options { security: "ssl".to_owned(), ..Options::new("127.0.0.1:1") };
    let opened = KafkaBus::open(options, &[]).await;
    let is_refused = matches!(opened, Err(OpenError::Settings(_)));
    assert_eq!(is_refused, !cfg!(feature = "kafka-tls"), "{opened:?}");
}

#[tokio::test]
async fn without_a_cluster_opening_fails_with_the_topic() {
    let options =
        Options { request_timeout: Duration::from_millis(300), ..Options::new("127.0.0.1:1") };
    let refused = KafkaBus::open(options, &[TOPIC.to_owned()]).await;
    let Err(OpenError::Topic { topic, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(topic, TOPIC);
}

/// Publishes a record of another producer: no dedupe key, and an arbitrary timestamp.
fn publish_foreign(cluster: &Cluster, stamped: i64) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .create()
        .expect("a producer");
    let record = BaseRecord::to(TOPIC).partition(0).key("k").payload("theirs").timestamp(stamped);
    producer.send(record).map_err(|(error, _)| error).expect("it is taken");
    producer.flush(Duration::from_secs(10)).expect("it is sent");
}

#[tokio::test]
async fn foreign_timestamps_do_not_limit_a_search() {
    let cluster = cluster();
    let bus = open(&cluster).await;
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    publish_foreign(&cluster, AT + DAY);
    commit(&bus, vec![message(TOPIC, "k", "ours", AT)]).await;
    publish_foreign(&cluster, AT - DAY);
    let found = bus.find(vec![sought(TOPIC, "k", "ours", AT)]).await;
    assert!(
        matches!(&found[..], [SearchResult::Found(there)] if there[0].offset == "1"),
        "{found:?}"
    );
    let found = bus.find(vec![sought(TOPIC, "k", "never published", AT)]).await;
    assert_eq!(found, [SearchResult::Absent]);
}

#[tokio::test]
async fn searching_a_missing_topic_is_unknown() {
    let cluster = cluster();
    let bus = open(&cluster).await;
    let found = bus.find(vec![sought("suite.gone.v1", "k", "a", AT)]).await;
    let [SearchResult::Unknown { reason }] = &found[..] else { panic!("{found:?}") };
    assert!(reason.contains("suite.gone.v1 does not exist"), "{reason}");
    assert_eq!(
        bus.read("suite.gone.v1", 0, "", 10).await.unwrap(),
        [],
        "a missing topic reads as empty"
    );
}
