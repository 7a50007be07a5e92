//! Sample envelopes of edge devices, clients for the three transports, and SQL access to the inbox.

use std::path::Path;

use serde_json::{Value, json};

use super::gate::Gate;
use super::grpc::{GrpcClient, GrpcStream};
use super::http::Client;
use super::sql;
use super::ws::Socket;

/// Path to which single envelopes are posted.
pub(crate) const DOOR: &str = "/v1/ingress";

/// The id of envelope number `n`.
pub(crate) fn id(n: u64) -> String {
    format!("evt_01JZ4J1NZ0A1G8R4J8X3{n:06}")
}

/// Envelope number `n`, like the sample of the contract.
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

/// Client of one transport.
pub(crate) enum Wire {
    WebSocket(Socket),
    Grpc(Box<(GrpcClient, GrpcStream)>),
    Http(Client),
}

impl Wire {
    /// Connects to a gate over all three transports.
    pub(crate) fn all(gate: &Gate) -> [Self; 3] {
        let mut client = GrpcClient::to(gate.address());
        let stream = client.open_stream().expect("the stream opens");
        [
            Self::WebSocket(Socket::open(gate.address())),
            Self::Grpc(Box::new((client, stream))),
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

    /// Sends a body and reads its reply.
    pub(crate) fn submit(&mut self, body: &[u8]) -> Value {
        match self {
            Self::WebSocket(socket) => socket.submit(body),
            Self::Grpc(both) => both.0.submit_on(&mut both.1, body),
            Self::Http(client) => client.send("POST", DOOR, &[], body).unwrap().json(),
        }
    }
}

/// Asserts that a reply is exactly an ACK for `event_id`.
pub(crate) fn assert_acked(reply: &Value, event_id: &str) {
    let members = reply.as_object().expect("the reply is an object");
    let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["ack_ts", "event_id", "status"], "{reply}");
    assert_eq!((&reply["event_id"], &reply["status"]), (&json!(event_id), &json!("stored")));
    assert_time(&reply["ack_ts"]);
}

/// Asserts that a reply is exactly a NACK for `event_id` with this code; returns its message.
pub(crate) fn assert_nacked(reply: &Value, event_id: Option<&str>, code: &str) -> String {
    let members = reply.as_object().expect("the reply is an object");
    let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["error", "event_id", "nack_ts", "status"], "{reply}");
    assert_eq!(reply["event_id"], json!(event_id), "{reply}");
    assert_eq!((&reply["status"], &reply["error"]["code"]), (&json!("rejected"), &json!(code)));
    assert_time(&reply["nack_ts"]);
    let retryable = matches!(code, "rate_limited" | "storage_unavailable");
    assert_eq!(reply["error"]["retryable"], retryable, "{reply}");
    reply["error"]["message"].as_str().expect("a message").to_owned()
}

/// Asserts a timestamp like `2026-02-16T23:10:21Z`.
fn assert_time(time: &Value) {
    let time = time.as_str().expect("a timestamp is a string");
    let like =
        |(byte, shape): (u8, u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    let shape = b"0000-00-00T00:00:00Z";
    assert!(time.len() == shape.len() && time.bytes().zip(*shape).all(like), "{time}");
}

/// A row of the inbox table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InboxRow {
    pub(crate) event_id: String,
    pub(crate) status: String,
    pub(crate) received_at: String,
    pub(crate) last_updated_at: String,
    pub(crate) payload: String,
}

/// Returns all rows of the inbox.
pub(crate) fn inbox(data: &Path) -> Vec<InboxRow> {
    let query = "SELECT event_id, status, received_at, last_updated_at, payload FROM event_inbox";
    let read = |row: &sql::Row| InboxRow {
        event_id: row.get(0),
        status: row.get(1),
        received_at: row.get(2),
        last_updated_at: row.get(3),
        payload: row.get(4),
    };
    sql::query_rows(data, query).iter().map(read).collect()
}
