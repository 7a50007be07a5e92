//! Rounds published by several gates: every revision is published once.

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

/// Gates that publish rounds immediately, which makes the most revisions.
const AT_ONCE: [(&str, &str); 2] =
    [("ADMIT_DOORS__ROUNDS__TOPIC", TOPIC), ("ADMIT_DOORS__ROUNDS__PUBLISH_SETTLE_MS", "0")];

/// Posts rounds concurrently, each source to another gate. If a gate dies, its events are sent to the
/// other one.
fn post_rounds(cluster: &Cluster) {
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

/// Waits until no publication is pending or in flight.
fn at_rest(cluster: &Cluster, index: usize) -> Value {
    wait_for("everything was handed to the bus", TIMEOUT, || {
        let path = format!("{ROUNDS}/diagnostics");
        let counts = cluster.with(index, |gate| gate.client().get(&path))["publications"].clone();
        (counts["waiting"] == 0 && counts["in_flight"] == 0).then_some(counts)
    })
}

/// Number of published revisions according to the ledger.
fn went_out(cluster: &Cluster) -> i64 {
    cluster.query_one("SELECT count(*) FROM record_publication WHERE state = 'done'")
}

#[test]
fn two_gates_publish_every_revision_of_a_round_once() {
    let Some(cluster) = Cluster::start(GATES, &AT_ONCE) else { return };
    post_rounds(&cluster);
    at_rest(&cluster, 0);
    let mut found: BTreeMap<(String, u64), usize> = BTreeMap::new();
    // Each gate has a separate bus here, so a duplicate is not hidden.
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
fn every_revision_is_on_the_bus_once_although_a_gate_died() {
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    let shared = [&AT_ONCE[..], &[("ADMIT_BUS__URL", &url)]].concat();
    let Some(cluster) = Cluster::start(GATES, &shared) else { return };
    thread::scope(|scope| {
        scope.spawn(|| post_rounds(&cluster));
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
    let (agrees, printed) = cluster.admit(1, &["verify", "--json"]);
    assert!(agrees, "{printed}");
    let printed: Value =
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    // Each message is where the ledger records it; a second one would be a disagreement. The only other
    // messages are the governance events of a policy activation.
    let messages = printed["checked"]["messages"].as_i64().unwrap();
    assert!(messages >= went_out(&cluster) && messages <= went_out(&cluster) + 1, "{printed}");
    assert_eq!(printed["messages_of_others"], 0, "{printed}");
    // If the server already has a message, the gate does not record a publish time.
    let copies = "SELECT count(*) FROM record_publication_history \
                  WHERE what = 'done' AND who IS NULL AND evidence NOT LIKE '%published_at%'";
    assert_eq!(cluster.query_one::<i64>(copies), 0, "no duplicate was sent");
    let again = cluster
        .with(0, |gate| post_source_ok(&mut gate.client(), "stats_ready", &Round::nth(0).ready()));
    assert_eq!(again["disposition"], "replay");
    cluster.stop_all();
}
