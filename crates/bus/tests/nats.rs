//! NATS bus on a real server: the contract suite, and the effects of cut connections and killed
//! servers.
#![cfg(feature = "nats")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use admit_bus::nats::{Auth, NatsBus, OpenError, Options};
use admit_bus::{Bus, BusHealth, Message, OffsetKind, PublishOutcome, SearchResult};
use admit_core::Millis;
use admit_testkit::bus_suite::{self, BusHome, commit, message, sought};
use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::Nats;
use tokio::time::sleep;

fn now() -> i64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    i64::try_from(since.as_millis()).expect("a time")
}

/// Separate streams per home on a shared server.
struct OnNats {
    url: String,
    prefix: String,
    at: i64,
}

impl OnNats {
    /// Opens a bus with the streams of these topics.
    fn open_with(&self, topics: &[String]) -> NatsBus {
        let options = Options {
            stream_prefix: self.prefix.clone(),
            subject_prefix: format!("{}.", self.prefix),
            ..Options::new(&self.url)
        };
        // The suite opens a bus in a synchronous function.
        let opened = std::thread::scope(|scope| {
            let open = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(NatsBus::open(options, topics))
            };
            scope.spawn(open).join().expect("no panic")
        });
        opened.expect("a bus")
    }
}

impl BusHome for OnNats {
    fn open(&self) -> Arc<dyn Bus> {
        Arc::new(self.open_with(&[]))
    }

    fn topic(&self, name: &str) -> String {
        let topic = format!("suite.{name}.v1");
        drop(self.open_with(std::slice::from_ref(&topic)));
        topic
    }

    fn at(&self) -> i64 {
        self.at
    }

