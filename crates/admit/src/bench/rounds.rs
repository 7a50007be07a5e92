//! Interleaved rounds: several lines are measured in short alternating rounds.
//!
//! Load of other machines on the host then affects all lines alike, so their ratios can be compared, and
//! rounds with steal time can be separated from quiet ones.

use std::time::Duration;

use super::ceiling;
use super::client::Load;
use super::gate::BenchGate;
use super::host;
use super::report::{Figure, Report};
use super::sample::Samples;
use crate::output::Failure;

/// Duration of a round.
pub(super) const ROUND: Duration = Duration::from_millis(500);

/// A line with the function that measures one round of it.
pub(super) type BenchLine<'l> = (&'static str, Box<dyn FnMut() -> Result<Figure, Failure> + 'l>);

/// A line that sends `load` to a gate.
pub(super) fn gate_line<'l>(line: &'static str, gate: &'l BenchGate, load: &Load) -> BenchLine<'l> {
    let round = Load { seconds: ROUND, ..load.clone() };
    (line, Box::new(move || gate.send(&round)))
}

/// The same load for the baseline door, which has no ledger.
pub(super) fn baseline_load(load: &Load) -> Load {
    Load { path: ceiling::PATH, samples: Samples::fresh(0), ..load.clone() }
}

/// Measures lines in interleaved rounds, `seconds` each, and reports them.
pub(super) fn run_rounds(
    seconds: Duration,
    mut lines: Vec<BenchLine<'_>>,
    report: &mut Report,
) -> Result<(), Failure> {
    let names: Vec<&'static str> = lines.iter().map(|(line, _)| *line).collect();
    let Some(group) = names.first() else { return Ok(()) };
    let all = seconds.saturating_mul(u32::try_from(names.len()).unwrap_or(u32::MAX));
    report.begin(&names, all);
    let rounds = seconds.as_millis().div_ceil(ROUND.as_millis());
    let mut figures: Vec<Figure> = Vec::with_capacity(lines.len());
    for round in 0..rounds {
        for (index, (_, measure)) in lines.iter_mut().enumerate() {
            // Dirty pages of the previous round are written out first; a faster ledger leaves more.
            rustix::fs::sync();
            let before = host::steal_time();
            let figure = measure()?;
            let stolen =
                host::steal_time().zip(before).map(|(now, before)| now.saturating_sub(before));
            let figure = figure.into_round(group, stolen);
            match round {
                0 => figures.push(figure),
                _ => figures[index].add(figure)?,
            }
        }
    }
    for (line, figure) in names.iter().zip(figures) {
        report.add(line, figure);
    }
    Ok(())
}
