//! Every limit of the server in one place; this struct is the manual.
//!
//! A limit that is hit always has a typed reply: at a door in the contract's words, elsewhere as
//! the general error object. What may pass by itself carries a retry hint.

use std::time::Duration;

use admit_core::json::DEPTH_CEILING;
use serde::{Deserialize, Serialize};

/// How much may be taken, and how long anything may last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest body, in bytes. Larger ones are refused with `body_too_large` (413). Raising it
    /// raises what one request may cost in memory and in the ledger.
    pub body_bytes_max: usize,
    /// Deepest nesting of a JSON body. Deeper ones are refused as the contract refuses bad JSON.
    pub json_depth_max: usize,
    /// Largest request line and headers together, in bytes, at least 8192. Larger heads are
    /// refused with status 431, and a single one cannot have more than 100 headers.
    pub headers_bytes_max: usize,
    /// Longest wait for a whole head, in milliseconds, from its first byte (on a new connection:
    /// from the connection itself). Then `request_timeout` (408) and the connection is closed.
    /// Keep it below `answer_ms_max`, or a slow head uses up the time of its answer; one that takes
    /// longer than `body_read_ms_max` leaves no time for a body.
    pub header_read_ms_max: u64,
    /// Longest wait for a whole body, in milliseconds, from the first byte of its head. Then
    /// `request_timeout` (408). Must be less than `answer_ms_max`, or no time would be left for the
    /// ledger.
    pub body_read_ms_max: u64,
    /// Longest a whole exchange may take, in milliseconds, from the first byte to the answer (over
    /// HTTP/2, where requests overlap, from the end of its head). Then
    /// `outcome_unknown` (503): the ledger finishes, and the retry finds out. Keep it below the
    /// time your producers wait, or they hang up before they are told.
    pub answer_ms_max: u64,
    /// Longest wait for a peer to take more of an answer, in milliseconds. Then the connection is
    /// closed: there is nobody left to tell.
    pub write_ms_max: u64,
    /// Longest wait for news of a stream that a reader may ask for, in milliseconds, before it is
    /// told that there is none (`wait_ms`).
    pub wait_ms_max: u64,
    /// How long a reader that watches a stream (server-sent events) is served, in milliseconds,
    /// before it has to ask again; never longer than most of `idle_ms_max`.
    pub watch_ms_max: u64,
    /// How long a connection may stay open without a request, in milliseconds. Longer than the
    /// longest pause of your producers saves them a new connection for each event.
    pub idle_ms_max: u64,
    /// The same for a connection on which no request was authenticated yet, in milliseconds; never
    /// longer than `idle_ms_max`. Keep-alive of probes without a key needs a longer time than the
    /// pause between two probes. Does not apply to a gate without principals.
    pub unauthenticated_idle_ms_max: u64,
    /// How much of a body that is refused is still read and thrown away, in bytes, so that the
    /// producer sees the answer rather than a reset.
    pub excess_bytes_max: usize,
    /// Most connections at once. Some more are accepted and told `overloaded` (503); beyond those,
    /// new ones wait in the system's queue. Connections on which no request was authenticated yet may
    /// have half of them: beyond that, or when all are taken, the oldest idle one is closed for a new
    /// one, which may have a key.
    pub connections_max: usize,
    /// Most connections of one address on which no request was authenticated yet; an IPv6 network
    /// of 64 bits counts as one address. More are answered `overloaded` (503) or closed. A proxy is
    /// one address. Does not apply to a gate without principals.
    pub unauthenticated_connections_per_address_max: usize,
    /// Most events at once between the door and their answer. More are refused with `overloaded`
    /// (503).
    pub events_in_flight_max: usize,
    /// Most body bytes at once between the door and the answer, over all requests; with
    /// `events_in_flight_max` it bounds the memory of the gate. More: `overloaded` (503).
    pub body_bytes_in_flight_max: usize,
    /// How much of `events_in_flight_max`, `body_bytes_in_flight_max` and `connections_max` one
    /// principal may hold, in percent, where there are several principals; one event always fits.
    /// More: its oldest idle connection is closed, or `overloaded` (503) for this principal, while
    /// there is room for the others. Half of each limit is guaranteed to the principals in equal
    /// parts, which others cannot use.
    pub principal_share_percent: usize,
    /// Most bytes at once of bodies that are not authenticated yet: requests without a key at a
    /// stream with `webhook_principal`, whose signature comes with the body. They are counted as
    /// they arrive, beside `body_bytes_in_flight_max`; one body always fits. More: `overloaded`
    /// (503).
    pub unauthenticated_body_bytes_in_flight_max: usize,
    /// Most events of one WebSocket or gRPC stream between reading and their answers. More are not
    /// read until some are answered. Raising it lets a single peer fill larger commits.
    pub stream_in_flight_max: usize,
    /// Most requests per second and principal, with bursts of one second's worth; 0 turns it off.
    /// Each event of a stream or a batch counts as one. A batch may be larger than a burst: what is
    /// missing is owed, and nothing else passes until that is paid. More are refused with
    /// `rate_limited` (429). Requests without a valid signature at a stream with
    /// `webhook_principal` have as much to themselves, for each stream.
    pub requests_per_second_max: u32,
    /// How long a shutdown waits for what was accepted, in milliseconds, but never less than a call
    /// to a gateway may take. Meanwhile the gate keeps listening and answers `draining` (503).
    pub drain_ms_max: u64,
    /// The least retry hint, in seconds. A producer with a few tries survives an outage of about
    /// that many times this.
    pub retry_after_seconds_min: u32,
    /// Hints are spread over so many seconds more, by event, so that producers without jitter do
    /// not all come back at once.
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

