//! What a contract says about the calls its events cause. Pure: the gate does the calling.

use admit_core::effect::{Effect, Outcome, StoredReply};
use admit_core::json::Object;
use admit_core::{Evidence, ReceiptId, Recorded};
use bytes::Bytes;

use crate::Reply;

/// An admission, as far as a reply about its effect needs it.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// Its receipt.
    pub id: ReceiptId,
    /// Its facts, as they were recorded.
    pub facts: &'a Object<'a>,
    /// The trace of the request that caused this attempt.
    pub trace: &'a str,
}

/// One call: a POST below the gateway's base URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The path, from `/` on.
    pub path: String,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body, JSON.
    pub body: Bytes,
}

/// What became of a call, and no more than is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Not a byte of the request left: it was definitely not received.
    NeverSent {
        /// Why.
        reason: String,
    },
    /// An answer came.
    Answered {
        /// Its status.
        status: u16,
        /// Its body, or the beginning of it.
        body: Bytes,
        /// Whether the body is whole: not cut off, not longer than is read.
        is_whole: bool,
    },
    /// The request left, wholly or in part, and no answer came.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// What an outcome means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// How the attempt is settled.
    pub outcome: Outcome,
    /// What that rests on.
    pub evidence: Evidence,
    /// What is said.
    pub reply: StoredReply,
}

/// A contract whose events cause calls.
pub trait Calling: Send + Sync {
    /// The call that `effect` asks for, or `None` when its plan cannot be read.
    fn call(&self, effect: &Effect, trace: &str) -> Option<Call>;

    /// What `outcome` means for the admission, and what is said about it.
    fn conclude(&self, admission: Admission<'_>, outcome: &CallOutcome) -> Conclusion;

    /// `outcome` as evidence, for what becomes known late.
    fn evidence(&self, outcome: &CallOutcome) -> Evidence;

    /// Wraps what was said about the admission in the headers of this contract.
    fn dress(&self, facts: &Object<'_>, trace: &str, reply: StoredReply) -> Reply;

    /// The answer to a recorded event whose effect stands so: for a copy, what the first was told;
    /// while the first is in work, how far it has come.
    fn reply_again(&self, recorded: &Recorded, effect: Option<&Effect>) -> Reply;

    /// Whether effects are to be performed by themselves in this gate.
    fn is_executing(&self) -> bool;
}
