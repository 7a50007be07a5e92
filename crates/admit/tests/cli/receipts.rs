//! `admit receipts` and `admit quarantine`, beside a running gate and without one.

use crate::world::{Gate, SAMPLE, World};

/// A gate that has admitted one event twice, seen a conflict and refused something.
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
fn receipts_are_listed_while_the_gate_runs_and_after_it() {
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
fn a_list_can_be_narrowed_and_read_on() {
    let world = World::new();
    let _gate = busy_gate(&world);
    let list = |arguments: &[&str]| {
        let arguments = [&["receipts", "list", "--json"], arguments].concat();
        world.run(&arguments).json()
    };
    assert_eq!(verdicts(&list(&["--verdict", "refused"])["receipts"]), ["refused"]);
    assert_eq!(verdicts(&list(&["--principal", "nobody"])["receipts"]), [""; 0]);
    let first = list(&["--limit", "1"]);
    let next = first["next"].as_str().expect("there is more");
    assert_eq!(verdicts(&list(&["--after", next])["receipts"]), ["conflict", "refused"]);
}

#[test]
fn the_quarantine_holds_what_was_not_applied() {
    let world = World::new();
    let _gate = busy_gate(&world);
    let list = world.run(&["quarantine", "list", "--json"]).json();
    assert_eq!(verdicts(&list["quarantine"]), ["conflict", "refused"]);
    let for_people = world.run(&["quarantine", "list"]).out;
    assert!(for_people.contains("invalid_envelope"), "{for_people}");
    assert!(!for_people.contains('\u{1b}'), "what a producer sent cannot command the terminal");
}

#[test]
fn one_receipt_is_shown_and_its_body_is_byte_for_byte() {
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
fn an_id_that_is_not_here_is_said_to_be_so() {
    let world = World::new();
    let _gate = busy_gate(&world);
    let list = world.run(&["receipts", "list", "--json"]).json();
    let id = list["receipts"][0]["id"].as_str().expect("an id");
    let ledger = &id[..id.len() - 2];
    let said = world.run(&["receipts", "get", &format!("{ledger}-999")]);
    assert_eq!(said.code, Some(1));
    insta::assert_snapshot!(said.err.replace(ledger, "LEDGER"), @"admit: there is no receipt LEDGER-999 in this ledger");
    let said = world.run(&["receipts", "get", "rcp-00000000-1"]);
    assert_eq!(said.code, Some(1));
    insta::assert_snapshot!(said.err.replace(ledger, "LEDGER"), @"admit: rcp-00000000-1 is a receipt of another ledger; ids of this one start with LEDGER-");
}

#[test]
fn a_folder_without_a_ledger_is_said_to_be_so_and_stays_without() {
    let world = World::new();
    let said = world.run(&["receipts", "list"]);
    assert_eq!(said.code, Some(1));
    insta::assert_snapshot!(said.err, @r"
    admit: there is no ledger in ./admit-data
      name the gate's folder with --data, or its config with --config
    ");
    assert!(!world.path().join("admit-data").exists(), "reading creates nothing");
}
