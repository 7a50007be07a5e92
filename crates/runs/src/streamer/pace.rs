//! Pacing: rows are sent with their original time distances, divided by the speedup.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum delay between rows; timers support no more.
const DISTANCE_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Pacing of one output. The first row is sent at once; the others keep their distance to it. Late
/// rows are sent at once.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    speedup: f64,
    origin: Option<(i64, Instant)>,
}

impl Pace {
    /// `speedup` seconds of row time pass per second; 0 or less disables pacing.
    pub fn new(speedup: f64) -> Self {
        Self { speedup, origin: None }
    }

    /// Due time of a row with timestamp `micros`; `None` is now.
    pub fn due(&mut self, micros: i64) -> Option<Instant> {
        if self.speedup.is_nan() || self.speedup <= 0.0 {
            return None;
        }
        let (first, began) = *self.origin.get_or_insert_with(|| (micros, Instant::now()));
        let distance = u64::try_from(micros.saturating_sub(first)).unwrap_or_default();
        let distance = Duration::from_micros(distance).as_secs_f64() / self.speedup;
        let distance =
            Duration::try_from_secs_f64(distance).unwrap_or(DISTANCE_MAX).min(DISTANCE_MAX);
        began.checked_add(distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rows_keep_their_distance_at_the_configured_speed() {
        let began = Instant::now();
        let mut pace = Pace::new(600.0);
        let due = |pace: &mut Pace, seconds: i64| {
            pace.due(seconds * 1_000_000).map(|due| due.duration_since(began).as_millis())
        };
        assert_eq!(due(&mut pace, 1_000), Some(0), "the first row is due at once");
        assert_eq!(due(&mut pace, 1_060), Some(100));
        assert_eq!(due(&mut pace, 1_600), Some(1_000));
        assert_eq!(due(&mut pace, 500), Some(0), "a row out of order does not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn extreme_speeds_do_not_overflow() {
        let began = Instant::now();
        for speedup in [1e-15, 1e-30, f64::MIN_POSITIVE] {
            let mut pace = Pace::new(speedup);
            assert_eq!(pace.due(0), Some(began));
            assert_eq!(pace.due(60_000_000), Some(began + DISTANCE_MAX), "{speedup}");
        }
        let mut pace = Pace::new(f64::MAX);
        pace.due(0);
        assert_eq!(pace.due(i64::MAX), Some(began));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_speed_rows_are_not_delayed() {
        for speedup in [0.0, -1.0, f64::NAN] {
            let mut pace = Pace::new(speedup);
            assert_eq!((pace.due(1), pace.due(i64::MAX)), (None, None));
        }
    }
}
