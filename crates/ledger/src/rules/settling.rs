//! Documents and counters that effect steps cause at doors that issue documents.

use admit_core::effect::{Attribution, Effect, EffectState, IllegalStep, Step};
use admit_core::json::Object;
use admit_core::{
    Document, Entry, FirstAdmission, Issue, IssueContext, IssueReason, Millis, RecordedEntry, Seq,
    StoredDocument,
};

use super::documents::{
    issue_documents, or_empty, release_documents, store_documents, stored_facts, supersede,
};
use super::steps::{advance, lost};
use super::{AdvancedEffect, DocumentSubject, EffectStore, bus_end_name};
use crate::issuance::{SettledCopy, SettledEffect, Settlement};

/// Advances effects; returns one result each.
pub(crate) fn settle<D: EffectStore>(
    store: &mut D,
    batch: &[Settlement],
    issue: &dyn Issue,
    at: Millis,
) -> Result<Vec<Result<SettledEffect, IllegalStep>>, D::Error> {
    let mut settled = Vec::with_capacity(batch.len());
    for Settlement { seq, step, facts } in batch {
        let advanced = match advance(store, *seq, step, at)? {
            Ok(advanced) => advanced,
            Err(illegal) => {
                settled.push(Err(illegal));
                continue;
            }
        };
        let by = if let Step::Reconcile { by, .. } = step { Some(by) } else { None };
        let filed = if matches!(step, Step::Evidence { .. }) {
            Vec::new()
        } else {
            conclude(store, issue, &advanced, by, facts.as_ref(), at)?
        };
        settled.push(Ok(SettledEffect { effect: advanced.effect, filed }));
    }
    Ok(settled)
}

/// Applies the new state of an effect: documents, counters, and the quarantines it voids.
fn conclude<D: EffectStore>(
    store: &mut D,
    issue: &dyn Issue,
    advanced: &AdvancedEffect,
    by: Option<&Attribution>,
    facts: Option<&Object<'static>>,
    at: Millis,
) -> Result<Vec<StoredDocument>, D::Error> {
    let (seq, state) = (advanced.effect.seq, &advanced.effect.state);
    let stored;
    let facts = match facts {
        Some(facts) => facts,
        None => {
            stored = stored_facts(store, seq)?;
            &stored
        }
    };
    let run = issue.run(facts);
    let change = |word: &str| i64::from(state.word() == word) - i64::from(advanced.before == word);
    let (in_flight, ambiguous) = (change("in_flight"), change("ambiguous"));
    store.runs().count(run, at, |counts| {
        counts.in_flight += in_flight;
        counts.ambiguous += ambiguous;
    });
    if let Some(by) = by {
        let open = store.open_of(seq)?;
        let open = open.into_iter().filter(|open| open.is_released_by_settlement(issue)).collect();
        release_documents(store, open, "reconciled", by, at)?;
    }
    if let (EffectState::Done(_), Some(evidence)) = (state, state.evidence())
        && let Some((topic, messages)) = issue.acknowledged(evidence)
    {
        store.counters().raise(bus_end_name(&topic), messages);
    }
    let documents = outcome_documents(store, issue, state, by, facts, seq, at);
    let reopens = matches!(state, EffectState::Ambiguous(_));
    let filed =
        store_documents(store, documents, DocumentSubject { seq, of: Some(seq), at, reopens })?;
    if let (EffectState::Done(_), Some(receipt)) = (state, filed.first()) {
        supersede(store, issue, seq, receipt.n, at)?;
    }
    Ok(filed)
}

/// The contract's documents for the state of an effect.
fn outcome_documents<D: EffectStore>(
    store: &D,
    issue: &dyn Issue,
    state: &EffectState,
    by: Option<&Attribution>,
    facts: &Object<'_>,
    seq: Seq,
    at: Millis,
) -> Vec<Document> {
    let reason = IssueReason::Settled { state, by };
    or_empty(issue_documents(issue, &IssueContext { reason, seq, at, facts, ids: store }), seq)
}

/// Issues the documents of a copy that waited.
pub(crate) fn settle_copy<D: EffectStore>(
    store: &mut D,
    copy: &RecordedEntry,
    first: Seq,
    issue: &dyn Issue,
    at: Millis,
) -> Result<Result<SettledCopy, IllegalStep>, D::Error> {
    let Some(effect) = store.effect(first)? else { return Ok(Err(IllegalStep::NoEffect)) };
    let state = effect.state;
    if matches!(state, EffectState::Refused(_)) {
        return Ok(Ok(SettledCopy { state, filed: Vec::new() }));
    }
    let Entry::Event(event) = &copy.entry else { return Ok(Err(IllegalStep::NoEffect)) };
    let receipt = store.receipt_of(first)?;
    let facts = stored_facts(store, first)?;
    let original =
        FirstAdmission { seq: first, facts: &facts, state: &state, receipt: receipt.as_deref() };
    let seq = copy.verdict.seq().unwrap_or(first);
    let reason = IssueReason::Copy { first: original };
    let context = IssueContext { reason, seq, at, facts: &event.facts, ids: &*store };
    let documents = or_empty(issue_documents(issue, &context), seq);
    let about = DocumentSubject { seq, of: Some(first), at, reopens: false };
    let filed = store_documents(store, documents, about)?;
    Ok(Ok(SettledCopy { state, filed }))
}

/// Recovers what a door had in flight in dead processes, and outcomes that were stored without
/// documents.
pub(crate) fn recover_door<D: EffectStore>(
    store: &mut D,
    left: Vec<Effect>,
    issue: &dyn Issue,
    at: Millis,
) -> Result<Vec<Effect>, D::Error> {
    let mut recovered = Vec::new();
    for effect in left {
        let mut before = effect.state.word();
        let effect = lost(store, effect, at)?;
        if !matches!(effect.state, EffectState::Ambiguous(_)) {
            continue;
        }
        if before == "ambiguous" {
            // An outcome whose documents cannot be made now either was counted when it was lost.
            let facts = stored_facts(store, effect.seq)?;
            if outcome_documents(store, issue, &effect.state, None, &facts, effect.seq, at)
                .is_empty()
            {
                continue;
            }
            // Lost without documents: the counter does not include it yet.
            before = "in_flight";
        }
        let advanced = AdvancedEffect { before, effect };
        conclude(store, issue, &advanced, None, None, at)?;
        recovered.push(advanced.effect);
    }
    Ok(recovered)
}
