//! Run reports and closures over a real ledger and real files: closing waits for effects in flight, up to
//! a timeout.

#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::local::{LocalArtifacts, Options as ArtifactOptions};
use admit_artifacts::{Artifacts, File};
use admit_bus::file::{FileBus, Options as BusOptions};
use admit_bus::{Bus as _, Message, PublishOutcome};
use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::eb_ref::{EbRef, WireOffsetKind};
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_contracts::ingestion_gate::publication::{self, PublishPlan};
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_contracts::ingestion_gate::{DOOR, IngestionGate, Settings as ContractSettings};
use admit_core::closure::Ground;
use admit_core::effect::{Attribution, Outcome, Step};
use admit_core::json::{self, Limits, Value};
use admit_core::{Door, Millis, Principal, RunState, Seq, Submission};
use admit_ledger::sqlite::{Options, SqliteLedger};
use admit_ledger::{
    DocumentReader as _, EffectReader as _, FollowUp, Handover, Issuance as _, IssueHandlers,
    RecordedDelivery, Settlement,
};
use admit_runs::closure::CloseError;
use admit_runs::report::{ReportParts, RunReporter, Settings};
use admit_testkit::clock::ManualClock;
use bytes::Bytes;
use tempfile::TempDir;
use tokio::task::JoinSet;

const RUN: &str = "platform_20260212T085637Z";
const NOW: Millis = Millis(1_771_524_842_123);

/// Performs no effects; the tests settle them.
struct NoHandover;

impl Handover for NoHandover {
    fn recorded(&self, _: &RecordedDelivery) {}
}

struct World {
    ledger: Arc<SqliteLedger>,
    artifacts: Arc<LocalArtifacts>,
    contract: Arc<IngestionGate>,
    bus: Arc<FileBus>,
    reporter: Arc<RunReporter>,
    folder: TempDir,
}

impl World {
    fn new(closing_wait: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options::new(folder.path().join("data"), NOW);
        let ledger = Arc::new(SqliteLedger::open(options).expect("a ledger"));
        let artifacts = ArtifactOptions::new(folder.path().join("artifacts"));
        let artifacts = Arc::new(LocalArtifacts::open(artifacts).expect("a store"));
        let bus = BusOptions::new(folder.path().join("bus"));
        let bus = Arc::new(FileBus::open(bus).expect("a bus"));
        let contract = IngestionGate::new(ContractSettings::default(), IngestionPolicy::shipped());
        let contract = Arc::new(contract.expect("settings"));
        let reporter = RunReporter::new(ReportParts {
            ledger: ledger.clone(),
            artifacts: artifacts.clone(),
            paths: contract.paths().clone(),
            bus: bus.clone(),
            clock: Arc::new(ManualClock::at(NOW)),
            settings: Settings { closing_wait, ..Settings::default() },
        });
        Self { ledger, artifacts, contract, bus, reporter: Arc::new(reporter), folder }
    }

    /// Records event number `n`, which is then in flight.
    async fn record(&self, n: u64) -> Seq {
        let body = include_str!("envelope.json").replace("event-0", &format!("event-{n}"));
        let submission = Submission {
            principal: Principal::new("local"),
            received_at: NOW,
            body: Bytes::from(body),
            headers: Vec::new(),
            nonce: [0; 16],
        };
        let entry = self.contract.vet(&Door::new(DOOR), submission);
        let issuing =
            IssueHandlers { issue: self.contract.clone(), handover: Arc::new(NoHandover) };
        let recorded = self.ledger.record_issuing(vec![entry], issuing).await.pop();
        let recorded = recorded.expect("one result").expect("recorded");
        let FollowUp::Perform { seq, .. } = recorded.follow_up else {
            panic!("{:?}", recorded.follow_up)
        };
        seq
    }

