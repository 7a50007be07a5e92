//! Writer tests with a failing disk: every outcome matches what is on disk.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use admit_core::Millis;
use tempfile::TempDir;

use super::log::LogOptions;
use super::storage::LogStorage;
use super::{FileBus, Options};
use crate::port::{Bus, BusHealth, Message, PublishOutcome, SearchQuery, SearchResult};

/// Next behaviour of the disk; by default it works.
#[derive(Clone, Copy)]
enum DiskFault {
    /// Accepts so many bytes of the next write, then fails with the error.
    Accept(usize, io::ErrorKind),
    /// Works once.
    Work,
    /// Fails the next sync.
    FailSync,
    /// Panics in the writer at the next write.
    Panic,
    /// The next write blocks until [`FaultScript::resume`].
    Hang,
}

#[derive(Clone, Default)]
struct FaultScript {
    queue: Arc<Mutex<VecDeque<DiskFault>>>,
    syncs: Arc<AtomicUsize>,
    is_hanging: Arc<(Mutex<bool>, Condvar)>,
}

impl FaultScript {
    fn script(&self, faults: &[DiskFault]) {
        self.queue.lock().expect("no panic").extend(faults);
        if faults.iter().any(|order| matches!(order, DiskFault::Hang)) {
            *self.is_hanging.0.lock().expect("no panic") = true;
        }
    }

    fn resume(&self) {
        *self.is_hanging.0.lock().expect("no panic") = false;
        self.is_hanging.1.notify_all();
    }

    fn hang(&self) {
        let hanging = self.is_hanging.0.lock().expect("no panic");
        drop(self.is_hanging.1.wait_while(hanging, |is_hanging| *is_hanging).expect("no panic"));
    }
}

struct FaultyFile {
    file: File,
    faults: FaultScript,
}

impl LogStorage for FaultyFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut faults = self.faults.queue.lock().expect("no panic");
        match faults.front_mut() {
            Some(DiskFault::Hang) => {
                faults.pop_front();
                drop(faults);
                self.faults.hang();
                self.file.write_at(at, bytes)
            }
            Some(DiskFault::Accept(0, error)) => {
                let error = *error;
                faults.pop_front();
                Err(error.into())
            }
            Some(DiskFault::Accept(left, _)) => {
                let taken = bytes.len().min(*left);
                *left -= taken;
                self.file.write_at(at, &bytes[..taken])
            }
            Some(DiskFault::Work) => {
                faults.pop_front();
                self.file.write_at(at, bytes)
            }
            Some(DiskFault::Panic) => {
                drop(faults);
                panic!("on purpose")
            }
            Some(DiskFault::FailSync) | None => self.file.write_at(at, bytes),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.faults.syncs.fetch_add(1, Ordering::SeqCst);
        let mut faults = self.faults.queue.lock().expect("no panic");
        if let Some(DiskFault::FailSync) = faults.front() {
            faults.pop_front();
            return Err(io::Error::other("the disk is gone"));
        }
        LogStorage::sync(&mut self.file)
    }
}

fn options(dir: &Path) -> Options {
    Options::new(dir.join("bus"))
}

fn faulty_bus(dir: &Path) -> (FileBus, FaultScript) {
    faulty_bus_with(options(dir))
}

fn faulty_bus_with(options: Options) -> (FileBus, FaultScript) {
    let faults = FaultScript::default();
    let shared = faults.clone();
    let storage = Arc::new(move |path: &Path| {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Box::new(FaultyFile { file, faults: shared.clone() }) as Box<dyn LogStorage>)
    });
    let log_options = LogOptions { block_bytes: 300, storage };
    (FileBus::open_with(options, log_options).expect("opens"), faults)
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

fn outcome_text(published: &PublishOutcome) -> String {
    match published {
        PublishOutcome::Committed(reference) => reference.offset.clone(),
        PublishOutcome::NotWritten { .. } => "not written".to_owned(),
        PublishOutcome::Unknown { .. } => "unknown".to_owned(),
    }
}

async fn publish(bus: &FileBus, batch: Vec<Message>) -> Vec<String> {
    bus.publish(batch).await.iter().map(outcome_text).collect()
}

async fn keys(bus: &FileBus) -> Vec<String> {
    let records = bus.read("t", 0, "", 100).await.expect("readable");
    let offsets: Vec<String> = records.iter().map(|one| one.reference.offset.clone()).collect();
    let expected: Vec<String> = (0..records.len()).map(|offset| offset.to_string()).collect();
    assert_eq!(offsets, expected, "offsets are the numbers of lines");
    records.into_iter().map(|one| one.dedupe_key.expect("ours")).collect()
}

