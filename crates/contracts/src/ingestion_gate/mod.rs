//! `ingestion-gate`: a data platform pushes envelopes, and "admitted" means committed on the bus.
//!
//! The key of an event consists of its run, its class and its own id; the class comes from the
//! policy, never from the producer. The effect is a publish, in flight from the record commit on.
//! The reply contains a receipt: a document issued in the commit that decides, whose file is stored
//! under the run that the event names.

pub mod audit_check;
mod auth_mode;
pub mod describe;
mod documents;
pub mod duplicate_rule;
pub mod eb_ref;
pub mod enums;
pub mod envelope;
pub mod facts;
pub mod governance;
pub mod health;
pub mod lookup;
pub mod names;
pub mod paths;
pub mod policy;
pub mod publication;
pub mod quarantine;
pub mod receipt;
mod reply;
pub mod schemas;
pub mod service_token;
mod time;
mod vet;

use admit_core::json::{Object, Value};
use admit_core::{
    Code, Document, Door, Entry, Evidence, Issue, IssueContext, RecordedEntry, StoredDocument,
    Submission,
};

use self::governance::PolicyRev;
use self::policy::IngestionPolicy;
use crate::{Budget, Contract, Description, Reply};

pub use auth_mode::{AuthMode, AuthModeError, actor_id};
use documents::Issuer;
pub use documents::{RUN_CLOSED, RUN_CLOSING};
pub use enums::{DUPLICATE, Reason, ReceiptDecision, state};
pub use paths::ArtifactPaths;
pub use time::utc;
pub use vet::{INVALID_JSON, KIND, recompute};

/// Default door name of this contract.
pub const DOOR: &str = "ingestion-gate";

/// Default header of the API key.
pub const API_KEY_HEADER: &str = "X-IG-Api-Key";

/// Policy id on receipts.
pub const POLICY_ID: &str = "ig_policy";

/// Returns the reply code of this door for a ledger code.
pub fn reply_code(code: Code) -> &'static str {
    reply::wire_code(code).1
}

/// Settings of this door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Revision set by the owner of the policy. Not empty.
    pub policy_revision: String,
    /// Release on receipts. Not empty.
    pub service_release_id: String,
    /// Environment on receipts. Not empty.
    pub environment: String,
    /// How producers authenticate.
    pub auth_mode: AuthMode,
    /// Artifact layout.
    pub paths: ArtifactPaths,
    /// Maximum nesting depth of a body; deeper ones are `INVALID_JSON`.
    pub json_depth_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy_revision: "builtin-v0".to_owned(),
            service_release_id: "dev-local".to_owned(),
            environment: "local".to_owned(),
            auth_mode: AuthMode::default(),
            paths: ArtifactPaths::top(),
            json_depth_max: 128,
        }
    }
}

/// Empty setting that receipts require.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must not be empty: it is part of every receipt")]
pub struct EmptySetting(&'static str);

/// The `ingestion-gate` contract. See the module.
#[derive(Debug)]
pub struct IngestionGate {
    settings: Settings,
    policy: IngestionPolicy,
    receipts: schemas::Receipts,
    issuer: Issuer,
}

impl IngestionGate {
    /// Creates the contract.
    ///
    /// # Errors
    /// If a setting required on receipts is empty.
    pub fn new(settings: Settings, policy: IngestionPolicy) -> Result<Self, EmptySetting> {
        for (name, value) in [
            ("policy_revision", &settings.policy_revision),
            ("service_release_id", &settings.service_release_id),
            ("environment", &settings.environment),
        ] {
            if value.is_empty() {
                return Err(EmptySetting(name));
            }
        }
        let issuer = Issuer::new(settings.paths.clone());
        Ok(Self { settings, policy, receipts: schemas::Receipts::new(), issuer })
    }

    /// Active policy.
    pub fn policy(&self) -> &IngestionPolicy {
        &self.policy
    }

    /// Policy revision as receipts name it.
    pub fn policy_rev(&self) -> PolicyRev {
        PolicyRev {
            policy_id: POLICY_ID.to_owned(),
            revision: self.settings.policy_revision.clone(),
            content_digest: self.policy.digest().to_owned(),
        }
    }

    /// Artifact layout.
    pub fn paths(&self) -> &ArtifactPaths {
        &self.settings.paths
    }

    /// All topics that events of this policy can go to, plus the audit topic.
    pub fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.policy.topics().into_iter().map(str::to_owned).collect();
        if !topics.iter().any(|topic| topic == governance::AUDIT_TOPIC) {
            topics.push(governance::AUDIT_TOPIC.to_owned());
        }
        topics
    }

    /// Release and configuration as recorded in documents.
    pub fn provenance(&self) -> Object<'static> {
        let settings = &self.settings;
        Object::from_iter([
            ("service_release_id", Value::from(settings.service_release_id.clone())),
            ("environment", settings.environment.clone().into()),
            ("config_revision", settings.policy_revision.clone().into()),
            ("run_config_digest", self.policy.digest().to_owned().into()),
        ])
    }

    /// Renders the reply to a delivery from the documents issued for it.
    pub fn reply_with_documents(
        &self,
        recorded: &RecordedEntry,
        documents: &[StoredDocument],
    ) -> Reply {
        reply::reply(recorded, documents)
    }

    /// Renders the reply to a delivery whose run is closed.
    pub fn reply_closed(&self, documents: &[StoredDocument]) -> Reply {
        reply::closed(documents)
    }

    /// Renders the reply to a delivery whose run is being closed.
    pub fn reply_closing(&self, documents: &[StoredDocument]) -> Reply {
        reply::closing(documents)
    }

    /// Renders the reply to an invalid service token.
    pub fn reply_token_error(&self, why: service_token::TokenError) -> Reply {
        reply::error(401, why.as_str(), &why.to_string(), Object::new())
    }

    /// Renders the reply to a lookup without a query parameter.
    pub fn missing_query(&self) -> Reply {
        reply::missing_query()
    }

    /// Settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Contract for IngestionGate {
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

    /// Reply without documents; see [`Self::reply_with_documents`] for the full one.
    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        reply::reply(recorded, &[])
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    /// The body is parsed as JSON regardless of its content type.
    fn accepts(&self, _content_type: Option<&str>) -> bool {
        true
    }

    /// "Admitted" means committed on the bus, which only the gate can confirm.
    fn is_forwardable(&self) -> bool {
        false
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}

impl Issue for IngestionGate {
    fn run<'f>(&self, facts: &'f Object<'_>) -> Option<&'f str> {
        self.issuer.run(facts)
    }

    fn acknowledged(&self, evidence: &Evidence) -> Option<(String, u64)> {
        publication::acknowledged(evidence)
    }

    fn issue(&self, context: &IssueContext<'_>) -> Vec<Document> {
        self.issuer.issue(context)
    }

    fn is_transient(&self, reason: &str) -> bool {
        self.issuer.is_transient(reason)
    }

    fn is_released_by_settlement(&self, reason: &str) -> bool {
        self.issuer.is_released_by_settlement(reason)
    }
}
