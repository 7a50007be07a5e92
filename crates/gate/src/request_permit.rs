//! What a request holds on its way in, and what it still has to show before its events are admitted.

use std::sync::Arc;

use admit_core::Code;

use crate::auth::{Denied, TOO_MANY_CONNECTIONS};
use crate::gate::Gate;
use crate::rate::RateExceeded;
use crate::room::Inside;
use crate::standing::Standing;

/// Why the events of a request are not admitted.
pub(crate) struct NotAdmitted {
    pub(crate) code: Code,
    pub(crate) message: &'static str,
    /// How long a retry fails for sure.
    pub(crate) wait_seconds: u32,
}

impl NotAdmitted {
    const fn new(code: Code, message: &'static str) -> Self {
        Self { code, message, wait_seconds: 0 }
    }
}

impl From<RateExceeded> for NotAdmitted {
    fn from(exceeded: RateExceeded) -> Self {
        Self { wait_seconds: exceeded.retry_after_seconds, ..TOO_FAST }
    }
}

/// A request whose body has been read.
pub(crate) struct RequestPermit {
    inside: Inside,
    /// Whose rate and share it counts for.
    place: usize,
    /// Of a connection whose request has no key: it is authenticated by what `split` verifies.
    unauthenticated: Option<Arc<Standing>>,
}

impl RequestPermit {
    /// Of a request whose key has counted as one event of the principal at `place`.
    pub(crate) fn with_key(inside: Inside, place: usize) -> Self {
        Self { inside, place, unauthenticated: None }
    }

    /// Of a request without a key, which is to be the principal's at `place`.
    pub(crate) fn without_key(inside: Inside, place: usize, standing: Arc<Standing>) -> Self {
        Self { inside, place, unauthenticated: Some(standing) }
    }

    /// The place of its principal.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Whether its signature decides whose it is.
    pub(crate) fn is_without_key(&self) -> bool {
        self.unauthenticated.is_some()
    }

    /// Counts `events` for the principal, now that it is known whose they are. What is returned is
    /// held until they are answered.
    pub(crate) fn admit(self, gate: &Gate, events: usize) -> Result<Inside, NotAdmitted> {
        let Self { inside, place, unauthenticated } = self;
        let Some(standing) = unauthenticated else {
            gate.rates.allow_rest(place, events.saturating_sub(1), gate.clock.now())?;
            return Ok(inside);
        };
        if !standing.authenticate(&gate.authenticated, place) {
            let Denied { code, message } = TOO_MANY_CONNECTIONS;
            return Err(NotAdmitted::new(code, message));
        }
        gate.rates.allow_batch(place, events, gate.clock.now())?;
        inside.authenticated(place).ok_or(FULL)
    }
}

/// The answer to a principal that sends faster than it may.
pub(crate) const TOO_FAST: NotAdmitted = NotAdmitted::new(
    Code::RateLimited,
    "rate limit exceeded for this API key (limits.requests_per_second_max)",
);

/// The answer to a principal whose share, or the whole gate, is full.
pub(crate) const FULL: NotAdmitted = NotAdmitted::new(
    Code::Overloaded,
    "too many events in flight at this gate, or of this principal",
);

/// The answer to requests without a key that come too fast at one stream.
pub(crate) const TOO_FAST_UNSIGNED: NotAdmitted = NotAdmitted::new(
    Code::RateLimited,
    "too many requests without a valid signature at this stream",
);
