//! Publication of rounds on a faulty bus: each revision is published at most once, and unknown outcomes stay
//! visible until an operator resolves them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::file::{FileBus, Options as BusOptions};
use admit_bus::{Bus as _, BusHealth, SearchResult};
use admit_contracts::rounds::{DOOR, Rounds, Settings};
use admit_core::{Door, Millis};
use admit_gate::gateway::EffectTarget;
use admit_gate::publisher::{Publisher, PublisherParts, PublisherSettings};
use admit_gate::{DoorMount, DrainReport, Gate, GateParts, Limits, Principals, ServeError, serve};
use admit_ledger::sqlite::{Options, SqliteLedger};
use admit_testkit::clock::ManualClock;
use admit_testkit::faulty_bus::{FaultyBus, MessageFault};
use http::HeaderName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Response, get};

const TOPIC: &str = "rounds.v1";
const START: Millis = Millis(1_771_524_842_123);

/// Settle time by the gate's clock, which only advances when a test advances it.
const SETTLE_MS: i64 = 200;

/// A running gate with a faulty bus and a manual clock.
struct RoundsServer {
    address: SocketAddr,
    bus: Arc<FaultyBus>,
    inner: Arc<FileBus>,
    clock: Arc<ManualClock>,
    shutdown: CancellationToken,
    served: JoinSet<Result<DrainReport, ServeError>>,
    _folder: TempDir,
}

impl RoundsServer {
    async fn new() -> Self {
        Self::with_publish_wait(Duration::from_secs(15)).await
    }

