//! What the pixel door said, read as strictly as the contract writes it.
//!
//! Every reply of every test goes through [`Said::read`]: an object with one member more or less
//! than the contract's fails the test, because the real plugin takes what it does not know for
//! success.

use serde_json::{Map, Value};

use super::http::Answer;

/// One of the three closed shapes of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Accepted, first time.
    Processed(Ack),
    /// Accepted before.
    Duplicate(Ack),
    /// A contract violation; a retry is useless.
    Rejected(Reason),
    /// A typed error with its HTTP status.
    Error(u16, Reason),
}

/// What an accepted event is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) event_id: String,
    pub(crate) idempotency_key: String,
    pub(crate) dedupe_key: String,
    pub(crate) received_at: String,
}

/// Why an event was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) retry_after_seconds: u64,
}

impl Said {
    /// Reads a reply; fails unless it is exactly one of the contract's shapes.
    pub(crate) fn read(answer: &Answer) -> Self {
        let body = answer.json();
        let outer = members(&body);
        assert_eq!(outer.len(), 1, "one member, ack or error: {body}");
        if let Some(error) = outer.get("error") {
            assert!(answer.status >= 400, "an error is no success: {} {body}", answer.status);
            return Self::Error(answer.status, Reason::read(members(error), &[]));
        }
        assert_eq!(answer.status, 200, "an ack is a contract-level outcome: {body}");
        let ack = members(outer.get("ack").unwrap_or_else(|| panic!("neither: {body}")));
        match text(ack, "status").as_str() {
            "accepted" => Self::accepted(ack),
            "rejected" => Self::Rejected(Reason::read(ack, &["status"])),
            other => panic!("ack.status {other} is none of the contract's: {body}"),
        }
    }

    fn accepted(ack: &Map<String, Value>) -> Self {
        let names =
            ["dedupe_key", "disposition", "event_id", "idempotency_key", "received_at", "status"];
        assert_names(ack, &names);
        let told = Ack {
            event_id: text(ack, "event_id"),
            idempotency_key: text(ack, "idempotency_key"),
            dedupe_key: text(ack, "dedupe_key"),
            received_at: text(ack, "received_at"),
        };
        match text(ack, "disposition").as_str() {
            "processed" => Self::Processed(told),
            "duplicate" => Self::Duplicate(told),
            other => panic!("disposition {other} is none of the contract's"),
        }
    }

    /// Whether the event was accepted for the first time.
    pub(crate) fn is_processed(&self) -> bool {
        matches!(self, Self::Processed(_))
    }

    /// Whether the event was known.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate(_))
    }

    /// Whether the event is in, now or before.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_processed() || self.is_duplicate()
    }

    /// The ack of an event that was accepted for the first time.
    pub(crate) fn processed(self) -> Ack {
        let Self::Processed(ack) = self else { panic!("should have been processed: {self:?}") };
        ack
    }

    /// The ack of an event that was known.
    pub(crate) fn duplicate(self) -> Ack {
        let Self::Duplicate(ack) = self else { panic!("should have been a duplicate: {self:?}") };
        ack
    }

    /// The reason of a rejection.
    pub(crate) fn rejected(self) -> Reason {
        let Self::Rejected(reason) = self else { panic!("should have been rejected: {self:?}") };
        assert!(!reason.retryable, "a contract violation stays one: {reason:?}");
        reason
    }

    /// The reason of a typed error with this status.
    pub(crate) fn error(self, status: u16) -> Reason {
        let Self::Error(found, reason) = self else {
            panic!("should have been an error: {self:?}")
        };
        assert_eq!(found, status, "{reason:?}");
        reason
    }

    /// The reason of "not now", which promises nothing about the event and asks for a retry.
    pub(crate) fn unavailable(self) -> Reason {
        let reason = self.error(503);
        assert_eq!(reason.code, "ingestion_unavailable", "{reason:?}");
        assert!(reason.retryable && reason.retry_after_seconds >= 5, "{reason:?}");
        reason
    }
}

impl Reason {
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
    value.as_object().unwrap_or_else(|| panic!("a JSON object is wanted: {value}"))
}

fn text(object: &Map<String, Value>, name: &str) -> String {
    let found = object.get(name).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("a text {name} is wanted: {object:?}")).to_owned()
}

fn assert_names(object: &Map<String, Value>, names: &[&str]) {
    let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, names, "exactly the contract's members");
}
