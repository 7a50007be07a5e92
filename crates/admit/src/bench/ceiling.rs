//! Baseline of the bench: the same server with a door that parses and replies, without a ledger or
//! with a plain synced file in its place.

use admit_contracts::{Contract, Reply};
use admit_core::json::{self, Object};
use admit_core::{
    Code, Door, EntityId, Entry, Fault, FaultKind, Key, Receipt, RecordedEntry, RefusedSubmission,
    Seq, Submission, Verdict,
};
use admit_ledger::{
    Admissions, BoxFuture, EffectReader, Effects, Ledger, Reader, ReceiptFilter, Status,
};
use bytes::Bytes;

use super::append::AppendFile;

/// Path of the door.
pub(super) const PATH: &str = "/ceiling";

/// Contract that parses the body and replies with a constant.
pub(super) struct CeilingContract;

impl Contract for CeilingContract {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        let parsed = json::parse(&submission.body, &json::Limits::default());
        let message = parsed.err().map(|error| error.to_string()).unwrap_or_default();
        Entry::Refused(RefusedSubmission {
            door: door.clone(),
            principal: submission.principal,
            received_at: submission.received_at,
            body: submission.body,
            attempt: None,
            code: Code::InvalidJson,
            message,
            facts: Object::default(),
        })
    }

    fn reply(&self, _: &RecordedEntry) -> Reply {
        Reply {
            status: 200,
            content_type: "application/json",
            headers: Vec::new(),
            body: br#"{"ack":{"status":"accepted"}}"#.to_vec(),
        }
    }

    fn refuse(&self, code: Code, message: &str, _: u32) -> Reply {
        Reply {
            status: code.http_status(),
            content_type: "application/json",
            headers: Vec::new(),
            body: format!("{{\"error\":{message:?}}}").into_bytes(),
        }
    }
}

/// Ledger without storage.
#[derive(Default)]
pub(super) struct NullLedger {
    /// File that bodies are appended and synced to, if any.
    pub(super) append: Option<AppendFile>,
}

impl Admissions for NullLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<RecordedEntry, Fault>>> {
        Box::pin(async move {
            let appended = match &self.append {
                None => Ok(()),
                Some(append) => append.append(batch.iter().map(body_of).collect()).await,
            };
            let verdict = Verdict::Refused { seq: None };
            let recorded = |entry| match &appended {
                Ok(()) => {
                    Ok(RecordedEntry { entry, verdict: verdict.clone(), ledger: 0, outcome: None })
                }
                Err(_) => Err(Fault::new(FaultKind::OutcomeUnknown, "failed to sync the file")),
            };
            batch.into_iter().map(recorded).collect()
        })
    }
}

fn body_of(entry: &Entry) -> Bytes {
    match entry {
        Entry::Event(event) => event.body.clone(),
        Entry::Refused(refused) => refused.body.clone(),
    }
}

impl Reader for NullLedger {
    fn tag(&self) -> u32 {
        0
    }

    fn receipt(&self, _: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn find(&self, _: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn body(&self, _: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn list(&self, _: ReceiptFilter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn document(&self, _: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn documents(
        &self,
        _: &'static str,
        _: String,
        _: Option<String>,
        _: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>> {
        Box::pin(async { Ok(Status::default()) })
    }
}

impl EffectReader for NullLedger {}

impl Effects for NullLedger {}

impl Ledger for NullLedger {
    fn is_healthy(&self) -> bool {
        true
    }

    fn must_stop(&self) -> BoxFuture<'_, Fault> {
        Box::pin(std::future::pending())
    }
}
