//! Contract suite of streams: reads in ledger order, and notifications.

use admit_core::{Door, Entry, Event, OnOtherContent, Seq, Verdict};
use admit_ledger::WholeLedger;
use admit_ledger::port::{Page, StreamEntry, read_or_wait};
use futures_util::future::{join, join_all};

use crate::event::{entry, event, refused, streamed};
use crate::ledger_suite::{Home, many, one, seq_of};

/// Larger than any page in these tests.
const ALL: usize = 1_000_000;

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    a_stream_is_read_in_ledger_order_with_its_bodies(&*home()).await;
    a_stream_contains_admitted_events_only(&*home()).await;
    a_page_ends_at_its_limits_and_the_next_one_goes_on(&*home()).await;
    a_door_without_stream_reads_as_empty(&*home()).await;
    a_waiting_reader_is_notified_of_its_own_stream(&*home()).await;
    a_reader_concurrent_with_writers_misses_nothing(&*home()).await;
}

/// Test stream.
pub(crate) fn orders() -> Door {
    Door::new("events/orders")
}

/// Another stream, with the name of the first one as prefix.
fn orders_2() -> Door {
    Door::new("events/orders-2")
}

/// Records `count` events of a stream in one batch and returns their positions.
pub(crate) async fn put(
    ledger: &dyn WholeLedger,
    door: &Door,
    from: usize,
    count: usize,
) -> Vec<Seq> {
    let event = |n| Entry::Event(streamed(door, &format!("n{n}"), &format!("body {n}")));
    let verdicts = many(ledger, (from..from + count).map(event).collect()).await;
    assert!(verdicts.iter().all(|verdict| verdict.word() == "fresh"), "{verdicts:?}");
    verdicts.iter().map(seq_of).collect()
}

async fn read(ledger: &dyn WholeLedger, door: &Door, after: Seq, rows_max: usize) -> Page {
    ledger.read(door.clone(), after, rows_max, ALL).await.expect("readable")
}

fn places(page: &Page) -> Vec<Seq> {
    page.entries.iter().map(|entry| entry.seq).collect()
}

async fn a_stream_is_read_in_ledger_order_with_its_bodies(home: &dyn Home) {
    let ledger = home.open();
    let (mut mine, mut others) = (Vec::new(), Vec::new());
    for round in 0..20 {
        mine.extend(put(&*ledger, &orders(), round * 3, 3).await);
        others.extend(put(&*ledger, &orders_2(), round, 1).await);
        one(&*ledger, entry(&format!("other door {round}"), "x")).await;
    }
    let page = read(&*ledger, &orders(), Seq(0), ALL).await;
    assert_eq!(places(&page), mine);
    assert_eq!((page.next, page.more), (mine[59], false));
    let expected = streamed(&orders(), "n7", "body 7");
    let seventh = StreamEntry {
        seq: mine[7],
        key: expected.key,
        verdict: "fresh",
        principal: expected.principal,
        received_at: expected.received_at,
        facts: br#"{"name":"n7"}"#[..].into(),
        body: Some(expected.body),
    };
    assert_eq!(page.entries[7], seventh);
    assert_eq!(places(&read(&*ledger, &orders_2(), Seq(0), ALL).await), others);
    assert_eq!(places(&read(&*ledger, &orders(), mine[49], ALL).await), mine[50..]);
    drop(ledger);
    let ledger = home.open();
    assert_eq!(places(&read(&*ledger, &orders(), Seq(0), ALL).await), mine, "after a restart");
}

async fn a_stream_contains_admitted_events_only(home: &dyn Home) {
    let ledger = home.open();
    let door = orders();
    let record = async |event: Event| one(&*ledger, Entry::Event(event)).await;
    let fresh = record(streamed(&door, "k", "a")).await;
    assert_eq!(record(streamed(&door, "k", "a")).await.word(), "duplicate");
    assert_eq!(record(streamed(&door, "k", "b")).await.word(), "conflict");
    let Entry::Refused(mut broken) = refused("{broken") else { panic!("it is refused") };
    broken.door = door.clone();
    one(&*ledger, Entry::Refused(broken)).await;
    let revisable = |content| Event {
        on_other_content: OnOtherContent::Revision,
        ..streamed(&door, "r", content)
    };
    let first = record(revisable("one")).await;
    let second = record(revisable("two")).await;
    assert!(matches!(second, Verdict::Revision { .. }));
    let page = read(&*ledger, &door, Seq(0), ALL).await;
    assert_eq!(places(&page), [&fresh, &first, &second].map(seq_of));
    let words: Vec<_> = page.entries.iter().map(|entry| entry.verdict).collect();
    assert_eq!(words, ["fresh", "fresh", "revision"]);
}

