//! Rounds that several gates publish: every revision goes out once, whichever gate hands it over.

use std::collections::BTreeMap;
use std::thread;

use admit_testkit::servers::Nats;
use serde_json::Value;

use crate::support::cluster::Cluster;
use crate::support::http::Client;
use crate::support::ingest::topic;
use crate::support::rounds::{ROUNDS, Round, SOURCES, post_source_ok};
use crate::support::{TIMEOUT, wait_for};

const TOPIC: &str = "rounds.v1";
const GATES: usize = 2;
const PLAYED: u32 = 24;

/// Gates that publish rounds at once, which makes the most revisions.
const AT_ONCE: [(&str, &str); 2] =
    [("ADMIT_DOORS__ROUNDS__TOPIC", TOPIC), ("ADMIT_DOORS__ROUNDS__PUBLISH_SETTLE_MS", "0")];

/// Tells of rounds, each source by another gate, all at once. A gate that dies is left alone; the
/// other is told instead.
fn tell_all(cluster: &Cluster) {
    thread::scope(|scope| {
        for (n, source) in SOURCES.iter().enumerate() {
            scope.spawn(move || {
                for played in 0..PLAYED {
                    let post = Round::nth(played).post(source);
                    wait_for("a gate takes it", TIMEOUT, || {
                        let address = (0..GATES).find_map(|g| cluster.address((n + g) % GATES));
                        let mut client = Client::to(address?);
                        let path = format!("{ROUNDS}/{source}");
                        let answer = client.send("POST", &path, &[], post.to_string().as_bytes());
                        answer.ok().filter(|answer| answer.status == 200).map(drop)
                    });
                }
            });
        }
    });
}

/// Waits until nothing waits and nothing is in flight.
fn at_rest(cluster: &Cluster, index: usize) -> Value {
    wait_for("everything was handed to the bus", TIMEOUT, || {
        let path = format!("{ROUNDS}/diagnostics");
        let counts = cluster.with(index, |gate| gate.client().get(&path))["publications"].clone();
        (counts["waiting"] == 0 && counts["in_flight"] == 0).then_some(counts)
    })
}

/// How many revisions went out, by what the ledger says.
fn went_out(cluster: &Cluster) -> i64 {
    cluster.query_one("SELECT count(*) FROM record_publication WHERE state = 'done'")
}

#[test]
fn two_gates_publish_every_revision_of_a_round_once() {
    let Some(cluster) = Cluster::start(GATES, &AT_ONCE) else { return };
    tell_all(&cluster);
    at_rest(&cluster, 0);
    let mut found: BTreeMap<(String, u64), usize> = BTreeMap::new();
    // Each gate has a bus of its own here, which forgives no copy.
    for index in 0..GATES {
        for line in topic(&cluster.data(index), TOPIC) {
            let message = &line["payload"];
            let id = message["round_id"].as_str().unwrap().to_owned();
            *found.entry((id, message["revision"].as_u64().unwrap())).or_default() += 1;
        }
    }
    let twice: Vec<_> = found.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(found.len() as i64, went_out(&cluster), "and the ledger knows of each");
    let rounds: i64 = cluster.query_one("SELECT count(*) FROM rounds WHERE state = 'published'");
    assert_eq!(rounds, i64::from(PLAYED));
    let behind = "SELECT count(*) FROM rounds WHERE published_revision IS DISTINCT FROM revision";
    assert_eq!(cluster.query_one::<i64>(behind), 0, "the newest revision of each is out");
    cluster.stop_all();
}

#[test]
fn on_one_bus_every_revision_is_there_once_though_a_gate_died() {
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    let shared = [&AT_ONCE[..], &[("ADMIT_BUS__URL", &url)]].concat();
    let Some(cluster) = Cluster::start(GATES, &shared) else { return };
    thread::scope(|scope| {
        scope.spawn(|| tell_all(&cluster));
        wait_for("it is under way", TIMEOUT, || (went_out(&cluster) > 10).then_some(()));
        cluster.kill(0);
    });
    let listen = cluster.address(1).unwrap().to_string();
    wait_for("whatever was in flight is resolved by the other gate", TIMEOUT, || {
        let resolve = ["reconcile", "--all", "--found", "--absent", "--yes", "--reason", "killed"];
        cluster.admit(1, &[&resolve[..], &["--listen", &listen]].concat());
        let open =
            "SELECT count(*) FROM record_publication WHERE state IN ('in_flight', 'ambiguous')";
        (cluster.query_one::<i64>(open) == 0).then_some(())
    });
    at_rest(&cluster, 1);
    cluster.open(0);
    at_rest(&cluster, 0);
    let behind = "SELECT count(*) FROM rounds WHERE published_revision IS DISTINCT FROM revision";
    assert_eq!(cluster.query_one::<i64>(behind), 0, "the newest revision of each is out");
    let (agrees, said) = cluster.admit(1, &["verify", "--json"]);
    assert!(agrees, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    // Each has its message where the ledger says, and a second one would disagree. Beside the rounds
    // there is only what the gate says itself when its policy takes effect.
    let messages = said["checked"]["messages"].as_i64().unwrap();
    assert!(messages >= went_out(&cluster) && messages <= went_out(&cluster) + 1, "{said}");
    assert_eq!(said["messages_of_others"], 0, "{said}");
    // The server says when it has a message already; the gate then does not say when it went.
    let copies = "SELECT count(*) FROM record_publication_history \
                  WHERE what = 'done' AND who IS NULL AND evidence NOT LIKE '%published_at%'";
    assert_eq!(cluster.query_one::<i64>(copies), 0, "nobody sent one that was there");
    let again = cluster
        .with(0, |gate| post_source_ok(&mut gate.client(), "stats_ready", &Round::nth(0).ready()));
    assert_eq!(again["disposition"], "replay");
    cluster.stop_all();
}
