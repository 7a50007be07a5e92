//! Fakes: contracts, and a ledger in memory that can block and fail.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use admit_contracts::{Contract, Reply};
use admit_core::json::Object;
use admit_core::{
    Code, Decision, Digest, Door, EntityId, Entry, Event, Fault, FaultKind, Key, OnOtherContent,
    PriorAdmission, Receipt, ReceiptId, RecordedEntry, RefusedSubmission, Seq, Submission, Verdict,
    decide,
};
use admit_ledger::{
    Admissions, BoxFuture, EffectReader, Effects, Ledger, Reader, ReceiptFilter, Status,
};
use bytes::Bytes;
use tokio::sync::watch;

/// The tag of the test ledger.
pub(crate) const TAG: u32 = 0x7e57_0001;

/// Contract with the body up to `=` as the key; the rest is content. It refuses `refuse…` and panics on
/// `panic`.
pub(crate) struct FakeContract;

impl Contract for FakeContract {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        let attempt = submission.header("x-attempt").and_then(|value| value.parse().ok());
        assert!(
            submission.header("x-other").is_none(),
            "the contract gets only the headers it declares"
        );
        let Submission { principal, received_at, body, .. } = submission;
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(text != "panic", "panic for a test");
        if text.starts_with("refuse") {
            return Entry::Refused(RefusedSubmission {
                door: door.clone(),
                principal,
                received_at,
                body,
                attempt,
                code: Code::InvalidEnvelope,
                message: "refused for a test".to_owned(),
                facts: Object::default(),
            });
        }
        let name = text.split('=').next().unwrap_or_default();
        Entry::Event(Event {
            door: door.clone(),
            key: Key::derive(door.as_str(), &[principal.as_str().as_bytes(), name.as_bytes()]),
            digest: Digest::of(&body),
            principal,
            received_at,
            happened_at: None,
            body,
            attempt,
            facts: Object::from_iter([("name", name.to_owned().into())]),
            on_other_content: OnOtherContent::Conflict,
            projections: Vec::new(),
            record: None,
            effect: None,
            inbox: None,
        })
    }

    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        let scope = match &recorded.entry {
            Entry::Event(event) => event.principal.to_string(),
            Entry::Refused(refused) => refused.principal.to_string(),
        };
        let verdict = recorded.verdict.word();
        json_reply(200, &serde_json::json!({ "verdict": verdict, "scope": scope }))
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        let refusal = serde_json::json!({
            "code": code.as_str(), "message": message, "retry_after": retry_after_seconds,
        });
        json_reply(code.http_status(), &serde_json::json!({ "refusal": refusal }))
    }

    fn headers(&self) -> &[&str] {
        &["x-attempt"]
    }
}

fn json_reply(status: u16, json: &serde_json::Value) -> Reply {
    let body = json.to_string().into_bytes();
    Reply { status, content_type: "application/json", headers: Vec::new(), body }
}

/// Contract that panics in every method.
pub(crate) struct PanickingContract;

impl Contract for PanickingContract {
    fn vet(&self, _: &Door, _: Submission) -> Entry {
        panic!("panic for a test")
    }

    fn reply(&self, _: &RecordedEntry) -> Reply {
        panic!("panic for a test")
    }

    fn refuse(&self, _: Code, _: &str, _: u32) -> Reply {
        panic!("panic for a test")
    }
}

/// Ledger in memory.
pub(crate) struct MemoryLedger {
    receipts: Mutex<Vec<Receipt>>,
    pub(crate) documents: Mutex<BTreeMap<String, String>>,
    pub(crate) fault: Mutex<Option<FaultKind>>,
    pub(crate) is_healthy: AtomicBool,
    held: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self {
            receipts: Mutex::default(),
            documents: Mutex::default(),
            fault: Mutex::default(),
            is_healthy: AtomicBool::new(true),
            held: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
        }
    }
}

