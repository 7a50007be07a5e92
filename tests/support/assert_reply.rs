//! Strict parser for replies of the pixel-control door.
//!
//! Every reply of every test goes through [`PixelReply::read`]: an object with one member more or less
//! than the contract's fails the test, because the real plugin treats an unknown shape as success.

use serde_json::{Map, Value};

use super::http::HttpResponse;

/// A reply of the pixel-control door: one of the closed shapes of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PixelReply {
    /// Accepted, first time.
    Processed(PixelAck),
    /// Accepted before.
    Duplicate(PixelAck),
    /// Contract violation; a retry cannot succeed.
    Rejected(PixelError),
    /// A typed error with its HTTP status.
    Error(u16, PixelError),
}

/// Acknowledgement of an accepted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PixelAck {
    pub(crate) event_id: String,
    pub(crate) idempotency_key: String,
    pub(crate) dedupe_key: String,
    pub(crate) received_at: String,
}

/// Code and message of an event that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PixelError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) retry_after_seconds: u64,
}

impl PixelReply {
    /// Parses a reply; panics unless it is exactly one of the contract's shapes.
    pub(crate) fn read(response: &HttpResponse) -> Self {
        let body = response.json();
        let outer = members(&body);
        assert_eq!(outer.len(), 1, "expected exactly one member, ack or error: {body}");
        if let Some(error) = outer.get("error") {
            assert!(
                response.status >= 400,
                "error body with success status {}: {body}",
                response.status
            );
            return Self::Error(response.status, PixelError::read(members(error), &[]));
        }
        assert_eq!(response.status, 200, "ack body with a status other than 200: {body}");
        let ack =
            members(outer.get("ack").unwrap_or_else(|| panic!("neither ack nor error: {body}")));
        match text(ack, "status").as_str() {
            "accepted" => Self::accepted(ack),
            "rejected" => Self::Rejected(PixelError::read(ack, &["status"])),
            other => panic!("ack.status {other} is not in the contract: {body}"),
        }
    }

    fn accepted(members: &Map<String, Value>) -> Self {
        let names =
            ["dedupe_key", "disposition", "event_id", "idempotency_key", "received_at", "status"];
        assert_names(members, &names);
        let ack = PixelAck {
            event_id: text(members, "event_id"),
            idempotency_key: text(members, "idempotency_key"),
            dedupe_key: text(members, "dedupe_key"),
            received_at: text(members, "received_at"),
        };
        match text(members, "disposition").as_str() {
            "processed" => Self::Processed(ack),
            "duplicate" => Self::Duplicate(ack),
            other => panic!("disposition {other} is not in the contract"),
        }
    }

    /// Whether the event was accepted for the first time.
    pub(crate) fn is_processed(&self) -> bool {
        matches!(self, Self::Processed(_))
    }

    /// Whether the event is a duplicate.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate(_))
    }

    /// Whether the event was accepted, now or before.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_processed() || self.is_duplicate()
    }

    /// Returns the ack of a newly accepted event; panics on any other reply.
    pub(crate) fn processed(self) -> PixelAck {
        let Self::Processed(ack) = self else { panic!("expected processed: {self:?}") };
        ack
    }

    /// Returns the ack of a duplicate; panics on any other reply.
    pub(crate) fn duplicate(self) -> PixelAck {
        let Self::Duplicate(ack) = self else { panic!("expected a duplicate: {self:?}") };
        ack
    }

    /// Returns the error of a rejection; panics on any other reply.
    pub(crate) fn rejected(self) -> PixelError {
        let Self::Rejected(reason) = self else { panic!("expected a rejection: {self:?}") };
        assert!(!reason.retryable, "a contract violation must not be retryable: {reason:?}");
        reason
    }

    /// Returns the error of a reply with HTTP status `status`; panics on any other reply.
    pub(crate) fn error(self, status: u16) -> PixelError {
        let Self::Error(found, reason) = self else { panic!("expected an error: {self:?}") };
        assert_eq!(found, status, "{reason:?}");
        reason
    }

    /// Returns the error of a retryable 503; panics on any other reply.
    pub(crate) fn unavailable(self) -> PixelError {
        let reason = self.error(503);
        assert_eq!(reason.code, "ingestion_unavailable", "{reason:?}");
        assert!(reason.retryable && reason.retry_after_seconds >= 5, "{reason:?}");
        reason
    }
}

impl PixelError {
    fn read(object: &Map<String, Value>, others: &[&str]) -> Self {
        let mut names = ["code", "message", "retry_after_seconds", "retryable"].to_vec();
        names.extend(others);
        names.sort_unstable();
        assert_names(object, &names);
        let reason = Self {
            code: text(object, "code"),
            message: text(object, "message"),
            retryable: object["retryable"].as_bool().expect("retryable is true or false"),
            retry_after_seconds: object["retry_after_seconds"].as_u64().expect("whole seconds"),
        };
        assert!(!reason.code.is_empty() && !reason.message.is_empty(), "{reason:?}");
        assert_eq!(reason.retryable, reason.retry_after_seconds > 0, "{reason:?}");
        reason
    }
}

fn members(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("expected a JSON object: {value}"))
}

fn text(object: &Map<String, Value>, name: &str) -> String {
    let found = object.get(name).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("expected a string member {name}: {object:?}")).to_owned()
}

fn assert_names(object: &Map<String, Value>, names: &[&str]) {
    let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, names, "members differ from the contract");
}
