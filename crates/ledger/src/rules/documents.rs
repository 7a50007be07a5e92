//! Rules of documents inside a transaction: each is stored once, counted, superseded and released.

use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::effect::Attribution;
use admit_core::json::{self, Object, Value};
use admit_core::{
    Document, DocumentKind, Fault, FaultKind, Issue, IssueContext, Millis, Seq, StoredDocument,
};

use super::{DocumentSubject, EffectStore, OpenQuarantine};

/// Lets the contract make the documents. A panic poisons this delivery only, not the ledger.
pub(crate) fn issue_documents(
    issue: &dyn Issue,
    context: &IssueContext<'_>,
) -> Result<Vec<Document>, Fault> {
    catch_unwind(AssertUnwindSafe(|| issue.issue(context))).map_err(|_| {
        Fault::new(FaultKind::Internal, "the documents of this event could not be made")
    })
}

/// An outcome is stored even if the contract fails to make its documents: the waiting caller gets a
/// fault, and `admit verify` names what is missing.
pub(super) fn or_empty(documents: Result<Vec<Document>, Fault>, seq: Seq) -> Vec<Document> {
    documents.unwrap_or_else(|fault| {
        tracing::error!(seq = seq.0, %fault, "outcome stored without documents: the contract failed to make them");
        Vec::new()
    })
}

/// Stores documents, each once, and counts the new ones.
pub(super) fn store_documents<D: EffectStore>(
    store: &mut D,
    documents: Vec<Document>,
    about: DocumentSubject,
) -> Result<Vec<StoredDocument>, D::Error> {
    let mut filed = Vec::with_capacity(documents.len());
    for issued in documents {
        let run = issued.run.as_deref().unwrap_or_default();
        if let Some(mut known) = store.document(issued.kind, run, &issued.id)? {
            if about.reopens && known.released.take().is_some() {
                store.reopen(known.n)?;
                if known.document.kind == DocumentKind::Receipt {
                    let run = issued.run.as_deref();
                    store.runs().count(run, about.at, |counts| counts.released -= 1);
                }
            }
            filed.push(known);
            continue;
        }
        if issued.kind == DocumentKind::Receipt {
            let run = issued.run.as_deref();
            store.runs().count(run, about.at, |counts| match &*issued.decision {
                "ADMIT" => counts.admit += 1,
                "DUPLICATE" => counts.duplicate += 1,
                "QUARANTINE" => counts.quarantine += 1,
                _ => {}
            });
        }
        filed.push(store.put_document(issued, about)?);
    }
    Ok(filed)
}

/// The event at `seq` was admitted by the document `by`: quarantines that only recorded it as pending
/// become void.
pub(super) fn supersede<D: EffectStore>(
    store: &mut D,
    issue: &dyn Issue,
    seq: Seq,
    by: u64,
    at: Millis,
) -> Result<(), D::Error> {
    for open in store.open_of(seq)? {
        if !open.reason.as_deref().is_some_and(|reason| issue.is_transient(reason)) {
            continue;
        }
        store.supersede(open.n, by)?;
        if open.kind == DocumentKind::Receipt {
            store.runs().count(Some(&open.run), at, |counts| counts.superseded += 1);
        }
    }
    Ok(())
}

/// Releases documents, each once. Returns whether any was released.
pub(crate) fn release_documents<D: EffectStore>(
    store: &mut D,
    open: Vec<OpenQuarantine>,
    how: &str,
    by: &Attribution,
    at: Millis,
) -> Result<bool, D::Error> {
    let mut any = false;
    for open in open {
        let is_released = store.release(open.n, how, by, at)?;
        any |= is_released;
        if is_released && open.kind == DocumentKind::Receipt && !open.run.is_empty() {
            store.runs().count(Some(&open.run), at, |counts| counts.released += 1);
        }
    }
    Ok(any)
}

/// Parses facts written by this ledger; `None` if they are not an object.
pub(super) fn parsed(text: &[u8]) -> Option<Object<'_>> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(text, &limits) {
        Ok(Value::Object(facts)) => Some(facts),
        Ok(_) | Err(_) => None,
    }
}

/// Returns the facts of an admission; empty if they cannot be parsed.
pub(super) fn stored_facts<D: EffectStore>(
    store: &mut D,
    seq: Seq,
) -> Result<Object<'static>, D::Error> {
    let text = store.facts(seq)?.unwrap_or_default();
    Ok(parsed(&text).map(Object::into_owned).unwrap_or_default())
}
