//! Contract suite of the publications port: entities on their way to the bus.

use std::collections::BTreeMap;
use std::sync::Arc;

use admit_core::effect::{
    Attribution, EffectState, Evidence, IllegalStep, Outcome, ReconcileOutcome, Step,
};
use admit_core::entity::PUBLISH_UNKNOWN;
use admit_core::json::{Object, Value};
use admit_core::{Digest, Millis};
use admit_ledger::publications::{Offer, Publication, PublicationStep};
use admit_ledger::{Publications, WholeLedger};
use futures_util::future::join_all;

use crate::event::DOOR;
use crate::records_suite::{
    OPENER, REPORTER, WITNESS, detail, gist, list, outcome_field, record_event, source_event,
};
use crate::rng::Rng;

/// Ledger with publications.
pub trait PublishingLedger: WholeLedger + Publications {}

impl<L: WholeLedger + Publications> PublishingLedger for L {}

/// Storage of such a ledger. Reopening it gives the same content.
pub trait PublishingHome {
    /// Opens the ledger. The previous one has been dropped.
    fn open(&self) -> Arc<dyn PublishingLedger>;
}

/// Such a ledger shared by several gates.
pub trait PublishingGates {
    /// Opens the ledger for another gate.
    fn open(&self, owner: &str) -> Arc<dyn PublishingLedger>;

    /// Expires the lease of a running gate.
    fn presume_dead(&self, owner: &str);
}

/// Runs the suite for several gates; `home` creates an empty home per test.
pub async fn gates(home: impl Fn() -> Box<dyn PublishingGates>) {
    gates_that_offer_at_once_begin_a_revision_once(&*home()).await;
    publications_of_a_dead_gate_become_ambiguous_and_are_not_repeated(&*home()).await;
}

async fn gates_that_offer_at_once_begin_a_revision_once(home: &dyn PublishingGates) {
    let gates = ["a", "b", "c"].map(|owner| home.open(owner));
    let mut ids = Vec::new();
    for group in ["g", "h", "i", "j"] {
        ids.push(outcome_field(
            &record_event(&*gates[0], source_event(OPENER, group, 1_010, 1)).await,
            "record_id",
        ));
    }
    let all: Vec<Offer> = ids.iter().map(|id| offer(id, 1)).collect();
    let racing = gates.iter().map(|gate| gate.offer(all.clone(), Millis(2_000)));
    let mut begun = Vec::new();
    for (gate, offered) in gates.iter().zip(join_all(racing).await) {
        let offered = offered.expect("the ledger answers");
        begun.extend(offered.into_iter().flatten().map(|one| (gate, one)));
    }
    assert_eq!(begun.len(), ids.len(), "each of them by one gate");
    let mut places: Vec<u64> = begun.iter().map(|(_, one)| one.n).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), ids.len());
    for (gate, one) in begun {
        for other in gates.iter().filter(|other| !Arc::ptr_eq(other, gate)) {
            let lost = other.recover_publications(DOOR.to_owned(), Millis(3_000)).await;
            assert!(lost.expect("the ledger answers").is_empty(), "its gate is alive");
            let taken = take(other, settled(&one, Outcome::Done)).await;
            assert_eq!(taken, Err(IllegalStep::NotInFlight), "it is not theirs");
        }
        settle(gate, &one, Outcome::Done).await;
        assert_eq!(source_states(gate, &one.record_id).await[0], "1 published");
    }
}