    fn keeps_copies(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn the_nats_bus_passes_the_contract_suite() {
    let Some(server) = Nats::start() else { return };
    let homes = AtomicU32::new(0);
    bus_suite::all(|| {
        let prefix = format!("home{}", homes.fetch_add(1, Ordering::Relaxed));
        Box::new(OnNats { url: server.url(), prefix, at: now() })
    })
    .await;
}

const TOPIC: &str = "suite.trouble.v1";

async fn open(url: &str) -> NatsBus {
    let options = Options { ack_timeout: Duration::from_millis(500), ..Options::new(url) };
    NatsBus::open(options, &[TOPIC.to_owned()]).await.expect("a bus")
}

/// Polls until the condition holds.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not happen");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn is_there(bus: &NatsBus, name: &str) -> bool {
    let found = bus.find(vec![sought(TOPIC, "k", name, now())]).await;
    matches!(&found[..], [SearchResult::Found(there)] if there.len() == 1)
}

#[tokio::test]
async fn a_cut_before_the_acknowledgement_is_unknown_and_the_message_is_found_once() {
    let Some(server) = Nats::start() else { return };
    let proxy = Proxy::to(server.address(), Faults::default(), 1).unwrap();
    let direct = open(&server.url()).await;
    let bus = Arc::new(open(&format!("nats://{}", proxy.address())).await);
    commit(&*bus, vec![message(TOPIC, "k", "before", now())]).await;
    proxy.set_faults(Faults { lose_answers: true, ..Faults::default() });
    let cut = async {
        until("the message lands", async || is_there(&direct, "cut").await).await;
        proxy.cut_all();
    };
    let (outcomes, ()) = tokio::join!(bus.publish(vec![message(TOPIC, "k", "cut", now())]), cut);
    assert!(matches!(&outcomes[..], [PublishOutcome::Unknown { .. }]), "{outcomes:?}");
    proxy.set_faults(Faults::default());
    let healthy = async || bus.health(&[TOPIC.to_owned()]).await == BusHealth::Up;
    until("the bus is connected again", healthy).await;
    assert!(is_there(&bus, "cut").await, "it is there, once");
    // Publishing it again returns the first one's reference.
    let again = commit(&*bus, vec![message(TOPIC, "k", "cut", now())]).await;
    match &bus.find(vec![sought(TOPIC, "k", "cut", now())]).await[..] {
        [SearchResult::Found(there)] => assert_eq!(there[0].offset, again[0].offset),
        other => panic!("{other:?}"),
    }
    assert_eq!(bus.read(TOPIC, 0, "", 10).await.unwrap().len(), 2, "nothing was published twice");
}

#[tokio::test]
async fn a_publish_timeout_is_unknown_and_never_sent_later() {
    let Some(server) = Nats::start() else { return };
    let proxy = Proxy::to(server.address(), Faults::default(), 1).unwrap();
    let bus = open(&format!("nats://{}", proxy.address())).await;
    let direct = open(&server.url()).await;
    // Stalled on the way to the server, longer than the timeout.
    let stall = Duration::from_secs(3);
    proxy.set_faults(Faults { stall_one_in: 1, stall, ..Faults::default() });
    let begun = Instant::now();
    let outcomes = bus.publish(vec![message(TOPIC, "k", "late", now())]).await;
    assert!(matches!(&outcomes[..], [PublishOutcome::Unknown { .. }]), "{outcomes:?}");
    assert!(begun.elapsed() < stall, "the timeout did not wait for the network");
    proxy.set_faults(Faults::default());
    until("a new connection", async || bus.health(&[TOPIC.to_owned()]).await == BusHealth::Up)
        .await;
    commit(&bus, vec![message(TOPIC, "k", "next", now())]).await;
    let there = direct.read(TOPIC, 0, "", 10).await.unwrap();
    assert!(there.len() <= 2, "{there:?}");
}

#[tokio::test]
async fn without_a_server_nothing_is_written_and_offsets_continue_after_a_kill() {
    let Some(mut server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let first = commit(&bus, vec![message(TOPIC, "k", "first", now())]).await;
    assert_eq!((first[0].offset.as_str(), first[0].offset_kind), ("1", OffsetKind::NatsSequence));
    server.kill();
    let topics = [TOPIC.to_owned()];
    until("the loss is noticed", async || bus.health(&topics).await != BusHealth::Up).await;
    let outcomes = bus.publish(vec![message(TOPIC, "k", "nowhere", now())]).await;
    assert!(matches!(&outcomes[..], [PublishOutcome::NotWritten { .. }]), "{outcomes:?}");
    let found = bus.find(vec![sought(TOPIC, "k", "first", now())]).await;
    assert!(matches!(&found[..], [SearchResult::Unknown { .. }]), "{found:?}");
    assert!(bus.read(TOPIC, 0, "", 1).await.is_err());
    server.restart();
    until("the bus is connected again", async || bus.health(&topics).await == BusHealth::Up).await;
    let second = commit(&bus, vec![message(TOPIC, "k", "second", now())]).await;
    assert_eq!(second[0].offset, "2", "acknowledged messages survive a kill");
    let found = bus.find(vec![sought(TOPIC, "k", "nowhere", now())]).await;
    assert_eq!(found, [SearchResult::Absent]);
}

#[tokio::test]
async fn a_message_that_is_too_large_fails_alone() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let large =
        Message { payload: vec![b' '; 2 << 20].into(), ..message(TOPIC, "k", "large", now()) };
    let batch = vec![message(TOPIC, "k", "a", now()), large, message(TOPIC, "k", "b", now())];
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
async fn a_full_stream_refuses_new_messages_and_reports_down() {
    let Some(server) = Nats::start() else { return };
    let options = Options { stream_bytes_max: Some(4_096), ..Options::new(server.url()) };
    let bus = NatsBus::open(options, &[TOPIC.to_owned()]).await.expect("a bus");
    let (mut committed, mut refused) = (0, None);
    for n in 0..100 {
        match &bus.publish(vec![message(TOPIC, "k", &format!("n{n}"), now())]).await[..] {
            [PublishOutcome::Committed(_)] => committed += 1,
            [PublishOutcome::NotWritten { reason }] => {
                refused = Some(reason.clone());
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(
        committed > 0 && refused.as_ref().is_some_and(|why| why.contains("maximum bytes")),
        "{refused:?}"
    );
    assert_eq!(bus.read(TOPIC, 0, "", 100).await.unwrap().len(), committed, "the first are kept");
    // An "up" here would open the door to events that cannot be published.
    let health = bus.health(&[TOPIC.to_owned()]).await;
    assert!(matches!(&health, BusHealth::Down { reason } if reason.contains("full")), "{health:?}");
}

#[tokio::test]
async fn a_stream_at_its_message_limit_is_full() {
    let Some(server) = Nats::start() else { return };
    let client = async_nats::connect(server.url()).await.unwrap();
    let few = async_nats::jetstream::stream::Config {
        name: "suite_trouble_v1".to_owned(),
        subjects: vec![TOPIC.to_owned()],
        max_messages: 2,
        discard: async_nats::jetstream::stream::DiscardPolicy::New,
        ..Default::default()
    };
    async_nats::jetstream::new(client).create_stream(few).await.unwrap();
    let bus = open(&server.url()).await;
    let topics = [TOPIC.to_owned()];
    assert_eq!(bus.health(&topics).await, BusHealth::Up);
    commit(&bus, vec![message(TOPIC, "k", "a", now()), message(TOPIC, "k", "b", now())]).await;
    let outcomes = bus.publish(vec![message(TOPIC, "k", "c", now())]).await;
    assert!(matches!(&outcomes[..], [PublishOutcome::NotWritten { .. }]), "{outcomes:?}");
    assert!(matches!(bus.health(&topics).await, BusHealth::Down { .. }));
}

#[tokio::test]
async fn streams_that_lose_acknowledged_messages_are_refused_at_startup() {
    let Some(server) = Nats::start() else { return };
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let in_memory = async_nats::jetstream::stream::Config {
        name: "suite_trouble_v1".to_owned(),
        subjects: vec![TOPIC.to_owned()],
        storage: async_nats::jetstream::stream::StorageType::Memory,
        ..Default::default()
    };
    jetstream.create_stream(in_memory).await.unwrap();
    let refused = NatsBus::open(Options::new(server.url()), &[TOPIC.to_owned()]).await;
    let Err(OpenError::Topic { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("memory"), "{reason}");
    // With `create_streams` off no stream is created; a later topic is refused on its own.
    let options = Options { create_streams: false, ..Options::new(server.url()) };
    let refused = NatsBus::open(options.clone(), &["suite.other.v1".to_owned()]).await;
    let Err(OpenError::Topic { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("create_streams"), "{reason}");
    let bus = NatsBus::open(options, &[]).await.expect("a bus");
    let outcomes = bus.publish(vec![message("suite.other.v1", "k", "a", now())]).await;
    assert!(matches!(&outcomes[..], [PublishOutcome::NotWritten { .. }]), "{outcomes:?}");
}

#[tokio::test]
async fn rejected_credentials_are_reported_without_the_secret() {
    let config = "jetstream { store_dir: \"STORE\" }\nauthorization { user: me, password: hush }";
    let Some(server) = Nats::with(config) else { return };
    let with = |password: &str| {
        let (user, password) = ("me".to_owned(), password.to_owned());
        Options { auth: Auth::User { user, password }, ..Options::new(server.url()) }
    };
    NatsBus::open(with("hush"), &[TOPIC.to_owned()]).await.expect("a bus");
    let url = server.url().replace("nats://", "nats://me:hush@");
    NatsBus::open(Options::new(url), &[]).await.expect("a bus");
    let refused = NatsBus::open(with("guessed-secret"), &[]).await;
    let Err(error @ OpenError::Unreachable { .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("authorization violation"), "{error}");
    assert!(!format!("{error} {error:?}").contains("guessed-secret"), "{error}");
}

#[tokio::test]
async fn messages_removed_by_retention_are_unknown() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let batch = (0..5).map(|n| message(TOPIC, "k", &format!("n{n}"), now())).collect();
    commit(&bus, batch).await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("suite_trouble_v1").await.unwrap();
    stream.purge().keep(2).await.unwrap();
    let query = |name: &str| vec![sought(TOPIC, "k", name, now())];
    assert!(matches!(&bus.find(query("n4")).await[..], [SearchResult::Found(_)]));
    assert!(matches!(&bus.find(query("n0")).await[..], [SearchResult::Unknown { .. }]));
    // A range after the deleted messages can be searched completely.
    let later = Millis(now() + 600_000);
    let after = admit_bus::SearchQuery { from: later, to: later, ..query("n0").remove(0) };
    assert_eq!(bus.find(vec![after]).await, [SearchResult::Absent]);
    let kept = bus.read(TOPIC, 0, "", 10).await.unwrap();
    assert_eq!(
        kept.iter().map(|one| one.reference.offset.as_str()).collect::<Vec<_>>(),
        ["4", "5"]
    );
}

#[tokio::test]
async fn deleted_messages_are_unknown() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let batch = (0..3).map(|n| message(TOPIC, "k", &format!("n{n}"), now())).collect();
    commit(&bus, batch).await;
    let query = |name: &str| vec![sought(TOPIC, "k", name, now())];
    assert_eq!(bus.find(query("never")).await, [SearchResult::Absent]);
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("suite_trouble_v1").await.unwrap();
    // Delete in the middle, then at the end.
    for deleted in [2, 3] {
        stream.delete_message(deleted).await.unwrap();
        let found = bus.find(query(&format!("n{}", deleted - 1))).await;
        assert!(matches!(&found[..], [SearchResult::Unknown { .. }]), "{found:?}");
    }
    assert!(matches!(&bus.find(query("n0")).await[..], [SearchResult::Found(_)]));
}

#[tokio::test]
async fn searching_a_missing_stream_is_unknown() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    commit(&bus, vec![message(TOPIC, "k", "a", now())]).await;
    let client = async_nats::connect(server.url()).await.unwrap();
    async_nats::jetstream::new(client).delete_stream("suite_trouble_v1").await.unwrap();
    let found = bus.find(vec![sought(TOPIC, "k", "a", now())]).await;
    let [SearchResult::Unknown { reason }] = &found[..] else { panic!("{found:?}") };
    assert!(reason.contains("suite_trouble_v1 does not exist"), "{reason}");
}

#[tokio::test]
async fn searching_before_a_stream_was_created_is_unknown() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    // It may have been in a deleted stream of that name.
    let found = bus.find(vec![sought(TOPIC, "k", "a", now() - 600_000)]).await;
    let [SearchResult::Unknown { reason }] = &found[..] else { panic!("{found:?}") };
    assert!(reason.contains("created after that time"), "{reason}");
    let found = bus.find(vec![sought(TOPIC, "k", "a", now())]).await;
    assert_eq!(found, [SearchResult::Absent]);
}
