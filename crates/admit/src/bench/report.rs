//! What was measured, as a table for people and one JSON object for programs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::output::{self, Failure};

/// How the name of a line ends that was measured with few keys.
const WITH_FEW_KEYS: &str = "_100k_known";

/// One line: how many in how long, and how long each took.
pub(super) struct Figure {
    count: u64,
    elapsed: Duration,
    latencies: Option<Histogram<u64>>,
    /// The slowest hundredth of each turn, where it was measured by turns.
    turns: Vec<u64>,
}

impl Figure {
    /// A rate with the latency of each answer, in microseconds.
    pub(super) fn timed(elapsed: Duration, latencies: Histogram<u64>) -> Self {
        Self::stepped(latencies.len(), elapsed, latencies)
    }

    /// `count` in `elapsed`, with the latency of each commit or step.
    pub(super) fn stepped(count: u64, elapsed: Duration, latencies: Histogram<u64>) -> Self {
        let turns = vec![latencies.value_at_quantile(0.99)];
        Self { count, elapsed, latencies: Some(latencies), turns }
    }

    /// `count` in `elapsed`, of which each took who knows how long.
    pub(super) fn counted(count: u64, elapsed: Duration) -> Self {
        Self { count, elapsed, latencies: None, turns: Vec::new() }
    }

    /// The slowest hundredth of the turn in the middle: a machine that stands still for a moment makes the
    /// slowest hundredth of all turns its own, but not of most.
    fn middle_turn(&self) -> Option<u64> {
        let mut turns = self.turns.clone();
        turns.sort_unstable();
        turns.get(turns.len() / 2).copied().filter(|_| turns.len() > 1)
    }

    /// The same line, measured for a while longer.
    pub(super) fn add(&mut self, more: Self) -> Result<(), Failure> {
        self.count += more.count;
        self.elapsed += more.elapsed;
        self.turns.extend(more.turns);
        if let (Some(all), Some(more)) = (&mut self.latencies, more.latencies) {
            all.add(more).map_err(Failure::runtime)?;
        }
        Ok(())
    }

    pub(super) fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
        let count = self.count as f64;
        count / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn json(&self) -> Value {
        let mut line = Map::new();
        line.insert("per_s".to_owned(), json!(self.per_second().round()));
        line.insert("count".to_owned(), json!(self.count));
        if let Some(latencies) = &self.latencies {
            line.insert("p50_us".to_owned(), json!(latencies.value_at_quantile(0.5)));
            line.insert("p99_us".to_owned(), json!(latencies.value_at_quantile(0.99)));
            line.insert("max_us".to_owned(), json!(latencies.max()));
        }
        if let Some(micros) = self.middle_turn() {
            line.insert("turn_p99_us".to_owned(), json!(micros));
        }
        Value::Object(line)
    }
}

/// All lines of a run.
pub(super) struct Report {
    json: bool,
    lines: Vec<(&'static str, Figure)>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json, lines: Vec::new() }
    }

    /// Adds a line, and tells a person waiting that it is done.
    pub(super) fn add(&mut self, name: &'static str, figure: Figure) {
        if !self.json {
            output::aside(&format!("{name}: {:.0} per second", figure.per_second()));
        }
        self.lines.push((name, figure));
    }

    fn of(&self, name: &str) -> Option<&Figure> {
        self.lines.iter().find(|(line, _)| *line == name).map(|(_, figure)| figure)
    }

    /// What a line is a ratio of: the same with few keys, or what stands for the whole table.
    fn reference(&self, line: &str) -> Option<&Figure> {
        let what = line.strip_suffix(WITH_FEW_KEYS).unwrap_or(line);
        // In a database, single inserts on the same server are what anybody would do instead.
        self.of(&format!("{what}{WITH_FEW_KEYS}"))
            .or(self.of("insert"))
            .or(self.of("ceiling"))
            .or(self.of("publish_bus").and(self.of("publish")))
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        if self.json {
            let lines = self.lines.iter().map(|(name, figure)| ((*name).to_owned(), figure.json()));
            return output::print_json(&Value::Object(lines.collect()));
        }
        let rows = self.lines.iter().map(|(name, figure)| {
            let latency = |pick: &dyn Fn(&Histogram<u64>) -> u64| {
                figure.latencies.as_ref().map(|h| pick(h).to_string()).unwrap_or_default()
            };
            vec![
                (*name).to_owned(),
                format!("{:.0}", figure.per_second()),
                self.reference(name)
                    .map(|all| format!("{:.2}", figure.per_second() / all.per_second()))
                    .unwrap_or_default(),
                latency(&|h| h.value_at_quantile(0.5)),
                latency(&|h| h.value_at_quantile(0.99)),
                figure.middle_turn().map(|micros| micros.to_string()).unwrap_or_default(),
                latency(&|h| h.max()),
            ]
        });
        output::print(&output::table(
            &["what", "per second", "ratio", "p50 us", "p99 us", "turn p99", "max us"],
            rows,
        ))
    }
}
