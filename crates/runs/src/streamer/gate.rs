//! The gate as the streamer sees it: one envelope in, one answer out.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use admit_contracts::ingestion_gate::Decision;
use admit_core::json::{self, Limits, Value};
use bytes::Bytes;
use tokio::time::sleep;

use super::reason::{Failure, Reason};
use super::settings::Retry;

/// One boxed future per call.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How much of a refusal is told.
const DETAIL_CHARS_MAX: usize = 256;

/// Where envelopes are pushed.
pub trait Gate: Send + Sync {
    /// Sends one envelope once.
    fn push(&self, envelope: Bytes) -> BoxFuture<'_, Pushed>;

    /// Whether pushing has a chance; else why not.
    fn alive(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// What became of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The gate decided.
    Decided(Decision),
    /// No decision now; it may be sent again.
    Again {
        /// What happened.
        what: String,
        /// How long the gate wants to be left alone.
        hint: Option<Duration>,
    },
    /// The gate will never take it.
    Refused {
        /// What it said.
        what: String,
    },
}

/// Turns an answer into what it means. Below 400 counts as success only when a decision is in it:
/// what some other server answers is not a gate's word.
pub fn meaning(status: u16, hint: Option<Duration>, body: &[u8]) -> Pushed {
    let told = || {
        let text: String = String::from_utf8_lossy(body).chars().take(DETAIL_CHARS_MAX).collect();
        format!("the gate answered {status}: {text}")
    };
    match status {
        408 | 429 | 500.. => Pushed::Again { what: told(), hint },
        200..300 => match decision(body) {
            Some(decision) => Pushed::Decided(decision),
            None => Pushed::Refused { what: format!("no decision in the answer; {}", told()) },
        },
        _ => Pushed::Refused { what: told() },
    }
}

fn decision(body: &[u8]) -> Option<Decision> {
    let value = json::parse(body, &Limits::default()).ok()?;
    let word = value.get("decision").and_then(Value::as_str)?;
    let all = [Decision::Admit, Decision::Duplicate, Decision::Quarantine];
    all.into_iter().find(|decision| decision.as_str() == word)
}

/// Where chance comes from: numbers from 0 to 1.
pub type Chance = dyn Fn() -> f64 + Send + Sync;

/// Numbers from the system.
pub fn system_chance() -> f64 {
    let random = getrandom::u32().unwrap_or_default();
    f64::from(random) / f64::from(u32::MAX)
}

/// Pushes an envelope until the gate decides, refuses, or the attempts are spent. `again` hears of
/// every attempt that is going to be repeated.
///
/// # Errors
/// `IG_PUSH_REJECTED` or `IG_PUSH_RETRY_EXHAUSTED`.
pub async fn push(
    gate: &dyn Gate,
    retry: &Retry,
    chance: &Chance,
    envelope: &Bytes,
    again: &(dyn Fn() + Send + Sync),
) -> Result<Decision, Failure> {
    let mut attempt = 1;
    loop {
        match gate.push(envelope.clone()).await {
            Pushed::Decided(decision) => return Ok(decision),
            Pushed::Refused { what } => return Err(Failure::new(Reason::IgPushRejected, what)),
            Pushed::Again { what, .. } if attempt >= retry.max_attempts => {
                let detail = format!("{attempt} attempts, the last: {what}");
                return Err(Failure::new(Reason::IgPushRetryExhausted, detail));
            }
            Pushed::Again { what, hint } => {
                let delay = retry.delay(attempt, chance(), hint);
                tracing::debug!(attempt, ?delay, what, "a push is going to be repeated");
                again();
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
    fn answers_mean_what_the_contract_says() {
        let hint = Some(Duration::from_secs(3));
        let of = |status, body: &str| meaning(status, hint, body.as_bytes());
        assert_eq!(of(200, "{\"decision\":\"ADMIT\"}"), Pushed::Decided(Decision::Admit));
        assert_eq!(of(202, "{\"decision\":\"DUPLICATE\"}"), Pushed::Decided(Decision::Duplicate));
        let quarantine = of(200, "{\"decision\":\"QUARANTINE\",\"receipt\":{}}");
        assert_eq!(quarantine, Pushed::Decided(Decision::Quarantine));
        for status in [408, 429, 500, 502, 503, 504, 599] {
            let Pushed::Again { hint, .. } = of(status, "busy") else { panic!("{status}") };
            assert_eq!(hint, Some(Duration::from_secs(3)), "{status}");
        }
        for status in [400, 401, 403, 404, 405, 409, 413, 422, 301, 302, 204] {
            assert!(matches!(of(status, "{}"), Pushed::Refused { .. }), "{status}");
        }
        assert!(matches!(of(200, "<html>welcome</html>"), Pushed::Refused { .. }));
    }

    #[test]
    fn only_the_beginning_of_a_refusal_is_told() {
        let Pushed::Refused { what } = meaning(400, None, "x".repeat(10_000).as_bytes()) else {
            panic!("a refusal")
        };
        assert!(what.len() < 300, "{}", what.len());
    }
}
