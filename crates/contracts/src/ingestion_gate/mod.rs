//! `ingestion-gate`: a data platform pushes envelopes, and "admitted" means committed on the bus.
//!
//! An event is named by its run, its class and its own id; the class comes from the policy, never
//! from the producer. Its effect is a publish, in flight from the record commit on. What is told is
//! a receipt: a document that is issued inside the commit that decides, and whose file people can
//! read later under the run that the event itself names.

mod actor;
pub mod describe;
pub mod eb_ref;
pub mod envelope;
pub mod facts;
pub mod governance;
pub mod health;
mod issue;
pub mod law;
pub mod lookup;
pub mod names;
pub mod paths;
pub mod policy;
pub mod publication;
pub mod quarantine;
pub mod receipt;
pub mod rederive;
mod reply;
pub mod schemas;
pub mod service_token;
mod time;
mod vet;
pub mod words;

use admit_core::json::{Object, Value};
use admit_core::{Code, Door, Entry, Evidence, Filed, Issue, Issued, Recorded, Said, Submission};

use self::governance::PolicyRev;
use self::policy::Policy;
use crate::{Budget, Contract, Description, Reply};

pub use actor::{AuthMode, AuthModeError, actor_id};
use issue::Issuer;
pub use issue::{RUN_CLOSED, RUN_CLOSING};
pub use paths::Paths;
pub use time::utc;
pub use vet::{INVALID_JSON, KIND, recompute};
pub use words::{DUPLICATE, Decision, Reason, state};

/// The name of the door this contract is made for.
pub const DOOR: &str = "ingestion-gate";

/// The header that carries the key, unless it is configured otherwise.
pub const API_KEY_HEADER: &str = "X-IG-Api-Key";

/// The name of the policy on receipts.
pub const POLICY_ID: &str = "ig_policy";

/// Code in the replies of this door for a code of the ledger.
pub fn reply_code(code: Code) -> &'static str {
    reply::word_of(code).1
}

/// The settings of this door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The revision that the owner of the policy gave it. Not empty.
    pub policy_revision: String,
    /// Which release decides, on receipts. Not empty.
    pub service_release_id: String,
    /// Which environment this is, on receipts. Not empty.
    pub environment: String,
    /// How producers prove who they are.
    pub auth_mode: AuthMode,
    /// Where artifacts lie.
    pub paths: Paths,
    /// Deepest nesting of a body; deeper ones are `INVALID_JSON`.
    pub json_depth_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy_revision: "builtin-v0".to_owned(),
            service_release_id: "dev-local".to_owned(),
            environment: "local".to_owned(),
            auth_mode: AuthMode::default(),
            paths: Paths::top(),
            json_depth_max: 128,
        }
    }
}

/// A setting that receipts cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must not be empty: it stands on every receipt")]
pub struct EmptySetting(&'static str);

/// The contract. See the module.
#[derive(Debug)]
pub struct IngestionGate {
    settings: Settings,
    policy: Policy,
    receipts: schemas::Receipts,
    issuer: Issuer,
}

impl IngestionGate {
    /// The contract with these settings and this policy.
    ///
    /// # Errors
    /// When receipts could not carry a setting.
    pub fn new(settings: Settings, policy: Policy) -> Result<Self, EmptySetting> {
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

    /// The policy that decides.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy as receipts name it.
    pub fn policy_rev(&self) -> PolicyRev {
        PolicyRev {
            policy_id: POLICY_ID.to_owned(),
            revision: self.settings.policy_revision.clone(),
            content_digest: self.policy.digest().to_owned(),
        }
    }

    /// Where artifacts lie.
    pub fn paths(&self) -> &Paths {
        &self.settings.paths
    }

    /// Every topic that events of this policy can go to, and the one of our own.
    pub fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.policy.topics().into_iter().map(str::to_owned).collect();
        if !topics.iter().any(|topic| topic == governance::AUDIT_TOPIC) {
            topics.push(governance::AUDIT_TOPIC.to_owned());
        }
        topics
    }

    /// Which release and configuration decides, as documents say it.
    pub fn provenance(&self) -> Object<'static> {
        let settings = &self.settings;
        Object::from_iter([
            ("service_release_id", Value::from(settings.service_release_id.clone())),
            ("environment", settings.environment.clone().into()),
            ("config_revision", settings.policy_revision.clone().into()),
            ("run_config_digest", self.policy.digest().to_owned().into()),
        ])
    }

    /// The answer to a delivery, from the documents that were issued about it.
    pub fn reply_filed(&self, recorded: &Recorded, documents: &[Filed]) -> Reply {
        reply::reply(recorded, documents)
    }

    /// The answer to a delivery whose run takes nothing new.
    pub fn reply_closed(&self, documents: &[Filed]) -> Reply {
        reply::closed(documents)
    }

    /// The answer to a delivery whose run is being closed.
    pub fn reply_closing(&self, documents: &[Filed]) -> Reply {
        reply::closing(documents)
    }

    /// The answer to somebody whose service token proves nothing.
    pub fn reply_unproven(&self, why: service_token::TokenError) -> Reply {
        reply::error(401, why.as_str(), &why.to_string(), Object::new())
    }

    /// The answer to a look-up that names nothing.
    pub fn missing_query(&self) -> Reply {
        reply::missing_query()
    }

    /// The settings.
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

    /// Without its documents there is little to say; see [`Self::reply_filed`].
    fn reply(&self, recorded: &Recorded) -> Reply {
        reply::reply(recorded, &[])
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    /// A body is read as JSON whatever it says it is.
    fn accepts(&self, _content_type: Option<&str>) -> bool {
        true
    }

    /// Admitted means committed on the bus, and nobody but the gate can say so.
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

    fn issue(&self, said: &Said<'_>) -> Vec<Issued> {
        self.issuer.issue(said)
    }

    fn is_passing(&self, reason: &str) -> bool {
        self.issuer.is_passing(reason)
    }

    fn is_about_the_effect(&self, reason: &str) -> bool {
        self.issuer.is_about_the_effect(reason)
    }
}
