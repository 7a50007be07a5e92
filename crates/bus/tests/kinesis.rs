//! Kinesis bus: the contract suite on two emulators, and unknown outcomes.
#![cfg(feature = "kinesis")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admit_bus::kinesis::{KinesisBus, KinesisKeys, MARK, OpenError, Options};
use admit_bus::{Bus, BusError, BusHealth, Message, PublishOutcome, SearchResult};
use admit_core::{Clock, Millis};
use admit_testkit::bus_suite::{self, BusHome, commit, dedupe_key, message, sought};
use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::{KinesisLocal, Moto};
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_kinesis::primitives::Blob;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

struct MachineClock;

impl Clock for MachineClock {
    #[expect(clippy::disallowed_methods, reason = "servers stamp records by their own clock")]
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Millis(i64::try_from(since.as_millis()).expect("before the year 292 million"))
    }
}

fn options(address: SocketAddr, prefix: &str) -> Options {
    Options {
        region: Some("eu-central-1".to_owned()),
        endpoint: Some(format!("http://{address}")),
        keys: Some(KinesisKeys::new("suite-access-key", "suite-secret-key")),
        stream_prefix: prefix.to_owned(),
        create_streams: true,
        shards: 3,
        ..Options::new(Arc::new(MachineClock))
    }
}

/// A separate client, for operations that the bus does not have.
fn client(address: SocketAddr) -> Client {
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("suite", "suite", None, None, "suite"))
        .endpoint_url(format!("http://{address}"));
    Client::from_conf(config.build())
}

fn proxy(upstream: SocketAddr) -> Proxy {
    let made = std::thread::spawn(move || Proxy::to(upstream, Faults::default(), 1));
    made.join().expect("it does not panic").expect("a proxy")
}

async fn open(options: Options, topics: &[&str]) -> KinesisBus {
    let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    KinesisBus::open(options, &topics).await.expect("it opens")
}

struct Streams {
    address: SocketAddr,
    requests_max: usize,
    prefix: String,
}

impl Streams {
    fn open_with(&self, topics: &[&str]) -> KinesisBus {
        let requests_max = self.requests_max;
        let options = Options { requests_max, ..options(self.address, &self.prefix) };
        let opened = open(options, topics);
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opened))
    }
}

impl BusHome for Streams {
    fn open(&self) -> Arc<dyn Bus> {
        Arc::new(self.open_with(&[]))
    }

    fn topic(&self, name: &str) -> String {
        let topic = format!("suite.{name}.v1");
        drop(self.open_with(&[&topic]));
        topic
    }

    fn at(&self) -> i64 {
        MachineClock.now().0
    }
}

