//! The code table: every way an answer can be other than "accepted", once.
//!
//! A code is for ever: docs and producers rely on it, and a retired one is never used again. Each
//! has a page `docs/errors/<code>.md`. Contracts translate a [`Code`] into their own wire words;
//! nothing else invents reasons.

/// Whether sending the same thing again helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It will fail again until the producer changes something.
    Never,
    /// It may pass by itself: send the same request again after a while. The key makes it safe.
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
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The code as it stands on the wire and in the ledger.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The HTTP status of the general dialect. A contract may say otherwise.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// Whether sending it again helps.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)+ }
            }
        }
    };
}

codes! {
    /// The body is not JSON as the contract wants it.
    InvalidJson "invalid_json" 400 Never;
    /// The body is JSON but not of the contract's shape.
    InvalidEnvelope "invalid_envelope" 400 Never;
    /// The contract does not know this schema version.
    SchemaVersionUnsupported "schema_version_unsupported" 400 Never;
    /// The event happened longer ago than the ledger remembers, so it may be a copy.
    OutsideHorizon "outside_horizon" 422 Never;
    /// Nothing names the event where the contract wants a name.
    IdempotencyKeyMissing "idempotency_key_missing" 400 Never;
    /// The key is known, with other content.
    IdempotencyKeyReused "idempotency_key_reused" 422 Never;
    /// The id belongs to another principal, which sent other content under it.
    EventIdTaken "event_id_taken" 409 Never;
    /// The first event under this key is still in work.
    IdempotencyKeyInUse "idempotency_key_in_use" 409 SameRequest;
    /// The lease has expired, or the event was given back or claimed by somebody else.
    LeaseLost "lease_lost" 409 Never;
    /// The request wants another content type.
    UnsupportedMediaType "unsupported_media_type" 415 Never;
    /// The body is larger than the door takes.
    BodyTooLarge "body_too_large" 413 Never;
    /// No key, or a key nobody has.
    Unauthorized "unauthorized" 401 Never;
    /// The key is known but may not do this.
    Forbidden "forbidden" 403 Never;
    /// No such route, or nothing is known under this id.
    NotFound "not_found" 404 Never;
    /// The route exists, but not with this method.
    MethodNotAllowed "method_not_allowed" 405 Never;
    /// A query or header value cannot be read.
    InvalidRequest "invalid_request" 400 Never;
    /// An attempt at this effect is in work; another one must wait for its outcome.
    InWork "in_work" 409 SameRequest;
    /// The run takes nothing new any more; what is known is still recognised.
    RunClosed "run_closed" 409 Never;
    /// Something speaks against closing the run; every reason is told.
    ClosureRefused "closure_refused" 409 Never;
    /// The outcome of an attempt cannot be settled in this way, or not yet.
    NotReconcilable "not_reconcilable" 409 Never;
    /// A part that this door needs is down; nothing was written.
    Unhealthy "unhealthy" 503 SameRequest;
    /// There is nothing here that could be done again.
    NotReplayable "not_replayable" 409 Never;
    /// The body did not arrive in time.
    RequestTimeout "request_timeout" 408 SameRequest;
    /// This producer sends faster than it may.
    RateLimited "rate_limited" 429 SameRequest;
    /// More events are in work than the gate takes at once.
    Overloaded "overloaded" 503 SameRequest;
    /// The gate is shutting down.
    Draining "draining" 503 SameRequest;
    /// The ledger could not take the event; nothing of it was kept.
    LedgerUnavailable "ledger_unavailable" 503 SameRequest;
    /// The ledger did not say whether the event was kept; a retry finds out.
    OutcomeUnknown "outcome_unknown" 503 SameRequest;
    /// A defect of ours. The event may be kept; a retry finds out.
    InternalError "internal_error" 500 SameRequest;
}

impl Code {
    /// The code that `text` spells, if there is one.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// `true` when sending the same request again may pass.
    pub fn is_retryable(self) -> bool {
        self.retry() == Retry::SameRequest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_and_says_whether_a_retry_helps() {
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
    fn codes_read_back_and_are_spelt_once() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        assert_eq!(Code::parse("no_such_code"), None);
    }
}
