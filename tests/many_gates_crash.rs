//! Random crashes of gates, the database and the network: no accepted event is lost, nothing happens
//! twice, and unknown outcomes are reported as ambiguous.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use admit_testkit::proxy::Faults;
use admit_testkit::rng::Rng;

use crate::support::assert_reply::PixelReply;
use crate::support::cluster::Cluster;
use crate::support::events::{idempotency_key, match_begin};
use crate::support::gateway_stub::{GOOD, GatewayStub, StubAction};
use crate::support::http::{Client, DOOR};
use crate::support::ingest::{PUSH, RUN, envelope};
use crate::support::intents::{INTENTS, history, outcome, paste, task};
use crate::support::{TIMEOUT, machine, wait_for};

const GATES: usize = 3;

/// Number of pixel events, and of published envelopes.
const EVENTS: u64 = 1_500;

/// Timeout for conditions that outlast several crashes in a row.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn after_any_crash_an_accepted_event_is_stored_once_and_published_once_or_ambiguous() {
    const PRODUCERS: u64 = 8;
    let Some(cluster) = Cluster::start(GATES, &[]) else { return };
    let mut rng = machine::rng();
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (cluster, next) = (&cluster, &next);
                scope.spawn(move || produce(cluster, next, producer))
            })
            .collect();
        let storm = scope.spawn(|| {
            let mut seen = BTreeMap::new();
            while !is_over.load(Ordering::Relaxed) {
                *seen.entry(hurt(&cluster, &mut rng)).or_insert(0) += 1;
            }
            seen
        });
        for producer in producers {
            producer.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        eprintln!("{:?}", storm.join().unwrap());
    });
    cluster.proxy.set_faults(Faults::default());
    wait_for("every gate is ready again", LONG, || cluster.is_ready().then_some(()));
    wait_for("nothing is in flight any more", LONG, || {
        let open = "SELECT count(*) FROM effect WHERE state IN ('in_flight', 'intended')";
        (cluster.query_one::<i64>(open) == 0).then_some(())
    });
    assert_each_pixel_event_is_in_once(&cluster);
    assert_each_envelope_has_one_true_end(&cluster);
    assert_counters_are_exact(&cluster);
    cluster.stop_all();
}

/// Sends events to any gate, each until it is accepted.
fn produce(cluster: &Cluster, next: &AtomicU64, producer: u64) {
    let mut turn = usize::try_from(producer).unwrap();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= 2 * EVENTS {
            return;
        }
        wait_for("an event is taken", LONG, || {
            turn += 1;
            let mut client = Client::to(cluster.address(turn % GATES)?);
            let taken = if n < EVENTS { say(&mut client, n) } else { push(&mut client, n) };
            taken.then_some(())
        });
    }
}

/// Whether the reply of the gate means that the event is stored.
fn say(client: &mut Client, n: u64) -> bool {
    let body = match_begin(n, "a").body();
    let Ok(answer) = client.send("POST", DOOR, &[], body.as_bytes()) else { return false };
    match PixelReply::read(&answer) {
        PixelReply::Processed(_) | PixelReply::Duplicate(_) => true,
        PixelReply::Error(_, reason) if reason.retryable => false,
        other @ (PixelReply::Rejected(_) | PixelReply::Error(..)) => panic!("event {n}: {other:?}"),
    }
}

fn push(client: &mut Client, n: u64) -> bool {
    let body = envelope(n).to_string();
    let Ok(answer) = client.send("POST", PUSH, &[], body.as_bytes()) else { return false };
    let reply = answer.json();
    match answer.status {
        200 => true,
        408 | 429 | 503 => false,
        other => panic!("event {n}: {other} {reply}"),
    }
}

