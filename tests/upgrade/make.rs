//! Creates the fixtures: uses every door, produces every state of events, effects and runs, then kills the
//! gate with SIGKILL.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::expected::{self, RecordedRequest, receipt_ids};
use super::ledger::Ledger;
use crate::support::events::{heartbeat, match_begin, registration};
use crate::support::gate::{Gate, Launch};
use crate::support::gateway_stub::{GOOD, GatewayStub, StubAction};
use crate::support::http::{Client, DOOR as PIXEL};
use crate::support::ingest::{self, PUSH, RUN, outcome, push};
use crate::support::intents::{INTENTS, paste, paste_text, task};
use crate::support::machine::text;
use crate::support::rounds::{Round, SOURCES, post_source_ok};
use crate::support::skyra::{self, DOOR as SKYRA};
use crate::support::{TIMEOUT, pack, wait_for};

/// Maximum number of concurrent gateway calls of a door; one more stays intended.
pub(super) const CALLS_MAX: usize = 64;

/// Id of the run that is closed.
const CLOSED_RUN: &str = "platform_20260213T085637Z";

/// A fixture under construction.
pub(super) struct FixtureBuilder<'a> {
    pub(super) root: PathBuf,
    pub(super) ledger: &'a Ledger,
    pub(super) gateway: GatewayStub,
}

impl FixtureBuilder<'_> {
    /// Data folder of the gate.
    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// A gate on the folder. All paths are relative, so that none of this machine is stored.
    pub(super) fn launch(&self, config: &str) -> Launch {
        let launch = Launch::bare(&self.data()).in_folder(&self.root);
        let arguments = ["--data", "data", "--config", config, "--listen", "127.0.0.1:0"];
        let launch = arguments.into_iter().fold(launch, Launch::argument);
        let launch = launch
            .variable("EXECUTE_ACTIONS", "true")
            .variable("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", &self.gateway.url())
            .variable("PLATFORM_RUN_ID", RUN);
        self.ledger.launch(launch)
    }

    /// Runs a command on the folder; returns whether it succeeded, and its output.
    pub(super) fn command(&self, arguments: &[&str]) -> (bool, String) {
        let arguments = [arguments, &["--data", "data", "--config", "gate.toml"]].concat();
        let mut command = crate::support::gate::admit(&arguments);
        command.current_dir(&self.root).envs(self.ledger.variables());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn count(&self, query: &str) -> i64 {
        let counted = self.ledger.first(&self.data(), query);
        counted.expect("a count has a row").parse().unwrap()
    }

    /// Number of effects in a state.
    pub(super) fn effects(&self, state: &str) -> i64 {
        let query = format!("SELECT CAST(count(*) AS TEXT) FROM effect WHERE state = '{state}'");
        self.count(&query)
    }
}

