//! The contracts: what each kind of producer sends, and the words it is answered in.
//!
//! Every contract has the same rooms: `vet.rs` turns a submission into an event or a refusal,
//! `reply.rs` turns what became of it into wire bytes. Nothing here does IO.

pub mod calling;
pub mod describe;
pub mod events;
pub mod ingestion_gate;
pub mod intents;
pub mod named;
pub mod pixel_control;
pub mod reply_code;
pub mod rounds;
mod schema;
pub mod skyra;
mod text;

pub use schema::meter::{Budget, unless_late};

pub use calling::{Admission, Call, CallOutcome, Calling, Conclusion};

use std::sync::Arc;
use std::time::Duration;

use admit_core::record::Policy;
use admit_core::{Code, Door, Entry, Millis, Recorded, Submission};

pub use describe::Description;

/// When to come back after a defect of ours that no other part could put a number on.
const DEFECT_RETRY_SECONDS: u32 = 5;

/// The "header" by which a contract that answers below its path learns where: the name that was
/// asked for, one of [`Contract::below`]. No header on the wire can be called so.
pub const BELOW: &str = ":below";

/// The "header" that holds the query of the request as it came, without the question mark.
pub const QUERY: &str = ":query";

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

/// A request taken apart: the submissions it carries, in order.
#[derive(Clone, Debug)]
pub struct Split {
    /// Each with its own part of the body. None at all is an empty batch.
    pub submissions: Vec<Submission>,
    /// How the answers belong together.
    pub shape: Shape,
}

impl Split {
    /// A request that is one submission.
    pub fn one(submission: Submission) -> Self {
        Self { submissions: vec![submission], shape: Shape::One }
    }
}

/// How the submissions of one request hang together, and so their answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// There is one.
    One,
    /// They are the elements of an array.
    Array,
    /// They are lines, with these numbers.
    Lines(Vec<u64>),
}

/// A request that does not get as far as vetting. It is counted, and nothing of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turned {
    /// Why, as a stable code.
    pub code: Code,
    /// Why, for people.
    pub message: String,
}

/// What a refusal is about, as far as it is known when there is no verdict.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The submission's body; empty where none was read.
    pub body: &'a [u8],
    /// The time of the answer.
    pub now: Millis,
}

/// Whether a media type, without parameters, is JSON: `application/json`, or anything that ends in
/// `+json`.
pub fn is_json(media_type: &str) -> bool {
    let suffix = "+json";
    media_type.eq_ignore_ascii_case("application/json")
        || media_type
            .len()
            .checked_sub(suffix.len())
            .and_then(|start| media_type.split_at_checked(start))
            .is_some_and(|(name, end)| !name.is_empty() && end.eq_ignore_ascii_case(suffix))
}

/// Whether a `Content-Type` is JSON, whatever its parameters.
pub(crate) fn is_json_type(content_type: &str) -> bool {
    is_json(content_type.split(';').next().unwrap_or_default().trim())
}

/// A contract: how events are vetted and named, and how their verdicts are said.
pub trait Contract: Send + Sync {
    /// Turns a submission into an event with a key, or into a refusal with a reason. Pure.
    fn vet(&self, door: &Door, submission: Submission) -> Entry;

    /// The same within `budget`, for a thread that others wait for.
    ///
    /// # Errors
    /// With the submission, when the budget is not enough. Nothing of it was decided then.
    fn vet_within(
        &self,
        door: &Door,
        submission: Submission,
        _budget: &mut Budget,
    ) -> Result<Entry, Submission> {
        Ok(self.vet(door, submission))
    }

    /// The answer to what the ledger made of an entry. Called only after the durable commit.
    fn reply(&self, recorded: &Recorded) -> Reply;

    /// The answer when there is no verdict: whatever any layer has to say about this door, from
    /// "not your method" to "the disk is full", in the words this contract's producers understand.
    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply;

    /// [`reply`](Self::reply) said at `now`, for contracts whose answers carry their time.
    fn reply_at(&self, recorded: &Recorded, _now: Millis) -> Reply {
        self.reply(recorded)
    }

    /// [`refuse`](Self::refuse) about a submission, for contracts whose answers name theirs.
    fn refuse_about(
        &self,
        _about: About<'_>,
        code: Code,
        message: &str,
        retry_after_seconds: u32,
    ) -> Reply {
        self.refuse(code, message, retry_after_seconds)
    }

    /// Whether submissions may also come one after another over one connection, each a message of
    /// a WebSocket or of a gRPC stream, each answered on its own and in any order.
    fn takes_messages(&self) -> bool {
        false
    }

    /// Longest wait for an answer at a door of this contract, where that is more than
    /// `limits.answer_ms_max`.
    fn answer_max(&self) -> Duration {
        Duration::ZERO
    }

    /// The headers `split` and `vet` read, in lower case; the door hands over no others. A name
    /// that ends in `*` stands for all that begin like it; [`BELOW`] and [`QUERY`] may be among them.
    fn headers(&self) -> &[&str] {
        &[]
    }

    /// The names below the door's path at which it answers, instead of at the path itself; none for
    /// a door with one place. A contract that has some lists [`BELOW`] among its headers.
    fn below(&self) -> &[&str] {
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

    /// Whether an agent may take its events before the gate has them, and send them in the names of
    /// their producers. Not where the answer tells what the event has caused: only the gate knows.
    fn is_forwardable(&self) -> bool {
        self.calling().is_none()
    }

    /// The table that a contract's records are put together by, for one whose events tell of some.
    fn record_policy(&self) -> Option<&Arc<Policy>> {
        None
    }

    /// Whether a body of this content type is taken at all.
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(is_json_type)
    }

    /// The same at a gate without principals.
    fn accepts_unkeyed(&self, content_type: Option<&str>) -> bool {
        self.accepts(content_type)
    }

    /// Takes a request apart. Whatever must be known before the body is looked at, such as a
    /// signature, is checked here.
    ///
    /// # Errors
    /// When nothing of the request may be kept.
    fn split(&self, submission: Submission) -> Result<Split, Turned> {
        Ok(Split::one(submission))
    }

    /// Puts the answers to the submissions of one request together, in order.
    fn join(&self, _shape: &Shape, mut replies: Vec<Reply>) -> Reply {
        replies.pop().unwrap_or_else(|| {
            self.refuse(Code::InternalError, "the event got no reply", DEFECT_RETRY_SECONDS)
        })
    }

    /// The principal of a request that carries no key, where `split` proves by other means who sent
    /// it. `None` wants a key from everybody.
    fn vouched(&self) -> Option<&str> {
        None
    }

    /// What a door of this contract takes and says, for the OpenAPI document.
    fn describe(&self) -> Description {
        Description::default()
    }
}
