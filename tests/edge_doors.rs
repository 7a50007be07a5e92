//! The agent at the other doors: the plugin and webhooks become reliable by changing their URL.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::edge::{drained, ids, nowhere, outbox, status, street};
use crate::support::events::{heartbeat, match_begin};
use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::{SOON, skyra, until};

const AGENT_KEY: &str = "agent-key-0123456789";
const READ_KEY: &str = "reader-key-0123456789";

/// A gate that knows an agent, which may speak for `arena-1` only, and a reader.
fn gate(folder: &Path) -> Gate {
    let config = folder.join("gate.toml");
    let text = format!(
        "[[principals]]\nname = \"edge-1\"\nkeys = [\"{AGENT_KEY}\"]\nrole = \"forward\"\n\
         may_speak_for = [\"arena-1\"]\n\
         [[principals]]\nname = \"reader\"\nkeys = [\"{READ_KEY}\"]\nrole = \"operate\"\n"
    );
    std::fs::write(&config, text).unwrap();
    Launch::on(&folder.join("data")).argument("--config").argument(config).start()
}

/// An agent with two producers, of whom the gate knows one.
fn agent(folder: &Path, gate: SocketAddr) -> Gate {
    agent_by(folder, gate, "websocket")
}

fn agent_by(folder: &Path, gate: SocketAddr, transport: &str) -> Gate {
    let config = folder.join("edge.toml");
    std::fs::write(folder.join("agent.key"), format!("{AGENT_KEY}\n")).unwrap();
    for name in ["arena-1", "arena-2"] {
        std::fs::write(folder.join(name), format!("{name}-producer-key\n")).unwrap();
    }
    let text = "[edge]\nkey_file = \"agent.key\"\nbackoff_ms_max = 500\n\
         [[edge.producers]]\nname = \"arena-1\"\nkeys = [\"file:arena-1\"]\n\
         [[edge.producers]]\nname = \"arena-2\"\nkeys = [\"file:arena-2\"]\n";
    std::fs::write(&config, text).unwrap();
    Launch::edge(&folder.join("edge"), gate)
        .argument("--config")
        .argument(config)
        .variable("ADMIT_EDGE__TRANSPORT", transport)
        .start()
}

fn as_producer(agent: &Gate, name: &str) -> Client {
    agent.client().with("X-Pixel-Control-Api-Key", &format!("{name}-producer-key"))
}

/// What the gate has admitted at a door.
fn admitted(gate: &Gate, door: &str) -> Vec<Value> {
    let mut client = gate.client().with("Authorization", &format!("Bearer {READ_KEY}"));
    let said = client.get(&format!("/v1/admissions?door={door}"));
    said["admissions"].as_array().unwrap_or_else(|| panic!("no list: {said}")).clone()
}

#[test]
fn the_plugin_is_answered_in_its_words_and_its_events_are_in_its_own_scope() {
    let folder = tempfile::tempdir().unwrap();
    let street = street();
    let agent = agent(folder.path(), street.address());
    let mut plugin = as_producer(&agent, "arena-1");
    plugin.say(&match_begin(1, "arena")).processed();
    plugin.say(&match_begin(1, "arena").attempt(2)).duplicate();
    plugin.say(&heartbeat(2, "arena")).processed();
    let reason = agent.client().say(&heartbeat(3, "arena")).error(401);
    assert_eq!(reason.code, "unauthorized");
    let file = outbox(&folder.path().join("edge"), "pixel-control", "arena-1");
    assert_eq!(ids(&file).len(), 2, "the gate is not there, and they wait");

    let gate = gate(folder.path());
    street.move_to(gate.address());
    drained(&file);
    let receipts = admitted(&gate, "pixel-control");
    assert_eq!(receipts.len(), 2);
    assert!(receipts.iter().all(|receipt| receipt["principal"] == "arena-1"), "{receipts:?}");
    agent.stop();
    gate.stop();
}

#[test]
fn two_producers_of_one_agent_never_swallow_each_others_ids() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), nowhere());
    for name in ["arena-1", "arena-2"] {
        as_producer(&agent, name).say(&match_begin(1, "arena")).processed();
    }
    for name in ["arena-1", "arena-2"] {
        assert_eq!(ids(&outbox(&folder.path().join("edge"), "pixel-control", name)).len(), 1);
    }
    agent.stop();
}

