//! The steps of effects inside a transaction.

use admit_core::effect::{Effect, Evidence, Illegal, Standing, Step, advance as lead};
use admit_core::json::{self, Object};
use admit_core::{Intent, Millis, Seq};

use super::{Desk, Line, Stepped};
use crate::effects::Recovered;

/// What a lost attempt rests on.
const LOST: &str = "the gate stopped while this attempt was in flight";

/// Keeps the effect of the admission at `seq`, in its commit.
pub(crate) fn born<D: Desk>(
    desk: &mut D,
    seq: Seq,
    intent: &Intent,
    at: Millis,
) -> Result<(), D::Error> {
    let standing = intent.starts.standing(desk.epoch());
    let mut plan = Vec::new();
    json::write_object(&intent.plan, &mut plan);
    let (what, attempt) = (standing.word(), standing.attempt());
    let kind = intent.kind.to_owned();
    desk.put_effect(Effect { seq, kind, plan: plan.into(), standing, reply: None }, at)?;
    desk.add_line(seq, &Line { at, attempt, what, by: None, evidence: None })
}

/// Takes one step. An illegal one writes nothing.
pub(crate) fn advance<D: Desk>(
    desk: &mut D,
    seq: Seq,
    step: &Step,
    at: Millis,
) -> Result<Result<Stepped, Illegal>, D::Error> {
    let Some(mut effect) = desk.effect(seq)? else { return Ok(Err(Illegal::NoEffect)) };
    let before = effect.standing.word();
    let performer = effect.standing.epoch().filter(|epoch| desk.is_own(*epoch));
    let epoch = performer.unwrap_or_else(|| desk.epoch());
    let standing = match lead(effect.standing.clone(), step, epoch) {
        Ok(standing) => standing,
        Err(illegal) => return Ok(Err(illegal)),
    };
    let mut line = Line {
        at,
        attempt: standing.attempt(),
        what: standing.word(),
        by: None,
        evidence: standing.evidence(),
    };
    let mut said = None;
    match step {
        Step::Begin { .. } | Step::Renew => {}
        Step::Settle { attempt, reply, .. } => said = reply.as_ref().filter(|_| *attempt == 1),
        Step::Evidence { attempt, evidence } => {
            (line.attempt, line.what, line.evidence) = (*attempt, "evidence", Some(evidence));
        }
        Step::ReplayUndone(by) | Step::Replay(by) | Step::Reconcile { by, .. } => {
            line.by = Some(by);
        }
    }
    desk.add_line(seq, &line)?;
    if !matches!(step, Step::Evidence { .. }) {
        desk.turn_effect(seq, &standing, said, at)?;
    }
    effect.reply = effect.reply.or_else(|| said.cloned());
    effect.standing = standing;
    Ok(Ok(Stepped { before, effect }))
}

/// Looks after effects whose processes are gone: in flight becomes ambiguous, intended is handed
/// back.
pub(crate) fn recover<D: Desk>(
    desk: &mut D,
    left: Vec<Effect>,
    at: Millis,
) -> Result<Recovered, D::Error> {
    let mut recovered = Recovered::default();
    for effect in left {
        let before = effect.standing.word();
        let effect = lost(desk, effect, at)?;
        match effect.standing {
            Standing::Intended(_) => recovered.intended.push(effect),
            Standing::Ambiguous(_) if before != "ambiguous" => recovered.ambiguous.push(effect),
            Standing::Withheld(_)
            | Standing::InFlight(_)
            | Standing::Done(_)
            | Standing::Refused(_)
            | Standing::Ambiguous(_) => {}
        }
    }
    Ok(recovered)
}

/// One effect after the process that may have been performing it is gone.
pub(super) fn lost<D: Desk>(
    desk: &mut D,
    mut effect: Effect,
    at: Millis,
) -> Result<Effect, D::Error> {
    let evidence = Evidence::of(&Object::from_iter([("reason", LOST.into())]));
    let standing = effect.standing.clone().recovered(desk.epoch(), evidence);
    if standing != effect.standing {
        let (attempt, what) = (standing.attempt(), standing.word());
        let line = Line { at, attempt, what, by: None, evidence: standing.evidence() };
        desk.add_line(effect.seq, &line)?;
        desk.turn_effect(effect.seq, &standing, None, at)?;
        effect.standing = standing;
    }
    Ok(effect)
}
