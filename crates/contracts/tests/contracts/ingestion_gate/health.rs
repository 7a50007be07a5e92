//! What the probes come down to.

use admit_contracts::ingestion_gate::health::{BusProbe, Health, Probes, Rules, State};

const WELL: Probes = Probes {
    can_write_artifacts: true,
    read_failures: 0,
    is_ledger_up: true,
    bus: BusProbe::Up,
    publish_failures: 0,
};

fn health(probes: Probes) -> (State, Vec<&'static str>) {
    let Health { state, reasons, .. } = Health::of(&probes, &Rules::default());
    (state, reasons)
}

#[test]
fn each_part_that_is_down_closes_the_gate_with_its_reason() {
    assert_eq!(health(WELL), (State::Green, vec![]));
    for (probes, reason) in [
        (Probes { can_write_artifacts: false, ..WELL }, "OBJECT_STORE_UNHEALTHY"),
        (Probes { read_failures: 3, ..WELL }, "STORE_READ_UNHEALTHY"),
        (Probes { is_ledger_up: false, ..WELL }, "OPS_DB_UNHEALTHY"),
        (Probes { bus: BusProbe::Down, ..WELL }, "BUS_UNHEALTHY"),
        (Probes { publish_failures: 3, ..WELL }, "BUS_UNHEALTHY"),
    ] {
        assert_eq!(health(probes), (State::Red, vec![reason]));
        assert!(!Health::of(&probes, &Rules::default()).takes_events);
    }
    let below = Probes { publish_failures: 2, read_failures: 2, ..WELL };
    assert_eq!(health(below).0, State::Green);
}

#[test]
fn a_bus_that_cannot_be_asked_is_amber_and_lets_in_unless_told_otherwise() {
    let probes = Probes { bus: BusProbe::Unknown, ..WELL };
    assert_eq!(health(probes), (State::Amber, vec!["BUS_HEALTH_UNKNOWN"]));
    assert!(Health::of(&probes, &Rules::default()).takes_events);
    let rules = Rules { deny_on_amber: true, ..Rules::default() };
    assert!(!Health::of(&probes, &rules).takes_events);
}

#[test]
fn every_reason_is_told() {
    let probes = Probes {
        can_write_artifacts: false,
        read_failures: 9,
        is_ledger_up: false,
        bus: BusProbe::Unknown,
        publish_failures: 9,
    };
    let told = Health::of(&probes, &Rules::default());
    let mut body = Vec::new();
    admit_core::json::write_object(&told.to_object(), &mut body);
    assert_eq!(
        String::from_utf8(body).unwrap(),
        r#"{"state":"RED","reasons":["OBJECT_STORE_UNHEALTHY","STORE_READ_UNHEALTHY","OPS_DB_UNHEALTHY","BUS_UNHEALTHY"]}"#
    );
}
