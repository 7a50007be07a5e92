//! Failure reasons of runs and refusal codes of requests, with their names on the wire.

use std::fmt;

macro_rules! words {
    ($(#[$outer:meta])* $type:ident: $($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$doc])* $name,)*
        }

        impl $type {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name on the wire.
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
    /// A requested output is not in the catalogue.
    UnknownOutputId = "UNKNOWN_OUTPUT_ID",
    /// A required gate is not in the catalogue.
    UnknownGateId = "UNKNOWN_GATE_ID",
    /// The plan has no outputs, or became invalid.
    PlanInvalid = "PLAN_INVALID",
    /// A gate did not pass.
    GateFail = "GATE_FAIL",
    /// Neither the request nor the config names the pack.
    EngineRootMissing = "ENGINE_ROOT_MISSING",
    /// Timeout: the pack has no receipt.
    EngineReceiptMissing = "ENGINE_RECEIPT_MISSING",
    /// The pack's receipt is malformed.
    EngineReceiptInvalid = "ENGINE_RECEIPT_INVALID",
    /// The pack's receipt belongs to another world.
    EngineReceiptMismatch = "ENGINE_RECEIPT_MISMATCH",
    /// No engine can be invoked.
    EngineInvocationInvalid = "ENGINE_INVOCATION_INVALID",
    /// The pack's manifest is malformed.
    OraclePackInvalid = "ORACLE_PACK_INVALID",
    /// The pack's manifest belongs to another world.
    OraclePackMismatch = "ORACLE_PACK_MISMATCH",
    /// Timeout: evidence is missing.
    EvidenceMissingDeadline = "EVIDENCE_MISSING_DEADLINE",
    /// The evidence is contradictory.
    EvidenceConflict = "EVIDENCE_CONFLICT",
}

words! {
    /// Why a request is refused. The run, if any, is not changed.
    RefusalCode:
    /// Invalid request.
    RunRequestInvalid = "RUN_REQUEST_INVALID",
    /// Invalid re-emit request.
    ReemitRequestInvalid = "REEMIT_REQUEST_INVALID",
    /// The active platform run is invalid.
    PlatformRunIdInvalid = "PLATFORM_RUN_ID_INVALID",
    /// The key belongs to another intent.
    EquivKeyCollision = "EQUIV_KEY_COLLISION",
    /// The run does not exist.
    RunNotFound = "RUN_NOT_FOUND",
    /// Another runner took over the lease.
    LeaseLost = "LEASE_LOST",
    /// The stored plan differs.
    PlanDrift = "PLAN_DRIFT",
    /// The stored facts differ.
    FactsViewDrift = "FACTS_VIEW_DRIFT",
    /// The stored signal differs.
    ReadySignalDrift = "READY_SIGNAL_DRIFT",
    /// Another stored document differs.
    ArtifactDrift = "ARTIFACT_DRIFT",
    /// A file could not be written.
    ArtifactUnavailable = "ARTIFACT_UNAVAILABLE",
    /// READY was requested again, but the run is not ready.
    ReemitReadyOnlyMismatch = "REEMIT_READY_ONLY_MISMATCH",
    /// The terminal message was requested again, but the run has not ended that way.
    ReemitTerminalOnlyMismatch = "REEMIT_TERMINAL_ONLY_MISMATCH",
    /// The run is ready, but its facts are missing.
    FactsViewMissing = "FACTS_VIEW_MISSING",
    /// Rate limit of re-emits exceeded.
    ReemitRateLimit = "REEMIT_RATE_LIMIT",
    /// Another re-emit is in progress.
    ReemitBusy = "REEMIT_BUSY",
    /// The bus refused the message or did not confirm it.
    ReemitFailed = "REEMIT_FAILED",
    /// The run belongs to another platform run than the active one.
    CrossRunOverrideRequired = "CROSS_RUN_OVERRIDE_REQUIRED",
    /// The override reason is not allowed.
    CrossRunReasonNotAllowed = "CROSS_RUN_OVERRIDE_REASON_NOT_ALLOWED",
}

impl RefusalCode {
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

    /// Whether the same request may pass later without a change by a person.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::LeaseLost
            | Self::ReemitRateLimit
            | Self::ReemitBusy
            | Self::ArtifactUnavailable
            | Self::ReemitFailed => true,
            Self::RunRequestInvalid
            | Self::ReemitRequestInvalid
            | Self::PlatformRunIdInvalid
            | Self::EquivKeyCollision
            | Self::RunNotFound
            | Self::PlanDrift
            | Self::FactsViewDrift
            | Self::ReadySignalDrift
            | Self::ArtifactDrift
            | Self::ReemitReadyOnlyMismatch
            | Self::ReemitTerminalOnlyMismatch
            | Self::FactsViewMissing
            | Self::CrossRunOverrideRequired
            | Self::CrossRunReasonNotAllowed => false,
        }
    }

    /// The code for drift of this kind of document.
    pub(super) fn drift(kind: &str) -> Self {
        match kind {
            super::documents::PLAN => Self::PlanDrift,
            super::documents::FACTS => Self::FactsViewDrift,
            super::documents::SIGNAL => Self::ReadySignalDrift,
            _ => Self::ArtifactDrift,
        }
    }
}

/// Default retry hint, in seconds.
const RETRY_SECONDS: u32 = 5;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct RefusedRequest {
    /// The code.
    pub code: RefusalCode,
    /// Detail for operators.
    pub detail: String,
    /// Seconds until a retry may pass, if one can.
    pub retry_after_seconds: Option<u32>,
}

impl RefusedRequest {
    /// Creates a refusal.
    pub fn new(code: RefusalCode, detail: impl Into<String>) -> Self {
        let retry_after_seconds = code.is_retryable().then_some(RETRY_SECONDS);
        Self { code, detail: detail.into(), retry_after_seconds }
    }

    /// Sets when a retry may pass.
    pub(super) fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_seconds: Some(seconds), ..self }
    }
}

/// Error of a runner call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunnerError {
    /// The request is refused.
    #[error(transparent)]
    Refused(#[from] RefusedRequest),
    /// Internal fault.
    #[error(transparent)]
    Fault(#[from] admit_core::Fault),
}
