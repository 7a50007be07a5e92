//! Contract suite of the bus port.
//!
//! [`all`] runs each test on a new bus.

use std::collections::HashMap;
use std::sync::Arc;

use admit_bus::{
    Bus, BusHealth, Message, PublishOutcome, Reference, SearchQuery, SearchResult, StoredMessage,
};
use admit_core::Millis;
use admit_core::hash::sha256_hex;
use futures_util::future::join_all;

/// Storage of a bus. Reopening it gives the same content.
pub trait BusHome {
    /// Opens the bus. The previous one has been dropped.
    fn open(&self) -> Arc<dyn Bus>;

    /// Topic that is unique to this home.
    fn topic(&self, name: &str) -> String {
        format!("suite.{name}.v1")
    }

    /// Base time. A bus that stamps messages by its own clock can only be searched around the
    /// present.
    fn at(&self) -> i64 {
        AT
    }

    /// Whether two messages with one dedupe key are stored twice. A bus that keeps the first only
    /// returns the reference of the first for the second.
    fn keeps_copies(&self) -> bool {
        true
    }
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn BusHome>) {
    an_empty_batch_gives_an_empty_result(&*home()).await;
    offsets_grow_in_the_order_of_a_partition_key(&*home()).await;
    results_are_in_the_order_of_the_messages(&*home()).await;
    a_bad_message_fails_alone_and_is_proven_not_written(&*home()).await;
    every_message_is_found_by_its_dedupe_key_exactly_once(&*home()).await;
    a_missing_message_is_absent(&*home()).await;
    a_message_written_twice_is_found_twice(&*home()).await;
    a_large_batch_is_published_like_a_small_one(&*home()).await;
    racing_publishers_keep_their_own_order(&*home()).await;
    a_restart_keeps_messages_and_offsets(&*home()).await;
    messages_are_read_from_an_offset_on(&*home()).await;
    a_working_bus_is_up(&*home()).await;
}

/// Dedupe key of a name.
pub fn dedupe_key(name: &str) -> String {
    sha256_hex(name.as_bytes())
}

/// Message called `name`, published at `at`.
pub fn message(topic: &str, partition_key: &str, name: &str, at: i64) -> Message {
    Message {
        topic: topic.into(),
        partition_key: partition_key.to_owned(),
        dedupe_key: dedupe_key(name),
        payload: payload(name).into(),
        at: Millis(at),
    }
}

fn payload(name: &str) -> String {
    format!("{{\"event_id\":\"{name}\",\"amount\": 1.50}}")
}

/// Search for a message called `name`, published around `at`.
pub fn sought(topic: &str, partition_key: &str, name: &str, at: i64) -> SearchQuery {
    SearchQuery {
        topic: topic.to_owned(),
        dedupe_key: dedupe_key(name),
        partition_key: partition_key.to_owned(),
        from: Millis(at - 60_000),
        to: Millis(at + 60_000),
    }
}

/// Time accepted by every bus.
pub const AT: i64 = 1_771_524_842_000;

/// Publishes messages that must all be committed.
pub async fn commit(bus: &dyn Bus, batch: Vec<Message>) -> Vec<Reference> {
    let published = bus.publish(batch).await;
    published
        .into_iter()
        .map(|one| match one {
            PublishOutcome::Committed(reference) => reference,
            other @ (PublishOutcome::NotWritten { .. } | PublishOutcome::Unknown { .. }) => {
                panic!("not committed: {other:?}")
            }
        })
        .collect()
}

/// Offsets are integers of any size.
fn number(reference: &Reference) -> (usize, &str) {
    let digits = reference.offset.trim_start_matches('0');
    assert!(digits.bytes().all(|byte| byte.is_ascii_digit()), "{reference:?}");
    assert!((1..=128).contains(&reference.offset.len()), "{reference:?}");
    (digits.len(), digits)
}

/// Asserts that these references of one partition key are in bus order.
fn assert_in_order(references: &[Reference]) {
    for pair in references.windows(2) {
        assert_eq!(pair[0].partition, pair[1].partition, "one key, one partition");
        assert!(number(&pair[0]) < number(&pair[1]), "{pair:?}");
    }
}

fn place(reference: &Reference) -> (String, u32, String) {
    (reference.topic.clone(), reference.partition, reference.offset.clone())
}

async fn an_empty_batch_gives_an_empty_result(home: &dyn BusHome) {
    let bus = home.open();
    assert_eq!(bus.publish(Vec::new()).await, []);
    assert_eq!(bus.find(Vec::new()).await, []);
}

