//! Server documents do not depend on the order in which events arrive.

use std::collections::BTreeMap;

use admit_contracts::Contract;
use admit_contracts::pixel_control::{PixelControl, Settings, read};
use admit_core::{Door, Entry, Event, Millis};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::servers::{at, heartbeat};
use super::{CATEGORIES, V20, submission, text, valid};

/// Documents by entity after these events in this order; stored after every `batch` events.
fn folded(events: &[Event], batch: usize) -> BTreeMap<String, String> {
    let mut stored: BTreeMap<String, String> = BTreeMap::new();
    for events in events.chunks(batch) {
        let mut open = BTreeMap::new();
        for event in events {
            let projection = &event.projections[0];
            let entity = projection.entity().entity;
            let document = open.entry(entity.clone()).or_insert_with(|| {
                projection.load(stored.get(&entity).map(String::as_str)).unwrap()
            });
            projection.apply(&mut **document).unwrap();
        }
        stored.extend(open.into_iter().map(|(entity, document)| (entity, document.to_text())));
    }
    stored
}

/// Few logins, few sequences and few values, so that they collide.
fn any_event() -> impl Strategy<Value = Event> {
    let variants = ["match.begin", "match.end", "map.begin", "warmup.start", "pause.end", "x"];
    let maps = [json!([]), json!(null), json!({"uid": "a"}), json!({"uid": "b"}), json!("absent")];
    (
        prop::sample::select(CATEGORIES.to_vec()),
        1u64..6,
        prop::sample::select(vec!["", "one", "two"]),
        prop::sample::select(variants.to_vec()),
        prop::sample::select(maps.to_vec()),
        (0u64..3, 0u64..3, 0i64..4, any::<bool>()),
    )
        .prop_map(
            |(category, sequence, login, variant, map, (name, total, late, registers))| {
                let mut body = at(valid(V20, category), sequence);
                let envelope = &mut body["envelope"];
                envelope["source_time"] = (1_739_980_000 + total).into();
                envelope["metadata"]["plugin_version"] = format!("0.{name}").into();
                if envelope["metadata"]["context"].is_object() {
                    let context = &mut envelope["metadata"]["context"];
                    context["server"]["login"] = login.into();
                    context["server"]["name"] = format!("name {name}").into();
                    context["server"]["current_map"] = map.clone();
                    if map == json!("absent") {
                        context["server"].as_object_mut().unwrap().remove("current_map");
                    }
                    context["players"]["total"] = total.into();
                }
                match category {
                    "lifecycle" => envelope["payload"]["variant"] = variant.into(),
                    "connectivity" => {
                        envelope["payload"]["context"] = envelope["metadata"]["context"].clone();
                        envelope["payload"]["queue_depth"] = total.into();
                        if registers {
                            envelope["payload"]["type"] = "plugin_registration".into();
                        }
                    }
                    _ => {}
                }
                vetted(&body, late)
            },
        )
}

fn vetted(body: &Value, late: i64) -> Event {
    let mut submission = submission("arena", &body.to_string());
    submission.received_at = Millis(submission.received_at.0 + late * 1000);
    match PixelControl::new(Settings::default()).vet(&Door::new("pixel-control"), submission) {
        Entry::Event(event) => event,
        Entry::Refused(refused) => panic!("{}", refused.message),
    }
}

proptest! {
    #[test]
    fn any_order_and_any_batching_gives_the_same_documents(
        (events, shuffled) in prop::collection::vec(any_event(), 1..24)
            .prop_flat_map(|events| (Just(events.clone()), Just(events).prop_shuffle())),
        batch in 1usize..8,
    ) {
        prop_assert_eq!(folded(&events, 1), folded(&shuffled, batch));
    }

    /// The newest heartbeat by sequence wins, as if they had arrived in order.
    #[test]
    fn heartbeats_that_overtake_each_other_leave_the_newest(
        order in Just((1..8u64).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let events: Vec<Event> = order.iter().map(|sequence| {
            let mut body = heartbeat(*sequence);
            body["envelope"]["payload"]["queue_depth"] = (*sequence).into();
            body["envelope"]["metadata"]["context"]["server"]["name"] = sequence.to_string().into();
            vetted(&body, i64::try_from(*sequence).unwrap())
        }).collect();
        let documents = folded(&events, 3);
        let shown = read::server(&documents["arena/arena-1"], super::RECEIVED_AT).unwrap();
        let shown: Value = serde_json::from_str(&text(shown)).unwrap();
        prop_assert_eq!(&shown["queue_depth"], &json!(7));
        prop_assert_eq!(&shown["name"], &json!("7"));
        prop_assert_eq!(&shown["last_heartbeat"]["sequence"], &json!(7));
        prop_assert_eq!(&shown["event_counts"]["connectivity"], &json!(7));
        prop_assert_eq!(&shown["last_event_at"], &json!("2026-02-19T18:14:09.123Z"));
        prop_assert_eq!(&shown["first_seen_at"], &json!("2026-02-19T18:14:03.123Z"));
    }
}
