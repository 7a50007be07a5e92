//! Authentication modes, and the sender as recorded on receipts.

use admit_core::json::{Object, Value};

/// How a producer authenticates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// No authentication: a gate without principals, which serves only its own machine.
    Disabled,
    /// API key. Receipts name the principal the key belongs to, never the key.
    #[default]
    ApiKey,
    /// Signed token; see [`service_token`](super::service_token).
    ServiceToken,
}

/// Invalid auth mode, in this contract's wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthModeError {
    /// Known to the reference implementation, which does not support it either.
    #[error("AUTH_MODE_UNSUPPORTED: jwt is not supported; use api_key, service_token or disabled")]
    Unsupported,
    /// Unknown mode.
    #[error("AUTH_MODE_UNKNOWN: the auth mode must be api_key, service_token or disabled")]
    Unknown,
}

impl AuthMode {
    /// Name on the wire and in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::ApiKey => "api_key",
            Self::ServiceToken => "service_token",
        }
    }

    /// Parses an auth mode.
    ///
    /// # Errors
    /// If `text` is none of the three modes.
    pub fn parse(text: &str) -> Result<Self, AuthModeError> {
        match text {
            "disabled" => Ok(Self::Disabled),
            "api_key" => Ok(Self::ApiKey),
            "service_token" => Ok(Self::ServiceToken),
            "jwt" => Err(AuthModeError::Unsupported),
            _ => Err(AuthModeError::Unknown),
        }
    }

    /// Returns the `actor` object for this principal.
    pub(super) fn actor(self, principal: &str) -> Object<'static> {
        Object::from_iter([
            ("actor_id", Value::from(actor_id(principal))),
            ("source_type", "SYSTEM".into()),
            ("auth_mode", self.as_str().into()),
            ("principal", principal.to_owned().into()),
        ])
    }
}

/// Returns the principal as an actor id: prefixed with `SYSTEM::` unless it already has a kind
/// prefix.
pub fn actor_id(principal: &str) -> String {
    let has_kind = ["SYSTEM::", "HUMAN::"].iter().any(|kind| principal.starts_with(kind));
    if has_kind { principal.to_owned() } else { format!("SYSTEM::{principal}") }
}
