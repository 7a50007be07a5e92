//! Enumerations of this wire format: decisions, reasons and admission states.

use admit_core::Code;
use admit_core::effect::EffectState;

/// Decision on a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiptDecision {
    /// Committed on the bus.
    Admit,
    /// Copy of an event that is committed on the bus.
    Duplicate,
    /// Stored, and not confirmed to be on the bus.
    Quarantine,
}

impl ReceiptDecision {
    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "ADMIT",
            Self::Duplicate => "DUPLICATE",
            Self::Quarantine => "QUARANTINE",
        }
    }
}

/// Reason code of every duplicate receipt.
pub const DUPLICATE: &str = "DUPLICATE";

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal;)+) => {
        /// Reason of a quarantine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// All reasons, in the order in which they are checked.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// The envelope violates its schema.
    EnvelopeInvalid "ENVELOPE_INVALID";
    /// A pin that the class requires is missing.
    PinsMissing "PINS_MISSING";
    /// The schema policy has no entry for the event type.
    SchemaPolicyMissing "SCHEMA_POLICY_MISSING";
    /// The event type requires a schema version, and there is none.
    SchemaVersionRequired "SCHEMA_VERSION_REQUIRED";
    /// The schema version is not among the allowed ones.
    SchemaVersionNotAllowed "SCHEMA_VERSION_NOT_ALLOWED";
    /// The payload violates the schema of its event type.
    SchemaFail "SCHEMA_FAIL";
    /// The event is known, with another payload.
    PayloadHashMismatch "PAYLOAD_HASH_MISMATCH";
    /// Another delivery of the event is being published.
    PublishInFlight "PUBLISH_IN_FLIGHT";
    /// The outcome of the publish is unknown.
    PublishAmbiguous "PUBLISH_AMBIGUOUS";
    /// The admission is in an unexpected state.
    AdmissionStateInvalid "ADMISSION_STATE_INVALID";
    /// No field of the event provides the partition key.
    PartitionKeyMissing "PARTITION_KEY_MISSING";
    /// The partitioning profile requires an unsupported hash.
    UnsupportedHashAlgo "UNSUPPORTED_HASH_ALGO";
    /// Internal defect.
    InternalError "INTERNAL_ERROR";
}

impl Reason {
    /// Parses a reason.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    /// Returns the closest ledger code, for listings across doors.
    pub const fn code(self) -> Code {
        match self {
            Self::SchemaVersionRequired | Self::SchemaVersionNotAllowed => {
                Code::SchemaVersionUnsupported
            }
            Self::PayloadHashMismatch => Code::IdempotencyKeyReused,
            Self::PublishInFlight => Code::IdempotencyKeyInUse,
            Self::PublishAmbiguous => Code::OutcomeUnknown,
            Self::AdmissionStateInvalid | Self::InternalError => Code::InternalError,
            Self::EnvelopeInvalid
            | Self::PinsMissing
            | Self::SchemaPolicyMissing
            | Self::SchemaFail
            | Self::PartitionKeyMissing
            | Self::UnsupportedHashAlgo => Code::InvalidEnvelope,
        }
    }
}

/// Returns the state of an admission as in `admissions.state`. `RELEASED`, which the reference
/// implementation lacks, means that a manual reconciliation found the event absent from the bus.
pub const fn state(state: &EffectState) -> &'static str {
    match state {
        EffectState::Withheld(_) | EffectState::Intended(_) | EffectState::InFlight(_) => {
            Reason::PublishInFlight.as_str()
        }
        EffectState::Done(_) => "ADMITTED",
        EffectState::Ambiguous(_) => Reason::PublishAmbiguous.as_str(),
        EffectState::Refused(_) => "RELEASED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_round_trips() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(Reason::ALL.len(), 13);
        assert_eq!(Reason::parse("DUPLICATE"), None);
    }
}
