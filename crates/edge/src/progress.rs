//! Periodic log line about the progress of sending a backlog.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum rows of a backlog that is logged.
const ROWS_MIN: u64 = 500;

/// Interval of log lines.
const EVERY: Duration = Duration::from_secs(2);

/// Progress of sending a backlog.
#[derive(Debug)]
pub(crate) struct BacklogProgress {
    backlog: u64,
    acked: u64,
    started_at: Instant,
    logged_at: Instant,
}

impl BacklogProgress {
    /// Progress of a backlog of `depth` rows; `None` if it is too small to log.
    pub(crate) fn of(depth: u64, now: Instant) -> Option<Self> {
        (depth >= ROWS_MIN).then_some(Self {
            backlog: depth,
            acked: 0,
            started_at: now,
            logged_at: now,
        })
    }

    /// Counts acknowledged rows; `false` when the backlog is sent.
    pub(crate) fn acked(&mut self, rows: u64, now: Instant) -> bool {
        self.acked += rows;
        let is_over = self.acked >= self.backlog;
        if is_over || now.duration_since(self.logged_at) >= EVERY {
            self.logged_at = now;
            let waiting = self.backlog.saturating_sub(self.acked);
            let per_second = self.per_second(now);
            let message = if is_over { "the backlog is sent" } else { "sending the backlog" };
            tracing::info!(sent = self.acked, waiting, per_second, "{message}");
        }
        !is_over
    }

    fn per_second(&self, now: Instant) -> u64 {
        let millis =
            u64::try_from(now.duration_since(self.started_at).as_millis()).unwrap_or(u64::MAX);
        self.acked.saturating_mul(1000) / millis.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_tracked_with_its_rate() {
        let started_at = Instant::now();
        assert!(BacklogProgress::of(ROWS_MIN - 1, started_at).is_none());
        let mut progress = BacklogProgress::of(1_000, started_at).expect("a backlog");
        let later = started_at + Duration::from_millis(500);
        assert!(progress.acked(600, later));
        assert_eq!(progress.per_second(later), 1_200);
        assert!(!progress.acked(400, later));
    }
}
