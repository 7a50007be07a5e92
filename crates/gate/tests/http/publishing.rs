//! Rounds on a bus that gets into trouble: each revision goes out once at most, and what nobody knows
//! is there to be seen until a person ends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::file::{FileBus, Options as BusOptions};
use admit_bus::{Bus as _, BusHealth, SearchResult};
use admit_contracts::rounds::{DOOR, Rounds, Settings};
use admit_core::{Door, Millis};
use admit_gate::gateway::Outward;
use admit_gate::publisher::{Publisher, PublisherParts, PublisherSettings};
use admit_gate::{DoorMount, Drained, Gate, Limits, Parts, Principals, ServeError, serve};
use admit_ledger::sqlite::{Options, SqliteLedger};
use admit_testkit::clock::ManualClock;
use admit_testkit::faulty_bus::{FaultyBus, Trouble};
use http::HeaderName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{Answer, Client, get};

const TOPIC: &str = "rounds.v1";
const START: Millis = Millis(1_771_524_842_123);

/// By the gate's clock, which stands still unless a test says otherwise.
const SETTLE_MS: i64 = 200;

/// A gate whose bus and clock do as they are told.
struct World {
    address: SocketAddr,
    bus: Arc<FaultyBus>,
    inner: Arc<FileBus>,
    clock: Arc<ManualClock>,
    shutdown: CancellationToken,
    served: JoinSet<Result<Drained, ServeError>>,
    _folder: TempDir,
}

impl World {
    async fn new() -> Self {
        Self::patient(Duration::from_secs(15)).await
    }

    async fn patient(publish_wait: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = FileBus::open(BusOptions::new(folder.path().join("bus"))).expect("a bus");
        let inner = Arc::new(inner);
        let bus = Arc::new(FaultyBus::over(inner.clone()));
        bus.set_delivery_timeout(Some(Duration::from_secs(30)));
        let options = Options::new(folder.path().join("data"), START);
        let ledger = Arc::new(SqliteLedger::open(options).expect("a ledger"));
        let clock = Arc::new(ManualClock::at(START));
        let settle = Duration::from_millis(SETTLE_MS.unsigned_abs());
        let settings = PublisherSettings { topic: TOPIC.into(), settle, publish_wait };
        let publisher = Publisher::new(PublisherParts {
            ledger: ledger.clone(),
            bus: bus.clone(),
            clock: clock.clone(),
            settings,
        });
        let gate = Gate::new(Parts {
            ledger: ledger.clone(),
            doors: vec![DoorMount {
                door: Door::new(DOOR),
                path: "/v1/rounds".to_owned(),
                api_key_header: HeaderName::from_static("x-api-key"),
                contract: Arc::new(Rounds::new(Settings::default()).expect("settings")),
                outward: Outward::default(),
            }],
            principals: Principals::open(),
            limits: Limits::default(),
            clock: clock.clone(),
        });
        let gate = gate.expect("parts that fit").with_records(ledger.clone());
        let gate = Arc::new(gate.with_publications(ledger).with_publisher(publisher));
        gate.recover().await.expect("a new ledger recovers");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let mut served = JoinSet::new();
        served.spawn(serve(listener, gate, shutdown.clone()));
        Self { address, bus, inner, clock, shutdown, served, _folder: folder }
    }

    async fn read(&self, path: &str) -> Value {
        Client::connect(self.address).await.ask(get(path)).await.json()
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Client::connect(self.address).await.ask(request).await
    }

    async fn tell(&self, source: &str, body: &Value) -> String {
        let said = self.post(&format!("/v1/rounds/{source}"), body).await.json();
        said["round_id"].as_str().unwrap_or_default().to_owned()
    }

    /// The round is opened, and there is something to say about it.
    async fn opened(&self) -> String {
        let details = json!({ "server_name": "one" });
        let body = json!({
            "map_name": "supply", "round_number": 2, "round_date": "2026-02-11",
            "round_time": "220205", "details": details,
        });
        self.tell("filename_trigger", &body).await
    }

