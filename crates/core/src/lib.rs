//! Admission rules: event identity, duplicate decisions, effects, receipts and entity resolution.
//!
//! Invariant: this crate does no IO, reads no clock, draws no random numbers and spawns no tasks.
//! Time comes in as [`Millis`], bytes as [`bytes::Bytes`]; the same code runs in the gate, in the
//! edge agent and under a seeded simulator.

pub mod closure;
pub mod code;
pub mod decide;
pub mod effect;
pub mod entity;
pub mod event;
pub mod fault;
pub mod hash;
pub mod horizon;
pub mod issue;
pub mod json;
pub mod panic_guard;
pub mod projection;
pub mod receipt;
pub mod scenario;
pub mod time;
pub mod trusted;

pub use code::{Code, Retry};
pub use decide::{
    Decision, OnOtherContent, PriorAdmission, decide, evidence_of, refusal_of_conflict,
};
pub use effect::{Effect, Evidence, InitialState, Intent};
pub use event::{Door, Entry, Event, Principal, RefusedSubmission, Submission};
pub use fault::{Fault, FaultKind, with_causes};
pub use hash::{Digest, Key};
pub use horizon::{Age, Horizon, KEY_MARGIN};
pub use issue::{
    Document, DocumentKind, DocumentRelease, FirstAdmission, IdRegistry, Issue, IssueContext,
    IssueReason, RunState, StoredDocument,
};
pub use projection::{EntityId, Projection, ProjectionError};
pub use receipt::{InvalidReceiptId, InvalidSeq, Receipt, ReceiptId, RecordedEntry, Seq, Verdict};
pub use scenario::{IllegalScenarioTransition, ScenarioState};
pub use time::{Clock, Millis};
pub use trusted::{CLOCK_STEP_MAX, ClockState, Monotonic, TrustedTime};
