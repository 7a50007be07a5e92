//! Evaluation of probe results.

use admit_contracts::ingestion_gate::health::{
    BusProbe, DoorHealth, HealthState, HealthThresholds, ProbeResults,
};

const WELL: ProbeResults = ProbeResults {
    can_write_artifacts: true,
    read_failures: 0,
    is_ledger_up: true,
    bus: BusProbe::Up,
    publish_failures: 0,
};

fn health(probes: ProbeResults) -> (HealthState, Vec<&'static str>) {
    let DoorHealth { state, reasons, .. } = DoorHealth::of(&probes, &HealthThresholds::default());
    (state, reasons)
}

#[test]
fn each_part_that_is_down_closes_the_gate_with_its_reason() {
    assert_eq!(health(WELL), (HealthState::Green, vec![]));
    for (probes, reason) in [
        (ProbeResults { can_write_artifacts: false, ..WELL }, "OBJECT_STORE_UNHEALTHY"),
        (ProbeResults { read_failures: 3, ..WELL }, "STORE_READ_UNHEALTHY"),
        (ProbeResults { is_ledger_up: false, ..WELL }, "OPS_DB_UNHEALTHY"),
        (ProbeResults { bus: BusProbe::Down, ..WELL }, "BUS_UNHEALTHY"),
        (ProbeResults { publish_failures: 3, ..WELL }, "BUS_UNHEALTHY"),
    ] {
        assert_eq!(health(probes), (HealthState::Red, vec![reason]));
        assert!(!DoorHealth::of(&probes, &HealthThresholds::default()).takes_events);
    }
    let below = ProbeResults { publish_failures: 2, read_failures: 2, ..WELL };
    assert_eq!(health(below).0, HealthState::Green);
}

#[test]
fn an_unknown_bus_state_is_amber_and_accepts_events_by_default() {
    let probes = ProbeResults { bus: BusProbe::Unknown, ..WELL };
    assert_eq!(health(probes), (HealthState::Amber, vec!["BUS_HEALTH_UNKNOWN"]));
    assert!(DoorHealth::of(&probes, &HealthThresholds::default()).takes_events);
    let rules = HealthThresholds { deny_on_amber: true, ..HealthThresholds::default() };
    assert!(!DoorHealth::of(&probes, &rules).takes_events);
}

#[test]
fn every_health_reason_is_listed() {
    let probes = ProbeResults {
        can_write_artifacts: false,
        read_failures: 9,
        is_ledger_up: false,
        bus: BusProbe::Unknown,
        publish_failures: 9,
    };
    let health = DoorHealth::of(&probes, &HealthThresholds::default());
    let mut body = Vec::new();
    admit_core::json::write_object(&health.to_object(), &mut body);
    assert_eq!(
        String::from_utf8(body).unwrap(),
        r#"{"state":"RED","reasons":["OBJECT_STORE_UNHEALTHY","STORE_READ_UNHEALTHY","OPS_DB_UNHEALTHY","BUS_UNHEALTHY"]}"#
    );
}
