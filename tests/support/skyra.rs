//! Envelopes as edge devices send them, the three ways they travel, and the inbox with SQL.

use std::path::Path;

use serde_json::{Value, json};

use super::gate::Gate;
use super::grpc::{Call, Caller};
use super::http::Client;
use super::sql;
use super::ws::Socket;

/// Where single envelopes are posted.
pub(crate) const DOOR: &str = "/v1/ingress";

/// The id of envelope number `n`.
pub(crate) fn id(n: u64) -> String {
    format!("evt_01JZ4J1NZ0A1G8R4J8X3{n:06}")
}

/// Envelope number `n`, as the contract's own text shows one.
pub(crate) fn envelope(n: u64) -> Value {
    json!({
        "schema_version": 1,
        "event_id": id(n),
        "type": "proposal.task",
        "ts": "2026-02-16T23:10:21Z",
        "session_id": "sess_01JZ4J1M9V52K8GSRP8YQ0N2YA",
        "device_id": "pi-livingroom-01",
        "payload": {
            "intent": "server.log_summary",
            "confidence": 0.84,
            "user_text": "summarize last night crash logs",
        },
    })
}

pub(crate) fn text(n: u64) -> String {
    envelope(n).to_string()
}

/// One way to send an envelope.
pub(crate) enum Wire {
    WebSocket(Socket),
    Grpc(Box<(Caller, Call)>),
    Http(Client),
}

impl Wire {
    /// All three, to one gate.
    pub(crate) fn all(gate: &Gate) -> [Self; 3] {
        let mut caller = Caller::to(gate.address());
        let call = caller.call().expect("the stream opens");
        [
            Self::WebSocket(Socket::open(gate.address())),
            Self::Grpc(Box::new((caller, call))),
            Self::Http(gate.client()),
        ]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::WebSocket(_) => "websocket",
            Self::Grpc(_) => "grpc",
            Self::Http(_) => "http",
        }
    }

    /// Sends a body and reads its answer.
    pub(crate) fn say(&mut self, body: &[u8]) -> Value {
        match self {
            Self::WebSocket(socket) => socket.say(body),
            Self::Grpc(both) => both.0.say(&mut both.1, body),
            Self::Http(client) => client.send("POST", DOOR, &[], body).unwrap().json(),
        }
    }
}

/// Checks that an answer is exactly an ACK for `event_id`.
pub(crate) fn assert_acked(answer: &Value, event_id: &str) {
    let members = answer.as_object().expect("an answer is an object");
    let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["ack_ts", "event_id", "status"], "{answer}");
    assert_eq!((&answer["event_id"], &answer["status"]), (&json!(event_id), &json!("stored")));
    assert_time(&answer["ack_ts"]);
}

/// Checks that an answer is exactly a NACK with this code, about `event_id`; returns its message.
pub(crate) fn assert_nacked(answer: &Value, event_id: Option<&str>, code: &str) -> String {
    let members = answer.as_object().expect("an answer is an object");
    let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["error", "event_id", "nack_ts", "status"], "{answer}");
    assert_eq!(answer["event_id"], json!(event_id), "{answer}");
    assert_eq!((&answer["status"], &answer["error"]["code"]), (&json!("rejected"), &json!(code)));
    assert_time(&answer["nack_ts"]);
    let retryable = matches!(code, "rate_limited" | "storage_unavailable");
    assert_eq!(answer["error"]["retryable"], retryable, "{answer}");
    answer["error"]["message"].as_str().expect("a message").to_owned()
}

/// A time like `2026-02-16T23:10:21Z`.
fn assert_time(time: &Value) {
    let time = time.as_str().expect("a time is text");
    let like =
        |(byte, shape): (u8, u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    let shape = b"0000-00-00T00:00:00Z";
    assert!(time.len() == shape.len() && time.bytes().zip(*shape).all(like), "{time}");
}

/// A row of the inbox, as SQL shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) event_id: String,
    pub(crate) status: String,
    pub(crate) received_at: String,
    pub(crate) last_updated_at: String,
    pub(crate) payload: String,
}

/// Every row of the inbox.
pub(crate) fn inbox(data: &Path) -> Vec<Row> {
    let query = "SELECT event_id, status, received_at, last_updated_at, payload FROM event_inbox";
    let read = |row: &sql::Row| Row {
        event_id: row.get(0),
        status: row.get(1),
        received_at: row.get(2),
        last_updated_at: row.get(3),
        payload: row.get(4),
    };
    sql::rows(data, query).iter().map(read).collect()
}
