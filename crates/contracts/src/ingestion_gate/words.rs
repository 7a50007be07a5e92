//! The words of this wire: decisions, reasons, and how an admission stands.

use admit_core::Code;
use admit_core::effect::Standing;

/// What a receipt says was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Committed on the bus.
    Admit,
    /// A copy of what is committed on the bus.
    Duplicate,
    /// Kept, and not on the bus as far as anybody may rely on it.
    Quarantine,
}

impl Decision {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "ADMIT",
            Self::Duplicate => "DUPLICATE",
            Self::Quarantine => "QUARANTINE",
        }
    }
}

/// The reason code of every duplicate receipt.
pub const DUPLICATE: &str = "DUPLICATE";

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal;)+) => {
        /// Why something is in quarantine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// Every reason, in the order in which they are looked for.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// The envelope breaks its schema.
    EnvelopeInvalid "ENVELOPE_INVALID";
    /// A pin that the class wants is missing.
    PinsMissing "PINS_MISSING";
    /// The schema policy does not know the event type.
    SchemaPolicyMissing "SCHEMA_POLICY_MISSING";
    /// The event type wants a schema version, and there is none.
    SchemaVersionRequired "SCHEMA_VERSION_REQUIRED";
    /// The schema version is not among the allowed ones.
    SchemaVersionNotAllowed "SCHEMA_VERSION_NOT_ALLOWED";
    /// The payload breaks the schema of its event type.
    SchemaFail "SCHEMA_FAIL";
    /// The event is known, with another payload.
    PayloadHashMismatch "PAYLOAD_HASH_MISMATCH";
    /// The event is being published by somebody else just now.
    PublishInFlight "PUBLISH_IN_FLIGHT";
    /// Nobody knows whether the event is on the bus.
    PublishAmbiguous "PUBLISH_AMBIGUOUS";
    /// The admission stands where none should.
    AdmissionStateInvalid "ADMISSION_STATE_INVALID";
    /// Nothing in the event says which partition it belongs to.
    PartitionKeyMissing "PARTITION_KEY_MISSING";
    /// The partitioning profile wants a hash that we do not have.
    UnsupportedHashAlgo "UNSUPPORTED_HASH_ALGO";
    /// A defect of ours.
    InternalError "INTERNAL_ERROR";
}

impl Reason {
    /// The reason that `text` spells, if there is one.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    /// The nearest code of the house, for lists that hold the refusals of every door.
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

/// How an admission stands, in the words of `admissions.state`. `RELEASED` is the one that the
/// reference does not have: a person found that it never reached the bus.
pub const fn state(standing: &Standing) -> &'static str {
    match standing {
        Standing::Withheld(_) | Standing::Intended(_) | Standing::InFlight(_) => {
            Reason::PublishInFlight.as_str()
        }
        Standing::Done(_) => "ADMITTED",
        Standing::Ambiguous(_) => Reason::PublishAmbiguous.as_str(),
        Standing::Refused(_) => "RELEASED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(Reason::ALL.len(), 13);
        assert_eq!(Reason::parse("DUPLICATE"), None);
    }
}
