//! Several gates on one ledger keep the guarantees of a single gate.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use admit_testkit::servers::Nats;
use serde_json::json;

use crate::support::assert_reply::PixelReply;
use crate::support::cluster::{Cluster, document};
use crate::support::events::{idempotency_key, match_begin};
use crate::support::gateway_stub::{GOOD, GatewayStub, StubAction};
use crate::support::http::Client;
use crate::support::ingest::{PUSH, RUN, envelope, outcome, push, read_decision};
use crate::support::intents::{paste, task};
use crate::support::rounds::{Round, file, post_source_ok, rounds};
use crate::support::{TIMEOUT, wait_for};

const GATES: usize = 3;

#[test]
fn concurrent_copies_at_several_gates_are_admitted_once() {
    const EVENTS: u64 = 200;
    let Some(cluster) = Cluster::start(GATES, &[]) else { return };
    let processed = AtomicU64::new(0);
    thread::scope(|scope| {
        for index in 0..GATES {
            let mut client = cluster.with(index, |gate| gate.client());
            let processed = &processed;
            scope.spawn(move || {
                for n in 0..EVENTS {
                    match client.submit(&match_begin(n, "a")) {
                        PixelReply::Processed(_) => processed.fetch_add(1, Ordering::Relaxed),
                        PixelReply::Duplicate(_) => 0,
                        other @ (PixelReply::Rejected(_) | PixelReply::Error(..)) => {
                            panic!("{other:?}")
                        }
                    };
                }
            });
        }
    });
    assert_eq!(processed.into_inner(), EVENTS, "one of the three is the first");
    let server = cluster.with(0, |gate| gate.client().get("/v1/pixel/servers/local/a"));
    assert_eq!(server["event_counts"]["lifecycle"], EVENTS, "side effects happen once");
    let copies: i64 = cluster.query_one("SELECT sum(duplicate_count) FROM pixel_receipts");
    assert_eq!(copies as u64, EVENTS * (GATES as u64 - 1), "and every copy is counted");
    for index in 1..GATES {
        let same = cluster.with(index, |gate| gate.client().get("/v1/pixel/servers/local/a"));
        assert_eq!(same, server, "every gate gives the same reply");
    }
    cluster.stop_all();
}

#[test]
fn a_copy_gets_the_stored_reply_from_any_gate_without_a_second_call() {
    let stub = GatewayStub::start(StubAction::Hold);
    let url = stub.url();
    let variables = [
        ("EXECUTE_ACTIONS", "true"),
        ("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", url.as_str()),
        ("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "8000"),
        ("ADMIT_DOORS__INTENTS__IN_WORK_WAIT_MS", "8000"),
        ("ADMIT_LIMITS__ANSWER_MS_MAX", "9000"),
    ];
    let Some(cluster) = Cluster::start(GATES, &variables) else { return };
    let bodies: BTreeSet<Vec<u8>> = thread::scope(|scope| {
        let pasting: Vec<_> = (0..GATES)
            .map(|index| {
                let mut client = cluster.with(index, |gate| gate.client());
                scope.spawn(move || paste(&mut client, &task("once")))
            })
            .collect();
        stub.wait_for_calls(1);
        wait_for("all of them are in", TIMEOUT, || {
            let sightings: i64 = cluster.query_one("SELECT count(*) FROM sighting");
            (sightings as usize == GATES - 1).then_some(())
        });
        stub.set_action(GOOD);
        pasting.into_iter().map(|pasted| pasted.join().unwrap().body).collect()
    });
    assert_eq!(bodies.len(), 1, "the same envelope, byte for byte, to those who waited too");
    for index in 0..GATES {
        let copy = cluster.with(index, |gate| paste(&mut gate.client(), &task("once")));
        assert_eq!((copy.status, bodies.contains(&copy.body)), (200, true), "and to later ones");
    }
    assert_eq!(stub.calls().len(), 1);
    cluster.stop_all();
}

#[test]
fn a_rolling_restart_under_load_loses_nothing_and_admits_nothing_twice() {
    const PRODUCERS: u64 = 6;
    let Some(cluster) = Cluster::start(GATES, &[]) else { return };
    let (is_over, numbers) = (AtomicBool::new(false), AtomicU64::new(0));
    let acked: Vec<u64> = thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (cluster, is_over, numbers) = (&cluster, &is_over, &numbers);
                scope.spawn(move || {
                    let mut acked = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let n = numbers.fetch_add(1, Ordering::Relaxed);
                        push_somewhere(cluster, n, producer);
                        acked.push(n);
                    }
                    acked
                })
            })
            .collect();
        for index in 0..GATES {
            let before = numbers.load(Ordering::Relaxed);
            wait_for("the load goes on", TIMEOUT, || {
                (numbers.load(Ordering::Relaxed) > before + 30).then_some(())
            });
            cluster.stop(index);
            cluster.open(index);
        }
        is_over.store(true, Ordering::Relaxed);
        producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect()
    });
    let stored: i64 =
        cluster.query_one("SELECT count(*) FROM ig_admissions WHERE state = 'ADMITTED'");
    assert_eq!(stored as usize, acked.len(), "every event that was taken, once");
    let messages = cluster.messages();
    assert!(messages.values().all(|count| *count == 1), "each is published once");
    assert_eq!(messages.len(), acked.len());
    let ambiguous: i64 = cluster.query_one("SELECT ambiguous + in_flight FROM run");
    assert_eq!(ambiguous, 0, "a gate that is stopped leaves no ambiguity");
    cluster.stop_all();
}

