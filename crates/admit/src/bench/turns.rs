//! Lines that are measured by turns.
//!
//! What the machine's neighbours do falls on all lines alike that take turns, so their ratio can be
//! compared. And the turns in which the host took a core away can be told from the quiet ones.

use std::time::Duration;

use super::ceiling;
use super::client::Load;
use super::gate::BenchGate;
use super::host;
use super::report::{Figure, Report};
use super::sample::Samples;
use crate::output::Failure;

/// How long a turn is.
pub(super) const TURN: Duration = Duration::from_millis(500);

/// A line, and what measures it for a turn.
pub(super) type Line<'l> = (&'static str, Box<dyn FnMut() -> Result<Figure, Failure> + 'l>);

/// Measures lines by turns until all had their time, and reports them. Returns the rate of the last.
pub(super) fn by_turns(
    seconds: Duration,
    mut lines: Vec<Line<'_>>,
    report: &mut Report,
) -> Result<f64, Failure> {
    let turns = seconds.as_millis().div_ceil(TURN.as_millis());
    let mut figures: Vec<Figure> = Vec::with_capacity(lines.len());
    let group = lines.first().map_or("", |(line, _)| line);
    for turn in 0..turns {
        for (at, (_, measure)) in lines.iter_mut().enumerate() {
            // What the turn before has left to the disk must not fall on this one: a ledger that was
            // faster leaves more.
            rustix::fs::sync();
            let before = host::stolen();
            let figure = measure()?;
            let stolen = host::stolen().zip(before).map(|(now, before)| now.saturating_sub(before));
            let figure = figure.into_turn(group, stolen);
            match turn {
                0 => figures.push(figure),
                _ => figures[at].add(figure)?,
            }
        }
    }
    let mut rate = 0.0;
    for ((line, _), figure) in lines.iter().zip(figures) {
        rate = figure.per_second();
        report.add(line, figure);
    }
    Ok(rate)
}

/// A gate with a load, and beside it doors that have no ledger with the same, where there are any. Returns
/// the gate's rate.
pub(super) fn beside(
    others: &[(&'static str, Option<&BenchGate>)],
    (line, gate): (&'static str, &BenchGate),
    load: &Load,
    report: &mut Report,
) -> Result<f64, Failure> {
    let turn = Load { seconds: TURN, ..load.clone() };
    let top = at_ceiling(&turn);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (line, other) in others {
        if let Some(other) = other {
            lines.push((line, Box::new(|| other.knock(&top))));
        }
    }
    lines.push((line, Box::new(|| gate.knock(&turn))));
    by_turns(load.seconds, lines, report)
}

/// A gate with a load and nothing beside it.
pub(super) fn alone(
    line: &'static str,
    gate: &BenchGate,
    load: &Load,
    report: &mut Report,
) -> Result<f64, Failure> {
    beside(&[], (line, gate), load, report)
}

/// The same load at a door without a ledger.
pub(super) fn at_ceiling(load: &Load) -> Load {
    Load { path: ceiling::PATH, samples: Samples::fresh(0), ..load.clone() }
}
