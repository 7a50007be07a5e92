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

/// A line of a gate that is sent `load`.
pub(super) fn knocking<'l>(line: &'static str, gate: &'l BenchGate, load: &Load) -> Line<'l> {
    let turn = Load { seconds: TURN, ..load.clone() };
    (line, Box::new(move || gate.knock(&turn)))
}

/// The same load at a door without a ledger.
pub(super) fn at_ceiling(load: &Load) -> Load {
    Load { path: ceiling::PATH, samples: Samples::fresh(0), ..load.clone() }
}

/// Measures lines by turns until all had their time, and reports them.
pub(super) fn by_turns(
    seconds: Duration,
    mut lines: Vec<Line<'_>>,
    report: &mut Report,
) -> Result<(), Failure> {
    let names: Vec<&'static str> = lines.iter().map(|(line, _)| *line).collect();
    let Some(group) = names.first() else { return Ok(()) };
    let all = seconds.saturating_mul(u32::try_from(names.len()).unwrap_or(u32::MAX));
    report.begin(&names, all);
    let turns = seconds.as_millis().div_ceil(TURN.as_millis());
    let mut figures: Vec<Figure> = Vec::with_capacity(lines.len());
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
    for (line, figure) in names.iter().zip(figures) {
        report.add(line, figure);
    }
    Ok(())
}
