//! Entity resolution with a policy from another domain: parcels reported by a depot, a scanner and
//! a scale.

#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use std::collections::BTreeMap;

use admit_core::entity::{
    CandidateSet, Entity, EventFields, FieldDomain, KnownLink, Link, LinkStatus, NumberTrust,
    Policy, ProcessingState, ReplayRule, Resolution, SourceEvent, SourcePolicy, resolve,
};
use admit_core::json::{Object, Value};
use admit_core::{Key, Millis, Seq};
use proptest::prelude::*;

const SCANNER: &str = "scanner";
const SCALE: &str = "scale";
const DEPOT: &str = "depot";

const fn source(name: &'static str, opens: bool, replay: ReplayRule) -> SourcePolicy {
    let (family, number) = (name, NumberTrust::Trusted);
    SourcePolicy { name, family, opens, is_led: false, replay, number, stamp: None }
}

const fn domain(
    name: &'static str,
    fields: &'static [&'static str],
    authority: &'static [&'static str],
) -> FieldDomain {
    let (is_exclusive, is_total, is_whole, row_key) = (false, false, false, None);
    FieldDomain { name, fields, authority, is_exclusive, is_total, is_whole, row_key }
}

const SOURCES: &[SourcePolicy] = &[
    source(SCANNER, false, ReplayRule::Overwrite { keeps: &["first_seen"] }),
    SourcePolicy {
        number: NumberTrust::Corrected(&[(SCANNER, "scanned")]),
        ..source(SCALE, false, ReplayRule::Overwrite { keeps: &[] })
    },
    source(DEPOT, true, ReplayRule::Skip),
];

const DOMAINS: &[FieldDomain] = &[
    domain("route", &["lane", "first_seen"], &[SCANNER]),
    FieldDomain { is_exclusive: true, ..domain("weight", &["grams"], &[SCALE]) },
    FieldDomain { is_total: true, ..domain("content", &["items"], &[DEPOT]) },
    FieldDomain { row_key: Some("id"), ..domain("labels", &["labels"], &[SCANNER, SCALE]) },
];

fn policy() -> Policy {
    Policy {
        sources: SOURCES,
        domains: DOMAINS,
        order: &[SCANNER, DEPOT, SCALE],
        tables: &[],
        window_seconds: 60,
        span_seconds: 30,
        tolerance_seconds: 2,
        events_max: 1000,
        id_prefix: "parcel-",
    }
}

/// Source event of a parcel in hall `a`.
fn event_of(
    source: &str,
    own: &str,
    number: i64,
    time: i64,
    fields: &[(&str, i64)],
) -> SourceEvent {
    let mut event = SourceEvent::new(
        source,
        Key::derive("d", &[source.as_bytes(), own.as_bytes()]),
        Millis(time),
    );
    event.hard_key = Some(own.to_owned());
    event.group = "a".to_owned();
    event.number = Some(number);
    if source == DEPOT {
        event.date = Some("day".to_owned());
        event.time = Some(format!("{time:06}"));
    } else {
        event.end = Some(time);
    }
    event.event_time = Some(time);
    event.enriches = !fields.is_empty();
    let fields: Object<'_> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    event.fields = EventFields::of(&fields);
    event
}

/// Events with their links so far.
#[derive(Default)]
struct StoredEvents {
    events: Vec<SourceEvent>,
    links: BTreeMap<Seq, Link>,
    records: BTreeMap<String, Entity>,
}

impl StoredEvents {
    fn of(events: impl IntoIterator<Item = SourceEvent>) -> Self {
        let mut hall = Self::default();
        for event in events {
            hall.arrive(event);
        }
        hall
    }

    /// Resolves an arrival with the candidates in its range only.
    fn arrive(&mut self, event: SourceEvent) -> Resolution {
        let policy = policy();
        let seq = Seq(self.events.len() as u64 + 1);
        let first = self.events.iter().find(|other| other.key == event.key);
        let event = event.admitted(seq, first, policy.tolerance_seconds);
        let range = policy.range(&event);
        self.events.push(event);
        let is_near = |other: &&SourceEvent| {
            other.event_time.is_none_or(|time| (range.from..=range.to).contains(&time))
        };
        let events: Vec<SourceEvent> = self.events.iter().filter(is_near).cloned().collect();
        let known: Vec<KnownLink> = events
            .iter()
            .filter_map(|event| {
                let link = self.links.get(&event.seq)?.clone();
                Some(KnownLink { seq: event.seq, link })
            })
            .collect();
        let candidate_set = CandidateSet {
            group: "a",
            around: range.around,
            covered: None,
            now: Millis(0),
            events: &events,
            known: &known,
            far: &[],
        };
        let resolution = resolve(&policy, candidate_set);
        self.links.extend(resolution.links.iter().cloned());
        for id in &resolution.retired {
            self.records.remove(id);
        }
        for record in &resolution.entities {
            self.records.insert(record.record_id.clone(), record.clone());
        }
        resolution
    }

