//! What the steps of effects leave behind at doors that issue documents.

use admit_core::effect::{By, Effect, Illegal, Standing, Step};
use admit_core::json::Object;
use admit_core::{Entry, Filed, Issue, Issued, Millis, Occasion, Original, Recorded, Said, Seq};

use super::documents::{file, let_go, or_nothing, say, stored_facts, supersede};
use super::steps::{advance, lost};
use super::{About, BUS_END, Desk, Stepped};
use crate::issuance::{Copied, Settled, Settlement};

/// Moves effects on, each with its own answer.
pub(crate) fn settle<D: Desk>(
    desk: &mut D,
    batch: &[Settlement],
    issue: &dyn Issue,
    at: Millis,
) -> Result<Vec<Result<Settled, Illegal>>, D::Error> {
    let mut settled = Vec::with_capacity(batch.len());
    for Settlement { seq, step, facts } in batch {
        let stepped = match advance(desk, *seq, step, at)? {
            Ok(stepped) => stepped,
            Err(illegal) => {
                settled.push(Err(illegal));
                continue;
            }
        };
        let by = if let Step::Reconcile { by, .. } = step { Some(by) } else { None };
        let filed = if matches!(step, Step::Evidence { .. }) {
            Vec::new()
        } else {
            conclude(desk, issue, &stepped, by, facts.as_ref(), at)?
        };
        settled.push(Ok(Settled { effect: stepped.effect, filed }));
    }
    Ok(settled)
}

/// What an effect's new state leaves behind: documents, counters, and what they make void.
fn conclude<D: Desk>(
    desk: &mut D,
    issue: &dyn Issue,
    stepped: &Stepped,
    by: Option<&By>,
    facts: Option<&Object<'static>>,
    at: Millis,
) -> Result<Vec<Filed>, D::Error> {
    let (seq, standing) = (stepped.effect.seq, &stepped.effect.standing);
    let stored;
    let facts = match facts {
        Some(facts) => facts,
        None => {
            stored = stored_facts(desk, seq)?;
            &stored
        }
    };
    let run = issue.run(facts);
    let change =
        |word: &str| i64::from(standing.word() == word) - i64::from(stepped.before == word);
    let (in_flight, ambiguous) = (change("in_flight"), change("ambiguous"));
    desk.runs().count(run, at, |counts| {
        counts.in_flight += in_flight;
        counts.ambiguous += ambiguous;
    });
    if let Some(by) = by {
        let open = desk.open_of(seq)?;
        let open = open.into_iter().filter(|open| open.is_about_the_effect(issue)).collect();
        let_go(desk, open, "reconciled", by, at)?;
    }
    if let (Standing::Done(_), Some(evidence)) = (standing, standing.evidence())
        && let Some((topic, messages)) = issue.acknowledged(evidence)
    {
        desk.counters().raise(format!("{BUS_END}{topic}"), messages);
    }
    let documents = words(desk, issue, standing, by, facts, seq, at);
    let reopens = matches!(standing, Standing::Ambiguous(_));
    let filed = file(desk, documents, About { seq, of: Some(seq), at, reopens })?;
    if let (Standing::Done(_), Some(receipt)) = (standing, filed.first()) {
        supersede(desk, issue, seq, receipt.n, at)?;
    }
    Ok(filed)
}

/// What the contract says of where an effect stands.
fn words<D: Desk>(
    desk: &D,
    issue: &dyn Issue,
    standing: &Standing,
    by: Option<&By>,
    facts: &Object<'_>,
    seq: Seq,
    at: Millis,
) -> Vec<Issued> {
    let occasion = Occasion::Settled { standing, by };
    or_nothing(say(issue, &Said { occasion, seq, at, facts, taken: desk }), seq)
}

/// Says what there is to say about a copy that has waited.
pub(crate) fn settle_copy<D: Desk>(
    desk: &mut D,
    copy: &Recorded,
    first: Seq,
    issue: &dyn Issue,
    at: Millis,
) -> Result<Result<Copied, Illegal>, D::Error> {
    let Some(effect) = desk.effect(first)? else { return Ok(Err(Illegal::NoEffect)) };
    let standing = effect.standing;
    if matches!(standing, Standing::Refused(_)) {
        return Ok(Ok(Copied { standing, filed: Vec::new() }));
    }
    let Entry::Event(event) = &copy.entry else { return Ok(Err(Illegal::NoEffect)) };
    let receipt = desk.receipt_of(first)?;
    let facts = stored_facts(desk, first)?;
    let original =
        Original { seq: first, facts: &facts, standing: &standing, receipt: receipt.as_deref() };
    let seq = copy.verdict.seq().unwrap_or(first);
    let occasion = Occasion::Copy { first: original };
    let said = Said { occasion, seq, at, facts: &event.facts, taken: &*desk };
    let documents = or_nothing(say(issue, &said), seq);
    let about = About { seq, of: Some(first), at, reopens: false };
    let filed = file(desk, documents, about)?;
    Ok(Ok(Copied { standing, filed }))
}

/// Looks after what a door had in flight in processes that are gone, and after what was lost
/// without a word about it.
pub(crate) fn recover_door<D: Desk>(
    desk: &mut D,
    left: Vec<Effect>,
    issue: &dyn Issue,
    at: Millis,
) -> Result<Vec<Effect>, D::Error> {
    let mut recovered = Vec::new();
    for effect in left {
        let mut before = effect.standing.word();
        let effect = lost(desk, effect, at)?;
        if !matches!(effect.standing, Standing::Ambiguous(_)) {
            continue;
        }
        if before == "ambiguous" {
            // What cannot be put into words now was counted when it was lost.
            let facts = stored_facts(desk, effect.seq)?;
            if words(desk, issue, &effect.standing, None, &facts, effect.seq, at).is_empty() {
                continue;
            }
            // Lost without a word: the counter does not know of it yet.
            before = "in_flight";
        }
        let stepped = Stepped { before, effect };
        conclude(desk, issue, &stepped, None, None, at)?;
        recovered.push(stepped.effect);
    }
    Ok(recovered)
}
