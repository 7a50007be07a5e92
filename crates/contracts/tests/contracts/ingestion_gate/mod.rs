//! The ingestion-gate contract, and the envelopes its tests send.

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
use admit_contracts::ingestion_gate::eb_ref::{EbRef, OffsetKind};
use admit_contracts::ingestion_gate::policy::Policy;
use admit_contracts::ingestion_gate::receipt::Committed;
use admit_contracts::ingestion_gate::{IngestionGate, Settings, schemas};
use admit_core::effect::{Intended, Standing};
use admit_core::json::Object;
use admit_core::{
    Code, Door, Entry, Event, Issue as _, Issued, IssuedKind, Millis, Occasion, Original,
    Principal, Refused, Said, Seq, Submission, Taken,
};
use jsonschema::Validator;
use serde_json::{Value, json};

/// When every submission of these tests comes in: 2026-02-19T18:14:02.123Z.
pub(crate) const NOW: Millis = Millis(1_771_524_842_123);

pub(crate) const RUN: &str = "platform_20260212T085637Z";

pub(crate) fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

/// The envelope of the golden vectors.
pub(crate) fn envelope() -> Value {
    vectors()["envelope"].clone()
}

/// The golden envelope with one change.
pub(crate) fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut envelope = envelope();
    change(&mut envelope);
    envelope
}

/// The golden envelope without one field.
pub(crate) fn without(name: &str) -> Value {
    changed(|envelope| {
        envelope.as_object_mut().unwrap().remove(name);
    })
}

pub(crate) fn door() -> Door {
    Door::new("ingestion-gate")
}

pub(crate) fn gate_with(policy: Policy) -> IngestionGate {
    IngestionGate::new(Settings::default(), policy).expect("settings that fit")
}

pub(crate) fn gate() -> &'static IngestionGate {
    static GATE: LazyLock<IngestionGate> = LazyLock::new(|| gate_with(Policy::shipped()));
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

pub(crate) fn refused(envelope: &Value) -> Refused {
    match vet(envelope) {
        Entry::Refused(refused) => refused,
        Entry::Event(_) => panic!("it passed: {envelope}"),
    }
}

pub(crate) fn fact(facts: &Object<'_>, name: &str) -> String {
    facts.get(name).and_then(admit_core::json::Value::as_str).unwrap_or_default().to_owned()
}

/// The reason for which an envelope is refused.
pub(crate) fn reason(envelope: &Value) -> String {
    fact(&refused(envelope).facts, "reason")
}

pub(crate) fn committed() -> Committed {
    let eb_ref = EbRef {
        topic: "fp.bus.traffic.fraud.v1".to_owned(),
        partition: 0,
        offset: "7".to_owned(),
        offset_kind: OffsetKind::FileLine,
        published_at: Some(NOW),
    };
    Committed::at(eb_ref, NOW)
}

pub(crate) fn done() -> Standing {
    Standing::Done(Intended::new().begin(1).done(committed().to_evidence()))
}

pub(crate) fn in_flight() -> Standing {
    Standing::InFlight(Intended::new().begin(1))
}

pub(crate) fn ambiguous() -> Standing {
    let evidence = admit_contracts::ingestion_gate::publication::unknown("cut off", false);
    Standing::Ambiguous(Intended::new().begin(1).lost(evidence))
}

/// Documents, kept as a ledger keeps them: one id of a kind in a run is one document.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Vec<Issued>);

impl Taken for Kept {
    fn by_other(&self, kind: IssuedKind, run: Option<&str>, id: &str, identity: &str) -> bool {
        self.0.iter().any(|one| {
            one.kind == kind
                && one.run.as_deref() == run
                && one.id == id
                && one.identity != identity
        })
    }
}

impl Kept {
    /// Issues what there is to say, and keeps what is new of it.
    pub(crate) fn say(&mut self, occasion: Occasion<'_>, facts: &Object<'_>) -> Vec<Issued> {
        let said = Said { occasion, seq: Seq(1), at: NOW, facts, taken: self };
        let documents = gate().issue(&said);
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

    pub(crate) fn settle(&mut self, event: &Event, standing: &Standing) -> Vec<Issued> {
        self.say(Occasion::Settled { standing, by: None }, &event.facts)
    }

    pub(crate) fn refuse(&mut self, envelope: &Value) -> Vec<Issued> {
        let refused = refused(envelope);
        let occasion = Occasion::Refused { code: refused.code, message: &refused.message };
        self.say(occasion, &refused.facts)
    }

    pub(crate) fn copy(
        &mut self,
        event: &Event,
        first: &Event,
        standing: &Standing,
    ) -> Vec<Issued> {
        let receipt = self.0.iter().find(|one| one.decision == "ADMIT").map(|one| one.path.clone());
        let first =
            Original { seq: Seq(1), facts: &first.facts, standing, receipt: receipt.as_deref() };
        self.say(Occasion::Copy { first }, &event.facts)
    }
}

/// The one document of a kind, as data.
pub(crate) fn document(documents: &[Issued], kind: IssuedKind) -> Value {
    let found: Vec<&Issued> = documents.iter().filter(|one| one.kind == kind).collect();
    assert_eq!(found.len(), 1, "{documents:#?}");
    serde_json::from_str(&found[0].text).unwrap()
}

pub(crate) fn receipt(documents: &[Issued]) -> Value {
    document(documents, IssuedKind::Receipt)
}

/// The schema of receipts, as it is shipped.
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