    fn link(&self, at: usize) -> &Link {
        &self.links[&Seq(at as u64 + 1)]
    }

    fn value(&self, name: &str) -> Option<(i64, &str)> {
        assert_eq!(self.records.len(), 1);
        let field = self.records.values().next()?.field(name)?;
        Some((field.value.as_i64()?, field.source.as_str()))
    }

    /// Links and entities by event names; must be the same in every order of arrival.
    fn outcome(&self) -> (Vec<String>, Vec<String>) {
        let name = |seq: Seq| {
            let event = &self.events[usize::try_from(seq.0).unwrap() - 1];
            format!("{}/{}/{}", event.source, event.key, event.fields.as_str())
        };
        let mut links: Vec<String> = self
            .links
            .iter()
            .map(|(seq, link)| {
                let Link { status, reason, record_id, number, .. } = link;
                // The reason of an unlinked event depends on the events known at the time.
                let reason = if *status == LinkStatus::Unlinked { "" } else { reason };
                format!("{} {status:?} {reason} {record_id:?} {number:?}", name(*seq))
            })
            .collect();
        links.sort();
        let field = |record: &Entity| {
            let fields = record.fields.iter();
            let fields = fields.map(|f| format!("{}={:?} by {}", f.name, f.value, name(f.event)));
            format!("{} {:?}", record.record_id, fields.collect::<Vec<_>>())
        };
        (links, self.records.values().map(field).collect())
    }
}

#[test]
fn entities_of_any_domain_are_merged() {
    let hall = StoredEvents::of([
        event_of(SCANNER, "s1", 7, 1000, &[("lane", 3), ("items", 9), ("grams", 1)]),
        event_of(DEPOT, "d1", 7, 1010, &[("lane", 1), ("items", 2)]),
        event_of(SCALE, "w1", 1, 1000, &[("grams", 450), ("lane", 8)]),
    ]);
    assert_eq!(hall.value("lane"), Some((3, SCANNER)));
    assert_eq!(hall.value("items"), Some((2, DEPOT)));
    assert_eq!(hall.value("grams"), Some((450, SCALE)));
    assert_eq!(hall.link(2).number, Some(7), "corrected by the scanner");
    assert_eq!(hall.link(2).number_from.as_deref(), Some("scanned"));
}

#[test]
fn events_beyond_the_reach_do_not_change() {
    let mut hall = StoredEvents::of([
        event_of(DEPOT, "d1", 7, 1000, &[]),
        event_of(SCANNER, "s1", 7, 1001, &[]),
    ]);
    let far = 1001 + policy().reach() + 1;
    let resolution = hall.arrive(event_of(DEPOT, "d2", 7, far, &[]));
    let changed: Vec<Seq> = resolution.links.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(changed, [Seq(3)]);
    assert_eq!(resolution.entities.len(), 1);
}

#[test]
fn a_canonical_event_takes_the_nearest_and_within_the_tolerance_the_most_trusted() {
    let near = StoredEvents::of([
        event_of(DEPOT, "d1", 7, 1000, &[]),
        event_of(SCANNER, "s1", 7, 1030, &[]),
        event_of(SCANNER, "s2", 7, 1010, &[]),
    ]);
    assert_eq!(near.link(1).status, LinkStatus::Ambiguous);
    assert_eq!(near.link(2).status, LinkStatus::Linked);
    // The scale is a second nearer, less than the clock tolerance.
    let mut scale = event_of(SCALE, "w1", 7, 1001, &[]);
    scale.start = Some(990);
    let mut scanner = event_of(SCANNER, "s1", 7, 1002, &[]);
    scanner.start = Some(991);
    let trusted = StoredEvents::of([event_of(DEPOT, "d1", 7, 1000, &[]), scale, scanner]);
    assert_eq!(trusted.link(1).status, LinkStatus::Ambiguous);
    assert_eq!(trusted.link(2).status, LinkStatus::Linked);
}

