//! The process dies at every boundary of an intent: at most one call, and a status that is true.

use std::thread;

use serde_json::json;

use crate::support::gate::Gate;
use crate::support::gateway_stub::{Does, GOOD, GatewayStub};
use crate::support::http::Client;
use crate::support::intents::{INTENTS, executing, gist, history, paste, task};
use crate::support::ledger::Held;
use crate::support::{SOON, sql, until};

/// As many calls at once as a door makes; one more waits, intended and not begun.
const CALLS_MAX: usize = 64;

/// How many effects stand so.
fn standing(gate: &Gate, state: &str) -> i64 {
    sql::one(gate.data(), &format!("SELECT count(*) FROM effect WHERE state = '{state}'"))
}

/// Posts without waiting for the answer.
fn throw_in(client: &mut Client, title: &str) {
    client.send_and_hang_up(INTENTS, task(title).to_string().as_bytes());
}

#[test]
fn killed_between_the_record_and_the_call_it_is_called_once_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::Holds);
    let gate = executing(folder.path(), &stub.url())
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "60000")
        .start();
    for n in 0..CALLS_MAX {
        throw_in(&mut gate.client(), &format!("busy {n}"));
    }
    stub.has(CALLS_MAX);
    throw_in(&mut gate.client(), "waits");
    until("one more is kept", SOON, || (standing(&gate, "intended") == 1).then_some(()));
    gate.kill();
    stub.now(GOOD);

    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, receipt) = gist(&paste(&mut gate.client(), &task("waits")));
    assert_eq!((status, word.as_str()), (200, "executed"), "what had not begun is resumed");
    let (status, word, _) = gist(&paste(&mut gate.client(), &task("busy 0")));
    assert_eq!((status, word.as_str()), (502, "failed"), "what was in flight is not known");
    let calls = stub.calls();
    assert_eq!(calls.len(), CALLS_MAX + 1, "nothing is called twice");
    let waited = |title: &serde_json::Value| *title == json!("waits");
    assert_eq!(
        calls.iter().filter(|call| waited(&call.body["payload"]["task"]["title"])).count(),
        1
    );
    assert_eq!(history(&gate, &receipt), ["received", "planned", "intended", "in_flight", "done"]);
    assert_eq!(standing(&gate, "ambiguous"), CALLS_MAX as i64);
    gate.stop();
}

#[test]
fn killed_while_the_call_is_under_way_the_outcome_is_unknown_and_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::Holds);
    let gate = executing(folder.path(), &stub.url()).start();
    throw_in(&mut gate.client(), "t");
    stub.has(1);
    gate.kill();
    stub.now(GOOD);
    let mut told = Vec::new();
    for _ in 0..2 {
        let gate = executing(folder.path(), &stub.url()).start();
        assert_eq!(standing(&gate, "ambiguous"), 1, "settled before the doors open");
        let answer = paste(&mut gate.client(), &task("t"));
        let said = answer.json();
        assert_eq!((answer.status, &said["error"]["code"]), (502, &json!("outcome_unknown")));
        told.push(answer.body);
        gate.stop();
    }
    assert_eq!(told[0], told[1], "the same for ever");
    assert_eq!(stub.calls().len(), 1, "never called again by itself");
}

#[test]
fn killed_between_the_answer_and_the_outcome_nothing_is_claimed_and_nothing_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::Holds);
    let gate = executing(folder.path(), &stub.url()).start();
    thread::scope(|scope| {
        let address = gate.address();
        let pasting = scope.spawn(move || {
            Client::to(address).send("POST", INTENTS, &[], task("t").to_string().as_bytes())
        });
        stub.has(1);
        // The answer comes, and cannot be written down.
        let held = Held::take(folder.path());
        stub.now(GOOD);
        until("the gate has tried to write", SOON, || (!gate.is_ready()).then_some(()));
        assert_eq!(standing(&gate, "in_flight"), 1);
        gate.kill();
        drop(held);
        assert!(pasting.join().unwrap().is_err(), "no outcome was claimed");
    });
    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, receipt) = gist(&paste(&mut gate.client(), &task("t")));
    assert_eq!((status, word.as_str()), (502, "failed"));
    assert_eq!(history(&gate, &receipt).last().unwrap(), "ambiguous");
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn killed_between_the_outcome_and_the_reply_the_copy_gets_the_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    throw_in(&mut gate.client(), "t");
    until("the outcome is on disk", SOON, || (standing(&gate, "done") == 1).then_some(()));
    gate.kill();
    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, _) = gist(&paste(&mut gate.client(), &task("t")));
    assert_eq!((status, word.as_str()), (200, "executed"));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn a_client_that_hangs_up_and_a_gate_that_is_asked_to_end_both_let_the_call_finish() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::Holds);
    let gate = executing(folder.path(), &stub.url()).start();
    throw_in(&mut gate.client(), "t");
    stub.has(1);
    gate.terminate();
    stub.now(GOOD);
    let ended = gate.ended();
    assert!(ended.status.success(), "{}", ended.stderr);
    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, _) = gist(&paste(&mut gate.client(), &task("t")));
    assert_eq!((status, word.as_str()), (200, "executed"));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}
