//! Makes the fixtures: every door used, every state of an event, an effect and a run, then kill -9.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::expected::{self, Copy, receipt_ids};
use super::ledger::Ledger;
use crate::support::events::{heartbeat, match_begin, registration};
use crate::support::gate::{Gate, Launch};
use crate::support::gateway_stub::{Does, GOOD, GatewayStub};
use crate::support::http::{Client, DOOR as PIXEL};
use crate::support::ingest::{self, PUSH, RUN, gist, push};
use crate::support::intents::{INTENTS, paste, paste_text, task};
use crate::support::machine::text;
use crate::support::rounds::{Round, SOURCES, told};
use crate::support::skyra::{self, DOOR as SKYRA};
use crate::support::{SOON, pack, until};

/// Calls that a door makes at once; one more stays intended.
pub(super) const CALLS_MAX: usize = 64;

/// The run that is closed.
const CLOSED_RUN: &str = "platform_20260213T085637Z";

/// A folder in the making.
pub(super) struct Workshop<'a> {
    pub(super) root: PathBuf,
    pub(super) ledger: &'a Ledger,
    pub(super) gateway: GatewayStub,
}

impl Workshop<'_> {
    /// The folder that the gate serves.
    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// A gate on the folder. Every path that it is given is relative, so that none is kept.
    pub(super) fn launch(&self, config: &str) -> Launch {
        let launch = Launch::bare(&self.data()).in_folder(&self.root);
        let words = ["--data", "data", "--config", config, "--listen", "127.0.0.1:0"];
        let launch = words.into_iter().fold(launch, Launch::argument);
        let launch = launch
            .variable("EXECUTE_ACTIONS", "true")
            .variable("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", &self.gateway.url())
            .variable("PLATFORM_RUN_ID", RUN);
        self.ledger.launch(launch)
    }

    /// A command on the folder; what it printed.
    pub(super) fn command(&self, words: &[&str]) -> (bool, String) {
        let words = [words, &["--data", "data", "--config", "gate.toml"]].concat();
        let mut command = crate::support::gate::admit(&words);
        command.current_dir(&self.root).envs(self.ledger.variables());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn count(&self, query: &str) -> i64 {
        let counted = self.ledger.first(&self.data(), query);
        counted.expect("a count has a row").parse().unwrap()
    }

    /// How many effects are in a state.
    pub(super) fn effects(&self, state: &str) -> i64 {
        let query = format!("SELECT CAST(count(*) AS TEXT) FROM effect WHERE state = '{state}'");
        self.count(&query)
    }
}

/// Fills the folder `root` and leaves it as kill -9 leaves one.
pub(super) fn make(root: &Path, ledger: &Ledger) {
    for (name, content) in [
        ("gate.toml", include_str!("gate.toml")),
        ("principals.toml", include_str!("principals.toml")),
        ("order-1.json", include_str!("order-1.json")),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    let gateway = GatewayStub::start(GOOD);
    let shop = Workshop { root: root.to_owned(), ledger, gateway };
    copy_pack(&shop.root);
    let gate = shop.launch("gate.toml").start();
    let mut copies = Vec::new();
    pixel(&gate, &mut copies);
    skyra(&gate, &mut copies);
    intents(&shop, &gate, &mut copies);
    rounds(&gate, &mut copies);
    streams(&gate, &mut copies);
    runs(&shop, &gate);
    envelopes(&gate, &mut copies);
    close_a_run(&gate, &mut copies);
    let caught = die_while_publishing(&shop, gate, 50..70);
    // The next start finds it ambiguous.
    let gate = shop.launch("gate.toml").start();
    copies.push(Copy::new(PUSH, &[], ingest::envelope(caught).to_string()));
    let kept = record(&gate, &copies);
    gate.stop();
    let scoped = with_principals(&shop);
    let last = end(&shop);
    let unresolved = [caught, last["caught"].as_u64().unwrap()];
    let mut expected = json!({ "copies": kept, "scoped": scoped, "unresolved": unresolved });
    expected.as_object_mut().unwrap().extend(last.as_object().unwrap().clone());
    expected::write(root, &expected);
    fs::remove_dir_all(root.join("engine_run")).unwrap();
    clear(&shop.data());
    ledger.dump_into(root);
}

/// Removes what belongs to the dead process and not to the data.
fn clear(data: &Path) {
    for name in ["admit.sock", "admit.lock", "ledger.db-shm"] {
        fs::remove_file(data.join(name)).unwrap_or_default();
    }
    fs::remove_dir_all(data.join("artifacts/.aside")).unwrap_or_default();
}

fn copy_pack(root: &Path) {
    let script = format!("cp -r '{}' '{}'", text(&pack::golden()), text(&root.join("engine_run")));
    crate::support::machine::run("sh", ["-c", &script]).unwrap();
}

/// Sends everything again, twice, and keeps what both answers have in common.
fn record(gate: &Gate, copies: &[Copy]) -> Value {
    let mut client = gate.client();
    copies.iter().map(|copy| copy.record(&mut client)).collect()
}

/// Sends it for the first time.
fn first(client: &mut Client, copies: &mut Vec<Copy>, copy: Copy, status: u16) -> Value {
    let answer = copy.send(client);
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, status, "{}: {body}", copy.path);
    copies.push(copy);
    serde_json::from_str(&body).expect("an answer is JSON")
}

