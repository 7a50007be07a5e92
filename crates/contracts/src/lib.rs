//! The contracts: what each kind of producer sends, and the words it is answered in.
//!
//! Every contract has the same rooms: `vet.rs` turns a submission into an event or a refusal,
//! `reply.rs` turns what became of it into wire bytes. Nothing here does IO.

pub mod calling;
pub mod intents;
pub mod pixel_control;

pub use calling::{Admission, Call, CallOutcome, Calling, Conclusion};

use admit_core::{Code, Door, Entry, Recorded, Submission};

/// An answer, independent of the transport that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status; other transports map it.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body. Never empty: some producers take an empty body for a lost event.
    pub body: Vec<u8>,
}

/// A contract: how events are vetted and named, and how their verdicts are said.
pub trait Contract: Send + Sync {
    /// Turns a submission into an event with a key, or into a refusal with a reason. Pure.
    fn vet(&self, door: &Door, submission: Submission) -> Entry;

    /// The answer to what the ledger made of an entry. Called only after the durable commit.
    fn reply(&self, recorded: &Recorded) -> Reply;

    /// The answer when there is no verdict: whatever any layer has to say about this door, from
    /// "not your method" to "the disk is full", in the words this contract's producers understand.
    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply;

    /// The headers `vet` reads, in lower case; the door hands over no others.
    fn headers(&self) -> &[&str] {
        &[]
    }

    /// Whether `vet` makes up ids; then the door draws the submission's nonce.
    fn wants_nonce(&self) -> bool {
        false
    }

    /// The part of a contract whose events cause calls to a gateway.
    fn calling(&self) -> Option<&dyn Calling> {
        None
    }
}
