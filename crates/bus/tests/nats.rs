//! The bus on a real NATS server: the contract suite, and what a cut or a dead server leaves.
#![cfg(feature = "nats")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use admit_bus::nats::{Auth, NatsBus, OpenError, Options};
use admit_bus::{Bus, BusHealth, Found, Message, OffsetKind, Published};
use admit_core::Millis;
use admit_testkit::bus_suite::{self, Home, commit, message, sought};
use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::Nats;
use tokio::time::sleep;

fn now() -> i64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    i64::try_from(since.as_millis()).expect("a time")
}

/// Streams of their own on a server that several homes share.
struct OnNats {
    url: String,
    prefix: String,
    at: i64,
}

impl OnNats {
    /// A bus with the streams of these topics.
    fn open_with(&self, topics: &[String]) -> NatsBus {
        let options = Options {
            stream_prefix: self.prefix.clone(),
            subject_prefix: format!("{}.", self.prefix),
            ..Options::new(&self.url)
        };
        // The suite opens a bus where nothing can be waited for.
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

impl Home for OnNats {
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
async fn a_nats_bus_keeps_the_contract() {
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

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} did not happen");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn is_there(bus: &NatsBus, name: &str) -> bool {
    let found = bus.find(vec![sought(TOPIC, "k", name, now())]).await;
    matches!(&found[..], [Found::At(there)] if there.len() == 1)
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
    let (answers, ()) = tokio::join!(bus.publish(vec![message(TOPIC, "k", "cut", now())]), cut);
    assert!(matches!(&answers[..], [Published::Unknown { .. }]), "{answers:?}");
    proxy.set_faults(Faults::default());
    let healthy = async || bus.health(&[TOPIC.to_owned()]).await == BusHealth::Up;
    until("the bus is connected again", healthy).await;
    assert!(is_there(&bus, "cut").await, "it is there, once");
    // Whoever publishes it again is told where the first one is.
    let again = commit(&*bus, vec![message(TOPIC, "k", "cut", now())]).await;
    match &bus.find(vec![sought(TOPIC, "k", "cut", now())]).await[..] {
        [Found::At(there)] => assert_eq!(there[0].offset, again[0].offset),
        other => panic!("{other:?}"),
    }
    assert_eq!(bus.read(TOPIC, 0, "", 10).await.unwrap().len(), 2, "nothing was published twice");
}

#[tokio::test]
async fn what_is_not_acknowledged_in_time_is_unknown_and_is_never_sent_later() {
    let Some(server) = Nats::start() else { return };
    let proxy = Proxy::to(server.address(), Faults::default(), 1).unwrap();
    let bus = open(&format!("nats://{}", proxy.address())).await;
    let direct = open(&server.url()).await;
    // Held back on the way there, longer than anybody waits.
    let stall = Duration::from_secs(3);
    proxy.set_faults(Faults { stall_one_in: 1, stall, ..Faults::default() });
    let begun = Instant::now();
    let answers = bus.publish(vec![message(TOPIC, "k", "late", now())]).await;
    assert!(matches!(&answers[..], [Published::Unknown { .. }]), "{answers:?}");
    assert!(begun.elapsed() < stall, "the answer did not wait for the network");
    proxy.set_faults(Faults::default());
    until("a new connection", async || bus.health(&[TOPIC.to_owned()]).await == BusHealth::Up)
        .await;
    commit(&bus, vec![message(TOPIC, "k", "next", now())]).await;
    let there = direct.read(TOPIC, 0, "", 10).await.unwrap();
    assert!(there.len() <= 2, "{there:?}");
}

#[tokio::test]
async fn without_a_server_nothing_is_written_and_after_a_kill_offsets_go_on() {
    let Some(mut server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let first = commit(&bus, vec![message(TOPIC, "k", "first", now())]).await;
    assert_eq!((first[0].offset.as_str(), first[0].offset_kind), ("1", OffsetKind::NatsSequence));
    server.kill();
    let topics = [TOPIC.to_owned()];
    until("the loss is noticed", async || bus.health(&topics).await != BusHealth::Up).await;
    let answers = bus.publish(vec![message(TOPIC, "k", "nowhere", now())]).await;
    assert!(matches!(&answers[..], [Published::NotWritten { .. }]), "{answers:?}");
    let found = bus.find(vec![sought(TOPIC, "k", "first", now())]).await;
    assert!(matches!(&found[..], [Found::CannotTell { .. }]), "{found:?}");
    assert!(bus.read(TOPIC, 0, "", 1).await.is_err());
    server.restart();
    until("the bus is connected again", async || bus.health(&topics).await == BusHealth::Up).await;
    let second = commit(&bus, vec![message(TOPIC, "k", "second", now())]).await;
    assert_eq!(second[0].offset, "2", "what was acknowledged survives a kill");
    let found = bus.find(vec![sought(TOPIC, "k", "nowhere", now())]).await;
    assert_eq!(found, [Found::Absent]);
}

#[tokio::test]
async fn a_message_that_is_too_large_fails_alone() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let large =
        Message { payload: vec![b' '; 2 << 20].into(), ..message(TOPIC, "k", "large", now()) };
    let batch = vec![message(TOPIC, "k", "a", now()), large, message(TOPIC, "k", "b", now())];
    let answers = bus.publish(batch).await;
    let [Published::Committed(_), Published::NotWritten { .. }, Published::Committed(_)] =
        &answers[..]
    else {
        panic!("{answers:?}")
    };
}

#[tokio::test]
async fn a_full_stream_refuses_what_is_new_and_says_so() {
    let Some(server) = Nats::start() else { return };
    let options = Options { stream_bytes_max: Some(4_096), ..Options::new(server.url()) };
    let bus = NatsBus::open(options, &[TOPIC.to_owned()]).await.expect("a bus");
    let (mut committed, mut refused) = (0, None);
    for n in 0..100 {
        match &bus.publish(vec![message(TOPIC, "k", &format!("n{n}"), now())]).await[..] {
            [Published::Committed(_)] => committed += 1,
            [Published::NotWritten { reason }] => {
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
    // A probe that says otherwise would open the door to more that cannot be published.
    let health = bus.health(&[TOPIC.to_owned()]).await;
    assert!(matches!(&health, BusHealth::Down { reason } if reason.contains("full")), "{health:?}");
}

#[tokio::test]
async fn a_stream_with_as_many_messages_as_it_may_have_is_full_too() {
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
    let answers = bus.publish(vec![message(TOPIC, "k", "c", now())]).await;
    assert!(matches!(&answers[..], [Published::NotWritten { .. }]), "{answers:?}");
    assert!(matches!(bus.health(&topics).await, BusHealth::Down { .. }));
}

#[tokio::test]
async fn streams_that_do_not_keep_what_they_acknowledge_are_refused_at_the_start() {
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
    // Nor is one made where nobody wants that; a topic that comes later is refused by itself.
    let options = Options { create_streams: false, ..Options::new(server.url()) };
    let refused = NatsBus::open(options.clone(), &["suite.other.v1".to_owned()]).await;
    let Err(OpenError::Topic { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("create_streams"), "{reason}");
    let bus = NatsBus::open(options, &[]).await.expect("a bus");
    let answers = bus.publish(vec![message("suite.other.v1", "k", "a", now())]).await;
    assert!(matches!(&answers[..], [Published::NotWritten { .. }]), "{answers:?}");
}

#[tokio::test]
async fn who_may_not_come_in_is_told_so_without_the_secret() {
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
async fn what_the_stream_let_go_of_cannot_be_told_apart_from_what_never_was() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let batch = (0..5).map(|n| message(TOPIC, "k", &format!("n{n}"), now())).collect();
    commit(&bus, batch).await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("suite_trouble_v1").await.unwrap();
    stream.purge().keep(2).await.unwrap();
    let look = |name: &str| vec![sought(TOPIC, "k", name, now())];
    assert!(matches!(&bus.find(look("n4")).await[..], [Found::At(_)]));
    assert!(matches!(&bus.find(look("n0")).await[..], [Found::CannotTell { .. }]));
    // A range after all that is gone can be searched to its end.
    let later = Millis(now() + 600_000);
    let after = admit_bus::Sought { from: later, to: later, ..look("n0").remove(0) };
    assert_eq!(bus.find(vec![after]).await, [Found::Absent]);
    let kept = bus.read(TOPIC, 0, "", 10).await.unwrap();
    assert_eq!(
        kept.iter().map(|one| one.reference.offset.as_str()).collect::<Vec<_>>(),
        ["4", "5"]
    );
}

#[tokio::test]
async fn what_was_deleted_from_a_stream_cannot_be_told_apart_from_what_never_was() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    let batch = (0..3).map(|n| message(TOPIC, "k", &format!("n{n}"), now())).collect();
    commit(&bus, batch).await;
    let look = |name: &str| vec![sought(TOPIC, "k", name, now())];
    assert_eq!(bus.find(look("never")).await, [Found::Absent]);
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("suite_trouble_v1").await.unwrap();
    // In the middle, then at the end.
    for deleted in [2, 3] {
        stream.delete_message(deleted).await.unwrap();
        let found = bus.find(look(&format!("n{}", deleted - 1))).await;
        assert!(matches!(&found[..], [Found::CannotTell { .. }]), "{found:?}");
    }
    assert!(matches!(&bus.find(look("n0")).await[..], [Found::At(_)]));
}

#[tokio::test]
async fn of_a_stream_that_is_not_there_nobody_can_tell_what_it_had() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    commit(&bus, vec![message(TOPIC, "k", "a", now())]).await;
    let client = async_nats::connect(server.url()).await.unwrap();
    async_nats::jetstream::new(client).delete_stream("suite_trouble_v1").await.unwrap();
    let found = bus.find(vec![sought(TOPIC, "k", "a", now())]).await;
    let [Found::CannotTell { reason }] = &found[..] else { panic!("{found:?}") };
    assert!(reason.contains("suite_trouble_v1 is not there"), "{reason}");
}

#[tokio::test]
async fn what_was_published_before_a_stream_was_made_cannot_be_told() {
    let Some(server) = Nats::start() else { return };
    let bus = open(&server.url()).await;
    // Perhaps to a stream of that name that somebody has deleted since.
    let found = bus.find(vec![sought(TOPIC, "k", "a", now() - 600_000)]).await;
    let [Found::CannotTell { reason }] = &found[..] else { panic!("{found:?}") };
    assert!(reason.contains("made after that time"), "{reason}");
    let found = bus.find(vec![sought(TOPIC, "k", "a", now())]).await;
    assert_eq!(found, [Found::Absent]);
}