fn query(key: &str) -> SearchQuery {
    SearchQuery {
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
    let (bus, faults) = faulty_bus(dir.path());
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    faults.script(&[DiskFault::Accept(0, io::ErrorKind::StorageFull)]);
    assert_eq!(publish(&bus, messages(&["k1", "k2"])).await, ["not written", "not written"]);
    assert_eq!(publish(&bus, messages(&["k3"])).await, ["1"], "it continues when there is space");
    assert_eq!(keys(&bus).await, ["k0", "k3"]);
}

#[tokio::test]
async fn a_write_cut_at_any_byte_gives_every_line_its_true_outcome() {
    let line = line_bytes();
    // Around every line end, and at some offsets inside.
    let near_ends = (1..=3).flat_map(|ends| [ends * line - 1, ends * line, ends * line + 1]);
    for taken in near_ends.chain((1..3 * line).step_by(29)).filter(|taken| *taken < 3 * line) {
        let dir = folder();
        let (bus, faults) = faulty_bus(dir.path());
        faults.script(&[DiskFault::Accept(taken, io::ErrorKind::StorageFull)]);
        let outcomes = publish(&bus, messages(&["k0", "k1", "k2"])).await;
        let (whole, is_torn) = (taken / line, taken % line > 0);
        let mut expected: Vec<String> = (0..whole).map(|offset| offset.to_string()).collect();
        expected.extend(is_torn.then(|| "unknown".to_owned()));
        expected.resize(3, "not written".to_owned());
        assert_eq!(outcomes, expected, "after {taken} bytes");

        let next = publish(&bus, messages(&["k9"])).await;
        assert_eq!(next, [whole.to_string()], "no offset is assigned twice");
        let mut kept: Vec<String> = (0..whole).map(|key| format!("k{key}")).collect();
        kept.push("k9".to_owned());
        assert_eq!(keys(&bus).await, kept, "the torn line is cut off");
    }
}

#[tokio::test]
async fn after_any_other_write_error_unfinished_lines_are_unknown() {
    let dir = folder();
    let (bus, faults) = faulty_bus(dir.path());
    faults.script(&[DiskFault::Accept(line_bytes(), io::ErrorKind::TimedOut)]);
    let outcomes = publish(&bus, messages(&["k0", "k1", "k2"])).await;
    assert_eq!(outcomes, ["0", "unknown", "unknown"]);
    assert_eq!(publish(&bus, messages(&["k3"])).await, ["1"]);
    assert_eq!(bus.find(vec![query("k1")]).await, [SearchResult::Absent]);
}

#[tokio::test]
async fn a_failed_sync_is_unknown_and_stops_the_bus() {
    let dir = folder();
    let (bus, faults) = faulty_bus(dir.path());
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    faults.script(&[DiskFault::FailSync]);
    assert_eq!(publish(&bus, messages(&["k1", "k2"])).await, ["unknown", "unknown"]);
    assert_eq!(
        publish(&bus, messages(&["k3"])).await,
        ["not written"],
        "a stopped bus writes nothing"
    );
    assert!(bus.must_stop().await.contains("sync"));
    let health = bus.health(&["t".to_owned()]).await;
    assert!(matches!(health, BusHealth::Down { .. }), "{health:?}");
    let found = bus.find(vec![query("k0")]).await;
    assert!(matches!(found[..], [SearchResult::Unknown { .. }]), "{found:?}");
    assert!(bus.read("t", 0, "", 1).await.is_err());
    drop(bus);

    let bus = FileBus::open(options(dir.path())).expect("opens");
    assert_eq!(keys(&bus).await, ["k0", "k1", "k2"], "a restart reads what is on disk");
    assert_eq!(publish(&bus, messages(&["k3"])).await, ["3"]);
}

#[tokio::test]
async fn a_failing_topic_does_not_affect_other_topics() {
    let dir = folder();
    let (bus, faults) = faulty_bus(dir.path());
    faults.script(&[DiskFault::Work, DiskFault::Accept(10, io::ErrorKind::StorageFull)]);
    let batch = vec![on("a", "k0"), on("b", "k1"), on("a", "k2"), on("c", "k3")];
    assert_eq!(publish(&bus, batch).await, ["0", "unknown", "1", "0"]);
    let health = bus.health(&["a".to_owned(), "b".to_owned()]).await;
    assert_eq!(health, BusHealth::Up, "the torn log was opened again");
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_is_a_proof_that_nothing_was_written() {
    let dir = folder();
    let (bus, _) = faulty_bus(dir.path());
    // A file in place of the topic's folder.
    let in_the_way = dir.path().join("bus").join("t");
    std::fs::write(&in_the_way, "").expect("written");
    assert_eq!(publish(&bus, vec![message("k0"), on("u", "k1")]).await, ["not written", "0"]);
    let health = bus.health(&["t".to_owned()]).await;
    assert!(matches!(health, BusHealth::Down { .. }), "{health:?}");
    std::fs::remove_file(in_the_way).expect("removed");
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"], "the open is retried");
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
    assert_eq!(
        health().await,
        BusHealth::Up,
        "a probe must recover without a message, which a closed door never sends"
    );
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
}

#[tokio::test]
async fn small_blocks_give_the_same_results() {
    let dir = folder();
    let (bus, _) = faulty_bus(dir.path());
    let batch: Vec<Message> = (0..100)
        .map(|at| Message { at: Millis(at * 10), ..message(&format!("k{at:02}")) })
        .collect();
    bus.publish(batch).await;
    for at in [0, 1, 37, 98, 99] {
        let one = SearchQuery {
            from: Millis(at * 10),
            to: Millis(at * 10),
            ..query(&format!("k{at:02}"))
        };
        let earlier =
            SearchQuery { from: Millis(at * 10 - 9), to: Millis(at * 10 - 1), ..one.clone() };
        match &bus.find(vec![one, earlier]).await[..] {
            [SearchResult::Found(found), SearchResult::Absent] => {
                assert_eq!(found[0].offset, at.to_string())
            }
            other => panic!("{at}: {other:?}"),
        }
        let records = bus.read("t", 0, &at.to_string(), 2).await.expect("readable");
        assert_eq!(records[0].reference.offset, at.to_string());
        assert_eq!(records.len(), if at == 99 { 1 } else { 2 });
    }
}

#[tokio::test]
async fn a_search_beyond_its_byte_limit_is_unknown() {
    let dir = folder();
    let bus = FileBus::open(Options { find_bytes_max: 10, ..options(dir.path()) }).expect("opens");
    bus.publish(messages(&["k0"])).await;
    let outside = SearchQuery { from: Millis(1_001), ..query("k0") };
    let found = bus.find(vec![query("k0")]).await;
    assert!(matches!(found[..], [SearchResult::Unknown { .. }]), "{found:?}");
    assert_eq!(bus.find(vec![outside]).await, [SearchResult::Absent], "that reads nothing");
}

#[tokio::test]
async fn while_the_disk_hangs_results_are_unknown() {
    let dir = folder();
    let query_timeout = Duration::from_millis(30);
    let (bus, faults) = faulty_bus_with(Options { query_timeout, ..options(dir.path()) });
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    faults.script(&[DiskFault::Hang]);
    let queries = async {
        let found = bus.find(vec![query("k1"), query("k0")]).await;
        assert!(found.iter().all(|one| matches!(one, SearchResult::Unknown { .. })), "{found:?}");
        let health = bus.health(&[]).await;
        assert!(matches!(health, BusHealth::Unknown { .. }), "{health:?}");
        assert!(bus.read("t", 0, "", 1).await.is_err());
        faults.resume();
    };
    let (outcomes, ()) = tokio::join!(publish(&bus, messages(&["k1"])), queries);
    assert_eq!(outcomes, ["1"], "a late commit is still a commit");
    assert_eq!(bus.health(&[]).await, BusHealth::Up);
}

#[tokio::test]
async fn pending_calls_share_one_sync_in_order_of_arrival() {
    let dir = folder();
    // A queue smaller than the number of calls: the rest waits for capacity.
    let (bus, faults) = faulty_bus_with(Options { waiting_max: 16, ..options(dir.path()) });
    assert_eq!(publish(&bus, messages(&["first"])).await, ["0"]);
    let before = faults.syncs.load(Ordering::SeqCst);
    faults.script(&[DiskFault::Hang]);
    let names: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let calls = names.iter().map(|name| publish(&bus, messages(&[name])));
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    // The first call is with the writer, the others are queued.
    for call in &mut calls {
        tokio::select! { biased; _ = call => panic!("the disk hangs"), () = std::future::ready(()) => {} }
    }
    faults.resume();
    for (call, n) in calls.into_iter().zip(1..) {
        assert_eq!(call.await, [n.to_string()], "in the order it came");
    }
    let syncs = faults.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs <= 5, "{syncs} syncs for twenty calls");
}

#[tokio::test]
async fn a_writer_panic_stops_the_gate_with_unknown_outcomes() {
    let dir = folder();
    let (bus, faults) = faulty_bus(dir.path());
    assert_eq!(publish(&bus, messages(&["k0"])).await, ["0"]);
    faults.script(&[DiskFault::Panic]);
    assert_eq!(publish(&bus, messages(&["k1"])).await, ["unknown"]);
    assert!(bus.must_stop().await.contains("ended by a panic"));
    assert_eq!(publish(&bus, messages(&["k2"])).await, ["not written"]);
}
