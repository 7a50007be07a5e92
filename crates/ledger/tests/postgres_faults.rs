//! The PostgreSQL ledger when its database or network fails: nothing is lost, nothing is admitted twice, and
//! no reply claims more than is known.
#![cfg(feature = "postgres")]

use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use admit_core::{Door, Entry, Fault, FaultKind, RecordedEntry, Seq};
use admit_ledger::port::read_or_wait;
use admit_ledger::postgres::{OpenError, Options, PostgresLedger, PostgresReader};
use admit_ledger::{Admissions, Ledger, Reader};
use admit_testkit::event::{entry, key, streamed};
use admit_testkit::postgres::{CommitFault, CommitProxy, Server, TestDatabase, database};
use admit_testkit::proxy::{Faults, Proxy};

/// Timeout of conditions that must become true.
const SOON: Duration = Duration::from_secs(60);

fn open(url: &str) -> PostgresLedger {
    PostgresLedger::open(options(url)).expect("the ledger opens")
}

fn options(url: &str) -> Options {
    Options::new(url)
}

/// Short enough that a test can wait for all of it.
fn impatient(url: &str) -> Options {
    Options {
        connect_timeout: Duration::from_millis(300),
        lock_timeout: Duration::from_millis(400),
        statement_timeout: Duration::from_millis(800),
        ..options(url)
    }
}

/// A ledger behind a proxy, and its database.
fn behind_a_proxy(
    make: fn(&str) -> Options,
) -> Option<(TestDatabase, CommitProxy, PostgresLedger)> {
    let database = database()?;
    let proxy = CommitProxy::to(database.address()).expect("a proxy");
    let options = make(&proxy.url(&database.url));
    let ledger = PostgresLedger::open(options).expect("the ledger opens");
    Some((database, proxy, ledger))
}

async fn record(ledger: &PostgresLedger, entry: Entry) -> Result<RecordedEntry, Fault> {
    ledger.record(vec![entry]).await.remove(0)
}

async fn word(ledger: &PostgresLedger, name: &str) -> &'static str {
    match record(ledger, entry(name, "a")).await {
        Ok(recorded) => recorded.verdict.word(),
        Err(fault) => fault.code().as_str(),
    }
}

/// Polls until the result is the expected one, for at most [`SOON`].
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let polling = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, polling).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Assigned seqs, admissions, sightings and keys, from the tables.
fn places(database: &TestDatabase) -> String {
    let sql = "SELECT (SELECT last_seq FROM head), (SELECT count(*) FROM admission),
                      (SELECT count(*) FROM sighting), (SELECT count(*) FROM key_index)";
    database.run(sql).expect("psql answers")
}