async fn publications_of_a_dead_gate_become_ambiguous_and_are_not_repeated(
    home: &dyn PublishingGates,
) {
    let [silent, living] = ["silent", "living"].map(|owner| home.open(owner));
    let id = opened(&silent).await;
    let begun = begin(&silent, &id, 1).await.expect("it waits");
    home.presume_dead("silent");
    let lost = living.recover_publications(DOOR.to_owned(), Millis(4_000)).await;
    let lost: Vec<u64> = lost.expect("the ledger answers").iter().map(|one| one.n).collect();
    assert_eq!(lost, [begun.n]);
    let again = living.recover_publications(DOOR.to_owned(), Millis(4_000)).await;
    assert!(again.expect("the ledger answers").is_empty(), "once is enough");
    assert!(waiting(&living).await.is_empty(), "it is not repeated");
    assert_eq!(begin(&living, &id, 1).await, None);
    let stood = source_states(&living, &id).await;
    assert_eq!(stood, ["1 publish_failed", "opener publish_failed publish_unknown"]);
    // It was not dead. Its evidence is kept and settles nothing.
    let late = take(&silent, settled(&begun, Outcome::Done)).await;
    assert_eq!(late, Err(IllegalStep::NotInFlight));
    let step = Step::Evidence { attempt: 1, evidence: evidence("it is there") };
    let kept =
        take(&silent, PublicationStep { n: begun.n, step, reason: None, acknowledged: None }).await;
    assert!(matches!(kept.expect("kept").state, EffectState::Ambiguous(_)));
    let steps = living.publication_history(begun.n).await.expect("readable");
    let states: Vec<&str> = steps.iter().map(|step| step.what.as_str()).collect();
    assert_eq!(states, ["in_flight", "ambiguous", "evidence"]);
    reconcile(&living, begun.n, ReconcileOutcome::Refused).await.expect("it is ambiguous");
    let next = begin(&silent, &id, 1).await.expect("released");
    assert_eq!((next.n, next.state.attempt()), (begun.n, 2));
    settle(&silent, &next, Outcome::Done).await;
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn PublishingHome>) {
    a_revision_is_begun_once_and_only_if_current(&*home()).await;
    a_publication_marks_its_events(&*home()).await;
    later_events_are_published_with_the_next_revision(&*home()).await;
    an_unknown_outcome_is_kept_and_not_offered_again(&*home()).await;
    an_operator_reconciles_it(&*home()).await;
    an_event_without_values_shares_the_state_of_its_entity(&*home()).await;
    a_restart_makes_publications_in_flight_ambiguous(&*home()).await;
    publications_are_counted_and_their_steps_are_kept(&*home()).await;
    for seed in 0..12 {
        any_order_and_any_crash_publish_a_revision_once_at_most(&*home(), seed).await;
    }
}

/// Shared ledger with publications.
pub type SharedLedger = Arc<dyn PublishingLedger>;

fn offer(record_id: &str, revision: u64) -> Offer {
    Offer {
        door: DOOR.to_owned(),
        record_id: record_id.to_owned(),
        revision,
        topic: "records".to_owned(),
        partition_key: record_id.to_owned(),
        dedupe_key: format!("{record_id}-{revision}"),
        digest: Digest::of(b"message"),
    }
}

async fn begin(ledger: &SharedLedger, record_id: &str, revision: u64) -> Option<Publication> {
    let mut begun = ledger.offer(vec![offer(record_id, revision)], Millis(2_000)).await;
    begun.as_mut().expect("the ledger answers").pop().expect("one answer")
}

fn evidence(reason: &str) -> Evidence {
    Evidence::of(&Object::from_iter([("reason", Value::from(reason))]))
}

fn settled(of: &Publication, outcome: Outcome) -> PublicationStep {
    let reason = (outcome != Outcome::Done).then_some(PUBLISH_UNKNOWN);
    let attempt = of.state.attempt();
    let step = Step::Settle { attempt, outcome, evidence: evidence("bus"), reply: None };
    PublicationStep { n: of.n, step, reason, acknowledged: None }
}

async fn take(ledger: &SharedLedger, step: PublicationStep) -> Result<Publication, IllegalStep> {
    let taken = ledger.step_publications(vec![step], Millis(3_000)).await;
    taken.expect("the ledger answers").pop().expect("one answer")
}

async fn settle(ledger: &SharedLedger, of: &Publication, outcome: Outcome) -> Publication {
    take(ledger, settled(of, outcome)).await.expect("it is in flight")
}

async fn reconcile(
    ledger: &SharedLedger,
    n: u64,
    found: ReconcileOutcome,
) -> Result<Publication, IllegalStep> {
    let by = Attribution { who: "ann".to_owned(), why: Some("looked".to_owned()) };
    let step = Step::Reconcile { by, found, evidence: evidence("found") };
    take(ledger, PublicationStep { n, step, reason: None, acknowledged: None }).await
}

async fn waiting(ledger: &SharedLedger) -> Vec<(String, u64)> {
    let found = ledger.unoffered(DOOR.to_owned(), 100).await.expect("readable");
    found.into_iter().map(|one| (one.record_id, one.revision)).collect()
}

/// Sources of an entity with their states, in ledger order.
async fn source_states(ledger: &SharedLedger, record_id: &str) -> Vec<String> {
    let found = detail(&**ledger, record_id).await;
    let event = |event: &admit_ledger::port::EventLine| {
        format!("{} {} {}", event.source, event.state, event.reason_code)
    };
    let mut stand = vec![format!("{} {}", found.line.revision, found.line.state)];
    stand.extend(found.events.iter().map(event));
    stand
}

