//! Gateway calls caused by events of a contract. Pure: the gate performs the calls.

use admit_core::effect::{Effect, Outcome, StoredReply};
use admit_core::json::Object;
use admit_core::{Evidence, ReceiptId, RecordedEntry};
use bytes::Bytes;

use crate::Reply;

/// Admission data needed to render a reply about its effect.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionContext<'a> {
    /// Receipt id.
    pub id: ReceiptId,
    /// Recorded facts.
    pub facts: &'a Object<'a>,
    /// Trace id of the request that caused this attempt.
    pub trace: &'a str,
}

/// Gateway call: a POST below the gateway's base URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayCall {
    /// Path, starting with `/`.
    pub path: String,
    /// Additional headers.
    pub headers: Vec<(&'static str, String)>,
    /// JSON body.
    pub body: Bytes,
}

/// Outcome of a call, limited to what is certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// No byte of the request was sent: it was definitely not received.
    NeverSent {
        /// Cause.
        reason: String,
    },
    /// A response arrived.
    Answered {
        /// HTTP status.
        status: u16,
        /// Body, possibly truncated.
        body: Bytes,
        /// Whether the body is complete: neither cut off nor longer than the read limit.
        is_whole: bool,
    },
    /// The request was sent, wholly or in part, and no response arrived.
    Unknown {
        /// Cause.
        reason: String,
    },
}

/// Interpretation of a call outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// Outcome to settle the attempt with.
    pub outcome: Outcome,
    /// Evidence for that outcome.
    pub evidence: Evidence,
    /// Reply to store.
    pub reply: StoredReply,
}

/// Contract whose events cause gateway calls.
pub trait GatewayCalls: Send + Sync {
    /// Returns the call for `effect`, or `None` if its plan cannot be parsed.
    fn call(&self, effect: &Effect, trace: &str) -> Option<GatewayCall>;

    /// Interprets `outcome` for the admission and builds its reply.
    fn conclude(&self, admission: AdmissionContext<'_>, outcome: &CallOutcome) -> Conclusion;

    /// Returns `outcome` as evidence, for outcomes that arrive late.
    fn evidence(&self, outcome: &CallOutcome) -> Evidence;

    /// Adds this contract's headers to a stored reply.
    fn with_headers(&self, facts: &Object<'_>, trace: &str, reply: StoredReply) -> Reply;

    /// Renders the reply to a recorded event from the current state of its effect: a duplicate gets
    /// the first reply, and an effect in progress is reported as such.
    fn reply_from_state(&self, recorded: &RecordedEntry, effect: Option<&Effect>) -> Reply;

    /// Whether this gate performs effects automatically.
    fn is_executing(&self) -> bool;
}