#[tokio::test]
async fn a_commit_whose_reply_was_lost_is_recognised() {
    let Some((database, proxy, ledger)) = behind_a_proxy(options) else { return };
    assert_eq!(word(&ledger, "before").await, "fresh");
    proxy.spoil_next(CommitFault::AnswerLost);
    assert_eq!(word(&ledger, "lost").await, "fresh", "it is in, and not a copy of itself");
    assert_eq!(proxy.mishaps(), 1);
    assert_eq!(word(&ledger, "lost").await, "duplicate");
    assert_eq!(places(&database), "3|2|1|2");
    assert!(ledger.is_healthy());
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_retried() {
    let Some((database, proxy, ledger)) = behind_a_proxy(options) else { return };
    for n in 0..3 {
        proxy.spoil_next(CommitFault::Lost);
        assert_eq!(word(&ledger, &format!("k{n}")).await, "fresh");
    }
    assert_eq!(proxy.mishaps(), 3);
    assert_eq!(places(&database), "3|3|0|3", "no seq was wasted");
}

/// The statements of a batch and its COMMIT are sent together.
#[tokio::test]
async fn a_key_claimed_by_another_program_stops_the_gate_and_nothing_of_the_batch_is_stored() {
    let Some(database) = database() else { return };
    let ledger = open(&database.url);
    let taken: String = key("taken").as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let claim = format!("INSERT INTO key_index (key, seq) VALUES ('\\x{taken}', 99)");
    database.run(&claim).expect("psql answers");
    for outcome in ledger.record(vec![entry("free", "a"), entry("taken", "a")]).await {
        assert_eq!(outcome.unwrap_err().kind, FaultKind::Internal);
    }
    assert!(ledger.must_stop().await.to_string().contains("claimed twice"));
    assert_eq!(places(&database), "0|0|0|1", "the claim of the other program");
}

/// A look-up would not find it, and then it arrives.
#[tokio::test]
async fn a_commit_that_arrives_late_is_waited_for() {
    let Some((database, proxy, ledger)) = behind_a_proxy(options) else { return };
    proxy.spoil_next(CommitFault::Late(Duration::from_millis(700)));
    assert_eq!(word(&ledger, "late").await, "fresh");
    assert_eq!(word(&ledger, "late").await, "duplicate");
    assert_eq!(places(&database), "2|1|1|1");
}

#[tokio::test]
async fn a_commit_after_the_lease_expired_is_fenced_off() {
    let Some((database, proxy, ledger)) = behind_a_proxy(impatient) else { return };
    // The server ends a transaction that is silent for half the time a lock is waited for.
    proxy.spoil_next(CommitFault::Late(Duration::from_millis(600)));
    assert_eq!(word(&ledger, "late").await, "fresh", "retried, because the first can never commit");
    assert_eq!(places(&database), "1|1|0|1");
    let sleep = "SELECT pg_sleep(0.7)";
    database.run(sleep).expect("psql answers");
    assert_eq!(places(&database), "1|1|0|1", "also after the late commit has arrived");
}

#[tokio::test]
async fn an_unresolved_commit_is_reported_as_unknown_and_resolved_later() {
    let Some((database, proxy, ledger)) = behind_a_proxy(impatient) else { return };
    assert_eq!(word(&ledger, "before").await, "fresh");
    proxy.spoil_next(CommitFault::AnswerLost);
    proxy.close();
    let fault = record(&ledger, entry("unknown", "a")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutcomeUnknown, "{fault:?}");
    assert!(!ledger.is_healthy(), "readiness reports it");
    let fault = record(&ledger, entry("meanwhile", "a")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::LedgerUnavailable, "nothing of it was stored: {fault:?}");
    proxy.open();
    until("the ledger finds the database again", async || ledger.is_healthy()).await;
    assert_eq!(word(&ledger, "unknown").await, "duplicate", "it was committed");
    assert_eq!(word(&ledger, "meanwhile").await, "fresh", "it had not");
    assert_eq!(places(&database), "4|3|1|3");
}

/// A hanging database returns no error: without traffic it is the lease renewal that hangs.
#[tokio::test]
async fn a_database_that_hangs_makes_unhealthy_without_traffic_and_before_anything_fails() {
    let Some(database) = database() else { return };
    let upstream = database.address();
    let proxy = std::thread::spawn(move || Proxy::to(upstream, Faults::default(), 1));
    let proxy = proxy.join().expect("a thread").expect("a proxy");
    let url = database.url.replace(&upstream.to_string(), &proxy.address().to_string());
    assert_ne!(url, database.url);
    let (lease, commit_max) = (Duration::from_secs(3), Duration::from_millis(200));
    let ledger = PostgresLedger::open(Options { lease, commit_max, ..options(&url) });
    let ledger = ledger.expect("the ledger opens");
    assert_eq!(word(&ledger, "before").await, "fresh");
    let stall = Duration::from_millis(1_500);
    proxy.set_faults(Faults { stall_one_in: 1, stall, ..Faults::default() });
    until("it is unhealthy", async || !ledger.is_healthy()).await;
    let trouble = ledger.trouble().expect("it is unhealthy");
    assert!(trouble.contains("longer than limits.answer_ms_max"), "{trouble}");
    proxy.set_faults(Faults::default());
    until("it is healthy again", async || ledger.is_healthy()).await;
    assert_eq!(word(&ledger, "after").await, "fresh");
}

/// A name that PostgreSQL cannot store, as an example of any rejected content.
#[tokio::test]
async fn content_that_the_database_rejects_fails_alone() {
    let Some(database) = database() else { return };
    let ledger = open(&database.url);
    let strange = Entry::Event(streamed(&Door::new("events/a\0b"), "k", "a"));
    let batch = vec![entry("before", "a"), strange, entry("before", "a"), entry("after", "a")];
    let words: Vec<&str> = ledger
        .record(batch)
        .await
        .iter()
        .map(|one| {
            one.as_ref().map_or_else(|fault| fault.code().as_str(), |one| one.verdict.word())
        })
        .collect();
    assert_eq!(words, ["fresh", "internal_error", "duplicate", "fresh"]);
    assert_eq!(places(&database), "3|2|1|2");
    assert!(ledger.is_healthy(), "the ledger is well");
}

#[tokio::test]
async fn cut_connections_lose_no_event() {
    let Some((database, proxy, ledger)) = behind_a_proxy(options) else { return };
    for n in 0..20 {
        proxy.cut_all();
        assert_eq!(word(&ledger, &format!("k{n}")).await, "fresh", "{n}");
        let found = ledger.find(key(&format!("k{n}"))).await.expect("readable");
        assert!(found.is_some(), "readers take a new connection too");
    }
    assert!(proxy.connections() > 20);
    assert_eq!(places(&database), "20|20|0|20");
}

#[tokio::test]
async fn after_a_database_restart_the_gate_reconnects() {
    let Some(server) = Server::start_durable() else { return };
    let ledger = PostgresLedger::open(impatient(&server.url("postgres"))).expect("it opens");
    for round in 0..3 {
        let name = |n: u32| format!("r{round}k{n}");
        assert_eq!(word(&ledger, &name(0)).await, "fresh");
        if round == 1 {
            server.kill()
        } else {
            server.stop()
        }
        assert_eq!(word(&ledger, &name(1)).await, "ledger_unavailable");
        assert!(!ledger.is_healthy());
        assert!(ledger.find(key(&name(0))).await.is_err());
        server.start_again().expect("the server starts again");
        until("the ledger finds the database again", async || ledger.is_healthy()).await;
        assert_eq!(word(&ledger, &name(0)).await, "duplicate", "what was acknowledged is there");
        assert_eq!(word(&ledger, &name(1)).await, "fresh", "what was not is not");
    }
}

/// Holds a lock in the database for a while, from another session; it is held when this returns.
fn hold(database: &Arc<TestDatabase>, lock: &str, seconds: f64) -> JoinHandle<()> {
    let held = format!("BEGIN; {lock}; SELECT pg_sleep({seconds}); COMMIT");
    let holder = Arc::clone(database);
    let holding = std::thread::spawn(move || drop(holder.run(&held).expect("psql answers")));
    let sleeps = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let began = Instant::now();
    while database.run(sleeps).expect("psql answers") != "1" {
        assert!(began.elapsed() < SOON, "the lock is never held");
    }
    holding
}

#[tokio::test]
async fn a_lock_timeout_is_reported_and_transient() {
    let Some(database) = database().map(Arc::new) else { return };
    let ledger = PostgresLedger::open(impatient(&database.url)).expect("it opens");
    assert_eq!(word(&ledger, "before").await, "fresh");
    let holding = hold(&database, "SELECT 1 FROM head FOR UPDATE", 3.0);
    let fault = record(&ledger, entry("held", "a")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::LedgerUnavailable);
    assert_eq!(fault.message, "the database took too long, nothing was stored");
    holding.join().expect("it lets go");
    until("the ledger can write again", async || ledger.is_healthy()).await;
    assert_eq!(word(&ledger, "held").await, "fresh");
}

#[tokio::test]
async fn a_query_that_times_out_or_finds_no_connection_is_replied_to_in_time() {
    let Some(database) = database().map(Arc::new) else { return };
    let wait = Duration::from_millis(100);
    let few = Options { readers_max: 1, reader_wait: wait, ..impatient(&database.url) };
    let ledger = PostgresLedger::open(few).expect("it opens");
    assert_eq!(word(&ledger, "k").await, "fresh");
    let holding = hold(&database, "LOCK TABLE key_index IN ACCESS EXCLUSIVE MODE", 3.0);
    let (first, second) = tokio::join!(ledger.find(key("k")), ledger.find(key("k")));
    let mut kinds = [first.unwrap_err().kind, second.unwrap_err().kind];
    kinds.sort_by_key(|kind| *kind == FaultKind::Overloaded);
    assert_eq!(kinds, [FaultKind::LedgerUnavailable, FaultKind::Overloaded]);
    holding.join().expect("it lets go");
    assert!(ledger.find(key("k")).await.expect("readable").is_some());
}

/// Two gates, the same events: the first one admits, the other one recognises the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_gates_make_one_admission_of_each_key() {
    const KEYS: usize = 300;
    let Some(database) = database() else { return };
    let gates = [open(&database.url), open(&database.url)];
    let door = Door::new("events/orders");
    let race = async |gate: usize| {
        let mut fresh = Vec::new();
        for n in 0..KEYS {
            // One goes up and the other one down, so that they meet in the middle.
            let n = if gate == 0 { n } else { KEYS - 1 - n };
            let event = streamed(&door, &format!("k{n}"), "a");
            let recorded = record(&gates[gate], Entry::Event(event)).await.expect("it answers");
            if recorded.verdict.word() == "fresh" {
                fresh.push(recorded.verdict.seq().expect("it has a place"));
            } else {
                assert_eq!(recorded.verdict.word(), "duplicate");
            }
        }
        fresh
    };
    // A reader at one gate follows what both admit.
    let follow = async {
        let (mut after, mut seen) = (Seq(0), Vec::new());
        while seen.len() < KEYS {
            let page = read_or_wait(&gates[0], &door, after, 50, 1 << 20).await.expect("readable");
            seen.extend(page.entries.iter().map(|entry| entry.seq));
            after = page.next;
        }
        seen
    };
    let raced = tokio::time::timeout(SOON, async { tokio::join!(race(0), race(1), follow) });
    let (one, other, seen) = raced.await.expect("it ends");
    let mut fresh = [one, other].concat();
    fresh.sort_unstable();
    assert_eq!(fresh.len(), KEYS, "one admission of each key");
    assert_eq!(seen, fresh, "a reader misses nothing and sees it in order");
    assert_eq!(places(&database), format!("{}|{KEYS}|{KEYS}|{KEYS}", 2 * KEYS), "no gaps");
    assert_ne!(gates[0].epoch(), gates[1].epoch());
}

