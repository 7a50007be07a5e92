//! Gate port of the streamer: one envelope in, one decision out.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_core::json::{self, Limits, Value};
use bytes::Bytes;
use tokio::time::sleep;

use super::reason::{Reason, RunFailure};
use super::settings::RetryPolicy;

/// One boxed future per call.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Maximum length of the response text in an error.
const DETAIL_CHARS_MAX: usize = 256;

/// Target of envelopes.
pub trait EnvelopeTarget: Send + Sync {
    /// Sends one envelope once.
    fn push(&self, envelope: Bytes) -> BoxFuture<'_, PushResult>;

    /// Health check; the error is the reason why pushing would fail.
    fn alive(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// Result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// The gate has decided.
    Decided(ReceiptDecision),
    /// No decision; retry.
    Retry {
        /// The reason.
        reason: String,
        /// Minimum delay requested by the gate (`RetryPolicy-After`).
        hint: Option<Duration>,
    },
    /// The gate refuses the envelope permanently.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// Classifies a response. A status below 400 counts as success only with a decision in the body: it
/// could be from another server.
pub fn classify_response(status: u16, hint: Option<Duration>, body: &[u8]) -> PushResult {
    let describe = || {
        let text: String = String::from_utf8_lossy(body).chars().take(DETAIL_CHARS_MAX).collect();
        format!("the gate returned status {status}: {text}")
    };
    match status {
        408 | 429 | 500.. => PushResult::Retry { reason: describe(), hint },
        200..300 => match decision(body) {
            Some(decision) => PushResult::Decided(decision),
            None => PushResult::Refused {
                reason: format!("no decision in the response; {}", describe()),
            },
        },
        _ => PushResult::Refused { reason: describe() },
    }
}

fn decision(body: &[u8]) -> Option<ReceiptDecision> {
    let value = json::parse(body, &Limits::default()).ok()?;
    let word = value.get("decision").and_then(Value::as_str)?;
    let all = [ReceiptDecision::Admit, ReceiptDecision::Duplicate, ReceiptDecision::Quarantine];
    all.into_iter().find(|decision| decision.as_str() == word)
}

/// Source of random numbers from 0 to 1.
pub type RandomSource = dyn Fn() -> f64 + Send + Sync;

/// Random numbers from the system.
pub fn system_chance() -> f64 {
    let random = getrandom::u32().unwrap_or_default();
    f64::from(random) / f64::from(u32::MAX)
}

/// Pushes an envelope until the gate decides, refuses, or the attempts are exhausted. `on_retry` is
/// called before every retry.
///
/// # Errors
/// `IG_PUSH_REJECTED` or `IG_PUSH_RETRY_EXHAUSTED`.
pub async fn push(
    gate: &dyn EnvelopeTarget,
    retry: &RetryPolicy,
    chance: &RandomSource,
    envelope: &Bytes,
    on_retry: &(dyn Fn() + Send + Sync),
) -> Result<ReceiptDecision, RunFailure> {
    let mut attempt = 1;
    loop {
        match gate.push(envelope.clone()).await {
            PushResult::Decided(decision) => return Ok(decision),
            PushResult::Refused { reason } => {
                return Err(RunFailure::new(Reason::IgPushRejected, reason));
            }
            PushResult::Retry { reason, .. } if attempt >= retry.max_attempts => {
                let detail = format!("{attempt} attempts, last error: {reason}");
                return Err(RunFailure::new(Reason::IgPushRetryExhausted, detail));
            }
            PushResult::Retry { reason, hint } => {
                let delay = retry.delay(attempt, chance(), hint);
                tracing::debug!(attempt, ?delay, reason, "retrying a push");
                on_retry();
                sleep(delay).await;
                attempt += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_classified_as_the_contract_requires() {
        let hint = Some(Duration::from_secs(3));
        let classify = |status, body: &str| classify_response(status, hint, body.as_bytes());
        assert_eq!(
            classify(200, "{\"decision\":\"ADMIT\"}"),
            PushResult::Decided(ReceiptDecision::Admit)
        );
        assert_eq!(
            classify(202, "{\"decision\":\"DUPLICATE\"}"),
            PushResult::Decided(ReceiptDecision::Duplicate)
        );
        let quarantine = classify(200, "{\"decision\":\"QUARANTINE\",\"receipt\":{}}");
        assert_eq!(quarantine, PushResult::Decided(ReceiptDecision::Quarantine));
        for status in [408, 429, 500, 502, 503, 504, 599] {
            let PushResult::Retry { hint, .. } = classify(status, "busy") else {
                panic!("{status}")
            };
            assert_eq!(hint, Some(Duration::from_secs(3)), "{status}");
        }
        for status in [400, 401, 403, 404, 405, 409, 413, 422, 301, 302, 204] {
            assert!(matches!(classify(status, "{}"), PushResult::Refused { .. }), "{status}");
        }
        assert!(matches!(classify(200, "<html>welcome</html>"), PushResult::Refused { .. }));
    }

    #[test]
    fn long_refusals_are_truncated() {
        let PushResult::Refused { reason } =
            classify_response(400, None, "x".repeat(10_000).as_bytes())
        else {
            panic!("a refusal")
        };
        assert!(reason.len() < 300, "{}", reason.len());
    }
}
