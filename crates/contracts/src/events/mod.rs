//! `events`: the door for everyone, any webhook or CloudEvents sender, set up by declaration.
//!
//! A stream is one mounted `events` contract with a name. Its settings say what names an event: the
//! `Idempotency-Key` header, some fields, or the whole body; a CloudEvent is always named by its
//! `source` and `id`. One request may carry many events, as a CloudEvents batch or as JSON lines.
//! Errors are problem details (RFC 9457) that also carry the general error object.
//!
//! Invariant: where webhook secrets are set, a signature is verified over the raw body before
//! anything of the body is read, let alone looked up.

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

use admit_core::{Code, Door, Entry, Horizon, Recorded, Submission};

use crate::{Budget, Contract, Description, Reply, Shape, Split, Turned};

pub use identity::Field;
pub use reply::problem;
pub use schemas::SchemaError;
pub use settings::{Accept, Canonical, Identity, Settings, is_stream_name};
pub use webhooks::{Secret, SecretError, Webhooks};

/// The longest `Idempotency-Key`, in characters.
pub const KEY_CHARS_MAX: usize = 255;

/// The headers this contract reads; `ce-*` stands for every header of a binary CloudEvent.
const HEADERS: [&str; 6] = [
    media::CONTENT_TYPE,
    identity::IDEMPOTENCY_KEY,
    webhooks::ID,
    webhooks::TIMESTAMP,
    webhooks::SIGNATURE,
    "ce-*",
];

/// The contract of one stream. See the module.
#[derive(Debug)]
pub struct Events {
    settings: Settings,
    schemas: schemas::Schemas,
    horizon: Horizon,
}

impl Events {
    /// The contract with these settings; compiles the schemas.
    ///
    /// # Errors
    /// When a schema is not one.
    pub fn new(settings: Settings) -> Result<Self, SchemaError> {
        let schemas = schemas::Schemas::compile(&settings.schemas)?;
        Ok(Self { settings, schemas, horizon: Horizon::default() })
    }

    /// What names its plain events.
    pub fn identity(&self) -> &Identity {
        &self.settings.identity
    }

    /// Before a ledger that forgets: what is outside `horizon` is refused.
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

    fn reply(&self, recorded: &Recorded) -> Reply {
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

    fn split(&self, submission: Submission) -> Result<Split, Turned> {
        split::split(&self.settings, submission)
    }

    fn join(&self, shape: &Shape, replies: Vec<Reply>) -> Reply {
        reply::join(shape, replies)
    }

    fn describe(&self) -> Description {
        describe::description(&self.settings)
    }

    fn vouched(&self) -> Option<&str> {
        self.settings.webhooks.as_ref()?.principal.as_deref()
    }
}
