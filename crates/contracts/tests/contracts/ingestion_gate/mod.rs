//! The ingestion-gate contract, and the envelopes used by its tests.

mod auth;
mod defects;
mod documents;
mod envelopes;
mod golden;
mod governance;
mod health;
mod names;
mod policies;
mod reasons;
mod replies;
mod rows;

use std::sync::LazyLock;

use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::eb_ref::{EbRef, WireOffsetKind};
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_contracts::ingestion_gate::{IngestionGate, Settings, schemas};
use admit_core::effect::{EffectState, Intended};
use admit_core::json::Object;
use admit_core::{
    Code, Document, DocumentKind, Door, Entry, Event, FirstAdmission, IdRegistry, Issue as _,
    IssueContext, IssueReason, Millis, Principal, RefusedSubmission, Seq, Submission,
};
use jsonschema::Validator;
use serde_json::{Value, json};

/// Arrival time of every submission in these tests: 2026-02-19T18:14:02.123Z.
pub(crate) const NOW: Millis = Millis(1_771_524_842_123);

pub(crate) const RUN: &str = "platform_20260212T085637Z";

pub(crate) fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

/// Envelope of the golden vectors.
pub(crate) fn envelope() -> Value {
    vectors()["envelope"].clone()
}

/// Golden envelope with one change.
pub(crate) fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut envelope = envelope();
    change(&mut envelope);
    envelope
}

/// Golden envelope without one field.
pub(crate) fn without(name: &str) -> Value {
    changed(|envelope| {
        envelope.as_object_mut().unwrap().remove(name);
    })
}

pub(crate) fn door() -> Door {
    Door::new("ingestion-gate")
}

pub(crate) fn gate_with(policy: IngestionPolicy) -> IngestionGate {
    IngestionGate::new(Settings::default(), policy).expect("settings that fit")
}

pub(crate) fn gate() -> &'static IngestionGate {
    static GATE: LazyLock<IngestionGate> = LazyLock::new(|| gate_with(IngestionPolicy::shipped()));
    &GATE
}

pub(crate) fn submission(body: impl Into<Vec<u8>>) -> Submission {
    Submission {
        principal: Principal::new("wsp"),
        received_at: NOW,
        body: body.into().into(),
        headers: Vec::new(),
        nonce: [0; 16],
    }
}

pub(crate) fn vet_with(gate: &IngestionGate, envelope: &Value) -> Entry {
    gate.vet(&door(), submission(envelope.to_string()))
}

pub(crate) fn vet(envelope: &Value) -> Entry {
    vet_with(gate(), envelope)
}

pub(crate) fn event(envelope: &Value) -> Event {
    match vet(envelope) {
        Entry::Event(event) => event,
        Entry::Refused(refused) => panic!("refused: {}\n{envelope}", refused.message),
    }
}

pub(crate) fn refused(envelope: &Value) -> RefusedSubmission {
    match vet(envelope) {
        Entry::Refused(refused) => refused,
        Entry::Event(_) => panic!("it passed: {envelope}"),
    }
}

pub(crate) fn fact(facts: &Object<'_>, name: &str) -> String {
    facts.get(name).and_then(admit_core::json::Value::as_str).unwrap_or_default().to_owned()
}

/// Reason for which an envelope is refused.
pub(crate) fn reason(envelope: &Value) -> String {
    fact(&refused(envelope).facts, "reason")
}

pub(crate) fn committed() -> CommitEvidence {
    let eb_ref = EbRef {
        topic: "fp.bus.traffic.fraud.v1".to_owned(),
        partition: 0,
        offset: "7".to_owned(),
        offset_kind: WireOffsetKind::FileLine,
        published_at: Some(NOW),
    };
    CommitEvidence::at(eb_ref, NOW)
}

pub(crate) fn done() -> EffectState {
    EffectState::Done(Intended::new().begin(1).done(committed().to_evidence()))
}