fn pixel(gate: &Gate, copies: &mut Vec<Copy>) {
    let mut client = gate.client();
    let posts = [registration(1, "a"), match_begin(2, "a"), match_begin(3, "b"), heartbeat(4, "b")];
    for post in posts {
        first(&mut client, copies, Copy::new(PIXEL, &[], post.body()), 200);
    }
    // Another event under a known key, a copy that is a later attempt, and two refusals.
    client.say(&match_begin(2, "c")).duplicate();
    client.say(&match_begin(3, "b").attempt(2)).duplicate();
    let old = match_begin(9, "a").set("/envelope/schema_version", "1999-01-01.1");
    client.post(&old).unwrap();
    client.say_bytes(b"{");
}

fn skyra(gate: &Gate, copies: &mut Vec<Copy>) {
    let mut client = gate.client();
    for n in 0..8 {
        first(&mut client, copies, Copy::new(SKYRA, &[], skyra::text(n)), 200);
    }
    let mut other = skyra::envelope(1);
    other["payload"]["user_text"] = "something else".into();
    Copy::new(SKYRA, &[], other.to_string()).send(&mut client);
    Copy::new(SKYRA, &[], r#"{"event_id":"evt_bad"}"#).send(&mut client);
    let asked = json!({ "consumer": "planner-1", "max": 4, "lease_seconds": 1 });
    let claimed = post(&mut client, "/v1/inbox/claim", &asked);
    for (event, status) in claimed["events"].as_array().unwrap().iter().zip(["done", "failed"]) {
        let path = format!("/v1/inbox/{}", event["event_id"].as_str().unwrap());
        post(&mut client, &path, &json!({ "status": status, "lease": event["lease"] }));
    }
}

/// Posts what must be taken.
fn post(client: &mut Client, path: &str, body: &Value) -> Value {
    let answer = client.send("POST", path, &[], body.to_string().as_bytes()).unwrap();
    assert!(answer.status < 300, "{path}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn intents(shop: &Workshop<'_>, gate: &Gate, copies: &mut Vec<Copy>) {
    let mut client = gate.client();
    let outcomes = [
        ("executed", GOOD, 200),
        ("refused by the gateway", Does::Answers(422, r#"{"error":"no"}"#), 502),
        ("cut", Does::Cuts, 502),
    ];
    for (title, does, status) in outcomes {
        shop.gateway.now(does);
        first(&mut client, copies, Copy::new(INTENTS, &[], task(title).to_string()), status);
    }
    shop.gateway.now(GOOD);
    paste_text(&mut client, r#"{"kind":"intent","intent_type":"nonsense"}"#);
    let mut unsure = task("unsure");
    unsure["confidence"] = 0.1.into();
    paste(&mut client, &unsure);
}

fn rounds(gate: &Gate, copies: &mut Vec<Copy>) {
    let mut client = gate.client();
    for (n, sources) in [(0, &SOURCES[..]), (1, &SOURCES[..2]), (2, &SOURCES[2..3])] {
        let round = Round::nth(n);
        for source in sources {
            let path = format!("{}/{source}", crate::support::rounds::ROUNDS);
            let copy = Copy::new(&path, &[], round.post(source).to_string());
            first(&mut client, copies, copy, 200);
        }
    }
    // A later state of one source, which is a revision.
    told(&mut client, "stats_ready", &Round::nth(1).ready_with(1, 2));
    until("the rounds are published", SOON, || {
        let counts = client.get("/v1/rounds/diagnostics")["publications"].clone();
        (counts["waiting"] == 0 && counts["in_flight"] == 0).then_some(())
    });
}

fn streams(gate: &Gate, copies: &mut Vec<Copy>) {
    let mut client = gate.client();
    let keyed = |n: u32| {
        let key = format!("order-{n}");
        Copy::new("/v1/events", &[("Idempotency-Key", &key)], format!("{{\"total\":{n}}}"))
    };
    for n in 0..6 {
        first(&mut client, copies, keyed(n), 201);
    }
    let key = [("Idempotency-Key", "order-1")];
    let other = Copy::new("/v1/events", &key, r#"{"total":7}"#).send(&mut client);
    assert_eq!(other.status, 422, "a conflict");
    let nameless = Copy::new("/v1/events", &[], "{}").send(&mut client);
    assert_eq!(nameless.status, 400, "a refusal");
    for n in 1..4 {
        let body = json!({ "order": { "id": n }, "total": n * 10 }).to_string();
        first(&mut client, copies, Copy::new("/v1/events/orders", &[], body), 201);
        let kind = [("Content-Type", "application/octet-stream")];
        let line = format!("line {n}");
        first(&mut client, copies, Copy::new("/v1/events/lines", &kind, line), 201);
    }
    let invalid = Copy::new("/v1/events/orders", &[], r#"{"order":{"id":9},"total":"x"}"#);
    assert_eq!(invalid.send(&mut client).status, 400, "a violation of the schema");
    let cloud = json!({
        "specversion": "1.0", "id": "c-1", "source": "/shop", "type": "order.paid",
        "time": "2026-02-19T18:14:02Z", "data": { "total": 5 },
    });
    let kind = [("Content-Type", "application/cloudevents+json")];
    first(&mut client, copies, Copy::new("/v1/events", &kind, cloud.to_string()), 201);
    let asked = json!({ "consumer": "c", "max": 3, "lease_seconds": 1 });
    let claimed = post(&mut client, "/v1/events/default/claim", &asked);
    for (event, status) in claimed["events"].as_array().unwrap().iter().zip(["done", "failed"]) {
        let path = format!("/v1/events/default/{}", event["receipt_id"].as_str().unwrap());
        post(&mut client, &path, &json!({ "status": status, "lease": event["lease"] }));
    }
}

/// A scenario run that is READY, announced again, and streamed.
fn runs(shop: &Workshop<'_>, gate: &Gate) {
    let mut client = gate.client();
    let run = post(&mut client, "/runs", &pack::request("engine_run"));
    assert_eq!(run["state"], "READY", "{run}");
    let reemit = format!("/runs/{}/reemit", run["run_id"].as_str().unwrap());
    post(&mut client, &reemit, &json!({}));
    let url = format!("http://{}", gate.address());
    let (ok, said) = shop.command(&["stream", "--once", "--speedup", "0", "--gate", &url]);
    assert!(ok, "{said}");
}

fn envelopes(gate: &Gate, copies: &mut Vec<Copy>) {
    let mut client = gate.client();
    for n in 1..7 {
        let copy = Copy::new(PUSH, &[], ingest::envelope(n).to_string());
        let answer = first(&mut client, copies, copy, 200);
        assert_eq!(answer["decision"], "ADMIT", "{answer}");
    }
    let mut other = ingest::envelope(1);
    other["payload"]["amount"] = 99.into();
    let mut broken = ingest::envelope(8);
    broken["payload"]["amount"] = "much".into();
    for (envelope, decision) in
        [(ingest::envelope(2), "DUPLICATE"), (other, "QUARANTINE"), (broken, "QUARANTINE")]
    {
        let said = gist(&push(&mut client, &envelope));
        assert!(said.starts_with(decision), "{said}");
    }
    client.send("POST", PUSH, &[], b"{}").unwrap();
}

fn close_a_run(gate: &Gate, copies: &mut Vec<Copy>) {
    let mut client = gate.client();
    for n in 30..33 {
        let mut envelope = ingest::envelope(n);
        envelope["platform_run_id"] = CLOSED_RUN.into();
        let copy = Copy::new(PUSH, &[], envelope.to_string());
        let answer = first(&mut client, copies, copy, 200);
        assert_eq!(answer["decision"], "ADMIT", "{answer}");
    }
    let closed = post(&mut client, &format!("/v1/runs/{CLOSED_RUN}/close"), &json!({}));
    assert_eq!(closed["state"], "closed", "{closed}");
    client.get(&format!("/v1/runs/{RUN}/report"));
}

/// Kills the gate between the record of an envelope and its outcome, with the message on the bus. Which
/// envelope that is: the first of `numbers` that is caught there.
fn die_while_publishing(shop: &Workshop<'_>, gate: Gate, mut numbers: Range<u64>) -> u64 {
    let before = shop.effects("in_flight");
    loop {
        let n = numbers.next().expect("one of them is caught in flight");
        let (address, id) = (gate.address(), format!("event-{n}"));
        let pushing = thread::spawn(move || {
            let body = ingest::envelope(n).to_string();
            Client::to(address).send("POST", PUSH, &[], body.as_bytes())
        });
        let lock = loop {
            let lock = shop.ledger.lock(&shop.data());
            if shop.effects("in_flight") > before {
                break Some(lock);
            }
            drop(lock);
            if pushing.is_finished() {
                break None;
            }
            thread::sleep(Duration::from_micros(200));
        };
        let Some(lock) = lock else { continue };
        until("it is on the bus", SOON, || {
            ingest::published(&shop.data(), ingest::STREAM).contains(&id).then_some(())
        });
        gate.kill();
        drop(pushing.join().unwrap());
        drop(lock);
        return n;
    }
}

/// Two producers with keys of their own, who use the same names for different events.
fn with_principals(shop: &Workshop<'_>) -> Value {
    let gate = shop.launch("principals.toml").start();
    let mut copies = Vec::new();
    let mut client = gate.client();
    for name in ["arena-1", "arena-2"] {
        let bearer = format!("Bearer {name}-fixture-key");
        let key = [("Authorization", bearer.as_str())];
        let order = [key[0], ("Idempotency-Key", "shared")];
        let envelope = skyra::text(if name == "arena-1" { 100 } else { 101 });
        for (copy, status) in [
            (Copy::new(PIXEL, &key, match_begin(100, name).body()), 200),
            (Copy::new("/v1/events", &order, format!("{{\"by\":\"{name}\"}}")), 201),
            (Copy::new(SKYRA, &key, envelope), 200),
        ] {
            first(&mut client, &mut copies, copy, status);
        }
    }
    // Other content under an id of the other producer. How that is answered is not recorded.
    let key = [("Authorization", "Bearer arena-2-fixture-key")];
    let mut other = skyra::envelope(100);
    other["payload"]["user_text"] = "from the other one".into();
    Copy::new(SKYRA, &key, other.to_string()).send(&mut client);
    let recorded = record(&gate, &copies);
    gate.stop();
    recorded
}

/// The id of the scenario run.
fn scenario(client: &mut Client) -> String {
    let run = post(client, "/runs", &pack::request("engine_run"));
    run["run_id"].as_str().unwrap().to_owned()
}

/// The last gate: something waits for publication, something is planned, something is intended and
/// the rest is in flight when it dies.
fn end(shop: &Workshop<'_>) -> Value {
    let settle = ("ADMIT_DOORS__ROUNDS__PUBLISH_SETTLE_MS", "86400000");
    let planning = shop.launch("gate.toml").variable(settle.0, settle.1);
    let gate = planning.variable("EXECUTE_ACTIONS", "false").start();
    let planned = paste(&mut gate.client(), &task("planned"));
    assert_eq!(planned.json()["status"], "planned");
    let mut client = gate.client();
    let ids = receipt_ids(&mut client);
    let receipts: Value = ids.iter().map(|id| client.get(&format!("/v1/receipts/{id}"))).collect();
    let inbox = client.get("/v1/inbox?limit=200");
    let run = scenario(&mut client);
    let run = client.get(&format!("/runs/{run}"));
    gate.stop();
    let slow = ("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "60000");
    let gate = shop.launch("gate.toml").variable(settle.0, settle.1).variable(slow.0, slow.1);
    let gate = gate.start();
    told(&mut gate.client(), "stats_ready", &Round::nth(3).ready());
    shop.gateway.now(Does::Holds);
    let before = shop.gateway.calls().len();
    for n in 0..CALLS_MAX {
        let body = task(&format!("in flight {n}")).to_string();
        gate.client().send_and_hang_up(INTENTS, body.as_bytes());
    }
    shop.gateway.has(before + CALLS_MAX);
    gate.client().send_and_hang_up(INTENTS, task("intended").to_string().as_bytes());
    until("one waits for its turn", SOON, || (shop.effects("intended") == 1).then_some(()));
    let caught = die_while_publishing(shop, gate, 70..90);
    let states = ["withheld", "intended", "in_flight", "done", "refused", "ambiguous"];
    let effects: Value = states
        .iter()
        .map(|state| ((*state).to_owned(), Value::from(shop.effects(state))))
        .collect();
    json!({
        "receipts": receipts, "inbox": inbox, "run": run, "effects": effects, "caught": caught,
    })
}

/// Fills the outboxes of an agent whose gate is away, and kills it.
pub(super) fn make_edge(root: &Path) {
    let nowhere = crate::support::edge::nowhere();
    let agent = Launch::edge(&root.join("edge"), nowhere).start();
    let mut client = agent.client();
    for n in 200..205 {
        let answer = Copy::new(SKYRA, &[], skyra::text(n)).send(&mut client).json();
        assert_eq!(answer["status"], "stored", "{answer}");
    }
    for n in 200..203 {
        client.say(&match_begin(n, "edge")).processed();
    }
    let key = [("Idempotency-Key", "edge-1")];
    let kept = Copy::new("/v1/events", &key, r#"{"from":"edge"}"#).send(&mut client);
    assert!(kept.status < 300, "{}", String::from_utf8_lossy(&kept.body));
    agent.kill();
    for name in ["edge.sock", "admit.lock", "edge.lock"] {
        fs::remove_file(root.join("edge").join(name)).unwrap_or_default();
    }
}
