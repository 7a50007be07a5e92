//! File bus: the contract suite of the port, and recovery of damaged folders.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admit_bus::file::{FileBus, FileReader, OpenError, Options};
use admit_bus::{
    Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, SearchResult, StoredMessage,
};
use admit_core::Millis;
use admit_testkit::bus_suite::{self, AT, BusHome, commit, message, sought};
use admit_testkit::faulty_bus::{FaultyBus, MessageFault};
use tempfile::TempDir;

const TOPIC: &str = "fp.bus.traffic.v1";

struct Folder {
    _keep: TempDir,
    root: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let keep = tempfile::tempdir().expect("a temporary folder");
        Self { root: keep.path().join("bus"), _keep: keep }
    }

    fn bus(&self) -> FileBus {
        FileBus::open(Options::new(&self.root)).expect("the bus opens")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(TOPIC).join(name)
    }

    fn log(&self) -> PathBuf {
        self.file("partition=0.jsonl")
    }

    fn log_bytes(&self) -> Vec<u8> {
        fs::read(self.log()).expect("a log")
    }
}

impl BusHome for Folder {
    fn open(&self) -> Arc<dyn Bus> {
        Arc::new(self.bus())
    }
}

fn named(name: &str) -> Message {
    message(TOPIC, "k", name, AT)
}

async fn all(bus: &FileBus) -> Vec<StoredMessage> {
    bus.read(TOPIC, 0, "", 10_000).await.expect("readable")
}

#[tokio::test]
async fn the_file_bus_passes_the_contract_suite() {
    bus_suite::all(|| Box::new(Folder::new())).await;
}

struct WithoutFaults(Folder);

impl BusHome for WithoutFaults {
    fn open(&self) -> Arc<dyn Bus> {
        Arc::new(FaultyBus::over(self.0.open()))
    }
}

#[tokio::test]
async fn the_faulty_bus_without_faults_passes_the_contract_suite() {
    bus_suite::all(|| Box::new(WithoutFaults(Folder::new()))).await;
}