/// What a retry hint is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint {
    /// Spreads the hints: the same seed, the same hint.
    pub(crate) seed: u32,
    /// How long a retry fails for sure.
    pub(crate) wait_seconds: u32,
}

impl From<u32> for Hint {
    fn from(seed: u32) -> Self {
        Self { seed, wait_seconds: 0 }
    }
}

/// Limits that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A limit of nothing would refuse everything.
    #[error("limits.{0} must be greater than 0")]
    Zero(&'static str),
    /// Nothing reads deeper than this, whatever is asked for.
    #[error("limits.json_depth_max must be at most {DEPTH_CEILING}")]
    TooDeep,
    /// The server cannot read heads with less.
    #[error("limits.headers_bytes_max must be at least 8192")]
    HeadersTooSmall,
    /// A body could use up the whole time of the answer.
    #[error("limits.body_read_ms_max must be less than limits.answer_ms_max")]
    BodySlowerThanAnswer,
    /// The largest body would never be let in.
    #[error("limits.body_bytes_in_flight_max must be at least limits.body_bytes_max")]
    NoRoomForOneBody,
    /// A share of nothing, or of more than there is.
    #[error("limits.principal_share_percent must be 1 to 100")]
    Share,
}

impl Limits {
    /// Checks that a gate can work with these limits.
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

    /// The retry hint in seconds: never before a retry can pass, and spread by the seed.
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

    /// A connection that only listens looks idle, so a watcher ends before that is over.
    pub(crate) fn watch_max(&self) -> Duration {
        Duration::from_millis(self.watch_ms_max.min(self.idle_ms_max / 10 * 9))
    }

    pub(crate) fn idle_max(&self) -> Duration {
        Duration::from_millis(self.idle_ms_max)
    }

    /// Before the first authenticated request of a connection.
    pub(crate) fn unauthenticated_idle_max(&self) -> Duration {
        Duration::from_millis(self.unauthenticated_idle_ms_max.min(self.idle_ms_max))
    }

    /// Most connections at once that have not authenticated.
    pub(crate) fn unauthenticated_connections_max(&self) -> usize {
        (self.connections_max / 2).max(1)
    }

    /// What principals leave to connections that have not authenticated, where there are several: a new
    /// one must find a place before it can show its key.
    pub(crate) fn new_connections_min(&self) -> usize {
        (self.connections_max / 8).max(1).min(self.connections_max - 1)
    }

    /// Most connections of one principal where there are several.
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
    fn the_defaults_hold_together() {
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
    fn a_hint_is_not_earlier_than_a_retry_can_pass() {
        let limits = Limits::default();
        let hint = |wait_seconds, seed| limits.retry_after(Hint { seed, wait_seconds });
        assert_eq!([hint(1, 0), hint(99, 0), hint(99, 5), hint(99, 6)], [5, 99, 104, 99]);
        assert_eq!(hint(u32::MAX, 5), u32::MAX);
    }
}
