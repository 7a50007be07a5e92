//! Effects: actions outside the ledger, performed at most once per admission without operator
//! request.
//!
//! ```text
//!  record commit ─▶ Intended ──begin──▶ InFlight ──settle──▶ Done | Refused | Ambiguous
//!                     ▲  │ crash: resumes    │ crash: lost ────────────────────▲
//!                     │                                    reconcile, operator ▼
//!                     └──── replay, operator ──── Withheld | Done | Refused | Ambiguous
//!  record commit ─▶ InFlight, for effects performed immediately: saves one commit
//!  a copy ──renew──▶ InFlight, after reconciliation found that the last attempt did not happen
//! ```
//!
//! "In flight" is committed before the first byte leaves, so an effect that was in flight when a
//! process died may have happened: it becomes ambiguous and stays so. A settled state changes only
//! on operator request: replay (a new attempt) or reconcile (a finding), both recorded in the
//! history.
//!
//! Each state is a type and its transitions consume it. [`advance`] is the only place where a step
//! is applied to a stored state; all ledgers use it.

mod state;
mod step;

pub use state::{
    Ambiguous, Done, EffectState, InFlight, Intended, InvalidEffectState, Refused, Withheld,
};
pub use step::{Attribution, IllegalStep, Outcome, ReconcileOutcome, Step, advance};

use bytes::Bytes;

use crate::json;
use crate::receipt::Seq;
use crate::time::Millis;

/// Effect to perform once the event is admitted. Part of the record commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// Performer: `gateway`, `bus`.
    pub kind: &'static str,
    /// Complete plan, so that it can also be performed after a restart.
    pub plan: json::Object<'static>,
    /// Initial state.
    pub starts: InitialState,
}

/// Initial state of an effect, written in the record commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialState {
    /// To be performed; begins with a separate commit and resumes after a restart.
    Intended,
    /// Planned only; performed when an operator requests it.
    Withheld,
    /// Performed right after the record commit, which therefore already marks it as in flight.
    InFlight,
}

impl InitialState {
    /// Converts to the effect state in the process with `epoch`.
    pub fn effect_state(self, epoch: u64) -> EffectState {
        match self {
            Self::Intended => EffectState::Intended(Intended::new()),
            Self::Withheld => EffectState::Withheld(Withheld::new()),
            Self::InFlight => EffectState::InFlight(Intended::new().begin(epoch)),
        }
    }
}

/// Evidence of an outcome as compact JSON: a response with status and body, or the reason there is
/// none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence(Bytes);

impl Evidence {
    /// Serialises an object as evidence.
    pub fn of(object: &json::Object<'_>) -> Self {
        let mut text = Vec::new();
        json::write_object(object, &mut text);
        Self(text.into())
    }

    /// Wraps evidence loaded from a ledger.
    pub fn from_stored(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }

    /// JSON text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Reply that is repeated, byte for byte, for every copy of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReply {
    /// HTTP status.
    pub status: u16,
    /// Response body.
    pub body: Bytes,
}

/// Stored effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Ledger position of the admission.
    pub seq: Seq,
    /// Performer.
    pub kind: String,
    /// Plan, compact JSON.
    pub plan: Bytes,
    /// Current state.
    pub state: EffectState,
    /// Reply stored when the first attempt was settled. `None` while it is open, and permanently if
    /// the performing process died: then the only truthful result is "unknown".
    pub reply: Option<StoredReply>,
}

/// Entry of the append-only effect history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectLogEntry {
    /// Time of the entry.
    pub at: Millis,
    /// Attempt number.
    pub attempt: u32,
    /// Reached state, or `evidence` for late evidence that changed nothing.
    pub what: String,
    /// Operator who requested it, if any.
    pub by: Option<Attribution>,
    /// Evidence for the change.
    pub evidence: Option<Evidence>,
}