    async fn with_publish_wait(publish_wait: Duration) -> Self {
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
        let gate = Gate::new(GateParts {
            ledger: ledger.clone(),
            doors: vec![DoorMount {
                door: Door::new(DOOR),
                path: "/v1/rounds".to_owned(),
                api_key_header: HeaderName::from_static("x-api-key"),
                contract: Arc::new(Rounds::new(Settings::default()).expect("settings")),
                effect_target: EffectTarget::default(),
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
        Client::connect(self.address).await.request(get(path)).await.json()
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Client::connect(self.address).await.request(request).await
    }

    async fn submit(&self, source: &str, body: &Value) -> String {
        let reply = self.post(&format!("/v1/rounds/{source}"), body).await.json();
        reply["round_id"].as_str().unwrap_or_default().to_owned()
    }

    /// Opens a round with fields to publish.
    async fn opened(&self) -> String {
        let details = json!({ "server_name": "one" });
        let body = json!({
            "map_name": "supply", "round_number": 2, "round_date": "2026-02-11",
            "round_time": "220205", "details": details,
        });
        self.submit("filename_trigger", &body).await
    }

    async fn ended(&self, details: Value) {
        let body = json!({
            "map_name": "supply", "round_number": 2, "round_start_unix": 1_770_843_143,
            "round_end_unix": 1_770_843_722, "details": details,
        });
        self.submit("stats_ready", &body).await;
    }

    async fn won_by(&self, team: u32) {
        self.ended(json!({ "winner_team": team })).await;
    }

    fn advance_settle_time(&self) {
        self.clock.advance(SETTLE_MS);
    }

    /// Returns the messages on the bus, in order.
    async fn published(&self) -> Vec<Value> {
        let records = self.inner.read(TOPIC, 0, "", 1_000).await.expect("readable");
        let message = |payload: &[u8]| serde_json::from_slice(payload).expect("a message is json");
        records.iter().map(|record| message(&record.payload)).collect()
    }

    /// Waits until the round is in `state`.
    async fn wait_for_state(&self, id: &str, state: &str) -> Value {
        let polling = async {
            loop {
                let round = self.read(&format!("/v1/rounds/{id}")).await;
                if round["state"] == state {
                    return round;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), polling).await.expect("the state is reached")
    }

    async fn resolve(&self, resolution: &str) -> Response {
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
async fn a_round_is_published_after_its_settle_time_and_again_after_a_change() {
    let server = RoundsServer::new().await;
    let id = server.opened().await;
    server.won_by(1).await;
    server.won_by(2).await;
    // No time passes by the gate's clock.
    sleep(Duration::from_millis(300)).await;
    assert!(server.published().await.is_empty());
    let waiting = server.read("/v1/rounds/diagnostics").await["publications"].clone();
    assert_eq!((&waiting["waiting"], &waiting["published"]), (&json!(1), &json!(0)));
    server.advance_settle_time();
    let round = server.wait_for_state(&id, "published").await;
    let [message] = server.published().await.try_into().expect("one message");
    assert_eq!(message["round_id"], id.as_str());
    assert_eq!(message["revision"], round["revision"]);
    assert_eq!(message["fields"], round["fields"], "all fields with their sources");
    assert_eq!(message["fields"]["winner_team"]["value"], 2);
    assert_eq!(message.get("state"), None, "the message has no processing state");
    server.won_by(0).await;
    server.wait_for_state(&id, "enriched").await;
    server.advance_settle_time();
    let round = server.wait_for_state(&id, "published").await;
    let [_, second] = server.published().await.try_into().expect("two messages");
    assert_eq!(second["revision"], round["revision"]);
    assert_eq!(second["fields"]["winner_team"]["value"], 0);
    let states: Vec<&Value> =
        round["publications"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["done", "done"]);
    let is_published = |step: &&Value| step["to"] == "published";
    for step in round["history"].as_array().unwrap().iter().filter(is_published) {
        for member in ["source", "round_fingerprint", "link_status", "confidence"] {
            assert!(!step[member].is_null(), "{member} of {step}");
        }
    }
    server.end().await;
}

#[tokio::test]
async fn a_round_that_keeps_changing_is_still_published() {
    let server = RoundsServer::new().await;
    let id = server.opened().await;
    for n in 1..20 {
        server.clock.advance(SETTLE_MS / 2);
        server.ended(json!({ "total_pause_seconds": n })).await;
    }
    assert!(server.published().await.is_empty(), "the settle time has not passed");
    server.clock.advance(SETTLE_MS / 2);
    server.wait_for_state(&id, "published").await;
    assert_eq!(server.published().await.len(), 1);
    server.end().await;
}

#[tokio::test]
async fn while_the_bus_is_down_no_publication_starts_or_becomes_ambiguous() {
    let server = RoundsServer::new().await;
    let reason = "unplugged".to_owned();
    server.bus.set_health(Some(BusHealth::Down { reason }));
    let id = server.opened().await;
    server.advance_settle_time();
    sleep(Duration::from_millis(300)).await;
    let counts = server.read("/v1/rounds/diagnostics").await["publications"].clone();
    assert_eq!(counts["waiting"], 1);
    assert_eq!((&counts["in_flight"], &counts["ambiguous"]), (&json!(0), &json!(0)));
    assert!(server.bus.batches().is_empty(), "the bus got no message");
    server.bus.set_health(None);
    server.wait_for_state(&id, "published").await;
    assert_eq!(server.published().await.len(), 1);
    server.end().await;
}

#[tokio::test]
async fn an_unknown_outcome_is_visible_everywhere_and_is_not_retried() {
    let server = RoundsServer::new().await;
    server.bus.next([Some(MessageFault::AcceptThenCut)]);
    let id = server.opened().await;
    server.advance_settle_time();
    let round = server.wait_for_state(&id, "publish_failed").await;
    let source = &round["sources"][0];
    assert_eq!(
        (&source["state"], &source["reason_code"]),
        (&json!("publish_failed"), &json!("publish_unknown"))
    );
    assert_eq!(round["publications"][0]["state"], "ambiguous");
    let last = round["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["from"], &last["to"]), (&json!("enriched"), &json!("publish_failed")));
    assert_eq!(last["reason_code"], "publish_unknown");
    let diagnostics = server.read("/v1/rounds/diagnostics").await;
    assert_eq!(diagnostics["status"], "error");
    assert_eq!(diagnostics["publications"]["ambiguous"], 1);
    server.clock.advance(60_000);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(server.bus.batches(), [1], "it is not retried");
    let absent = server.resolve("absent").await;
    assert_eq!(
        (absent.status, absent.json()["error"]["code"].as_str()),
        (409, Some("not_reconcilable"))
    );
    let found = server.resolve("found").await;
    assert_eq!((found.status, found.json()["state"].as_str()), (200, Some("published")));
    server.wait_for_state(&id, "published").await;
    assert_eq!(server.published().await.len(), 1);
    let listed = server.read("/v1/rounds/reconcile").await;
    assert_eq!(listed["ambiguous"], json!([]));
    server.end().await;
}

#[tokio::test]
async fn an_absent_publication_is_sent_again_after_an_operator_releases_it() {
    let server = RoundsServer::new().await;
    server.bus.next([Some(MessageFault::Refuse)]);
    let id = server.opened().await;
    server.advance_settle_time();
    let round = server.wait_for_state(&id, "publish_failed").await;
    assert_eq!(round["publications"][0]["reason_code"], "publish_not_written");
    let early = server.resolve("absent").await;
    assert_eq!(early.status, 409, "it may still be delivered: {}", early.body);
    server.clock.advance(31_000);
    let released = server.resolve("absent").await;
    assert_eq!((released.status, released.json()["state"].as_str()), (200, Some("released")));
    let round = server.wait_for_state(&id, "published").await;
    let [publication] = round["publications"].as_array().unwrap().as_slice() else {
        panic!("one revision: {round}")
    };
    assert_eq!(publication["attempt"], 2);
    assert_eq!(server.published().await.len(), 1);
    server.end().await;
}

#[tokio::test]
async fn a_late_bus_reply_is_stored_as_evidence_and_changes_no_state() {
    let server = RoundsServer::with_publish_wait(Duration::from_millis(100)).await;
    server.bus.next([Some(MessageFault::AnswerLate)]);
    let id = server.opened().await;
    server.advance_settle_time();
    server.wait_for_state(&id, "publish_failed").await;
    let early = server.resolve("absent").await;
    assert_eq!(early.status, 409, "it is still in flight: {}", early.body);
    server.bus.release();
    let reason = "unavailable for a test".to_owned();
    server.bus.set_found(Some(SearchResult::Unknown { reason }));
    let known = async {
        loop {
            let listed = server.read("/v1/rounds/reconcile").await;
            if listed["ambiguous"][0]["bus"] == "found" {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), known).await.expect("late evidence is stored");
    server.wait_for_state(&id, "publish_failed").await;
    assert_eq!(server.resolve("found").await.status, 200);
    server.wait_for_state(&id, "published").await;
    assert_eq!(server.published().await.len(), 1);
    server.end().await;
}