#[test]
fn a_replay_by_rule_is_skipped_overwritten_or_merged_row_by_row() {
    let mut hall = StoredEvents::of([
        event_of(DEPOT, "d1", 7, 1000, &[("lane", 1), ("items", 2)]),
        event_of(DEPOT, "d1", 7, 1000, &[("lane", 9), ("items", 9), ("door", 4)]),
        event_of(SCANNER, "s1", 7, 1001, &[("shelf", 1), ("first_seen", 1)]),
        event_of(SCANNER, "s1", 7, 1001, &[("shelf", 2), ("first_seen", 2)]),
    ]);
    assert_eq!(hall.value("lane"), Some((1, DEPOT)), "skipped");
    assert_eq!(hall.value("items"), Some((2, DEPOT)));
    assert_eq!(hall.value("door"), Some((4, DEPOT)), "missing fields are added");
    assert_eq!(hall.value("shelf"), Some((2, SCANNER)), "overwritten");
    assert_eq!(hall.value("first_seen"), Some((1, SCANNER)), "filled once");
    let mut update = event_of(DEPOT, "d1", 7, 1000, &[("lane", 5), ("items", 5)]);
    update.updates = true;
    hall.arrive(update);
    assert_eq!(hall.value("lane"), Some((5, DEPOT)), "requested");
    assert_eq!(hall.value("items"), Some((2, DEPOT)), "totals never");
}

