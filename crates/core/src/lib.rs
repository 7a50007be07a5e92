//! The rules Admit is made of: what an event is, how it is named, what a second copy means.
//!
//! Invariant: nothing in this crate does IO, reads a clock, draws a random number or spawns a
//! task. Time comes in as [`Millis`], bytes as [`bytes::Bytes`]; the same code runs in the gate,
//! in the edge agent and under a seeded simulator.

pub mod closure;
pub mod code;
pub mod decide;
pub mod effect;
pub mod event;
pub mod fault;
pub mod hash;
pub mod horizon;
pub mod issue;
pub mod json;
pub mod projection;
pub mod receipt;
pub mod record;
pub mod scenario;
pub mod time;
pub mod trusted;
pub mod unwound;

pub use code::{Code, Retry};
pub use decide::{Decision, First, OnOtherContent, decide, evidence_of, refusal_of_conflict};
pub use effect::{Effect, Evidence, Intent, Starts};
pub use event::{Door, Entry, Event, Principal, Refused, Submission};
pub use fault::{Fault, FaultKind, with_causes};
pub use hash::{Digest, Key};
pub use horizon::{Age, Horizon, KEY_MARGIN};
pub use issue::{
    Filed, Issue, Issued, IssuedKind, Occasion, Original, Released, RunState, Said, Taken,
};
pub use projection::{EntityId, Projection, ProjectionError};
pub use receipt::{NotAReceiptId, NotASeq, Receipt, ReceiptId, Recorded, Seq, Verdict};
pub use scenario::{IllegalTurn, ScenarioState};
pub use time::{Clock, Millis};
pub use trusted::{CLOCK_STEP_MAX, ClockState, Monotonic, TrustedTime};
