//! Sample intents, and requests to the intents door.

use std::path::Path;

use serde_json::{Value, json};

use super::gate::{Gate, Launch};
use super::http::{Client, HttpResponse};

/// Path to which intents are posted.
pub(crate) const INTENTS: &str = "/v1/intents";

/// A packet that creates the task `title`.
pub(crate) fn task(title: &str) -> Value {
    json!({ "kind": "intent", "intent_type": "create_task", "fields": { "title": title } })
}

/// A gate that executes intents through the gateway at `url`, with short timeouts.
pub(crate) fn executing(data: &Path, url: &str) -> Launch {
    planning(data)
        .variable("EXECUTE_ACTIONS", "true")
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", url)
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TOKEN", "gateway-token")
}

/// A gate that only plans intents, with short timeouts.
pub(crate) fn planning(data: &Path) -> Launch {
    Launch::on(data)
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "4000")
        .variable("ADMIT_DOORS__INTENTS__IN_WORK_WAIT_MS", "8000")
}

/// Posts a packet.
pub(crate) fn paste(client: &mut Client, packet: &Value) -> HttpResponse {
    paste_text(client, &packet.to_string())
}

/// Posts any text.
pub(crate) fn paste_text(client: &mut Client, text: &str) -> HttpResponse {
    client.send("POST", INTENTS, &[], text.as_bytes()).expect("response from the gate")
}

/// Returns the HTTP status, and status and receipt id of the envelope.
pub(crate) fn outcome(response: &HttpResponse) -> (u16, String, String) {
    let envelope = response.json();
    let text = |name: &str| envelope[name].as_str().unwrap_or_default().to_owned();
    (response.status, text("status"), text("receipt_id"))
}

/// Returns the states in the history of an intent.
pub(crate) fn history(gate: &Gate, receipt_id: &str) -> Vec<String> {
    let intent = gate.client().get(&format!("{INTENTS}/{receipt_id}"));
    let lines = intent["history"].as_array().expect("the intent has a history").clone();
    lines.iter().map(|line| line["what"].as_str().unwrap().to_owned()).collect()
}

/// Runs an `admit` command; returns whether it succeeded, and its output.
pub(crate) fn admit(arguments: &[&str]) -> (bool, String) {
    admit_with(arguments, &[])
}

/// [`admit`] with environment variables.
pub(crate) fn admit_with(arguments: &[&str], variables: &[(&str, String)]) -> (bool, String) {
    let mut command = super::gate::admit(arguments);
    for (name, value) in variables {
        command.env(name, value);
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}
