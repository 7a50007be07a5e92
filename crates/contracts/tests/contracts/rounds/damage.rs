//! Damaged artifacts: any bytes become an event, are stored, and their copy is recognised.

use proptest::prelude::*;

use super::world::{RoundsLedger, fixture, reference, vetted};

/// One kind of damage to a text.
#[derive(Clone, Debug)]
enum DamageKind {
    Cut(usize),
    Remove(usize, usize),
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Swap(usize, usize),
}

fn harms() -> impl Strategy<Value = Vec<DamageKind>> {
    let place = any::<usize>();
    let harm = prop_oneof![
        place.prop_map(DamageKind::Cut),
        (any::<usize>(), 1usize..40).prop_map(|(at, count)| DamageKind::Remove(at, count)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| DamageKind::Set(at, byte)),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..12))
            .prop_map(|(at, bytes)| DamageKind::Insert(at, bytes)),
        (any::<usize>(), any::<usize>()).prop_map(|(one, two)| DamageKind::Swap(one, two)),
    ];
    prop::collection::vec(harm, 1..5)
}

fn harmed(text: &str, harms: &[DamageKind]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for harm in harms {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        match harm {
            DamageKind::Cut(at) => bytes.truncate(at % len),
            DamageKind::Remove(at, count) => {
                let from = at % len;
                bytes.drain(from..(from + count).min(len));
            }
            DamageKind::Set(at, byte) => bytes[at % len] = *byte,
            DamageKind::Insert(at, more) => {
                bytes.splice(at % len..at % len, more.iter().copied());
            }
            DamageKind::Swap(one, two) => bytes.swap(one % len, two % len),
        }
    }
    bytes
}

/// All undamaged bodies.
fn bodies() -> Vec<(&'static str, String)> {
    let mut bodies = reference();
    let stats_ready = fixture!("round_event-stats_ready.json");
    bodies.push(("stats_ready", stats_ready.to_owned()));
    let filename_trigger = fixture!("round_event-filename_trigger.json");
    bodies.push(("filename_trigger", filename_trigger.to_owned()));
    bodies.push(("gametime_fallback", super::world::GAMETIME.to_owned()));
    bodies
}

/// Damages the file inside a body rather than the body around it.
fn harmed_inside(source: &str, body: &str, harms: &[DamageKind]) -> Option<String> {
    let mut value: serde_json::Value = serde_json::from_str(body).ok()?;
    let content = value.get("content")?.as_str()?;
    let inside = String::from_utf8_lossy(&harmed(content, harms)).into_owned();
    value["content"] = inside.into();
    Some(value.to_string()).filter(|_| source != "stats_ready")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_bytes_make_an_event_and_never_a_panic(which in 0usize..8, harms in harms()) {
        let bodies = bodies();
        let (source, body) = &bodies[which % bodies.len()];
        let event = vetted(source, &harmed(body, &harms));
        prop_assert!(event.is_parsed() || event.parse.reason.is_some());
    }

    #[test]
    fn a_damaged_file_is_stored_reported_and_recognised_again(which in 0usize..8, harms in harms()) {
        let bodies = bodies();
        let (source, body) = &bodies[which % bodies.len()];
        let Some(body) = harmed_inside(source, body, &harms) else { return Ok(()) };
        let mut ledger = RoundsLedger::new();
        for (source, body) in reference() {
            ledger.post(source, &body);
        }
        let players = ledger.field("players");
        let result = ledger.post(source, &body);
        prop_assert!(!result.get("state").is_empty() && !result.get("reason_code").is_empty());
        let again = ledger.post(source, &body);
        prop_assert_eq!(again.get("disposition"), "replay");
        prop_assert_eq!(ledger.field("players"), players, "a damaged copy changes no totals");
    }

    #[test]
    fn arbitrary_bytes_are_stored_unchanged(
        which in 0usize..5,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let source = admit_contracts::rounds::policy::SOURCES[which];
        let event = vetted(source, &bytes);
        prop_assert!(event.is_parsed() || event.parse.reason.is_some());
    }
}