/// Fills the folder `root` and leaves it as after SIGKILL.
pub(super) fn make(root: &Path, ledger: &Ledger) {
    for (name, content) in [
        ("gate.toml", include_str!("gate.toml")),
        ("principals.toml", include_str!("principals.toml")),
        ("order-1.json", include_str!("order-1.json")),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    let gateway = GatewayStub::start(GOOD);
    let workshop = FixtureBuilder { root: root.to_owned(), ledger, gateway };
    copy_pack(&workshop.root);
    let gate = workshop.launch("gate.toml").start();
    let mut copies = Vec::new();
    pixel(&gate, &mut copies);
    skyra(&gate, &mut copies);
    intents(&workshop, &gate, &mut copies);
    rounds(&gate, &mut copies);
    streams(&gate, &mut copies);
    runs(&workshop, &gate);
    envelopes(&gate, &mut copies);
    close_a_run(&gate, &mut copies);
    let in_flight = kill_while_publishing(&workshop, gate, 50..70);
    // At the next start its publish becomes ambiguous.
    let gate = workshop.launch("gate.toml").start();
    copies.push(RecordedRequest::new(PUSH, &[], ingest::envelope(in_flight).to_string()));
    let recorded = record(&gate, &copies);
    gate.stop();
    let scoped = with_principals(&workshop);
    let last = make_last_gate(&workshop);
    let unresolved = [in_flight, last["caught"].as_u64().unwrap()];
    let mut expected = json!({ "copies": recorded, "scoped": scoped, "unresolved": unresolved });
    expected.as_object_mut().unwrap().extend(last.as_object().unwrap().clone());
    expected::write(root, &expected);
    fs::remove_dir_all(root.join("engine_run")).unwrap();
    remove_process_files(&workshop.data());
    ledger.dump_into(root);
}

/// Removes files of the dead process, which are not data.
fn remove_process_files(data: &Path) {
    for name in ["admit.sock", "admit.lock", "ledger.db-shm"] {
        fs::remove_file(data.join(name)).unwrap_or_default();
    }
    fs::remove_dir_all(data.join("artifacts/.aside")).unwrap_or_default();
}

fn copy_pack(root: &Path) {
    let script = format!("cp -r '{}' '{}'", text(&pack::golden()), text(&root.join("engine_run")));
    crate::support::machine::run("sh", ["-c", &script]).unwrap();
}

/// Sends every request again, twice, and records what both replies have in common.
fn record(gate: &Gate, copies: &[RecordedRequest]) -> Value {
    let mut client = gate.client();
    copies.iter().map(|copy| copy.record(&mut client)).collect()
}

/// Sends a request for the first time and adds it to `copies`.
fn send_first(
    client: &mut Client,
    copies: &mut Vec<RecordedRequest>,
    copy: RecordedRequest,
    status: u16,
) -> Value {
    let response = copy.send(client);
    let body = String::from_utf8_lossy(&response.body).into_owned();
    assert_eq!(response.status, status, "{}: {body}", copy.path);
    copies.push(copy);
    serde_json::from_str(&body).expect("the reply is JSON")
}

fn pixel(gate: &Gate, copies: &mut Vec<RecordedRequest>) {
    let mut client = gate.client();
    let posts = [registration(1, "a"), match_begin(2, "a"), match_begin(3, "b"), heartbeat(4, "b")];
    for post in posts {
        send_first(&mut client, copies, RecordedRequest::new(PIXEL, &[], post.body()), 200);
    }
    // Another event under a known key, a later attempt, and two refusals.
    client.submit(&match_begin(2, "c")).duplicate();
    client.submit(&match_begin(3, "b").attempt(2)).duplicate();
    let old = match_begin(9, "a").set("/envelope/schema_version", "1999-01-01.1");
    client.post(&old).unwrap();
    client.submit_bytes(b"{");
}

fn skyra(gate: &Gate, copies: &mut Vec<RecordedRequest>) {
    let mut client = gate.client();
    for n in 0..8 {
        send_first(&mut client, copies, RecordedRequest::new(SKYRA, &[], skyra::text(n)), 200);
    }
    let mut other = skyra::envelope(1);
    other["payload"]["user_text"] = "something else".into();
    RecordedRequest::new(SKYRA, &[], other.to_string()).send(&mut client);
    RecordedRequest::new(SKYRA, &[], r#"{"event_id":"evt_bad"}"#).send(&mut client);
    let claim = json!({ "consumer": "planner-1", "max": 4, "lease_seconds": 1 });
    let claimed = post(&mut client, "/v1/inbox/claim", &claim);
    for (event, status) in claimed["events"].as_array().unwrap().iter().zip(["done", "failed"]) {
        let path = format!("/v1/inbox/{}", event["event_id"].as_str().unwrap());
        post(&mut client, &path, &json!({ "status": status, "lease": event["lease"] }));
    }
}

/// Posts a body that must be accepted.
fn post(client: &mut Client, path: &str, body: &Value) -> Value {
    let response = client.send("POST", path, &[], body.to_string().as_bytes()).unwrap();
    assert!(response.status < 300, "{path}: {}", String::from_utf8_lossy(&response.body));
    response.json()
}

fn intents(workshop: &FixtureBuilder<'_>, gate: &Gate, copies: &mut Vec<RecordedRequest>) {
    let mut client = gate.client();
    let outcomes = [
        ("executed", GOOD, 200),
        ("refused by the gateway", StubAction::Reply(422, r#"{"error":"no"}"#), 502),
        ("cut", StubAction::Close, 502),
    ];
    for (title, does, status) in outcomes {
        workshop.gateway.set_action(does);
        send_first(
            &mut client,
            copies,
            RecordedRequest::new(INTENTS, &[], task(title).to_string()),
            status,
        );
    }
    workshop.gateway.set_action(GOOD);
    paste_text(&mut client, r#"{"kind":"intent","intent_type":"nonsense"}"#);
    let mut unsure = task("unsure");
    unsure["confidence"] = 0.1.into();
    paste(&mut client, &unsure);
}

fn rounds(gate: &Gate, copies: &mut Vec<RecordedRequest>) {
    let mut client = gate.client();
    for (n, sources) in [(0, &SOURCES[..]), (1, &SOURCES[..2]), (2, &SOURCES[2..3])] {
        let round = Round::nth(n);
        for source in sources {
            let path = format!("{}/{source}", crate::support::rounds::ROUNDS);
            let copy = RecordedRequest::new(&path, &[], round.post(source).to_string());
            send_first(&mut client, copies, copy, 200);
        }
    }
    // A later state of one source, which is a revision.
    post_source_ok(&mut client, "stats_ready", &Round::nth(1).ready_with(1, 2));
    wait_for("the rounds are published", TIMEOUT, || {
        let counts = client.get("/v1/rounds/diagnostics")["publications"].clone();
        (counts["waiting"] == 0 && counts["in_flight"] == 0).then_some(())
    });
}

fn streams(gate: &Gate, copies: &mut Vec<RecordedRequest>) {
    let mut client = gate.client();
    let keyed = |n: u32| {
        let key = format!("order-{n}");
        RecordedRequest::new(
            "/v1/events",
            &[("Idempotency-Key", &key)],
            format!("{{\"total\":{n}}}"),
        )
    };
    for n in 0..6 {
        send_first(&mut client, copies, keyed(n), 201);
    }
    let key = [("Idempotency-Key", "order-1")];
    let other = RecordedRequest::new("/v1/events", &key, r#"{"total":7}"#).send(&mut client);
    assert_eq!(other.status, 422, "a conflict");
    let nameless = RecordedRequest::new("/v1/events", &[], "{}").send(&mut client);
    assert_eq!(nameless.status, 400, "a refusal");
    for n in 1..4 {
        let body = json!({ "order": { "id": n }, "total": n * 10 }).to_string();
        send_first(&mut client, copies, RecordedRequest::new("/v1/events/orders", &[], body), 201);
        let kind = [("Content-Type", "application/octet-stream")];
        let line = format!("line {n}");
        send_first(&mut client, copies, RecordedRequest::new("/v1/events/lines", &kind, line), 201);
    }
    let invalid =
        RecordedRequest::new("/v1/events/orders", &[], r#"{"order":{"id":9},"total":"x"}"#);
    assert_eq!(invalid.send(&mut client).status, 400, "a violation of the schema");
    let cloud = json!({
        "specversion": "1.0", "id": "c-1", "source": "/shop", "type": "order.paid",
        "time": "2026-02-19T18:14:02Z", "data": { "total": 5 },
    });
    let kind = [("Content-Type", "application/cloudevents+json")];
    send_first(
        &mut client,
        copies,
        RecordedRequest::new("/v1/events", &kind, cloud.to_string()),
        201,
    );
    let claim = json!({ "consumer": "c", "max": 3, "lease_seconds": 1 });
    let claimed = post(&mut client, "/v1/events/default/claim", &claim);
    for (event, status) in claimed["events"].as_array().unwrap().iter().zip(["done", "failed"]) {
        let path = format!("/v1/events/default/{}", event["receipt_id"].as_str().unwrap());
        post(&mut client, &path, &json!({ "status": status, "lease": event["lease"] }));
    }
}

/// Submits a scenario run, publishes its READY message again, and streams it.
fn runs(workshop: &FixtureBuilder<'_>, gate: &Gate) {
    let mut client = gate.client();
    let run = post(&mut client, "/runs", &pack::request("engine_run"));
    assert_eq!(run["state"], "READY", "{run}");
    let reemit = format!("/runs/{}/reemit", run["run_id"].as_str().unwrap());
    post(&mut client, &reemit, &json!({}));
    let url = format!("http://{}", gate.address());
    let (ok, output) = workshop.command(&["stream", "--once", "--speedup", "0", "--gate", &url]);
    assert!(ok, "{output}");
}

fn envelopes(gate: &Gate, copies: &mut Vec<RecordedRequest>) {
    let mut client = gate.client();
    for n in 1..7 {
        let copy = RecordedRequest::new(PUSH, &[], ingest::envelope(n).to_string());
        let response = send_first(&mut client, copies, copy, 200);
        assert_eq!(response["decision"], "ADMIT", "{response}");
    }
    let mut other = ingest::envelope(1);
    other["payload"]["amount"] = 99.into();
    let mut broken = ingest::envelope(8);
    broken["payload"]["amount"] = "much".into();
    for (envelope, decision) in
        [(ingest::envelope(2), "DUPLICATE"), (other, "QUARANTINE"), (broken, "QUARANTINE")]
    {
        let reply = outcome(&push(&mut client, &envelope));
        assert!(reply.starts_with(decision), "{reply}");
    }
    client.send("POST", PUSH, &[], b"{}").unwrap();
}

fn close_a_run(gate: &Gate, copies: &mut Vec<RecordedRequest>) {
    let mut client = gate.client();
    for n in 30..33 {
        let mut envelope = ingest::envelope(n);
        envelope["platform_run_id"] = CLOSED_RUN.into();
        let copy = RecordedRequest::new(PUSH, &[], envelope.to_string());
        let response = send_first(&mut client, copies, copy, 200);
        assert_eq!(response["decision"], "ADMIT", "{response}");
    }
    let closed = post(&mut client, &format!("/v1/runs/{CLOSED_RUN}/close"), &json!({}));
    assert_eq!(closed["state"], "closed", "{closed}");
    client.get(&format!("/v1/runs/{RUN}/report"));
}

/// Kills the gate while a publish is in flight, with the message already on the bus. Tries the envelopes
/// `numbers` in turn; returns the number of the one that was in flight.
fn kill_while_publishing(
    workshop: &FixtureBuilder<'_>,
    gate: Gate,
    mut numbers: Range<u64>,
) -> u64 {
    let before = workshop.effects("in_flight");
    loop {
        let n = numbers.next().expect("no envelope was in flight");
        let (address, id) = (gate.address(), format!("event-{n}"));
        let pushing = thread::spawn(move || {
            let body = ingest::envelope(n).to_string();
            Client::to(address).send("POST", PUSH, &[], body.as_bytes())
        });
        let lock = loop {
            let lock = workshop.ledger.lock(&workshop.data());
            if workshop.effects("in_flight") > before {
                break Some(lock);
            }
            drop(lock);
            if pushing.is_finished() {
                break None;
            }
            thread::sleep(Duration::from_micros(200));
        };
        let Some(lock) = lock else { continue };
        wait_for("the message is on the bus", TIMEOUT, || {
            ingest::published(&workshop.data(), ingest::STREAM).contains(&id).then_some(())
        });
        gate.kill();
        drop(pushing.join().unwrap());
        drop(lock);
        return n;
    }
}

/// Two principals that use the same keys and ids for different events.
fn with_principals(workshop: &FixtureBuilder<'_>) -> Value {
    let gate = workshop.launch("principals.toml").start();
    let mut copies = Vec::new();
    let mut client = gate.client();
    for name in ["arena-1", "arena-2"] {
        let bearer = format!("Bearer {name}-fixture-key");
        let key = [("Authorization", bearer.as_str())];
        let order = [key[0], ("Idempotency-Key", "shared")];
        let envelope = skyra::text(if name == "arena-1" { 100 } else { 101 });
        for (copy, status) in [
            (RecordedRequest::new(PIXEL, &key, match_begin(100, name).body()), 200),
            (RecordedRequest::new("/v1/events", &order, format!("{{\"by\":\"{name}\"}}")), 201),
            (RecordedRequest::new(SKYRA, &key, envelope), 200),
        ] {
            send_first(&mut client, &mut copies, copy, status);
        }
    }
    // Other content under an id of the other producer; the reply is not recorded.
    let key = [("Authorization", "Bearer arena-2-fixture-key")];
    let mut other = skyra::envelope(100);
    other["payload"]["user_text"] = "from the other one".into();
    RecordedRequest::new(SKYRA, &key, other.to_string()).send(&mut client);
    let recorded = record(&gate, &copies);
    gate.stop();
    recorded
}

/// Submits the scenario run again; returns its id.
fn scenario_run_id(client: &mut Client) -> String {
    let run = post(client, "/runs", &pack::request("engine_run"));
    run["run_id"].as_str().unwrap().to_owned()
}

/// The last gate: when it is killed, one publication is pending, one intent planned, one effect intended,
/// and the others are in flight.
fn make_last_gate(workshop: &FixtureBuilder<'_>) -> Value {
    let settle = ("ADMIT_DOORS__ROUNDS__PUBLISH_SETTLE_MS", "86400000");
    let planning = workshop.launch("gate.toml").variable(settle.0, settle.1);
    let gate = planning.variable("EXECUTE_ACTIONS", "false").start();
    let planned = paste(&mut gate.client(), &task("planned"));
    assert_eq!(planned.json()["status"], "planned");
    let mut client = gate.client();
    let ids = receipt_ids(&mut client);
    let receipts: Value = ids.iter().map(|id| client.get(&format!("/v1/receipts/{id}"))).collect();
    let inbox = client.get("/v1/inbox?limit=200");
    let run = scenario_run_id(&mut client);
    let run = client.get(&format!("/runs/{run}"));
    gate.stop();
    let slow = ("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "60000");
    let gate = workshop.launch("gate.toml").variable(settle.0, settle.1).variable(slow.0, slow.1);
    let gate = gate.start();
    post_source_ok(&mut gate.client(), "stats_ready", &Round::nth(3).ready());
    workshop.gateway.set_action(StubAction::Hold);
    let before = workshop.gateway.calls().len();
    for n in 0..CALLS_MAX {
        let body = task(&format!("in flight {n}")).to_string();
        gate.client().send_and_hang_up(INTENTS, body.as_bytes());
    }
    workshop.gateway.wait_for_calls(before + CALLS_MAX);
    gate.client().send_and_hang_up(INTENTS, task("intended").to_string().as_bytes());
    wait_for("one effect is intended", TIMEOUT, || {
        (workshop.effects("intended") == 1).then_some(())
    });
    let in_flight = kill_while_publishing(workshop, gate, 70..90);
    let states = ["withheld", "intended", "in_flight", "done", "refused", "ambiguous"];
    let effects: Value = states
        .iter()
        .map(|state| ((*state).to_owned(), Value::from(workshop.effects(state))))
        .collect();
    json!({
        "receipts": receipts, "inbox": inbox, "run": run, "effects": effects, "caught": in_flight,
    })
}

/// Fills the outboxes of an agent without a gate, and kills the agent.
pub(super) fn make_edge(root: &Path) {
    let address = crate::support::edge::closed_address();
    let agent = Launch::edge(&root.join("edge"), address).start();
    let mut client = agent.client();
    for n in 200..205 {
        let response = RecordedRequest::new(SKYRA, &[], skyra::text(n)).send(&mut client).json();
        assert_eq!(response["status"], "stored", "{response}");
    }
    for n in 200..203 {
        client.submit(&match_begin(n, "edge")).processed();
    }
    let key = [("Idempotency-Key", "edge-1")];
    let response = RecordedRequest::new("/v1/events", &key, r#"{"from":"edge"}"#).send(&mut client);
    assert!(response.status < 300, "{}", String::from_utf8_lossy(&response.body));
    agent.kill();
    for name in ["edge.sock", "admit.lock", "edge.lock"] {
        fs::remove_file(root.join("edge").join(name)).unwrap_or_default();
    }
}