async fn offsets_grow_in_the_order_of_a_partition_key(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("order"));
    let mut references = Vec::new();
    for batch in 0..3 {
        let names = (0..4).map(|name| format!("{batch}-{name}"));
        let batch = names.map(|name| message(&topic, "k", &name, home.at())).collect();
        references.extend(commit(&*bus, batch).await);
    }
    assert_in_order(&references);
    assert!(references.iter().all(|one| one.topic == topic), "the topic is the logical one");
}

async fn results_are_in_the_order_of_the_messages(home: &dyn BusHome) {
    let bus = home.open();
    let topics = [home.topic("first"), home.topic("second"), home.topic("third")];
    let batch: Vec<Message> = (0..30)
        .map(|n| message(&topics[n % 3], &format!("k{}", n % 7), &format!("n{n}"), home.at()))
        .collect();
    let references = commit(&*bus, batch.clone()).await;
    for (message, reference) in batch.iter().zip(&references) {
        assert_eq!(*message.topic, *reference.topic);
        let sought = SearchQuery {
            topic: message.topic.to_string(),
            dedupe_key: message.dedupe_key.clone(),
            partition_key: message.partition_key.clone(),
            from: Millis(home.at() - 60_000),
            to: Millis(home.at() + 60_000),
        };
        match &bus.find(vec![sought]).await[..] {
            [SearchResult::Found(found)] => assert_eq!(place(&found[0]), place(reference)),
            other => panic!("{other:?}"),
        }
    }
}

async fn a_bad_message_fails_alone_and_is_proven_not_written(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("bad"));
    let good = |name: &str| message(&topic, "k", name, home.at());
    let batch = vec![
        good("a"),
        Message { topic: "../escape".into(), ..good("b") },
        Message { dedupe_key: String::new(), ..good("c") },
        Message { dedupe_key: "line\nbreak".to_owned(), ..good("d") },
        Message { partition_key: String::new(), ..good("e") },
        good("f"),
    ];
    let answers = bus.publish(batch).await;
    let is_committed: Vec<bool> =
        answers.iter().map(|one| matches!(one, PublishOutcome::Committed(_))).collect();
    assert_eq!(is_committed, [true, false, false, false, false, true], "{answers:?}");
    for bad in &answers[1..5] {
        assert!(matches!(bad, PublishOutcome::NotWritten { .. }), "{bad:?}");
    }
    let found = bus.find(vec![sought(&topic, "k", "e", home.at())]).await;
    assert_eq!(found, [SearchResult::Absent]);
}

async fn every_message_is_found_by_its_dedupe_key_exactly_once(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("find"));
    let batch: Vec<Message> = (0..50)
        .map(|n| message(&topic, &format!("k{}", n % 5), &format!("n{n}"), home.at() + n))
        .collect();
    let references = commit(&*bus, batch).await;
    let searches =
        (0..50).map(|n| sought(&topic, &format!("k{}", n % 5), &format!("n{n}"), home.at() + n));
    for (found, reference) in bus.find(searches.collect()).await.iter().zip(&references) {
        match found {
            SearchResult::Found(at) => {
                assert_eq!(at.len(), 1, "{at:?}");
                assert_eq!(place(&at[0]), place(reference));
                assert_eq!(at[0].offset_kind, reference.offset_kind);
            }
            SearchResult::Absent | SearchResult::Unknown { .. } => {
                panic!("a committed message is {found:?}")
            }
        }
    }
}

async fn a_missing_message_is_absent(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("absent"));
    commit(&*bus, vec![message(&topic, "k", "a", home.at()), message(&topic, "k", "b", home.at())])
        .await;
    let searches = vec![
        sought(&topic, "k", "never published", home.at()),
        sought(&home.topic("unused"), "k", "a", home.at()),
        sought(&topic, "k", "a", home.at()),
    ];
    match &bus.find(searches).await[..] {
        [SearchResult::Absent, SearchResult::Absent, SearchResult::Found(found)] => {
            assert_eq!(found.len(), 1)
        }
        other => panic!("{other:?}"),
    }
}

async fn a_message_written_twice_is_found_twice(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("twice"));
    let first = commit(&*bus, vec![message(&topic, "k", "a", home.at())]).await;
    commit(&*bus, vec![message(&topic, "k", "between", home.at())]).await;
    let second = commit(&*bus, vec![message(&topic, "k", "a", home.at() + 1)]).await;
    let mut expected = vec![place(&first[0])];
    if home.keeps_copies() {
        expected.push(place(&second[0]));
    } else {
        assert_eq!(place(&first[0]), place(&second[0]), "the copy is where the first is");
    }
    match &bus.find(vec![sought(&topic, "k", "a", home.at())]).await[..] {
        [SearchResult::Found(found)] => {
            assert_eq!(found.iter().map(place).collect::<Vec<_>>(), expected, "in bus order");
        }
        other => panic!("{other:?}"),
    }
}

