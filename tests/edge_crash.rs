//! Agent and gate killed at random: no acknowledged event is lost or stored twice.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;

use std::thread;
use std::time::Duration;

use admit_testkit::rng::Rng;

use crate::support::edge::{gate_proxy, ids, outbox, wait_until_drained};
use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::skyra::{self, DOOR, inbox};

/// Number of events, and of the producers that send them.
const EVENTS: u64 = 1_000;
const PRODUCERS: u64 = 4;

fn seed() -> u64 {
    let configured = std::env::var("ADMIT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    configured.unwrap_or_else(|| u64::from(std::process::id()))
}

/// Sends this producer's share of the events to the agent's current address; retries each until it is
/// acknowledged.
fn produce(producer: u64, agent: &Mutex<SocketAddr>, acked: &Mutex<HashSet<String>>) {
    let mut rng = Rng::seeded(producer);
    for n in (0..EVENTS).filter(|n| n % PRODUCERS == producer) {
        loop {
            let address = *agent.lock().unwrap();
            let sent = Client::to(address).send("POST", DOOR, &[], skyra::text(n).as_bytes());
            if sent.is_ok_and(|response| response.json()["status"] == "stored") {
                acked.lock().unwrap().insert(skyra::id(n));
                break;
            }
            thread::sleep(Duration::from_millis(1 + rng.below(10)));
        }
        // Pace the load, so that events are still unsent when the next process is killed.
        thread::sleep(Duration::from_millis(rng.below(25)));
    }
}

#[test]
fn with_random_kills_on_both_sides_every_acknowledged_event_arrives_once() {
    let seed = seed();
    println!("ADMIT_TEST_SEED={seed}");
    let mut rng = Rng::seeded(seed);
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let proxy = gate_proxy();
    let file = outbox(edge.path(), "skyra", "local");
    let start_agent = || {
        Launch::edge(edge.path(), proxy.address())
            .variable("ADMIT_EDGE__ACK_MS_MAX", "1000")
            .variable("ADMIT_EDGE__BACKOFF_MS_BASE", "20")
            .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "200")
            .start()
    };
    let start_gate = || {
        let gate = Gate::on(data.path());
        proxy.move_to(gate.address());
        gate
    };
    let (mut gate, mut agent) = (Some(start_gate()), Some(start_agent()));
    let agent_address = Mutex::new(agent.as_ref().unwrap().address());
    let acked = Mutex::new(HashSet::new());
    let mut kills = 0;
    thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                scope.spawn({
                    let (agent_address, acked) = (&agent_address, &acked);
                    move || produce(producer, agent_address, acked)
                })
            })
            .collect();
        while !producers.iter().all(|producer| producer.is_finished()) {
            thread::sleep(Duration::from_millis(20 + rng.below(200)));
            kills += 1;
            if rng.one_in(2) {
                gate.take().unwrap().kill();
                gate = Some(start_gate());
                continue;
            }
            agent.take().unwrap().kill();
            // Before the restart: every acknowledged event must be in the outbox or in the inbox.
            let acked_so_far = acked.lock().unwrap().clone();
            let mut stored: HashSet<String> = ids(&file).into_iter().collect();
            stored.extend(inbox(data.path()).into_iter().map(|row| row.event_id));
            let lost: Vec<_> = acked_so_far.difference(&stored).collect();
            assert!(lost.is_empty(), "seed {seed}: acknowledged and lost: {lost:?}");
            agent = Some(start_agent());
            *agent_address.lock().unwrap() = agent.as_ref().unwrap().address();
        }
    });
    wait_until_drained(&file);
    let mut arrived: Vec<String> = inbox(data.path()).into_iter().map(|row| row.event_id).collect();
    arrived.sort();
    let wanted: Vec<String> = (0..EVENTS).map(skyra::id).collect();
    assert_eq!(arrived, wanted, "seed {seed}: each event once");
    assert!(kills >= 4, "seed {seed}: only {kills} processes were killed");
    agent.take().unwrap().stop();
    gate.take().unwrap().stop();
}
