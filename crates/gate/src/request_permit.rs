//! Permit of a request whose body has been read, and the checks before its events are admitted.

use std::sync::Arc;

use admit_core::Code;

use crate::admission_limiter::AdmissionPermit;
use crate::auth::{AccessDenied, TOO_MANY_CONNECTIONS};
use crate::gate::Gate;
use crate::rate_limit::RateExceeded;
use crate::unauthenticated_connections::ConnectionAuth;

/// Reason why the events of a request are not admitted.
pub(crate) struct NotAdmitted {
    pub(crate) code: Code,
    pub(crate) message: &'static str,
    /// Minimum time until a retry can succeed.
    pub(crate) wait_seconds: u32,
}

impl NotAdmitted {
    const fn new(code: Code, message: &'static str) -> Self {
        Self { code, message, wait_seconds: 0 }
    }
}

impl From<RateExceeded> for NotAdmitted {
    fn from(exceeded: RateExceeded) -> Self {
        Self { wait_seconds: exceeded.retry_after_seconds, ..RATE_EXCEEDED }
    }
}

/// A request whose body has been read.
pub(crate) struct RequestPermit {
    admission: AdmissionPermit,
    /// Index of the principal whose rate limit and share apply.
    index: usize,
    /// Connection of a request without a key, which is authenticated by the signature that `split` checks.
    unauthenticated: Option<Arc<ConnectionAuth>>,
}

impl RequestPermit {
    /// Permit of a request with a key, already counted as one event of the principal at `index`.
    pub(crate) fn with_key(admission: AdmissionPermit, index: usize) -> Self {
        Self { admission, index, unauthenticated: None }
    }

    /// Permit of a request without a key, whose signature must be that of the principal at `index`.
    pub(crate) fn without_key(
        admission: AdmissionPermit,
        index: usize,
        auth: Arc<ConnectionAuth>,
    ) -> Self {
        Self { admission, index, unauthenticated: Some(auth) }
    }

    /// Index of the principal.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether the request is authenticated by its signature.
    pub(crate) fn is_without_key(&self) -> bool {
        self.unauthenticated.is_some()
    }

    /// Counts `events` against the limits of the authenticated principal. The returned permit is held until
    /// the reply.
    pub(crate) fn admit(self, gate: &Gate, events: usize) -> Result<AdmissionPermit, NotAdmitted> {
        let Self { admission, index, unauthenticated } = self;
        let Some(auth) = unauthenticated else {
            gate.rates.allow_rest(index, events.saturating_sub(1), gate.clock.now())?;
            return Ok(admission);
        };
        if !auth.authenticate(&gate.authenticated, index) {
            let AccessDenied { code, message } = TOO_MANY_CONNECTIONS;
            return Err(NotAdmitted::new(code, message));
        }
        gate.rates.allow_batch(index, events, gate.clock.now())?;
        admission.into_authenticated(index).ok_or(OVERLOADED)
    }
}

/// The principal exceeds its rate limit.
pub(crate) const RATE_EXCEEDED: NotAdmitted = NotAdmitted::new(
    Code::RateLimited,
    "rate limit exceeded for this API key (limits.requests_per_second_max)",
);

/// The gate, or the principal's share of it, is full.
pub(crate) const OVERLOADED: NotAdmitted = NotAdmitted::new(
    Code::Overloaded,
    "too many events in flight at this gate, or of this principal",
);

/// Requests without a valid signature exceed the rate limit of a stream.
pub(crate) const UNSIGNED_RATE_EXCEEDED: NotAdmitted = NotAdmitted::new(
    Code::RateLimited,
    "too many requests without a valid signature at this stream",
);