/// Pushes an event to one gate after another until one returns a decision.
fn push_somewhere(cluster: &Cluster, n: u64, start: u64) {
    let body = envelope(n).to_string();
    let mut turn = start as usize + n as usize;
    wait_for("a gate takes the event", TIMEOUT, || {
        turn += 1;
        let address = cluster.address(turn % GATES)?;
        let answer = Client::to(address).send("POST", PUSH, &[], body.as_bytes()).ok()?;
        if answer.status != 200 {
            let code = answer.status;
            assert!([408, 429, 503].contains(&code), "{code}: {}", answer.json());
            return None;
        }
        let (decision, _) = read_decision(&answer);
        let is_known = ["ADMIT", "DUPLICATE", "QUARANTINE"].contains(&decision.as_str());
        assert!(is_known, "event {n}: {decision}");
        Some(())
    });
}

#[test]
fn a_run_is_counted_exactly_and_closed_once_by_any_gate() {
    const EVENTS: u64 = 60;
    // A closure checks every message, so the gates need a shared bus.
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    let Some(cluster) = Cluster::start(GATES, &[("ADMIT_BUS__URL", &url)]) else { return };
    for n in 0..EVENTS {
        cluster.with(n as usize % GATES, |gate| {
            assert_eq!(outcome(&push(&mut gate.client(), &envelope(n))), "ADMIT");
        });
        let copied = cluster.with((n as usize + 1) % GATES, |gate| {
            read_decision(&push(&mut gate.client(), &envelope(n))).0
        });
        assert_eq!(copied, "DUPLICATE");
    }
    let reports: Vec<_> = (0..GATES)
        .map(|index| {
            let path = format!("/v1/runs/{RUN}/report");
            let report = cluster.with(index, |gate| gate.client().get(&path));
            report["ingress"].clone()
        })
        .collect();
    assert!(reports.iter().all(|report| *report == reports[0]), "{reports:?}");
    assert_eq!(cluster.query_one::<i64>("SELECT admit FROM run") as u64, EVENTS);
    assert_eq!(cluster.query_one::<i64>("SELECT duplicate FROM run") as u64, EVENTS);
    let path = format!("/v1/runs/{RUN}/close");
    let closed: Vec<_> = thread::scope(|scope| {
        let closing: Vec<_> = (0..GATES)
            .map(|index| {
                let (mut client, path) = (cluster.with(index, |gate| gate.client()), &path);
                scope.spawn(move || {
                    wait_for("the run is closed", TIMEOUT, || {
                        let answer = client.send("POST", path, &[], b"").ok()?;
                        // Another gate is closing the run.
                        (answer.status != 409).then(|| (answer.status, answer.json()))
                    })
                })
            })
            .collect();
        closing.into_iter().map(|closing| closing.join().unwrap()).collect()
    });
    let (status, reply) = &closed[0];
    assert!(closed.iter().all(|(_, other)| other == reply), "{closed:?}");
    assert_eq!(*status, 200, "{reply}");
    let reference = reply["closure_ref"].as_str().expect("a closure has a reference");
    assert!(document(&cluster.artifacts(), reference).is_object());
    for index in 0..GATES {
        let late = cluster.with(index, |gate| push(&mut gate.client(), &envelope(EVENTS + 1)));
        assert_eq!((late.status, &late.json()["error"]), (409, &json!("RUN_CLOSED")));
    }
    cluster.stop_all();
}

