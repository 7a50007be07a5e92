//! The effect machine under random interleavings: crash, timeout, late answer, duplicate, replay.

use std::collections::BTreeMap;

use admit_core::Starts;
use admit_core::effect::{
    Answer, By, Evidence, Illegal, Intended, Outcome, Standing, Step, Withheld, advance,
};
use admit_core::json::Object;
use proptest::prelude::*;

fn evidence(text: &str) -> Evidence {
    Evidence::of(&Object::from_iter([("note", text.to_owned().into())]))
}

fn by() -> By {
    By { who: "operator".to_owned(), why: Some("asked".to_owned()) }
}

/// What can happen to an effect.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A performer looks at it and does it if the ledger lets it begin.
    Perform,
    /// The answer comes in time.
    Answered(bool),
    /// Time is up.
    TimedOut,
    /// An answer comes for an attempt that is settled.
    LateAnswer,
    /// The process dies and another one recovers.
    Crash,
    /// A copy of the event arrives.
    Duplicate,
    /// A person asks again.
    Replay,
    /// A person finds out.
    Reconcile(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => Just(Happening::Perform),
        2 => any::<bool>().prop_map(Happening::Answered),
        2 => Just(Happening::TimedOut),
        1 => Just(Happening::LateAnswer),
        2 => Just(Happening::Crash),
        2 => Just(Happening::Duplicate),
        1 => Just(Happening::Replay),
        1 => any::<bool>().prop_map(Happening::Reconcile),
    ]
}

/// The world around one effect.
struct World {
    standing: Standing,
    epoch: u64,
    calls: BTreeMap<u32, u32>,
    asked: u32,
    late: Vec<Evidence>,
}

impl World {
    fn new(is_withheld: bool) -> Self {
        let standing = if is_withheld {
            Standing::Withheld(Withheld::new())
        } else {
            Standing::Intended(Intended::new())
        };
        let asked = standing.attempt();
        Self { standing, epoch: 1, calls: BTreeMap::new(), asked, late: Vec::new() }
    }

    fn step(&mut self, step: &Step) -> Result<(), Illegal> {
        self.standing = advance(self.standing.clone(), step, self.epoch)?;
        Ok(())
    }