/// Injects one fault and repairs it.
fn hurt(cluster: &Cluster, rng: &mut Rng) -> &'static str {
    thread::sleep(Duration::from_millis(200 + rng.below(800)));
    let gate = usize::try_from(rng.below(GATES as u64)).unwrap();
    match rng.below(8) {
        0..=2 => {
            cluster.kill(gate);
            // Sometimes long enough for the other gates to take over.
            thread::sleep(Duration::from_millis(rng.below(3_000)));
            cluster.open(gate);
            "gates killed"
        }
        3 => {
            cluster.server.kill();
            thread::sleep(Duration::from_millis(rng.below(1_500)));
            cluster.server.start_again().unwrap();
            "databases crashed"
        }
        4 => {
            cluster.server.stop();
            cluster.server.start_again().unwrap();
            "databases restarted"
        }
        5 | 6 => {
            cluster.proxy.cut_all();
            "connections cut"
        }
        _ => {
            let stall = Duration::from_millis(300 + rng.below(2_500));
            cluster.proxy.set_faults(Faults {
                cut_one_in: 60,
                stall_one_in: 40,
                stall,
                ..Faults::default()
            });
            thread::sleep(Duration::from_millis(1_500));
            cluster.proxy.set_faults(Faults::default());
            "networks spoiled"
        }
    }
}

fn assert_each_pixel_event_is_in_once(cluster: &Cluster) {
    let query = "SELECT idempotency_key, count(*) FROM pixel_receipts
                 WHERE status = 'processed' GROUP BY 1";
    let stored: BTreeMap<String, i64> =
        cluster.rows(query).iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(stored.len() as u64, EVENTS, "every event was taken in the end");
    for n in 0..EVENTS {
        assert_eq!(stored.get(&idempotency_key(n)), Some(&1), "event {n} is kept once");
    }
    let server = cluster.with(0, |gate| gate.client().get("/v1/pixel/servers/local/a"));
    assert_eq!(server["event_counts"]["lifecycle"], EVENTS, "and had its side effects once");
}

fn assert_each_envelope_has_one_true_end(cluster: &Cluster) {
    let query = "SELECT event_id, state FROM ig_admissions";
    let states: Vec<(String, String)> =
        cluster.rows(query).iter().map(|row| (row.get(0), row.get(1))).collect();
    let ends: BTreeMap<&str, &str> =
        states.iter().map(|(id, state)| (id.as_str(), state.as_str())).collect();
    assert_eq!((ends.len(), ends.len() as u64), (states.len(), EVENTS), "one admission each");
    let messages = cluster.messages();
    let mut ambiguous = 0;
    for (id, state) in ends {
        let sent = messages.get(id).copied().unwrap_or(0);
        match state {
            "ADMITTED" => assert_eq!(sent, 1, "{id} is admitted"),
            "PUBLISH_AMBIGUOUS" => {
                ambiguous += 1;
                assert!(sent <= 1, "{id} is on the bus {sent} times");
            }
            other => panic!("{id} ends as {other}"),
        }
    }
    assert!(messages.keys().all(|id| states.iter().any(|(known, _)| known == id)));
    eprintln!("{ambiguous} of {EVENTS} are ambiguous");
}

fn assert_counters_are_exact(cluster: &Cluster) {
    let receipts = |decision: &str| {
        let query = format!(
            "SELECT count(*) FROM issued WHERE kind = 'receipt' AND decision = '{decision}'"
        );
        cluster.query_one::<i64>(&query)
    };
    let run =
        &cluster.rows("SELECT admit, duplicate, quarantine, ambiguous, in_flight FROM run")[0];
    let counted: Vec<i64> = (0..5).map(|at| run.get(at)).collect();
    let ambiguous = cluster.query_one("SELECT count(*) FROM effect WHERE state = 'ambiguous'");
    let found = [receipts("ADMIT"), receipts("DUPLICATE"), receipts("QUARANTINE"), ambiguous, 0];
    assert_eq!(counted, found, "admit, duplicate, quarantine, ambiguous, in flight");
    let path = format!("/v1/runs/{RUN}/report");
    let reports: Vec<_> = (0..GATES)
        .map(|index| cluster.with(index, |gate| gate.client().get(&path)["ingress"].clone()))
        .collect();
    assert!(reports.iter().all(|report| *report == reports[0]), "{reports:?}");
}

