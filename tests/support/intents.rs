//! Intents as people paste them, and what the door says to them.

use std::path::Path;

use serde_json::{Value, json};

use super::gate::{Gate, Launch};
use super::http::{Answer, Client};

/// Where intents are posted.
pub(crate) const INTENTS: &str = "/v1/intents";

/// A packet that asks for the task `title`.
pub(crate) fn task(title: &str) -> Value {
    json!({ "kind": "intent", "intent_type": "create_task", "fields": { "title": title } })
}

/// A gate that executes through the gateway at `url`, impatient enough for tests.
pub(crate) fn executing(data: &Path, url: &str) -> Launch {
    planning(data)
        .variable("EXECUTE_ACTIONS", "true")
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", url)
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TOKEN", "gateway-token")
}

/// A gate that only plans.
pub(crate) fn planning(data: &Path) -> Launch {
    Launch::on(data)
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "4000")
        .variable("ADMIT_DOORS__INTENTS__IN_WORK_WAIT_MS", "8000")
}

/// Pastes a packet.
pub(crate) fn paste(client: &mut Client, packet: &Value) -> Answer {
    paste_text(client, &packet.to_string())
}

/// Pastes any text.
pub(crate) fn paste_text(client: &mut Client, text: &str) -> Answer {
    client.send("POST", INTENTS, &[], text.as_bytes()).expect("the gate answers")
}

/// What an envelope says of its receipt and status, with the HTTP status.
pub(crate) fn gist(answer: &Answer) -> (u16, String, String) {
    let envelope = answer.json();
    let text = |name: &str| envelope[name].as_str().unwrap_or_default().to_owned();
    (answer.status, text("status"), text("receipt_id"))
}

/// The states an intent went through, as its history tells.
pub(crate) fn history(gate: &Gate, receipt_id: &str) -> Vec<String> {
    let intent = gate.client().get(&format!("{INTENTS}/{receipt_id}"));
    let lines = intent["history"].as_array().expect("an intent has a history").clone();
    lines.iter().map(|line| line["what"].as_str().unwrap().to_owned()).collect()
}

/// Runs the command line; whether it went well, and what it printed.
pub(crate) fn admit(arguments: &[&str]) -> (bool, String) {
    admit_with(arguments, &[])
}

/// The same with variables in its environment.
pub(crate) fn admit_with(arguments: &[&str], variables: &[(&str, String)]) -> (bool, String) {
    let mut command = super::gate::admit(arguments);
    for (name, value) in variables {
        command.env(name, value);
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}