#[tokio::test]
async fn a_waiting_reader_is_notified_of_commits_by_another_gate() {
    let Some(database) = database() else { return };
    let (here, there) = (open(&database.url), open(&database.url));
    let door = Door::new("events/orders");
    let wait = read_or_wait(&here, &door, Seq(0), 10, 1_000);
    let write = async {
        record(&there, Entry::Event(streamed(&door, "k", "a"))).await.expect("it answers")
    };
    let (page, recorded) = tokio::time::timeout(SOON, async { tokio::join!(wait, write) })
        .await
        .expect("it is notified");
    assert_eq!(page.expect("readable").next, recorded.verdict.seq().expect("it has a place"));
}

#[tokio::test]
async fn gates_that_start_together_make_one_ledger() {
    let Some(database) = database() else { return };
    let gates: Vec<PostgresLedger> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..3).map(|_| scope.spawn(|| open(&database.url))).collect();
        opening.into_iter().map(|gate| gate.join().expect("it opens")).collect()
    });
    assert!(gates.iter().all(|gate| gate.tag() == gates[0].tag()));
    let reader = PostgresReader::open(&options(&database.url)).expect("it opens");
    assert_eq!(reader.tag(), gates[0].tag());
}

#[tokio::test]
async fn foreign_tables_are_not_touched() {
    let Some(database) = database() else { return };
    let missing = PostgresReader::open(&options(&database.url)).err();
    assert!(matches!(missing, Some(OpenError::Older { found: 0, .. })), "{missing:?}");
    database.run("CREATE TABLE body (mine TEXT)").expect("psql answers");
    let error = PostgresLedger::open(options(&database.url)).err();
    assert!(
        matches!(&error, Some(OpenError::NotALedger { table, .. }) if table == "body"),
        "{error:?}"
    );
    assert_eq!(database.run("SELECT count(*) FROM body").as_deref(), Ok("0"));
    // In a schema of its own it has room.
    let apart = Options { schema: "admit \"ledger\"".to_owned(), ..options(&database.url) };
    let ledger = PostgresLedger::open(apart).expect("it opens");
    assert_eq!(word(&ledger, "k").await, "fresh");
}

#[tokio::test]
async fn a_schema_may_have_any_name_for_every_command() {
    let Some(database) = database() else { return };
    for schema in ["admit \"ledger\"", "Admit", "select"] {
        let options = Options { schema: schema.to_owned(), ..options(&database.url) };
        let ledger = PostgresLedger::open(options.clone()).expect("it opens");
        assert_eq!(word(&ledger, "k").await, "fresh", "{schema}");
        assert!(ledger.status().await.expect("readable").bytes > 0, "{schema}");
        let checked = std::thread::spawn(move || {
            let verifier = admit_ledger::postgres::verify::verifier(&options, false);
            let mut found = Vec::new();
            let structure = verifier
                .expect("it opens")
                .structure(&mut |disagreement| found.push(disagreement))
                .expect("readable");
            (structure, found)
        });
        let (structure, found) = checked.join().expect("it ends");
        assert!(found.is_empty(), "{schema}: {found:?}");
        assert!(structure.indexes > 0 || structure.unchecked.is_some(), "{schema}");
    }
}