/// Gates that call a gateway with a long timeout.
fn calling(url: &str) -> Option<Cluster> {
    let variables = [
        ("EXECUTE_ACTIONS", "true"),
        ("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", url),
        ("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "60000"),
        ("ADMIT_DOORS__INTENTS__IN_WORK_WAIT_MS", "300"),
    ];
    Cluster::start(2, &variables)
}

/// Number of effects in a state.
fn standing(cluster: &Cluster, state: &str) -> i64 {
    cluster.query_one(&format!("SELECT count(*) FROM effect WHERE state = '{state}'"))
}

#[test]
fn effects_in_flight_at_a_dead_gate_are_ambiguous_and_unstarted_ones_run_once() {
    /// As many concurrent calls as a door makes; one more stays intended.
    const CALLS_MAX: usize = 64;
    let stub = GatewayStub::start(StubAction::Hold);
    let Some(cluster) = calling(&stub.url()) else { return };
    cluster.with(0, |gate| {
        let throw_in = |title: &str| {
            gate.client().send_and_hang_up(INTENTS, task(title).to_string().as_bytes());
        };
        for n in 0..CALLS_MAX {
            throw_in(&format!("busy {n}"));
        }
        stub.wait_for_calls(CALLS_MAX);
        throw_in("waits");
    });
    wait_for("one more is kept", TIMEOUT, || (standing(&cluster, "intended") == 1).then_some(()));
    cluster.kill(0);
    stub.set_action(GOOD);
    wait_for("the other gate has taken over", TIMEOUT, || {
        let is_over =
            standing(&cluster, "ambiguous") == CALLS_MAX as i64 && standing(&cluster, "done") == 1;
        is_over.then_some(())
    });
    assert_eq!(stub.calls().len(), CALLS_MAX + 1, "nothing is called twice");
    let waited = cluster.with(1, |gate| outcome(&paste(&mut gate.client(), &task("waits"))));
    assert_eq!((waited.0, waited.1.as_str()), (200, "executed"));
    let busy = cluster.with(1, |gate| outcome(&paste(&mut gate.client(), &task("busy 0"))));
    assert_eq!((busy.0, busy.1.as_str()), (502, "failed"));
    assert_eq!(stub.calls().len(), CALLS_MAX + 1, "also not for a copy");
    cluster.stop(1);
}

#[test]
fn an_outcome_found_after_the_lease_expired_is_stored_as_evidence() {
    let stub = GatewayStub::start(StubAction::Hold);
    let Some(cluster) = calling(&stub.url()) else { return };
    cluster.with(0, |gate| {
        gate.client().send_and_hang_up(INTENTS, task("late").to_string().as_bytes());
    });
    stub.wait_for_calls(1);
    // Not dead, but paused for longer than its lease.
    cluster.with(0, |gate| gate.signal("STOP"));
    wait_for("the other gate has given it up", TIMEOUT, || {
        (standing(&cluster, "ambiguous") == 1).then_some(())
    });
    stub.set_action(GOOD);
    cluster.with(0, |gate| gate.signal("CONT"));
    let receipt = cluster.with(1, |gate| outcome(&paste(&mut gate.client(), &task("late"))).2);
    let evidence = wait_for("the answer is kept as evidence", TIMEOUT, || {
        let history = cluster.with(1, |gate| history(gate, &receipt));
        (history.last().map(String::as_str) == Some("evidence")).then_some(history)
    });
    assert!(evidence.contains(&"ambiguous".to_owned()), "{evidence:?}");
    assert_eq!(standing(&cluster, "ambiguous"), 1, "evidence decides nothing by itself");
    assert_eq!(stub.calls().len(), 1);
    cluster.stop_all();
}

#[test]
fn a_commit_with_a_lost_reply_is_found_and_not_repeated() {
    const EVENTS: u64 = 200;
    let Some(cluster) = Cluster::start(1, &[]) else { return };
    let began = Instant::now();
    // A commit takes about a dozen messages, so about every third commit fails.
    for n in 0..EVENTS {
        if n % 20 == 10 {
            let faults = Faults { cut_one_in: 30, ..Faults::default() };
            cluster.proxy.set_faults(faults);
        } else if n % 20 == 0 {
            cluster.proxy.set_faults(Faults::default());
        }
        let mut client = Client::to(cluster.address(0).unwrap());
        wait_for("the event is taken", LONG, || say(&mut client, n).then_some(()));
    }
    eprintln!("{EVENTS} events in {:?}, {:?}", began.elapsed(), cluster.proxy.counts());
    cluster.proxy.set_faults(Faults::default());
    let kept: i64 = cluster.query_one("SELECT count(*) FROM admission WHERE verdict = 'fresh'");
    assert_eq!(kept as u64, EVENTS);
    let server = cluster.with(0, |gate| gate.client().get("/v1/pixel/servers/local/a"));
    assert_eq!(server["event_counts"]["lifecycle"], EVENTS);
    cluster.stop_all();
}