impl MemoryLedger {
    /// Blocks all writes until [`MemoryLedger::release`].
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }

    /// Waits until `batches` batches are blocked.
    pub(crate) async fn wait_for_held(&self, batches: usize) {
        self.waiting.subscribe().wait_for(|waiting| *waiting >= batches).await.expect("it lives");
    }

    fn decide(&self, entry: Entry) -> RecordedEntry {
        let mut receipts = self.receipts.lock().expect("no panic inside");
        let seq = Seq(receipts.len() as u64 + 1);
        let id = ReceiptId { ledger: TAG, seq };
        let (receipt, verdict) = match &entry {
            Entry::Refused(refused) => {
                let reason = Some((refused.code, refused.message.clone()));
                let receipt = Receipt { reason, ..receipt(id, &refused.door, &refused.body) };
                (receipt, Verdict::Refused { seq: Some(seq) })
            }
            Entry::Event(event) => {
                let first = receipts.iter().find(|receipt| receipt.key == Some(event.key));
                let first = first.map(|receipt| PriorAdmission {
                    seq: receipt.id.seq,
                    digest: receipt.digest,
                    received_at: receipt.received_at,
                    principal: receipt.principal.clone(),
                    facts: receipt.facts.clone(),
                });
                let verdict = match decide(first, &event.digest, event.on_other_content) {
                    Decision::Duplicate(first) => Verdict::Duplicate { seq, first },
                    Decision::Conflict(first) => Verdict::Conflict { seq, first },
                    Decision::Fresh | Decision::Revision(_) => Verdict::Fresh { seq },
                };
                let key = matches!(verdict, Verdict::Fresh { .. }).then_some(event.key);
                (Receipt { key, ..receipt(id, &event.door, &event.body) }, verdict)
            }
        };
        receipts.push(Receipt { verdict: verdict.word(), ..receipt });
        RecordedEntry { entry, verdict, ledger: TAG, outcome: None }
    }
}

fn receipt(id: ReceiptId, door: &Door, body: &Bytes) -> Receipt {
    Receipt {
        id,
        door: door.clone(),
        principal: admit_core::Principal::new("local"),
        verdict: "fresh",
        key: None,
        digest: Digest::of(body),
        received_at: admit_core::Millis(0),
        last_seen_at: admit_core::Millis(0),
        duplicate_count: 0,
        last_attempt: None,
        first: None,
        reason: None,
        facts: Bytes::from_static(b"{\"big\":9007199254740993}"),
    }
}

impl Admissions for MemoryLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<RecordedEntry, Fault>>> {
        Box::pin(async move {
            self.waiting.send_modify(|waiting| *waiting += 1);
            let released = self.held.subscribe().wait_for(|held| !held).await.is_ok();
            self.waiting.send_modify(|waiting| *waiting -= 1);
            assert!(released, "the ledger outlives its batches");
            let fault = *self.fault.lock().expect("no panic inside");
            let record = |entry| match fault {
                Some(kind) => Err(Fault::new(kind, "failure for a test")),
                None => Ok(self.decide(entry)),
            };
            batch.into_iter().map(record).collect()
        })
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, Result<T, Fault>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Reader for MemoryLedger {
    fn tag(&self) -> u32 {
        TAG
    }

    fn receipt(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        let receipts = self.receipts.lock().expect("no panic inside");
        ready(receipts.iter().find(|receipt| receipt.id.seq == seq).cloned())
    }

    fn find(&self, key: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        let receipts = self.receipts.lock().expect("no panic inside");
        ready(receipts.iter().find(|receipt| receipt.key == Some(key)).cloned())
    }

    fn body(&self, _: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>> {
        ready(None)
    }

    fn list(&self, filter: ReceiptFilter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>> {
        let receipts = self.receipts.lock().expect("no panic inside");
        let matches = |receipt: &&Receipt| {
            receipt.id.seq > filter.after
                && filter.door.as_deref().is_none_or(|door| door == receipt.door.as_str())
                && filter.verdicts.iter().any(|word| word == receipt.verdict)
        };
        ready(receipts.iter().filter(matches).take(filter.rows_max).cloned().collect())
    }

    fn document(&self, id: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>> {
        ready(self.documents.lock().expect("no panic inside").get(&id.entity).cloned())
    }

    fn documents(
        &self,
        _: &'static str,
        prefix: String,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>> {
        let documents = self.documents.lock().expect("no panic inside");
        let matches = |(entity, _): &(&String, &String)| {
            entity.starts_with(&prefix) && after.as_ref().is_none_or(|after| *entity > after)
        };
        let page = documents.iter().filter(matches).take(rows_max);
        ready(page.map(|(entity, text)| (entity.clone(), text.clone())).collect())
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>> {
        ready(Status::default())
    }
}

impl EffectReader for MemoryLedger {}

impl Effects for MemoryLedger {}

impl Ledger for MemoryLedger {
    fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::SeqCst)
    }

    fn must_stop(&self) -> BoxFuture<'_, Fault> {
        Box::pin(std::future::pending())
    }
}
