//! Who sent an event, as receipts say it.

use admit_core::json::{Object, Value};

/// How a producer proves who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// Not at all: a gate without principals, which serves its own machine only.
    Disabled,
    /// By a key. Receipts name the principal the key belongs to, never the key.
    #[default]
    ApiKey,
    /// By a signed token; see [`service_token`](super::service_token).
    ServiceToken,
}

/// A mode that is none of ours, in the words of this wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthModeError {
    /// The reference knows it and does not do it either.
    #[error("AUTH_MODE_UNSUPPORTED: jwt is not supported; use api_key, service_token or disabled")]
    Unsupported,
    /// Nobody knows it.
    #[error("AUTH_MODE_UNKNOWN: the auth mode must be api_key, service_token or disabled")]
    Unknown,
}

impl AuthMode {
    /// The word on the wire and in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::ApiKey => "api_key",
            Self::ServiceToken => "service_token",
        }
    }

    /// The mode that `text` spells.
    ///
    /// # Errors
    /// When it is none of the three.
    pub fn parse(text: &str) -> Result<Self, AuthModeError> {
        match text {
            "disabled" => Ok(Self::Disabled),
            "api_key" => Ok(Self::ApiKey),
            "service_token" => Ok(Self::ServiceToken),
            "jwt" => Err(AuthModeError::Unsupported),
            _ => Err(AuthModeError::Unknown),
        }
    }

    /// The actor of whoever this principal is.
    pub(super) fn actor(self, principal: &str) -> Object<'static> {
        Object::from_iter([
            ("actor_id", Value::from(actor_id(principal))),
            ("source_type", "SYSTEM".into()),
            ("auth_mode", self.as_str().into()),
            ("principal", principal.to_owned().into()),
        ])
    }
}

/// A principal as an actor: `SYSTEM::` is put before it unless it says already what it is.
pub fn actor_id(principal: &str) -> String {
    let says = ["SYSTEM::", "HUMAN::"].iter().any(|kind| principal.starts_with(kind));
    if says { principal.to_owned() } else { format!("SYSTEM::{principal}") }
}