/// Leaves one published entity and one in flight for the next process. Returns the id of the
/// latter.
pub async fn leave_on_the_way(ledger: &SharedLedger) -> String {
    let out = outcome_field(
        &record_event(&**ledger, source_event(OPENER, "i", 1_010, 1)).await,
        "record_id",
    );
    let begun = begin(ledger, &out, 1).await.expect("it waits");
    settle(ledger, &begun, Outcome::Done).await;
    let id = opened(ledger).await;
    begin(ledger, &id, 1).await.expect("it waits");
    id
}

/// Checks that the publications left by [`leave_on_the_way`] are recovered.
pub async fn recover_what_was_left(ledger: &SharedLedger, id: &str) {
    let lost = ledger.recover_publications(DOOR.to_owned(), Millis(5_000)).await;
    let [lost] = lost.expect("the ledger answers").try_into().expect("one was in flight");
    assert_eq!((lost.record_id.as_str(), lost.state.word()), (id, "ambiguous"));
    assert_eq!(source_states(ledger, id).await[0], "1 publish_failed");
    assert!(waiting(ledger).await.is_empty(), "nothing is handed over a second time");
    let all = ledger.publications(DOOR.to_owned(), 0, 10).await.expect("readable");
    assert_eq!(all.iter().map(|one| one.n).collect::<Vec<_>>(), [1, 2]);
    record_event(&**ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    let next = begin(ledger, id, 2).await.expect("it has new content");
    assert_eq!(next.n, 3, "numbers go on");
}

async fn opened(ledger: &SharedLedger) -> String {
    outcome_field(&record_event(&**ledger, source_event(OPENER, "g", 1_010, 1)).await, "record_id")
}

async fn a_revision_is_begun_once_and_only_if_current(home: &dyn PublishingHome) {
    let ledger = home.open();
    let id = opened(&ledger).await;
    assert_eq!(waiting(&ledger).await, [(id.clone(), 1)]);
    assert_eq!(begin(&ledger, &id, 2).await, None, "not that revision yet");
    assert_eq!(begin(&ledger, "rec-none", 1).await, None);
    let racing = (0..8).map(|_| begin(&ledger, &id, 1));
    let begun: Vec<Publication> = join_all(racing).await.into_iter().flatten().collect();
    let [begun] = begun.try_into().expect("one of them begins it");
    assert_eq!((begun.state.word(), begun.state.attempt()), ("in_flight", 1));
    assert!(waiting(&ledger).await.is_empty());
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    assert_eq!(waiting(&ledger).await, [(id.clone(), 2)]);
    assert_eq!(begin(&ledger, &id, 1).await, None, "outdated revision");
    assert!(begin(&ledger, &id, 2).await.is_some(), "however the one before ends");
}

async fn a_publication_marks_its_events(home: &dyn PublishingHome) {
    let ledger = home.open();
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    let id = opened(&ledger).await;
    let before = source_states(&ledger, &id).await;
    assert_eq!(before, ["1 enriched", "reporter enriched resolved", "opener enriched resolved"]);
    let begun = begin(&ledger, &id, 1).await.expect("it waits");
    assert_eq!(source_states(&ledger, &id).await, before, "in flight is not out");
    let done = settle(&ledger, &begun, Outcome::Done).await;
    assert!(matches!(done.state, EffectState::Done(_)));
    let after = source_states(&ledger, &id).await;
    assert_eq!(after, ["1 published", "reporter published resolved", "opener published resolved"]);
    let found = detail(&*ledger, &id).await;
    let out: Vec<_> = found.steps.iter().filter(|step| step.to == "published").collect();
    assert_eq!(out.len(), 2);
    for step in out {
        assert_eq!(
            (step.from.as_str(), step.link_status.as_str()),
            ("enriched", "linked_round_id")
        );
        assert_eq!(step.record_id.as_deref(), Some(id.as_str()));
        assert!(step.fingerprint.is_some() && !step.confidence.is_empty());
    }
    // Copies and relinking do not change it.
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    assert_eq!(source_states(&ledger, &id).await, after);
    assert!(waiting(&ledger).await.is_empty());
    assert_eq!(take(&ledger, settled(&done, Outcome::Done)).await, Err(IllegalStep::NotInFlight));
}

async fn later_events_are_published_with_the_next_revision(home: &dyn PublishingHome) {
    let ledger = home.open();
    let id = opened(&ledger).await;
    let first = begin(&ledger, &id, 1).await.expect("it waits");
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    settle(&ledger, &first, Outcome::Done).await;
    let stood = source_states(&ledger, &id).await;
    assert_eq!(stood, ["2 enriched", "opener published resolved", "reporter enriched resolved"]);
    let second = begin(&ledger, &id, 2).await.expect("it waits");
    settle(&ledger, &second, Outcome::Done).await;
    let stood = source_states(&ledger, &id).await;
    assert_eq!(stood, ["2 published", "opener published resolved", "reporter published resolved"]);
    let found = detail(&*ledger, &id).await;
    let out = found.steps.iter().filter(|step| step.to == "published").count();
    assert_eq!(out, 2, "each is published with the first revision that has it in it");
    let revisions = ledger.publications_of(DOOR.to_owned(), id).await.expect("readable");
    assert_eq!(revisions.iter().map(|one| one.revision).collect::<Vec<_>>(), [2, 1]);
}

async fn an_unknown_outcome_is_kept_and_not_offered_again(home: &dyn PublishingHome) {
    let ledger = home.open();
    let id = opened(&ledger).await;
    let begun = begin(&ledger, &id, 1).await.expect("it waits");
    settle(&ledger, &begun, Outcome::Ambiguous).await;
    let stood = source_states(&ledger, &id).await;
    assert_eq!(stood, ["1 publish_failed", "opener publish_failed publish_unknown"]);
    assert!(waiting(&ledger).await.is_empty(), "nothing repeats it by itself");
    assert_eq!(begin(&ledger, &id, 1).await, None);
    let listed = ledger.ambiguous_publications(DOOR.to_owned(), 0, 10).await.expect("readable");
    assert_eq!(listed.iter().map(|one| one.n).collect::<Vec<_>>(), [begun.n]);
    let late = Step::Evidence { attempt: 1, evidence: evidence("it is there") };
    let kept =
        take(&ledger, PublicationStep { n: begun.n, step: late, reason: None, acknowledged: None })
            .await;
    assert!(matches!(kept.expect("kept").state, EffectState::Ambiguous(_)), "nothing is promoted");
    // A later revision is published separately, with all unpublished events.
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    let second = begin(&ledger, &id, 2).await.expect("it has new content");
    settle(&ledger, &second, Outcome::Done).await;
    let stood = source_states(&ledger, &id).await;
    assert_eq!(stood, ["2 published", "opener published resolved", "reporter published resolved"]);
    let steps = detail(&*ledger, &id).await.steps;
    let of_opener = steps.iter().filter(|step| step.source == OPENER && step.from == "enriched");
    let taken: Vec<String> =
        of_opener.map(|step| format!("{} {}", step.attempt, step.to)).collect();
    assert_eq!(taken, ["1 publish_failed", "2 published"]);
    let listed = ledger.ambiguous_publications(DOOR.to_owned(), 0, 10).await.expect("readable");
    assert_eq!(listed.len(), 1, "the first is still unknown");
}

async fn an_operator_reconciles_it(home: &dyn PublishingHome) {
    let ledger = home.open();
    let id = opened(&ledger).await;
    let begun = begin(&ledger, &id, 1).await.expect("it waits");
    assert_eq!(
        reconcile(&ledger, begun.n, ReconcileOutcome::Done).await,
        Err(IllegalStep::NotAmbiguous)
    );
    settle(&ledger, &begun, Outcome::Ambiguous).await;
    reconcile(&ledger, begun.n, ReconcileOutcome::Refused).await.expect("it is ambiguous");
    assert_eq!(waiting(&ledger).await, [(id.clone(), 1)], "it may be handed over again");
    let again = begin(&ledger, &id, 1).await.expect("it is released");
    assert_eq!((again.n, again.state.attempt()), (begun.n, 2), "as the next attempt");
    settle(&ledger, &again, Outcome::Ambiguous).await;
    reconcile(&ledger, begun.n, ReconcileOutcome::Done).await.expect("it is ambiguous");
    let stood = source_states(&ledger, &id).await;
    assert_eq!(stood, ["1 published", "opener published resolved"]);
    assert!(waiting(&ledger).await.is_empty());
    // An outdated revision is not offered again.
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    let second = begin(&ledger, &id, 2).await.expect("it has new content");
    settle(&ledger, &second, Outcome::Ambiguous).await;
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 7)).await;
    reconcile(&ledger, second.n, ReconcileOutcome::Refused).await.expect("it is ambiguous");
    assert_eq!(waiting(&ledger).await, [(id.clone(), 3)]);
    assert_eq!(begin(&ledger, &id, 2).await, None);
}

