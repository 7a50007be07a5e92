//! Contract suite of the records port: entities merged from several sources.

use std::sync::Arc;

use admit_core::entity::{
    Acceptance, CandidateSet, EntityInput, EntityRule, EventFields, FieldDomain, NumberTrust,
    Policy, ReplayRule, Resolution, SourceEvent, SourcePolicy,
};
use admit_core::json::{Object, Value};
use admit_core::{Digest, Door, Entry, Event, Key, Millis, OnOtherContent, RecordedEntry, Seq};
use admit_ledger::WholeLedger;
use admit_ledger::port::{
    AcceptError, AcceptedEvent, CountsFilter, RecordDetail, RecordFilter, RecordLine,
};
use futures_util::future::join_all;

use crate::event::{DOOR, event};
use crate::ledger_suite::Home;
use crate::rng::Rng;

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    an_entity_is_merged_in_the_commit_of_its_event(&*home()).await;
    any_order_gives_the_same_entity(&*home()).await;
    copies_change_nothing_and_revisions_apply(&*home()).await;
    events_of_one_batch_see_each_other(&*home()).await;
    a_restart_between_any_two_events_changes_nothing(&*home()).await;
    a_rule_that_breaks_fails_its_own_event_only(&*home()).await;
    linking_again_uses_the_policy_it_is_given(&*home()).await;
    an_accepted_event_keeps_precedence(&*home()).await;
    records_are_listed_and_counted(&*home()).await;
    events_are_linked_correctly_in_crowded_ranges(&*home()).await;
}

pub(crate) const OPENER: &str = "opener";
pub(crate) const REPORTER: &str = "reporter";
pub(crate) const WITNESS: &str = "witness";

const fn source(name: &'static str, opens: bool, replay: ReplayRule) -> SourcePolicy {
    SourcePolicy {
        name,
        family: name,
        opens,
        is_led: false,
        replay,
        number: NumberTrust::Trusted,
        stamp: None,
    }
}

const OVERWRITE: ReplayRule = ReplayRule::Overwrite { keeps: &[] };

const SOURCES: &[SourcePolicy] = &[
    source(REPORTER, false, OVERWRITE),
    source(WITNESS, false, OVERWRITE),
    source(OPENER, true, ReplayRule::Skip),
];

const DOMAINS: &[FieldDomain] = &[FieldDomain {
    name: "outcome",
    fields: &["winner"],
    authority: &[REPORTER],
    is_exclusive: false,
    is_total: false,
    is_whole: false,
    row_key: None,
}];

pub(crate) fn policy(window_seconds: i64) -> Arc<Policy> {
    Arc::new(Policy {
        sources: SOURCES,
        domains: DOMAINS,
        order: &[REPORTER, WITNESS, OPENER],
        window_seconds,
        span_seconds: 60,
        tolerance_seconds: 5,
        events_max: 100,
        id_prefix: "rec-",
        tables: &[],
    })
}

/// Event of `source` at `time` about entity 1 of `group`.
pub(crate) fn source_event(source: &str, group: &str, time: i64, winner: i64) -> SourceEvent {
    let hard_key = format!("{source}|{group}|{time}");
    let key = Key::derive(DOOR, &[hard_key.as_bytes()]);
    let mut event = SourceEvent::new(source, key, Millis(1_000));
    event.hard_key = Some(hard_key);
    event.group = group.to_owned();
    event.number = Some(1);
    event.event_time = Some(time);
    if source == OPENER {
        event.date = Some("2026-02-11".to_owned());
        event.time = Some(format!("{time:06}"));
    } else {
        event.end = Some(time);
    }
    event.enriches = true;
    let fields = [("winner", Value::from(winner)), ("by", Value::from(source.to_owned()))];
    event.fields = EventFields::of(&Object::from_iter(fields));
    event
}

pub(crate) fn entry(event: SourceEvent) -> Entry {
    ruled(event.clone(), Arc::new(EntityInput { policy: policy(100), event }))
}

fn ruled(input: SourceEvent, rule: Arc<dyn EntityRule>) -> Entry {
    let content = format!("{}{}", input.to_text(), input.fields.as_str());
    Entry::Event(Event {
        key: input.key,
        digest: Digest::of(content.as_bytes()),
        on_other_content: OnOtherContent::Revision,
        record: Some(rule),
        ..event("unnamed", &content)
    })
}

pub(crate) async fn record_event(ledger: &dyn WholeLedger, event: SourceEvent) -> RecordedEntry {
    let mut recorded = ledger.record(vec![entry(event)]).await;
    recorded.pop().expect("one answer").expect("recorded")
}

