//! Keys and event ids of one principal, reused by another.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::grpc::GrpcClient;
use crate::support::http::Client;
use crate::support::ingest::{self, outcome, push};
use crate::support::intents::{paste, task};
use crate::support::rounds::{Round, post_source_ok};
use crate::support::skyra::{DOOR, assert_acked, assert_nacked, envelope, id, inbox, text};
use crate::support::ws::Socket;

const KEY_OF_A: &str = "the-key-of-a-is-long-enough";
const KEY_OF_B: &str = "the-key-of-b-is-long-enough";
const KEY_OF_A_READER: &str = "the-key-of-a-reader-is-long";

/// A gate with two producers of the skyra door and a reader.
fn gate(folder: &Path) -> Gate {
    let config = folder.join("admit.toml");
    let principal = |name: &str, key: &str, role: &str| {
        format!(
            "[[principals]]\nname = \"{name}\"\nkeys = [\"{key}\"]\ndoors = [\"skyra\"]\n\
                 role = \"{role}\"\n"
        )
    };
    let principals = [
        principal("a", KEY_OF_A, "produce"),
        principal("b", KEY_OF_B, "produce"),
        principal("reader", KEY_OF_A_READER, "read"),
    ];
    std::fs::write(&config, principals.concat()).unwrap();
    Launch::on(&folder.join("data")).argument("--config").argument(&config).start()
}

/// Authenticated client of one transport.
enum Transport {
    Socket(Socket),
    Grpc(Box<GrpcClient>),
    Http(Client, String),
}

impl Transport {
    fn connect_all(gate: &Gate, key: &str) -> [Self; 3] {
        let bearer = format!("Bearer {key}");
        let socket = Socket::connect(gate.address(), &[("Authorization", bearer.as_str())]);
        [
            Self::Socket(socket.unwrap_or_else(|response| panic!("upgrade refused: {response}"))),
            Self::Grpc(Box::new(GrpcClient::to(gate.address()).with_key(key))),
            Self::Http(gate.client(), bearer),
        ]
    }

    fn send(&mut self, body: &str) -> Value {
        match self {
            Self::Socket(socket) => socket.submit(body.as_bytes()),
            Self::Grpc(caller) => caller.submit(body.as_bytes()).unwrap(),
            Self::Http(client, bearer) => {
                let headers = [("Authorization", bearer.as_str())];
                client.send("POST", DOOR, &headers, body.as_bytes()).unwrap().json()
            }
        }
    }
}

/// Envelope number `n` with other content.
fn other(n: u64, content: &str) -> String {
    let mut other = envelope(n);
    other["payload"]["user_text"] = content.into();
    other.to_string()
}

fn read(gate: &Gate, path: &str) -> Value {
    let bearer = format!("Bearer {KEY_OF_A_READER}");
    let response = gate.client().send("GET", path, &[("Authorization", &bearer)], b"").unwrap();
    assert_eq!(response.status, 200, "{path}: {}", response.json());
    response.json()
}

