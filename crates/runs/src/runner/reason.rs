//! Why a run does not become ready, and why a request is refused, in the words of this wire.

use std::fmt;

macro_rules! words {
    ($(#[$outer:meta])* $type:ident: $($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$doc])* $name,)*
        }

        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word on the wire.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// Why a run ended without becoming ready.
    Reason:
    /// An output that nobody knows was asked for.
    UnknownOutputId = "UNKNOWN_OUTPUT_ID",
    /// A gate that nobody knows would have to vouch.
    UnknownGateId = "UNKNOWN_GATE_ID",
    /// Nothing is left to be planned.
    PlanInvalid = "PLAN_INVALID",
    /// A gate says that it did not pass.
    GateFail = "GATE_FAIL",
    /// Nobody says where the pack is.
    EngineRootMissing = "ENGINE_ROOT_MISSING",
    /// The pack has no receipt, and none came in time.
    EngineReceiptMissing = "ENGINE_RECEIPT_MISSING",
    /// The pack's receipt cannot be read.
    EngineReceiptInvalid = "ENGINE_RECEIPT_INVALID",
    /// The pack's receipt is of another world.
    EngineReceiptMismatch = "ENGINE_RECEIPT_MISMATCH",
    /// There is no engine that could be invoked.
    EngineInvocationInvalid = "ENGINE_INVOCATION_INVALID",
    /// The pack's manifest cannot be read.
    OraclePackInvalid = "ORACLE_PACK_INVALID",
    /// The pack's manifest is of another world.
    OraclePackMismatch = "ORACLE_PACK_MISMATCH",
    /// Evidence did not come in time.
    EvidenceMissingDeadline = "EVIDENCE_MISSING_DEADLINE",
    /// Evidence contradicts itself.
    EvidenceConflict = "EVIDENCE_CONFLICT",
}

words! {
    /// Why a request is refused; the run, where there is one, is left as it was.
    Refusal:
    /// The request is not one.
    RunRequestInvalid = "RUN_REQUEST_INVALID",
    /// The re-emit request is not one.
    ReemitRequestInvalid = "REEMIT_REQUEST_INVALID",
    /// The platform run that is active is not one.
    PlatformRunIdInvalid = "PLATFORM_RUN_ID_INVALID",
    /// The key stands for another intent.
    EquivKeyCollision = "EQUIV_KEY_COLLISION",
    /// There is no such run.
    RunNotFound = "RUN_NOT_FOUND",
    /// Another runner took over.
    LeaseLost = "LEASE_LOST",
    /// The plan is kept, and says something else.
    PlanDrift = "PLAN_DRIFT",
    /// The facts are kept, and say something else.
    FactsViewDrift = "FACTS_VIEW_DRIFT",
    /// The signal is kept, and says something else.
    ReadySignalDrift = "READY_SIGNAL_DRIFT",
    /// Another document is kept, and says something else.
    ArtifactDrift = "ARTIFACT_DRIFT",
    /// A file could not be written.
    ArtifactUnavailable = "ARTIFACT_UNAVAILABLE",
    /// READY was to be emitted again, and the run is not ready.
    ReemitReadyOnlyMismatch = "REEMIT_READY_ONLY_MISMATCH",
    /// An end was to be emitted again, and the run has not ended so.
    ReemitTerminalOnlyMismatch = "REEMIT_TERMINAL_ONLY_MISMATCH",
    /// The run is ready and its facts are not there.
    FactsViewMissing = "FACTS_VIEW_MISSING",
    /// Emitted again too often.
    ReemitRateLimit = "REEMIT_RATE_LIMIT",
    /// Somebody else is emitting it.
    ReemitBusy = "REEMIT_BUSY",
    /// The bus did not take it, or did not say.
    ReemitFailed = "REEMIT_FAILED",
    /// The run is of another platform run than the active one.
    CrossRunOverrideRequired = "CROSS_RUN_OVERRIDE_REQUIRED",
    /// The reason for doing so all the same is not one of those allowed.
    CrossRunReasonNotAllowed = "CROSS_RUN_OVERRIDE_REASON_NOT_ALLOWED",
}

impl Refusal {
    /// The HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::RunRequestInvalid | Self::ReemitRequestInvalid => 400,
            Self::CrossRunOverrideRequired | Self::CrossRunReasonNotAllowed => 403,
            Self::RunNotFound => 404,
            Self::EquivKeyCollision
            | Self::LeaseLost
            | Self::PlanDrift
            | Self::FactsViewDrift
            | Self::ReadySignalDrift
            | Self::ArtifactDrift
            | Self::ReemitReadyOnlyMismatch
            | Self::ReemitTerminalOnlyMismatch
            | Self::FactsViewMissing
            | Self::ReemitBusy => 409,
            Self::ReemitRateLimit => 429,
            Self::PlatformRunIdInvalid => 500,
            Self::ArtifactUnavailable | Self::ReemitFailed => 503,
        }
    }

    /// What a drift of this kind of document is called.
    pub(super) fn drift(kind: &str) -> Self {
        match kind {
            super::documents::PLAN => Self::PlanDrift,
            super::documents::FACTS => Self::FactsViewDrift,
            super::documents::SIGNAL => Self::ReadySignalDrift,
            _ => Self::ArtifactDrift,
        }
    }
}

/// A refused request, with what exactly happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}: {detail}")]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// What exactly, for people.
    pub detail: String,
}

impl Refused {
    /// Refuses.
    pub fn new(refusal: Refusal, detail: impl Into<String>) -> Self {
        Self { refusal, detail: detail.into() }
    }
}

/// Why the runner has nothing to show for a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunnerError {
    /// Their side, or the run's.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Our side.
    #[error(transparent)]
    Fault(#[from] admit_core::Fault),
}
