//! Ingestion gate on a faulty bus: nothing is published twice, unknown outcomes are ambiguous, and operators
//! can reconcile them.

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
use admit_gate::gateway::EffectTarget;
use admit_gate::ingest::{Ingest, IngestParts, IngestSettings};
use admit_gate::{DoorMount, DrainReport, Gate, GateParts, Limits, Principals, ServeError, serve};
use admit_ledger::sqlite::{Options, SqliteLedger};
use admit_ledger::{DocumentReader as _, EffectReader as _, Issuance as _, Reader as _, Run};
use admit_testkit::clock::ManualClock;
use admit_testkit::faulty_bus::{FaultyBus, MessageFault};
use http::HeaderName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Response, get};
use crate::flaky_ledger::FlakyLedger;
use crate::write_only_artifacts::WriteOnlyArtifacts;

pub(crate) const RUN: &str = "platform_20260212T085637Z";
const STREAM: &str = "fp.bus.traffic.fraud.v1";
const START: Millis = Millis(1_771_524_842_123);

/// A running ingestion gate with a faulty bus, a manual clock and a flaky ledger.
pub(crate) struct IngestServer {
    pub(crate) address: SocketAddr,
    bus: Arc<FaultyBus>,
    inner: Arc<FileBus>,
    pub(crate) ledger: Arc<SqliteLedger>,
    flaky_ledger: Arc<FlakyLedger>,
    clock: Arc<ManualClock>,
    shutdown: CancellationToken,
    served: JoinSet<Result<DrainReport, ServeError>>,
    pub(crate) folder: TempDir,
}

/// Settings with timeouts that no test reaches by accident.
pub(crate) fn patient_settings() -> IngestSettings {
    IngestSettings {
        in_flight_wait: Duration::from_secs(15),
        publish_wait: Duration::from_secs(15),
        probe_every: Duration::from_secs(3_600),
        ..IngestSettings::default()
    }
}

