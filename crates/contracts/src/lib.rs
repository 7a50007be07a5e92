//! Contracts: the wire format, validation rules and replies of each kind of producer.
//!
//! Every contract has the same layout: `vet.rs` turns a submission into an event or a refusal,
//! `reply.rs` turns the verdict into wire bytes. Nothing here does IO.

pub mod describe;
pub mod events;
pub mod external_ids;
pub mod gateway_calls;
pub mod ingestion_gate;
pub mod intents;
pub mod pixel_control;
pub mod reply_code;
pub mod rounds;
mod schema;
pub mod skyra;
mod text;

pub use schema::meter::{Budget, unless_late};

pub use gateway_calls::{AdmissionContext, CallOutcome, Conclusion, GatewayCall, GatewayCalls};

use std::sync::Arc;
use std::time::Duration;

use admit_core::entity::Policy;
use admit_core::{Code, Door, Entry, Millis, RecordedEntry, Submission};

pub use describe::Description;

/// Retry hint for an internal defect for which no other layer set a delay.
const DEFECT_RETRY_SECONDS: u32 = 5;

/// Pseudo header with the sub-path of the request, one of [`Contract::subpaths`]. The leading colon
/// makes a clash with a header on the wire impossible.
pub const SUBPATH: &str = ":below";

/// Pseudo header with the raw query string of the request, without the question mark.
pub const QUERY: &str = ":query";

/// Response, independent of the transport that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status; other transports map it.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Additional headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body. Never empty: some producers treat an empty body as a lost event.
    pub body: Vec<u8>,
}

/// Submissions parsed out of one request, in order.
#[derive(Clone, Debug)]
pub struct SplitRequest {
    /// Each holds its own part of the body. Empty for an empty batch.
    pub submissions: Vec<Submission>,
    /// How the replies are combined.
    pub shape: RequestShape,
}

impl SplitRequest {
    /// Request that consists of a single submission.
    pub fn one(submission: Submission) -> Self {
        Self { submissions: vec![submission], shape: RequestShape::One }
    }
}

/// How the submissions of one request, and therefore their replies, are combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestShape {
    /// A single submission.
    One,
    /// Elements of a JSON array.
    Array,
    /// Lines of a text body, with these line numbers.
    Lines(Vec<u64>),
}

/// Request rejected before vetting. It is counted, but nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRejection {
    /// Stable error code.
    pub code: Code,
    /// Human-readable reason.
    pub message: String,
}

/// Context of a refusal that has no verdict.
#[derive(Clone, Copy, Debug)]
pub struct RefusalContext<'a> {
    /// Body of the submission; empty if none was read.
    pub body: &'a [u8],
    /// Time of the reply.
    pub now: Millis,
}

/// Returns whether a media type without parameters is JSON: `application/json` or any type that
/// ends in `+json`.
pub fn is_json(media_type: &str) -> bool {
    let suffix = "+json";
    media_type.eq_ignore_ascii_case("application/json")
        || media_type
            .len()
            .checked_sub(suffix.len())
            .and_then(|start| media_type.split_at_checked(start))
            .is_some_and(|(name, end)| !name.is_empty() && end.eq_ignore_ascii_case(suffix))
}

/// Returns whether a `Content-Type` is JSON; parameters are ignored.
pub(crate) fn is_json_type(content_type: &str) -> bool {
    is_json(content_type.split(';').next().unwrap_or_default().trim())
}

/// Contract: how submissions are vetted and identified, and how verdicts are rendered.
pub trait Contract: Send + Sync {
    /// Turns a submission into an event with a key, or into a refusal with a reason. Pure.
    fn vet(&self, door: &Door, submission: Submission) -> Entry;

    /// Like [`vet`](Self::vet), limited to `budget`, for a thread shared with other requests.
    ///
    /// # Errors
    /// Returns the submission if the budget is exhausted; nothing has been decided then.
    fn vet_within(
        &self,
        door: &Door,
        submission: Submission,
        _budget: &mut Budget,
    ) -> Result<Entry, Submission> {
        Ok(self.vet(door, submission))
    }

