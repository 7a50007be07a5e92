//! Standard Webhooks: who signed `id.timestamp.body`, and how long ago.
//!
//! Only the symmetric `v1` scheme. Signatures are compared in constant time, and nothing said to the
//! sender tells which of several secrets was tried.

use std::fmt;

use admit_core::{Code, Millis, Submission};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::identity::{NoKey, key_in};
use crate::Turned;

pub(super) const ID: &str = "webhook-id";
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
pub(super) const SIGNATURE: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";

/// A sender signs with one secret, or a few while they are rotated.
const SIGNATURES_MAX: usize = 16;

/// Senders differ in whether they pad.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What makes a signature count.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// Any of these may have signed; several while they are rotated.
    pub secrets: Vec<Secret>,
    /// How far the timestamp may be from our clock, before and after, in seconds.
    pub tolerance_seconds: u32,
    /// Whom a signed request without a key comes from; `None` wants a key beside the signature.
    pub principal: Option<String>,
}

/// A secret shared with a sender. It never shows itself.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// A text that is not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret is whsec_ and 24 to 64 bytes in base64")]
pub struct SecretError;

impl Secret {
    /// Reads `whsec_` and base64.
    ///
    /// # Errors
    /// When it is anything else; the text is not repeated.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.trim().strip_prefix(SECRET_PREFIX).ok_or(SecretError)?;
        let secret = BASE64.decode(encoded).map_err(|_| SecretError)?;
        if (24..=64).contains(&secret.len()) { Ok(Self(secret)) } else { Err(SecretError) }
    }

    /// Whether any of `signatures` is ours. The body is hashed once, however many there are.
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

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Webhooks {
    /// Checks that a whole request, body as it came, was signed lately by somebody we know.
    pub(super) fn verify(&self, submission: &Submission) -> Result<(), Turned> {
        key_in(submission, ID).map_err(|why| {
            turned(match why {
                NoKey::Missing => "the header webhook-id is missing",
                NoKey::Repeated | NoKey::Invalid => "the header webhook-id cannot be read",
            })
        })?;
        // What was signed is the header as it came.
        let id = submission.header(ID).unwrap_or_default();
        let timestamp = submission
            .header(TIMESTAMP)
            .ok_or_else(|| turned("the header webhook-timestamp is missing"))?;
        let seconds: i64 = timestamp
            .parse()
            .map_err(|_| turned("the header webhook-timestamp is not a number of seconds"))?;
        if !self.is_recent(seconds, submission.received_at) {
            return Err(turned("the webhook-timestamp is too far from our clock"));
        }
        let header = submission
            .header(SIGNATURE)
            .ok_or_else(|| turned("the header webhook-signature is missing"))?;
        let parts = [id.as_bytes(), timestamp.as_bytes(), &submission.body];
        let signatures = header.split(' ').filter_map(|word| word.strip_prefix("v1,"));
        let signatures: Vec<Vec<u8>> = signatures
            .take(SIGNATURES_MAX)
            .filter_map(|encoded| BASE64.decode(encoded).ok())
            .collect();
        let is_signed = !signatures.is_empty()
            && self.secrets.iter().any(|secret| secret.has_signed(parts, &signatures));
        if is_signed { Ok(()) } else { Err(turned("no webhook-signature of this request is ours")) }
    }

    fn is_recent(&self, seconds: i64, now: Millis) -> bool {
        let tolerance_ms = i64::from(self.tolerance_seconds) * 1_000;
        seconds.checked_mul(1_000).is_some_and(|at| {
            (i128::from(at) - i128::from(now.0)).abs() <= i128::from(tolerance_ms)
        })
    }
}

fn turned(message: &'static str) -> Turned {
    Turned { code: Code::Unauthorized, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use admit_core::Principal;
    use bytes::Bytes;

    use super::*;

    /// The example that the Standard Webhooks libraries test themselves with.
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
            secrets: secrets.map(|secret| Secret::parse(secret).unwrap()).to_vec(),
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
    fn another_body_another_time_or_no_signature_is_turned_away() {
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
            assert_eq!(message, "no webhook-signature of this request is ours", "{signature}");
        }
        for at in [AT - 300, AT + 311, 0, i64::MAX, i64::MIN] {
            let message = verify(&request(at, SIGNED, body)).unwrap_err();
            assert_eq!(message, "the webhook-timestamp is too far from our clock", "{at}");
        }
    }

    #[test]
    fn every_header_that_is_missing_is_named() {
        for name in [ID, TIMESTAMP, SIGNATURE] {
            let mut request = request(AT, SIGNED, "{}");
            request.headers.retain(|(known, _)| known != name);
            assert_eq!(verify(&request).unwrap_err(), format!("the header {name} is missing"));
        }
    }

    #[test]
    fn a_secret_is_long_enough_and_never_shown() {
        for bad in ["", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!"] {
            assert_eq!(Secret::parse(bad).unwrap_err(), SecretError, "{bad}");
        }
        assert_eq!(format!("{:?}", Secret::parse(SECRET).unwrap()), "Secret(hidden)");
    }
}
