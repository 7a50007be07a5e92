//! Pacing: rows leave an output as far apart as they happened, only faster.

use std::time::Duration;

use tokio::time::Instant;

/// Rows further apart than this are not waited for any longer: no timer holds more.
const APART_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The pace of one output. The first row it hears of leaves at once; the others keep their distance
/// from it. Rows that are late leave at once.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    speedup: f64,
    origin: Option<(i64, Instant)>,
}

impl Pace {
    /// So many seconds of the rows' own time pass in one second; 0 or less does not wait.
    pub fn new(speedup: f64) -> Self {
        Self { speedup, origin: None }
    }

    /// When a row that happened at `micros` is due; `None` is now.
    pub fn due(&mut self, micros: i64) -> Option<Instant> {
        if self.speedup.is_nan() || self.speedup <= 0.0 {
            return None;
        }
        let (first, began) = *self.origin.get_or_insert_with(|| (micros, Instant::now()));
        let apart = u64::try_from(micros.saturating_sub(first)).unwrap_or_default();
        let apart = Duration::from_micros(apart).as_secs_f64() / self.speedup;
        let apart = Duration::try_from_secs_f64(apart).unwrap_or(APART_MAX).min(APART_MAX);
        began.checked_add(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rows_keep_their_distance_at_the_speed_that_was_asked_for() {
        let began = Instant::now();
        let mut pace = Pace::new(600.0);
        let due = |pace: &mut Pace, seconds: i64| {
            pace.due(seconds * 1_000_000).map(|due| due.duration_since(began).as_millis())
        };
        assert_eq!(due(&mut pace, 1_000), Some(0), "whenever the first happened");
        assert_eq!(due(&mut pace, 1_060), Some(100));
        assert_eq!(due(&mut pace, 1_600), Some(1_000));
        assert_eq!(due(&mut pace, 500), Some(0), "a row out of order does not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_speed_of_next_to_nothing_waits_and_breaks_nothing() {
        let began = Instant::now();
        for speedup in [1e-15, 1e-30, f64::MIN_POSITIVE] {
            let mut pace = Pace::new(speedup);
            assert_eq!(pace.due(0), Some(began));
            assert_eq!(pace.due(60_000_000), Some(began + APART_MAX), "{speedup}");
        }
        let mut pace = Pace::new(f64::MAX);
        pace.due(0);
        assert_eq!(pace.due(i64::MAX), Some(began));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_speed_nothing_waits() {
        for speedup in [0.0, -1.0, f64::NAN] {
            let mut pace = Pace::new(speedup);
            assert_eq!((pace.due(1), pace.due(i64::MAX)), (None, None));
        }
    }
}
