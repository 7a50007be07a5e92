//! The edge agent at the other doors: pixel-control and event streams.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::edge::{closed_address, gate_proxy, ids, outbox, status, wait_until_drained};
use crate::support::events::{heartbeat, match_begin};
use crate::support::gate::{Gate, Launch, admit};
use crate::support::http::Client;
use crate::support::{TIMEOUT, skyra, wait_for};

const AGENT_KEY: &str = "agent-key-0123456789";
const READ_KEY: &str = "reader-key-0123456789";

/// A gate with a reader and an agent that may forward events of `arena-1` only.
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

/// An agent with two producers; the gate knows only `arena-1`.
fn agent(folder: &Path, gate: SocketAddr) -> Gate {
    agent_over(folder, gate, "websocket")
}

fn agent_over(folder: &Path, gate: SocketAddr, transport: &str) -> Gate {
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

/// Returns the admissions of a door.
fn admitted(gate: &Gate, door: &str) -> Vec<Value> {
    let mut client = gate.client().with("Authorization", &format!("Bearer {READ_KEY}"));
    let reply = client.get(&format!("/v1/admissions?door={door}"));
    reply["admissions"].as_array().unwrap_or_else(|| panic!("no list: {reply}")).clone()
}

#[test]
fn the_plugin_gets_replies_of_its_contract_and_its_events_have_its_own_scope() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = gate_proxy();
    let agent = agent(folder.path(), proxy.address());
    let mut plugin = as_producer(&agent, "arena-1");
    plugin.submit(&match_begin(1, "arena")).processed();
    plugin.submit(&match_begin(1, "arena").attempt(2)).duplicate();
    plugin.submit(&heartbeat(2, "arena")).processed();
    let reason = agent.client().submit(&heartbeat(3, "arena")).error(401);
    assert_eq!(reason.code, "unauthorized");
    let file = outbox(&folder.path().join("edge"), "pixel-control", "arena-1");
    assert_eq!(ids(&file).len(), 2, "without a gate events stay in the outbox");

    let gate = gate(folder.path());
    proxy.move_to(gate.address());
    wait_until_drained(&file);
    let receipts = admitted(&gate, "pixel-control");
    assert_eq!(receipts.len(), 2);
    assert!(receipts.iter().all(|receipt| receipt["principal"] == "arena-1"), "{receipts:?}");
    agent.stop();
    gate.stop();
}

#[test]
fn ids_of_two_producers_of_one_agent_are_independent() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), closed_address());
    for name in ["arena-1", "arena-2"] {
        as_producer(&agent, name).submit(&match_begin(1, "arena")).processed();
    }
    for name in ["arena-1", "arena-2"] {
        assert_eq!(ids(&outbox(&folder.path().join("edge"), "pixel-control", name)).len(), 1);
    }
    agent.stop();
}

#[test]
fn an_agent_forwards_only_for_permitted_principals_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path());
    let agent = agent(folder.path(), gate.address());
    as_producer(&agent, "arena-2").submit(&match_begin(1, "arena")).processed();
    as_producer(&agent, "arena-1").submit(&match_begin(1, "arena")).processed();
    let data = folder.path().join("edge");
    wait_until_drained(&outbox(&data, "pixel-control", "arena-1"));
    let refused = wait_for("the refusal is in the status", TIMEOUT, || {
        status(&data, "pixel-control", "arena-2").filter(|status| status["last_error"].is_string())
    });
    let error = refused["last_error"].as_str().unwrap();
    assert!(error.contains("forbidden") && error.contains("speak for"), "{error}");
    assert_eq!(refused["depth"], 1, "a refused event must stay in the outbox");
    let receipts = admitted(&gate, "pixel-control");
    assert_eq!(receipts.len(), 1, "{receipts:?}");
    agent.stop();
    gate.stop();
}

#[test]
fn doors_that_need_a_reply_of_the_gate_cannot_be_forwarded() {
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
        assert!(text.contains("cannot be forwarded"), "{path}: {text}");
    }
    for door in ["ingestion-gate", "intents"] {
        let exit = Launch::edge(&folder.path().join("edge"), gate.address())
            .variable("ADMIT_EDGE__DOORS", &format!("[\"{door}\"]"))
            .start_expecting_exit();
        assert!(exit.stderr.contains("cannot be forwarded"), "{}", exit.stderr);
    }
    gate.stop();
}