#[test]
fn an_agent_speaks_only_for_those_it_may_and_keeps_what_it_could_not_send() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path());
    let agent = agent(folder.path(), gate.address());
    as_producer(&agent, "arena-2").say(&match_begin(1, "arena")).processed();
    as_producer(&agent, "arena-1").say(&match_begin(1, "arena")).processed();
    let data = folder.path().join("edge");
    drained(&outbox(&data, "pixel-control", "arena-1"));
    let refused = until("the refusal is noted", SOON, || {
        status(&data, "pixel-control", "arena-2").filter(|said| said["last_error"].is_string())
    });
    let error = refused["last_error"].as_str().unwrap();
    assert!(error.contains("forbidden") && error.contains("speak for"), "{error}");
    assert_eq!(refused["depth"], 1, "it is kept, and visible");
    let receipts = admitted(&gate, "pixel-control");
    assert_eq!(receipts.len(), 1, "{receipts:?}");
    agent.stop();
    gate.stop();
}

#[test]
fn what_only_the_gate_can_answer_is_taken_neither_by_an_agent_nor_from_one() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path());
    let mut client = gate
        .client()
        .with("Authorization", &format!("Bearer {AGENT_KEY}"))
        .with("Admit-Principal", "arena-1");
    for path in ["/v1/ingest/push", "/v1/intents"] {
        let refused = client.send("POST", path, &[], b"{}").unwrap();
        let text = String::from_utf8_lossy(&refused.body);
        assert_eq!(refused.status, 403, "{path}: {text}");
        assert!(text.contains("not forwarded"), "{path}: {text}");
    }
    for door in ["ingestion-gate", "intents"] {
        let ended = Launch::edge(&folder.path().join("edge"), gate.address())
            .variable("ADMIT_EDGE__DOORS", &format!("[\"{door}\"]"))
            .start_in_vain();
        assert!(ended.stderr.contains("cannot be forwarded"), "{}", ended.stderr);
    }
    gate.stop();
}

#[test]
fn what_the_gate_rejects_later_stays_in_the_outbox_with_its_reason_and_holds_up_nobody() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate =
        Launch::on(data.path()).variable("ADMIT_DOORS__PIXEL_CONTROL__SCHEMA", "strict").start();
    let agent = Launch::edge(edge.path(), gate.address())
        .variable("ADMIT_EDGE__BACKOFF_MS_BASE", "20")
        .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "200")
        .start();
    let mut plugin = agent.client();
    // The agent was set up to take more than the gate does, and has said "accepted".
    plugin.say(&crate::support::events::sample()).processed();
    for n in 2..20 {
        plugin.say(&match_begin(n, "arena")).processed();
    }
    let file = outbox(edge.path(), "pixel-control", "local");
    until("only that one is left", SOON, || (ids(&file).len() == 1).then_some(()));
    let left = until("it has been tried more than once", SOON, || {
        status(edge.path(), "pixel-control", "local")
            .filter(|said| said["attempts_max"].as_u64().is_some_and(|attempts| attempts >= 2))
    });
    assert_eq!(left["depth"], 1);
    assert!(left["last_error"].as_str().unwrap().starts_with("invalid_envelope"), "{left}");
    agent.stop();
    gate.stop();
}

#[test]
fn events_of_a_stream_arrive_in_order_under_the_names_they_were_given() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let street = street();
    let agent = Launch::edge(edge.path(), street.address()).start();
    let mut client = agent.client();
    let mut keys = Vec::new();
    for n in 0..20 {
        let key = format!("\"order {n}\"");
        let body = json!({ "n": n }).to_string();
        let headers = [("Idempotency-Key", key.as_str())];
        let answer = client.send("POST", "/v1/events", &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 201);
        keys.push(answer.json()["key"].clone());
    }
    let lines = [("Idempotency-Key", "batch-1"), ("Content-Type", "application/x-ndjson")];
    let answer = client.send("POST", "/v1/events", &lines, b"{\"n\":20}\n\n{\"n\":21}").unwrap();
    assert_eq!(answer.status, 200);
    let conflict = [("Idempotency-Key", "\"order 3\"")];
    let answer = client.send("POST", "/v1/events", &conflict, b"{\"n\":-3}").unwrap();
    assert_eq!(answer.status, 422, "other content under a key that waits is told at once");

    let gate = Gate::on(data.path());
    street.move_to(gate.address());
    drained(&outbox(edge.path(), "events/default", "local"));
    let page = gate.client().get("/v1/events?limit=100");
    let items = page["events"].as_array().unwrap_or_else(|| panic!("{page}"));
    let numbers: Vec<i64> =
        items.iter().map(|item| item["data"]["n"].as_i64().unwrap_or(-1)).collect();
    assert_eq!(numbers, (0..22).collect::<Vec<_>>(), "{page}");
    for (item, key) in items.iter().zip(&keys) {
        assert_eq!(&item["key"], key, "the key the agent told is the gate's");
    }
    // The same lines sent to the gate itself are known there.
    let direct = gate.client().send("POST", "/v1/events", &lines, b"{\"n\":20}\n\n{\"n\":21}");
    let direct = String::from_utf8(direct.unwrap().body).unwrap();
    assert_eq!(direct.matches("\"replayed\":true").count(), 2, "{direct}");
    agent.stop();
    gate.stop();
}