#[test]
fn rows_are_merged_by_their_names() {
    let with = |source: &str, own: &str, rows: &str| {
        let mut event = event_of(source, own, 7, 1000, &[]);
        event.fields = EventFields::from_stored(format!("{{\"labels\":{rows}}}"));
        event
    };
    let hall = StoredEvents::of([
        event_of(DEPOT, "d1", 7, 1000, &[]),
        with(SCANNER, "s1", r#"[{"id":"x","n":1},{"id":"y","n":1,"m":7}]"#),
        with(SCANNER, "s1", r#"[{"id":"y","n":2},{"n":5},7]"#),
        with(SCALE, "w1", r#"[{"id":"x","n":9},{"id":"z","n":9}]"#),
    ]);
    let record = hall.records.values().next().unwrap();
    let mut text = Vec::new();
    admit_core::json::write(&record.field("labels").unwrap().value, &mut text);
    assert_eq!(
        String::from_utf8(text).unwrap(),
        r#"[{"id":"x","n":1},{"id":"y","n":2,"m":7},{"id":"z","n":9}]"#
    );
}

#[test]
fn contradicting_events_under_one_hard_key_are_not_merged() {
    let mut elsewhere = event_of(SCANNER, "s1", 7, 1000, &[]);
    elsewhere.group = "b".to_owned();
    let policy = policy();
    let first = elsewhere.admitted(Seq(1), None, policy.tolerance_seconds);
    let second = event_of(SCANNER, "s1", 7, 1000, &[]);
    assert!(second.clone().admitted(Seq(2), Some(&first), policy.tolerance_seconds).collides);
    let days_later = event_of(SCANNER, "s1", 7, 100_000, &[]);
    let first = second.admitted(Seq(1), None, policy.tolerance_seconds);
    assert!(days_later.admitted(Seq(2), Some(&first), policy.tolerance_seconds).collides);
    let corrected = event_of(SCANNER, "s1", 7, 1002, &[]);
    assert!(!corrected.admitted(Seq(2), Some(&first), policy.tolerance_seconds).collides);
}

#[test]
fn a_copy_that_opened_the_entity_first_keeps_its_id() {
    let with = |own: &str, time: i64| {
        let mut event = event_of(DEPOT, own, 7, time, &[]);
        event.payload = Some("same".to_owned());
        event
    };
    let hall = StoredEvents::of([with("d2", 1005), with("d1", 1000)]);
    assert_eq!(hall.records.len(), 1);
    assert_eq!(hall.link(0).record_id, hall.link(1).record_id);
    assert_eq!(hall.link(0).matched.map(|matched| matched.word()), Some("opens"));
    assert_eq!(hall.link(1).reason, "duplicate_payload");
}

#[test]
fn an_entity_whose_opening_event_is_a_copy_is_retired() {
    // The payload of the second arrives only with its replay.
    let mut first = event_of(DEPOT, "d1", 7, 1000, &[]);
    first.payload = Some("same".to_owned());
    let mut hall = StoredEvents::of([first, event_of(DEPOT, "d2", 7, 1005, &[])]);
    assert_eq!(hall.records.len(), 2);
    let gone = hall.link(1).record_id.clone().unwrap();
    let mut replay = event_of(DEPOT, "d2", 7, 1005, &[("items", 3)]);
    replay.payload = Some("same".to_owned());
    let resolution = hall.arrive(replay);
    assert_eq!(resolution.retired, [gone]);
    assert_eq!(hall.value("items"), Some((3, DEPOT)));
}

#[test]
fn a_published_event_stays_published_until_its_link_changes() {
    let mut hall = StoredEvents::of([event_of(DEPOT, "d1", 7, 1000, &[("items", 1)])]);
    hall.links.get_mut(&Seq(1)).unwrap().state = ProcessingState::Published;
    let resolution = hall.arrive(event_of(SCANNER, "s1", 7, 1001, &[]));
    assert_eq!(resolution.link(Seq(1)), None);
    assert_eq!(hall.link(0).state, ProcessingState::Published);
}

fn events() -> impl Strategy<Value = Vec<SourceEvent>> {
    let source = prop_oneof![Just(DEPOT), Just(SCANNER), Just(SCALE)];
    // From a minute to a quarter of an hour, while the reach is less than six minutes.
    let spread = prop_oneof![Just(60i64), Just(300), Just(900)];
    let one = move |spread: i64| {
        (source.clone(), 0..spread, 1i64..3, 0i64..3, any::<u8>()).prop_map(
            |(source, time, number, value, has)| {
                let time = 10_000 + time;
                let own = format!("{time}|{number}");
                let fields = [("lane", value), ("items", value), ("grams", value), ("shelf", time)];
                let mut event = event_of(source, &own, number, time, &fields);
                if source != DEPOT && has & 1 == 1 {
                    event.start = Some(time - 20 - value);
                }
                if source != DEPOT && has & 6 == 6 && event.start.is_some() {
                    event.end = None;
                    event.event_time = event.start;
                }
                event
            },
        )
    };
    spread.prop_flat_map(move |spread| prop::collection::vec(one(spread), 1..16))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_order_of_arrival_does_not_change_the_result(
        events in events(),
        seed in prop::collection::vec(any::<u32>(), 16),
    ) {
        // At most one event per source and key, so that every order is allowed.
        let mut known = Vec::new();
        let mut posts: Vec<SourceEvent> = Vec::new();
        for event in events {
            if !known.contains(&event.key) {
                known.push(event.key);
                posts.push(event);
            }
        }
        let expected = StoredEvents::of(posts.clone()).outcome();
        let mut places: Vec<usize> = (0..posts.len()).collect();
        places.sort_by_key(|place| seed[*place]);
        let shuffled = places.iter().map(|place| posts[*place].clone());
        prop_assert_eq!(StoredEvents::of(shuffled).outcome(), expected);
    }
}

#[test]
fn a_link_to_an_entity_that_was_not_loaded_is_kept() {
    let mut hall = StoredEvents::of([
        event_of(DEPOT, "d", 1, 100, &[("items", 3)]),
        event_of(SCANNER, "s", 1, 140, &[("lane", 7)]),
        event_of(SCANNER, "t", 1, 170, &[("lane", 8)]),
    ]);
    let linked = hall.link(1).clone();
    assert_eq!(linked.status, LinkStatus::Linked);
    let known: Vec<KnownLink> =
        hall.links.iter().map(|(seq, link)| KnownLink { seq: *seq, link: link.clone() }).collect();
    let events = hall.events.split_off(1);
    let link_with = |covered| {
        let (around, now, far) = (Some(150), Millis(0), &[]);
        let (events, known) = (&events[..], &known[1..]);
        let here = CandidateSet { group: "a", around, covered, now, events, known, far };
        resolve(&policy(), here).link(Seq(2)).cloned()
    };
    assert_eq!(link_with(Some((130, 180))), None, "it is unchanged");
    let unlinked =
        link_with(None).expect("all of the range was read, and nothing opens its record");
    assert_eq!(unlinked.status, LinkStatus::Unlinked);
    // Links beyond half of the covered range are not decided.
    assert_eq!(link_with(Some((145, 155))), None);
}