#[test]
fn an_event_rejected_by_the_gate_stays_in_the_outbox_and_does_not_block_others() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate =
        Launch::on(data.path()).variable("ADMIT_DOORS__PIXEL_CONTROL__SCHEMA", "strict").start();
    let agent = Launch::edge(edge.path(), gate.address())
        .variable("ADMIT_EDGE__BACKOFF_MS_BASE", "20")
        .variable("ADMIT_EDGE__BACKOFF_MS_MAX", "200")
        .start();
    let mut plugin = agent.client();
    // The agent's config is less strict than the gate's, so it acknowledged the event.
    plugin.submit(&crate::support::events::sample()).processed();
    for n in 2..20 {
        plugin.submit(&match_begin(n, "arena")).processed();
    }
    let file = outbox(edge.path(), "pixel-control", "local");
    wait_for("one event is left", TIMEOUT, || (ids(&file).len() == 1).then_some(()));
    let remaining = wait_for("two attempts", TIMEOUT, || {
        status(edge.path(), "pixel-control", "local")
            .filter(|status| status["attempts_max"].as_u64().is_some_and(|attempts| attempts >= 2))
    });
    assert_eq!(remaining["depth"], 1);
    assert!(
        remaining["last_error"].as_str().unwrap().starts_with("invalid_envelope"),
        "{remaining}"
    );
    agent.stop();
    gate.stop();
}