async fn an_event_without_values_shares_the_state_of_its_entity(home: &dyn PublishingHome) {
    let ledger = home.open();
    record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    let id = opened(&ledger).await;
    let begun = begin(&ledger, &id, 1).await.expect("it waits");
    settle(&ledger, &begun, Outcome::Done).await;
    // The values of the witness are overruled by other sources.
    let witness = record_event(&*ledger, source_event(WITNESS, "g", 1_000, 3)).await;
    assert_eq!(outcome_field(&witness, "state"), "published");
    let found = detail(&*ledger, &id).await;
    assert_eq!((found.line.revision, found.line.state.as_str()), (1, "published"));
    assert!(found.events.iter().all(|event| event.state == "published"));
    assert!(waiting(&ledger).await.is_empty());
}

async fn a_restart_makes_publications_in_flight_ambiguous(home: &dyn PublishingHome) {
    let ledger = home.open();
    let flying = opened(&ledger).await;
    let resting = outcome_field(
        &record_event(&*ledger, source_event(OPENER, "h", 1_010, 1)).await,
        "record_id",
    );
    let done = outcome_field(
        &record_event(&*ledger, source_event(OPENER, "i", 1_010, 1)).await,
        "record_id",
    );
    let begun = begin(&ledger, &flying, 1).await.expect("it waits");
    let out = begin(&ledger, &done, 1).await.expect("it waits");
    settle(&ledger, &out, Outcome::Done).await;
    let mine = ledger.recover_publications(DOOR.to_owned(), Millis(4_000)).await;
    assert!(mine.expect("the ledger answers").is_empty(), "its own flights are its own business");
    drop(ledger);
    let ledger = home.open();
    let lost = ledger.recover_publications(DOOR.to_owned(), Millis(5_000)).await;
    let lost: Vec<u64> = lost.expect("the ledger answers").iter().map(|one| one.n).collect();
    assert_eq!(lost, [begun.n]);
    let stood = source_states(&ledger, &flying).await;
    assert_eq!(stood, ["1 publish_failed", "opener publish_failed publish_unknown"]);
    assert_eq!(waiting(&ledger).await, [(resting, 1)], "what was not begun is still to be done");
    assert_eq!(source_states(&ledger, &done).await[0], "1 published");
    assert_eq!(take(&ledger, settled(&begun, Outcome::Done)).await, Err(IllegalStep::NotInFlight));
}

