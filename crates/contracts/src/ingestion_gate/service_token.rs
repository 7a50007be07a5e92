//! Service tokens: `st.v1.<base64url(principal)>.<hex HMAC-SHA256(secret, "v1|" + principal)>`.
//!
//! A secret can sign tokens for any principal, so an allow list restricts the principals accepted
//! at this door. Every secret is tried, and compared in constant time.

use std::fmt;

use admit_core::hash::{hex, unhex32};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::auth_mode::actor_id;

/// Longest principal, in bytes; receipts have room for no more.
const PRINCIPAL_BYTES_MAX: usize = 128;

/// Reason why a token is rejected, in this contract's wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Invalid token, or a principal that is not on the allow list. The reply does not distinguish
    /// the two.
    #[error("the service token is not accepted")]
    Unauthorized,
    /// No secret is configured to verify it with.
    #[error("no service token secret is configured")]
    SecretMissing,
}

impl TokenError {
    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "UNAUTHORIZED",
            Self::SecretMissing => "AUTH_SERVICE_TOKEN_SECRET_MISSING",
        }
    }
}

/// Verifier of tokens. Its `Debug` output hides the secrets.
#[derive(Clone, Default)]
pub struct ServiceTokens {
    secrets: Vec<Vec<u8>>,
    allowed: Vec<String>,
}

impl fmt::Debug for ServiceTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTokens")
            .field("secrets", &format_args!("{} hidden", self.secrets.len()))
            .field("allowed", &self.allowed)
            .finish()
    }
}

impl ServiceTokens {
    /// Any of `secrets` may have signed; configure several while rotating. Empty ones are ignored.
    /// `allowed` lists principals or actor ids; an empty list allows all.
    pub fn new(
        secrets: impl IntoIterator<Item = impl Into<Vec<u8>>>,
        allowed: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let secrets = secrets.into_iter().map(Into::into).filter(|secret| !secret.is_empty());
        Self { secrets: secrets.collect(), allowed: allowed.into_iter().map(Into::into).collect() }
    }

    /// Verifies a token and returns its principal.
    ///
    /// # Errors
    /// If the token is invalid or its principal is not allowed.
    pub fn verify(&self, token: &str) -> Result<String, TokenError> {
        if self.secrets.is_empty() {
            return Err(TokenError::SecretMissing);
        }
        let principal = self.signed(token).ok_or(TokenError::Unauthorized)?;
        let actor = actor_id(&principal);
        let is_listed = self.allowed.is_empty()
            || self.allowed.iter().any(|listed| *listed == principal || *listed == actor);
        if is_listed { Ok(principal) } else { Err(TokenError::Unauthorized) }
    }

    fn signed(&self, token: &str) -> Option<String> {
        let (encoded, signature) = token.strip_prefix("st.v1.")?.split_once('.')?;
        let principal = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
        let is_plain = !principal.is_empty()
            && principal.len() <= PRINCIPAL_BYTES_MAX
            && principal.bytes().all(|byte| byte.is_ascii_graphic());
        // Only the lower-case spelling, as in the reference implementation.
        let signature =
            Some(signature).filter(|text| !text.bytes().any(|b| b.is_ascii_uppercase()));
        let signature = unhex32(signature?)?;
        let mut is_signed = false;
        for secret in &self.secrets {
            is_signed |= mac(secret, &principal).verify_slice(&signature).is_ok();
        }
        if is_plain && is_signed { Some(principal) } else { None }
    }
}

/// Creates the token of `principal`, for tests and token issuers.
pub fn sign(secret: &[u8], principal: &str) -> String {
    let signature: [u8; 32] = mac(secret, principal).finalize().into_bytes().into();
    format!("st.v1.{}.{}", URL_SAFE_NO_PAD.encode(principal), hex(&signature))
}

fn mac(secret: &[u8], principal: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(b"v1|");
    mac.update(principal.as_bytes());
    mac
}