pub(crate) fn in_flight() -> EffectState {
    EffectState::InFlight(Intended::new().begin(1))
}

pub(crate) fn ambiguous() -> EffectState {
    let evidence = admit_contracts::ingestion_gate::publication::unknown("cut off", false);
    EffectState::Ambiguous(Intended::new().begin(1).lost(evidence))
}

/// Issued documents, deduplicated like in a ledger: one document per kind, run and id.
#[derive(Default)]
pub(crate) struct DocumentStore(pub(crate) Vec<Document>);

impl IdRegistry for DocumentStore {
    fn is_used_by_other(
        &self,
        kind: DocumentKind,
        run: Option<&str>,
        id: &str,
        identity: &str,
    ) -> bool {
        self.0.iter().any(|one| {
            one.kind == kind
                && one.run.as_deref() == run
                && one.id == id
                && one.identity != identity
        })
    }
}

impl DocumentStore {
    /// Issues the documents for `reason` and stores the new ones.
    pub(crate) fn issue(&mut self, reason: IssueReason<'_>, facts: &Object<'_>) -> Vec<Document> {
        let context = IssueContext { reason, seq: Seq(1), at: NOW, facts, ids: self };
        let documents = gate().issue(&context);
        for one in &documents {
            let is_there = self
                .0
                .iter()
                .any(|known| (known.kind, &known.run, &known.id) == (one.kind, &one.run, &one.id));
            if !is_there {
                self.0.push(one.clone());
            }
        }
        documents
    }

    pub(crate) fn settle(&mut self, event: &Event, state: &EffectState) -> Vec<Document> {
        self.issue(IssueReason::Settled { state, by: None }, &event.facts)
    }

    pub(crate) fn refuse(&mut self, envelope: &Value) -> Vec<Document> {
        let refused = refused(envelope);
        let reason = IssueReason::Refused { code: refused.code, message: &refused.message };
        self.issue(reason, &refused.facts)
    }

    pub(crate) fn copy(
        &mut self,
        event: &Event,
        first: &Event,
        state: &EffectState,
    ) -> Vec<Document> {
        let receipt = self.0.iter().find(|one| one.decision == "ADMIT").map(|one| one.path.clone());
        let first =
            FirstAdmission { seq: Seq(1), facts: &first.facts, state, receipt: receipt.as_deref() };
        self.issue(IssueReason::Copy { first }, &event.facts)
    }
}

/// The only document of a kind, parsed.
pub(crate) fn document(documents: &[Document], kind: DocumentKind) -> Value {
    let found: Vec<&Document> = documents.iter().filter(|one| one.kind == kind).collect();
    assert_eq!(found.len(), 1, "{documents:#?}");
    serde_json::from_str(&found[0].text).unwrap()
}

pub(crate) fn receipt(documents: &[Document]) -> Value {
    document(documents, DocumentKind::Receipt)
}

/// Validates against the shipped receipt schema.
pub(crate) fn is_receipt(receipt: &Value) -> Result<(), String> {
    fits(schemas::RECEIPT, receipt)
}

pub(crate) fn fits(schema: &str, value: &Value) -> Result<(), String> {
    static COMPILED: LazyLock<Vec<(&str, Validator)>> = LazyLock::new(|| {
        let all = [schemas::ENVELOPE, schemas::RECEIPT, schemas::QUARANTINE];
        let compile = |text: &str| {
            let schema: Value = serde_json::from_str(text).unwrap();
            jsonschema::validator_for(&schema).unwrap()
        };
        all.into_iter().map(|text| (text, compile(text))).collect()
    });
    let (_, validator) = COMPILED.iter().find(|(text, _)| *text == schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

#[test]
fn codes_of_refusals_are_of_the_house() {
    assert_eq!(refused(&json!({})).code, Code::InvalidEnvelope);
    assert_eq!(refused(&json!([])).code, Code::InvalidEnvelope);
}
