//! `events`: general-purpose door for webhooks and CloudEvents senders, configured by declaration.
//!
//! A stream is one mounted `events` contract with a name. Its settings define the identity of an
//! event: the `Idempotency-Key` header, some fields, or the whole body; a CloudEvent is always
//! identified by its `source` and `id`. One request may carry many events, as a CloudEvents batch
//! or as JSON lines. Errors are problem details (RFC 9457) that also carry the general error
//! object.
//!
//! Invariant: where webhook secrets are set, the signature over the raw body is verified before the
//! body is parsed or looked up.

mod cloud;
mod describe;
mod identity;
mod media;
pub mod recompute;
mod reply;
mod schemas;
mod settings;
mod split;
mod vet;
pub mod view;
mod webhooks;

use admit_core::{Code, Door, Entry, Horizon, RecordedEntry, Submission};

use crate::{Budget, Contract, Description, Reply, RequestRejection, RequestShape, SplitRequest};

pub use identity::FieldPath;
pub use reply::problem;
pub use schemas::SchemaError;
pub use settings::{Accept, Canonical, EventIdentity, Settings, is_stream_name};
pub use webhooks::{SecretError, WebhookSecret, Webhooks};

/// Longest `Idempotency-Key`, in characters.
pub const KEY_CHARS_MAX: usize = 255;

/// Headers that this contract reads; `ce-*` matches all headers of a binary CloudEvent.
const HEADERS: [&str; 6] = [
    media::CONTENT_TYPE,
    identity::IDEMPOTENCY_KEY,
    webhooks::ID,
    webhooks::TIMESTAMP,
    webhooks::SIGNATURE,
    "ce-*",
];

/// Contract of one stream. See the module.
#[derive(Debug)]
pub struct Events {
    settings: Settings,
    schemas: schemas::Schemas,
    horizon: Horizon,
}

impl Events {
    /// Creates the contract and compiles the schemas.
    ///
    /// # Errors
    /// If a schema does not compile.
    pub fn new(settings: Settings) -> Result<Self, SchemaError> {
        let schemas = schemas::Schemas::compile(&settings.schemas)?;
        Ok(Self { settings, schemas, horizon: Horizon::default() })
    }

    /// Identity of plain events.
    pub fn identity(&self) -> &EventIdentity {
        &self.settings.identity
    }

    /// For a ledger with retention: events outside `horizon` are refused.
    #[must_use]
    pub fn within(self, horizon: Horizon) -> Self {
        Self { horizon, ..self }
    }
}

impl Contract for Events {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(self, door, submission)
    }

    fn vet_within(
        &self,
        door: &Door,
        submission: Submission,
        budget: &mut Budget,
    ) -> Result<Entry, Submission> {
        vet::vet_within(self, door, submission, budget)
    }

    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        reply::reply(&self.settings.name, recorded)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::problem(code, message, retry_after_seconds)
    }

    fn headers(&self) -> &[&str] {
        &HEADERS
    }

    fn accepts(&self, content_type: Option<&str>) -> bool {
        media::accepts(self.settings.accept, content_type)
    }

    fn split(&self, submission: Submission) -> Result<SplitRequest, RequestRejection> {
        split::split(&self.settings, submission)
    }

    fn split_reads_body(&self, submission: &Submission) -> bool {
        split::reads_body(&self.settings, submission)
    }

    fn join(&self, shape: &RequestShape, replies: Vec<Reply>) -> Reply {
        reply::join(shape, replies)
    }

    fn describe(&self) -> Description {
        describe::description(&self.settings)
    }

    fn signature_principal(&self) -> Option<&str> {
        self.settings.webhooks.as_ref()?.principal.as_deref()
    }
}