#[test]
fn over_every_transport_an_agent_speaks_only_for_those_it_may() {
    for transport in ["websocket", "grpc", "http"] {
        let folder = tempfile::tempdir().unwrap();
        let gate = gate(folder.path());
        let agent = agent_by(folder.path(), gate.address(), transport);
        for (n, name) in [(1, "arena-1"), (2, "arena-2")] {
            let key = format!("Bearer {name}-producer-key");
            let mut producer = agent.client().with("Authorization", &key);
            let answer = producer.send("POST", skyra::DOOR, &[], skyra::text(n).as_bytes());
            skyra::assert_acked(&answer.unwrap().json(), &skyra::id(n));
        }
        let data = folder.path().join("edge");
        drained(&outbox(&data, "skyra", "arena-1"));
        let refused = until("the refusal is noted", SOON, || {
            status(&data, "skyra", "arena-2").filter(|said| said["last_error"].is_string())
        });
        let error = refused["last_error"].as_str().unwrap();
        assert!(error.contains("may not speak for"), "{transport}: {error}");
        assert_eq!(refused["depth"], 1, "{transport}");
        let receipts = admitted(&gate, "skyra");
        assert_eq!(receipts.len(), 1, "{transport}: {receipts:?}");
        assert_eq!(receipts[0]["principal"], "arena-1", "{transport}");
        agent.stop();
        gate.stop();
    }
}

#[test]
fn an_id_that_belongs_to_another_principal_stays_in_the_outbox_for_a_person_and_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gate.toml");
    let text = format!(
        "[[principals]]\nname = \"edge-1\"\nkeys = [\"{AGENT_KEY}\"]\nrole = \"forward\"\n\
         may_speak_for = [\"arena-1\", \"arena-2\"]\n"
    );
    std::fs::write(&config, text).unwrap();
    let data = folder.path().join("data");
    let gate = Launch::on(&data).argument("--config").argument(config).start();
    let edge = folder.path().join("edge");
    for (round, transport) in (0..).zip(["websocket", "grpc", "http"]) {
        let agent = agent_by(folder.path(), gate.address(), transport);
        let send = |name: &str, body: &Value| {
            let mut client = agent.client().with("X-API-Key", &format!("{name}-producer-key"));
            let body = body.to_string();
            let answer = client.send("POST", skyra::DOOR, &[], body.as_bytes()).unwrap();
            skyra::assert_acked(&answer.json(), body_id(&body).as_str());
        };
        let (taken, free) = (round * 10, round * 10 + 1);
        send("arena-1", &skyra::envelope(taken));
        drained(&outbox(&edge, "skyra", "arena-1"));
        let mut other = skyra::envelope(taken);
        other["payload"]["user_text"] = "of arena-2".into();
        send("arena-2", &other);
        send("arena-2", &skyra::envelope(free));
        let file = outbox(&edge, "skyra", "arena-2");
        until("the other event has arrived", SOON, || {
            skyra::inbox(&data).iter().any(|row| row.event_id == skyra::id(free)).then_some(())
        });
        let said = until("the refusal is noted", SOON, || {
            status(&edge, "skyra", "arena-2").filter(|said| said["refused"] == round + 1)
        });
        assert_eq!(said["depth"], round + 1, "{transport}: {said}");
        assert!(said["last_error"].as_str().unwrap().starts_with("event_id_taken"), "{said}");
        assert!(ids(&file).contains(&skyra::id(taken)), "{transport}: kept for a person");
        agent.stop();
    }
    let payloads: Vec<String> = skyra::inbox(&data).into_iter().map(|row| row.payload).collect();
    assert!(!payloads.iter().any(|payload| payload.contains("of arena-2")), "{payloads:?}");
    gate.stop();
}

fn body_id(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    body["event_id"].as_str().unwrap().to_owned()
}