    async fn ended(&self, details: Value) {
        let body = json!({
            "map_name": "supply", "round_number": 2, "round_start_unix": 1_770_843_143,
            "round_end_unix": 1_770_843_722, "details": details,
        });
        self.tell("stats_ready", &body).await;
    }

    async fn won_by(&self, team: u32) {
        self.ended(json!({ "winner_team": team })).await;
    }

    fn rest(&self) {
        self.clock.advance(SETTLE_MS);
    }

    /// The messages on the bus, in order.
    async fn published(&self) -> Vec<Value> {
        let records = self.inner.read(TOPIC, 0, "", 1_000).await.expect("readable");
        let message = |payload: &[u8]| serde_json::from_slice(payload).expect("a message is json");
        records.iter().map(|record| message(&record.payload)).collect()
    }

    /// Waits until the round stands so.
    async fn until(&self, id: &str, state: &str) -> Value {
        let looking = async {
            loop {
                let round = self.read(&format!("/v1/rounds/{id}")).await;
                if round["state"] == state {
                    return round;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), looking).await.expect("it comes to that")
    }

    async fn resolve(&self, resolution: &str) -> Answer {
        let listed = self.read("/v1/rounds/reconcile").await;
        let key = listed["ambiguous"][0]["dedupe_key"].as_str().expect("one is listed").to_owned();
        let body = json!({ "resolution": resolution, "reason": "looked" });
        self.post(&format!("/v1/rounds/reconcile/{key}"), &body).await
    }

    async fn end(mut self) {
        self.shutdown.cancel();
        let served = self.served.join_next().await.expect("it was started");
        assert_eq!(served.expect("no panic").expect("it served").unfinished, 0);
    }
}

#[tokio::test]
async fn a_round_is_published_once_it_has_come_to_rest_and_again_when_it_says_more() {
    let world = World::new().await;
    let id = world.opened().await;
    world.won_by(1).await;
    world.won_by(2).await;
    // However long that takes: by the gate's clock no time has passed.
    sleep(Duration::from_millis(300)).await;
    assert!(world.published().await.is_empty());
    let waiting = world.read("/v1/rounds/diagnostics").await["publications"].clone();
    assert_eq!((&waiting["waiting"], &waiting["published"]), (&json!(1), &json!(0)));
    world.rest();
    let round = world.until(&id, "published").await;
    let [message] = world.published().await.try_into().expect("one message");
    assert_eq!(message["round_id"], id.as_str());
    assert_eq!(message["revision"], round["revision"]);
    assert_eq!(message["fields"], round["fields"], "it tells everything, and who told it");
    assert_eq!(message["fields"]["winner_team"]["value"], 2);
    assert_eq!(message.get("state"), None, "how far it has come is nobody else's business");
    world.won_by(0).await;
    world.until(&id, "enriched").await;
    world.rest();
    let round = world.until(&id, "published").await;
    let [_, second] = world.published().await.try_into().expect("two messages");
    assert_eq!(second["revision"], round["revision"]);
    assert_eq!(second["fields"]["winner_team"]["value"], 0);
    let states: Vec<&Value> =
        round["publications"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["done", "done"]);
    let out = |step: &&Value| step["to"] == "published";
    for step in round["history"].as_array().unwrap().iter().filter(out) {
        for told in ["source", "round_fingerprint", "link_status", "confidence"] {
            assert!(!step[told].is_null(), "{told} of {step}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_round_that_never_rests_is_published_all_the_same() {
    let world = World::new().await;
    let id = world.opened().await;
    for n in 1..20 {
        world.clock.advance(SETTLE_MS / 2);
        world.ended(json!({ "total_pause_seconds": n })).await;
    }
    assert!(world.published().await.is_empty(), "it has never rested");
    world.clock.advance(SETTLE_MS / 2);
    world.until(&id, "published").await;
    assert_eq!(world.published().await.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn while_the_bus_is_down_nothing_begins_and_nothing_is_ambiguous() {
    let world = World::new().await;
    let reason = "unplugged".to_owned();
    world.bus.set_health(Some(BusHealth::Down { reason }));
    let id = world.opened().await;
    world.rest();
    sleep(Duration::from_millis(300)).await;
    let counts = world.read("/v1/rounds/diagnostics").await["publications"].clone();
    assert_eq!(counts["waiting"], 1);
    assert_eq!((&counts["in_flight"], &counts["ambiguous"]), (&json!(0), &json!(0)));
    assert!(world.bus.batches().is_empty(), "nothing was handed over");
    world.bus.set_health(None);
    world.until(&id, "published").await;
    assert_eq!(world.published().await.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn an_unknown_outcome_is_to_be_seen_everywhere_and_is_not_repeated() {
    let world = World::new().await;
    world.bus.next([Some(Trouble::AcceptThenCut)]);
    let id = world.opened().await;
    world.rest();
    let round = world.until(&id, "publish_failed").await;
    let source = &round["sources"][0];
    assert_eq!(
        (&source["state"], &source["reason_code"]),
        (&json!("publish_failed"), &json!("publish_unknown"))
    );
    assert_eq!(round["publications"][0]["state"], "ambiguous");
    let last = round["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["from"], &last["to"]), (&json!("enriched"), &json!("publish_failed")));
    assert_eq!(last["reason_code"], "publish_unknown");
    let diagnostics = world.read("/v1/rounds/diagnostics").await;
    assert_eq!(diagnostics["status"], "error");
    assert_eq!(diagnostics["publications"]["ambiguous"], 1);
    world.clock.advance(60_000);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(world.bus.batches(), [1], "nothing repeats it");
    let absent = world.resolve("absent").await;
    assert_eq!(
        (absent.status, absent.json()["error"]["code"].as_str()),
        (409, Some("not_reconcilable"))
    );
    let found = world.resolve("found").await;
    assert_eq!((found.status, found.json()["state"].as_str()), (200, Some("published")));
    world.until(&id, "published").await;
    assert_eq!(world.published().await.len(), 1);
    let listed = world.read("/v1/rounds/reconcile").await;
    assert_eq!(listed["ambiguous"], json!([]));
    world.end().await;
}

#[tokio::test]
async fn what_the_bus_does_not_have_is_sent_again_when_a_person_says_so() {
    let world = World::new().await;
    world.bus.next([Some(Trouble::Refuse)]);
    let id = world.opened().await;
    world.rest();
    let round = world.until(&id, "publish_failed").await;
    assert_eq!(round["publications"][0]["reason_code"], "publish_not_written");
    let early = world.resolve("absent").await;
    assert_eq!(early.status, 409, "it could still land: {}", early.body);
    world.clock.advance(31_000);
    let released = world.resolve("absent").await;
    assert_eq!((released.status, released.json()["state"].as_str()), (200, Some("released")));
    let round = world.until(&id, "published").await;
    let [publication] = round["publications"].as_array().unwrap().as_slice() else {
        panic!("one revision: {round}")
    };
    assert_eq!(publication["attempt"], 2);
    assert_eq!(world.published().await.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn a_late_answer_is_evidence_and_promotes_nothing() {
    let world = World::patient(Duration::from_millis(100)).await;
    world.bus.next([Some(Trouble::AnswerLate)]);
    let id = world.opened().await;
    world.rest();
    world.until(&id, "publish_failed").await;
    let early = world.resolve("absent").await;
    assert_eq!(early.status, 409, "it is still under way: {}", early.body);
    world.bus.release();
    let reason = "blind".to_owned();
    world.bus.set_found(Some(SearchResult::Unknown { reason }));
    let known = async {
        loop {
            let listed = world.read("/v1/rounds/reconcile").await;
            if listed["ambiguous"][0]["bus"] == "found" {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), known).await.expect("what came late is kept");
    world.until(&id, "publish_failed").await;
    assert_eq!(world.resolve("found").await.status, 200);
    world.until(&id, "published").await;
    assert_eq!(world.published().await.len(), 1);
    world.end().await;
}