/// Separate stream prefix per home on a shared server.
fn homes(address: SocketAddr, requests_max: usize) -> impl Fn() -> Box<dyn BusHome> {
    let next = AtomicU32::new(0);
    move || {
        let n = next.fetch_add(1, Ordering::Relaxed);
        Box::new(Streams { address, requests_max, prefix: format!("home{n}-") })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kinesis_bus_passes_the_contract_suite_on_moto() {
    let Some(server) = Moto::start() else { return };
    // With concurrent requests moto assigns two records one sequence number, and keeps one of them.
    bus_suite::all(homes(server.address(), 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kinesis_bus_passes_the_contract_suite_on_kinesis_local() {
    let Some(server) = KinesisLocal::start() else { return };
    bus_suite::all(homes(server.address(), 8)).await;
}

const TOPIC: &str = "fp.bus.traffic.v1";

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_is_unknown_and_the_message_is_found_once() {
    let Some(server) = KinesisLocal::start() else { return };
    let between = proxy(server.address());
    let cut = Options { request_timeout: Duration::from_secs(4), ..options(between.address(), "") };
    let bus = open(cut, &[TOPIC]).await;
    let at = MachineClock.now().0;
    commit(&bus, vec![message(TOPIC, "k", "before", at)]).await;
    between.set_faults(Faults { lose_answers: true, ..Faults::default() });
    let published = bus.publish(vec![message(TOPIC, "k", "cut", at)]).await;
    assert!(matches!(published[..], [PublishOutcome::Unknown { .. }]), "{published:?}");
    let cannot = bus.find(vec![sought(TOPIC, "k", "cut", at)]).await;
    assert!(matches!(cannot[..], [SearchResult::Unknown { .. }]), "{cannot:?}");
    assert!(bus.read(TOPIC, 0, "", 1).await.is_err());
    between.set_faults(Faults::default());
    between.cut_all();
    match &bus.find(vec![sought(TOPIC, "k", "cut", at)]).await[..] {
        [SearchResult::Found(found)] => assert_eq!(found.len(), 1, "it was not resent: {found:?}"),
        other => panic!("{other:?}"),
    }
    commit(&bus, vec![message(TOPIC, "k", "after", at)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_proves_that_nothing_was_written() {
    let Some(server) = KinesisLocal::start() else { return };
    let bus = open(options(server.address(), ""), &[TOPIC]).await;
    drop(server);
    let at = MachineClock.now().0;
    let published = bus.publish(vec![message(TOPIC, "k", "a", at)]).await;
    match &published[..] {
        [PublishOutcome::NotWritten { reason }] => assert!(!reason.contains("secret"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(bus.health(&[TOPIC.to_owned()]).await, BusHealth::Down { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_stream_is_refused_at_startup_and_by_every_publish() {
    let Some(server) = Moto::start() else { return };
    let strict = Options { create_streams: false, ..options(server.address(), "prod-") };
    let refused = KinesisBus::open(strict.clone(), &[TOPIC.to_owned()]).await;
    let Err(OpenError::NoStream { stream, topic }) = refused else { panic!("it opened") };
    assert_eq!((&*stream, &*topic), ("prod-fp.bus.traffic.v1", TOPIC));
    let bus = open(strict, &[]).await;
    let at = MachineClock.now().0;
    let published = bus.publish(vec![message(TOPIC, "k", "a", at)]).await;
    assert!(matches!(published[..], [PublishOutcome::NotWritten { .. }]), "{published:?}");
    let found = bus.find(vec![sought(TOPIC, "k", "a", at)]).await;
    assert!(matches!(found[..], [SearchResult::Unknown { .. }]), "it may have existed: {found:?}");
    assert_eq!(bus.read(TOPIC, 0, "", 10).await.expect("readable"), []);
    assert!(matches!(bus.health(&[TOPIC.to_owned()]).await, BusHealth::Down { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_topics_never_share_a_stream() {
    let Some(server) = Moto::start() else { return };
    let mut shared = options(server.address(), "");
    shared.streams.insert("other.v1".to_owned(), TOPIC.to_owned());
    let refused = KinesisBus::open(shared, &[TOPIC.to_owned()]).await;
    assert!(matches!(refused, Err(OpenError::SharedStream { .. })));
    let mut named = options(server.address(), "");
    named.streams.insert(TOPIC.to_owned(), "elsewhere".to_owned());
    let bus = open(named, &[TOPIC]).await;
    let references = commit(&bus, vec![message(TOPIC, "k", "a", MachineClock.now().0)]).await;
    assert_eq!(references[0].topic, TOPIC, "receipts name the topic");
    let listed = client(server.address()).list_streams().send().await.expect("listed");
    assert_eq!(listed.stream_names(), ["elsewhere"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_envelope_is_the_data_and_foreign_records_are_read_unchanged() {
    let Some(server) = Moto::start() else { return };
    let bus = open(Options { shards: 1, ..options(server.address(), "") }, &[TOPIC]).await;
    let at = MachineClock.now().0;
    let sent = message(TOPIC, "k", "a", at);
    commit(&bus, vec![sent.clone()]).await;
    let foreign = client(server.address()).put_record().stream_name(TOPIC);
    let foreign = foreign.partition_key("theirs").data(Blob::new("not even json"));
    foreign.send().await.expect("put");
    let records = bus.read(TOPIC, 0, "", 10).await.expect("readable");
    let [ours, theirs] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&ours.payload, &*ours.partition_key), (&sent.payload, "k"));
    assert_eq!(ours.dedupe_key, Some(dedupe_key("a")));
    assert!(ours.reference.published_at.is_some_and(|then| (then.0 - at).abs() < 60_000));
    assert_eq!((&theirs.payload[..], &*theirs.partition_key), (&b"not even json"[..], "theirs"));
    assert_eq!(theirs.dedupe_key, None);
    assert!(format!("k{MARK}").starts_with("k|"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_stream_keeps_its_partitions_and_is_searched_in_all() {
    let Some(server) = KinesisLocal::start() else { return };
    let bus = open(Options { shards: 1, ..options(server.address(), "") }, &[TOPIC]).await;
    let at = MachineClock.now().0;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let named = |name: &str| -> Vec<Message> {
        keys.iter().map(|key| message(TOPIC, key, &format!("{key}-{name}"), at)).collect()
    };
    let before = commit(&bus, named("before")).await;
    let client = client(server.address());
    let split = client.split_shard().stream_name(TOPIC).shard_to_split("shardId-000000000000");
    split.new_starting_hash_key((1_u128 << 127).to_string()).send().await.expect("split");
    // During the split the stream is updating, and still accepts messages.
    let begun = std::time::Instant::now();
    let after = loop {
        let after = commit(&bus, named("after")).await;
        if after.iter().all(|reference| reference.partition > 0) {
            break after;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{after:?}");
    };
    assert!(before.iter().all(|reference| reference.partition == 0));
    let partitions: std::collections::BTreeSet<u32> = after.iter().map(|r| r.partition).collect();
    assert_eq!(partitions.into_iter().collect::<Vec<_>>(), [1, 2]);
    for (name, references) in [("before", &before), ("after", &after)] {
        let searches = keys.map(|key| sought(TOPIC, key, &format!("{key}-{name}"), at));
        for (found, reference) in bus.find(searches.into()).await.iter().zip(references) {
            let SearchResult::Found(found) = found else { panic!("{name}: {found:?}") };
            let last = found.last().expect("never empty");
            assert_eq!((last.partition, &last.offset), (reference.partition, &reference.offset));
        }
    }
    let closed = bus.read(TOPIC, 0, "", 100).await.expect("a closed shard is still read");
    assert!(closed.len() >= keys.len());
    let beyond = bus.read(TOPIC, 3, "", 100).await;
    assert!(matches!(beyond, Err(BusError::NoSuchPartition { partition: 3, .. })), "{beyond:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_queued_message_is_not_sent() {
    let Some(server) = KinesisLocal::start() else { return };
    let between = proxy(server.address());
    let slow =
        Options { request_timeout: Duration::from_secs(4), ..options(between.address(), "") };
    let bus = open(slow, &[TOPIC]).await;
    let at = MachineClock.now().0;
    commit(&bus, vec![message(TOPIC, "k", "before", at)]).await;
    between.set_faults(Faults { lose_answers: true, ..Faults::default() });
    let mut first = bus.publish(vec![message(TOPIC, "k", "first", at)]);
    let second = bus.publish(vec![message(TOPIC, "k", "second", at)]);
    // The first is in flight; the second is queued behind it, and abandoned.
    let poll = Duration::from_millis(200);
    assert!(tokio::time::timeout(poll, &mut first).await.is_err());
    assert!(tokio::time::timeout(poll, second).await.is_err());
    assert!(matches!(first.await[..], [PublishOutcome::Unknown { .. }]));
    between.set_faults(Faults::default());
    between.cut_all();
    let found =
        bus.find(vec![sought(TOPIC, "k", "first", at), sought(TOPIC, "k", "second", at)]).await;
    assert!(
        matches!(&found[..], [SearchResult::Found(at), SearchResult::Absent] if at.len() == 1),
        "{found:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn searching_beyond_retention_is_unknown() {
    let Some(server) = Moto::start() else { return };
    struct ClockAfterRetention;
    impl Clock for ClockAfterRetention {
        fn now(&self) -> Millis {
            Millis(MachineClock.now().0 + 48 * 3_600_000)
        }
    }
    let later = Options { clock: Arc::new(ClockAfterRetention), ..options(server.address(), "") };
    let bus = open(later, &[TOPIC]).await;
    let found = bus.find(vec![sought(TOPIC, "k", "a", MachineClock.now().0)]).await;
    assert!(matches!(found[..], [SearchResult::Unknown { .. }]), "{found:?}");
}

/// Responses of Kinesis while it deletes a stream: the shard is still listed, and gone.
fn response_during_deletion(target: &str) -> (&'static str, String) {
    match target {
        "ListShards" => (
            "200 OK",
            format!(
                r#"{{"Shards":[{{"ShardId":"shardId-000000000000","HashKeyRange":{{"StartingHashKey":"0","EndingHashKey":"{}"}},"SequenceNumberRange":{{"StartingSequenceNumber":"1"}}}}]}}"#,
                u128::MAX
            ),
        ),
        "DescribeStreamSummary" => (
            "200 OK",
            format!(
                r#"{{"StreamDescriptionSummary":{{"StreamName":"s","StreamARN":"arn:s","StreamStatus":"DELETING","RetentionPeriodHours":24,"StreamCreationTimestamp":{},"EnhancedMonitoring":[],"OpenShardCount":1}}}}"#,
                MachineClock.now().0 / 1_000
            ),
        ),
        _ => (
            "400 Bad Request",
            r#"{"__type":"ResourceNotFoundException","message":"gone"}"#.to_owned(),
        ),
    }
}

/// Serves every request on its own connection.
async fn serve_deletion(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = Vec::new();
        let mut head = String::new();
        while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&request).to_lowercase();
            let Some((before, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = before.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().expect("a number")) {
                head = String::from_utf8_lossy(&request).into_owned();
                break;
            }
        }
        let target = head.split("Kinesis_20131202.").nth(1).and_then(|rest| rest.lines().next());
        let (status, body) = response_during_deletion(target.unwrap_or_default().trim());
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.1\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(response.as_bytes()).await.expect("it is read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_deleted_during_a_search_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bus = open(options(listener.local_addr().unwrap(), ""), &[]).await;
    let find = bus.find(vec![sought("suite.gone.v1", "k", "a", MachineClock.now().0)]);
    let found = tokio::select! {
        found = find => found,
        () = serve_deletion(listener) => panic!("the listener failed"),
    };
    let [SearchResult::Unknown { reason }] = &found[..] else { panic!("{found:?}") };
    assert!(reason.contains("shardId-000000000000 is gone"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn searching_before_a_stream_was_created_is_unknown() {
    let Some(server) = KinesisLocal::start() else { return };
    let bus = open(options(server.address(), "made-"), &["suite.made.v1"]).await;
    // It may have been in a deleted stream of that name.
    let earlier = MachineClock.now().0 - 600_000;
    let found = bus.find(vec![sought("suite.made.v1", "k", "a", earlier)]).await;
    let [SearchResult::Unknown { reason }] = &found[..] else { panic!("{found:?}") };
    assert!(reason.contains("created after that time"), "{reason}");
    let found = bus.find(vec![sought("suite.made.v1", "k", "a", MachineClock.now().0)]).await;
    assert_eq!(found, [SearchResult::Absent]);
}