#[tokio::test]
async fn the_file_layout_is_the_documented_one() {
    let home = Folder::new();
    let bus = home.bus();
    let references = commit(&bus, vec![named("a"), named("b")]).await;
    assert_eq!(references[1].offset, "1");
    assert_eq!((references[1].partition, references[1].offset_kind), (0, OffsetKind::FileLine));
    assert_eq!(references[1].published_at, Some(Millis(AT)));
    let text = String::from_utf8(home.log_bytes()).expect("text");
    assert_eq!(text.lines().count(), 2);
    assert!(text.ends_with('\n'));
    for part in [
        "\"partition_key\":\"k\"",
        "\"published_at_utc\":\"2026-02-19T18:14:02.000000+00:00\"",
        ",\"crc32\":\"",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let head = fs::read_to_string(home.file("head.json")).expect("a head");
    assert_eq!(head.trim_end(), "{\"next_offset\": 2}");
}

#[tokio::test]
async fn offsets_come_from_the_log_and_not_from_its_index() {
    let home = Folder::new();
    commit(&home.bus(), vec![named("a"), named("b")]).await;
    for (head, index) in [("{\"next_offset\": 1}", "garbage"), ("not json", "{}\n"), ("", "")] {
        fs::write(home.file("head.json"), head).expect("written");
        fs::write(home.file("partition=0.index"), index).expect("written");
        let before = all(&home.bus()).await.len();
        let references = commit(&home.bus(), vec![named("c")]).await;
        assert_eq!(references[0].offset, before.to_string(), "{head:?}");
    }
    fs::remove_dir_all(home.root.join(TOPIC)).expect("removed");
    let references = commit(&home.bus(), vec![named("d")]).await;
    assert_eq!(references[0].offset, "0", "no log, no lines");
}

#[tokio::test]
async fn a_log_cut_at_any_byte_of_its_last_line_loses_that_line_and_no_other() {
    let home = Folder::new();
    commit(&home.bus(), vec![named("a"), named("b"), named("torn")]).await;
    let whole = home.log_bytes();
    let acknowledged = "{\"next_offset\": 2}";
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    for cut in last..whole.len() {
        fs::write(home.log(), &whole[..cut]).expect("written");
        fs::write(home.file("head.json"), acknowledged).expect("written");
        let bus = home.bus();
        assert_eq!(all(&bus).await.len(), 2, "cut at {cut}");
        let searches = vec![sought(TOPIC, "k", "torn", AT), sought(TOPIC, "k", "b", AT)];
        match &bus.find(searches).await[..] {
            [SearchResult::Absent, SearchResult::Found(found)] => assert_eq!(found[0].offset, "1"),
            other => panic!("cut at {cut}: {other:?}"),
        }
        assert_eq!(commit(&bus, vec![named("next")]).await[0].offset, "2", "cut at {cut}");
        drop(bus);
        let aside = home.file(&format!("partition=0.torn-{last}"));
        if cut == last {
            assert!(!aside.exists(), "nothing was torn");
        } else {
            let mut expected = whole[last..cut].to_vec();
            expected.push(b'\n');
            assert_eq!(fs::read(&aside).expect("set aside"), expected);
            fs::remove_file(aside).expect("removed");
        }
    }
}

#[tokio::test]
async fn blocks_that_never_reached_the_disk_are_cut_off_with_what_follows() {
    let home = Folder::new();
    commit(&home.bus(), vec![named("a")]).await;
    let whole = home.log_bytes();
    // A power cut may leave a hole in a batch, followed by lines that reached the disk.
    let mut holed = whole.clone();
    holed.extend([0; 4096]);
    holed.extend(b"}\n");
    holed.extend(&whole);
    fs::write(home.log(), holed).expect("written");
    let bus = home.bus();
    assert_eq!(all(&bus).await.len(), 1);
    assert_eq!(home.log_bytes(), whole);
    assert_eq!(commit(&bus, vec![named("b")]).await[0].offset, "1");
}

/// Reason why the bus is down, if it is.
async fn down(bus: &FileBus) -> Option<String> {
    match bus.health(&[TOPIC.to_owned()]).await {
        BusHealth::Down { reason } => Some(reason),
        BusHealth::Up => None,
        BusHealth::Unknown { reason } => panic!("{reason}"),
    }
}

/// Asserts that the bus publishes nothing to its damaged topic, explains what to do, and changes
/// nothing.
async fn assert_topic_is_closed(bus: &FileBus, home: &Folder, what: &str) {
    let before = fs::read(home.log()).ok();
    let reason = down(bus).await.unwrap_or_else(|| panic!("{what}: it is up"));
    assert!(reason.contains("docs/bus/file.md"), "{what}: {reason}");
    let outcomes = bus.publish(vec![named("next")]).await;
    assert!(matches!(outcomes[..], [PublishOutcome::NotWritten { .. }]), "{what}: {outcomes:?}");
    let found = bus.find(vec![sought(TOPIC, "k", "a", AT)]).await;
    assert!(matches!(found[..], [SearchResult::Unknown { .. }]), "{what}: {found:?}");
    let other = bus.publish(vec![message("other", "k", what, AT)]).await;
    assert!(matches!(other[..], [PublishOutcome::Committed(_)]), "{what}: {other:?}");
    assert_eq!(fs::read(home.log()).ok(), before, "{what}: something was changed");
}

#[tokio::test]
async fn damage_beyond_a_crash_closes_the_topic_unchanged() {
    let home = Folder::new();
    commit(&home.bus(), vec![named("a")]).await;
    let line = home.log_bytes();
    let mut log = b"not a line\n".to_vec();
    while log.len() < 10 << 20 {
        log.extend(line.repeat(1_000));
    }
    fs::write(home.log(), &log).expect("written");
    fs::remove_file(home.file("head.json")).expect("removed");
    let bus = home.bus();
    assert_topic_is_closed(&bus, &home, "ten megabytes").await;
    let reason = down(&bus).await.expect("closed");
    assert!(reason.contains("line 0 of "), "{reason}");
}

#[tokio::test]
async fn acknowledged_lines_are_never_cut_off_and_offsets_never_reused() {
    let home = Folder::new();
    commit(&home.bus(), vec![named("a"), named("b"), named("c")]).await;
    let (whole, head) = (home.log_bytes(), fs::read(home.file("head.json")).expect("a head"));
    let ends: Vec<usize> =
        (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
    let cut = |at: usize| Some(whole[..at].to_vec());
    let flipped = |at: usize| {
        let mut log = whole.clone();
        log[at] ^= 1;
        Some(log)
    };
    let damages = [
        ("the last line is gone", cut(ends[1])),
        ("the last line is torn", cut(ends[2] - 5)),
        ("the end of the last line is gone", cut(ends[2] - 1)),
        ("everything is gone", cut(0)),
        ("one bit of the first payload", flipped(ends[0] - 30)),
        ("one bit of a key in the middle", flipped(ends[0] + 20)),
        ("a line end in the middle", flipped(ends[1] - 1)),
        ("the log is deleted", None),
    ];
    for known in ["to its own file", "to the ledger"] {
        for (what, damaged) in &damages {
            let what = format!("{what}, known {known}");
            match damaged {
                Some(log) => fs::write(home.log(), log).expect("written"),
                None => fs::remove_file(home.log()).expect("removed"),
            }
            let mut options = Options::new(&home.root);
            if known == "to the ledger" {
                fs::remove_file(home.file("head.json")).expect("removed");
                fs::remove_file(home.file("partition=0.index")).expect("removed");
                options.acknowledged.insert(TOPIC.to_owned(), 3);
            }
            let bus = FileBus::open(options).expect("a damaged log does not stop the gate");
            assert_topic_is_closed(&bus, &home, &what).await;
            // Once restored, publishing continues at the next offset.
            fs::create_dir_all(home.root.join(TOPIC)).expect("made");
            fs::write(home.log(), &whole).expect("written");
            assert_eq!(down(&bus).await, None, "{what}");
            let ends: Vec<String> =
                all(&bus).await.into_iter().map(|message| message.reference.offset).collect();
            assert_eq!(ends, ["0", "1", "2"], "{what}");
            drop(bus);
            fs::write(home.file("head.json"), &head).expect("written");
        }
    }
    fs::remove_dir_all(home.root.join(TOPIC)).expect("removed");
    let acknowledged = [(TOPIC.to_owned(), 3)].into();
    let bus = FileBus::open(Options { acknowledged, ..Options::new(&home.root) }).expect("opens");
    assert_topic_is_closed(&bus, &home, "the folder is gone").await;
}

#[tokio::test]
async fn filling_lost_lines_by_hand_keeps_all_other_offsets() {
    let home = Folder::new();
    commit(&home.bus(), vec![named("a"), named("b"), named("c")]).await;
    let log = String::from_utf8(home.log_bytes()).expect("text");
    let lines: Vec<&str> = log.lines().collect();
    let filler = r#"{"partition_key":"lost","payload":null}"#;
    fs::write(home.log(), format!("{}\n{filler}\n{}\n", lines[0], lines[2])).expect("written");
    let bus = home.bus();
    assert_eq!(down(&bus).await, None);
    assert_eq!(commit(&bus, vec![named("d")]).await[0].offset, "3");
    let kept: Vec<Option<String>> =
        all(&bus).await.into_iter().map(|message| message.dedupe_key).collect();
    let key = |name| Some(bus_suite::dedupe_key(name));
    assert_eq!(kept, [key("a"), None, key("c"), key("d")]);
}

#[tokio::test]
async fn damage_in_skipped_blocks_is_found_in_the_background() {
    let home = Folder::new();
    let filler = format!("{{\"x\":\"{}\"}}", "y".repeat(20_000));
    let batch = (0..100).map(|n| {
        let payload = filler.clone().into();
        Message { payload, ..message(TOPIC, "k", &format!("n{n}"), AT) }
    });
    commit(&home.bus(), batch.collect()).await;
    let mut log = home.log_bytes();
    log[30_000] ^= 1;
    fs::write(home.log(), &log).expect("written");
    let bus = home.bus();
    let begun = Instant::now();
    let reason = loop {
        if let Some(reason) = down(&bus).await {
            break reason;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the damage was not found");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(reason.contains("line 1 is damaged"), "{reason}");
    assert_eq!(home.log_bytes(), log, "nothing was changed");
}

#[tokio::test]
async fn a_log_truncated_while_open_is_detected() {
    let home = Folder::new();
    let bus = home.bus();
    commit(&bus, vec![named("a"), named("b")]).await;
    assert_eq!(down(&bus).await, None);
    fs::write(home.log(), &home.log_bytes()[..10]).expect("written");
    assert!(down(&bus).await.is_some_and(|reason| reason.contains("was cut")));
}

#[tokio::test]
async fn nothing_is_written_behind_a_cut_and_the_restored_log_is_continued() {
    let home = Folder::new();
    let bus = home.bus();
    commit(&bus, vec![named("a"), named("b")]).await;
    let whole = home.log_bytes();
    type Damage<'a> = (&'a str, &'a dyn Fn());
    let damages: [Damage<'_>; 2] = [
        ("cut", &|| fs::write(home.log(), &whole[..10]).expect("written")),
        ("deleted", &|| fs::remove_file(home.log()).expect("removed")),
    ];
    for (name, damage) in damages {
        damage();
        let left = fs::read(home.log()).ok();
        // No probe in between.
        let outcome = bus.publish(vec![named("c")]).await.pop();
        let is_refused = matches!(outcome, Some(PublishOutcome::NotWritten { .. }));
        assert!(is_refused, "{name}: {outcome:?}");
        assert_eq!(fs::read(home.log()).ok(), left, "{name}");
        assert!(down(&bus).await.is_some(), "{name}");
        fs::write(home.log(), &whole).expect("written");
        assert_eq!(down(&bus).await, None, "{name}");
    }
    assert_eq!(commit(&bus, vec![named("c")]).await[0].offset, "2");
}

#[tokio::test]
async fn a_log_written_by_another_program_is_continued() {
    let home = Folder::new();
    fs::create_dir_all(home.root.join(TOPIC)).expect("made");
    let line = r#"{"partition_key": "p", "payload": {"event_id": "x"}, "published_at_utc": "2026-02-12T08:56:40.123456+00:00"}"#;
    fs::write(home.log(), format!("{line}\n{line}\n")).expect("written");
    let bus = home.bus();
    assert_eq!(commit(&bus, vec![named("a")]).await[0].offset, "2");
    let records = all(&bus).await;
    assert_eq!(records.len(), 3);
    assert_eq!(records[0].dedupe_key, None);
    assert_eq!(&records[0].payload[..], br#"{"event_id":"x"}"#);
}

#[tokio::test]
async fn a_long_log_is_opened_by_its_index_and_searched_by_time() {
    let home = Folder::new();
    let filler = format!("{{\"x\":\"{}\"}}", "y".repeat(20_000));
    let bus = home.bus();
    for batch in 0..10 {
        let batch = (0..10).map(|n| {
            let n = batch * 10 + n;
            let payload = filler.clone().into();
            Message { payload, ..message(TOPIC, "k", &format!("n{n}"), AT + n * 1_000) }
        });
        commit(&bus, batch.collect()).await;
    }
    drop(bus);
    let index = fs::read_to_string(home.file("partition=0.index")).expect("an index");
    assert!(index.lines().count() >= 5, "{index}");
    let small_limit = Options { find_bytes_max: 700_000, ..Options::new(&home.root) };
    let bus = FileBus::open(small_limit).expect("opens");
    for n in [0, 50, 99] {
        let (from, to) = (Millis(AT + n * 1_000 - 2_000), Millis(AT + n * 1_000 + 2_000));
        let query = sought(TOPIC, "k", &format!("n{n}"), AT);
        match &bus.find(vec![admit_bus::SearchQuery { from, to, ..query }]).await[..] {
            [SearchResult::Found(found)] => assert_eq!(found[0].offset, n.to_string()),
            other => panic!("{n}: {other:?}"),
        }
    }
    let everything = sought(TOPIC, "k", "n0", AT + 50_000);
    let found = bus.find(vec![everything]).await;
    assert!(matches!(found[..], [SearchResult::Unknown { .. }]), "{found:?}");
    assert_eq!(commit(&bus, vec![named("next")]).await[0].offset, "100");
    let records = bus.read(TOPIC, 0, "73", 2).await.expect("readable");
    let offsets: Vec<&str> =
        records.iter().map(|message| message.reference.offset.as_str()).collect();
    assert_eq!(offsets, ["73", "74"]);
}

#[tokio::test]
async fn a_second_writer_is_refused_and_a_reader_is_not() {
    let home = Folder::new();
    let bus = home.bus();
    commit(&bus, vec![named("a"), named("b")]).await;
    match FileBus::open(Options::new(&home.root)) {
        Err(OpenError::InUse { holder, .. }) => assert_eq!(holder, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
    let reader = FileReader::new(&home.root);
    assert_eq!(reader.topics().expect("readable"), [TOPIC]);
    let records: Result<Vec<StoredMessage>, BusError> =
        reader.records(TOPIC).expect("opens").collect();
    assert_eq!(records.expect("readable"), all(&bus).await);
    assert_eq!(reader.records("unpublished").expect("empty").count(), 0);
    assert!(reader.records("../x").is_err());
    assert_eq!(FileReader::new(Path::new("not there")).topics().expect("empty"), [""; 0]);
}

#[tokio::test]
async fn exceeded_limits_are_reported_and_nothing_is_written() {
    let home = Folder::new();
    let options = Options { message_bytes_max: 40, topics_max: 1, ..Options::new(&home.root) };
    let bus = FileBus::open(options).expect("opens");
    let with = |payload: &'static str| Message { payload: payload.into(), ..named("a") };
    let other_topic = Message { topic: "another".into(), ..named("a") };
    let batch = vec![
        with("{}"),
        with("{\"text\":\"more than forty bytes, by a little\"}"),
        with("{not json"),
        with(""),
        other_topic,
        with("{\n}"),
    ];
    let outcomes = bus.publish(batch).await;
    let committed: Vec<usize> = (0..outcomes.len())
        .filter(|place| matches!(outcomes[*place], PublishOutcome::Committed(_)))
        .collect();
    assert_eq!(committed, [0, 5], "{outcomes:?}");
    assert!(
        outcomes.iter().all(|outcome| !matches!(outcome, PublishOutcome::Unknown { .. })),
        "{outcomes:?}"
    );
    assert_eq!(all(&bus).await.len(), 2);
    assert_eq!(FileReader::new(&home.root).topics().expect("readable"), [TOPIC]);
}

#[tokio::test]
async fn an_abandoned_publish_has_a_final_search_result() {
    let home = Folder::new();
    let bus = home.bus();
    for n in 0..50 {
        let name = format!("n{n}");
        let attempt = bus.publish(vec![named(&name)]);
        // Polled once, then dropped.
        tokio::select! { biased; _ = attempt => {}, () = std::future::ready(()) => {} }
        let first = bus.find(vec![sought(TOPIC, "k", &name, AT)]).await;
        commit(&bus, vec![named("between")]).await;
        let later = bus.find(vec![sought(TOPIC, "k", &name, AT)]).await;
        assert_eq!(first, later, "the search result of an abandoned publish does not change");
        assert!(matches!(first[..], [SearchResult::Found(_) | SearchResult::Absent]), "{first:?}");
    }
}

#[tokio::test]
async fn injected_faults_have_their_documented_effect() {
    let home = Folder::new();
    let bus = Arc::new(FaultyBus::over(home.open()));
    let word = |published: &PublishOutcome| match published {
        PublishOutcome::Committed(_) => "committed",
        PublishOutcome::NotWritten { .. } => "not written",
        PublishOutcome::Unknown { .. } => "unknown",
    };
    bus.next([
        Some(MessageFault::AcceptThenCut),
        Some(MessageFault::Refuse),
        None,
        Some(MessageFault::Throttle),
    ]);
    bus.on(&bus_suite::dedupe_key("e"), MessageFault::LandLater);
    let batch = ["a", "b", "c", "d", "e"].map(named).to_vec();
    let outcomes: Vec<&str> = bus.publish(batch).await.iter().map(word).collect();
    assert_eq!(outcomes, ["unknown", "not written", "committed", "not written", "unknown"]);
    let searches = || ["a", "b", "e"].map(|name| sought(TOPIC, "k", name, AT)).to_vec();
    let found = bus.find(searches()).await;
    assert!(
        matches!(found[..], [SearchResult::Found(_), SearchResult::Absent, SearchResult::Absent]),
        "{found:?}"
    );
    assert_eq!(bus.land().await.iter().map(word).collect::<Vec<_>>(), ["committed"]);
    assert!(matches!(
        bus.find(searches()).await[..],
        [SearchResult::Found(_), SearchResult::Absent, SearchResult::Found(_)]
    ));

    bus.next([None, Some(MessageFault::Stall)]);
    let held = async {
        bus.until_held(1).await;
        let found = bus.find(["f", "g"].map(|name| sought(TOPIC, "k", name, AT)).to_vec()).await;
        assert!(matches!(found[..], [SearchResult::Found(_), SearchResult::Absent]), "{found:?}");
        bus.release();
    };
    let (outcomes, ()) = tokio::join!(bus.publish(vec![named("f"), named("g")]), held);
    assert_eq!(outcomes.iter().map(word).collect::<Vec<_>>(), ["committed"; 2]);

    bus.always(Some(MessageFault::AnswerLate));
    let late = async {
        bus.until_held(1).await;
        let found = bus.find(vec![sought(TOPIC, "k", "h", AT)]).await;
        assert!(matches!(found[..], [SearchResult::Found(_)]), "it is written already");
        bus.release();
    };
    tokio::join!(bus.publish(vec![named("h")]), late);
    assert_eq!(bus.batches(), [5, 2, 1]);
}

/// Set in the child process that publishes until it is killed; holds the folder.
const CHILD: &str = "ADMIT_TEST_BUS_CHILD";

/// Not a test by itself: the child process of the test below. Does nothing without its variable.
#[tokio::test]
async fn a_child_publishes_until_it_is_killed() {
    let Ok(root) = std::env::var(CHILD) else { return };
    let bus = FileBus::open(Options::new(root)).expect("the bus opens");
    let begun = Instant::now();
    let mut out = std::io::stdout();
    let mut n = 0;
    // Time limit in case it is never killed.
    while begun.elapsed() < Duration::from_secs(20) {
        let names: Vec<String> = (n..n + 20).map(|n| format!("n{n}")).collect();
        n += 20;
        let batch = names.iter().map(|name| named(name)).collect();
        for (name, reference) in names.iter().zip(commit(&bus, batch).await) {
            writeln!(out, "committed {name} {}", reference.offset).expect("a parent");
        }
        out.flush().expect("a parent");
    }
}

#[tokio::test]
async fn committed_messages_survive_kill_nine_at_their_offsets() {
    let home = Folder::new();
    fs::create_dir_all(&home.root).expect("made");
    let mut committed = Vec::new();
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "a_child_publishes_until_it_is_killed", "--nocapture"])
            .env(CHILD, &home.root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a child");
        let out = std::io::BufReader::new(child.stdout.take().expect("piped"));
        for line in std::io::BufRead::lines(out) {
            let line = line.expect("text");
            let Some(rest) = line.split_once("committed ").map(|(_, rest)| rest.to_owned()) else {
                continue;
            };
            let (name, offset) = rest.split_once(' ').expect("two words");
            committed.push((name.to_owned(), offset.to_owned()));
            if committed.len() % 200 == 0 {
                child.kill().expect("killed");
                break;
            }
        }
        child.wait().expect("ended");
    }
    let bus = home.bus();
    let records = all(&bus).await;
    assert!(records.len() >= committed.len() && committed.len() >= 600);
    for (name, offset) in committed {
        let record = &records[offset.parse::<usize>().expect("a number")];
        assert_eq!(record.dedupe_key, Some(bus_suite::dedupe_key(&name)), "at {offset}");
        assert_eq!(record.reference.offset, offset);
    }
    let next = commit(&bus, vec![named("next")]).await;
    assert_eq!(next[0].offset, records.len().to_string(), "no offset is assigned twice");
}