#[test]
fn ledger_files_and_a_shared_bus_agree_after_a_death_and_any_gate_reconciles() {
    const EVENTS: u64 = 300;
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    let Some(cluster) = Cluster::start(GATES, &[("ADMIT_BUS__URL", &url)]) else { return };
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for producer in 0..4 {
            let (cluster, next) = (&cluster, &next);
            scope.spawn(move || {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= EVENTS {
                        return;
                    }
                    push_somewhere(cluster, n, producer);
                }
            });
        }
        wait_for("it is under way", TIMEOUT, || (next.load(Ordering::Relaxed) > 50).then_some(()));
        cluster.kill(0);
    });
    let listen = cluster.address(1).unwrap().to_string();
    wait_for("whatever was in flight is resolved by another gate", TIMEOUT, || {
        let resolve = ["reconcile", "--all", "--found", "--absent", "--yes", "--reason", "killed"];
        cluster.admit(1, &[&resolve[..], &["--listen", &listen]].concat());
        let open = "SELECT count(*) FROM effect WHERE state IN ('in_flight', 'ambiguous')";
        (cluster.query_one::<i64>(open) == 0).then_some(())
    });
    for n in 0..EVENTS {
        push_somewhere(&cluster, n, n);
    }
    assert_eq!(cluster.query_one::<i64>("SELECT admit FROM run") as u64, EVENTS);
    cluster.open(0);
    let (agrees, printed) = cluster.admit(2, &["verify"]);
    assert!(agrees, "{printed}");
    cluster.stop_all();
}

#[test]
fn sources_that_post_a_round_to_different_gates_make_one_round() {
    let Some(cluster) = Cluster::start(GATES, &[]) else { return };
    for turn in 0..5 {
        let round = Round::reference().later(turn);
        thread::scope(|scope| {
            for index in 0..GATES {
                let mut client = cluster.with(index, |gate| gate.client());
                let round = &round;
                scope.spawn(move || match index {
                    0 => drop(post_source_ok(
                        &mut client,
                        "filename_trigger",
                        &round.post("filename_trigger"),
                    )),
                    1 => drop(post_source_ok(
                        &mut client,
                        "proximity_file",
                        &file(round.proximity(3)),
                    )),
                    _ => drop(post_source_ok(&mut client, "stats_ready", &round.ready())),
                });
            }
        });
        let seen = cluster.with(0, |gate| rounds(&mut gate.client()).len());
        assert_eq!(seen as i64, turn + 1, "one round more");
    }
    cluster.stop_all();
}

#[test]
fn during_a_database_outage_gates_are_not_ready_and_recover_without_a_restart() {
    let Some(cluster) = Cluster::start(GATES, &[]) else { return };
    cluster.with(0, |gate| gate.client().submit(&match_begin(1, "a")).processed());
    cluster.server.stop();
    for index in 0..GATES {
        cluster.with(index, |gate| {
            let reason = gate.client().submit(&match_begin(2, "a")).unavailable();
            assert!(reason.retryable, "{reason:?}");
            wait_for("the gate says that it is not ready", TIMEOUT, || {
                (!gate.is_ready()).then_some(())
            });
        });
    }
    cluster.server.start_again().unwrap();
    wait_for("every gate is ready again", TIMEOUT, || cluster.is_ready().then_some(()));
    for index in 0..GATES {
        let reply = cluster.with(index, |gate| gate.client().submit(&match_begin(2, "a")));
        assert!(reply.is_accepted(), "{reply:?}");
    }
    let key = idempotency_key(2);
    let query = format!("SELECT count(*) FROM pixel_receipts WHERE idempotency_key = '{key}'");
    assert_eq!(cluster.query_one::<i64>(&query), 1);
    cluster.stop_all();
}

#[test]
fn a_gate_whose_id_is_taken_over_stops_and_logs_the_reason() {
    let Some(cluster) = Cluster::start(2, &[("ADMIT_LEDGER__GATE_ID", "the-same")]) else { return };
    wait_for("the older one has stopped", TIMEOUT, || {
        cluster
            .with(0, |gate| gate.stderr().contains("give each its own ledger.gate_id"))
            .then_some(())
    });
    cluster.with(1, |gate| gate.client().submit(&match_begin(1, "a")).processed());
    cluster.stop(1);
}
