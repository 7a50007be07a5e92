//! Effect state machine under random interleavings: crash, timeout, late response, duplicate,
//! replay.

use std::collections::BTreeMap;

use admit_core::InitialState;
use admit_core::effect::{
    Attribution, EffectState, Evidence, IllegalStep, Intended, Outcome, ReconcileOutcome, Step,
    Withheld, advance,
};
use admit_core::json::Object;
use proptest::prelude::*;

fn evidence(text: &str) -> Evidence {
    Evidence::of(&Object::from_iter([("note", text.to_owned().into())]))
}

fn by() -> Attribution {
    Attribution { who: "operator".to_owned(), why: Some("requested".to_owned()) }
}

/// Event in the life of an effect.
#[derive(Clone, Copy, Debug)]
enum EffectIncident {
    /// A performer begins it if the ledger allows it.
    Perform,
    /// The response arrives in time.
    Responded(bool),
    /// The request times out.
    TimedOut,
    /// A response arrives for a settled attempt.
    LateResponse,
    /// The process dies and another one recovers.
    Crash,
    /// A copy of the event arrives.
    Duplicate,
    /// An operator requests a replay.
    Replay,
    /// An operator reconciles.
    Reconcile(bool),
}

fn incident() -> impl Strategy<Value = EffectIncident> {
    prop_oneof![
        4 => Just(EffectIncident::Perform),
        2 => any::<bool>().prop_map(EffectIncident::Responded),
        2 => Just(EffectIncident::TimedOut),
        1 => Just(EffectIncident::LateResponse),
        2 => Just(EffectIncident::Crash),
        2 => Just(EffectIncident::Duplicate),
        1 => Just(EffectIncident::Replay),
        1 => any::<bool>().prop_map(EffectIncident::Reconcile),
    ]
}

/// Model of one effect.
struct World {
    state: EffectState,
    epoch: u64,
    calls: BTreeMap<u32, u32>,
    requested: u32,
    late: Vec<Evidence>,
}

impl World {
    fn new(is_withheld: bool) -> Self {
        let state = if is_withheld {
            EffectState::Withheld(Withheld::new())
        } else {
            EffectState::Intended(Intended::new())
        };
        let requested = state.attempt();
        Self { state, epoch: 1, calls: BTreeMap::new(), requested, late: Vec::new() }
    }

    fn step(&mut self, step: &Step) -> Result<(), IllegalStep> {
        self.state = advance(self.state.clone(), step, self.epoch)?;
        Ok(())
    }

    fn settle(&mut self, outcome: Outcome) -> Result<(), IllegalStep> {
        let attempt = self.state.attempt();
        self.step(&Step::Settle { attempt, outcome, evidence: evidence("answer"), reply: None })
    }

