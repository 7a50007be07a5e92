//! Permanent loss of the database and promotion of its standby: accepted events are stored once.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use admit_testkit::postgres::Server;

use crate::support::events::{idempotency_key, match_begin};
use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::{TIMEOUT, wait_for};

const PRODUCERS: u64 = 4;

fn gate(folder: &std::path::Path, name: &str, servers: [&Server; 2]) -> Gate {
    let [first, second] = servers.map(|server| server.address());
    Launch::on(&folder.join(name))
        .variable("ADMIT_LEDGER__URL", &format!("postgres://postgres@{first},{second}/postgres"))
        .variable("ADMIT_LEDGER__SCHEMA", "public")
        .variable("ADMIT_LEDGER__GATE_ID", name)
        .variable("ADMIT_LEDGER__CONNECT_MS_MAX", "1000")
        .variable("ADMIT_LEDGER__LOCK_MS_MAX", "2000")
        // They share no bus, so neither publishes.
        .variable("ADMIT_DOORS__INGESTION_GATE__ENABLED", "false")
        .start()
}

#[test]
fn after_a_failover_the_standby_has_every_accepted_event_and_gates_reconnect() {
    let Some(first) = Server::start() else { return };
    let Some(second) = first.standby() else { return };
    let folder = tempfile::tempdir().unwrap();
    let gates = ["a", "b"].map(|name| gate(folder.path(), name, [&first, &second]));
    let (is_over, numbers) = (AtomicBool::new(false), AtomicU64::new(1));
    let taken = Mutex::new(BTreeSet::new());
    let so_far = || taken.lock().unwrap().len();
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (gates, is_over, numbers, taken) = (&gates, &is_over, &numbers, &taken);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let n = numbers.fetch_add(1, Ordering::Relaxed);
                    let mut turn = producer as usize;
                    wait_for("a gate takes it", TIMEOUT, || {
                        turn += 1;
                        let mut client = Client::to(gates[turn % 2].address());
                        let reply = client.post(&match_begin(n, "a")).ok()?;
                        reply.is_accepted().then_some(())
                    });
                    taken.lock().unwrap().insert(n);
                }
            });
        }
        wait_for("it is under way", TIMEOUT, || (so_far() > 100).then_some(()));
        first.kill();
        let before = so_far();
        second.promote().unwrap();
        wait_for("it goes on", TIMEOUT, || (so_far() > before + 100).then_some(()));
        is_over.store(true, Ordering::Relaxed);
    });
    let kept = second.run("postgres", "SELECT idempotency_key FROM pixel_receipts").unwrap();
    let once: BTreeSet<&str> = kept.lines().collect();
    assert_eq!(once.len(), kept.lines().count(), "nothing is in twice");
    let taken = taken.into_inner().unwrap();
    let lost: Vec<&u64> = taken.iter().filter(|n| !once.contains(&*idempotency_key(**n))).collect();
    assert!(lost.is_empty(), "{} of {}: {lost:?}", lost.len(), taken.len());
    for gate in gates {
        wait_for("it is ready again", TIMEOUT, || gate.is_ready().then_some(()));
        gate.stop();
    }
}
