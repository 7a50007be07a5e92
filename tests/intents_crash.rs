//! The gate is killed at every step of an intent: the gateway is called at most once, and the status is
//! correct.

use std::thread;

use serde_json::json;

use crate::support::gate::Gate;
use crate::support::gateway_stub::{GOOD, GatewayStub, StubAction};
use crate::support::http::Client;
use crate::support::intents::{INTENTS, executing, history, outcome, paste, task};
use crate::support::ledger::LedgerLock;
use crate::support::{TIMEOUT, sql, wait_for};

/// Maximum number of concurrent calls of a door; one more stays intended.
const CALLS_MAX: usize = 64;

/// Number of effects in a state.
fn effects_in(gate: &Gate, state: &str) -> i64 {
    sql::query_one(gate.data(), &format!("SELECT count(*) FROM effect WHERE state = '{state}'"))
}

/// Posts an intent without waiting for the reply.
fn post_and_hang_up(client: &mut Client, title: &str) {
    client.send_and_hang_up(INTENTS, task(title).to_string().as_bytes());
}

#[test]
fn killed_between_record_and_call_the_gateway_is_called_once_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Hold);
    let gate = executing(folder.path(), &stub.url())
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "60000")
        .start();
    for n in 0..CALLS_MAX {
        post_and_hang_up(&mut gate.client(), &format!("busy {n}"));
    }
    stub.wait_for_calls(CALLS_MAX);
    post_and_hang_up(&mut gate.client(), "waits");
    wait_for("one more intent is stored", TIMEOUT, || {
        (effects_in(&gate, "intended") == 1).then_some(())
    });
    gate.kill();
    stub.set_action(GOOD);

    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, receipt) = outcome(&paste(&mut gate.client(), &task("waits")));
    assert_eq!((status, word.as_str()), (200, "executed"), "an intended call must be resumed");
    let (status, word, _) = outcome(&paste(&mut gate.client(), &task("busy 0")));
    assert_eq!((status, word.as_str()), (502, "failed"), "a call in flight must be ambiguous");
    let calls = stub.calls();
    assert_eq!(calls.len(), CALLS_MAX + 1, "a call was repeated");
    let is_waiting = |title: &serde_json::Value| *title == json!("waits");
    assert_eq!(
        calls.iter().filter(|call| is_waiting(&call.body["payload"]["task"]["title"])).count(),
        1
    );
    assert_eq!(history(&gate, &receipt), ["received", "planned", "intended", "in_flight", "done"]);
    assert_eq!(effects_in(&gate, "ambiguous"), CALLS_MAX as i64);
    gate.stop();
}

#[test]
fn killed_during_the_call_the_outcome_is_unknown_and_stays_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Hold);
    let gate = executing(folder.path(), &stub.url()).start();
    post_and_hang_up(&mut gate.client(), "t");
    stub.wait_for_calls(1);
    gate.kill();
    stub.set_action(GOOD);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let gate = executing(folder.path(), &stub.url()).start();
        assert_eq!(effects_in(&gate, "ambiguous"), 1, "recovery must finish before the doors open");
        let response = paste(&mut gate.client(), &task("t"));
        let reply = response.json();
        assert_eq!((response.status, &reply["error"]["code"]), (502, &json!("outcome_unknown")));
        bodies.push(response.body);
        gate.stop();
    }
    assert_eq!(bodies[0], bodies[1], "replies differ");
    assert_eq!(stub.calls().len(), 1, "the call was repeated");
}

#[test]
fn killed_between_gateway_reply_and_commit_no_outcome_is_claimed_and_no_call_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Hold);
    let gate = executing(folder.path(), &stub.url()).start();
    thread::scope(|scope| {
        let address = gate.address();
        let pasting = scope.spawn(move || {
            Client::to(address).send("POST", INTENTS, &[], task("t").to_string().as_bytes())
        });
        stub.wait_for_calls(1);
        // The gateway replies, but the outcome cannot be committed.
        let lock = LedgerLock::acquire(folder.path());
        stub.set_action(GOOD);
        wait_for("the commit of the outcome blocks", TIMEOUT, || (!gate.is_ready()).then_some(()));
        assert_eq!(effects_in(&gate, "in_flight"), 1);
        gate.kill();
        drop(lock);
        assert!(pasting.join().unwrap().is_err(), "a reply was sent without an outcome");
    });
    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, receipt) = outcome(&paste(&mut gate.client(), &task("t")));
    assert_eq!((status, word.as_str()), (502, "failed"));
    assert_eq!(history(&gate, &receipt).last().unwrap(), "ambiguous");
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn killed_between_commit_and_reply_a_copy_gets_the_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    post_and_hang_up(&mut gate.client(), "t");
    wait_for("the outcome is committed", TIMEOUT, || {
        (effects_in(&gate, "done") == 1).then_some(())
    });
    gate.kill();
    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, _) = outcome(&paste(&mut gate.client(), &task("t")));
    assert_eq!((status, word.as_str()), (200, "executed"));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn a_call_finishes_despite_a_client_disconnect_and_a_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Hold);
    let gate = executing(folder.path(), &stub.url()).start();
    post_and_hang_up(&mut gate.client(), "t");
    stub.wait_for_calls(1);
    gate.terminate();
    stub.set_action(GOOD);
    let exit = gate.wait_for_exit();
    assert!(exit.status.success(), "{}", exit.stderr);
    let gate = executing(folder.path(), &stub.url()).start();
    let (status, word, _) = outcome(&paste(&mut gate.client(), &task("t")));
    assert_eq!((status, word.as_str()), (200, "executed"));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}