async fn a_page_ends_at_its_limits_and_the_next_one_goes_on(home: &dyn Home) {
    let ledger = home.open();
    let seqs = put(&*ledger, &orders(), 0, 25).await;
    let mut after = Seq(0);
    let mut seen = Vec::new();
    loop {
        let page = read(&*ledger, &orders(), after, 10).await;
        assert_eq!(page.more, page.entries.len() == 10, "{after:?}");
        seen.extend(places(&page));
        after = page.next;
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, seqs);
    let end = read(&*ledger, &orders(), after, 10).await;
    assert_eq!((end.entries.len(), end.next, end.more), (0, after, false));

    let by_bytes = async |bytes_max| {
        let page = ledger.read(orders(), Seq(0), ALL, bytes_max).await.expect("readable");
        (page.entries.len(), page.more)
    };
    let each = br#"{"name":"n0"}body 0"#.len();
    assert_eq!(by_bytes(each * 3).await, (3, true), "bodies and facts count");
    assert_eq!(by_bytes(each * 3 - 1).await, (2, true));
    assert_eq!(by_bytes(0).await, (1, true), "at least one is read, to make progress");
    let none = read(&*ledger, &orders(), Seq(0), 0).await;
    assert_eq!((none.entries.len(), none.more), (0, true));
}

async fn a_door_without_stream_reads_as_empty(home: &dyn Home) {
    let ledger = home.open();
    for (name, is_stream) in
        [("test", false), ("events", false), ("events0", false), ("skyra", true), ("events/", true)]
    {
        let door = Door::new(name);
        assert_eq!(door.is_stream(), is_stream, "{name}");
        one(&*ledger, Entry::Event(streamed(&door, "k", "a"))).await;
        let read = read(&*ledger, &door, Seq(0), ALL).await.entries.len();
        assert_eq!(read, usize::from(is_stream), "{name}");
    }
    let unknown = Door::new("events/unknown");
    assert_eq!(read(&*ledger, &unknown, Seq(0), ALL).await, Page::default());
}

async fn a_waiting_reader_is_notified_of_its_own_stream(home: &dyn Home) {
    let ledger = home.open();
    let mut updates = ledger.subscribe(&orders());
    put(&*ledger, &orders_2(), 0, 1).await;
    one(&*ledger, Entry::Event(event("k", "a"))).await;
    assert!(!updates.has_changed().expect("open"), "other doors are no updates here");

    let door = orders();
    let wait = read_or_wait(&*ledger, &door, Seq(0), ALL, ALL);
    let (page, seqs) = join(wait, put(&*ledger, &door, 0, 2)).await;
    assert_eq!(places(&page.expect("readable")), seqs);
    updates.changed().await.expect("open");
    assert_eq!(*updates.borrow_and_update(), seqs[1], "the newest place of the commit");
    drop(ledger);
    assert!(updates.changed().await.is_err(), "a closed ledger has no more updates");
}

async fn a_reader_concurrent_with_writers_misses_nothing(home: &dyn Home) {
    const WRITERS: usize = 8;
    const EACH: usize = 40;
    let ledger = home.open();
    let write = async |writer: usize| {
        let mut seqs = Vec::new();
        for n in 0..EACH {
            seqs.extend(put(&*ledger, &orders(), writer * EACH + n, 1).await);
            one(&*ledger, entry(&format!("{writer}/{n}"), "noise")).await;
        }
        seqs
    };
    let follow = async || {
        let (mut after, mut seen, door) = (Seq(0), Vec::new(), orders());
        while seen.len() < WRITERS * EACH {
            let page = read_or_wait(&*ledger, &door, after, 7, ALL).await.expect("readable");
            seen.extend(places(&page));
            after = page.next;
        }
        seen
    };
    let (seen, written) = join(follow(), join_all((0..WRITERS).map(write))).await;
    let mut written: Vec<Seq> = written.into_iter().flatten().collect();
    written.sort_unstable();
    assert_eq!(seen, written);
}