impl IngestServer {
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
        let flaky_ledger = Arc::new(FlakyLedger::over(ledger.clone()));
        let clock = Arc::new(ManualClock::at(START));
        let artifacts = ArtifactOptions::new(folder.path().join("artifacts"));
        let contract =
            IngestionGate::new(Settings::default(), IngestionPolicy::shipped()).expect("settings");
        let contract = Arc::new(contract);
        let ingest = Ingest::new(IngestParts {
            contract: contract.clone(),
            ledger: flaky_ledger.clone(),
            reader: ledger.clone(),
            bus: bus.clone(),
            artifacts: store(LocalArtifacts::open(artifacts).expect("a store")),
            clock: clock.clone(),
            settings,
        });
        let gate = Gate::new(GateParts {
            ledger: ledger.clone(),
            doors: vec![DoorMount {
                door: Door::new("ingestion-gate"),
                path: "/v1/ingest/push".to_owned(),
                api_key_header: HeaderName::from_static("x-ig-api-key"),
                contract,
                effect_target: EffectTarget::publishing(ingest),
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
        Self { address, bus, inner, ledger, flaky_ledger, clock, shutdown, served, folder }
    }

    /// Sends an envelope without reading the response.
    async fn send(&self, envelope: &Value) -> Client {
        let mut client = Client::connect(self.address).await;
        client.send(post("/v1/ingest/push", &envelope.to_string())).await;
        client
    }

    pub(crate) async fn push(&self, envelope: &Value) -> Response {
        self.send(envelope).await.read_response().await
    }

    async fn read(&self, path: &str) -> Value {
        Client::connect(self.address).await.request(get(path)).await.json()
    }

    async fn resolve(&self, key: &str, body: Value) -> Response {
        let request = post(&format!("/v1/reconcile/{key}"), &body.to_string());
        Client::connect(self.address).await.request(request).await
    }

    /// Returns the only ambiguous admission, with its search result on the bus.
    async fn ambiguous_admission(&self) -> Value {
        let listed = self.read(&format!("/v1/reconcile?run={RUN}")).await;
        let [ambiguous_admission] = listed["ambiguous"].as_array().expect("a list").as_slice()
        else {
            panic!("one ambiguous admission: {listed}")
        };
        ambiguous_admission.clone()
    }

    /// Returns the ids of the events on the stream.
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

    /// Stops the gate and returns its folder.
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

pub(crate) fn outcome(response: &Response) -> String {
    let reply = response.json();
    let decision = reply["decision"].as_str().unwrap_or_else(|| panic!("no decision: {reply}"));
    match reply["receipt"]["reason_codes"][0].as_str() {
        Some(reason) => format!("{decision} {reason}"),
        None => decision.to_owned(),
    }
}

fn key_of(ambiguous_admission: &Value) -> String {
    ambiguous_admission["dedupe_key"].as_str().expect("a key").to_owned()
}

fn resolution(word: &str) -> Value {
    json!({ "resolution": word, "reason": "looked" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_without_a_reply_is_ambiguous_until_an_operator_resolves_it() {
    let server = IngestServer::with(patient_settings()).await;
    server.bus.next([Some(MessageFault::AcceptThenCut)]);
    assert_eq!(outcome(&server.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    for _ in 0..3 {
        assert_eq!(outcome(&server.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    }
    assert_eq!(server.published().await.len(), 1, "never published again automatically");
    let counts = server.run().await.counts;
    assert_eq!((counts.ambiguous, counts.quarantine, counts.deliveries), (1, 1, 4));

    let ambiguous_admission = server.ambiguous_admission().await;
    assert_eq!(
        (&ambiguous_admission["bus"], &ambiguous_admission["eb_refs"][0]["offset"]),
        (&json!("found"), &json!("0"))
    );
    let key = key_of(&ambiguous_admission);
    let refused = server.resolve(&key, resolution("absent")).await;
    assert_eq!((refused.status, refused.general_code().as_str()), (409, "not_reconcilable"));
    let without_reason = server.resolve(&key, json!({ "resolution": "found" })).await;
    assert_eq!(without_reason.status, 400, "a reason is required");
    let found = server.resolve(&key, resolution("found")).await;
    assert_eq!((found.status, &found.json()["state"]), (200, &json!("ADMITTED")));
    let again = server.resolve(&key, resolution("found")).await;
    assert_eq!(again.status, 409, "only once");

    let copy = server.push(&envelope(1)).await;
    assert_eq!(outcome(&copy), "DUPLICATE DUPLICATE");
    assert_eq!(copy.json()["receipt"]["eb_ref"]["offset"], "0");
    let filed = server.ledger.filed_of(admission(&server, &key).await).await.expect("readable");
    let admit = filed.iter().find(|filed| filed.document.decision == "ADMIT").expect("a receipt");
    assert!(
        admit.document.text.contains("local: looked"),
        "it records the operator: {}",
        admit.document.text
    );
    assert!(
        filed.iter().filter(|f| f.document.decision == "QUARANTINE").all(|f| f.released.is_some())
    );
    assert_eq!(server.run().await.counts.ambiguous, 0);
    server.end().await;
}

async fn admission(server: &IngestServer, key: &str) -> admit_core::Seq {
    let door = Door::new("ingestion-gate");
    let key = admit_contracts::ingestion_gate::names::key(&door, key);
    server.ledger.find(key).await.expect("readable").expect("admitted").id.seq
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_publish_is_released_after_the_delivery_timeout_and_a_retry_is_fresh() {
    let server = IngestServer::with(patient_settings()).await;
    server.bus.next([Some(MessageFault::Refuse)]);
    let first = server.push(&envelope(1)).await;
    assert_eq!(outcome(&first), "QUARANTINE PUBLISH_AMBIGUOUS", "also if the bus refused it");
    let ambiguous_admission = server.ambiguous_admission().await;
    assert_eq!(
        (&ambiguous_admission["bus"], &ambiguous_admission["reason"]),
        (&json!("absent"), &json!("refused"))
    );
    assert!(ambiguous_admission["may_still_land"].is_string());
    let key = key_of(&ambiguous_admission);
    assert_eq!(
        server.resolve(&key, resolution("found")).await.status,
        409,
        "the bus does not have it"
    );
    assert_eq!(server.resolve(&key, resolution("absent")).await.status, 409, "it may still land");
    server.clock.advance(30_001);
    let released = server.resolve(&key, resolution("absent")).await;
    assert_eq!((released.status, &released.json()["state"]), (200, &json!("RELEASED")));

    let (one, two) = (envelope(1), envelope(1));
    let (a, b) = tokio::join!(server.push(&one), server.push(&two));
    let mut both = [outcome(&a), outcome(&b)];
    both.sort_unstable();
    assert_eq!(both, ["ADMIT", "DUPLICATE DUPLICATE"], "one of them is the fresh attempt");
    assert_eq!(server.published().await.len(), 1);
    let history = server.ledger.history(admission(&server, &key).await).await.expect("readable");
    let steps: Vec<String> =
        history.iter().map(|line| format!("{} {}", line.attempt, line.what)).collect();
    assert_eq!(steps, ["1 in_flight", "1 ambiguous", "1 refused", "2 in_flight", "2 done"]);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_an_in_flight_event_waits_and_is_a_duplicate_once_the_first_is_published() {
    let server = IngestServer::with(patient_settings()).await;
    server.bus.next([Some(MessageFault::Stall)]);
    let mut first = server.send(&envelope(1)).await;
    server.bus.until_held(1).await;
    let mut copy = server.send(&envelope(1)).await;
    // The copy is recorded, and waits.
    wait_for_deliveries(&server, 2).await;
    server.bus.release();
    assert_eq!(outcome(&first.read_response().await), "ADMIT");
    assert_eq!(outcome(&copy.read_response().await), "DUPLICATE DUPLICATE");
    let counts = server.run().await.counts;
    assert_eq!((counts.quarantine, counts.admit, counts.duplicate), (0, 1, 1));
    server.end().await;
}

async fn wait_for_deliveries(server: &IngestServer, count: i64) {
    while server.run().await.counts.deliveries < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_times_out_is_quarantined_and_superseded_once_the_first_is_admitted() {
    let settings =
        IngestSettings { in_flight_wait: Duration::from_millis(50), ..patient_settings() };
    let server = IngestServer::with(settings).await;
    server.bus.next([Some(MessageFault::Stall)]);
    let mut first = server.send(&envelope(1)).await;
    server.bus.until_held(1).await;
    assert_eq!(outcome(&server.push(&envelope(1)).await), "QUARANTINE PUBLISH_IN_FLIGHT");
    let other = {
        let mut other = envelope(1);
        other["payload"]["amount"] = 99.into();
        server.push(&other).await
    };
    assert_eq!(
        outcome(&other),
        "QUARANTINE PAYLOAD_HASH_MISMATCH",
        "the payload is compared before the state"
    );
    server.bus.release();
    assert_eq!(outcome(&first.read_response().await), "ADMIT");
    let counts = server.run().await.counts;
    assert_eq!(
        (counts.quarantine, counts.superseded),
        (2, 1),
        "only the identical copy is superseded"
    );
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_bus_reply_is_stored_as_evidence_and_changes_no_state() {
    let settings =
        IngestSettings { publish_wait: Duration::from_millis(100), ..patient_settings() };
    let server = IngestServer::with(settings).await;
    server.bus.next([Some(MessageFault::AnswerLate)]);
    assert_eq!(outcome(&server.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    let key = key_of(&server.ambiguous_admission().await);
    let seq = admission(&server, &key).await;
    server.clock.advance(30_001);
    server.bus.set_found(Some(admit_bus::SearchResult::Absent));
    let refused = server.resolve(&key, resolution("absent")).await;
    assert_eq!(refused.status, 409, "it is still in flight in this gate");
    server.bus.release();
    let late = loop {
        let history = server.ledger.history(seq).await.expect("readable");
        match history.into_iter().find(|line| line.what == "evidence") {
            Some(late) => break late,
            None => tokio::task::yield_now().await,
        }
    };
    assert!(late.evidence.is_some());
    assert_eq!(server.run().await.counts.ambiguous, 1, "it stays ambiguous");
    let ambiguous_admission = server.ambiguous_admission().await;
    assert_eq!(
        ambiguous_admission["bus"], "found",
        "late evidence counts as found: {ambiguous_admission}"
    );
    assert_eq!(server.resolve(&key, resolution("absent")).await.status, 409);
    assert_eq!(server.resolve(&key, resolution("found")).await.status, 200);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_must_name_the_offset_if_the_search_is_ambiguous_or_unavailable() {
    let server = IngestServer::with(patient_settings()).await;
    server.bus.next([Some(MessageFault::AcceptThenCut)]);
    server.push(&envelope(1)).await;
    let key = key_of(&server.ambiguous_admission().await);
    let first = server.inner.read(STREAM, 0, "", 1).await.expect("readable").remove(0);
    let message = admit_bus::Message {
        topic: STREAM.into(),
        partition_key: first.partition_key,
        dedupe_key: key.clone(),
        payload: first.payload,
        at: START,
    };
    server.inner.publish(vec![message]).await;
    assert_eq!(server.ambiguous_admission().await["bus"], "found_twice");
    assert_eq!(
        server.resolve(&key, resolution("found")).await.status,
        409,
        "the offset is missing"
    );
    let reason = "no reader that far back".to_owned();
    server.bus.set_found(Some(admit_bus::SearchResult::Unknown { reason }));
    assert_eq!(server.ambiguous_admission().await["bus"], "cannot_tell");
    assert_eq!(
        server.resolve(&key, resolution("found")).await.status,
        409,
        "the offset is missing"
    );
    server.bus.set_found(None);
    let mut placed = resolution("found");
    (placed["partition"], placed["offset"]) = (0.into(), "7".into());
    assert_eq!(
        server.resolve(&key, placed.clone()).await.status,
        409,
        "the bus has it at another offset"
    );
    placed["offset"] = "1".into();
    assert_eq!(server.resolve(&key, placed).await.status, 200);
    let copy = server.push(&envelope(1)).await;
    assert_eq!(copy.json()["receipt"]["eb_ref"]["offset"], "1");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consecutive_failures_close_the_door_and_a_probe_reopens_it() {
    let settings = IngestSettings { probe_every: Duration::from_millis(50), ..patient_settings() };
    let server = IngestServer::with(settings).await;
    let down = BusHealth::Down { reason: "down for a test".to_owned() };
    server.bus.set_health(Some(down));
    server.bus.always(Some(MessageFault::Refuse));
    let mut n = 0;
    let red = loop {
        n += 1;
        let response = server.push(&envelope(n)).await;
        if response.status == 503 {
            break response;
        }
        assert!(n < 10_000, "the door never closed");
    };
    assert_eq!(red.json()["error"], "IG_UNHEALTHY");
    assert!(red.header("retry-after").is_some());
    // A probe that has already run adds the details.
    let health = server.read("/v1/ops/health").await;
    assert_eq!(health["state"], "RED");
    assert_eq!(health["reasons"], json!(["BUS_UNHEALTHY"]));
    assert_eq!(server.run().await.counts.deliveries, i64::try_from(n).unwrap() - 1);
    let unknown = BusHealth::Unknown { reason: "unknown for a test".to_owned() };
    server.bus.calm();
    server.bus.set_health(Some(unknown));
    while server.read("/v1/ops/health").await["state"] != "AMBER" {
        // Only a successful probe resets the count of consecutive failures.
        server.bus.set_health(None);
        if server.read("/v1/ops/health").await["state"] == "GREEN" {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(outcome(&server.push(&envelope(1_000_000)).await), "ADMIT");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_settle_failed_is_settled_later_and_not_published_again() {
    let server = IngestServer::with(patient_settings()).await;
    server.flaky_ledger.fail_settles(2);
    let response = server.push(&envelope(1)).await;
    assert_eq!(response.status, 503, "{}", response.body);
    assert!(response.header("retry-after").is_some());
    let copy = server.push(&envelope(1)).await;
    assert_eq!(
        outcome(&copy),
        "DUPLICATE DUPLICATE",
        "the settle was retried with the stored evidence"
    );
    assert_eq!(server.published().await.len(), 1);
    assert_eq!(server.run().await.counts.admit, 1);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closing_run_accepts_no_new_events_and_still_replies_to_duplicates() {
    let server = IngestServer::with(patient_settings()).await;
    assert_eq!(outcome(&server.push(&envelope(1)).await), "ADMIT");
    let turned = server.ledger.turn_run(RUN.to_owned(), RunState::Open, RunState::Closing, START);
    assert!(turned.await.expect("turned"));
    let before = server.run().await.counts;
    let mut bad = envelope(2);
    bad["ts_utc"] = "yesterday".into();
    let mut other = envelope(1);
    other["payload"]["amount"] = 99.into();
    for late in [envelope(2), bad, other] {
        let response = server.push(&late).await;
        let reply = response.json();
        assert_eq!((response.status, &reply["error"]), (503, &json!("RUN_CLOSING")), "{reply}");
        assert_eq!(
            (&reply["retryable"], response.header("retry-after")),
            (&json!(true), Some("10"))
        );
        let reference = reply["quarantine_ref"].as_str().expect("a quarantine reference");
        assert!(reference.starts_with("unscoped/"), "outside of the run: {reference}");
        assert!(server.folder.path().join("artifacts").join(reference).exists());
    }
    assert_eq!(outcome(&server.push(&envelope(1)).await), "DUPLICATE DUPLICATE");
    let after = server.run().await.counts;
    assert_eq!((after.quarantine, after.admit), (before.quarantine, before.admit));
    assert_eq!(server.published().await.len(), 1);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_events_are_published_as_one_batch_in_ledger_order() {
    const WAITING: u64 = 20;
    let server = IngestServer::with(patient_settings()).await;
    server.bus.next([Some(MessageFault::Stall)]);
    let mut clients = vec![server.send(&envelope(0)).await];
    server.bus.until_held(1).await;
    for n in 1..=WAITING {
        clients.push(server.send(&envelope(n)).await);
    }
    wait_for_deliveries(&server, i64::try_from(WAITING).unwrap() + 1).await;
    server.bus.release();
    for client in &mut clients {
        assert_eq!(outcome(&client.read_response().await), "ADMIT");
    }
    assert_eq!(server.bus.batches()[1..].to_vec(), [1, usize::try_from(WAITING).unwrap()]);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_evidence_is_stored_after_the_ledger_recovers() {
    let settings =
        IngestSettings { publish_wait: Duration::from_millis(100), ..patient_settings() };
    let server = IngestServer::with(settings).await;
    server.bus.next([Some(MessageFault::AnswerLate)]);
    assert_eq!(outcome(&server.push(&envelope(1)).await), "QUARANTINE PUBLISH_AMBIGUOUS");
    let seq = admission(&server, &key_of(&server.ambiguous_admission().await)).await;
    server.flaky_ledger.fail_settles(2);
    server.bus.release();
    loop {
        let history = server.ledger.history(seq).await.expect("readable");
        if history.iter().any(|line| line.what == "evidence") {
            break;
        }
        tokio::task::yield_now().await;
    }
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_that_cannot_be_read_back_close_the_door() {
    let settings = IngestSettings { probe_every: Duration::from_millis(5), ..patient_settings() };
    let server = IngestServer::on(settings, |store| Arc::new(WriteOnlyArtifacts(store))).await;
    let red = json!({ "state": "RED", "reasons": ["STORE_READ_UNHEALTHY"] });
    while server.read("/v1/ops/health").await != red {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.push(&envelope(1)).await.status, 503);
    assert!(server.published().await.is_empty());
    server.end().await;
}