    fn settle(&mut self, outcome: Outcome) -> Result<(), Illegal> {
        let attempt = self.standing.attempt();
        self.step(&Step::Settle { attempt, outcome, evidence: evidence("answer"), reply: None })
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Illegal> {
        match happening {
            Happening::Perform => {
                let attempt = self.standing.attempt();
                self.step(&Step::Begin { attempt })?;
                // Only a committed "in flight" lets the first byte leave.
                *self.calls.entry(attempt).or_default() += 1;
                Ok(())
            }
            Happening::Answered(true) => self.settle(Outcome::Done),
            Happening::Answered(false) => self.settle(Outcome::Refused),
            Happening::TimedOut => self.settle(Outcome::Ambiguous),
            Happening::LateAnswer => {
                let attempt = self.standing.attempt();
                self.step(&Step::Evidence { attempt, evidence: evidence("late") })?;
                self.late.push(evidence("late"));
                Ok(())
            }
            Happening::Crash => {
                self.epoch += 1;
                self.standing = self.standing.clone().recovered(self.epoch, evidence("crash"));
                Ok(())
            }
            Happening::Duplicate => Ok(()),
            Happening::Replay => {
                self.step(&Step::Replay(by()))?;
                self.asked += 1;
                Ok(())
            }
            Happening::Reconcile(was_done) => {
                let found = if was_done { Answer::Done } else { Answer::Refused };
                self.step(&Step::Reconcile { by: by(), found, evidence: evidence("found") })
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_interleaving_calls_twice_for_one_attempt_or_forgets_that_it_does_not_know(
        is_withheld in any::<bool>(),
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let mut world = World::new(is_withheld);
        for happening in happenings {
            let before = world.standing.clone();
            let legal = world.happen(happening);
            let after = &world.standing;
            prop_assert!(world.calls.values().all(|calls| *calls == 1), "{:?}", world.calls);
            prop_assert_eq!(after.attempt(), world.asked, "only a person makes a new attempt");
            prop_assert!(world.calls.len() <= world.asked as usize);
            if legal.is_err() {
                prop_assert_eq!(after, &before, "an illegal step changes nothing");
            }
            let by_a_person = matches!(happening, Happening::Replay | Happening::Reconcile(_));
            if !before.is_in_work() && !by_a_person {
                prop_assert_eq!(after, &before, "a settled state is left by a person only");
            }
            if let Happening::Crash = happening {
                if let Standing::InFlight(_) = before {
                    prop_assert!(matches!(after, Standing::Ambiguous(_)), "{:?}", after);
                } else {
                    prop_assert_eq!(after, &before, "what had not begun resumes");
                }
            }
            if let Standing::Done(_) | Standing::Refused(_) | Standing::Ambiguous(_) = after {
                prop_assert!(after.evidence().is_some());
                prop_assert!(world.calls.contains_key(&after.attempt()));
            }
        }
    }

    #[test]
    fn every_state_reads_back_from_its_row(
        is_withheld in any::<bool>(),
        happenings in prop::collection::vec(happening(), 0..20),
    ) {
        let mut world = World::new(is_withheld);
        for happening in happenings {
            world.happen(happening).unwrap_or_default();
            let kept = &world.standing;
            let restored = Standing::restore(
                kept.word(), kept.attempt(), kept.epoch(), kept.evidence().cloned(),
            );
            prop_assert_eq!(restored.as_ref(), Ok(kept));
        }
    }
}

#[test]
fn a_replay_is_refused_while_an_attempt_is_in_work() {
    let mut world = World::new(false);
    assert_eq!(world.happen(Happening::Replay), Err(Illegal::InWork));
    world.happen(Happening::Perform).unwrap();
    assert_eq!(world.happen(Happening::Replay), Err(Illegal::InWork));
    world.happen(Happening::TimedOut).unwrap();
    assert_eq!(world.happen(Happening::Replay), Ok(()));
    assert_eq!(world.standing.attempt(), 2);
}

#[test]
fn an_answer_to_a_dead_process_settles_nothing() {
    let mut world = World::new(false);
    world.happen(Happening::Perform).unwrap();
    world.happen(Happening::Crash).unwrap();
    assert_eq!(world.happen(Happening::Answered(true)), Err(Illegal::NotInFlight));
    world.happen(Happening::LateAnswer).unwrap();
    assert!(
        matches!(world.standing, Standing::Ambiguous(_)),
        "late evidence is kept, not believed"
    );
    assert_eq!(world.late.len(), 1);
}

#[test]
fn a_withheld_effect_never_begins_by_itself() {
    let mut world = World::new(true);
    assert_eq!(world.happen(Happening::Perform), Err(Illegal::NotIntended));
    world.happen(Happening::Crash).unwrap();
    assert_eq!(world.happen(Happening::Perform), Err(Illegal::NotIntended));
    world.happen(Happening::Replay).unwrap();
    world.happen(Happening::Perform).unwrap();
    assert_eq!(world.calls, BTreeMap::from([(1, 1)]));
}

#[test]
fn only_what_was_found_not_done_is_done_by_a_copy_and_as_the_next_attempt() {
    let born = Starts::InFlight.standing(1);
    assert_eq!((born.word(), born.attempt(), born.epoch()), ("in_flight", 1, Some(1)));
    assert_eq!(advance(born.clone(), &Step::Renew, 1), Err(Illegal::InWork));
    let lost = born.recovered(2, evidence("crash"));
    assert_eq!(advance(lost.clone(), &Step::Renew, 2), Err(Illegal::NotReleased));
    let reconcile = |found| Step::Reconcile { by: by(), found, evidence: evidence("looked") };
    let done = advance(lost.clone(), &reconcile(Answer::Done), 2).unwrap();
    assert_eq!(advance(done, &Step::Renew, 2), Err(Illegal::NotReleased));
    let released = advance(lost, &reconcile(Answer::Refused), 2).unwrap();
    let renewed = advance(released, &Step::Renew, 2).unwrap();
    assert_eq!((renewed.word(), renewed.attempt(), renewed.epoch()), ("in_flight", 2, Some(2)));
    assert_eq!(advance(renewed, &Step::Renew, 2), Err(Illegal::InWork), "and by one copy only");
}