    /// Renders the ledger's verdict on an entry. Called only after the durable commit.
    fn reply(&self, recorded: &RecordedEntry) -> Reply;

    /// Renders a refusal without a verdict: every error that any layer can produce at this door,
    /// from "method not allowed" to "disk full", in this contract's wire format.
    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply;

    /// [`reply`](Self::reply) with the current time, for contracts whose replies carry a timestamp.
    fn reply_at(&self, recorded: &RecordedEntry, _now: Millis) -> Reply {
        self.reply(recorded)
    }

    /// [`refuse`](Self::refuse) with the submission, for contracts whose replies identify it.
    fn refuse_about(
        &self,
        _about: RefusalContext<'_>,
        code: Code,
        message: &str,
        retry_after_seconds: u32,
    ) -> Reply {
        self.refuse(code, message, retry_after_seconds)
    }

    /// Whether the contract also accepts a stream of messages over one connection (WebSocket or
    /// gRPC). Each message is one submission; replies may come in any order.
    fn takes_messages(&self) -> bool {
        false
    }

    /// Longest wait for a reply at a door of this contract, if longer than `limits.answer_ms_max`.
    fn answer_max(&self) -> Duration {
        Duration::ZERO
    }

    /// Headers that `split` and `vet` read, in lower case; the door passes no others. A trailing
    /// `*` matches by prefix. [`SUBPATH`] and [`QUERY`] may be listed.
    fn headers(&self) -> &[&str] {
        &[]
    }

    /// Sub-paths of the door's path that accept submissions instead of the path itself; empty for a
    /// door with a single path. A contract with sub-paths lists [`SUBPATH`] among its headers.
    fn subpaths(&self) -> &[&str] {
        &[]
    }

    /// Whether `vet` generates ids; if so, the door draws a nonce for each submission.
    fn needs_nonce(&self) -> bool {
        false
    }

    /// Gateway calls of this contract, if its events cause any.
    fn gateway_calls(&self) -> Option<&dyn GatewayCalls> {
        None
    }

    /// Whether an agent may accept events before the gate has them and forward them on behalf of
    /// their producers. False if the reply reports the effect of the event, which only the gate
    /// knows.
    fn is_forwardable(&self) -> bool {
        self.gateway_calls().is_none()
    }

    /// Merge policy of the contract's records, if its events describe any.
    fn record_policy(&self) -> Option<&Arc<Policy>> {
        None
    }

    /// Whether a body of this content type is accepted.
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(is_json_type)
    }

    /// Like [`accepts`](Self::accepts), at a gate without principals.
    fn accepts_unkeyed(&self, content_type: Option<&str>) -> bool {
        self.accepts(content_type)
    }

    /// Splits a request into submissions. Checks that must precede body parsing, such as a
    /// signature, happen here.
    ///
    /// # Errors
    /// If the request is rejected and nothing of it may be stored.
    fn split(&self, submission: Submission) -> Result<SplitRequest, RequestRejection> {
        Ok(SplitRequest::one(submission))
    }

    /// Whether [`split`](Self::split) parses or hashes the whole body, which for a large one takes
    /// milliseconds.
    fn split_reads_body(&self, _submission: &Submission) -> bool {
        false
    }

    /// Combines the replies to the submissions of one request, in order.
    fn join(&self, _shape: &RequestShape, mut replies: Vec<Reply>) -> Reply {
        replies.pop().unwrap_or_else(|| {
            self.refuse(
                Code::InternalError,
                "no reply was produced for the event",
                DEFECT_RETRY_SECONDS,
            )
        })
    }

    /// Principal of a request without an API key, if `split` authenticates the sender by other
    /// means such as a signature. `None` if every request needs a key.
    fn signature_principal(&self) -> Option<&str> {
        None
    }

    /// Wire description of a door of this contract, for the OpenAPI document.
    fn describe(&self) -> Description {
        Description::default()
    }
}
