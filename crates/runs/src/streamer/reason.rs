//! Failure reasons of streaming, with their names in records.

use std::error::Error;
use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why streaming a run failed. A failed run is retried.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in records.
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
    /// Neither READY nor the facts name the pack.
    EngineRootMissing = "ENGINE_ROOT_MISSING",
    /// READY and facts name different packs.
    EngineRootMismatch = "ENGINE_ROOT_MISMATCH",
    /// The pack has no receipt that can be read.
    RunReceiptUnreadable = "RUN_RECEIPT_UNREADABLE",
    /// The receipt lacks the world of the pack.
    WorldKeyMissing = "WORLD_KEY_MISSING",
    /// The pack, its rows, its manifest, the facts and READY do not agree on the world.
    WorldKeyMismatch = "WORLD_KEY_MISMATCH",
    /// This profile requires a manifest.
    PackManifestMissing = "PACK_MANIFEST_MISSING",
    /// The manifest is damaged, or its id is not that of its content.
    PackManifestInvalid = "PACK_MANIFEST_INVALID",
    /// This profile requires a seal.
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
    /// The sort receipt of a stream view is not OK.
    StreamViewReceiptBad = "STREAM_VIEW_RECEIPT_BAD",
    /// The ids of a stream view do not agree.
    StreamViewIdMismatch = "STREAM_VIEW_ID_MISMATCH",
    /// A stream view is of another output.
    StreamViewOutputMismatch = "STREAM_VIEW_OUTPUT_MISMATCH",
    /// A row lacks a primary key column.
    PrimaryKeyMissing = "PRIMARY_KEY_MISSING",
    /// The configured producer is not one of those allowed.
    ProducerNotAllowed = "PRODUCER_NOT_ALLOWED",
    /// The gate refused an envelope permanently.
    IgPushRejected = "IG_PUSH_REJECTED",
    /// All attempts to push an envelope failed.
    IgPushRetryExhausted = "IG_PUSH_RETRY_EXHAUSTED",
    /// Any other failure: damaged rows, a disk error, a checkpoint that cannot be saved.
    StreamFailed = "STREAM_FAILED",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Failure of a run, with its reason and detail.
#[derive(Debug)]
pub struct RunFailure {
    /// The reason, for records.
    pub reason: Reason,
    /// Detail for operators.
    pub detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl RunFailure {
    /// A failure without a cause.
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

    /// Prefixes the detail with a location.
    pub fn at(mut self, place: &str) -> Self {
        self.detail = format!("{place}: {}", self.detail);
        self
    }

    /// The detail with all causes.
    pub fn detail_with_causes(&self) -> String {
        let mut text = self.detail.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.detail)
    }
}

impl Error for RunFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

impl From<super::pack::rows::RowsError> for RunFailure {
    fn from(error: super::pack::rows::RowsError) -> Self {
        Self::caused(Reason::StreamFailed, "the rows cannot be read", error)
    }
}
