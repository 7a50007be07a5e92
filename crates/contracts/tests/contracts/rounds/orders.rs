//! Order independence: any order and any repetition gives the same records and links.

use admit_core::entity::{CandidateSet, Resolution, resolve};
use admit_core::{Millis, Seq};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{END, RoundsLedger, START, reference};

/// Source and body of a post. Its arrival time depends on the post, not on its position.
type Post = (&'static str, String);

fn played(posts: &[Post], order: &[usize]) -> RoundsLedger {
    let mut ledger = RoundsLedger::new();
    for at in order {
        let (source, body) = &posts[*at];
        let received_at = 1_771_000_000_000 + i64::try_from(*at).unwrap();
        ledger.post_at(source, "", body, received_at);
    }
    ledger
}

fn permutations(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let with = |shorter: Vec<usize>| {
        (0..of).map(move |at| {
            let mut longer = shorter.clone();
            longer.insert(at, of - 1);
            longer
        })
    };
    permutations(of - 1).into_iter().flat_map(with).collect()
}

#[test]
fn w14_all_orders_of_the_sources_give_one_round() {
    let posts = reference();
    let expected = played(&posts, &[0, 1, 2, 3, 4]);
    assert_eq!(expected.entities.len(), 1);
    assert!(expected.links.values().all(|link| link.record_id.is_some()));
    for order in permutations(posts.len()) {
        assert_eq!(played(&posts, &order).summary(), expected.summary(), "{order:?}");
    }
}

#[test]
fn a_start_that_is_a_second_off_is_ambiguous_in_every_order() {
    let mut posts = reference();
    posts[3].1 = posts[3].1.replace(&START.to_string(), &(START + 1).to_string());
    let expected = played(&posts, &[0, 1, 2, 3]).summary();
    for order in permutations(4) {
        assert_eq!(played(&posts, &order).summary(), expected, "{order:?}");
    }
    let ledger = played(&posts, &[3, 2, 1, 0]);
    let of = |source: &str| {
        let event = ledger.events.iter().find(|event| event.source == source).unwrap();
        ledger.links[&event.seq].status.word()
    };
    assert_eq!(of("proximity_file"), "ambiguous");
    assert_eq!(of("stats_ready"), "linked_round_id");
    assert_eq!(of("gametime_fallback"), "linked_round_id");
}

/// An event without a map follows the event that shares its hard key: into a round, and out of it
/// again when a better match of that round arrives.
#[test]
fn an_event_linked_by_a_hard_key_leaves_a_round_with_its_canonical_event() {
    let ready = |end: i64, start: Option<i64>| {
        let body = json!({
            "map_name": "supply", "round_number": 2,
            "round_end_unix": end, "round_start_unix": start,
        });
        ("stats_ready", body.to_string())
    };
    let spawns = json!({
        "match_id": "2026-10-25-014800", "round_number": 2, "round_end_unix": 1_792_885_680,
        "map_name": null, "spawn_stats": [{ "guid": "A", "spawns": 0 }],
    });
    let played_at = json!({
        "map_name": "supply", "round_number": 2,
        "round_date": "2026-10-25", "round_time": "02:30:00",
    });
    let posts = [
        ready(1_792_885_680, None),
        ("lua_spawn_stats", spawns.to_string()),
        ("filename_trigger", played_at.to_string()),
        ready(1_792_885_681, Some(1_792_885_281)),
    ];
    let before = played(&posts, &[0, 1, 2]);
    assert!(before.links.values().all(|link| link.record_id.is_some()), "{:?}", before.links);
    let after = played(&posts, &[0, 1, 2, 3]);
    assert_eq!(after.links[&Seq(1)].record_id, None);
    assert_eq!(after.links[&Seq(2)].record_id, None);
    assert_eq!(after.links[&Seq(3)].record_id, after.links[&Seq(4)].record_id);
    assert!(after.record_of_all().field("spawn_stats").is_none());
    for order in permutations(posts.len()) {
        assert_eq!(played(&posts, &order).summary(), after.summary(), "{order:?}");
    }
}

/// Clock differences, in seconds.
const JITTER: [i64; 8] = [0, 0, 0, 1, 3, 59, 61, 200];

/// Events of rounds that are close enough to be confused, spread over some hours or over days, so
/// that most of them are out of each other's reach.
fn posts() -> impl Strategy<Value = Vec<Post>> {
    let minutes = prop_oneof![Just(7i64), Just(25), Just(44), Just(170)];
    let posts = minutes.prop_flat_map(|minutes| prop::collection::vec(post(minutes * 60), 1..18));
    posts.prop_map(one_map_for_each_hard_key)
}

/// A hard key is one match on one map. If two maps claimed it, an event without a map would follow
/// whichever came last; so such inputs are excluded here.
fn one_map_for_each_hard_key(mut posts: Vec<Post>) -> Vec<Post> {
    let event = |(source, body): &Post| super::world::vetted(source, body.as_bytes());
    let led: Vec<Option<String>> = posts
        .iter()
        .map(event)
        .filter(|event| event.group.is_empty())
        .map(|event| event.hard_key)
        .collect();
    posts.retain(|post| {
        let event = event(post);
        event.group != "radar" || !led.contains(&event.hard_key)
    });
    posts
}

/// An event of one of these rounds.
fn post(apart: i64) -> impl Strategy<Value = Post> {
    let source = prop_oneof![
        3 => Just("filename_trigger"),
        3 => Just("stats_ready"),
        2 => Just("gametime_fallback"),
        2 => Just("proximity_file"),
        1 => Just("lua_spawn_stats"),
    ];
    let map = prop_oneof![6 => Just("supply"), 1 => Just(" SUPPLY"), 1 => Just("radar")];
    let jitter = prop::sample::select(&JITTER[..]);
    (source, map, 1i64..3, 0i64..24, jitter, any::<u8>(), 0i64..3).prop_map(
        move |(source, map, number, slot, jitter, has, value)| {
            // The repeated hour is in the middle of the evening.
            let end = 1_792_888_200 + (slot - 8) * apart + jitter;
            let mut body = json!({
                "map_name": map, "round_number": number,
                "details": { "winner_team": value, "kills": value, "mark": slot },
            });
            if source == "filename_trigger" {
                let zone = TimeZone::get("Europe/Ljubljana").unwrap();
                let local = Timestamp::from_second(end).unwrap().to_zoned(zone);
                body["round_date"] = json!(local.strftime("%Y-%m-%d").to_string());
                body["round_time"] = json!(local.strftime("%H:%M:%S").to_string());
                return (source, body.to_string());
            }
            if has & 3 != 0 {
                body["round_end_unix"] = json!(end);
            }
            if has & 4 != 0 {
                body["round_start_unix"] = json!(end - 400 - value);
            }
            if source == "lua_spawn_stats" {
                body["spawn_stats"] = json!([{ "guid": "A", "spawns": value }]);
                if has & 3 != 0 && has & 8 != 0 {
                    let zone = TimeZone::get("Europe/Ljubljana").unwrap();
                    let local = Timestamp::from_second(end).unwrap().to_zoned(zone);
                    body["match_id"] = json!(local.strftime("%Y-%m-%d-%H%M%S").to_string());
                    body["map_name"] = Value::Null;
                }
            }
            (source, body.to_string())
        },
    )
}

/// Positions of `posts` in another order, some repeated; posts of one source under one hard key
/// keep their relative order.
fn in_turn(posts: &[Post], shuffled: &[usize], again: &[usize]) -> Vec<usize> {
    let key = |at: usize| super::world::vetted(posts[at].0, posts[at].1.as_bytes()).key;
    let keys: Vec<_> = (0..posts.len()).map(key).collect();
    let mut order = shuffled.to_vec();
    for key in &keys {
        let slots: Vec<usize> =
            (0..order.len()).filter(|slot| keys[order[*slot]] == *key).collect();
        let mut in_order: Vec<usize> = slots.iter().map(|slot| order[*slot]).collect();
        in_order.sort_unstable();
        for (slot, at) in slots.into_iter().zip(in_order) {
            order[slot] = at;
        }
    }
    // A copy may come at any time after the first.
    for pick in again {
        let from = pick % order.len();
        let at = order[from];
        let to = from + 1 + (pick / 7) % (order.len() - from);
        order.insert(to, at);
    }
    order
}

fn without_far(summary: &Value) -> Value {
    // The reason why an event is not linked reflects what was known at that time, for events beyond
    // the reach. Everything else is the same in every order.
    let mut summary = summary.clone();
    for link in summary["links"].as_object_mut().unwrap().values_mut() {
        if link["status"] == "unlinked" {
            link["reason"] = Value::Null;
            link["diff"] = Value::Null;
        }
    }
    summary
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn any_order_and_any_repetition_give_the_same_in_the_end(
        posts in posts(),
        seed in prop::collection::vec(any::<usize>(), 18),
        again in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        let straight: Vec<usize> = (0..posts.len()).collect();
        let mut shuffled = straight.clone();
        shuffled.sort_by_key(|at| seed[*at]);
        let order = in_turn(&posts, &shuffled, &again);
        let expected = played(&posts, &in_turn(&posts, &straight, &[]));
        let found = played(&posts, &order);
        let (found, expected) = (found.summary(), expected.summary());
        prop_assert_eq!(without_far(&found), without_far(&expected), "{:?}", order);
    }

    #[test]
    fn arrivals_one_by_one_give_the_same_result_as_all_at_once(
        posts in posts(),
    ) {
        let straight: Vec<usize> = (0..posts.len()).collect();
        let ledger = played(&posts, &straight);
        for group in ["supply", "radar"] {
            let events: Vec<_> = ledger
                .events
                .iter()
                .filter(|event| event.group == group || event.group.is_empty())
                .cloned()
                .collect();
            let all = resolve(ledger.policy(), CandidateSet {
                group,
                around: None,
                covered: None,
                now: Millis(0),
                events: &events,
                known: &[],
                far: &[],
            });
            let Resolution { links, entities, .. } = all;
            for (seq, link) in links {
                let mut floating = events.iter().filter(|event| event.group.is_empty());
                let is_floating = floating.any(|event| event.seq == seq);
                let kept = &ledger.links[&seq];
                prop_assert!(
                    is_floating || (link.status, &link.record_id) == (kept.status, &kept.record_id),
                    "{:?} is kept as {:?}", link, kept
                );
            }
            for record in entities {
                let kept = ledger.entities.get(&record.record_id);
                prop_assert_eq!(Some(&record.fields), kept.map(|kept| &kept.fields));
            }
        }
    }
}

#[test]
fn replays_never_add_up_counters() {
    let posts = reference();
    let straight: Vec<usize> = (0..posts.len()).collect();
    let once = played(&posts, &straight);
    let thrice: Vec<usize> = straight.iter().cycle().take(posts.len() * 3).copied().collect();
    assert_eq!(played(&posts, &thrice).summary(), once.summary());
    assert_eq!(once.field("round_end_unix").0, json!(END));
}
