//! The writer when its disk fails: what it says is what is there.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use admit_core::Millis;
use tempfile::TempDir;

use super::log::How;
use super::medium::Medium;
use super::{FileBus, Options};
use crate::port::{Bus, BusHealth, Found, Message, Published, Sought};

/// What the disk does next; without an order it works.
#[derive(Clone, Copy)]
enum Order {
    /// Takes so many bytes of the next write, then fails with the error.
    Take(usize, io::ErrorKind),
    /// Works once.
    Work,
    /// Fails the next sync.
    FailSync,
    /// Has the writer panic at its next write.
    Panic,
    /// The next write comes back when [`Orders::go_on`] says so.
    Hang,
}

#[derive(Clone, Default)]
struct Orders {
    to_come: Arc<Mutex<VecDeque<Order>>>,
    syncs: Arc<AtomicUsize>,
    is_hanging: Arc<(Mutex<bool>, Condvar)>,
}

impl Orders {
    fn give(&self, orders: &[Order]) {
        self.to_come.lock().expect("no panic").extend(orders);
        if orders.iter().any(|order| matches!(order, Order::Hang)) {
            *self.is_hanging.0.lock().expect("no panic") = true;
        }
    }

    fn go_on(&self) {
        *self.is_hanging.0.lock().expect("no panic") = false;
        self.is_hanging.1.notify_all();
    }

    fn hang(&self) {
        let hanging = self.is_hanging.0.lock().expect("no panic");
        drop(self.is_hanging.1.wait_while(hanging, |is_hanging| *is_hanging).expect("no panic"));
    }
}

struct Faulty {
    file: File,
    orders: Orders,
}

impl Medium for Faulty {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut orders = self.orders.to_come.lock().expect("no panic");
        match orders.front_mut() {
            Some(Order::Hang) => {
                orders.pop_front();
                drop(orders);
                self.orders.hang();
                self.file.write_at(at, bytes)
            }
            Some(Order::Take(0, error)) => {
                let error = *error;
                orders.pop_front();
                Err(error.into())
            }
            Some(Order::Take(left, _)) => {
                let taken = bytes.len().min(*left);
                *left -= taken;
                self.file.write_at(at, &bytes[..taken])
            }
            Some(Order::Work) => {
                orders.pop_front();
                self.file.write_at(at, bytes)
            }
            Some(Order::Panic) => {
                drop(orders);
                panic!("on purpose")
            }
            Some(Order::FailSync) | None => self.file.write_at(at, bytes),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.orders.syncs.fetch_add(1, Ordering::SeqCst);
        let mut orders = self.orders.to_come.lock().expect("no panic");
        if let Some(Order::FailSync) = orders.front() {
            orders.pop_front();
            return Err(io::Error::other("the disk is gone"));
        }
        Medium::sync(&mut self.file)
    }
}

fn options(dir: &Path) -> Options {
    Options::new(dir.join("bus"))
}

fn faulty_bus(dir: &Path) -> (FileBus, Orders) {
    faulty_bus_with(options(dir))
}

fn faulty_bus_with(options: Options) -> (FileBus, Orders) {
    let orders = Orders::default();
    let given = orders.clone();
    let medium = Arc::new(move |path: &Path| {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Box::new(Faulty { file, orders: given.clone() }) as Box<dyn Medium>)
    });
    let how = How { block_bytes: 300, medium };
    (FileBus::open_how(options, how).expect("opens"), orders)
}

fn message(key: &str) -> Message {
    on("t", key)
}

fn on(topic: &str, key: &str) -> Message {
    Message {
        topic: topic.into(),
        partition_key: "p".to_owned(),
        dedupe_key: key.to_owned(),
        payload: "{\"a\":1}".into(),
        at: Millis(1_000),
    }
}

fn messages(keys: &[&str]) -> Vec<Message> {
    keys.iter().map(|key| message(key)).collect()
}

/// Bytes of one line of [`message`] with a key of two characters.
fn line_bytes() -> usize {
    let mut out = Vec::new();
    super::line::encode(&message("k0"), &mut out).expect("json");
    out.len()
}

fn word(published: &Published) -> String {
    match published {
        Published::Committed(reference) => reference.offset.clone(),
        Published::NotWritten { .. } => "not written".to_owned(),
        Published::Unknown { .. } => "unknown".to_owned(),
    }
}

async fn publish(bus: &FileBus, batch: Vec<Message>) -> Vec<String> {
    bus.publish(batch).await.iter().map(word).collect()
}

async fn keys(bus: &FileBus) -> Vec<String> {
    let records = bus.read("t", 0, "", 100).await.expect("readable");
    let offsets: Vec<String> = records.iter().map(|one| one.reference.offset.clone()).collect();
    let expected: Vec<String> = (0..records.len()).map(|offset| offset.to_string()).collect();
    assert_eq!(offsets, expected, "offsets are the numbers of lines");
    records.into_iter().map(|one| one.dedupe_key.expect("ours")).collect()
}