/// Member of the outcome in a result.
pub(crate) fn outcome_field(recorded: &RecordedEntry, name: &str) -> String {
    let outcome = recorded.outcome.as_ref().expect("an event of a record has an outcome");
    outcome.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn filter() -> RecordFilter {
    RecordFilter { door: DOOR.to_owned(), rows_max: 100, ..RecordFilter::default() }
}

pub(crate) async fn list(ledger: &dyn WholeLedger) -> Vec<RecordLine> {
    ledger.records(filter()).await.expect("readable")
}

pub(crate) async fn detail(ledger: &dyn WholeLedger, id: &str) -> RecordDetail {
    let found = ledger.record_of(DOOR.to_owned(), id.to_owned()).await;
    found.expect("readable").expect("it is there")
}

/// Entity without positions and times.
pub(crate) fn gist(detail: &RecordDetail) -> Vec<String> {
    let fields = detail.line.fields.iter();
    let mut gist: Vec<String> =
        fields.map(|field| format!("{} {} {}", field.name, field.value, field.source)).collect();
    let mut links: Vec<String> = detail
        .events
        .iter()
        .map(|event| format!("{} {} {}", event.source, event.state, event.reason_code))
        .collect();
    links.sort();
    gist.extend(links);
    gist.push(detail.fingerprints.clone());
    gist
}

async fn an_entity_is_merged_in_the_commit_of_its_event(home: &dyn Home) {
    let ledger = home.open();
    let early = record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    assert_eq!(outcome_field(&early, "link_status"), "unlinked");
    assert_eq!(outcome_field(&early, "reason_code"), "no_rows_for_map_round");
    assert!(list(&*ledger).await.is_empty(), "no entity is open");
    let opened = record_event(&*ledger, source_event(OPENER, "g", 1_010, 1)).await;
    assert_eq!(outcome_field(&opened, "state"), "enriched");
    let [line] = list(&*ledger).await.try_into().expect("one record");
    assert_eq!(line.record_id, outcome_field(&opened, "record_id"));
    let found = detail(&*ledger, &line.record_id).await;
    assert_eq!(found.events.len(), 2, "what came early is linked now");
    let winner = found.line.fields.iter().find(|field| field.name == "winner").expect("a value");
    assert_eq!((winner.value.as_str(), winner.source.as_str()), ("2", REPORTER));
    assert_eq!(Some(winner.event), early.verdict.seq());
    let steps: Vec<String> = found
        .steps
        .iter()
        .filter(|step| Some(step.seq) == early.verdict.seq())
        .map(|step| format!("{} {} {}", step.attempt, step.from, step.to))
        .collect();
    assert_eq!(
        steps,
        [
            "1 seen parsed",
            "1 parsed link_failed",
            "2 parsed linked_round_id",
            "2 linked_round_id enriched"
        ]
    );
    assert_eq!(detail_of_nothing(&*ledger).await, None);
}

async fn detail_of_nothing(ledger: &dyn WholeLedger) -> Option<RecordDetail> {
    ledger.record_of(DOOR.to_owned(), "rec-0".to_owned()).await.expect("readable")
}

async fn any_order_gives_the_same_entity(home: &dyn Home) {
    let ledger = home.open();
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut gists = Vec::new();
    for (n, order) in orders.into_iter().enumerate() {
        let group = format!("g{n}");
        let events = [
            source_event(OPENER, &group, 1_010, 1),
            source_event(REPORTER, &group, 1_000, 2),
            source_event(WITNESS, &group, 1_000, 3),
        ];
        for place in order {
            record_event(&*ledger, events[place].clone()).await;
            // A copy in between changes nothing.
            record_event(&*ledger, events[order[0]].clone()).await;
        }
        let wanted = RecordFilter { group: Some(group.clone()), ..filter() };
        let found = ledger.records(wanted).await.expect("readable");
        let [line] = found.try_into().expect("one record");
        let found = gist(&detail(&*ledger, &line.record_id).await);
        gists.push(found.join("\n").replace(&group, "g"));
    }
    assert!(gists.iter().all(|gist| *gist == gists[0]), "{gists:#?}");
    assert!(gists[0].contains("winner 2 reporter"), "{}", gists[0]);
}

/// Gates with a shared ledger receive events about the same entities concurrently, each from
/// another source: one entity each, the same for all gates, without deadlocks.
pub async fn concurrent_gates_merge_one_entity(gates: &[Arc<dyn WholeLedger>]) {
    const ENTITIES: usize = 24;
    let groups: Vec<String> = (0..ENTITIES).map(|n| format!("g{n}")).collect();
    let recordings = groups.iter().enumerate().flat_map(|(n, group)| {
        let events = [
            source_event(OPENER, group, 1_010, 1),
            source_event(REPORTER, group, 1_000, 2),
            source_event(WITNESS, group, 1_000, 3),
            // Same event at another gate.
            source_event(REPORTER, group, 1_000, 2),
        ];
        events.into_iter().enumerate().map(move |(source, event)| {
            let gate = Arc::clone(&gates[(n + source) % gates.len()]);
            async move { record_event(&*gate, event).await.verdict.word() }
        })
    });
    let words = join_all(recordings).await;
    for words in words.chunks(4) {
        let copies = words.iter().filter(|word| **word == "duplicate").count();
        assert_eq!(copies, 1, "one of the two tellings is a copy: {words:?}");
    }
    let mut gists = Vec::new();
    for group in &groups {
        let wanted = RecordFilter { group: Some(group.clone()), ..filter() };
        let found = gates[0].records(wanted).await.expect("readable");
        let [line] = found.try_into().expect("one record");
        let found = detail(&*gates[gates.len() - 1], &line.record_id).await;
        assert_eq!(found.events.len(), 3);
        gists.push(gist(&found).join("\n").replace(&format!("\"{group}\""), "\"g\""));
    }
    let named = |gist: &str, group: &str| gist.replace(group, "g");
    let first = named(&gists[0], &groups[0]);
    for (gist, group) in gists.iter().zip(&groups) {
        assert_eq!(named(gist, group), first);
    }
}

async fn copies_change_nothing_and_revisions_apply(home: &dyn Home) {
    let ledger = home.open();
    record_event(&*ledger, source_event(OPENER, "g", 1_010, 1)).await;
    let first = record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    let id = outcome_field(&first, "record_id");
    let before = detail(&*ledger, &id).await;
    let copy = record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    assert_eq!(copy.verdict.word(), "duplicate");
    assert_eq!(outcome_field(&copy, "record_id"), id, "a copy gets the outcome of the first");
    let after = detail(&*ledger, &id).await;
    assert_eq!((after.line, after.steps), (before.line.clone(), before.steps));
    let newer = record_event(&*ledger, source_event(REPORTER, "g", 1_000, 7)).await;
    assert_eq!(newer.verdict.word(), "revision");
    let found = detail(&*ledger, &id).await;
    assert_eq!(found.line.revision, before.line.revision + 1);
    assert_eq!(found.events.len(), 3, "both tellings are kept");
    assert!(gist(&found).contains(&"winner 7 reporter".to_owned()));
    let late = record_event(&*ledger, source_event(REPORTER, "g", 1_000, 2)).await;
    assert_eq!(late.verdict.word(), "duplicate", "an old version is a late copy");
    assert!(gist(&detail(&*ledger, &id).await).contains(&"winner 7 reporter".to_owned()));
}

async fn events_of_one_batch_see_each_other(home: &dyn Home) {
    let ledger = home.open();
    let batch = [
        source_event(REPORTER, "g", 1_000, 2),
        source_event(OPENER, "g", 1_010, 1),
        source_event(WITNESS, "g", 1_000, 3),
    ];
    let recorded = ledger.record(batch.map(entry).to_vec()).await;
    assert!(recorded.iter().all(Result::is_ok));
    let [line] = list(&*ledger).await.try_into().expect("one record");
    assert_eq!(detail(&*ledger, &line.record_id).await.events.len(), 3);
}

async fn a_restart_between_any_two_events_changes_nothing(home: &dyn Home) {
    let events = || {
        [
            source_event(WITNESS, "g", 1_000, 3),
            source_event(OPENER, "g", 1_010, 1),
            source_event(REPORTER, "g", 1_000, 2),
        ]
    };
    for event in events() {
        let ledger = home.open();
        assert_eq!(record_event(&*ledger, event).await.verdict.word(), "fresh");
    }
    let ledger = home.open();
    let [line] = list(&*ledger).await.try_into().expect("one record");
    let before = gist(&detail(&*ledger, &line.record_id).await);
    for event in events() {
        assert_eq!(record_event(&*ledger, event).await.verdict.word(), "duplicate");
    }
    assert_eq!(gist(&detail(&*ledger, &line.record_id).await), before);
}

/// Faulty rule.
#[derive(Debug)]
struct BrokenRule(EntityInput);

impl EntityRule for BrokenRule {
    fn event(&self) -> &SourceEvent {
        &self.0.event
    }

    fn policy(&self) -> &Policy {
        &self.0.policy
    }

    fn resolve(&self, _: CandidateSet<'_>) -> Resolution {
        panic!("on purpose")
    }
}

async fn a_rule_that_breaks_fails_its_own_event_only(home: &dyn Home) {
    let ledger = home.open();
    let event = source_event(REPORTER, "g", 1_000, 2);
    let broken = BrokenRule(EntityInput { policy: policy(100), event: event.clone() });
    let batch =
        vec![entry(source_event(OPENER, "g", 1_010, 1)), ruled(event.clone(), Arc::new(broken))];
    let recorded = ledger.record(batch).await;
    assert!(recorded[0].is_ok() && recorded[1].is_err());
    let [line] = list(&*ledger).await.try_into().expect("the other one is there");
    assert_eq!(detail(&*ledger, &line.record_id).await.events.len(), 1);
    assert_eq!(
        record_event(&*ledger, event).await.verdict.word(),
        "fresh",
        "nothing of it was kept"
    );
}

async fn linking_again_uses_the_policy_it_is_given(home: &dyn Home) {
    let ledger = home.open();
    record_event(&*ledger, source_event(OPENER, "g", 1_000, 1)).await;
    let apart = record_event(&*ledger, source_event(REPORTER, "g", 1_200, 2)).await;
    assert_eq!(outcome_field(&apart, "reason_code"), "all_candidates_outside_window");
    let relink = async |window, is_dry| {
        let door = DOOR.to_owned();
        let done = ledger.relink(door, policy(window), Millis(5_000), is_dry).await;
        let done = done.expect("looked at");
        (done.scanned, done.updated)
    };
    assert_eq!(relink(100, false).await, (1, 0), "nothing has changed");
    assert_eq!(relink(300, true).await, (1, 1));
    let open = async || {
        let open = ledger.open_events(DOOR.to_owned(), Seq(0), 10).await.expect("readable");
        open.len()
    };
    assert_eq!(open().await, 1, "it was only tried");
    assert_eq!(relink(300, false).await, (1, 1));
    assert_eq!(open().await, 0);
    let [line] = list(&*ledger).await.try_into().expect("one record");
    let found = detail(&*ledger, &line.record_id).await;
    assert_eq!(found.events.len(), 2);
    assert!(gist(&found).contains(&"winner 2 reporter".to_owned()));
}

async fn an_accepted_event_keeps_precedence(home: &dyn Home) {
    let ledger = home.open();
    let opener = |winner| source_event(OPENER, "g", 1_010, winner);
    let word = |by: &str, at| Acceptance { by: by.to_owned(), reason: "cut off".to_owned(), at };
    let accept = async |seq, by: &str| {
        let (door, word) = (DOOR.to_owned(), word(by, Millis(5_000)));
        ledger.accept(door, policy(100), seq, word).await.expect("looked at")
    };
    let first = record_event(&*ledger, opener(1)).await;
    let second = record_event(&*ledger, opener(2)).await;
    let (id, later) = (outcome_field(&first, "record_id"), second.verdict.seq().expect("kept"));
    let winner = async || {
        let found = detail(&*ledger, &id).await;
        let field = found.line.fields.iter().find(|field| field.name == "winner").expect("a value");
        (field.value.clone(), field.event, found.line.revision)
    };
    let first = first.verdict.seq().expect("kept");
    assert_eq!(winner().await, ("1".to_owned(), first, 1), "a replay changes nothing");
    let accepted = |is_new| Ok(AcceptedEvent { record_id: id.clone(), is_new });
    assert_eq!(accept(later, "ann").await, accepted(true));
    assert_eq!(winner().await, ("2".to_owned(), later, 2));
    assert_eq!(accept(later, "bob").await, accepted(false), "once");
    assert_eq!(winner().await.2, 2);
    let found = detail(&*ledger, &id).await;
    let event = found.events.iter().find(|event| event.seq == later).expect("kept");
    assert_eq!(event.reason_code, "accepted");
    assert!(event.head.contains(r#""by":"ann","reason":"cut off""#), "{}", event.head);
    let steps = found.steps.iter().filter(|step| step.seq == later && step.attempt == 2);
    let steps: Vec<(&str, &str)> =
        steps.map(|step| (step.to.as_str(), step.reason_code.as_deref().unwrap_or(""))).collect();
    assert_eq!(steps, [("linked_round_id", "accepted"), ("enriched", "accepted")]);

    // A later one changes nothing until it is accepted; then the first again.
    let third = record_event(&*ledger, opener(3)).await.verdict.seq().expect("kept");
    assert_eq!(winner().await.0, "2");
    for (seq, value) in [(third, "3"), (first, "1"), (later, "2")] {
        assert_eq!(accept(seq, "ann").await, accepted(true));
        assert_eq!(winner().await.0, value);
    }
    let reporter = record_event(&*ledger, source_event(REPORTER, "h", 1_000, 2))
        .await
        .verdict
        .seq()
        .expect("kept");
    assert!(
        matches!(accept(reporter, "ann").await, Err(AcceptError::Unfit(_))),
        "it is linked nowhere"
    );
    assert_eq!(accept(Seq(9_999), "ann").await, Err(AcceptError::Unknown));
    drop(ledger);
    let again = detail(&*home.open(), &id).await;
    assert_eq!(again.line.revision, found.line.revision + 3, "it is kept");
}

async fn records_are_listed_and_counted(home: &dyn Home) {
    let ledger = home.open();
    for (group, time) in [("a", 1_000), ("b", 5_000), ("a", 9_000)] {
        record_event(&*ledger, source_event(OPENER, group, time, 1)).await;
    }
    record_event(&*ledger, source_event(REPORTER, "a", 1_000, 2)).await;
    record_event(&*ledger, source_event(REPORTER, "c", 1_000, 2)).await;
    let times = async |filter| {
        let found = ledger.records(filter).await.expect("readable");
        found.iter().filter_map(|line| line.event_time).collect::<Vec<_>>()
    };
    assert_eq!(times(filter()).await, [9_000, 5_000, 1_000], "the newest first");
    let of_a = RecordFilter { group: Some("a".to_owned()), ..filter() };
    assert_eq!(times(of_a).await, [9_000, 1_000]);
    let page = ledger.records(RecordFilter { rows_max: 2, ..filter() }).await.expect("readable");
    let last = page.last().expect("two records");
    let after = Some((last.event_time.expect("timed"), last.record_id.clone()));
    assert_eq!(times(RecordFilter { after, ..filter() }).await, [1_000]);
    let other_day = RecordFilter { date: Some("2026-02-12".to_owned()), ..filter() };
    assert!(times(other_day).await.is_empty());

    let filter_by = CountsFilter {
        recent_since: Millis(500),
        days_since: Millis(0),
        without: vec![REPORTER.to_owned()],
        newest: 2,
    };
    let counts = ledger.record_counts(DOOR.to_owned(), filter_by).await.expect("readable");
    let of = |name: &str| {
        let found = counts.sources.iter().find(|source| source.source == name).expect("counted");
        (found.total, found.unlinked, found.recent)
    };
    assert_eq!((of(OPENER), of(REPORTER)), ((3, 0, 3), (2, 1, 2)));
    assert_eq!(counts.states, [("enriched".to_owned(), 3)]);
    assert_eq!(counts.record_days, [("2026-02-11".to_owned(), 3, 2)]);
    assert_eq!(counts.newest.len(), 2);
    let elsewhere = RecordFilter { door: Door::new("other").to_string(), ..filter() };
    assert!(times(elsewhere).await.is_empty());
}

async fn events_are_linked_correctly_in_crowded_ranges(home: &dyn Home) {
    const PAIRS: i64 = 150;
    let ledger = home.open();
    let mut events: Vec<SourceEvent> = (0..PAIRS)
        .flat_map(|n| [OPENER, REPORTER].map(|source| source_event(source, "g", 10_000 + 2 * n, n)))
        .collect();
    // The range of each contains many more events than the limit.
    let policy = policy(100);
    let range = policy.range(&events[0]);
    assert!(range.events_max < events.len() && range.to - range.from > 2 * PAIRS);
    let mut rng = Rng::seeded(7);
    while !events.is_empty() {
        let next = usize::try_from(rng.below(events.len() as u64)).expect("few");
        record_event(&*ledger, events.swap_remove(next)).await;
    }
    let mut filter = RecordFilter { rows_max: 1_000, ..filter() };
    filter.group = Some("g".to_owned());
    let found = ledger.records(filter).await.expect("readable");
    assert_eq!(found.len(), usize::try_from(PAIRS).expect("few"));
    for line in found {
        let found = detail(&*ledger, &line.record_id).await;
        let times: Vec<&str> = found.events.iter().map(|event| event.source.as_str()).collect();
        assert_eq!(times.len(), 2, "{:?} at {:?}", times, line.event_time);
        let winner =
            found.line.fields.iter().find(|field| field.name == "winner").expect("a value");
        let own = (line.event_time.expect("timed") - 10_000) / 2;
        assert_eq!((winner.value.as_str(), winner.source.as_str()), (&*own.to_string(), REPORTER));
    }
}