async fn publications_are_counted_and_their_steps_are_kept(home: &dyn PublishingHome) {
    let ledger = home.open();
    let id = opened(&ledger).await;
    let counts = async || ledger.publication_counts(DOOR.to_owned()).await.expect("readable");
    let before = counts().await;
    assert_eq!((before.waiting, before.of("in_flight")), (1, 0));
    assert!(before.waiting_since.is_some());
    let begun = begin(&ledger, &id, 1).await.expect("it waits");
    assert_eq!((counts().await.waiting, counts().await.of("in_flight")), (0, 1));
    settle(&ledger, &begun, Outcome::Ambiguous).await;
    reconcile(&ledger, begun.n, ReconcileOutcome::Done).await.expect("it is ambiguous");
    assert_eq!(counts().await.of("done"), 1);
    let steps = ledger.publication_history(begun.n).await.expect("readable");
    let states: Vec<String> = steps.iter().map(|step| step.what.clone()).collect();
    assert_eq!(states, ["in_flight", "ambiguous", "done"]);
    assert_eq!(steps[2].by.as_ref().map(|by| by.who.as_str()), Some("ann"));
    let listed = ledger.publications(DOOR.to_owned(), 0, 10).await.expect("readable");
    let [listed] = listed.try_into().expect("one publication");
    assert_eq!((listed.n, listed.digest), (begun.n, Digest::of(b"message")));
    let beyond = ledger.publications(DOOR.to_owned(), begun.n, 10).await.expect("readable");
    assert!(beyond.is_empty());
    let named = ledger.publication(DOOR.to_owned(), begun.dedupe_key.clone()).await;
    assert_eq!(named.expect("readable").expect("it is there").n, begun.n);
    assert_eq!(ledger.publication(DOOR.to_owned(), "x".to_owned()).await.expect("readable"), None);
}

