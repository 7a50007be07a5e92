//! Standard Webhooks: verifies the signature over `id.timestamp.body` and the age of the timestamp.
//!
//! Only the symmetric `v1` scheme. Signatures are compared in constant time, and replies do not
//! reveal which of several secrets was tried.

use std::fmt;

use admit_core::{Code, Millis, Submission};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::identity::{NoKey, key_in};
use crate::RequestRejection;

pub(super) const ID: &str = "webhook-id";
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
pub(super) const SIGNATURE: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";

/// Maximum number of signatures in a header: one per secret, several during rotation.
const SIGNATURES_MAX: usize = 16;

/// Senders differ in whether they pad.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Signature verification settings.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// Accepted secrets; several during rotation.
    pub secrets: Vec<WebhookSecret>,
    /// Maximum distance of the timestamp from the gate's clock, in both directions, in seconds.
    pub tolerance_seconds: u32,
    /// Principal of a signed request without a key; `None` requires a key in addition to the
    /// signature.
    pub principal: Option<String>,
}

/// Secret shared with a sender. Its `Debug` output hides it.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

/// Text that is not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret must be whsec_ followed by 24 to 64 bytes in base64")]
pub struct SecretError;

impl WebhookSecret {
    /// Parses `whsec_` and base64.
    ///
    /// # Errors
    /// If `text` has another form; the error does not repeat it.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.trim().strip_prefix(SECRET_PREFIX).ok_or(SecretError)?;
        let secret = BASE64.decode(encoded).map_err(|_| SecretError)?;
        if (24..=64).contains(&secret.len()) { Ok(Self(secret)) } else { Err(SecretError) }
    }

    /// Returns whether this secret made any of `signatures`. The body is hashed only once.
    fn has_signed(&self, parts: [&[u8]; 3], signatures: &[Vec<u8>]) -> bool {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for (place, part) in parts.into_iter().enumerate() {
            if place > 0 {
                mac.update(b".");
            }
            mac.update(part);
        }
        signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(hidden)")
    }
}

impl Webhooks {
    /// Verifies that the raw request was signed recently with a configured secret.
    pub(super) fn verify(&self, submission: &Submission) -> Result<(), RequestRejection> {
        key_in(submission, ID).map_err(|why| {
            rejection(match why {
                NoKey::Missing => "the header webhook-id is missing",
                NoKey::Repeated | NoKey::Invalid => "the header webhook-id cannot be read",
            })
        })?;
        // The signature covers the header as it was sent.
        let id = submission.header(ID).unwrap_or_default();
        let timestamp = submission
            .header(TIMESTAMP)
            .ok_or_else(|| rejection("the header webhook-timestamp is missing"))?;
        let seconds: i64 = timestamp
            .parse()
            .map_err(|_| rejection("the header webhook-timestamp is not a number of seconds"))?;
        if !self.is_recent(seconds, submission.received_at) {
            return Err(rejection("the webhook-timestamp is too far from the gate's clock"));
        }
        let header = submission
            .header(SIGNATURE)
            .ok_or_else(|| rejection("the header webhook-signature is missing"))?;
        let parts = [id.as_bytes(), timestamp.as_bytes(), &submission.body];
        let signatures = header.split(' ').filter_map(|word| word.strip_prefix("v1,"));
        let signatures: Vec<Vec<u8>> = signatures
            .take(SIGNATURES_MAX)
            .filter_map(|encoded| BASE64.decode(encoded).ok())
            .collect();
        let is_signed = !signatures.is_empty()
            && self.secrets.iter().any(|secret| secret.has_signed(parts, &signatures));
        if is_signed {
            Ok(())
        } else {
            Err(rejection("no webhook-signature of this request is valid"))
        }
    }

    fn is_recent(&self, seconds: i64, now: Millis) -> bool {
        let tolerance_ms = i64::from(self.tolerance_seconds) * 1_000;
        seconds.checked_mul(1_000).is_some_and(|at| {
            (i128::from(at) - i128::from(now.0)).abs() <= i128::from(tolerance_ms)
        })
    }
}

fn rejection(message: &'static str) -> RequestRejection {
    RequestRejection { code: Code::Unauthorized, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use admit_core::Principal;
    use bytes::Bytes;

    use super::*;

    /// Example from the tests of the Standard Webhooks libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const AT: i64 = 1_614_265_330;

    fn request(at: i64, signature: &str, body: &'static str) -> Submission {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Submission {
            principal: Principal::new("local"),
            received_at: Millis((AT + 10) * 1_000),
            body: Bytes::from_static(body.as_bytes()),
            headers: vec![
                header(ID, "msg_p5jXN8AQM9LWM0D4loKWxJek"),
                header(TIMESTAMP, &at.to_string()),
                header(SIGNATURE, signature),
            ],
            nonce: [0; 16],
        }
    }

    fn verify(request: &Submission) -> Result<(), String> {
        let secrets = ["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", SECRET];
        let webhooks = Webhooks {
            secrets: secrets.map(|secret| WebhookSecret::parse(secret).unwrap()).to_vec(),
            tolerance_seconds: 300,
            principal: None,
        };
        webhooks.verify(request).map_err(|turned| turned.message)
    }

    #[test]
    fn a_signature_of_any_known_secret_counts() {
        let body = r#"{"test": 2432232314}"#;
        assert_eq!(verify(&request(AT, SIGNED, body)), Ok(()));
        let several = format!("v1a,xyz v1,AAAA {SIGNED} v2,zz");
        assert_eq!(verify(&request(AT, &several, body)), Ok(()));
        assert_eq!(verify(&request(AT, SIGNED.trim_end_matches('='), body)), Ok(()));
    }

    #[test]
    fn another_body_another_time_or_no_signature_is_rejected() {
        let body = r#"{"test": 2432232314}"#;
        for (at, signature, body) in [
            (AT, SIGNED, r#"{"test":2432232314}"#),
            (AT + 1, SIGNED, body),
            (AT, "v1,AAAA", body),
            (AT, "v1,", body),
            (AT, "", body),
            (AT, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", body),
        ] {
            let message = verify(&request(at, signature, body)).unwrap_err();
            assert_eq!(message, "no webhook-signature of this request is valid", "{signature}");
        }
        for at in [AT - 300, AT + 311, 0, i64::MAX, i64::MIN] {
            let message = verify(&request(at, SIGNED, body)).unwrap_err();
            assert_eq!(message, "the webhook-timestamp is too far from the gate's clock", "{at}");
        }
    }

    #[test]
    fn every_missing_header_is_named() {
        for name in [ID, TIMESTAMP, SIGNATURE] {
            let mut request = request(AT, SIGNED, "{}");
            request.headers.retain(|(known, _)| known != name);
            assert_eq!(verify(&request).unwrap_err(), format!("the header {name} is missing"));
        }
    }

    #[test]
    fn a_secret_is_long_enough_and_never_shown() {
        for bad in ["", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!"] {
            assert_eq!(WebhookSecret::parse(bad).unwrap_err(), SecretError, "{bad}");
        }
        assert_eq!(format!("{:?}", WebhookSecret::parse(SECRET).unwrap()), "WebhookSecret(hidden)");
    }
}
