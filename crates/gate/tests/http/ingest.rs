//! The ingestion gate on a bus that gets into trouble: nothing is published twice, nothing is
//! claimed that is not known, and a person can always find out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::Artifacts;
use admit_artifacts::local::{LocalArtifacts, Options as ArtifactOptions};
use admit_bus::file::{FileBus, Options as BusOptions};
use admit_bus::{Bus, BusHealth};
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_contracts::ingestion_gate::{IngestionGate, Settings};
use admit_core::{Door, Millis, RunState};
use admit_gate::gateway::Outward;
use admit_gate::ingest::{Ingest, IngestParts, IngestSettings};
use admit_gate::{DoorMount, Drained, Gate, Limits, Parts, Principals, ServeError, serve};
use admit_ledger::sqlite::{Options, SqliteLedger};
use admit_ledger::{EffectReader as _, Issuance as _, DocumentReader as _, Reader as _, Run};
use admit_testkit::clock::ManualClock;
use admit_testkit::faulty_bus::{FaultyBus, Trouble};
use http::HeaderName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::balky::Balky;
use crate::blind::Blind;
use crate::client::{Answer, Client, get};

pub(crate) const RUN: &str = "platform_20260212T085637Z";
const STREAM: &str = "fp.bus.traffic.fraud.v1";
const START: Millis = Millis(1_771_524_842_123);

/// A gate whose bus, clock and ledger do as they are told.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    bus: Arc<FaultyBus>,
    inner: Arc<FileBus>,
    pub(crate) ledger: Arc<SqliteLedger>,
    balky: Arc<Balky>,
    clock: Arc<ManualClock>,
    shutdown: CancellationToken,
    served: JoinSet<Result<Drained, ServeError>>,
    pub(crate) folder: TempDir,
}

/// Long enough that only a test that says otherwise waits for it.
pub(crate) fn patient() -> IngestSettings {
    IngestSettings {
        in_flight_wait: Duration::from_secs(15),
        publish_wait: Duration::from_secs(15),
        probe_every: Duration::from_secs(3_600),
        ..IngestSettings::default()
    }
}

impl World {
    async fn with(settings: IngestSettings) -> Self {
        Self::on(settings, |store| Arc::new(store)).await
    }

    pub(crate) async fn on(
        settings: IngestSettings,
        store: impl FnOnce(LocalArtifacts) -> Arc<dyn Artifacts>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = FileBus::open(BusOptions::new(folder.path().join("bus"))).expect("a bus");
        let inner = Arc::new(inner);
        let bus = Arc::new(FaultyBus::over(inner.clone()));
        bus.set_delivery_timeout(Some(Duration::from_secs(30)));
        let options = Options::new(folder.path().join("data"), START);
        let ledger = Arc::new(SqliteLedger::open(options).expect("a ledger"));
        let balky = Arc::new(Balky::over(ledger.clone()));
        let clock = Arc::new(ManualClock::at(START));
        let artifacts = ArtifactOptions::new(folder.path().join("artifacts"));
        let contract =
            IngestionGate::new(Settings::default(), IngestionPolicy::shipped()).expect("settings");
        let contract = Arc::new(contract);
        let ingest = Ingest::new(IngestParts {
            contract: contract.clone(),
            ledger: balky.clone(),
            reader: ledger.clone(),
            bus: bus.clone(),
            artifacts: store(LocalArtifacts::open(artifacts).expect("a store")),
            clock: clock.clone(),
            settings,
        });
        let gate = Gate::new(Parts {
            ledger: ledger.clone(),
            doors: vec![DoorMount {
                door: Door::new("ingestion-gate"),
                path: "/v1/ingest/push".to_owned(),
                api_key_header: HeaderName::from_static("x-ig-api-key"),
                contract,
                outward: Outward::publishing(ingest),
            }],
            principals: Principals::open(),
            limits: Limits { answer_ms_max: 20_000, ..Limits::default() },
            clock: clock.clone(),
        });
        let gate = Arc::new(gate.expect("parts that fit"));
        gate.recover().await.expect("a new ledger recovers");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let mut served = JoinSet::new();
        served.spawn(serve(listener, gate, shutdown.clone()));
        Self { address, bus, inner, ledger, balky, clock, shutdown, served, folder }
    }

    /// Sends an envelope without waiting for the answer.
    async fn send(&self, envelope: &Value) -> Client {
        let mut client = Client::connect(self.address).await;
        client.send(post("/v1/ingest/push", &envelope.to_string())).await;
        client
    }

