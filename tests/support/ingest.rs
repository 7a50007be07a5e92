//! Envelopes as a data platform pushes them, and what the ingestion gate leaves behind.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::gate::Launch;
use super::http::{Answer, Client};
use super::sql;

/// Where envelopes are posted.
pub(crate) const PUSH: &str = "/v1/ingest/push";

/// What was observed on the reference: an envelope, and everything that is derived from it.
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

/// The golden run.
pub(crate) const RUN: &str = "platform_20260212T085637Z";

/// A gate on `data`, impatient enough for tests.
pub(crate) fn impatient(data: &Path) -> Launch {
    Launch::on(data)
        .variable("ADMIT_BUS__DELIVERY_TIMEOUT_MS", "50")
        .variable("ADMIT_DOORS__INGESTION_GATE__ARTIFACTS_SYNC_MS", "50")
}

/// Pushes an envelope.
pub(crate) fn push(client: &mut Client, envelope: &Value) -> Answer {
    push_bytes(client, envelope.to_string().as_bytes())
}

/// Pushes any bytes.
pub(crate) fn push_bytes(client: &mut Client, body: &[u8]) -> Answer {
    client.send("POST", PUSH, &[], body).expect("the gate answers")
}

/// The decision, and the receipt's own words, of an answer with status 200.
pub(crate) fn decided(answer: &Answer) -> (String, Value) {
    let said = answer.json();
    assert_eq!(answer.status, 200, "{said}");
    (said["decision"].as_str().unwrap().to_owned(), said["receipt"].clone())
}

/// `DECISION`, or `DECISION REASON`.
pub(crate) fn gist(answer: &Answer) -> String {
    let (decision, receipt) = decided(answer);
    match receipt["reason_codes"][0].as_str() {
        Some(reason) => format!("{decision} {reason}"),
        None => decision,
    }
}

/// The lines of a topic, parsed.
pub(crate) fn topic(data: &Path, topic: &str) -> Vec<Value> {
    let path = data.join("bus").join(topic).join("partition=0.jsonl");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The stream that the golden envelope goes to.
pub(crate) const STREAM: &str = "fp.bus.traffic.fraud.v1";

/// The ids of the events on a stream, in order.
pub(crate) fn published(data: &Path, stream: &str) -> Vec<String> {
    let lines = topic(data, stream);
    lines.iter().map(|line| line["payload"]["event_id"].as_str().unwrap().to_owned()).collect()
}

/// Where a file that a receipt names is.
pub(crate) fn artifact(data: &Path, reference: &str) -> PathBuf {
    data.join("artifacts").join(reference)
}

/// The document under a reference.
pub(crate) fn document(data: &Path, reference: &str) -> Value {
    let text = fs::read_to_string(artifact(data, reference)).expect("the artifact is there");
    assert!(text.ends_with('\n'), "a document ends its line");
    serde_json::from_str(&text).unwrap()
}

/// One value of a query of the ledger.
pub(crate) fn count(data: &Path, query: &str) -> i64 {
    sql::one(data, query)
}

/// The counters of the golden run: deliveries, in_flight, ambiguous, admit, duplicate, quarantine.
pub(crate) fn counters(data: &Path) -> [i64; 6] {
    let query = format!(
        "SELECT deliveries, in_flight, ambiguous, admit, duplicate, quarantine FROM run
         WHERE platform_run_id = '{RUN}'"
    );
    let rows = sql::rows(data, &query);
    std::array::from_fn(|at| rows[0].get(at))
}
