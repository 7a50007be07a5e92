//! `admit receipts` and `admit quarantine`, with a running gate and without one.

use crate::world::{Gate, SAMPLE, World};

/// A gate with one admitted event, a duplicate, a conflict and a refusal.
fn busy_gate(world: &World) -> Gate {
    let gate = world.serve(&[]);
    let other = SAMPLE.replace(r#""payload":{}"#, r#""payload":{"other":true}"#);
    for body in [SAMPLE, SAMPLE, &other, r#"{"\u001b[2J":1}"#] {
        gate.post("/plugin/events", "", body);
    }
    gate
}

fn verdicts(list: &serde_json::Value) -> Vec<&str> {
    let list = list.as_array().expect("a list");
    list.iter().map(|receipt| receipt["verdict"].as_str().expect("a verdict")).collect()
}

#[test]
fn receipts_are_listed_with_and_without_a_running_gate() {
    let world = World::new();
    let mut gate = busy_gate(&world);
    let running = world.run(&["receipts", "list", "--json"]).json();
    assert_eq!(verdicts(&running["receipts"]), ["fresh", "conflict", "refused"]);
    assert_eq!(running["receipts"][0]["duplicate_count"], 2);
    gate.signal("TERM");
    gate.wait();
    assert_eq!(world.run(&["receipts", "list", "--json"]).json(), running);
}

#[test]
fn a_list_can_be_filtered_and_paginated() {
    let world = World::new();
    let _gate = busy_gate(&world);
    let list = |arguments: &[&str]| {
        let arguments = [&["receipts", "list", "--json"], arguments].concat();
        world.run(&arguments).json()
    };
    assert_eq!(verdicts(&list(&["--verdict", "refused"])["receipts"]), ["refused"]);
    assert_eq!(verdicts(&list(&["--principal", "unknown"])["receipts"]), [""; 0]);
    let first = list(&["--limit", "1"]);
    let next = first["next"].as_str().expect("there is more");
    assert_eq!(verdicts(&list(&["--after", next])["receipts"]), ["conflict", "refused"]);
}

#[test]
fn the_quarantine_lists_conflicts_and_refusals() {
    let world = World::new();
    let _gate = busy_gate(&world);
    let list = world.run(&["quarantine", "list", "--json"]).json();
    assert_eq!(verdicts(&list["quarantine"]), ["conflict", "refused"]);
    let for_people = world.run(&["quarantine", "list"]).out;
    assert!(for_people.contains("invalid_envelope"), "{for_people}");
    assert!(!for_people.contains('\u{1b}'), "control characters of producers are escaped");
}

#[test]
fn a_receipt_and_its_unchanged_body_are_printed() {
    let world = World::new();
    let _gate = busy_gate(&world);
    let list = world.run(&["receipts", "list", "--json"]).json();
    let id = list["receipts"][0]["id"].as_str().expect("an id");
    assert_eq!(world.run(&["receipts", "get", id, "--json"]).json(), list["receipts"][0]);
    assert_eq!(world.run(&["receipts", "get", id, "--body"]).out, SAMPLE);
    let for_people = world.run(&["receipts", "get", id]).out;
    assert!(for_people.starts_with(&format!("receipt       {id}\nverdict       fresh\n")));
    assert!(for_people.contains("pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65"));
}

#[test]
fn an_unknown_receipt_id_is_reported() {
    let world = World::new();
    let _gate = busy_gate(&world);
    let list = world.run(&["receipts", "list", "--json"]).json();
    let id = list["receipts"][0]["id"].as_str().expect("an id");
    let ledger = &id[..id.len() - 2];
    let output = world.run(&["receipts", "get", &format!("{ledger}-999")]);
    assert_eq!(output.code, Some(1));
    insta::assert_snapshot!(output.err.replace(ledger, "LEDGER"), @"admit: no receipt LEDGER-999 in this ledger");
    let output = world.run(&["receipts", "get", "rcp-00000000-1"]);
    assert_eq!(output.code, Some(1));
    insta::assert_snapshot!(output.err.replace(ledger, "LEDGER"), @"admit: rcp-00000000-1 is a receipt of another ledger; ids of this one start with LEDGER-");
}

#[test]
fn a_missing_ledger_is_reported_and_not_created() {
    let world = World::new();
    let output = world.run(&["receipts", "list"]);
    assert_eq!(output.code, Some(1));
    insta::assert_snapshot!(output.err, @r"
    admit: there is no ledger in ./admit-data
      name the gate's folder with --data, or its config with --config
    ");
    assert!(!world.path().join("admit-data").exists(), "reading creates nothing");
}