    pub(crate) async fn push(&self, envelope: &Value) -> Answer {
        self.send(envelope).await.answer().await
    }

    async fn read(&self, path: &str) -> Value {
        Client::connect(self.address).await.ask(get(path)).await.json()
    }

    async fn resolve(&self, key: &str, body: Value) -> Answer {
        let request = post(&format!("/v1/reconcile/{key}"), &body.to_string());
        Client::connect(self.address).await.ask(request).await
    }

    /// What the bus is said to know about the one ambiguous admission.
    async fn doubt(&self) -> Value {
        let listed = self.read(&format!("/v1/reconcile?run={RUN}")).await;
        let [doubt] = listed["ambiguous"].as_array().expect("a list").as_slice() else {
            panic!("one ambiguous admission: {listed}")
        };
        doubt.clone()
    }

    /// The ids of the events on the stream.
    async fn published(&self) -> Vec<String> {
        let records = self.inner.read(STREAM, 0, "", 1_000).await.expect("readable");
        let id = |payload: &[u8]| -> Value { serde_json::from_slice(payload).expect("json") };
        let ids = records.iter().map(|record| id(&record.payload)["event_id"].clone());
        ids.map(|id| id.as_str().expect("an id").to_owned()).collect()
    }

    async fn run(&self) -> Run {
        self.ledger.run(RUN.to_owned()).await.expect("readable").expect("it was named")
    }

    pub(crate) async fn end(self) {
        drop(self.end_keeping().await);
    }

