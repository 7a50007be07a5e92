//! How far streaming has come: bars on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use admit_runs::streamer::progress::{OutputProgress, Progress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep};

use crate::output::aside;

/// How often bars move.
const MOVES_EVERY: Duration = Duration::from_millis(200);
/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

const BAR: &str = "{prefix:32} {wide_bar} {human_pos}/{human_len} {per_sec} eta {eta} {msg}";

/// Shows what is being streamed, on standard error.
pub(super) struct Shown {
    progress: Progress,
    bars: Option<MultiProgress>,
    outputs: Vec<(Arc<OutputProgress>, Option<ProgressBar>)>,
    began: Instant,
    said: Instant,
}

impl Shown {
    pub(super) fn new(progress: Progress) -> Self {
        let bars = io::stderr().is_terminal().then(MultiProgress::new);
        let now = Instant::now();
        Self { progress, bars, outputs: Vec::new(), began: now, said: now }
    }

    /// Shows it for ever.
    pub(super) async fn keep_shown(mut self) {
        loop {
            sleep(MOVES_EVERY).await;
            self.look();
        }
    }

    fn look(&mut self) {
        let now = self.progress.outputs();
        let is_same = now.len() == self.outputs.len()
            && now.iter().zip(&self.outputs).all(|(now, (shown, _))| Arc::ptr_eq(now, shown));
        if !is_same {
            for (_, bar) in self.outputs.drain(..) {
                bar.iter().for_each(ProgressBar::finish_and_clear);
            }
            (self.began, self.said) = (Instant::now(), Instant::now());
            self.outputs = now.into_iter().map(|one| (one.clone(), self.bar(&one))).collect();
        }
        for (output, bar) in &self.outputs {
            let Some(bar) = bar else { continue };
            bar.set_position(output.done());
            if output.quarantined() > 0 {
                bar.set_message(format!("{} quarantined", output.quarantined()));
            }
        }
        if self.bars.is_none() && self.said.elapsed() >= LINE_EVERY {
            self.said = Instant::now();
            self.outputs.iter().for_each(|(output, _)| aside(&line(output, self.began.elapsed())));
        }
    }

    fn bar(&self, output: &OutputProgress) -> Option<ProgressBar> {
        let bar = self.bars.as_ref()?.add(ProgressBar::new(output.total));
        bar.set_style(
            ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_prefix(output.output_id.clone());
        bar.set_position(output.resumed());
        // Rows of earlier sessions say nothing about how fast this one is.
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
        0 => "no end in sight".to_owned(),
        rate => format!("{} s left", total.saturating_sub(done) / rate),
    };
    let mut line = format!("{} {done}/{total} rows, {rate} rows/s, {left}", output.output_id);
    if output.quarantined() > 0 {
        line.push_str(&format!(", {} quarantined", output.quarantined()));
    }
    if output.repeats() > 0 {
        line.push_str(&format!(", {} pushes repeated", output.repeats()));
    }
    line
}
