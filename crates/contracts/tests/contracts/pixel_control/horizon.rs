//! Events older than the retention of the ledger are rejected, and no others.

use admit_contracts::Contract;
use admit_contracts::pixel_control::{PixelControl, Settings};
use admit_core::{Age, Code, Door, Entry, Horizon, Millis, RecordedEntry, Verdict};
use serde_json::Value;

use super::{RECEIVED_AT, event, sample, submission};

fn within(horizon: Horizon) -> PixelControl {
    PixelControl::new(Settings::default()).within(horizon)
}

fn at(source_time: i64) -> String {
    let mut body = sample();
    body["envelope"]["source_time"] = source_time.into();
    body.to_string()
}

fn vet(contract: &PixelControl, body: &str) -> Entry {
    contract.vet(&Door::new("pixel-control"), submission("arena", body))
}

#[test]
fn an_event_older_than_the_horizon_is_permanently_rejected() {
    let contract = within(Horizon::new(Some(Age::from_secs(3_600)), None));
    let received = RECEIVED_AT.0 / 1_000;
    assert!(matches!(vet(&contract, &at(received - 3_500)), Entry::Event(_)));
    let entry = vet(&contract, &at(received - 3_601));
    let Entry::Refused(refused) = &entry else { panic!("accepted") };
    assert_eq!(refused.code, Code::OutsideHorizon);
    let reply = contract.reply(&RecordedEntry {
        entry,
        verdict: Verdict::Refused { seq: None },
        ledger: 1,
        outcome: None,
    });
    assert_eq!(reply.status, 200);
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body["ack"]["status"], "rejected");
    assert_eq!(body["ack"]["code"], "outside_horizon");
    assert_eq!(body["ack"]["retryable"], false);
}

#[test]
fn an_event_carries_the_producers_wall_time_unless_it_has_none() {
    assert_eq!(event(&at(1_739_980_000)).happened_at, Some(Millis(1_739_980_000_000)));
    assert_eq!(event(&at(0)).happened_at, None);
    let contract = within(Horizon::new(Some(Age::from_secs(1)), None));
    assert!(matches!(vet(&contract, &at(0)), Entry::Event(_)), "no time is never too old");
    let forever = within(Horizon::default());
    assert!(matches!(vet(&forever, &at(1)), Entry::Event(_)), "nothing is forgotten by default");
}
