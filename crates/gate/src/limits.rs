//! Limits of the server. The fields of [`Limits`] are the reference documentation.
//!
//! Each limit has a typed reply: at a door in the format of its contract, elsewhere the general error
//! object. If the condition is temporary, the reply has a retry hint.

use std::time::Duration;

use admit_core::json::DEPTH_CEILING;
use serde::{Deserialize, Serialize};

/// Size, rate and time limits of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum body size, in bytes. Larger bodies are refused with `body_too_large` (413). A higher limit
    /// raises the cost of one request in memory and in the ledger.
    pub body_bytes_max: usize,
    /// Maximum nesting depth of a JSON body. Deeper bodies are refused as invalid JSON.
    pub json_depth_max: usize,
    /// Maximum size of request line and headers together, in bytes, at least 8192. Larger heads, and heads
    /// with more than 100 headers, are refused with status 431.
    pub headers_bytes_max: usize,
    /// Timeout for a whole request head, in milliseconds, from its first byte (on a new connection: from
    /// the accept). Then `request_timeout` (408) and the connection is closed. Keep it below
    /// `answer_ms_max`, or a slow head uses up the time of its reply; a head that takes longer than
    /// `body_read_ms_max` leaves no time for a body.
    pub header_read_ms_max: u64,
    /// Timeout for a whole body, in milliseconds, from the first byte of its head. Then
    /// `request_timeout` (408). Must be less than `answer_ms_max`, to leave time for the ledger.
    pub body_read_ms_max: u64,
    /// Timeout for a whole exchange, in milliseconds, from the first byte to the reply (over HTTP/2, where
    /// requests overlap, from the end of the head). Then `outcome_unknown` (503): the ledger completes the
    /// write, and a retry gets its result. Keep it below the request timeout of your producers, or they
    /// disconnect before the reply.
    pub answer_ms_max: u64,
    /// Write timeout, in milliseconds, if a peer reads no more of a reply. Then the connection is closed.
    pub write_ms_max: u64,
    /// Maximum `wait_ms` of a long poll on a stream, in milliseconds. Then the reply is empty.
    pub wait_ms_max: u64,
    /// Maximum duration of a server-sent-events response, in milliseconds, before the reader must
    /// reconnect; at most 90 % of `idle_ms_max`.
    pub watch_ms_max: u64,
    /// Idle timeout of a connection, in milliseconds. A value above the longest pause of your producers
    /// saves them a new connection for each event.
    pub idle_ms_max: u64,
    /// Idle timeout of a connection without an authenticated request yet, in milliseconds; at most
    /// `idle_ms_max`. Must exceed the interval of probes that send no key and keep their connection. Does
    /// not apply to a gate without principals.
    pub unauthenticated_idle_ms_max: u64,
    /// Maximum number of bytes of a refused body that are read and discarded, so that the producer gets
    /// the reply rather than a connection reset.
    pub excess_bytes_max: usize,
    /// Maximum number of connections. Some more are accepted and get `overloaded` (503); beyond those, new
    /// connections wait in the listen backlog. Connections without an authenticated request yet may use
    /// half of the limit: beyond that, or at the limit, the oldest idle one is closed in favour of a new
    /// one, which may have a key.
    pub connections_max: usize,
    /// Maximum number of connections of one address without an authenticated request yet; an IPv6 /64
    /// network counts as one address. More get `overloaded` (503) or are closed. A proxy is one address.
    /// Does not apply to a gate without principals.
    pub unauthenticated_connections_per_address_max: usize,
    /// Maximum number of events in flight between door and reply. More are refused with `overloaded`
    /// (503).
    pub events_in_flight_max: usize,
    /// Maximum number of body bytes in flight between door and reply, over all requests. Together with
    /// `events_in_flight_max` it bounds the memory of the gate. More: `overloaded` (503).
    pub body_bytes_in_flight_max: usize,
    /// Maximum share of one principal in `events_in_flight_max`, `body_bytes_in_flight_max` and
    /// `connections_max`, in percent, if there are several principals; one event always fits. More: its
    /// oldest idle connection is closed, or `overloaded` (503) for this principal only. Half of each limit
    /// is guaranteed to the principals in equal parts, which others cannot use.
    pub principal_share_percent: usize,
    /// Maximum number of bytes of bodies that are not authenticated yet: requests without a key at a
    /// stream with `webhook_principal`, whose signature comes with the body. They are counted as they
    /// arrive, separately from `body_bytes_in_flight_max`; one body always fits. More: `overloaded` (503).
    pub unauthenticated_body_bytes_in_flight_max: usize,
    /// Maximum number of events of one WebSocket or gRPC stream in flight. At the limit, reading stops
    /// until some have their reply. A higher limit lets a single peer fill larger commits.
    pub stream_in_flight_max: usize,
    /// Rate limit in requests per second and principal, with bursts of one second's worth; 0 disables it.
    /// Each event of a stream or a batch counts as one. A batch may exceed the burst: the missing tokens
    /// become a debt, and nothing else passes until it is repaid. More are refused with `rate_limited`
    /// (429). Requests without a valid signature at a stream with `webhook_principal` have a separate
    /// limit of the same size, for each stream.
    pub requests_per_second_max: u32,
    /// Maximum time that a shutdown waits for accepted requests, in milliseconds, but at least the timeout
    /// of a call to a gateway. Meanwhile the gate keeps listening and replies `draining` (503).
    pub drain_ms_max: u64,
    /// Minimum retry hint, in seconds. A producer with N retries survives an outage of about N times this
    /// value.
    pub retry_after_seconds_min: u32,
    /// Spread of the retry hints, in seconds, by event, so that producers without jitter do not all retry
    /// at once.
    pub retry_after_seconds_spread: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            json_depth_max: 128,
            headers_bytes_max: 32 * 1024,
            header_read_ms_max: 3_000,
            body_read_ms_max: 3_000,
            answer_ms_max: 4_000,
            write_ms_max: 10_000,
            wait_ms_max: 30_000,
            watch_ms_max: 120_000,
            idle_ms_max: 180_000,
            unauthenticated_idle_ms_max: 30_000,
            excess_bytes_max: 4 * 1024 * 1024,
            connections_max: 4_096,
            unauthenticated_connections_per_address_max: 1_024,
            events_in_flight_max: 4_096,
            body_bytes_in_flight_max: 256 * 1024 * 1024,
            principal_share_percent: 50,
            unauthenticated_body_bytes_in_flight_max: 16 * 1024 * 1024,
            stream_in_flight_max: 1_024,
            requests_per_second_max: 0,
            drain_ms_max: 10_000,
            retry_after_seconds_min: 5,
            retry_after_seconds_spread: 5,
        }
    }
}

