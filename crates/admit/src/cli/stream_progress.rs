//! Progress of `admit stream` on stderr: bars on a terminal, periodic lines otherwise.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use admit_runs::streamer::progress::{OutputProgress, StreamProgress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep};

use crate::output::print_stderr;

/// Interval between updates of the bars.
const BARS_EVERY: Duration = Duration::from_millis(200);
/// Interval between lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

const BAR: &str = "{prefix:32} {wide_bar} {human_pos}/{human_len} {per_sec} eta {eta} {msg}";

/// Prints the progress of every output on stderr.
pub(super) struct ProgressDisplay {
    progress: StreamProgress,
    bars: Option<MultiProgress>,
    outputs: Vec<(Arc<OutputProgress>, Option<ProgressBar>)>,
    began: Instant,
    last_line_at: Instant,
}

impl ProgressDisplay {
    pub(super) fn new(progress: StreamProgress) -> Self {
        let bars = io::stderr().is_terminal().then(MultiProgress::new);
        let now = Instant::now();
        Self { progress, bars, outputs: Vec::new(), began: now, last_line_at: now }
    }

    /// Updates the display until dropped.
    pub(super) async fn run(mut self) {
        loop {
            sleep(BARS_EVERY).await;
            self.refresh();
        }
    }

    fn refresh(&mut self) {
        let now = self.progress.outputs();
        let is_same = now.len() == self.outputs.len()
            && now.iter().zip(&self.outputs).all(|(now, (shown, _))| Arc::ptr_eq(now, shown));
        if !is_same {
            for (_, bar) in self.outputs.drain(..) {
                bar.iter().for_each(ProgressBar::finish_and_clear);
            }
            (self.began, self.last_line_at) = (Instant::now(), Instant::now());
            self.outputs =
                now.into_iter().map(|output| (output.clone(), self.bar(&output))).collect();
        }
        for (output, bar) in &self.outputs {
            let Some(bar) = bar else { continue };
            bar.set_position(output.done());
            if output.quarantined() > 0 {
                bar.set_message(format!("{} quarantined", output.quarantined()));
            }
        }
        if self.bars.is_none() && self.last_line_at.elapsed() >= LINE_EVERY {
            self.last_line_at = Instant::now();
            self.outputs
                .iter()
                .for_each(|(output, _)| print_stderr(&line(output, self.began.elapsed())));
        }
    }

    fn bar(&self, output: &OutputProgress) -> Option<ProgressBar> {
        let bar = self.bars.as_ref()?.add(ProgressBar::new(output.total));
        bar.set_style(
            ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_prefix(output.output_id.clone());
        bar.set_position(output.resumed());
        // Excludes rows of earlier sessions from the rate.
        bar.reset_eta();
        Some(bar)
    }
}

/// `s3_event_stream_with_fraud_6B 1200/5000 rows, 410 rows/s, 9 s left`
fn line(output: &OutputProgress, elapsed: Duration) -> String {
    let (done, total) = (output.done(), output.total);
    let here = done.saturating_sub(output.resumed());
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = here.saturating_mul(1_000) / millis;
    let left = match rate {
        0 => "no estimate".to_owned(),
        rate => format!("{} s left", total.saturating_sub(done) / rate),
    };
    let mut line = format!("{} {done}/{total} rows, {rate} rows/s, {left}", output.output_id);
    if output.quarantined() > 0 {
        line.push_str(&format!(", {} quarantined", output.quarantined()));
    }
    if output.repeats() > 0 {
        line.push_str(&format!(", {} retries", output.repeats()));
    }
    line
}
