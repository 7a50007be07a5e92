//! Documents inside a transaction: each kept once, counted, made void and let go.

use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::effect::By;
use admit_core::json::{self, Object, Value};
use admit_core::{Fault, FaultKind, Filed, Issue, Issued, IssuedKind, Millis, Said, Seq};

use super::{About, Desk, Open};

/// Has the contract say it. A panic of its is the delivery's own fault, not the ledger's end.
pub(crate) fn say(issue: &dyn Issue, said: &Said<'_>) -> Result<Vec<Issued>, Fault> {
    catch_unwind(AssertUnwindSafe(|| issue.issue(said))).map_err(|_| {
        Fault::new(FaultKind::Internal, "the documents of this event could not be made")
    })
}

/// An outcome is kept even where the contract fails to put it into words: whoever waits for the
/// documents is told of a fault, and `admit verify` names what is missing.
pub(super) fn or_nothing(documents: Result<Vec<Issued>, Fault>, seq: Seq) -> Vec<Issued> {
    documents.unwrap_or_else(|fault| {
        tracing::error!(seq = seq.0, %fault, "an outcome was kept without its documents");
        Vec::new()
    })
}

/// Keeps documents, each once, and counts the new ones.
pub(super) fn file<D: Desk>(
    desk: &mut D,
    documents: Vec<Issued>,
    about: About,
) -> Result<Vec<Filed>, D::Error> {
    let mut filed = Vec::with_capacity(documents.len());
    for issued in documents {
        let run = issued.run.as_deref().unwrap_or_default();
        if let Some(mut known) = desk.document(issued.kind, run, &issued.id)? {
            if about.reopens && known.released.take().is_some() {
                desk.reopen(known.n)?;
                if known.issued.kind == IssuedKind::Receipt {
                    let run = issued.run.as_deref();
                    desk.runs().count(run, about.at, |counts| counts.released -= 1);
                }
            }
            filed.push(known);
            continue;
        }
        if issued.kind == IssuedKind::Receipt {
            let run = issued.run.as_deref();
            desk.runs().count(run, about.at, |counts| match &*issued.decision {
                "ADMIT" => counts.admit += 1,
                "DUPLICATE" => counts.duplicate += 1,
                "QUARANTINE" => counts.quarantine += 1,
                _ => {}
            });
        }
        filed.push(desk.put_document(issued, about)?);
    }
    Ok(filed)
}

/// The event at `seq` was admitted, by the document `by`: what only said that it was under way is
/// void.
pub(super) fn supersede<D: Desk>(
    desk: &mut D,
    issue: &dyn Issue,
    seq: Seq,
    by: u64,
    at: Millis,
) -> Result<(), D::Error> {
    for open in desk.open_of(seq)? {
        if !open.reason.as_deref().is_some_and(|reason| issue.is_passing(reason)) {
            continue;
        }
        desk.supersede(open.n, by)?;
        if open.kind == IssuedKind::Receipt {
            desk.runs().count(Some(&open.run), at, |counts| counts.superseded += 1);
        }
    }
    Ok(())
}

/// Lets go of documents, each once. Whether there was any to let go.
pub(crate) fn let_go<D: Desk>(
    desk: &mut D,
    open: Vec<Open>,
    how: &str,
    by: &By,
    at: Millis,
) -> Result<bool, D::Error> {
    let mut any = false;
    for open in open {
        let is_released = desk.release(open.n, how, by, at)?;
        any |= is_released;
        if is_released && open.kind == IssuedKind::Receipt && !open.run.is_empty() {
            desk.runs().count(Some(&open.run), at, |counts| counts.released += 1);
        }
    }
    Ok(any)
}

/// Facts that this ledger has written itself; `None` where they are not facts.
pub(super) fn parsed(text: &[u8]) -> Option<Object<'_>> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(text, &limits) {
        Ok(Value::Object(facts)) => Some(facts),
        Ok(_) | Err(_) => None,
    }
}

/// The facts of an admission; empty where they cannot be read.
pub(super) fn stored_facts<D: Desk>(desk: &mut D, seq: Seq) -> Result<Object<'static>, D::Error> {
    let text = desk.facts(seq)?.unwrap_or_default();
    Ok(parsed(&text).map(Object::into_owned).unwrap_or_default())
}
