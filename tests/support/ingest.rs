//! Sample envelopes of a data platform, and the bus, artifacts and counters of the ingestion gate.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::gate::Launch;
use super::http::{Client, HttpResponse};
use super::sql;

/// Path to which envelopes are posted.
pub(crate) const PUSH: &str = "/v1/ingest/push";

/// Golden data from the reference: an envelope, and all values derived from it.
pub(crate) fn golden() -> Value {
    serde_json::from_str(include_str!("../fixtures/ingestion-gate.json")).unwrap()
}

/// The golden envelope as event number `n` of the golden run.
pub(crate) fn envelope(n: u64) -> Value {
    let mut envelope = golden()["envelope"].clone();
    envelope["event_id"] = format!("event-{n}").into();
    envelope["payload"]["flow_id"] = n.into();
    envelope
}

/// Id of the golden run.
pub(crate) const RUN: &str = "platform_20260212T085637Z";

/// A gate on `data` with short timeouts.
pub(crate) fn launch_fast(data: &Path) -> Launch {
    Launch::on(data)
        .variable("ADMIT_BUS__DELIVERY_TIMEOUT_MS", "50")
        .variable("ADMIT_DOORS__INGESTION_GATE__ARTIFACTS_SYNC_MS", "50")
}

/// Pushes an envelope.
pub(crate) fn push(client: &mut Client, envelope: &Value) -> HttpResponse {
    push_bytes(client, envelope.to_string().as_bytes())
}

/// Pushes any bytes.
pub(crate) fn push_bytes(client: &mut Client, body: &[u8]) -> HttpResponse {
    client.send("POST", PUSH, &[], body).expect("response from the gate")
}

/// Returns decision and receipt of a response with status 200.
pub(crate) fn read_decision(response: &HttpResponse) -> (String, Value) {
    let reply = response.json();
    assert_eq!(response.status, 200, "{reply}");
    (reply["decision"].as_str().unwrap().to_owned(), reply["receipt"].clone())
}

/// Returns `DECISION`, or `DECISION REASON`.
pub(crate) fn outcome(response: &HttpResponse) -> String {
    let (decision, receipt) = read_decision(response);
    match receipt["reason_codes"][0].as_str() {
        Some(reason) => format!("{decision} {reason}"),
        None => decision,
    }
}

/// Returns the messages of a topic on the file bus.
pub(crate) fn topic(data: &Path, topic: &str) -> Vec<Value> {
    let path = data.join("bus").join(topic).join("partition=0.jsonl");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Topic of the golden envelope.
pub(crate) const STREAM: &str = "fp.bus.traffic.fraud.v1";

/// Returns the ids of the events on a topic, in order.
pub(crate) fn published(data: &Path, stream: &str) -> Vec<String> {
    let lines = topic(data, stream);
    lines.iter().map(|line| line["payload"]["event_id"].as_str().unwrap().to_owned()).collect()
}

/// Path of the artifact at a reference.
pub(crate) fn artifact(data: &Path, reference: &str) -> PathBuf {
    data.join("artifacts").join(reference)
}

/// Reads the artifact at a reference as JSON.
pub(crate) fn document(data: &Path, reference: &str) -> Value {
    let text = fs::read_to_string(artifact(data, reference)).expect("the artifact exists");
    assert!(text.ends_with('\n'), "no line end at the end of a document");
    serde_json::from_str(&text).unwrap()
}

/// Returns the number that a query of the ledger yields.
pub(crate) fn count(data: &Path, query: &str) -> i64 {
    sql::query_one(data, query)
}

/// The counters of the golden run: deliveries, in_flight, ambiguous, admit, duplicate, quarantine.
pub(crate) fn counters(data: &Path) -> [i64; 6] {
    let query = format!(
        "SELECT deliveries, in_flight, ambiguous, admit, duplicate, quarantine FROM run
         WHERE platform_run_id = '{RUN}'"
    );
    let rows = sql::query_rows(data, &query);
    std::array::from_fn(|at| rows[0].get(at))
}
