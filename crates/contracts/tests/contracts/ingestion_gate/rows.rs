//! Rows of the engine, validated against the shipped payload schemas.

use admit_contracts::ingestion_gate::recompute;
use serde_json::{Value, json};

use super::{changed, door, envelope, event, fact, reason};

/// One row of every output, and whether its schema is closed.
fn rows() -> Vec<(&'static str, bool, Value)> {
    let at = "2026-01-01T00:00:00.000000Z";
    let pins = |mut row: Value| {
        for pin in ["seed", "manifest_fingerprint", "parameter_hash", "scenario_id"] {
            row[pin] = envelope()[pin].clone();
        }
        row
    };
    let fraud = |mut row: Value| {
        row["fraud_flag"] = true.into();
        row["campaign_id"] = Value::Null;
        row
    };
    let event = pins(json!({
        "flow_id": 1001, "event_seq": 0, "event_type": "AUTH_REQUEST", "ts_utc": at, "amount": 12,
    }));
    let ids = json!({
        "arrival_seq": 1, "merchant_id": 7, "party_id": 1, "account_id": 2, "instrument_id": 3,
        "device_id": 4, "ip_id": 5, "ts_utc": at,
    });
    let mut anchor = pins(ids.clone());
    anchor["flow_id"] = 1001.into();
    anchor["amount"] = 12.5.into();
    let mut entities = pins(ids);
    entities["session_id"] = 6.into();
    let arrival = pins(json!({
        "merchant_id": 1, "zone_representation": "Etc/UTC", "bucket_index": 0, "arrival_seq": 1,
        "ts_utc": at, "tzid_primary": "Etc/UTC", "ts_local_primary": at, "is_virtual": false,
    }));
    vec![
        ("s2_event_stream_baseline_6B", true, event.clone()),
        ("s3_event_stream_with_fraud_6B", true, fraud(event)),
        ("s2_flow_anchor_baseline_6B", true, anchor.clone()),
        ("s3_flow_anchor_with_fraud_6B", true, fraud(anchor)),
        ("s1_arrival_entities_6B", false, entities),
        ("arrival_events_5B", false, arrival),
    ]
}

fn sent(event_type: &str, row: &Value) -> Value {
    changed(|envelope| {
        envelope["event_type"] = event_type.into();
        envelope["payload"] = row.clone();
    })
}

#[test]
fn every_row_fits_and_goes_to_the_stream_of_its_class() {
    let topics: Vec<String> = rows()
        .iter()
        .map(|(event_type, _, row)| {
            fact(&event(&sent(event_type, row)).effect.unwrap().plan, "topic")
        })
        .collect();
    assert_eq!(
        topics,
        [
            "fp.bus.traffic.baseline.v1",
            "fp.bus.traffic.fraud.v1",
            "fp.bus.context.flow_anchor.baseline.v1",
            "fp.bus.context.flow_anchor.fraud.v1",
            "fp.bus.context.arrival_entities.v1",
            "fp.bus.context.arrival_events.v1",
        ]
    );
}

#[test]
fn a_row_without_a_column_or_with_another_type_in_it_fails() {
    for (event_type, _, row) in rows() {
        for column in row.as_object().unwrap().keys().filter(|column| *column != "campaign_id") {
            let mut short = row.clone();
            short.as_object_mut().unwrap().remove(column);
            assert_eq!(reason(&sent(event_type, &short)), "SCHEMA_FAIL", "{event_type} {column}");
            let mut odd = row.clone();
            odd[column] = json!([]);
            assert_eq!(reason(&sent(event_type, &odd)), "SCHEMA_FAIL", "{event_type} {column}");
        }
    }
}

#[test]
fn only_open_rows_take_further_columns() {
    for (event_type, is_closed, mut row) in rows() {
        row["more"] = 1.into();
        let sent = sent(event_type, &row);
        if is_closed {
            assert_eq!(reason(&sent), "SCHEMA_FAIL", "{event_type}");
        } else {
            event(&sent);
        }
    }
}

#[test]
fn arrivals_count_from_one() {
    for (column, value) in [("merchant_id", 0), ("arrival_seq", 0), ("bucket_index", -1)] {
        let (event_type, _, mut row) = rows().pop().unwrap();
        row[column] = value.into();
        assert_eq!(reason(&sent(event_type, &row)), "SCHEMA_FAIL", "{column}");
    }
}

#[test]
fn the_message_is_the_body_and_both_names_can_be_recomputed_from_it() {
    let event = event(&envelope());
    assert_eq!(event.body, envelope().to_string().as_bytes());
    let again = recompute(&door(), "traffic_fraud", &event.body);
    assert_eq!(again, Some((event.key, event.digest)));
    assert_eq!(recompute(&door(), "traffic_fraud", b"{}"), None);
}