async fn a_large_batch_is_published_like_a_small_one(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("large"));
    let batch: Vec<Message> = (0..3_000)
        .map(|n| message(&topic, &format!("k{}", n % 11), &format!("n{n}"), home.at()))
        .collect();
    let references = commit(&*bus, batch).await;
    assert_eq!(references.len(), 3_000);
    for key in 0..11 {
        let own: Vec<Reference> = references.iter().skip(key).step_by(11).cloned().collect();
        assert_in_order(&own);
    }
    let searches = (0..3_000)
        .step_by(499)
        .map(|n| sought(&topic, &format!("k{}", n % 11), &format!("n{n}"), home.at()))
        .collect();
    for (found, reference) in bus.find(searches).await.iter().zip(references.iter().step_by(499)) {
        assert!(
            matches!(found, SearchResult::Found(at) if at.len() == 1 && place(&at[0]) == place(reference))
        );
    }
}

async fn racing_publishers_keep_their_own_order(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("race"));
    let publishers = (0..16).map(|publisher| {
        let (bus, topic) = (&bus, &topic);
        async move {
            let mut references = Vec::new();
            for n in 0..20 {
                let name = format!("p{publisher}-n{n}");
                let message = message(topic, &format!("k{publisher}"), &name, home.at());
                references.extend(commit(&**bus, vec![message]).await);
            }
            references
        }
    });
    let mut seen = HashMap::new();
    for references in join_all(publishers).await {
        assert_in_order(&references);
        for reference in references {
            assert_eq!(seen.insert(place(&reference), ()), None, "one place, one message");
        }
    }
    assert_eq!(seen.len(), 320);
}

async fn a_restart_keeps_messages_and_offsets(home: &dyn BusHome) {
    let topic = home.topic("restart");
    let mut references = Vec::new();
    for round in 0..3 {
        let bus = home.open();
        let batch =
            (0..3).map(|n| message(&topic, "k", &format!("r{round}-n{n}"), home.at())).collect();
        references.extend(commit(&*bus, batch).await);
    }
    assert_in_order(&references);
    let bus = home.open();
    let searches =
        (0..9).map(|n| sought(&topic, "k", &format!("r{}-n{}", n / 3, n % 3), home.at()));
    for (found, reference) in bus.find(searches.collect()).await.iter().zip(&references) {
        match found {
            SearchResult::Found(at) => assert_eq!(
                at.iter().map(place).collect::<Vec<_>>(),
                [place(reference)],
                "a restart moves nothing"
            ),
            SearchResult::Absent | SearchResult::Unknown { .. } => {
                panic!("{reference:?} is {found:?}")
            }
        }
    }
}

async fn messages_are_read_from_an_offset_on(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("read"));
    let batch = (0..10).map(|n| message(&topic, "k", &format!("n{n}"), home.at() + n)).collect();
    let references = commit(&*bus, batch).await;
    let partition = references[0].partition;
    let read = async |from: &str, rows_max| -> Vec<StoredMessage> {
        bus.read(&topic, partition, from, rows_max).await.expect("readable")
    };
    let all = read("", 100).await;
    assert_eq!(all.len(), 10);
    for ((record, reference), n) in all.iter().zip(&references).zip(0..) {
        assert_eq!(place(&record.reference), place(reference));
        assert_eq!(record.partition_key, "k");
        assert_eq!(record.dedupe_key, Some(dedupe_key(&format!("n{n}"))));
        assert_eq!(record.payload, payload(&format!("n{n}")), "the envelope is unchanged");
    }
    let some = read(&references[4].offset, 3).await;
    assert_eq!(some[..], all[4..7], "from the offset itself on");
    assert_eq!(read(&references[9].offset, 100).await[..], all[9..]);
    assert_eq!(read("", 0).await, []);
    let unused = bus.read(&home.topic("unused"), partition, "", 10).await.expect("readable");
    assert_eq!(unused, [], "an unused topic is empty");
    assert!(bus.read(&topic, partition, "not an offset", 1).await.is_err());
    assert!(bus.read("../escape", partition, "", 1).await.is_err());
}

async fn a_working_bus_is_up(home: &dyn BusHome) {
    let (bus, topic) = (home.open(), home.topic("health"));
    assert_eq!(bus.health(&[]).await, BusHealth::Up);
    commit(&*bus, vec![message(&topic, "k", "a", home.at())]).await;
    assert_eq!(bus.health(&[topic]).await, BusHealth::Up);
    assert!(!bus.delivery_timeout().is_zero());
}
