//! Table of error codes.
//!
//! Codes are stable: docs and producers rely on them, and a retired code is never reused. Each has
//! a page `docs/errors/<code>.md`. Contracts translate a [`Code`] into their own wire format; no
//! other reasons exist.

/// Whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Fails again until the producer changes something.
    Never,
    /// May pass later: send the same request again after a while. The key makes it safe.
    SameRequest,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal $status:literal $retry:ident;)+) => {
        /// A stable reason code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// All codes, in table order.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Name on the wire and in the ledger.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Default HTTP status; a contract may use another.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// Whether a retry helps.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)+ }
            }
        }
    };
}

codes! {
    /// The body is not JSON as required by the contract.
    InvalidJson "invalid_json" 400 Never;
    /// The body is JSON but does not match the contract's envelope.
    InvalidEnvelope "invalid_envelope" 400 Never;
    /// The contract does not support this schema version.
    SchemaVersionUnsupported "schema_version_unsupported" 400 Never;
    /// The event is older than the retention horizon, so it may be a copy of a purged event.
    OutsideHorizon "outside_horizon" 422 Never;
    /// The contract requires an idempotency key and there is none.
    IdempotencyKeyMissing "idempotency_key_missing" 400 Never;
    /// The key is known with other content.
    IdempotencyKeyReused "idempotency_key_reused" 422 Never;
    /// The id belongs to another principal, which sent other content under it.
    EventIdTaken "event_id_taken" 409 Never;
    /// The first event under this key is still being processed.
    IdempotencyKeyInUse "idempotency_key_in_use" 409 SameRequest;
    /// The lease has expired, or the event was released or claimed by another consumer.
    LeaseLost "lease_lost" 409 Never;
    /// The content type is not supported.
    UnsupportedMediaType "unsupported_media_type" 415 Never;
    /// The body exceeds the size limit of the door.
    BodyTooLarge "body_too_large" 413 Never;
    /// The API key is missing or unknown.
    Unauthorized "unauthorized" 401 Never;
    /// The API key lacks the permission.
    Forbidden "forbidden" 403 Never;
    /// Unknown route or id.
    NotFound "not_found" 404 Never;
    /// The route does not support this method.
    MethodNotAllowed "method_not_allowed" 405 Never;
    /// A query or header value is invalid.
    InvalidRequest "invalid_request" 400 Never;
    /// An attempt of this effect is in progress; another one must wait for its outcome.
    InWork "in_work" 409 SameRequest;
    /// The run accepts no new events; duplicates are still recognised.
    RunClosed "run_closed" 409 Never;
    /// The run is being closed; it accepts new events again if closing fails.
    RunClosing "run_closing" 503 SameRequest;
    /// The run cannot be closed; all reasons are listed.
    ClosureRefused "closure_refused" 409 Never;
    /// The attempt cannot be reconciled in this way, or not yet.
    NotReconcilable "not_reconcilable" 409 Never;
    /// A dependency of this door is down; nothing was written.
    Unhealthy "unhealthy" 503 SameRequest;
    /// There is nothing to replay.
    NotReplayable "not_replayable" 409 Never;
    /// The body did not arrive in time.
    RequestTimeout "request_timeout" 408 SameRequest;
    /// The rate limit of the producer is exceeded.
    RateLimited "rate_limited" 429 SameRequest;
    /// Too many events are in flight.
    Overloaded "overloaded" 503 SameRequest;
    /// The gate is shutting down.
    Draining "draining" 503 SameRequest;
    /// The ledger could not store the event; nothing was written.
    LedgerUnavailable "ledger_unavailable" 503 SameRequest;
    /// It is unknown whether the commit happened; a retry finds out.
    OutcomeUnknown "outcome_unknown" 503 SameRequest;
    /// Internal error. The event may have been stored; a retry finds out.
    InternalError "internal_error" 500 SameRequest;
}

impl Code {
    /// Parses a code name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// Whether the same request may pass later.
    pub fn is_retryable(self) -> bool {
        self.retry() == Retry::SameRequest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_and_a_retry_hint() {
        let table: String = Code::ALL
            .iter()
            .map(|code| format!("{} {} {:?}\n", code.as_str(), code.http_status(), code.retry()))
            .collect();
        insta::assert_snapshot!(table, @r"
        invalid_json 400 Never
        invalid_envelope 400 Never
        schema_version_unsupported 400 Never
        outside_horizon 422 Never
        idempotency_key_missing 400 Never
        idempotency_key_reused 422 Never
        event_id_taken 409 Never
        idempotency_key_in_use 409 SameRequest
        lease_lost 409 Never
        unsupported_media_type 415 Never
        body_too_large 413 Never
        unauthorized 401 Never
        forbidden 403 Never
        not_found 404 Never
        method_not_allowed 405 Never
        invalid_request 400 Never
        in_work 409 SameRequest
        run_closed 409 Never
        run_closing 503 SameRequest
        closure_refused 409 Never
        not_reconcilable 409 Never
        unhealthy 503 SameRequest
        not_replayable 409 Never
        request_timeout 408 SameRequest
        rate_limited 429 SameRequest
        overloaded 503 SameRequest
        draining 503 SameRequest
        ledger_unavailable 503 SameRequest
        outcome_unknown 503 SameRequest
        internal_error 500 SameRequest
        ");
    }

    #[test]
    fn codes_round_trip_and_names_are_unique() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        assert_eq!(Code::parse("no_such_code"), None);
    }
}
