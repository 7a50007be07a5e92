//! Effect steps inside a transaction.

use admit_core::effect::{Effect, EffectState, Evidence, IllegalStep, Step, advance as next_state};
use admit_core::json::{self, Object};
use admit_core::{Intent, Millis, Seq};

use super::{AdvancedEffect, EffectStore, HistoryLine};
use crate::effects::RecoveredEffects;

/// Evidence of a lost attempt.
const LOST: &str = "the gate stopped while this attempt was in flight";

/// Inserts the effect of the admission at `seq`, in its commit.
pub(crate) fn begin_effect<D: EffectStore>(
    store: &mut D,
    seq: Seq,
    intent: &Intent,
    at: Millis,
) -> Result<(), D::Error> {
    let state = intent.starts.effect_state(store.epoch());
    let mut plan = Vec::new();
    json::write_object(&intent.plan, &mut plan);
    let (what, attempt) = (state.word(), state.attempt());
    let kind = intent.kind.to_owned();
    store.put_effect(Effect { seq, kind, plan: plan.into(), state, reply: None }, at)?;
    store.add_history_line(seq, &HistoryLine { at, attempt, what, by: None, evidence: None })
}

/// Applies one step. An illegal one writes nothing.
pub(crate) fn advance<D: EffectStore>(
    store: &mut D,
    seq: Seq,
    step: &Step,
    at: Millis,
) -> Result<Result<AdvancedEffect, IllegalStep>, D::Error> {
    let Some(mut effect) = store.effect(seq)? else { return Ok(Err(IllegalStep::NoEffect)) };
    let before = effect.state.word();
    let performer = effect.state.epoch().filter(|epoch| store.is_own(*epoch));
    let epoch = performer.unwrap_or_else(|| store.epoch());
    let state = match next_state(effect.state.clone(), step, epoch) {
        Ok(state) => state,
        Err(illegal) => return Ok(Err(illegal)),
    };
    let mut line = HistoryLine {
        at,
        attempt: state.attempt(),
        what: state.word(),
        by: None,
        evidence: state.evidence(),
    };
    let mut first_reply = None;
    match step {
        Step::Begin { .. } | Step::Renew => {}
        Step::Settle { attempt, reply, .. } => {
            first_reply = reply.as_ref().filter(|_| *attempt == 1)
        }
        Step::Evidence { attempt, evidence } => {
            (line.attempt, line.what, line.evidence) = (*attempt, "evidence", Some(evidence));
        }
        Step::ReplayUndone(by) | Step::Replay(by) | Step::Reconcile { by, .. } => {
            line.by = Some(by);
        }
    }
    store.add_history_line(seq, &line)?;
    if !matches!(step, Step::Evidence { .. }) {
        store.set_effect_state(seq, &state, first_reply, at)?;
    }
    effect.reply = effect.reply.or_else(|| first_reply.cloned());
    effect.state = state;
    Ok(Ok(AdvancedEffect { before, effect }))
}

/// Recovers effects of dead processes: those in flight become ambiguous, intended ones are returned to be
/// resumed.
pub(crate) fn recover<D: EffectStore>(
    store: &mut D,
    left: Vec<Effect>,
    at: Millis,
) -> Result<RecoveredEffects, D::Error> {
    let mut recovered = RecoveredEffects::default();
    for effect in left {
        let before = effect.state.word();
        let effect = lost(store, effect, at)?;
        match effect.state {
            EffectState::Intended(_) => recovered.intended.push(effect),
            EffectState::Ambiguous(_) if before != "ambiguous" => recovered.ambiguous.push(effect),
            EffectState::Withheld(_)
            | EffectState::InFlight(_)
            | EffectState::Done(_)
            | EffectState::Refused(_)
            | EffectState::Ambiguous(_) => {}
        }
    }
    Ok(recovered)
}

/// Recovers one effect of a dead process.
pub(super) fn lost<D: EffectStore>(
    store: &mut D,
    mut effect: Effect,
    at: Millis,
) -> Result<Effect, D::Error> {
    let evidence = Evidence::of(&Object::from_iter([("reason", LOST.into())]));
    let state = effect.state.clone().recovered(store.epoch(), evidence);
    if state != effect.state {
        let (attempt, what) = (state.attempt(), state.word());
        let line = HistoryLine { at, attempt, what, by: None, evidence: state.evidence() };
        store.add_history_line(effect.seq, &line)?;
        store.set_effect_state(effect.seq, &state, None, at)?;
        effect.state = state;
    }
    Ok(effect)
}
