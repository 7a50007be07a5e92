//! What a request holds on its way in, and what it still has to show before its events are admitted.

use std::sync::Arc;

use admit_core::Code;

use crate::auth::{Denied, TOO_MANY_CONNECTIONS};
use crate::gate::Gate;
use crate::room::Inside;
use crate::standing::Standing;

/// Why the events of a request are not admitted.
pub(crate) struct NotAdmitted {
    pub(crate) code: Code,
    pub(crate) message: &'static str,
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
            let is_allowed =
                events < 2 || gate.rates.allow_rest(place, events - 1, gate.clock.now());
            return if is_allowed { Ok(inside) } else { Err(TOO_FAST) };
        };
        if !standing.authenticate(&gate.authenticated, place) {
            let Denied { code, message } = TOO_MANY_CONNECTIONS;
            return Err(NotAdmitted { code, message });
        }
        if !gate.rates.allow_batch(place, events, gate.clock.now()) {
            return Err(TOO_FAST);
        }
        inside.authenticated(place).ok_or(FULL)
    }
}

/// The answer to a principal that sends faster than it may.
pub(crate) const TOO_FAST: NotAdmitted = NotAdmitted {
    code: Code::RateLimited,
    message: "rate limit exceeded for this API key (limits.requests_per_second_max)",
};

/// The answer to a principal whose share, or the whole gate, is full.
pub(crate) const FULL: NotAdmitted = NotAdmitted {
    code: Code::Overloaded,
    message: "too many events in flight at this gate, or of this principal",
};

/// The answer to requests without a key that come too fast at one stream.
pub(crate) const TOO_FAST_UNSIGNED: NotAdmitted = NotAdmitted {
    code: Code::RateLimited,
    message: "too many requests without a valid signature at this stream",
};