#[test]
fn stream_events_arrive_in_order_with_their_keys() {
    let (edge, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let proxy = gate_proxy();
    let agent = Launch::edge(edge.path(), proxy.address()).start();
    let mut client = agent.client();
    let mut keys = Vec::new();
    for n in 0..20 {
        let key = format!("\"order {n}\"");
        let body = json!({ "n": n }).to_string();
        let headers = [("Idempotency-Key", key.as_str())];
        let response = client.send("POST", "/v1/events", &headers, body.as_bytes()).unwrap();
        assert_eq!(response.status, 201);
        keys.push(response.json()["key"].clone());
    }
    let lines = [("Idempotency-Key", "batch-1"), ("Content-Type", "application/x-ndjson")];
    let response = client.send("POST", "/v1/events", &lines, b"{\"n\":20}\n\n{\"n\":21}").unwrap();
    assert_eq!(response.status, 200);
    let conflict = [("Idempotency-Key", "\"order 3\"")];
    let response = client.send("POST", "/v1/events", &conflict, b"{\"n\":-3}").unwrap();
    assert_eq!(response.status, 422, "other content under a key in the outbox must be refused");

    let gate = Gate::on(data.path());
    proxy.move_to(gate.address());
    wait_until_drained(&outbox(edge.path(), "events/default", "local"));
    let page = gate.client().get("/v1/events?limit=100");
    let items = page["events"].as_array().unwrap_or_else(|| panic!("{page}"));
    let numbers: Vec<i64> =
        items.iter().map(|item| item["data"]["n"].as_i64().unwrap_or(-1)).collect();
    assert_eq!(numbers, (0..22).collect::<Vec<_>>(), "{page}");
    for (item, key) in items.iter().zip(&keys) {
        assert_eq!(&item["key"], key, "the agent's key differs from the gate's");
    }
    // The same lines sent directly to the gate are duplicates.
    let direct = gate.client().send("POST", "/v1/events", &lines, b"{\"n\":20}\n\n{\"n\":21}");
    let direct = String::from_utf8(direct.unwrap().body).unwrap();
    assert_eq!(direct.matches("\"replayed\":true").count(), 2, "{direct}");
    agent.stop();
    gate.stop();
}

#[test]
fn over_every_transport_an_agent_forwards_only_for_permitted_principals() {
    for transport in ["websocket", "grpc", "http"] {
        let folder = tempfile::tempdir().unwrap();
        let gate = gate(folder.path());
        let agent = agent_over(folder.path(), gate.address(), transport);
        for (n, name) in [(1, "arena-1"), (2, "arena-2")] {
            let key = format!("Bearer {name}-producer-key");
            let mut producer = agent.client().with("Authorization", &key);
            let response = producer.send("POST", skyra::DOOR, &[], skyra::text(n).as_bytes());
            skyra::assert_acked(&response.unwrap().json(), &skyra::id(n));
        }
        let data = folder.path().join("edge");
        wait_until_drained(&outbox(&data, "skyra", "arena-1"));
        let refused = wait_for("the refusal is in the status", TIMEOUT, || {
            status(&data, "skyra", "arena-2").filter(|status| status["last_error"].is_string())
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

/// Gate at which one agent may speak for two producers.
fn gate_for_two_producers(folder: &Path) -> Gate {
    let config = folder.join("gate.toml");
    let text = format!(
        "[[principals]]\nname = \"edge-1\"\nkeys = [\"{AGENT_KEY}\"]\nrole = \"forward\"\n\
         may_speak_for = [\"arena-1\", \"arena-2\"]\n"
    );
    std::fs::write(&config, text).unwrap();
    Launch::on(&folder.join("data")).argument("--config").argument(config).start()
}

/// Sends an envelope as a producer of the agent.
fn send_as(agent: &Gate, name: &str, body: &Value) {
    let mut client = agent.client().with("X-API-Key", &format!("{name}-producer-key"));
    let body = body.to_string();
    let response = client.send("POST", skyra::DOOR, &[], body.as_bytes()).unwrap();
    skyra::assert_acked(&response.json(), body_id(&body).as_str());
}

#[test]
fn a_refused_event_is_listed_and_deleted_while_the_agent_runs() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate_for_two_producers(folder.path());
    let edge = folder.path().join("edge");
    let agent = agent_over(folder.path(), gate.address(), "websocket");
    let refused = |arguments: &[&str]| {
        let data = ["--data", edge.to_str().unwrap()];
        let output = admit([&["edge", "refused"], arguments, &data].concat()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    assert_eq!(refused(&["list"]), (true, "nothing found\n".to_owned()));
    send_as(&agent, "arena-1", &skyra::envelope(1));
    wait_until_drained(&outbox(&edge, "skyra", "arena-1"));
    let mut other = skyra::envelope(1);
    other["payload"]["user_text"] = "of arena-2".into();
    send_as(&agent, "arena-2", &other);
    let name = format!("skyra/arena-2/{}", skyra::id(1));
    let row = wait_for("the refused event is listed", TIMEOUT, || {
        let (_, text) = refused(&["list", "--json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        list["refused"].as_array().unwrap().first().cloned()
    });
    assert_eq!((&row["event"], &row["payload"]), (&name.clone().into(), &other.to_string().into()));
    assert!(row["last_error"].as_str().unwrap().starts_with("event_id_taken"), "{row}");
    let (is_shown, text) = refused(&["show", &name]);
    assert!(is_shown && text.contains("of arena-2"), "{text}");

    let is_deleted = || refused(&["delete", &name]).0.then_some(());
    wait_for("the refused event is deleted between two attempts", TIMEOUT, is_deleted);
    assert!(!refused(&["delete", &name]).0, "deleted already");
    assert_eq!(refused(&["list"]), (true, "nothing found\n".to_owned()));
    gate.stop();
    send_as(&agent, "arena-2", &skyra::envelope(2));
    wait_for("an attempt of the waiting event has failed", TIMEOUT, || {
        status(&edge, "skyra", "arena-2").filter(|status| status["retrying"] == 1)
    });
    let waiting = format!("skyra/arena-2/{}", skyra::id(2));
    let (is_deleted, text) = refused(&["delete", &waiting]);
    assert!(!is_deleted && text.contains("no refused event"), "a waiting event stays: {text}");
    assert_eq!(ids(&outbox(&edge, "skyra", "arena-2")), [skyra::id(2)]);
    agent.stop();
}

#[test]
fn an_id_of_another_principal_stays_in_the_outbox_and_does_not_block_others() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let gate = gate_for_two_producers(folder.path());
    let edge = folder.path().join("edge");
    for (index, transport) in (0..).zip(["websocket", "grpc", "http"]) {
        let agent = agent_over(folder.path(), gate.address(), transport);
        let send = |name: &str, body: &Value| send_as(&agent, name, body);
        let (used, unused) = (index * 10, index * 10 + 1);
        send("arena-1", &skyra::envelope(used));
        wait_until_drained(&outbox(&edge, "skyra", "arena-1"));
        let mut other = skyra::envelope(used);
        other["payload"]["user_text"] = "of arena-2".into();
        send("arena-2", &other);
        send("arena-2", &skyra::envelope(unused));
        let file = outbox(&edge, "skyra", "arena-2");
        wait_for("the other event has arrived", TIMEOUT, || {
            skyra::inbox(&data).iter().any(|row| row.event_id == skyra::id(unused)).then_some(())
        });
        // The row of the other event is removed when its acknowledgement arrives.
        let outbox_status = wait_for("only refused events are left", TIMEOUT, || {
            status(&edge, "skyra", "arena-2")
                .filter(|status| status["refused"] == index + 1 && status["depth"] == index + 1)
        });
        assert!(
            outbox_status["last_error"].as_str().unwrap().starts_with("event_id_taken"),
            "{outbox_status}"
        );
        assert!(ids(&file).contains(&skyra::id(used)), "{transport}: the refused event must stay");
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