/// Input of a retry hint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint {
    /// Spreads the hints; the same seed gives the same hint.
    pub(crate) seed: u32,
    /// Minimum time until a retry can succeed.
    pub(crate) wait_seconds: u32,
}

impl From<u32> for Hint {
    fn from(seed: u32) -> Self {
        Self { seed, wait_seconds: 0 }
    }
}

/// Invalid or contradictory limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A limit of 0 would refuse everything.
    #[error("limits.{0} must be greater than 0")]
    Zero(&'static str),
    /// Deeper than the JSON parser supports.
    #[error("limits.json_depth_max must be at most {DEPTH_CEILING}")]
    TooDeep,
    /// The HTTP parser needs at least this buffer size.
    #[error("limits.headers_bytes_max must be at least 8192")]
    HeadersTooSmall,
    /// A body could use up the whole time until the reply.
    #[error("limits.body_read_ms_max must be less than limits.answer_ms_max")]
    BodySlowerThanAnswer,
    /// The largest body would never be admitted.
    #[error("limits.body_bytes_in_flight_max must be at least limits.body_bytes_max")]
    NoRoomForOneBody,
    /// Share outside 1 to 100 percent.
    #[error("limits.principal_share_percent must be 1 to 100")]
    Share,
}

impl Limits {
    /// Checks that the limits are valid and consistent.
    pub fn check(&self) -> Result<(), LimitsError> {
        let zero = [
            ("body_bytes_max", self.body_bytes_max == 0),
            ("json_depth_max", self.json_depth_max == 0),
            ("header_read_ms_max", self.header_read_ms_max == 0),
            ("body_read_ms_max", self.body_read_ms_max == 0),
            ("write_ms_max", self.write_ms_max == 0),
            ("idle_ms_max", self.idle_ms_max == 0),
            ("unauthenticated_idle_ms_max", self.unauthenticated_idle_ms_max == 0),
            ("connections_max", self.connections_max == 0),
            (
                "unauthenticated_connections_per_address_max",
                self.unauthenticated_connections_per_address_max == 0,
            ),
            (
                "unauthenticated_body_bytes_in_flight_max",
                self.unauthenticated_body_bytes_in_flight_max == 0,
            ),
            ("events_in_flight_max", self.events_in_flight_max == 0),
            ("stream_in_flight_max", self.stream_in_flight_max == 0),
            ("retry_after_seconds_min", self.retry_after_seconds_min == 0),
        ];
        if let Some((name, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(LimitsError::Zero(name));
        }
        if self.json_depth_max > DEPTH_CEILING {
            return Err(LimitsError::TooDeep);
        }
        if self.headers_bytes_max < 8192 {
            return Err(LimitsError::HeadersTooSmall);
        }
        if self.body_read_ms_max >= self.answer_ms_max {
            return Err(LimitsError::BodySlowerThanAnswer);
        }
        if self.body_bytes_in_flight_max < self.body_bytes_max {
            return Err(LimitsError::NoRoomForOneBody);
        }
        if !(1..=100).contains(&self.principal_share_percent) {
            return Err(LimitsError::Share);
        }
        Ok(())
    }

    /// Computes the retry hint in seconds: not before a retry can succeed, and spread by the seed.
    pub(crate) fn retry_after(&self, hint: Hint) -> u32 {
        let spread = hint.seed % self.retry_after_seconds_spread.saturating_add(1);
        self.retry_after_seconds_min.max(hint.wait_seconds).saturating_add(spread)
    }

    pub(crate) fn header_read_max(&self) -> Duration {
        Duration::from_millis(self.header_read_ms_max)
    }

    pub(crate) fn body_read_max(&self) -> Duration {
        Duration::from_millis(self.body_read_ms_max)
    }

    pub(crate) fn answer_max(&self) -> Duration {
        Duration::from_millis(self.answer_ms_max)
    }

    pub(crate) fn write_max(&self) -> Duration {
        Duration::from_millis(self.write_ms_max)
    }

    pub(crate) fn wait_max(&self) -> Duration {
        Duration::from_millis(self.wait_ms_max)
    }

    /// A connection with a response stream counts as idle, so the stream ends before the idle timeout.
    pub(crate) fn watch_max(&self) -> Duration {
        Duration::from_millis(self.watch_ms_max.min(self.idle_ms_max / 10 * 9))
    }

    pub(crate) fn idle_max(&self) -> Duration {
        Duration::from_millis(self.idle_ms_max)
    }

    /// Idle timeout before the first authenticated request of a connection.
    pub(crate) fn unauthenticated_idle_max(&self) -> Duration {
        Duration::from_millis(self.unauthenticated_idle_ms_max.min(self.idle_ms_max))
    }

    /// Maximum number of unauthenticated connections.
    pub(crate) fn unauthenticated_connections_max(&self) -> usize {
        (self.connections_max / 2).max(1)
    }

    /// Connections reserved for unauthenticated peers if there are several principals: a new connection
    /// must be accepted before it can send its key.
    pub(crate) fn new_connections_min(&self) -> usize {
        (self.connections_max / 8).max(1).min(self.connections_max - 1)
    }

    /// Maximum number of connections of one principal if there are several.
    pub(crate) fn principal_connections_max(&self) -> usize {
        let (whole, rest) = (self.connections_max / 100, self.connections_max % 100);
        let percent = self.principal_share_percent;
        (whole * percent + (rest * percent).div_ceil(100)).max(1)
    }

    pub(crate) fn drain_max(&self) -> Duration {
        Duration::from_millis(self.drain_ms_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn a_misspelt_limit_is_an_error_not_a_default() {
        let misspelt: Result<Limits, _> = serde_json::from_str(r#"{"body_byte_max":1}"#);
        assert!(misspelt.unwrap_err().to_string().contains("unknown field"));
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused() {
        let check = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits.check()
        };
        assert_eq!(check(|l| l.idle_ms_max = 0), Err(LimitsError::Zero("idle_ms_max")));
        assert_eq!(check(|l| l.json_depth_max = DEPTH_CEILING + 1), Err(LimitsError::TooDeep));
        assert_eq!(check(|l| l.headers_bytes_max = 100), Err(LimitsError::HeadersTooSmall));
        assert_eq!(check(|l| l.answer_ms_max = 10), Err(LimitsError::BodySlowerThanAnswer));
        assert_eq!(check(|l| l.body_bytes_in_flight_max = 10), Err(LimitsError::NoRoomForOneBody));
        for percent in [0, 101] {
            let limits = Limits { principal_share_percent: percent, ..Limits::default() };
            assert_eq!(limits.check(), Err(LimitsError::Share));
        }
    }

    #[test]
    fn hints_are_spread_and_the_same_for_the_same_event() {
        let limits = Limits::default();
        let hints: Vec<u32> = (0..12).map(|seed| limits.retry_after(Hint::from(seed))).collect();
        assert_eq!(hints, [5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 9, 10]);
        let flat = Limits { retry_after_seconds_spread: 0, ..limits };
        assert_eq!(flat.retry_after(u32::MAX.into()), 5);
    }

    #[test]
    fn a_hint_is_not_earlier_than_a_retry_can_succeed() {
        let limits = Limits::default();
        let hint = |wait_seconds, seed| limits.retry_after(Hint { seed, wait_seconds });
        assert_eq!([hint(1, 0), hint(99, 0), hint(99, 5), hint(99, 6)], [5, 99, 104, 99]);
        assert_eq!(hint(u32::MAX, 5), u32::MAX);
    }
}