    fn apply(&mut self, incident: EffectIncident) -> Result<(), IllegalStep> {
        match incident {
            EffectIncident::Perform => {
                let attempt = self.state.attempt();
                self.step(&Step::Begin { attempt })?;
                // Only a committed "in flight" lets the first byte leave.
                *self.calls.entry(attempt).or_default() += 1;
                Ok(())
            }
            EffectIncident::Responded(true) => self.settle(Outcome::Done),
            EffectIncident::Responded(false) => self.settle(Outcome::Refused),
            EffectIncident::TimedOut => self.settle(Outcome::Ambiguous),
            EffectIncident::LateResponse => {
                let attempt = self.state.attempt();
                self.step(&Step::Evidence { attempt, evidence: evidence("late") })?;
                self.late.push(evidence("late"));
                Ok(())
            }
            EffectIncident::Crash => {
                self.epoch += 1;
                self.state = self.state.clone().recovered(self.epoch, evidence("crash"));
                Ok(())
            }
            EffectIncident::Duplicate => Ok(()),
            EffectIncident::Replay => {
                self.step(&Step::Replay(by()))?;
                self.requested += 1;
                Ok(())
            }
            EffectIncident::Reconcile(was_done) => {
                let found =
                    if was_done { ReconcileOutcome::Done } else { ReconcileOutcome::Refused };
                self.step(&Step::Reconcile { by: by(), found, evidence: evidence("found") })
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_interleaving_performs_an_attempt_twice_or_loses_an_ambiguous_outcome(
        is_withheld in any::<bool>(),
        incidents in prop::collection::vec(incident(), 0..60),
    ) {
        let mut world = World::new(is_withheld);
        for incident in incidents {
            let before = world.state.clone();
            let legal = world.apply(incident);
            let after = &world.state;
            prop_assert!(world.calls.values().all(|calls| *calls == 1), "{:?}", world.calls);
            prop_assert_eq!(after.attempt(), world.requested, "only an operator starts a new attempt");
            prop_assert!(world.calls.len() <= world.requested as usize);
            if legal.is_err() {
                prop_assert_eq!(after, &before, "an illegal step changes nothing");
            }
            let by_operator = matches!(incident, EffectIncident::Replay | EffectIncident::Reconcile(_));
            if !before.is_in_work() && !by_operator {
                prop_assert_eq!(after, &before, "only an operator changes a settled state");
            }
            if let EffectIncident::Crash = incident {
                if let EffectState::InFlight(_) = before {
                    prop_assert!(matches!(after, EffectState::Ambiguous(_)), "{:?}", after);
                } else {
                    prop_assert_eq!(after, &before, "what had not begun resumes");
                }
            }
            if let EffectState::Done(_) | EffectState::Refused(_) | EffectState::Ambiguous(_) = after {
                prop_assert!(after.evidence().is_some());
                prop_assert!(world.calls.contains_key(&after.attempt()));
            }
        }
    }

    #[test]
    fn every_state_is_restored_from_its_row(
        is_withheld in any::<bool>(),
        incidents in prop::collection::vec(incident(), 0..20),
    ) {
        let mut world = World::new(is_withheld);
        for incident in incidents {
            world.apply(incident).unwrap_or_default();
            let kept = &world.state;
            let restored = EffectState::restore(
                kept.word(), kept.attempt(), kept.epoch(), kept.evidence().cloned(),
            );
            prop_assert_eq!(restored.as_ref(), Ok(kept));
        }
    }
}

#[test]
fn a_replay_is_refused_while_an_attempt_is_in_progress() {
    let mut world = World::new(false);
    assert_eq!(world.apply(EffectIncident::Replay), Err(IllegalStep::InWork));
    world.apply(EffectIncident::Perform).unwrap();
    assert_eq!(world.apply(EffectIncident::Replay), Err(IllegalStep::InWork));
    world.apply(EffectIncident::TimedOut).unwrap();
    assert_eq!(world.apply(EffectIncident::Replay), Ok(()));
    assert_eq!(world.state.attempt(), 2);
}

#[test]
fn a_response_to_a_dead_process_settles_nothing() {
    let mut world = World::new(false);
    world.apply(EffectIncident::Perform).unwrap();
    world.apply(EffectIncident::Crash).unwrap();
    assert_eq!(world.apply(EffectIncident::Responded(true)), Err(IllegalStep::NotInFlight));
    world.apply(EffectIncident::LateResponse).unwrap();
    assert!(
        matches!(world.state, EffectState::Ambiguous(_)),
        "late evidence is kept and changes nothing"
    );
    assert_eq!(world.late.len(), 1);
}

#[test]
fn a_withheld_effect_never_begins_by_itself() {
    let mut world = World::new(true);
    assert_eq!(world.apply(EffectIncident::Perform), Err(IllegalStep::NotIntended));
    world.apply(EffectIncident::Crash).unwrap();
    assert_eq!(world.apply(EffectIncident::Perform), Err(IllegalStep::NotIntended));
    world.apply(EffectIncident::Replay).unwrap();
    world.apply(EffectIncident::Perform).unwrap();
    assert_eq!(world.calls, BTreeMap::from([(1, 1)]));
}

#[test]
fn a_copy_performs_only_an_effect_reconciled_as_not_performed() {
    let born = InitialState::InFlight.effect_state(1);
    assert_eq!((born.word(), born.attempt(), born.epoch()), ("in_flight", 1, Some(1)));
    assert_eq!(advance(born.clone(), &Step::Renew, 1), Err(IllegalStep::InWork));
    let lost = born.recovered(2, evidence("crash"));
    assert_eq!(advance(lost.clone(), &Step::Renew, 2), Err(IllegalStep::NotReleased));
    let reconcile = |found| Step::Reconcile { by: by(), found, evidence: evidence("looked") };
    let done = advance(lost.clone(), &reconcile(ReconcileOutcome::Done), 2).unwrap();
    assert_eq!(advance(done, &Step::Renew, 2), Err(IllegalStep::NotReleased));
    let released = advance(lost, &reconcile(ReconcileOutcome::Refused), 2).unwrap();
    let renewed = advance(released, &Step::Renew, 2).unwrap();
    assert_eq!((renewed.word(), renewed.attempt(), renewed.epoch()), ("in_flight", 2, Some(2)));
    assert_eq!(advance(renewed, &Step::Renew, 2), Err(IllegalStep::InWork), "and by one copy only");
}