/// Publisher that may crash between any two steps, and a bus with numbered messages.
#[derive(Default)]
struct CrashingPublisher {
    in_flight: Vec<Publication>,
    landed: Vec<(Publication, Outcome)>,
    on_the_bus: BTreeMap<String, u32>,
}

impl CrashingPublisher {
    async fn act(&mut self, ledger: &SharedLedger, rng: &mut Rng) {
        match rng.below(3) {
            0 => {
                for (record_id, revision) in waiting(ledger).await {
                    self.in_flight.extend(begin(ledger, &record_id, revision).await);
                }
            }
            1 => {
                for begun in self.in_flight.drain(..) {
                    let outcome = match rng.below(3) {
                        0 => Outcome::Ambiguous,
                        _ => Outcome::Done,
                    };
                    // It may have been written although the outcome is unknown.
                    if outcome == Outcome::Done || rng.below(2) == 0 {
                        *self.on_the_bus.entry(begun.dedupe_key.clone()).or_default() += 1;
                    }
                    self.landed.push((begun, outcome));
                }
            }
            _ => {
                for (begun, outcome) in self.landed.drain(..) {
                    settle(ledger, &begun, outcome).await;
                }
            }
        }
    }

    fn dies(&mut self) {
        self.in_flight.clear();
        self.landed.clear();
    }
}

async fn any_order_and_any_crash_publish_a_revision_once_at_most(
    home: &dyn PublishingHome,
    seed: u64,
) {
    let mut rng = Rng::seeded(seed + 1);
    let mut ledger = home.open();
    let mut publisher = CrashingPublisher::default();
    let mut events = vec![
        source_event(OPENER, "g", 1_010, 1),
        source_event(REPORTER, "g", 1_000, 2),
        source_event(WITNESS, "g", 1_000, 3),
    ];
    while !events.is_empty() {
        let next = usize::try_from(rng.below(events.len() as u64)).expect("few");
        let event = if rng.below(4) == 0 { events[next].clone() } else { events.remove(next) };
        record_event(&*ledger, event).await;
        for _ in 0..rng.below(4) {
            publisher.act(&ledger, &mut rng).await;
        }
        if rng.below(3) == 0 {
            publisher.dies();
            drop(ledger);
            ledger = home.open();
            ledger.recover_publications(DOOR.to_owned(), Millis(9_000)).await.expect("recovers");
        }
    }
    while !waiting(&ledger).await.is_empty()
        || !publisher.landed.is_empty()
        || !publisher.in_flight.is_empty()
    {
        publisher.act(&ledger, &mut rng).await;
    }
    let [line] = list(&*ledger).await.try_into().expect("one record");
    let found = detail(&*ledger, &line.record_id).await;
    let lines = gist(&found);
    for wanted in ["winner 2 reporter", "by \"reporter\" reporter"] {
        assert!(lines.iter().any(|line| line == wanted), "seed {seed}: {wanted} in {lines:#?}");
    }
    assert!(publisher.on_the_bus.values().all(|times| *times == 1), "seed {seed}: sent twice");
    let all = ledger.publications_of(DOOR.to_owned(), line.record_id).await.expect("readable");
    assert_eq!(all[0].revision, line.revision, "seed {seed}: the newest was handed over");
    for one in &all {
        let times = publisher.on_the_bus.get(&one.dedupe_key).copied().unwrap_or_default();
        match &one.state {
            EffectState::Done(_) => assert_eq!(times, 1, "seed {seed}: done is on the bus"),
            EffectState::Ambiguous(_) => {}
            other @ (EffectState::Withheld(_)
            | EffectState::Intended(_)
            | EffectState::InFlight(_)
            | EffectState::Refused(_)) => panic!("seed {seed}: {other:?} is no end"),
        }
    }
    let known: Vec<&str> = all.iter().map(|one| one.dedupe_key.as_str()).collect();
    assert!(publisher.on_the_bus.keys().all(|key| known.contains(&key.as_str())), "seed {seed}");
    let is_out = matches!(all[0].state, EffectState::Done(_));
    let state = if is_out { "published" } else { "publish_failed" };
    assert_eq!(found.line.state, state, "seed {seed}");
    for event in &found.events {
        assert!(
            event.state == "published" || (!is_out && event.state == "publish_failed"),
            "seed {seed}: {} is {}",
            event.source,
            event.state
        );
    }
}
