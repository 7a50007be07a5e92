//! Trace id of a request: the one of the caller's W3C `traceparent` header, or a new one.
//!
//! A valid `traceparent` is used, so that the log lines join the trace of the caller. A new id is a random
//! half, drawn once per process, and a mixed counter: no allocation and no system call for requests that
//! are not logged.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Request header with the caller's trace id.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Response header with the trace id of the log lines.
pub(super) const X_TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");

tokio::task_local! {
    static CURRENT: TraceId;
}

/// Trace id of 16 bytes, never all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl TraceId {
    /// Returns the id of a request with these headers, and whether it comes from the caller.
    pub(super) fn from_headers(headers: &HeaderMap) -> (Self, bool) {
        let mut given = headers.get_all(&TRACEPARENT).iter();
        match (given.next().and_then(|value| parse(value.as_bytes())), given.next()) {
            (Some(id), None) => (id, true),
            _ => (Self::new(), false),
        }
    }

    fn new() -> Self {
        static PROCESS: LazyLock<u64> =
            LazyLock::new(|| RandomState::new().hash_one(std::process::id()) | 1);
        static REQUESTS: AtomicU64 = AtomicU64::new(0);
        let count = mix(REQUESTS.fetch_add(1, Relaxed).wrapping_add(*PROCESS));
        Self(u128::from(*PROCESS) << 64 | u128::from(count))
    }

    pub(super) fn header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hex digits are a header value")
    }

    /// Runs `work` with this id as the current one.
    pub(super) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }
}

/// Returns the id of the request that this task handles.
fn current() -> Option<TraceId> {
    CURRENT.try_get().ok()
}

/// Runs `work` with the current id, also in another task.
pub(super) fn in_current_scope<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let id = current();
    async move {
        match id {
            Some(id) => id.scope(work).await,
            None => work.await,
        }
    }
}

/// The current id as a field of a log line; omitted if there is none.
pub(crate) fn field() -> Option<tracing::field::DisplayValue<TraceId>> {
    current().map(tracing::field::display)
}

/// Mixes a counter over all 64 bits (a bijection, so ids stay unique).
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Parses `00-<32 hex>-<16 hex>-<2 hex>`; later versions may append more parts.
fn parse(value: &[u8]) -> Option<TraceId> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let mut parts = text.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |part: &str, length: usize| {
        part.len() == length
            && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let well_formed =
        is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    let ends = version != "00" || parts.next().is_none();
    let has_parent = parent.bytes().any(|byte| byte != b'0');
    if !well_formed || version == "ff" || !ends || !has_parent {
        return None;
    }
    u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0).map(TraceId)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn only_a_valid_traceparent_is_used() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for good in [
            format!("00-{trace}-00f067aa0ba902b7-01"),
            format!("cc-{trace}-00f067aa0ba902b7-01-what-the-future-holds"),
        ] {
            assert_eq!(parse(good.as_bytes()).unwrap().to_string(), trace);
        }
        for bad in [
            String::new(),
            "00".to_owned(),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-{trace}-00f067aa0ba902b7-01-more"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{trace}-00f067aa0ba902b7"),
            format!("00-{trace}0-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn new_ids_differ_and_two_traceparents_are_ignored() {
        let ids: HashSet<String> = (0..1_000).map(|_| TraceId::new().to_string()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| id.len() == 32));
        let parent =
            HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, parent.clone());
        assert!(TraceId::from_headers(&headers).1);
        headers.append(TRACEPARENT, parent);
        assert!(!TraceId::from_headers(&headers).1, "two traceparents are ambiguous");
    }
}
