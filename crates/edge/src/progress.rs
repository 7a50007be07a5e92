//! A line now and then about how far a backlog has come.

use std::time::Duration;

use tokio::time::Instant;

/// A backlog from here on is worth a line.
const ROWS_MIN: u64 = 500;

/// Between two lines.
const EVERY: Duration = Duration::from_secs(2);

/// How far a backlog has come.
#[derive(Debug)]
pub(crate) struct Progress {
    backlog: u64,
    acked: u64,
    begun: Instant,
    said: Instant,
}

impl Progress {
    /// The backlog of `depth` rows, if it is one.
    pub(crate) fn of(depth: u64, now: Instant) -> Option<Self> {
        (depth >= ROWS_MIN).then_some(Self { backlog: depth, acked: 0, begun: now, said: now })
    }

    /// Notes rows that are gone; `false` when the backlog is.
    pub(crate) fn acked(&mut self, rows: u64, now: Instant) -> bool {
        self.acked += rows;
        let is_over = self.acked >= self.backlog;
        if is_over || now.duration_since(self.said) >= EVERY {
            self.said = now;
            let waiting = self.backlog.saturating_sub(self.acked);
            let per_second = self.per_second(now);
            let message = if is_over { "the backlog is sent" } else { "sending the backlog" };
            tracing::info!(sent = self.acked, waiting, per_second, "{message}");
        }
        !is_over
    }

    fn per_second(&self, now: Instant) -> u64 {
        let millis = u64::try_from(now.duration_since(self.begun).as_millis()).unwrap_or(u64::MAX);
        self.acked.saturating_mul(1000) / millis.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_followed_to_its_end_at_its_rate() {
        let begun = Instant::now();
        assert!(Progress::of(ROWS_MIN - 1, begun).is_none());
        let mut progress = Progress::of(1_000, begun).expect("a backlog");
        let later = begun + Duration::from_millis(500);
        assert!(progress.acked(600, later));
        assert_eq!(progress.per_second(later), 1_200);
        assert!(!progress.acked(400, later));
    }
}