#[test]
fn other_content_under_an_id_of_another_principal_is_nacked_and_stored_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path());
    let data = gate.data().to_owned();
    let transports = Transport::connect_all(&gate, KEY_OF_A)
        .into_iter()
        .zip(Transport::connect_all(&gate, KEY_OF_B));
    for (n, (mut a, mut b)) in (1..).zip(transports) {
        assert_acked(&a.send(&text(n)), &id(n));
        assert_acked(&b.send(&text(n)), &id(n));
        let before = inbox(&data);
        for _ in 0..2 {
            let nack = b.send(&other(n, "of b"));
            assert_nacked(&nack, Some(&id(n)), "event_id_taken");
        }
        // The owner still gets an ACK; its conflicts are recorded separately.
        assert_acked(&a.send(&other(n, "of a")), &id(n));
        assert_acked(&a.send(&other(n, "of b")), &id(n));
        assert_nacked(&b.send(&other(n, "of a")), Some(&id(n)), "event_id_taken");
        assert_acked(&a.send(&text(n)), &id(n));
        assert_eq!(inbox(&data), before, "the first event stays");

        let listed = read(&gate, "/v1/quarantine?door=skyra&verdict=conflict&limit=1000");
        let conflicts: Vec<(String, Value)> = listed["quarantine"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|conflict| conflict["facts"]["event_id"] == id(n))
            .map(|conflict| {
                let code = conflict["reason"]["code"].clone();
                (conflict["principal"].as_str().unwrap().to_owned(), code)
            })
            .collect();
        let count = |wanted: &str, code: &Value| {
            conflicts
                .iter()
                .filter(|(principal, reason)| principal == wanted && reason == code)
                .count()
        };
        assert_eq!(
            count("b", &json!("event_id_taken")),
            2,
            "one conflict for each content: {listed}"
        );
        assert_eq!(conflicts.len() - 2, 2, "two conflicts of the owner: {listed}");
        assert_eq!(count("a", &json!("event_id_taken")), 0, "{listed}");
    }
    gate.stop();
    let output = admit(["verify", "--data", data.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_inbox_shows_the_principal_of_each_event() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path());
    let data = gate.data().to_str().unwrap().to_owned();
    for (n, key) in [(1, KEY_OF_A), (2, KEY_OF_B)] {
        let [mut client, ..] = Transport::connect_all(&gate, key);
        assert_acked(&client.send(&text(n)), &id(n));
    }
    let page = read(&gate, "/v1/inbox");
    let principals: Vec<&Value> =
        page["events"].as_array().unwrap().iter().map(|event| &event["principal"]).collect();
    assert_eq!(principals, [&json!("a"), &json!("b")]);
    assert_eq!(read(&gate, &format!("/v1/inbox/{}", id(2)))["principal"], "b");
    let run = |arguments: &[&str]| {
        let output = admit(arguments.iter().copied().chain(["--data", &data])).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let shown: Value = serde_json::from_str(&run(&["inbox", "show", &id(2), "--json"])).unwrap();
    assert_eq!((&shown["event_id"], &shown["principal"]), (&json!(id(2)), &json!("b")));
    assert_eq!(shown["payload"], envelope(2));
    let listed: Value = serde_json::from_str(&run(&["inbox", "list", "--json"])).unwrap();
    assert_eq!(listed["events"][0]["principal"], "a");
    assert!(run(&["inbox", "show", &id(1)]).contains("principal     a"));
    let missing = admit(["inbox", "show", "evt_none", "--data", &data]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    gate.stop();
}

/// As documented in docs/security.md for the other doors: where the principal is the scope, two
/// principals with one key are two events; elsewhere the first stays, and the reply classifies the second.
#[test]
fn keys_of_the_other_doors_have_the_scope_that_the_documentation_gives_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("admit.toml");
    let principals = [("a", KEY_OF_A), ("b", KEY_OF_B)].map(|(name, key)| {
        format!("[[principals]]\nname = \"{name}\"\nkeys = [\"{key}\"]\nrole = [\"produce\", \"read\"]\n")
    });
    std::fs::write(&config, principals.concat()).unwrap();
    let gate =
        Launch::on(&folder.path().join("data")).argument("--config").argument(&config).start();
    let bearer = |key: &str| format!("Bearer {key}");
    let mut a = gate.client().with("Authorization", &bearer(KEY_OF_A));
    let mut b = gate.client().with("Authorization", &bearer(KEY_OF_B));

    // The principal is the scope.
    a.submit(&match_begin(1, "arena")).processed();
    b.submit(&match_begin(1, "another-arena")).processed();
    let key = [("Idempotency-Key", "order-1")];
    for (client, body) in [(&mut a, &b"{\"of\":\"a\"}"[..]), (&mut b, b"{\"of\":\"b\"}")] {
        assert_eq!(client.send("POST", "/v1/events", &key, body).unwrap().status, 201);
    }

    // The packet is the key: the same packet is the same intent, with the first envelope.
    let packet = task("Buy paint");
    assert_eq!(paste(&mut a, &packet).body, paste(&mut b, &packet).body);

    // The run is the scope: the same payload is a duplicate, another one is quarantined.
    assert_eq!(outcome(&push(&mut a, &ingest::envelope(1))), "ADMIT");
    assert_eq!(outcome(&push(&mut b, &ingest::envelope(1))), "DUPLICATE DUPLICATE");
    let mut other = ingest::envelope(1);
    other["payload"]["flow_id"] = 2.into();
    assert_eq!(outcome(&push(&mut b, &other)), "QUARANTINE PAYLOAD_HASH_MISMATCH");

    // The source is the scope: newer content of another principal is applied; both are stored.
    let round = Round::reference();
    post_source_ok(&mut a, "stats_ready", &round.ready_with(2, 1));
    post_source_ok(&mut b, "stats_ready", &round.ready_with(1, 1));

    let admissions = |client: &mut Client, door: &str| -> Vec<(String, String)> {
        let reply = client.get(&format!("/v1/admissions?door={door}"));
        let text = |admission: &Value, name: &str| admission[name].as_str().unwrap().to_owned();
        let admissions = reply["admissions"].as_array().unwrap().iter();
        admissions.map(|one| (text(one, "principal"), text(one, "verdict"))).collect()
    };
    let pairs = |first: &str, second: &str| {
        vec![("a".to_owned(), first.to_owned()), ("b".to_owned(), second.to_owned())]
    };
    for (door, second) in [
        ("pixel-control", "fresh"),
        ("events/default", "fresh"),
        ("ingestion-gate", "conflict"),
        ("rounds", "revision"),
    ] {
        assert_eq!(admissions(&mut a, door), pairs("fresh", second), "{door}");
    }
    assert_eq!(admissions(&mut a, "intents"), [("a".to_owned(), "fresh".to_owned())]);
    gate.stop();
}

#[test]
fn without_principals_other_content_under_a_known_id_is_acked() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let mut send = |body: &str| client.send("POST", DOOR, &[], body.as_bytes()).unwrap().json();
    assert_acked(&send(&text(1)), &id(1));
    assert_acked(&send(&other(1, "something else")), &id(1));
    let listed = gate.client().get("/v1/quarantine?door=skyra");
    assert_eq!(listed["quarantine"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(inbox(folder.path())[0].payload, text(1));
    gate.stop();
}
