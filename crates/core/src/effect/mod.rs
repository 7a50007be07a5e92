//! Effects: what an admission causes outside the ledger, done at most once by itself.
//!
//! ```text
//!  record commit ─▶ Intended ──begin──▶ InFlight ──settle──▶ Done | Refused | Ambiguous
//!                     ▲  │ crash: resumes    │ crash: lost ────────────────────▲
//!                     │                                    reconcile, a person ▼
//!                     └──── replay, a person ──── Withheld | Done | Refused | Ambiguous
//!  record commit ─▶ InFlight, where the effect follows at once: one commit less on the way
//!  a copy ──renew──▶ InFlight, where a person has found that the last attempt did not happen
//! ```
//!
//! "In flight" is committed before the first byte leaves, so whatever was in flight when a process
//! died may have happened: it becomes ambiguous and stays so. Nothing leads out of a settled state
//! by itself; a person may replay (a new attempt) or reconcile (a finding), and is written down.
//!
//! Each state is a type and its transitions consume it; [`advance`] is the one place where a stored
//! state meets a step, and every ledger goes through it.

mod state;
mod step;

pub use state::{Ambiguous, Done, InFlight, Intended, NotAState, Refused, Standing, Withheld};
pub use step::{Answer, By, Illegal, Outcome, Step, advance};

use bytes::Bytes;

use crate::json;
use crate::receipt::Seq;
use crate::time::Millis;

/// What an event wants done once it is admitted. It is part of the record commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// Who knows how to do it: `gateway`, `bus`.
    pub kind: &'static str,
    /// What is to be done, whole, so that it can be done after a restart too.
    pub plan: json::Object<'static>,
    /// Where it begins.
    pub starts: Starts,
}

/// The state an effect is born in, in the record commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// To be done; it begins with a commit of its own, and a restart may take it up.
    Intended,
    /// Planned only: nothing is done until a person asks for it.
    Withheld,
    /// Its first byte leaves right after the record commit, so that commit says so already.
    InFlight,
}

impl Starts {
    /// The state itself, born in the process of `epoch`.
    pub fn standing(self, epoch: u64) -> Standing {
        match self {
            Self::Intended => Standing::Intended(Intended::new()),
            Self::Withheld => Standing::Withheld(Withheld::new()),
            Self::InFlight => Standing::InFlight(Intended::new().begin(epoch)),
        }
    }
}

/// What tells of an outcome, as compact JSON: an answer with its status and body, or why there is
/// none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence(Bytes);

impl Evidence {
    /// Evidence from the members of an object.
    pub fn of(object: &json::Object<'_>) -> Self {
        let mut text = Vec::new();
        json::write_object(object, &mut text);
        Self(text.into())
    }

    /// Evidence as it came out of a ledger.
    pub fn from_stored(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }

    /// The JSON text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A reply that is given again, byte for byte, to every copy of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReply {
    /// The HTTP status it went out with.
    pub status: u16,
    /// Its body.
    pub body: Bytes,
}

/// An effect as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The admission it belongs to.
    pub seq: Seq,
    /// Who knows how to do it.
    pub kind: String,
    /// What is to be done, compact JSON.
    pub plan: Bytes,
    /// Where it stands.
    pub standing: Standing,
    /// What was said when the first attempt was settled. `None` while it is open, and for ever when
    /// the process that performed it died: then the only truthful answer is "unknown".
    pub reply: Option<StoredReply>,
}

/// One line of an effect's history. Lines are only ever added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When.
    pub at: Millis,
    /// Which attempt it is about.
    pub attempt: u32,
    /// The state that was reached, or `evidence` for what came late and changed nothing.
    pub what: String,
    /// Who asked for it, where a person did.
    pub by: Option<By>,
    /// What it rests on.
    pub evidence: Option<Evidence>,
}