fn sought(key: &str) -> Sought {
    Sought {
        topic: "t".to_owned(),
        dedupe_key: key.to_owned(),
        partition_key: "p".to_owned(),
        from: Millis(0),
        to: Millis(2_000),
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

#[tokio::test]
async fn a_full_disk_before_the_first_byte_is_a_proof_that_nothing_was_written() {
    let dir = folder();
    let (bus, orders) = faulty_bus(dir.path());
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    orders.give(&[Order::Take(0, io::ErrorKind::StorageFull)]);
    assert_eq!(publish(&bus, messages(&["k1", "k2"])).await, ["not written", "not written"]);
    assert_eq!(publish(&bus, messages(&["k3"])).await, ["1"], "it goes on when there is room");
    assert_eq!(keys(&bus).await, ["k0", "k3"]);
}

#[tokio::test]
async fn a_write_cut_short_at_any_byte_says_of_each_line_what_is_true() {
    let line = line_bytes();
    // Around every end of a line, and here and there inside.
    let near_ends = (1..=3).flat_map(|ends| [ends * line - 1, ends * line, ends * line + 1]);
    for taken in near_ends.chain((1..3 * line).step_by(29)).filter(|taken| *taken < 3 * line) {
        let dir = folder();
        let (bus, orders) = faulty_bus(dir.path());
        orders.give(&[Order::Take(taken, io::ErrorKind::StorageFull)]);
        let answers = publish(&bus, messages(&["k0", "k1", "k2"])).await;
        let (whole, is_torn) = (taken / line, taken % line > 0);
        let mut expected: Vec<String> = (0..whole).map(|offset| offset.to_string()).collect();
        expected.extend(is_torn.then(|| "unknown".to_owned()));
        expected.resize(3, "not written".to_owned());
        assert_eq!(answers, expected, "after {taken} bytes");

        let next = publish(&bus, messages(&["k9"])).await;
        assert_eq!(next, [whole.to_string()], "no offset is given twice");
        let mut kept: Vec<String> = (0..whole).map(|key| format!("k{key}")).collect();
        kept.push("k9".to_owned());
        assert_eq!(keys(&bus).await, kept, "the torn line is cut off");
    }
}

#[tokio::test]
async fn after_any_other_error_what_may_have_landed_is_unknown() {
    let dir = folder();
    let (bus, orders) = faulty_bus(dir.path());
    orders.give(&[Order::Take(line_bytes(), io::ErrorKind::TimedOut)]);
    let answers = publish(&bus, messages(&["k0", "k1", "k2"])).await;
    assert_eq!(answers, ["0", "unknown", "unknown"]);
    assert_eq!(publish(&bus, messages(&["k3"])).await, ["1"]);
    assert_eq!(bus.find(vec![sought("k1")]).await, [Found::Absent]);
}

#[tokio::test]
async fn a_failed_sync_is_unknown_and_stops_the_bus() {
    let dir = folder();
    let (bus, orders) = faulty_bus(dir.path());
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    orders.give(&[Order::FailSync]);
    assert_eq!(publish(&bus, messages(&["k1", "k2"])).await, ["unknown", "unknown"]);
    assert_eq!(publish(&bus, messages(&["k3"])).await, ["not written"], "nothing is risked now");
    assert!(bus.must_stop().await.contains("sync"));
    let health = bus.health(&["t".to_owned()]).await;
    assert!(matches!(health, BusHealth::Down { .. }), "{health:?}");
    let found = bus.find(vec![sought("k0")]).await;
    assert!(matches!(found[..], [Found::CannotTell { .. }]), "{found:?}");
    assert!(bus.read("t", 0, "", 1).await.is_err());
    drop(bus);

    let bus = FileBus::open(options(dir.path())).expect("opens");
    assert_eq!(keys(&bus).await, ["k0", "k1", "k2"], "a new start tells what is there");
    assert_eq!(publish(&bus, messages(&["k3"])).await, ["3"]);
}

#[tokio::test]
async fn a_topic_that_fails_leaves_its_neighbours_alone() {
    let dir = folder();
    let (bus, orders) = faulty_bus(dir.path());
    orders.give(&[Order::Work, Order::Take(10, io::ErrorKind::StorageFull)]);
    let batch = vec![on("a", "k0"), on("b", "k1"), on("a", "k2"), on("c", "k3")];
    assert_eq!(publish(&bus, batch).await, ["0", "unknown", "1", "0"]);
    let health = bus.health(&["a".to_owned(), "b".to_owned()]).await;
    assert_eq!(health, BusHealth::Up, "the torn log was opened again");
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_is_a_proof_that_nothing_was_written() {
    let dir = folder();
    let (bus, _) = faulty_bus(dir.path());
    // A file where the topic's folder belongs.
    let in_the_way = dir.path().join("bus").join("t");
    std::fs::write(&in_the_way, "").expect("written");
    assert_eq!(publish(&bus, vec![message("k0"), on("u", "k1")]).await, ["not written", "0"]);
    let health = bus.health(&["t".to_owned()]).await;
    assert!(matches!(health, BusHealth::Down { .. }), "{health:?}");
    std::fs::remove_file(in_the_way).expect("removed");
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"], "it is tried again");
}

#[tokio::test]
async fn a_probe_opens_a_log_again_without_a_message() {
    let dir = folder();
    let (bus, _) = faulty_bus(dir.path());
    let in_the_way = dir.path().join("bus").join("t");
    std::fs::write(&in_the_way, "").expect("written");
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["not written"]);
    let health = async || bus.health(&["t".to_owned()]).await;
    assert!(matches!(health().await, BusHealth::Down { .. }), "it cannot be opened yet");
    std::fs::remove_file(in_the_way).expect("removed");
    assert_eq!(health().await, BusHealth::Up, "a closed door sends no message that could open it");
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
}

#[tokio::test]
async fn small_blocks_change_nothing_but_what_is_read() {
    let dir = folder();
    let (bus, _) = faulty_bus(dir.path());
    let batch: Vec<Message> = (0..100)
        .map(|at| Message { at: Millis(at * 10), ..message(&format!("k{at:02}")) })
        .collect();
    bus.publish(batch).await;
    for at in [0, 1, 37, 98, 99] {
        let one =
            Sought { from: Millis(at * 10), to: Millis(at * 10), ..sought(&format!("k{at:02}")) };
        let earlier = Sought { from: Millis(at * 10 - 9), to: Millis(at * 10 - 1), ..one.clone() };
        match &bus.find(vec![one, earlier]).await[..] {
            [Found::At(found), Found::Absent] => assert_eq!(found[0].offset, at.to_string()),
            other => panic!("{at}: {other:?}"),
        }
        let records = bus.read("t", 0, &at.to_string(), 2).await.expect("readable");
        assert_eq!(records[0].reference.offset, at.to_string());
        assert_eq!(records.len(), if at == 99 { 1 } else { 2 });
    }
}

#[tokio::test]
async fn a_search_that_would_read_too_much_says_that_it_cannot_tell() {
    let dir = folder();
    let bus = FileBus::open(Options { find_bytes_max: 10, ..options(dir.path()) }).expect("opens");
    bus.publish(messages(&["k0"])).await;
    let outside = Sought { from: Millis(1_001), ..sought("k0") };
    let found = bus.find(vec![sought("k0")]).await;
    assert!(matches!(found[..], [Found::CannotTell { .. }]), "{found:?}");
    assert_eq!(bus.find(vec![outside]).await, [Found::Absent], "that reads nothing");
}

#[tokio::test]
async fn while_the_disk_hangs_nobody_is_told_more_than_is_known() {
    let dir = folder();
    let look_wait = Duration::from_millis(30);
    let (bus, orders) = faulty_bus_with(Options { look_wait, ..options(dir.path()) });
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    orders.give(&[Order::Hang]);
    let asking = async {
        let found = bus.find(vec![sought("k1"), sought("k0")]).await;
        assert!(found.iter().all(|one| matches!(one, Found::CannotTell { .. })), "{found:?}");
        let health = bus.health(&[]).await;
        assert!(matches!(health, BusHealth::Unknown { .. }), "{health:?}");
        assert!(bus.read("t", 0, "", 1).await.is_err());
        orders.go_on();
    };
    let (answers, ()) = tokio::join!(publish(&bus, messages(&["k1"])), asking);
    assert_eq!(answers, ["1"], "a late answer is as good as any");
    assert_eq!(bus.health(&[]).await, BusHealth::Up);
}

#[tokio::test]
async fn whatever_waits_is_one_batch_with_one_sync_in_the_order_it_came() {
    let dir = folder();
    // With room for fewer calls than there are: the rest waits for room.
    let (bus, orders) = faulty_bus_with(Options { waiting_max: 16, ..options(dir.path()) });
    assert_eq!(publish(&bus, messages(&["first"])).await, ["0"]);
    let before = orders.syncs.load(Ordering::SeqCst);
    orders.give(&[Order::Hang]);
    let names: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let calls = names.iter().map(|name| publish(&bus, messages(&[name])));
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    // The first is with the writer, the others behind it.
    for call in &mut calls {
        tokio::select! { biased; _ = call => panic!("the disk hangs"), () = std::future::ready(()) => {} }
    }
    orders.go_on();
    for (call, n) in calls.into_iter().zip(1..) {
        assert_eq!(call.await, [n.to_string()], "in the order it came");
    }
    let syncs = orders.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs <= 5, "{syncs} syncs for twenty calls");
}

#[tokio::test]
async fn a_writer_that_panics_stops_the_gate_and_claims_nothing() {
    let dir = folder();
    let (bus, orders) = faulty_bus(dir.path());
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    orders.give(&[Order::Panic]);
    assert_eq!(publish(&bus, messages(&["k1"])).await, ["unknown"]);
    assert!(bus.must_stop().await.contains("ended by a panic"));
    assert_eq!(publish(&bus, messages(&["k2"])).await, ["not written"]);
}