    /// Publishes and settles an event, and writes the file of its receipt if `with_file`.
    async fn settle(&self, seq: Seq, with_file: bool) {
        let plan = self.ledger.effect(seq).await.expect("readable").expect("an effect").plan;
        let plan = json::parse(&plan, &Limits::default()).expect("json");
        let plan = publication::plan(plan.as_object().expect("an object")).expect("a plan");
        let (topic, payload) = (plan.topic.to_string(), Bytes::from_static(b"{}"));
        let PublishPlan { partition_key, dedupe_key, .. } = plan;
        let message = Message { topic: plan.topic, partition_key, dedupe_key, payload, at: NOW };
        let published = self.bus.publish(vec![message]).await.pop();
        let Some(PublishOutcome::Committed(at)) = published else { panic!("{published:?}") };
        let eb_ref = EbRef {
            topic,
            partition: at.partition,
            offset: at.offset,
            offset_kind: WireOffsetKind::FileLine,
            published_at: None,
        };
        let evidence = CommitEvidence::at(eb_ref, NOW).to_evidence();
        let step = Step::Settle { attempt: 1, outcome: Outcome::Done, evidence, reply: None };
        let batch = vec![Settlement { seq, step, facts: None }];
        let settled = self.ledger.settle(batch, self.contract.clone(), NOW).await.expect("settled");
        for settled in settled {
            for filed in settled.expect("legal").filed {
                if with_file {
                    let file = File::new(filed.document.path, filed.document.text + "\n");
                    self.artifacts
                        .put_if_absent(vec![file])
                        .await
                        .pop()
                        .expect("one")
                        .expect("put");
                }
            }
        }
    }

    async fn close(&self) -> Result<u64, Vec<Ground>> {
        let by = Attribution { who: "operator".to_owned(), why: None };
        match self.reporter.close(RUN, None, by).await {
            Ok(closed) => {
                let ingress = closed.document.get("ingress").expect("numbers");
                Ok(ingress.get("admit").and_then(Value::as_u64).expect("a number"))
            }
            Err(CloseError::Refused { objections, .. }) => {
                Err(objections.iter().map(|objection| objection.ground).collect())
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    async fn state(&self) -> RunState {
        self.ledger.run(RUN.to_owned()).await.expect("readable").expect("the run").state
    }
}

#[tokio::test]
async fn effects_in_flight_prevent_closing_until_they_settle() {
    let world = World::new(Duration::from_millis(50));
    let first = world.record(1).await;
    world.settle(first, true).await;
    let second = world.record(2).await;
    assert_eq!(world.close().await, Err(vec![Ground::InFlight]));
    assert_eq!(world.state().await, RunState::Open, "a refused closure opens the run again");
    world.settle(second, true).await;
    assert_eq!(world.close().await, Ok(2));
    assert_eq!(world.state().await, RunState::Closed);
}

#[tokio::test]
async fn closing_waits_for_effects_in_flight() {
    let world = Arc::new(World::new(Duration::from_secs(30)));
    let seq = world.record(1).await;
    let mut closing = JoinSet::new();
    closing.spawn({
        let world = world.clone();
        async move { world.close().await }
    });
    while world.state().await != RunState::Closing {
        tokio::task::yield_now().await;
    }
    let by = Attribution { who: "another".to_owned(), why: None };
    let other = world.reporter.close(RUN, None, by).await;
    assert!(matches!(other, Err(CloseError::InProgress)), "one at a time: {other:?}");
    world.settle(seq, true).await;
    let closed = closing.join_next().await.expect("one").expect("no panic");
    assert_eq!(closed, Ok(1));
}

#[tokio::test]
async fn a_receipt_without_its_file_prevents_closing() {
    let world = World::new(Duration::from_millis(50));
    let seq = world.record(1).await;
    world.settle(seq, false).await;
    assert_eq!(world.close().await, Err(vec![Ground::ReceiptMissing]));
    let report = world.reporter.report(RUN).await.expect("readable").expect("the run");
    let ingress = report.get("ingress").expect("numbers");
    assert_eq!(ingress.get("received").and_then(Value::as_u64), Some(1), "the ledger has it");
}

#[tokio::test]
async fn a_deleted_closure_file_is_written_again_by_the_next_close() {
    let world = World::new(Duration::from_millis(50));
    let seq = world.record(1).await;
    world.settle(seq, true).await;
    assert_eq!(world.close().await, Ok(1));
    let path = world.contract.paths().of_run(RUN, "obs/run_closure.json");
    let file = world.folder.path().join("artifacts").join(&path);
    let first = std::fs::read(&file).expect("written");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(world.close().await, Ok(1));
    assert_eq!(std::fs::read(&file).expect("written again"), first);
}

#[tokio::test]
async fn many_documents_are_compared_with_their_files_in_pages() {
    let world = World::new(Duration::from_millis(50));
    for n in 0..300 {
        let seq = world.record(n).await;
        world.settle(seq, true).await;
    }
    assert_eq!(world.close().await, Ok(300));
}
