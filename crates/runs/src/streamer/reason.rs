//! Why a run was not streamed, in the words its records use.

use std::error::Error;
use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why streaming a run failed. A failed run is tried again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word for it in records.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

reasons! {
    /// The facts of the run cannot be read, or lack something.
    RunFactsInvalid = "RUN_FACTS_INVALID",
    /// The facts name no platform run.
    PlatformRunIdMissing = "PLATFORM_RUN_ID_MISSING",
    /// READY and facts name different platform runs.
    PlatformRunIdMismatch = "PLATFORM_RUN_ID_MISMATCH",
    /// The facts name no scenario run.
    ScenarioRunIdMissing = "SCENARIO_RUN_ID_MISSING",
    /// READY and facts name different scenario runs.
    ScenarioRunIdMismatch = "SCENARIO_RUN_ID_MISMATCH",
    /// The facts name no scenario.
    ScenarioIdMissing = "SCENARIO_ID_MISSING",
    /// Nobody says where the pack is.
    EngineRootMissing = "ENGINE_ROOT_MISSING",
    /// READY and facts name different packs.
    EngineRootMismatch = "ENGINE_ROOT_MISMATCH",
    /// The pack has no receipt that can be read.
    RunReceiptUnreadable = "RUN_RECEIPT_UNREADABLE",
    /// The receipt does not say which world the pack is of.
    WorldKeyMissing = "WORLD_KEY_MISSING",
    /// The pack, its rows, its manifest, the facts and READY do not agree on the world.
    WorldKeyMismatch = "WORLD_KEY_MISMATCH",
    /// This profile wants a manifest.
    PackManifestMissing = "PACK_MANIFEST_MISSING",
    /// The manifest is damaged, or its id is not that of its content.
    PackManifestInvalid = "PACK_MANIFEST_INVALID",
    /// This profile wants a seal.
    PackNotSealed = "PACK_NOT_SEALED",
    /// None of the outputs to stream is traffic.
    NoTrafficOutputs = "NO_TRAFFIC_OUTPUTS",
    /// An output is not in the catalogue.
    UnknownOutputId = "UNKNOWN_OUTPUT_ID",
    /// A gate that an output needs has not passed.
    GatePassMissing = "GATE_PASS_MISSING",
    /// An output has no stream view.
    StreamViewMissing = "STREAM_VIEW_MISSING",
    /// A stream view has no part files.
    StreamViewEmpty = "STREAM_VIEW_EMPTY",
    /// The sort receipt of a stream view does not say OK.
    StreamViewReceiptBad = "STREAM_VIEW_RECEIPT_BAD",
    /// The ids of a stream view do not agree.
    StreamViewIdMismatch = "STREAM_VIEW_ID_MISMATCH",
    /// A stream view is of another output.
    StreamViewOutputMismatch = "STREAM_VIEW_OUTPUT_MISMATCH",
    /// A row lacks a column that names it.
    PrimaryKeyMissing = "PRIMARY_KEY_MISSING",
    /// The configured producer is not one of those allowed.
    ProducerNotAllowed = "PRODUCER_NOT_ALLOWED",
    /// The gate refused an envelope for good.
    IgPushRejected = "IG_PUSH_REJECTED",
    /// The gate did not take an envelope in all attempts.
    IgPushRetryExhausted = "IG_PUSH_RETRY_EXHAUSTED",
    /// Anything else: damaged rows, a disk that fails, a checkpoint that cannot be kept.
    StreamFailed = "STREAM_FAILED",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run that failed, with its reason and what exactly happened.
#[derive(Debug)]
pub struct Failure {
    /// The reason, for records.
    pub reason: Reason,
    /// What happened, for people.
    pub detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that nothing else caused.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), source: None }
    }

    /// A failure with its cause.
    pub fn caused(
        reason: Reason,
        detail: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self { reason, detail: detail.into(), source: Some(Box::new(source)) }
    }

    /// The same, with where it happened.
    pub fn within(mut self, place: &str) -> Self {
        self.detail = format!("{place}: {}", self.detail);
        self
    }

    /// What happened, with every cause.
    pub fn told(&self) -> String {
        let mut text = self.detail.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.detail)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

impl From<super::pack::rows::RowsError> for Failure {
    fn from(error: super::pack::rows::RowsError) -> Self {
        Self::caused(Reason::StreamFailed, "the rows cannot be read", error)
    }
}