    /// Ends it, and gives its folder back.
    pub(crate) async fn end_keeping(mut self) -> TempDir {
        self.shutdown.cancel();
        let served = self.served.join_next().await.expect("it was started");
        assert_eq!(served.expect("no panic").expect("it served").unfinished, 0);
        self.folder
    }
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

pub(crate) fn envelope(n: u64) -> Value {
    let pins = json!({
        "manifest_fingerprint": "c8fd43cd60ce0ede0c63d2ceb4610f167c9b107e1d59b9b8c7d7b8d0028b05c8",
        "parameter_hash": "56d45126eaabedd083a1d8428a763e0278c89efec5023cfd6cf3cab7fc8dd2d7",
        "seed": 42, "scenario_id": "baseline_v1",
    });
    let mut payload = json!({
        "flow_id": n, "event_seq": 0, "event_type": "AUTH_REQUEST", "amount": 12.5,
        "ts_utc": "2026-01-01T00:00:00.000000Z", "fraud_flag": false, "campaign_id": null,
    });
    let mut envelope = json!({
        "event_id": format!("event-{n}"), "event_type": "s3_event_stream_with_fraud_6B",
        "schema_version": "v1", "ts_utc": "2026-01-01T00:00:00.000000Z", "platform_run_id": RUN,
        "scenario_run_id": "fd17b1049bbce9df478c22ba1740e9ea",
        "run_id": "c25a2675fbfbacd952b13bb594880e92",
    });
    for (name, value) in pins.as_object().expect("an object") {
        payload[name] = value.clone();
        envelope[name] = value.clone();
    }
    envelope["payload"] = payload;
    envelope
}

pub(crate) fn gist(answer: &Answer) -> String {
    let said = answer.json();
    let decision = said["decision"].as_str().unwrap_or_else(|| panic!("no decision: {said}"));
    match said["receipt"]["reason_codes"][0].as_str() {
        Some(reason) => format!("{decision} {reason}"),
        None => decision.to_owned(),
    }
}

fn key_of(doubt: &Value) -> String {
    doubt["dedupe_key"].as_str().expect("a key").to_owned()
}

fn said(resolution: &str) -> Value {
    json!({ "resolution": resolution, "reason": "looked" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_was_cut_is_ambiguous_until_a_person_finds_it() {
    let world = World::with(patient()).await;
    world.bus.next([Some(Trouble::AcceptThenCut)]);
    assert_eq!(gist(&world.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    for _ in 0..3 {
        assert_eq!(gist(&world.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    }
    assert_eq!(world.published().await.len(), 1, "never published again by itself");
    let counts = world.run().await.counts;
    assert_eq!((counts.ambiguous, counts.quarantine, counts.deliveries), (1, 1, 4));

    let doubt = world.doubt().await;
    assert_eq!((&doubt["bus"], &doubt["eb_refs"][0]["offset"]), (&json!("found"), &json!("0")));
    let key = key_of(&doubt);
    let refused = world.resolve(&key, said("absent")).await;
    assert_eq!((refused.status, refused.general().as_str()), (409, "not_reconcilable"));
    let unreasoned = world.resolve(&key, json!({ "resolution": "found" })).await;
    assert_eq!(unreasoned.status, 400, "nothing without a reason");
    let found = world.resolve(&key, said("found")).await;
    assert_eq!((found.status, &found.json()["state"]), (200, &json!("ADMITTED")));
    let again = world.resolve(&key, said("found")).await;
    assert_eq!(again.status, 409, "once");

    let copy = world.push(&envelope(1)).await;
    assert_eq!(gist(&copy), "DUPLICATE DUPLICATE");
    assert_eq!(copy.json()["receipt"]["eb_ref"]["offset"], "0");
    let filed = world.ledger.filed_of(admission(&world, &key).await).await.expect("readable");
    let admit = filed.iter().find(|filed| filed.document.decision == "ADMIT").expect("a receipt");
    assert!(admit.document.text.contains("local: looked"), "it says how: {}", admit.document.text);
    assert!(
        filed.iter().filter(|f| f.document.decision == "QUARANTINE").all(|f| f.released.is_some())
    );
    assert_eq!(world.run().await.counts.ambiguous, 0);
    world.end().await;
}

async fn admission(world: &World, key: &str) -> admit_core::Seq {
    let door = Door::new("ingestion-gate");
    let key = admit_contracts::ingestion_gate::names::key(&door, key);
    world.ledger.find(key).await.expect("readable").expect("admitted").id.seq
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_absent_is_released_once_it_can_no_longer_land_and_a_retry_is_fresh() {
    let world = World::with(patient()).await;
    world.bus.next([Some(Trouble::Refuse)]);
    let first = world.push(&envelope(1)).await;
    assert_eq!(gist(&first), "QUARANTINE PUBLISH_AMBIGUOUS", "also what is proven not written");
    let doubt = world.doubt().await;
    assert_eq!((&doubt["bus"], &doubt["reason"]), (&json!("absent"), &json!("refused")));
    assert!(doubt["may_still_land"].is_string());
    let key = key_of(&doubt);
    assert_eq!(world.resolve(&key, said("found")).await.status, 409, "the bus does not have it");
    assert_eq!(world.resolve(&key, said("absent")).await.status, 409, "it may still land");
    world.clock.advance(30_001);
    let released = world.resolve(&key, said("absent")).await;
    assert_eq!((released.status, &released.json()["state"]), (200, &json!("RELEASED")));

    let (one, two) = (envelope(1), envelope(1));
    let (a, b) = tokio::join!(world.push(&one), world.push(&two));
    let mut both = [gist(&a), gist(&b)];
    both.sort_unstable();
    assert_eq!(both, ["ADMIT", "DUPLICATE DUPLICATE"], "one of them is the fresh attempt");
    assert_eq!(world.published().await.len(), 1);
    let history = world.ledger.history(admission(&world, &key).await).await.expect("readable");
    let told: Vec<String> =
        history.iter().map(|line| format!("{} {}", line.attempt, line.what)).collect();
    assert_eq!(told, ["1 in_flight", "1 ambiguous", "1 refused", "2 in_flight", "2 done"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_what_is_in_flight_waits_and_is_a_duplicate_when_the_first_lands() {
    let world = World::with(patient()).await;
    world.bus.next([Some(Trouble::Stall)]);
    let mut first = world.send(&envelope(1)).await;
    world.bus.until_held(1).await;
    let mut copy = world.send(&envelope(1)).await;
    // The copy is recorded, and waits.
    until_deliveries(&world, 2).await;
    world.bus.release();
    assert_eq!(gist(&first.answer().await), "ADMIT");
    assert_eq!(gist(&copy.answer().await), "DUPLICATE DUPLICATE");
    let counts = world.run().await.counts;
    assert_eq!((counts.quarantine, counts.admit, counts.duplicate), (0, 1, 1));
    world.end().await;
}

async fn until_deliveries(world: &World, count: i64) {
    while world.run().await.counts.deliveries < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_waited_in_vain_is_quarantined_and_void_once_the_first_is_admitted() {
    let settings = IngestSettings { in_flight_wait: Duration::from_millis(50), ..patient() };
    let world = World::with(settings).await;
    world.bus.next([Some(Trouble::Stall)]);
    let mut first = world.send(&envelope(1)).await;
    world.bus.until_held(1).await;
    assert_eq!(gist(&world.push(&envelope(1)).await), "QUARANTINE PUBLISH_IN_FLIGHT");
    let other = {
        let mut other = envelope(1);
        other["payload"]["amount"] = 99.into();
        world.push(&other).await
    };
    assert_eq!(gist(&other), "QUARANTINE PAYLOAD_HASH_MISMATCH", "looked at before the state");
    world.bus.release();
    assert_eq!(gist(&first.answer().await), "ADMIT");
    let counts = world.run().await.counts;
    assert_eq!((counts.quarantine, counts.superseded), (2, 1), "only the twin's is void");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_is_kept_as_evidence_and_promotes_nothing() {
    let settings = IngestSettings { publish_wait: Duration::from_millis(100), ..patient() };
    let world = World::with(settings).await;
    world.bus.next([Some(Trouble::AnswerLate)]);
    assert_eq!(gist(&world.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    let key = key_of(&world.doubt().await);
    let seq = admission(&world, &key).await;
    world.clock.advance(30_001);
    world.bus.set_found(Some(admit_bus::SearchResult::Absent));
    let refused = world.resolve(&key, said("absent")).await;
    assert_eq!(refused.status, 409, "it is still under way in this gate");
    world.bus.release();
    let late = loop {
        let history = world.ledger.history(seq).await.expect("readable");
        match history.into_iter().find(|line| line.what == "evidence") {
            Some(late) => break late,
            None => tokio::task::yield_now().await,
        }
    };
    assert!(late.evidence.is_some());
    assert_eq!(world.run().await.counts.ambiguous, 1, "it stays ambiguous");
    let doubt = world.doubt().await;
    assert_eq!(doubt["bus"], "found", "what came late counts as found: {doubt}");
    assert_eq!(world.resolve(&key, said("absent")).await.status, 409);
    assert_eq!(world.resolve(&key, said("found")).await.status, 200);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_found_twice_or_cannot_be_told_is_for_a_person_to_place() {
    let world = World::with(patient()).await;
    world.bus.next([Some(Trouble::AcceptThenCut)]);
    world.push(&envelope(1)).await;
    let key = key_of(&world.doubt().await);
    let first = world.inner.read(STREAM, 0, "", 1).await.expect("readable").remove(0);
    let message = admit_bus::Message {
        topic: STREAM.into(),
        partition_key: first.partition_key,
        dedupe_key: key.clone(),
        payload: first.payload,
        at: START,
    };
    world.inner.publish(vec![message]).await;
    assert_eq!(world.doubt().await["bus"], "found_twice");
    assert_eq!(world.resolve(&key, said("found")).await.status, 409, "which one?");
    let reason = "no reader that far back".to_owned();
    world.bus.set_found(Some(admit_bus::SearchResult::Unknown { reason }));
    assert_eq!(world.doubt().await["bus"], "cannot_tell");
    assert_eq!(world.resolve(&key, said("found")).await.status, 409, "where?");
    world.bus.set_found(None);
    let mut placed = said("found");
    (placed["partition"], placed["offset"]) = (0.into(), "7".into());
    assert_eq!(world.resolve(&key, placed.clone()).await.status, 409, "the bus has it elsewhere");
    placed["offset"] = "1".into();
    assert_eq!(world.resolve(&key, placed).await.status, 200);
    let copy = world.push(&envelope(1)).await;
    assert_eq!(copy.json()["receipt"]["eb_ref"]["offset"], "1");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_in_a_row_close_the_door_before_anything_is_written_and_a_probe_opens_it() {
    let settings = IngestSettings { probe_every: Duration::from_millis(50), ..patient() };
    let world = World::with(settings).await;
    let down = BusHealth::Down { reason: "told so".to_owned() };
    world.bus.set_health(Some(down));
    world.bus.always(Some(Trouble::Refuse));
    let mut n = 0;
    let red = loop {
        n += 1;
        let answer = world.push(&envelope(n)).await;
        if answer.status == 503 {
            break answer;
        }
        assert!(n < 10_000, "the door never closed");
    };
    assert_eq!(red.json()["error"], "IG_UNHEALTHY");
    assert!(red.header("retry-after").is_some());
    let health = world.read("/v1/ops/health").await;
    assert_eq!(health, json!({ "state": "RED", "reasons": ["BUS_UNHEALTHY"] }));
    assert_eq!(world.run().await.counts.deliveries, i64::try_from(n).unwrap() - 1);
    let unknown = BusHealth::Unknown { reason: "nobody can ask".to_owned() };
    world.bus.calm();
    world.bus.set_health(Some(unknown));
    while world.read("/v1/ops/health").await["state"] != "AMBER" {
        // Failures in a row are only forgotten when a probe finds the bus well.
        world.bus.set_health(None);
        if world.read("/v1/ops/health").await["state"] == "GREEN" {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(gist(&world.push(&envelope(1_000_000)).await), "ADMIT");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn published_and_not_settled_is_settled_later_and_not_published_again() {
    let world = World::with(patient()).await;
    world.balky.fail_settles(2);
    let answer = world.push(&envelope(1)).await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.header("retry-after").is_some());
    let copy = world.push(&envelope(1)).await;
    assert_eq!(gist(&copy), "DUPLICATE DUPLICATE", "the evidence was kept, the settle repeated");
    assert_eq!(world.published().await.len(), 1);
    assert_eq!(world.run().await.counts.admit, 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_being_closed_takes_nothing_new_and_knows_what_it_knows() {
    let world = World::with(patient()).await;
    assert_eq!(gist(&world.push(&envelope(1)).await), "ADMIT");
    let turned = world.ledger.turn_run(RUN.to_owned(), RunState::Open, RunState::Closing, START);
    assert!(turned.await.expect("turned"));
    let before = world.run().await.counts;
    let mut bad = envelope(2);
    bad["ts_utc"] = "yesterday".into();
    let mut other = envelope(1);
    other["payload"]["amount"] = 99.into();
    for late in [envelope(2), bad, other] {
        let answer = world.push(&late).await;
        let said = answer.json();
        assert_eq!((answer.status, &said["error"]), (503, &json!("RUN_CLOSING")), "{said}");
        assert_eq!((&said["retryable"], answer.header("retry-after")), (&json!(true), Some("10")));
        let reference = said["quarantine_ref"].as_str().expect("where it is kept");
        assert!(reference.starts_with("unscoped/"), "outside of the run: {reference}");
        assert!(world.folder.path().join("artifacts").join(reference).exists());
    }
    assert_eq!(gist(&world.push(&envelope(1)).await), "DUPLICATE DUPLICATE");
    let after = world.run().await.counts;
    assert_eq!((after.quarantine, after.admit), (before.quarantine, before.admit));
    assert_eq!(world.published().await.len(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_waits_for_the_bus_is_one_batch_in_the_order_of_the_ledger() {
    const WAITING: u64 = 20;
    let world = World::with(patient()).await;
    world.bus.next([Some(Trouble::Stall)]);
    let mut clients = vec![world.send(&envelope(0)).await];
    world.bus.until_held(1).await;
    for n in 1..=WAITING {
        clients.push(world.send(&envelope(n)).await);
    }
    until_deliveries(&world, i64::try_from(WAITING).unwrap() + 1).await;
    world.bus.release();
    for client in &mut clients {
        assert_eq!(gist(&client.answer().await), "ADMIT");
    }
    assert_eq!(world.bus.batches()[1..].to_vec(), [1, usize::try_from(WAITING).unwrap()]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_evidence_is_kept_though_the_ledger_is_away_when_it_comes() {
    let settings = IngestSettings { publish_wait: Duration::from_millis(100), ..patient() };
    let world = World::with(settings).await;
    world.bus.next([Some(Trouble::AnswerLate)]);
    assert_eq!(gist(&world.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    let seq = admission(&world, &key_of(&world.doubt().await)).await;
    world.balky.fail_settles(2);
    world.bus.release();
    loop {
        let history = world.ledger.history(seq).await.expect("readable");
        if history.iter().any(|line| line.what == "evidence") {
            break;
        }
        tokio::task::yield_now().await;
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_that_cannot_be_read_back_close_the_door() {
    let settings = IngestSettings { probe_every: Duration::from_millis(5), ..patient() };
    let world = World::on(settings, |store| Arc::new(Blind(store))).await;
    let red = json!({ "state": "RED", "reasons": ["STORE_READ_UNHEALTHY"] });
    while world.read("/v1/ops/health").await != red {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.push(&envelope(1)).await.status, 503);
    assert!(world.published().await.is_empty());
    world.end().await;
}
